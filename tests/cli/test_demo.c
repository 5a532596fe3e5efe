/* test_demo.c - `h2okv demo` says what is so, within a screen's width. */
#include "program.h"

#include <string.h>

static program_result demo;

static int start(void **state)
{
    (void)state;
    demo = program_run("demo");
    return 0;
}

static int end(void **state)
{
    (void)state;
    program_free(&demo);
    return 0;
}

static void every_statement_holds(void **state)
{
    (void)state;
    assert_int_equal(demo.code, 0);
    assert_string_equal(demo.err, "");
    assert_lacks(demo.out, "WRONG");
    assert_int_equal(count_of(demo.out, "\n  ok    "), 11);
}

static void the_worked_example(void **state)
{
    (void)state;
    assert_contains(demo.out, "      1    0.400  ####                                     evicted\n");
    assert_contains(demo.out, "      2    2.100  ######################                   heavy\n");
    assert_contains(demo.out, "      3    0.300  ###                                      recent\n");
}

static void what_is_kept_of_fifty_tokens(void **state)
{
    (void)state;
    assert_contains(demo.out, "kept {0..6, 10} as heavy hitters and {42..49} as recent");
    assert_int_equal(count_of(demo.out, "heavy, attended to\n"), 2);
    assert_contains(demo.out, "h2o           HHHHHHH...H...............................rrrrrrrr");
    assert_contains(demo.out, "sinks+window  SSSS..................................rrrrrrrrrrrr");
    assert_contains(demo.out, "window        ..................................rrrrrrrrrrrrrrrr");
}

static void a_former_heavy_hitter_goes(void **state)
{
    (void)state;
    assert_contains(demo.out, "\n    15       12   4 (2.86)  8 (3.66)  12 (2.70)    13..15    1 (2.06)\n");
}

static void fits_a_screen(void **state)
{
    (void)state;
    assert_true(longest_line(demo.out) <= 80);
    assert_true(count_of(demo.out, "\n") <= 100);
    assert_lacks(demo.out, "\033"); /* no colours: it is no terminal */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_statement_holds),        cmocka_unit_test(the_worked_example),
        cmocka_unit_test(what_is_kept_of_fifty_tokens), cmocka_unit_test(a_former_heavy_hitter_goes),
        cmocka_unit_test(fits_a_screen),
    };
    return cmocka_run_group_tests(tests, start, end);
}
