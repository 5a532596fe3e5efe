/* test_trace_model.c - `h2okv trace` on the default model: what ends it, what it refuses, and what a run leaves. */
#include "program.h"

#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define SMALL "-m", H2OKV_TEST_MODEL, "-t", "1", "--budget", "48", "--ubatch", "16"

static int end(void **state)
{
    (void)state;
    program_clean();
    return 0;
}

static const char *words(int n)
{
    char *many = malloc((size_t)n * 6 + 1);
    const char *path;
    for (int i = 0; i < n; i++) memcpy(many + 6 * i, "apple ", 6);
    path = program_file(many, (size_t)n * 6);
    free(many);
    return path;
}

static json_t *facts_of(const char *path)
{
    static const char mark[] = "id=\"data-facts\">";
    static char page[4 << 20];
    FILE *file = fopen(path, "r");
    size_t n = file ? fread(page, 1, sizeof page - 1, file) : 0;
    json_t *j;
    char *at;
    assert_true(n > 0);
    fclose(file);
    page[n] = '\0';
    at = strstr(page, mark);
    assert_non_null(at);
    j = json_loads(at + strlen(mark), JSON_DISABLE_EOF_CHECK, NULL);
    assert_non_null(j);
    assert_string_equal(page + n - 8, "</html>\n");
    return j;
}

static long fact(const json_t *j, const char *key)
{
    return (long)json_integer_value(json_object_get(j, key));
}

static void a_run(void **state)
{
    const char *path = program_file("old", 3);
    program_result r = program_run("trace", SMALL, "-f", words(150), "-n", "9", "--ignore-eos", "--pin", "20:24",
                                   "--prompt-budget", "64", "-o", path);
    json_t *j, *last;
    struct stat info;
    (void)state;
    assert_int_equal(r.code, 0);
    assert_string_equal(r.out, "");
    assert_contains(r.err, " 159 tokens, 90 lanes, ");
    j = facts_of(path);
    assert_int_equal(fact(j, "tokens"), 159); /* 151 of the text; the ninth new one is not read */
    assert_int_equal(fact(j, "prompt"), 151);
    assert_int_equal(fact(j, "layers"), 30);
    assert_int_equal(fact(j, "heads"), 3);
    assert_true(fact(j, "cells") >= 80);
    assert_false(json_is_true(json_object_get(j, "stopped")));
    last = json_array_get(json_object_get(j, "passes"), 1);
    assert_int_equal(json_integer_value(json_array_get(last, 2)), 64); /* the budget while the text is read */
    last = json_array_get(json_object_get(j, "passes"), json_array_size(json_object_get(j, "passes")) - 1);
    assert_int_equal(json_integer_value(json_array_get(last, 0)), 159);
    assert_int_equal(json_integer_value(json_array_get(last, 1)), 48);
    assert_int_equal(json_integer_value(json_array_get(last, 2)), 48);
    assert_int_equal(stat(path, &info), 0);
    assert_int_equal(info.st_mode & 0400, 0400);
    json_decref(j);
    program_free(&r);
}

/* A guided run goes through probes, which are no tokens of the text. */
static void a_guided_run(void **state)
{
    const char *path = program_file(NULL, 0);
    program_result r = program_run("trace", SMALL, "--ubatch", "32", "-f", words(200), "-n", "0", "--guide-text",
                                   "Which fruit?", "-o", path, "-q", "--lanes", "layer");
    json_t *j;
    (void)state;
    assert_int_equal(r.code, 0);
    assert_string_equal(r.err, "");
    j = facts_of(path);
    assert_int_equal(fact(j, "tokens"), 201);
    assert_int_equal(fact(j, "heads"), 1);
    assert_int_equal(fact(j, "layers"), 30);
    assert_true(fact(j, "guide") >= 3);
    json_decref(j);
    program_free(&r);
}

static void ctrl_c_leaves_a_page(void **state)
{
    program_setup soon = { .signal = SIGINT, .signal_after = " tokens run past ", .signal_delay = 500 };
    const char *path = program_file("old", 3);
    program_result r = program_run_with(soon, "trace", SMALL, "-f", words(10000), "-o", path);
    json_t *j = facts_of(path);
    (void)state;
    assert_int_equal(r.code, 130);
    assert_contains(r.err, " (interrupted)");
    assert_true(json_is_true(json_object_get(j, "stopped")));
    assert_in_range(fact(j, "tokens"), 16, 10000);
    json_decref(j);
    program_free(&r);
}

static void ctrl_c_while_loading_leaves_none(void **state)
{
    program_setup soon = { .signal = SIGINT, .signal_after = "llama_model_loader: loaded meta data" };
    const char *path = program_file("old", 3);
    program_result r = program_run_with(soon, "trace", SMALL, "-p", "Some text", "-v", "-o", path);
    char text[8] = "";
    FILE *file = fopen(path, "r");
    (void)state;
    assert_int_equal(r.code, 130);
    assert_contains(r.err, "no page");
    assert_int_equal(fread(text, 1, 7, file), 3);
    assert_string_equal(text, "old");
    fclose(file);
    program_free(&r);
}

static void a_text_too_long_for_a_page(void **state)
{
    const char *path = program_file(NULL, 0);
    (void)state;
    program_expect(2, "70,001 tokens in the text and new ones; with 90 lanes a page holds 65,000: give a shorter text",
                   "trace", SMALL, "-f", words(70000), "-n", "0", "-o", path);
}

/* During the first pass, which takes seconds. */
static void ctrl_c_twice_leaves_nothing(void **state)
{
    program_setup twice = { .signal = SIGINT, .signal_after = " tokens run past ", .signal_delay = 300, .signal_twice = true };
    const char *path = program_file("old", 3);
    program_result r = program_run_with(twice, "trace", "-m", H2OKV_TEST_MODEL, "-t", "1", "-f", words(8500), "--guide", "off",
                                        "--isa", "scalar", "--ubatch", "2048", "-n", "0", "-o", path);
    struct stat info;
    (void)state;
    assert_int_equal(r.code, -SIGINT);
    assert_int_equal(program_left(path), 0);
    assert_int_equal(stat(path, &info), 0);
    assert_int_equal(info.st_size, 3);
    program_free(&r);
}

static void a_full_disk_leaves_nothing(void **state)
{
    program_setup full = { .file_limit = 50000 };
    const char *path = program_file("old", 3);
    program_result r = program_run_with(full, "trace", SMALL, "-f", words(150), "-n", "0", "-q", "-o", path);
    struct stat info;
    (void)state;
    assert_int_equal(r.code, 6);
    assert_int_equal(count_of(r.err, "h2okv trace: "), 1);
    assert_contains(r.err, ": cannot write: File too large");
    assert_int_equal(program_left(path), 0);
    assert_int_equal(stat(path, &info), 0);
    assert_int_equal(info.st_size, 3);
    program_free(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_run),
        cmocka_unit_test(a_guided_run),
        cmocka_unit_test(ctrl_c_leaves_a_page),
        cmocka_unit_test(ctrl_c_while_loading_leaves_none),
        cmocka_unit_test(a_text_too_long_for_a_page),
        cmocka_unit_test(ctrl_c_twice_leaves_nothing),
        cmocka_unit_test(a_full_disk_leaves_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, end);
}
