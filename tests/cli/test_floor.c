/* test_floor.c - which budgets are warned of (faults.md 26). */
#include "program.h"

#include "cli.h"

static const char *warning(uint32_t budget, uint32_t text)
{
    stderr_catch();
    cli_warn_floor("run", "default", budget, text);
    return stderr_caught();
}

static void so_many_tokens_or_so_much_of_the_text(void **state)
{
    (void)state;
    assert_int_equal(cli_floor("default", 100), 64);
    assert_int_equal(cli_floor("default", 1299), 64); /* 5 % are 64.95 */
    assert_int_equal(cli_floor("default", 1300), 65);
    assert_int_equal(cli_floor("default", UINT32_MAX), 214748364);
    assert_int_equal(cli_floor("h2o-paper", 649), 64); /* without decay it takes twice as many */
    assert_int_equal(cli_floor("h2o-paper", 650), 65);
    assert_int_equal(cli_floor("no such policy", 20000), 2000);
}

static void budgets_below_it_are_warned_of(void **state)
{
    (void)state;
    assert_string_equal(warning(63, 12000), "h2okv run: warning: --budget 63 is below 600, the least that is advised for "
                        "a text of 12,000 tokens; `h2okv eval` measures what it costs\n");
    assert_contains(warning(63, 64), "--budget 63 is below 64, ");
    assert_string_equal(warning(63, 63), ""); /* all of it is kept */
    assert_string_equal(warning(64, 1000), "");
    assert_contains(warning(599, 12000), "--budget 599 is below 600, ");
    assert_string_equal(warning(600, 12000), "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(so_many_tokens_or_so_much_of_the_text),
        cmocka_unit_test(budgets_below_it_are_warned_of),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
