/* test_bench_model.c - `h2okv bench` on the default model: one thread, one short context. */
#include "program.h"
#include "xml.h"

#include "h2okv/advanced.h"

#include <jansson.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#define TINY \
    "-m", H2OKV_TEST_MODEL, "-t", "1", "--quick", "--contexts", "256", "--budget", "128", "--new", "4"

static const char *const systems[] = { "llama-fa", "llama", "observe", "fused", "fused-q8", "fused-all" };
enum { N_SYSTEMS = 6 };

static double number(const json_t *j, const char *key)
{
    if (!json_is_number(json_object_get(j, key))) fail_msg("no number \"%s\"", key);
    return json_number_value(json_object_get(j, key));
}

static void is_spread(const json_t *j, const char *key)
{
    const json_t *s = json_object_get(j, key);
    assert_true(number(s, "least") > 0);
    assert_true(number(s, "least") <= number(s, "median") && number(s, "median") <= number(s, "most"));
}

/* K and V of a cell in f16 have 30 layers x 3 KV heads x 2 x 64 numbers x 2 bytes = 23,040 bytes. */
static void check_measurements(const json_t *list)
{
    static const double cells[] = { 256, 256, 256, 256, 256, 512 };
    assert_int_equal(json_array_size(list), N_SYSTEMS);
    for (size_t i = 0; i < N_SYSTEMS; i++) {
        const json_t *m = json_array_get(list, i);
        const char *isa = json_string_value(json_object_get(m, "isa"));
        assert_string_equal(json_string_value(json_object_get(m, "system")), systems[i]);
        assert_true(number(m, "context") == 256 && number(m, "prompt_tokens") == 252);
        assert_true(number(m, "rounds") == 1);
        assert_true(number(m, "cells") == cells[i]);
        assert_true(number(m, "kv_bytes") == cells[i] * (i == 4 ? 23040.0 * 34 / 64 : 23040.0));
        is_spread(m, "prompt_tok_s");
        is_spread(m, "first_token_s");
        is_spread(m, "decode_tok_s");
        assert_true(number(json_object_get(m, "peak_rss_bytes"), "median") > 50000000);
        if (i < 3) assert_null(isa);
        if (i >= 3) assert_string_equal(isa, h2okv_isa_best());
    }
}

static void all_systems(void **state)
{
    const char *csv = program_file("", 0), *svg = program_file("", 0);
    program_result r = program_run("bench", TINY, "-q", "--json", "--csv", csv, "--svg", svg);
    json_error_t error;
    json_t *j = json_loads(r.out, 0, &error), *kernels, *ratio;
    char *lines = file_bytes(csv), *picture = file_bytes(svg);
    (void)state;
    if (!j) fail_msg("%s in: %s%s", error.text, r.out, r.err);
    assert_int_equal(r.code, 0);
    assert_string_equal(r.err, "");
    assert_true(number(j, "threads") == 1 && number(j, "budget") == 128 && number(j, "new_tokens") == 4);
    assert_string_equal(json_string_value(json_object_get(j, "load")), "own");
    assert_int_equal(json_array_size(json_object_get(json_object_get(j, "machine"), "load_before")), 3);
    check_measurements(json_object_get(j, "measurements"));
    kernels = json_object_get(j, "kernels");
    is_spread(kernels, "copy_gb_s");
    assert_int_equal(json_array_size(json_object_get(kernels, "decode")), 5);
    ratio = json_array_get(json_object_get(j, "ratios"), 0);
    assert_string_equal(json_string_value(json_object_get(ratio, "key")), "decode");
    assert_true(number(ratio, "value") > 0);
    assert_true(json_is_false(json_object_get(j, "stopped")));
    assert_int_equal(count_of(lines, "\n"), 1 + N_SYSTEMS);
    for (size_t i = 0; i < N_SYSTEMS; i++) assert_contains(lines, systems[i]);
    assert_null(xml_fault(picture));
    assert_int_equal(count_of(picture, "<circle"), N_SYSTEMS);
    free(lines);
    free(picture);
    json_decref(j);
    program_free(&r);
}

/* A text of 20 tokens is repeated; 99 rounds would take minutes, and none after the first may begin. */
static void short_text_and_short_time(void **state)
{
    static const char words[] = "The quick brown fox jumps over the lazy dog, and then it sleeps a while.";
    const char *text = program_file(words, strlen(words));
    program_result r = program_run("bench", TINY, "--systems", "fused,llama-fa", "--repeat", "99",
                                   "--minutes", "0", "-f", text);
    (void)state;
    assert_int_equal(r.code, 0);
    assert_contains(r.out, "budget 128 + passes of 128 = 256 cells; 4 tokens decoded");
    assert_contains(r.out, "\n    256 llama-fa ");
    assert_contains(r.out, "\n        fused ");
    assert_contains(r.out, "\ndecode at 256, fused / llama.cpp flash attention: ");
    assert_lacks(r.out, "observe");
    assert_int_equal(count_of(r.out, "  1\n"), 2); /* n of either row */
    assert_true(longest_line(r.out) <= 100);
    assert_lacks(r.err, "\r"); /* progress is for terminals */
    program_free(&r);
}

static void ctrl_c(void **state)
{
    program_setup soon = { .signal = SIGINT, .signal_after = "llama_" }; /* of the first measurement */
    program_result r = program_run_with(soon, "bench", TINY, "--repeat", "99", "--minutes", "100", "-v");
    (void)state;
    assert_int_equal(r.code, 130);
    assert_contains(r.out, "\n    256 llama-fa ");
    assert_contains(r.out, "(interrupted)\n");
    assert_lacks(r.out, "decode kernel alone");
    program_free(&r);
}

static void models_that_are_none(void **state)
{
    program_result r = program_run("bench", "-m", "/nowhere.gguf", "-q");
    (void)state;
    assert_int_equal(r.code, 4);
    assert_string_equal(r.err, "h2okv bench: /nowhere.gguf: cannot open: No such file or directory\n");
    assert_string_equal(r.out, "");
    program_free(&r);
    program_expect(5, ": llama.cpp cannot load it: ", "bench", "-m", program_file("GGUF\3\0\0\0", 8));
    program_expect(2, "--budget 400000000 with passes of 128 tokens needs ", "bench", TINY, "--budget",
                   "400000000", "--systems", "fused");
}

static int end(void **state)
{
    (void)state;
    program_clean();
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_systems),
        cmocka_unit_test(short_text_and_short_time),
        cmocka_unit_test(ctrl_c),
        cmocka_unit_test(models_that_are_none),
    };
    return cmocka_run_group_tests(tests, NULL, end);
}
