/* test_replay.c - `h2okv replay`: the original implementations' traces, broken ones, and lines that are wrong. */
#include "program.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *name;
    int steps, lanes;
} vectors[] = {
    { "seed_small", 40, 1 },          { "seed_demo", 50, 1 },
    { "seed_long", 300, 1 },          { "paper_prompt_shorter", 40, 2 },
    { "paper_prompt_longer_than_budget", 30, 3 },
};
enum { N_VECTORS = sizeof vectors / sizeof vectors[0] };

static const char *path_of(const char *name)
{
    static char path[512];
    snprintf(path, sizeof path, "%s/vectors/%s.jsonl", H2OKV_TEST_DIR, name);
    return path;
}

/* ---- Whole files -------------------------------------------------------------------------------------- */

static void vectors_pass(void **state)
{
    (void)state;
    for (int i = 0; i < N_VECTORS; i++) {
        char says[160];
        snprintf(says, sizeof says, "%s.jsonl: %d steps, %d lane%s: every kept set and score is as recorded",
                 vectors[i].name, vectors[i].steps, vectors[i].lanes, vectors[i].lanes == 1 ? "" : "s");
        program_expect(0, says, "replay", path_of(vectors[i].name), "--check");
    }
}

static void account(void **state)
{
    program_result r = program_run("replay", path_of("paper_prompt_longer_than_budget"));
    (void)state;
    assert_int_equal(r.code, 0);
    assert_contains(r.out, "\n3 heads in 3 lanes, budget 10 = 4 recent + 6 heavy\n");
    assert_contains(r.out, "\n     1  0..23           10  5..8, 10..19 | 5..8, 10..19 | 5..8, 10..19\n");
    assert_contains(r.out, "\nlane 0 keeps {0..4, 9, 49..52}\n");
    assert_contains(r.out, "\nlane 2 keeps {0..3, 9, 30, 49..52}\n");
    assert_contains(r.out, "53 tokens in 30 steps; each lane holds 10, held at most 24 and gave up 43\n");
    assert_true(longest_line(strchr(r.out, '\n')) <= 80); /* the first line is the path */
    program_free(&r);
}

static void as_json(void **state)
{
    program_result r = program_run("replay", path_of("seed_demo"), "--json", "--check");
    json_t *j = json_loads(r.out, 0, NULL), *kept;
    (void)state;
    assert_int_equal(r.code, 0);
    assert_non_null(j);
    assert_string_equal(json_string_value(json_object_get(j, "check")), "passed");
    assert_string_equal(json_string_value(json_object_get(j, "mode")), "shared");
    assert_int_equal(json_integer_value(json_object_get(j, "tokens")), 50);
    assert_int_equal(json_integer_value(json_object_get(j, "peak_live")), 17);
    assert_int_equal(json_integer_value(json_object_get(j, "evicted")), 34);
    kept = json_array_get(json_object_get(j, "kept"), 0);
    assert_int_equal(json_array_size(kept), 16);
    assert_int_equal(json_integer_value(json_array_get(kept, 7)), 10);
    assert_int_equal(json_array_size(json_array_get(json_object_get(j, "scores"), 0)), 16);
    json_decref(j);
    program_free(&r);
}

/* ---- Files that were broken in one place -------------------------------------------------------------- */

static char *read_all(const char *path, size_t *n)
{
    FILE *file = fopen(path, "rb");
    char *text = malloc(1 << 20);
    assert_true(file && text);
    *n = fread(text, 1, (1 << 20) - 1, file);
    text[*n] = '\0';
    fclose(file);
    return text;
}

/* A copy of a vector with `from`, in its line `line`, made `to`. */
static const char *broken(const char *name, int line, const char *from, const char *to)
{
    size_t n;
    char *text = read_all(path_of(name), &n), *at = text, *made = malloc(n + 1024);
    const char *path;
    for (int i = 1; i < line; i++) at = strchr(at, '\n') + 1;
    at = strstr(at, from);
    assert_true(at && made && at < text + n);
    n = (size_t)sprintf(made, "%.*s%s%s", (int)(at - text), text, to, at + strlen(from));
    path = program_file(made, n);
    free(text);
    free(made);
    return path;
}

static void a_wrong_kept_set_is_found(void **state)
{
    const char *path = broken("seed_small", 41, "\"kept\": [0, 1, 2, 3, 7", "\"kept\": [0, 1, 2, 4, 7");
    (void)state;
    program_expect(1, ":41: step 40, lane 0, kept: expected 0..2, 4, 7, 37..39, got 0..3, 7, 37..39",
                   "replay", path, "--check");
    program_expect(0, "lane 0 keeps {0..3, 7, 37..39}", "replay", path); /* not compared without --check */
    path = broken("paper_prompt_shorter", 41, ", [0, 1, 2, 17,", ", [0, 1, 2, 18,");
    program_expect(1, ":41: step 40, lane 1, kept: expected 0..2, 18, 40..43, got 0..2, 17, 40..43", "replay",
                   path, "--check");
}

static void a_wrong_score_is_found(void **state)
{
    const char *path = broken("seed_small", 5, "1.55733418", "1.55749"); /* 1.0001 times */
    (void)state;
    program_expect(1, ":5: step 4, lane 0, scores[1] (position 1): expected 1.55749, got 1.557334", "replay",
                   path, "--check");
    path = broken("seed_small", 5, "1.55733418", "1.55748"); /* 1.00009 times: within the tolerance */
    program_expect(0, "as recorded", "replay", path, "--check");
    path = broken("seed_small", 5, ", 0.0]}", ", 0.0000001]}"); /* the newest token's score is 0 */
    program_expect(1, ":5: step 4, lane 0, scores[3] (position 3): expected 1e-07, got 0", "replay", path,
                   "--check");
    path = broken("paper_prompt_shorter", 3, "1.4933989", "1.4943989");
    program_expect(1, ":3: step 2, lane 1, scores[0] (position 0): expected 1.4943989, got 1.493", "replay",
                   path, "--check");
}

static void a_difference_as_json(void **state)
{
    const char *path = broken("seed_small", 41, "\"kept\": [0, 1, 2, 3, 7", "\"kept\": [0, 1, 2, 4, 7");
    program_result r = program_run("replay", path, "--check", "--json");
    json_t *j = json_loads(r.out, 0, NULL), *d = json_object_get(j, "difference");
    (void)state;
    assert_int_equal(r.code, 1);
    assert_string_equal(json_string_value(json_object_get(j, "check")), "failed");
    assert_int_equal(json_integer_value(json_object_get(d, "line")), 41);
    assert_int_equal(json_integer_value(json_object_get(d, "step")), 40);
    assert_string_equal(json_string_value(json_object_get(d, "field")), "kept");
    json_decref(j);
    program_free(&r);
}

/* ---- Bad lines ---------------------------------------------------------------------------------------- */

#define SHARED "{\"format\":\"h2okv-trace\",\"version\":1,\"mode\":\"shared\",\"heads\":2,\"recent\":2,\"heavy\":2," \
               "\"count_self\":false}\n"
#define HEADS "{\"format\":\"h2okv-trace\",\"version\":1,\"mode\":\"per-head\",\"heads\":2,\"recent\":2,\"heavy\":2," \
              "\"count_self\":true}\n"
#define FIRST "{\"new\":1,\"weights\":null,\"kept\":[0],\"scores\":[0]}\n"
#define TWO "{\"new\":2,\"weights\":[[[1,0],[0.5,0.5]],[[1,0],[0.5,0.5]]],\"kept\":[[0,1],[0,1]]," \
            "\"scores\":[[1.5,0.5],[1.5,0.5]]}\n"
#define TAIL ",\"kept\":[0,1],\"scores\":[1,0]}\n"
#define REST "\"mode\":\"shared\",\"heads\":2,\"recent\":2,\"heavy\":2,\"count_self\":false}\n"

static const struct {
    const char *text, *says; /* what stands behind the file's name */
} bad[] = {
    { "", ": the file is empty" },
    { SHARED, ": no step after the header" },
    { "hello\n", ":1: not JSON: " },
    { "[1]\n", ":1: a line has to be an object, this one is a list" },
    { "{\"format\":\"other\"}\n", ":1: not a trace: the first line needs \"format\": \"h2okv-trace\"" },
    { "{\"format\":\"h2okv-trace\",\"version\":3," REST FIRST,
      ":1: header: \"version\" is 3; this program reads versions 1 and 2" },
    { "{\"format\":\"h2okv-trace\"," REST FIRST,
      ":1: header: \"version\" is missing; this program reads versions 1 and 2" },
    { "{\"format\":\"h2okv-trace\",\"version\":1,\"mode\":\"both\"}\n",
      ":1: header: \"mode\" is \"both\"; it has to be" },
    { "{\"format\":\"h2okv-trace\",\"version\":1,\"mode\":\"shared\",\"heads\":0,\"recent\":1,\"heavy\":1,"
      "\"count_self\":false}\n" FIRST, ":1: header: \"heads\" is 0, it has to be 1 to 1024" },
    { "{\"format\":\"h2okv-trace\",\"version\":1,\"mode\":\"shared\",\"heads\":1,\"recent\":\"2\",\"heavy\":1,"
      "\"count_self\":false}\n" FIRST, ":1: header: \"recent\" has to be a whole number, not a string" },
    { "{\"format\":\"h2okv-trace\",\"version\":1,\"mode\":\"shared\",\"heads\":1,\"recent\":2,"
      "\"count_self\":false}\n" FIRST, ":1: header: \"heavy\" is missing" },
    { "{\"format\":\"h2okv-trace\",\"version\":1,\"mode\":\"shared\",\"heads\":1,\"recent\":0,\"heavy\":0,"
      "\"count_self\":false}\n" FIRST, ":1: header: recent + heavy has to be at least 1" },
    { "{\"format\":\"h2okv-trace\",\"version\":1,\"mode\":\"shared\",\"heads\":1,\"recent\":1,\"heavy\":1,\"sinks\":2,"
      "\"count_self\":false}\n" FIRST, ":1: header: \"sinks\" 2 count in \"heavy\" 1 and are more" },
    { "{\"format\":\"h2okv-trace\",\"version\":1,\"mode\":\"shared\",\"heads\":1,\"recent\":1,\"heavy\":1,"
      "\"count_self\":1}\n" FIRST, ":1: header: \"count_self\" has to be true or false" },
    { "{\"format\":\"h2okv-trace\",\"version\":1,\"mode\":\"shared\",\"heads\":1,\"recent\":1,\"heavy\":1,\"decay\":0,"
      "\"count_self\":true}\n" FIRST, ":1: header: \"decay\" has to be above 0 and at most 1" },
    { "{\"format\":\"h2okv-trace\",\"version\":1,\"mode\":\"shared\",\"heads\":1,\"recent\":1,\"heavy\":1,\"grace\":65537,"
      "\"count_self\":true}\n" FIRST, ":1: header: \"grace\" is 65537, it has to be 0 to 65536" },
    { "{\"format\":\"h2okv-trace\",\"version\":1,\"mode\":\"per-head\",\"heads\":3,\"group\":2,\"recent\":1,\"heavy\":1,"
      "\"count_self\":true}\n" FIRST, ":1: header: \"heads\" 3 is no multiple of \"group\" 2" },
    { "{\"format\":\"h2okv-trace\",\"version\":1,\"mode\":\"shared\",\"heads\":1,\"recnt\":1,\"heavy\":1,"
      "\"count_self\":true}\n" FIRST, ":1: unknown field \"recnt\"; did you mean \"recent\"?" },
    { SHARED FIRST "{\"new\":1,\"weights\":[[1],[1]]" TAIL "{\"new\":1,\n", ":4: not JSON: " },
    { SHARED FIRST "\n", ":3: not JSON: " },
    { SHARED FIRST "{\"new\":1,\"new\":1,\"weights\":[[1],[1]]" TAIL, ":3: not JSON: " },
    { SHARED FIRST "{\"weights\":[[1],[1]]" TAIL, ":3: \"new\" is missing" },
    { SHARED FIRST "{\"new\":0,\"weights\":[[1],[1]]" TAIL, ":3: \"new\" is 0, it has to be 1 to" },
    { SHARED FIRST "{\"new\":1.5,\"weights\":[[1],[1]]" TAIL,
      ":3: \"new\" has to be a whole number, not a real number" },
    { SHARED FIRST "{\"new\":1" TAIL, ":3: \"weights\" is missing" },
    { SHARED FIRST "{\"new\":1,\"wieghts\":null" TAIL,
      ":3: unknown field \"wieghts\"; did you mean \"weights\"?" },
    { SHARED FIRST "{\"new\":1,\"weights\":7" TAIL, ":3: weights has to be a list, not a whole number" },
    { SHARED FIRST "{\"new\":1,\"weights\":[[1]]" TAIL, ":3: weights has 1 entries, it needs 2" },
    { SHARED FIRST "{\"new\":1,\"weights\":[[1],[1,0]]" TAIL, ":3: weights[1][0] has 2 entries, it needs 1" },
    { SHARED FIRST "{\"new\":1,\"weights\":[[1],5]" TAIL,
      ":3: weights[1] has to be a list, not a whole number" },
    { SHARED FIRST "{\"new\":1,\"weights\":[[1],[null]]" TAIL,
      ":3: weights[1][0][0] has to be a number, not null" },
    { SHARED FIRST "{\"new\":1,\"weights\":[[1],[-0.5]]" TAIL, ":3: weights[1][0][0] is negative" },
    { SHARED FIRST "{\"new\":1,\"weights\":[[1],[1e60]]" TAIL,
      ":3: weights[1][0][0] is too large for a weight" },
    { SHARED FIRST "{\"new\":1,\"weights\":[[1],[1e999]]" TAIL, ":3: not JSON: " },
    { SHARED FIRST "{\"new\":1,\"weights\":[[1],[NaN]]" TAIL, ":3: not JSON: " },
    { SHARED FIRST "{\"new\":1,\"weights\":[[1],[1]],\"scores\":[1,0]}\n",
      ":3: \"kept\" is missing; --check needs it" },
    { SHARED FIRST "{\"new\":1,\"weights\":[[1],[1]],\"kept\":[0,1]}\n",
      ":3: \"scores\" is missing; --check needs it" },
    { SHARED FIRST "{\"new\":1,\"weights\":[[1],[1]],\"kept\":[0],\"scores\":[1,0]}\n",
      ":3: kept has 1 entries, it needs 2" },
    { SHARED FIRST "{\"new\":1,\"weights\":[[1],[1]],\"kept\":[1,0],\"scores\":[1,0]}\n",
      ":3: kept[1] is 0; positions rise" },
    { SHARED FIRST "{\"new\":1,\"weights\":[[1],[1]],\"kept\":[0,2],\"scores\":[1,0]}\n",
      ":3: kept[1] is 2; positions rise and are below 2" },
    { SHARED FIRST "{\"new\":1,\"weights\":[[1],[1]],\"kept\":[0,true],\"scores\":[1,0]}\n",
      ":3: kept[1] has to be a position, not true or false" },
    { SHARED FIRST "{\"new\":1,\"weights\":[[1],[1]],\"kept\":[0,1],\"scores\":[1,\"0\"]}\n",
      ":3: scores[1] has to be a number, not a string" },
    { HEADS "{\"new\":2,\"weights\":[[[0.5,0.5],[0.5,0.5]],[[1,0],[1,0]]]" TAIL,
      ":2: weights[0][0][1] is attention to a later token" },
    { HEADS "{\"new\":2,\"weights\":[[[1,0]],[[1,0],[1,0]]]" TAIL,
      ":2: weights[0] has 1 entries, it needs 2" },
    { HEADS "{\"new\":2,\"weights\":[[[1,0],[1,0]],[[1,0],[1]]]" TAIL,
      ":2: weights[1][1] has 1 entries, it needs 2" },
    { HEADS "{\"new\":900000,\"weights\":[[[1,0]],[[1,0]]]" TAIL,
      ":2: weights[0] has 1 entries, it needs 900000" },
    { HEADS TWO "{\"new\":1,\"weights\":[[[1,0]],[[1,0,0]]]" TAIL,
      ":3: weights[0][0] has 2 entries, it needs 3" },
    { HEADS "{\"new\":2,\"weights\":null,\"kept\":[[0,1]],\"scores\":[[0,0],[0,0]]}\n",
      ":2: kept has 1 entries, it needs 2" },
    { HEADS "{\"new\":2,\"weights\":null,\"kept\":[[0,1],[0,1]],\"scores\":[[0,0],[0]]}\n",
      ":2: scores[1] has 1 entries, it needs 2" },
};

static void bad_lines_are_named(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        const char *path = program_file(bad[i].text, strlen(bad[i].text));
        program_result r = program_run("replay", path, "--check");
        if (r.code != 4) fail_msg("exit code %d for: %s", r.code, bad[i].text);
        assert_string_equal(r.out, ""); /* nothing half done */
        assert_contains(r.err, path);
        assert_contains(r.err, bad[i].says);
        program_free(&r);
    }
}

/* Right, but not like the vectors: both shapes of a row, `meta`, no newline at the end, no weights at all. */
static void other_ways_to_say_it(void **state)
{
    static const char rows[] = HEADS TWO
        "{\"new\":1,\"weights\":[[0.2,0.3,0.5],[[1,0,0]]],\"meta\":[1],\"kept\":[[0,1,2],[0,1,2]],"
        "\"scores\":[[1.7,0.8,0.5],[2.5,0.5,0]]}\n{\"new\":1,\"weights\":null,\"kept\":[[0,1,2,3],[0,1,2,3]],"
        "\"scores\":[[1.7,0.8,0.5,0],[2.5,0.5,0,0]]}";
    /* Two heads add up in one lane; scores halve with each token; token 0 is a sink and outlives token 2. */
    static const char grouped[] =
        "{\"format\":\"h2okv-trace\",\"version\":1,\"mode\":\"per-head\",\"heads\":2,\"group\":2,\"recent\":1,"
        "\"heavy\":2,\"sinks\":1,\"decay\":0.5,\"count_self\":false,\"meta\":{\"model\":\"none\"}}\n"
        "{\"new\":2,\"weights\":[[[1,0],[0.5,0.5]],[[1,0],[0.25,0.75]]],\"kept\":[[0,1]],\"scores\":[[0.75,0]]}\n"
        "{\"new\":1,\"weights\":[[0.1,0.4,0.5],[0.1,0.6,0.3]],\"kept\":[[0,1,2]],\"scores\":[[0.575,1,0]]}\n"
        "{\"new\":1,\"weights\":[[0,0.5,0.5,0],[0,0.5,0.5,0]],\"kept\":[[0,1,3]],\"scores\":[[0.2875,1.5,0]]}\n";
    (void)state;
    program_expect(0, "3 steps, 2 lanes", "replay", program_file(rows, strlen(rows)), "--check");
    program_expect(0, "3 steps, 1 lane", "replay", program_file(grouped, strlen(grouped)), "--check");
}

static void files_that_are_none(void **state)
{
    (void)state;
    program_expect(4, "/nowhere.jsonl: cannot open: No such file or directory", "replay", "/nowhere.jsonl");
    program_expect(4, ": is a directory, not a trace", "replay", H2OKV_TEST_DIR);
    program_expect(4, "/dev/null: is not a regular file", "replay", "/dev/null");
    program_expect(2, "no FILE given", "replay", "--check");
    program_expect(2, "'b' is a second one", "replay", "a", "b");
    program_expect(2, "did you mean '--check'?", "replay", "a", "--chek");
}

static int clean(void **state)
{
    (void)state;
    program_clean();
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(vectors_pass),
        cmocka_unit_test(account),
        cmocka_unit_test(as_json),
        cmocka_unit_test_teardown(a_wrong_kept_set_is_found, clean),
        cmocka_unit_test_teardown(a_wrong_score_is_found, clean),
        cmocka_unit_test_teardown(a_difference_as_json, clean),
        cmocka_unit_test_teardown(bad_lines_are_named, clean),
        cmocka_unit_test_teardown(other_ways_to_say_it, clean),
        cmocka_unit_test(files_that_are_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
