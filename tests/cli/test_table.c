/* test_table.c - bars, ranges, numbers for people, tables of tokens, and the progress line. */
#include "program.h"

#include "cli.h"

#include <string.h>

static void bars(void **state)
{
    static const struct {
        double value, most;
        unsigned marks;
    } cases[] = {
        { 4, 4, 10 }, { 2, 4, 5 }, { 0, 4, 0 }, { 0.001, 4, 1 }, { -1, 4, 0 }, { 9, 4, 10 }, { 1, 0, 0 },
    };
    char bar[32];
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        cli_bar(bar, 10, cases[i].value, cases[i].most);
        assert_int_equal(strlen(bar), cases[i].marks);
        assert_int_equal(strspn(bar, "#"), cases[i].marks);
    }
}

static void ranges(void **state)
{
    static const int32_t pos[] = { 0, 1, 2, 3, 4, 5, 6, 10, 42, 43 };
    char text[64];
    (void)state;
    assert_string_equal(cli_ranges(text, sizeof text, pos, 10), "0..6, 10, 42..43");
    assert_string_equal(cli_ranges(text, sizeof text, pos, 1), "0");
    assert_string_equal(cli_ranges(text, sizeof text, pos, 0), "");
    assert_string_equal(cli_ranges(text, 17, pos, 10), "0..6, 10, 42..43"); /* just enough room */
    assert_string_equal(cli_ranges(text, 16, pos, 10), "0..6, 10, ...");
    assert_string_equal(cli_ranges(text, 10, pos, 10), "0..6, ...");
}

static void numbers(void **state)
{
    char text[32];
    (void)state;
    assert_string_equal(cli_thousands(text, 0), "0");
    assert_string_equal(cli_thousands(text, 999), "999");
    assert_string_equal(cli_thousands(text, 1000), "1,000");
    assert_string_equal(cli_thousands(text, 12345678), "12,345,678");
    assert_string_equal(cli_thousands(text, UINT64_MAX), "18,446,744,073,709,551,615");
    assert_string_equal(cli_bytes(text, 1023), "1023 B");
    assert_string_equal(cli_bytes(text, 1536), "1.5 KiB");
    assert_string_equal(cli_bytes(text, 11796480), "11.2 MiB");
    assert_string_equal(cli_bytes(text, UINT64_MAX), "16.0 EiB");
}

static void tokens(void **state)
{
    static const cli_token row[] = {
        { 0, 4, CLI_HEAVY, NULL }, { 1, 1, CLI_GONE, NULL }, { 2, 0, CLI_RECENT, "new" } };
    static const char want[] = "  token    score           group\n"
                               "      0    4.000  ######## heavy\n"
                               "      1    1.000  ##       evicted\n"
                               "      2    0.000           recent, new\n";
    char got[512];
    FILE *file = tmpfile();
    (void)state;
    assert_non_null(file);
    cli_print_tokens(file, row, 3, 8);
    rewind(file);
    got[fread(got, 1, sizeof got - 1, file)] = '\0';
    fclose(file);
    assert_string_equal(got, want);
}

static void progress(void **state)
{
    char line[256];
    (void)state;
    cli_progress_text(line, sizeof line, 79, "prompt", 2048, 8192, 8);
    assert_string_equal(line, "prompt [#####                ] 2,048/8,192  256 tok/s  24 s left");
    cli_progress_text(line, sizeof line, 79, "prompt", 8192, 8192, 8);
    assert_string_equal(line, "prompt [#####################] 8,192/8,192  1024 tok/s");
    cli_progress_text(line, sizeof line, 40, "prompt", 10, 10000, 1);
    assert_string_equal(line, "prompt 10/10,000  10 tok/s  16 min 39 s "); /* no room for a bar; cut to the width */
    cli_progress_text(line, sizeof line, 79, "new", 0, 64, 0);
    assert_contains(line, "] 0/64  0 tok/s");
    for (int width = 20; width < 200; width++) {
        cli_progress_text(line, sizeof line, width, "prompt", 1234567, 10000000, 9999);
        assert_true(strlen(line) <= (size_t)width);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bars),   cmocka_unit_test(ranges),   cmocka_unit_test(numbers),
        cmocka_unit_test(tokens), cmocka_unit_test(progress),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
