/* test_options.c - numbers, names, nearest names, and a command's options from its table. */
#include "program.h"

#include "cli.h"

#include <string.h>

typedef struct fields {
    bool flag;
    const char *text;
    uint32_t count, name;
    double real;
} fields;

static const char *const colours[] = { "red", "green", "blue", NULL };

static const cli_option table[] = {
    { CLI_HEADING, 0, NULL, 0, 0, 0, NULL, NULL, "Heading" },
    { CLI_FLAG, 'f', "flag", offsetof(fields, flag), 0, 0, NULL, NULL, "a flag" },
    { CLI_TEXT, 0, "text", offsetof(fields, text), 0, 0, NULL, "T", "a text" },
    { CLI_COUNT, 'c', "count", offsetof(fields, count), 2, 40, NULL, "N", "a count" },
    { CLI_REAL, 0, "real", offsetof(fields, real), 0, 1, NULL, "X", "a real" },
    { CLI_NAME, 0, "colour", offsetof(fields, name), 0, 0, colours, "NAME", "a name" },
};
static const cli_command command = { .name = "test", .usage = "", .about = "", .example = "",
                                     .options = table, .n_options = sizeof table / sizeof table[0] };

/* Parses; the error, or "" when there was none. */
static const char *parse(fields *out, int *first, int *code, const char *const *words)
{
    static char copies[16][64];
    char *argv[17] = { (char *)"test" };
    bool ok;
    int n = 1;
    const char *error;
    for (; words[n - 1]; n++) argv[n] = strcpy(copies[n], words[n - 1]);
    stderr_catch();
    ok = cli_parse(&command, n, argv, out, first, code);
    error = stderr_caught();
    assert_int_equal(ok, *error == '\0');
    assert_int_equal(*code, ok ? CLI_OK : CLI_USAGE);
    return error;
}

static void values_reach_their_fields(void **state)
{
    fields f = { 0 };
    int first, code;
    (void)state;
    assert_string_equal(parse(&f, &first, &code, (const char *const[]){ "-c40", "a", "--flag", "--text=x y",
                                                                        "--real",
                                                                        "0.25", "--colour", "blue", "-",
                                                                        NULL }), "");
    assert_true(f.flag);
    assert_string_equal(f.text, "x y");
    assert_int_equal(f.count, 40);
    assert_true(f.real == 0.25);
    assert_int_equal(f.name, 2);
    assert_int_equal(first, 8); /* "a" and "-" went to the end */
}

static void bad_options_are_named(void **state)
{
    static const struct {
        const char *words[4], *error;
    } cases[] = {
        { { "--cuont", "3" }, "unknown option '--cuont'; did you mean '--count'?" },
        { { "--cuont=3" }, "unknown option '--cuont'; did you mean '--count'?" },
        { { "--hepl" }, "did you mean '--help'?" },
        { { "--zebra" }, "unknown option '--zebra'; 'h2okv test --help' lists them" },
        { { "-z" }, "unknown option '-z'" },
        { { "--count" }, "--count needs a value: N" },
        { { "-c" }, "-c needs a value: N" },
        { { "--flag=1" }, "--flag takes no value" },
        { { "--help=1" }, "--help takes no value" },
        { { "--count", "1" }, "--count 1 is out of range: 2 to 40" },
        { { "--count", "41" }, "--count 41 is out of range: 2 to 40" },
        { { "--count", "-3" }, "--count '-3' is not a whole number from 2 to 40" },
        { { "--count", "+3" }, "--count '+3' is not a whole number" },
        { { "--count", "3x" }, "--count '3x' is not a whole number" },
        { { "--count", "" }, "--count '' is not a whole number" },
        { { "--count", "99999999999999999999999" }, "is out of range: 2 to 40" },
        { { "--real", "1.01" }, "--real 1.01 is out of range: 0 to 1" },
        { { "--real", "nan" }, "--real 'nan' is not a number from 0 to 1" },
        { { "--real", "inf" }, "--real 'inf' is not a number from 0 to 1" },
        { { "--real", ".5." }, "--real '.5.' is not a number" },
        { { "--colour", "geren" }, "--colour 'geren' is unknown; did you mean 'green'?" },
        { { "--colour", "ultramarine" }, "--colour 'ultramarine' is unknown; choose from red, green, blue" },
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        fields f = { 0 };
        int first, code;
        const char *error = parse(&f, &first, &code, cases[i].words);
        assert_contains(error, cases[i].error);
        assert_int_equal(strncmp(error, "h2okv test: ", 12), 0);
    }
}

static void nearest_name(void **state)
{
    static const char *const names[] = { "budget", "recent", "sink", "top-k", "top-p", "temp",
                                         "print-config" };
    static const struct {
        const char *word, *name;
    } cases[] = {
        { "budget", "budget" }, { "bugdet", "budget" }, { "buget", "budget" }, { "budgets", "budget" },
        { "sinks", "sink" },    { "topp", "top-p" },    { "tmep", "temp" },    { "print", "print-config" },
        { "temperatur", NULL }, { "xyz", NULL },        { "x", NULL },         { "", NULL },
        { "budgetbudgetbudgetbudgetbudgetbudget", NULL },
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const char *name = cli_nearest(cases[i].word, names, sizeof names / sizeof names[0]);
        if (!cases[i].name) assert_null(name);
        else if (!name) fail_msg("nothing is near '%s'", cases[i].word);
        else assert_string_equal(name, cases[i].name);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_reach_their_fields),
        cmocka_unit_test(bad_options_are_named),
        cmocka_unit_test(nearest_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
