/*
 * test_demo.c - `h2okv demo` says what is so, within a screen's width; and it says so when something is not so.
 *
 * For the latter the demonstration is compiled in here once more, on a store that loses a token.
 */
#define _POSIX_C_SOURCE 200809L /* fileno, dup */
#include "program.h"

#include "h2okv/h2okv.h"

static int wrong_positions(const h2okv_store *store, uint32_t sequence, uint32_t layer, int32_t *out)
{
    int status = h2okv_store_positions(store, sequence, layer, out);
    uint32_t n = h2okv_store_size(store, layer);
    if (n == 16 && out[7] == 10) out[7] = 11; /* 10 is one of the two that are attended to */
    return status;
}

#define h2okv_store_positions wrong_positions
#include "cmd_demo.c"
#undef h2okv_store_positions

#include <unistd.h>

static program_result demo_says;

static int start(void **state)
{
    (void)state;
    demo_says = program_run("demo");
    return 0;
}

static int end(void **state)
{
    (void)state;
    program_free(&demo_says);
    return 0;
}

static void every_statement_holds(void **state)
{
    (void)state;
    assert_int_equal(demo_says.code, 0);
    assert_string_equal(demo_says.err, "");
    assert_lacks(demo_says.out, "WRONG");
    assert_int_equal(count_of(demo_says.out, "\n  ok    "), 11);
}

static void the_worked_example(void **state)
{
    (void)state;
    assert_contains(demo_says.out, "      1    0.400  ####                                     evicted\n");
    assert_contains(demo_says.out, "      2    2.100  ######################                   heavy\n");
    assert_contains(demo_says.out, "      3    0.300  ###                                      recent\n");
}

static void what_is_kept_of_fifty_tokens(void **state)
{
    (void)state;
    assert_contains(demo_says.out, "kept {0..6, 10} as heavy hitters and {42..49} as recent");
    assert_contains(demo_says.out,
                    "      5   12.565  ######################################## heavy, attended to\n");
    assert_contains(demo_says.out,
                    "     10   10.162  ################################         heavy, attended to\n");
    assert_contains(demo_says.out, "h2o           HHHHHHH...H...............................rrrrrrrr");
    assert_contains(demo_says.out, "sinks+window  SSSS..................................rrrrrrrrrrrr");
    assert_contains(demo_says.out, "window        ..................................rrrrrrrrrrrrrrrr");
}

static void a_former_heavy_hitter_goes(void **state)
{
    (void)state;
    assert_contains(demo_says.out,
                    "\n    15       12   4 (2.86)  8 (3.66)  12 (2.70)    13..15    1 (2.06)\n");
}

static void a_wrong_result_is_told(void **state)
{
    char out[8192], *argv[] = { (char *)"demo", NULL };
    FILE *file = tmpfile();
    int code, was = dup(1);
    const char *err;
    (void)state;
    assert_true(file && was >= 0);
    fflush(stdout);
    dup2(fileno(file), 1);
    stderr_catch();
    code = cli_demo.run(1, argv);
    err = stderr_caught();
    fflush(stdout);
    dup2(was, 1);
    rewind(file);
    out[fread(out, 1, sizeof out - 1, file)] = '\0';
    fclose(file);
    assert_int_equal(code, 1);
    assert_contains(out, "  WRONG kept {0..6, 10} as heavy hitters and {42..49} as recent\n");
    assert_contains(out, "  WRONG H2O still has both");
    assert_contains(out, "  ok    never more than 16 tokens");
    assert_contains(err, "results are not as stated");
}

static void fits_a_screen(void **state)
{
    (void)state;
    assert_true(longest_line(demo_says.out) <= 80);
    assert_true(count_of(demo_says.out, "\n") <= 100);
    assert_lacks(demo_says.out, "\033"); /* no colours: it is no terminal */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_statement_holds),        cmocka_unit_test(the_worked_example),
        cmocka_unit_test(what_is_kept_of_fifty_tokens), cmocka_unit_test(a_former_heavy_hitter_goes),
        cmocka_unit_test(a_wrong_result_is_told),       cmocka_unit_test(fits_a_screen),
    };
    return cmocka_run_group_tests(tests, start, end);
}
