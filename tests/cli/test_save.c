/* test_save.c - no output is written over what a command reads, or over another output, whatever names they go by. */
#include "cli.h"

#include "program.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char words[] = "A cooper makes barrels.";

static int clean(void **state)
{
    (void)state;
    program_clean();
    return 0;
}

static void same_files_by_any_name(void **state)
{
    const char *text = program_file(words, strlen(words)), *link_name = program_file(NULL, 0);
    const char *new_name = program_file(NULL, 0), *another = program_file("x", 1);
    const struct {
        const char *read, *csv, *svg, *says, *over; /* says: the option that is named; NULL: none */
    } cases[] = {
        { text, NULL, NULL, NULL, NULL },
        { text, another, new_name, NULL, NULL },
        { NULL, "/dev/null", "/dev/null", NULL, NULL },
        { text, text, NULL, "--csv", "-f" },
        { text, link_name, NULL, "--csv", "-f" },
        { text, another, text, "--svg", "-f" },
        { NULL, new_name, new_name, "--csv", "--svg" },
        { NULL, another, another, "--csv", "--svg" },
    };
    (void)state;
    unlink(new_name);
    unlink(link_name);
    assert_int_equal(symlink(text, link_name), 0);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const cli_path list[] = {
            { "-f", cases[i].read, false }, { "--csv", cases[i].csv, true }, { "--svg", cases[i].svg, true },
        };
        char expected[64];
        const char *told;
        stderr_catch();
        assert_int_equal(cli_check_paths("eval", list, 3), !cases[i].says);
        told = stderr_caught();
        if (!cases[i].says) continue;
        snprintf(expected, sizeof expected, "h2okv eval: %s ", cases[i].says);
        assert_contains(told, expected);
        snprintf(expected, sizeof expected, " would be written over %s ", cases[i].over);
        assert_contains(told, expected);
    }
    unlink(link_name);
}

#ifdef H2OKV_HAVE_LLAMA
static void assert_whole(const char *path)
{
    char all[64] = "";
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    (void)!fread(all, 1, sizeof all - 1, file);
    fclose(file);
    assert_string_equal(all, words);
}

static void commands_refuse_before_they_begin(void **state)
{
    const char *text = program_file(words, strlen(words));
    (void)state;
    program_expect(2, "would be written over -f", "eval", "ppl", "-f", text, "--csv", text);
    program_expect(2, "would be written over -f", "eval", "ppl", "-f", text, "--svg", text);
    program_expect(2, "would be written over -f", "bench", "-f", text, "--csv", text);
    program_expect(2, "would be written over -f", "run", "-f", text, "--trace", text);
    program_expect(2, "would be written over -f", "trace", "-f", text, "-o", text);
    program_expect(2, "would be written over -m", "run", "-m", text, "-p", "x", "--trace", text);
    assert_whole(text);
}
#endif

static void only_files_are_replaced(void **state)
{
    static const char *const others[] = { "/", "/dev/null" };
    static const char *const says[] = { "is a directory", "is not a regular file" };
    (void)state;
    assert_true(cli_may_replace("chat", program_file("x", 1)));
    assert_true(cli_may_replace("chat", program_file(NULL, 0)));
    for (size_t i = 0; i < 2; i++) {
        stderr_catch();
        assert_false(cli_may_replace("chat", others[i]));
        assert_contains(stderr_caught(), says[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(same_files_by_any_name),
#ifdef H2OKV_HAVE_LLAMA
        cmocka_unit_test(commands_refuse_before_they_begin),
#endif
        cmocka_unit_test(only_files_are_replaced),
    };
    return cmocka_run_group_tests(tests, NULL, clean);
}
