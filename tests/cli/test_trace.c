/* test_trace.c - the page of `h2okv trace` without a model: what is in it, hostile texts, and options that are wrong. */
#define _GNU_SOURCE 1 /* strndup */
#include "program.h"

#include "trace_rig.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static trace_rig rig;

static int start(void **state)
{
    (void)state;
    trace_rig_make(&rig, "a </script><b> & \xff\"name\"");
    return 0;
}

static int end(void **state)
{
    (void)state;
    trace_rig_free(&rig);
    program_clean();
    return 0;
}

/* ---- The page's data ---------------------------------------------------------------------------------- */

static char *part(const char *id)
{
    char mark[64];
    const char *at, *stop;
    snprintf(mark, sizeof mark, "id=\"data-%s\">", id);
    at = strstr(rig.page, mark);
    assert_non_null(at);
    at += strlen(mark);
    stop = strchr(at, '<');
    return strndup(at, (size_t)(stop - at));
}

/* Base64 undone; *n bytes, to be freed. */
static unsigned char *bytes_of(const char *id, size_t *n)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    char *text = part(id);
    unsigned char *out = malloc(strlen(text) + 1);
    unsigned bits = 0, held = 0;
    *n = 0;
    assert_int_equal(strlen(text) % 4, 0);
    for (const char *c = text; *c && *c != '='; c++) {
        const char *digit = strchr(digits, *c);
        assert_non_null(digit);
        bits = bits << 6 | (unsigned)(digit - digits);
        held += 6;
        if (held >= 8) out[(*n)++] = (unsigned char)(bits >> (held -= 8));
    }
    free(text);
    return out;
}

static json_t *facts(void)
{
    char *text = part("facts");
    json_t *j = json_loads(text, 0, NULL);
    assert_non_null(j);
    free(text);
    return j;
}

static void the_facts(void **state)
{
    json_t *j = facts(), *last = json_array_get(json_object_get(j, "passes"), 10);
    (void)state;
    assert_int_equal(json_integer_value(json_object_get(j, "tokens")), RIG_TOKENS);
    assert_int_equal(json_integer_value(json_object_get(j, "prompt")), RIG_PROMPT);
    assert_int_equal(json_array_size(json_object_get(j, "passes")), RIG_PROMPT / RIG_PASS + RIG_NEW);
    assert_int_equal(json_integer_value(json_array_get(last, 0)), RIG_TOKENS);
    assert_int_equal(json_integer_value(json_array_get(last, 1)), RIG_BUDGET);
    assert_int_equal(json_integer_value(json_array_get(last, 3)), RIG_RECENT);
    assert_string_equal(json_string_value(json_object_get(j, "file")), "a </script><b> & \xef\xbf\xbd\"name\"");
    json_decref(j);
}

/* Tokens that never went are those that the cache holds. */
static void who_stays(void **state)
{
    size_t n;
    unsigned char *gone = bytes_of("gone", &n);
    (void)state;
    assert_int_equal(n, RIG_LANES * RIG_TOKENS);
    for (int lane = 0; lane < RIG_LANES; lane++) {
        int found = 0;
        for (int i = 0; i < RIG_TOKENS; i++) {
            if (gone[lane * RIG_TOKENS + i] != 255) continue;
            assert_true(found < RIG_BUDGET);
            assert_int_equal(rig.kept[lane][found++], i);
        }
        assert_int_equal(found, RIG_BUDGET);
    }
    free(gone);
}

/* No token goes before it came, or while it is recent; the pass is that at whose end it went. */
static void when_they_went(void **state)
{
    size_t n;
    unsigned char *gone = bytes_of("gone", &n);
    (void)state;
    for (size_t at = 0; at < n; at++) {
        int pass = gone[at], seen = pass < 6 ? 8 * (pass + 1) : RIG_PROMPT + pass - 5, pos = (int)(at % RIG_TOKENS);
        if (pass != 255) assert_true(pass >= 1 && pos < seen - RIG_RECENT && pos >= RIG_SINKS && pos != 5);
    }
    for (int lane = 0; lane < RIG_LANES; lane++) { /* pass 0 keeps all 8, pass 1 gives up 4 of 16 */
        int went[11] = { 0 };
        for (int i = 0; i < RIG_TOKENS; i++) {
            if (gone[lane * RIG_TOKENS + i] < 11) went[gone[lane * RIG_TOKENS + i]]++;
        }
        for (int p = 0; p < 11; p++) assert_int_equal(went[p], p == 0 ? 0 : p == 1 ? 4 : p < 6 ? 8 : 1);
    }
    free(gone);
}

/* Scores of the last moment are the cache's, within half a step of the logarithm. */
static void the_scores(void **state)
{
    size_t n;
    unsigned char *score = bytes_of("score", &n), *of_last = score + n - RIG_LANES * RIG_BUDGET;
    json_t *j = facts();
    double least = json_real_value(json_object_get(j, "least")), most = json_real_value(json_object_get(j, "most"));
    double step = log(most / least) / 254;
    (void)state;
    assert_int_equal(n, RIG_LANES * (8 + 12 * 10)); /* every pass is a moment */
    for (int k = 0; k < RIG_LANES * RIG_BUDGET; k++) {
        double want = rig.score[k / RIG_BUDGET][k % RIG_BUDGET], got = least * exp(step * (of_last[k] - 1));
        assert_true(fabs(log(got / want)) <= step * 0.501);
    }
    json_decref(j);
    free(score);
}

static void the_text(void **state)
{
    size_t n, n_lengths, sum = 0;
    unsigned char *text = bytes_of("text", &n), *length = bytes_of("length", &n_lengths);
    (void)state;
    assert_int_equal(n_lengths, 2 * RIG_TOKENS);
    for (int i = 0; i < RIG_TOKENS; i++) {
        const char *piece = rig_pieces[i % 20];
        size_t m = length[2 * i] + 256u * length[2 * i + 1];
        assert_int_equal(m, strlen(piece));
        assert_memory_equal(text + sum, piece, m);
        sum += m;
    }
    assert_int_equal(sum, n);
    free(text);
    free(length);
}

/* Whatever the tokens and names hold, the page's own markup is all there is. */
static void nothing_gets_out(void **state)
{
    (void)state;
    assert_int_equal(count_of(rig.page, "</script>"), 7);
    assert_int_equal(count_of(rig.page, "<script"), 7);
    assert_int_equal(count_of(rig.page, "</style>"), 1);
    assert_lacks(rig.page, "onerror");
    assert_lacks(rig.page, "%DATA%");
    assert_lacks(rig.page, "<b>");
    assert_lacks(rig.page, "http:");
    assert_lacks(rig.page, "https:");
    for (const char *c = rig.page; *c; c++) assert_true((unsigned char)*c < 0x80);
}

/* ---- Room --------------------------------------------------------------------------------------------- */

/* However long the run, there are at most so many moments, and the last pass is one. */
static void few_moments(void **state)
{
    h2okv_options o;
    h2okv_cache *cache;
    recording r;
    (void)state;
    h2okv_options_init(&o);
    o.budget = o.cells = 4;
    assert_int_equal(h2okv_cache_create(&cache, &o, NULL), 0);
    assert_true(recording_start(&r, 1, 5000, 700, 4));
    for (uint32_t seen = 1; seen <= 5650; seen++) recording_pass(&r, cache, seen);
    recording_end(&r, cache);
    assert_false(r.failed);
    assert_int_equal(r.n_passes, 5650);
    assert_in_range(r.n_moments, 50, 64);
    assert_int_equal(r.moment[r.n_moments - 1].pass, 5649);
    recording_free(&r);
    assert_true(recording_start(&r, 90, 8000, 0, 8000)); /* 720,000 scores a moment */
    assert_int_equal(r.most_moments, 24);
    recording_free(&r);
    h2okv_cache_free(cache);
}

/* ---- Files -------------------------------------------------------------------------------------------- */

static void whole_or_not_at_all(void **state)
{
    const char *path = program_file("before", 6);
    struct stat info;
    cli_saving s;
    char text[16] = "";
    FILE *file;
    (void)state;
    assert_true(cli_save_open(&s, "trace", path));
    fputs("after", s.file);
    cli_save_drop(&s);
    file = fopen(path, "r");
    assert_non_null(fgets(text, sizeof text, file));
    fclose(file);
    assert_string_equal(text, "before");
    assert_true(cli_save_open(&s, "trace", path));
    fputs("after", s.file);
    assert_int_equal(stat(s.temporary, &info), 0);
    assert_true(cli_save_keep(&s));
    file = fopen(path, "r");
    assert_non_null(fgets(text, sizeof text, file));
    fclose(file);
    assert_string_equal(text, "after");
}

static void unwritable_places(void **state)
{
    cli_saving s;
    (void)state;
    stderr_catch();
    assert_false(cli_save_open(&s, "trace", "/nowhere/at/all.html"));
    assert_false(cli_save_open(&s, "trace", "/tmp"));
    assert_false(cli_save_open(&s, "trace", "/dev/null"));
    const char *said = stderr_caught();
    assert_contains(said, "h2okv trace: /nowhere/at/all.html: cannot write: No such file or directory\n");
    assert_contains(said, "h2okv trace: /tmp: cannot write: is a directory\n");
    assert_contains(said, "h2okv trace: /dev/null: cannot write: is not a regular file");
}

/* ---- The command -------------------------------------------------------------------------------------- */

static void wrong_options(void **state)
{
    (void)state;
    program_expect(2, "h2okv trace: no -o FILE", "trace", "-p", "text");
    program_expect(2, "h2okv trace: no text given", "trace", "-o", "x.html");
    program_expect(2, "h2okv trace: give --guide or --guide-text, not both", "trace", "-o", "x.html", "-p", "t", "--guide",
                   "4", "--guide-text", "t");
}

#ifdef H2OKV_HAVE_LLAMA
static void unwritable_output(void **state)
{
    (void)state;
    program_expect(6, "h2okv trace: /nowhere/x.html: cannot write: No such file or directory", "trace", "-p", "text",
                   "-o", "/nowhere/x.html");
    program_expect(6, "h2okv trace: /tmp: cannot write: is a directory", "trace", "-p", "text", "-o", "/tmp");
}

static void missing_files(void **state)
{
    const char *path = program_file(NULL, 0);
    (void)state;
    program_expect(4, "/nowhere.txt: cannot open", "trace", "-f", "/nowhere.txt", "-o", path);
    program_expect(4, "/nowhere.gguf: cannot open", "trace", "-p", "text", "-m", "/nowhere.gguf", "-o", path);
}
#else
static void unwritable_output(void **state)
{
    (void)state;
    program_expect(3, "built without llama.cpp", "trace", "-p", "text", "-o", "/nowhere/x.html");
}

static void missing_files(void **state)
{
    (void)state;
    program_expect(3, "built without llama.cpp", "trace", "-f", "/nowhere.txt", "-o", "x.html");
}
#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_facts),
        cmocka_unit_test(who_stays),
        cmocka_unit_test(when_they_went),
        cmocka_unit_test(the_scores),
        cmocka_unit_test(the_text),
        cmocka_unit_test(nothing_gets_out),
        cmocka_unit_test(few_moments),
        cmocka_unit_test(whole_or_not_at_all),
        cmocka_unit_test(unwritable_places),
        cmocka_unit_test(wrong_options),
        cmocka_unit_test(unwritable_output),
        cmocka_unit_test(missing_files),
    };
    return cmocka_run_group_tests(tests, start, end);
}
