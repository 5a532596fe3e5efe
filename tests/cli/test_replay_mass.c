/* test_replay_mass.c - `h2okv replay` on traces of masses (version 2): by hand, and lines that are wrong. */
#include "program.h"

#include <string.h>

#define HEADER(rest) "{\"format\":\"h2okv-trace\",\"version\":2,\"mode\":\"mass\"," rest "}\n"
#define SMALL HEADER("\"lanes\":1,\"recent\":1,\"heavy\":1,\"policy\":\"h2o\"")
#define TAIL ",\"kept\":[[0]],\"scores\":[[0]]}\n"

static int clean(void **state)
{
    (void)state;
    program_clean();
    return 0;
}

/* Decay, a pin, a probe, its scores spread, another budget and `recent`, a pass without tokens: each value by hand. */
static void by_hand(void **state)
{
    static const char text[] =
        HEADER("\"lanes\":1,\"recent\":1,\"heavy\":1,\"policy\":\"h2o\",\"decay\":0.5,\"pins\":[[2,3]],\"meta\":7")
        "{\"new\":0,\"budget\":3,\"mass\":null,\"kept\":[[]],\"scores\":[[]]}\n"
        "{\"new\":4,\"mass\":[[0.5,4,0.25,0.125]],\"kept\":[[1,2,3]],\"scores\":[[4,0.25,0.125]]}\n"
        "{\"new\":1,\"mass\":[[0,0,1,0.5]],\"kept\":[[1,2,4]],\"scores\":[[2,0.125,0.5]]}\n"
        "{\"new\":1,\"probe\":2,\"spread\":1,\"budget\":4,\"recent\":2,\"mass\":[[0.04,0.09,0.16,0.25,9,9]],"
        "\"kept\":[[1,2,4,5]],\"scores\":[[0.5,0.5,0.9,0.9]]}\n"
        "{\"new\":0,\"budget\":3,\"mass\":null,\"kept\":[[2,4,5]],\"scores\":[[0.5,0.9,0.9]]}\n"
        "{\"new\":1,\"mass\":null,\"kept\":[[2,5,6]],\"scores\":[[0.25,0.45,0]]}\n";
    (void)state;
    program_expect(0, ": 6 steps, 1 lane: every kept set and score is as recorded", "replay",
                   program_file(text, strlen(text)), "--check");
}

static void the_account(void **state)
{
    static const char text[] =
        HEADER("\"lanes\":2,\"recent\":1,\"heavy\":1,\"policy\":\"h2o\",\"pool\":1")
        "{\"new\":3,\"probe\":1,\"mass\":[[1,0,0,5],[0,1,0,5]]}\n{\"new\":1,\"mass\":[[0,0,0],[0,0,0]]}\n";
    program_result r = program_run("replay", program_file(text, strlen(text)));
    (void)state;
    assert_int_equal(r.code, 0);
    assert_contains(r.out, "\npolicy h2o in 2 lanes, budget 2 = 1 recent + 1 heavy, pool 1\n");
    assert_contains(r.out, "\n     1  0..2             2  0 | 0\n"); /* neighbours of 1 rank alike, and the later stays */
    assert_contains(r.out, "\n     2  3                2  1 | 1\n");
    assert_contains(r.out, "5 tokens in 2 steps"); /* the probe came too */
    program_free(&r);
}

/* Two masses that are the same float: of equal ones the later token would stay. */
static void masses_are_exact(void **state)
{
    static const char text[] = SMALL "{\"new\":3,\"mass\":[[1.0000000000000002,1,0]],\"kept\":[[0,2]],\"scores\":[[1,0]]}\n";
    (void)state;
    program_expect(0, "as recorded", "replay", program_file(text, strlen(text)), "--check");
}

static void a_difference_is_found(void **state)
{
    static const char kept[] = SMALL "{\"new\":3,\"mass\":[[2,1,0]],\"kept\":[[1,2]],\"scores\":[[2,0]]}\n";
    static const char score[] = SMALL "{\"new\":3,\"mass\":[[2,1,0]],\"kept\":[[0,2]],\"scores\":[[2.001,0]]}\n";
    (void)state;
    program_expect(1, ":2: step 1, lane 0, kept: expected 1..2, got 0, 2", "replay", program_file(kept, strlen(kept)),
                   "--check");
    program_expect(1, ":2: step 1, lane 0, scores[0] (position 0): expected 2.001, got 2", "replay",
                   program_file(score, strlen(score)), "--check");
}

/* ---- Bad lines ---------------------------------------------------------------------------------------- */

static const struct {
    const char *text, *says;
} bad[] = {
    { "{\"format\":\"h2okv-trace\",\"version\":1,\"mode\":\"mass\"}\n", ":1: header: \"mode\" \"mass\" is for version 2" },
    { "{\"format\":\"h2okv-trace\",\"version\":2,\"mode\":\"shared\"}\n",
      ":1: header: \"mode\" \"shared\" is for version 1" },
    { HEADER("\"recent\":1,\"heavy\":1,\"policy\":\"h2o\""), ":1: header: \"lanes\" is missing" },
    { HEADER("\"lanes\":65537,\"recent\":1,\"heavy\":1,\"policy\":\"h2o\""), ":1: header: \"lanes\" is 65537" },
    { HEADER("\"lanes\":1,\"recent\":1,\"heavy\":1"), ":1: header: \"policy\" has to be the name of a policy" },
    { HEADER("\"lanes\":1,\"recent\":1,\"heavy\":1,\"policy\":\"none\"") "{\"new\":1,\"mass\":null" TAIL,
      "the header's options are refused: policy" },
    { HEADER("\"lanes\":1,\"recent\":1,\"heavy\":1,\"policy\":\"h2o\",\"count_self\":true"),
      ":1: unknown field \"count_self\"" },
    { HEADER("\"lanes\":1,\"recent\":1,\"heavy\":1,\"policy\":\"h2o\",\"pins\":[[3,3]]"),
      ":1: header: pins[0] has to be [first, end], two positions" },
    { HEADER("\"lanes\":1,\"recent\":1,\"heavy\":1,\"policy\":\"h2o\",\"pins\":[4]"), ":1: header: pins[0] has to be" },
    { HEADER("\"lanes\":1,\"recent\":1,\"heavy\":1,\"policy\":\"h2o\",\"pins\":[[0,5]]") "{\"new\":1,\"mass\":null" TAIL,
      "the header's pins are refused: " },
    { SMALL "{\"new\":1" TAIL, ":2: \"mass\" is missing" },
    { SMALL "{\"new\":1,\"weights\":null" TAIL, ":2: unknown field \"weights\"" },
    { SMALL "{\"new\":-1,\"mass\":null" TAIL, ":2: \"new\" is -1, it has to be 0 to" },
    { SMALL "{\"new\":0,\"mass\":[[]]" TAIL, ":2: \"mass\" has to be null where no token is new" },
    { SMALL "{\"new\":0,\"probe\":2,\"mass\":null" TAIL, ":2: \"probe\" needs new tokens" },
    { SMALL "{\"new\":1,\"probe\":0,\"mass\":null" TAIL, ":2: \"probe\" is 0, it has to be 1 to" },
    { SMALL "{\"new\":1,\"budget\":0,\"mass\":null" TAIL, ":2: \"budget\" is 0, it has to be 1 to" },
    { SMALL "{\"new\":1,\"recent\":3,\"mass\":null" TAIL, ":2: \"recent\" is 3, more than the budget 2" },
    { SMALL "{\"new\":1,\"mass\":[[1],[1]]" TAIL, ":2: mass has 2 entries, it needs 1" },
    { SMALL "{\"new\":1,\"probe\":1,\"mass\":[[1]]" TAIL, ":2: mass[0] has 1 entries, it needs 2" },
    { SMALL "{\"new\":1000000,\"mass\":[[1]]" TAIL, ":2: mass[0] has 1 entries, it needs 1000000" },
    { SMALL "{\"new\":1,\"mass\":[[-1]]" TAIL, ":2: mass[0][0] is negative" },
    { SMALL "{\"new\":1,\"mass\":[[1e31]]" TAIL, ":2: mass[0][0] is too large for a mass" },
    { SMALL "{\"new\":1,\"mass\":[[true]]" TAIL, ":2: mass[0][0] has to be a number, not true or false" },
    { SMALL "{\"new\":1,\"mass\":null,\"scores\":[[0]]}\n", ":2: \"kept\" is missing; --check needs it" },
};

static void bad_lines_are_named(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        program_result r = program_run("replay", program_file(bad[i].text, strlen(bad[i].text)), "--check");
        if (r.code != 4) fail_msg("exit code %d for: %s", r.code, bad[i].text);
        assert_string_equal(r.out, "");
        assert_contains(r.err, bad[i].says);
        program_free(&r);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(by_hand, clean),
        cmocka_unit_test_teardown(the_account, clean),
        cmocka_unit_test_teardown(masses_are_exact, clean),
        cmocka_unit_test_teardown(a_difference_is_found, clean),
        cmocka_unit_test_teardown(bad_lines_are_named, clean),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
