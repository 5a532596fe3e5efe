/* test_help.c - help, version, unknown words, and that the man pages list the same options as --help. */
#include "program.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const commands[] = { "run", "chat", "serve", "trace", "eval", "bench", "demo", "replay" };
enum { N_COMMANDS = 8 };

static void help_of_the_program(void **state)
{
    program_result help = program_run("--help"), other = program_run("help"), nothing = program_run_list(
        (program_setup){ 0 }, (const char *const[]){ NULL });
    (void)state;
    assert_int_equal(help.code, 0);
    assert_int_equal(other.code, 0);
    assert_string_equal(help.out, other.out);
    assert_string_equal(help.err, "");
    assert_int_equal(nothing.code, 2); /* no command is a usage error: help goes to stderr */
    assert_string_equal(nothing.out, "");
    assert_string_equal(nothing.err, help.out);
    for (int i = 0; i < N_COMMANDS; i++) assert_contains(help.out, commands[i]);
    assert_contains(help.out, "example:\n");
    assert_true(longest_line(help.out) <= 80);
    program_free(&help);
    program_free(&other);
    program_free(&nothing);
}

static void help_of_each_command(void **state)
{
    (void)state;
    for (int i = 0; i < N_COMMANDS; i++) {
        program_result a = program_run(commands[i], "--help"), b = program_run("help", commands[i]);
        program_result c = program_run(commands[i], "-h");
        assert_int_equal(a.code, 0);
        assert_int_equal(b.code, 0);
        assert_string_equal(a.out, b.out);
        assert_string_equal(a.out, c.out);
        assert_string_equal(a.err, "");
        assert_contains(a.out, "usage: h2okv ");
        assert_contains(a.out, "\nexample:\n  h2okv ");
        assert_true(longest_line(a.out) <= 80);
        program_free(&a);
        program_free(&b);
        program_free(&c);
    }
}

/* Adds the name at `at` to a list that has each once. */
static void add_name(char names[][32], unsigned *n, const char *at)
{
    char name[32];
    snprintf(name, sizeof name, "%.*s", (int)strspn(at, "abcdefghijklmnopqrstuvwxyz-"), at);
    for (unsigned i = 0; i < *n; i++) {
        if (strcmp(names[i], name) == 0) return;
    }
    strcpy(names[(*n)++], name);
    assert_true(*n < 64);
}

static int by_name(const void *a, const void *b)
{
    return strcmp(a, b);
}

/* The options that --help lists: "--name" after the indent, with or without a letter before it. */
static unsigned options_of_help(const char *text, char names[][32])
{
    unsigned n = 0;
    for (const char *line = text; line; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (strncmp(line, "      --", 8) == 0) add_name(names, &n, line + 8);
        if (strncmp(line, "  -", 3) == 0 && strncmp(line + 4, ", --", 4) == 0) add_name(names, &n, line + 8);
    }
    qsort(names, n, sizeof names[0], by_name);
    return n;
}

/* Those that a man page has an item for: ".It Fl f , Fl Fl file Ar FILE". */
static unsigned options_of_man(const char *command, char names[][32])
{
    char path[512], line[512];
    FILE *file;
    unsigned n = 0;
    snprintf(path, sizeof path, "%s/../man/h2okv-%s.1", H2OKV_TEST_DIR, command);
    file = fopen(path, "r");
    if (!file) fail_msg("no man page %s", path);
    while (fgets(line, sizeof line, file)) {
        const char *at = strncmp(line, ".It Fl", 6) == 0 ? strstr(line, "Fl Fl ") : NULL;
        if (at) add_name(names, &n, at + 6);
    }
    fclose(file);
    qsort(names, n, sizeof names[0], by_name);
    return n;
}

static void man_pages_list_the_same_options(void **state)
{
    (void)state;
    for (int i = 0; i < N_COMMANDS; i++) {
        char in_help[64][32], in_man[64][32];
        program_result r = program_run(commands[i], "--help");
        unsigned n = options_of_help(r.out, in_help), m = options_of_man(commands[i], in_man);
        for (unsigned k = 0; k < n && k < m; k++) assert_string_equal(in_help[k], in_man[k]);
        assert_int_equal(n, m);
        assert_true(n >= 1);
        program_free(&r);
    }
}

static void version(void **state)
{
    program_result a = program_run("--version"), b = program_run("version");
    (void)state;
    assert_int_equal(a.code, 0);
    assert_string_equal(a.out, b.out);
#ifdef H2OKV_HAVE_LLAMA
    assert_string_equal(a.out, "h2okv 0.1.0, with llama.cpp\n");
#else
    assert_string_equal(a.out, "h2okv 0.1.0, without llama.cpp\n");
#endif
    program_free(&a);
    program_free(&b);
}

static void unknown_words(void **state)
{
    (void)state;
    program_expect(2, "unknown command 'rpelay'; did you mean 'replay'?", "rpelay", "x");
    program_expect(2, "unknown command 'rnu'; did you mean 'run'?", "help", "rnu");
    program_expect(2, "unknown command 'zzzzzz'; 'h2okv --help' lists the commands", "zzzzzz");
    program_expect(2, "unknown option '--hlep'; did you mean '--help'?", "--hlep");
    program_expect(2, "takes no argument, and 'now' is one", "demo", "now");
}

/* Output that cannot be written is an error; a stdin, stdout or stderr that is closed does not crash. */
static void output_that_fails(void **state)
{
    program_result full = program_run_with(((program_setup){ .output_file = "/dev/full" }), "--help");
    program_result closed = program_run_with(((program_setup){ .output_file = "" }), "demo");
    (void)state;
    assert_int_equal(full.code, 6);
    assert_contains(full.err, "cannot write to standard output");
    assert_int_equal(closed.code, 6);
    assert_contains(closed.err, "cannot write to standard output");
    program_free(&full);
    program_free(&closed);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(help_of_the_program),
        cmocka_unit_test(help_of_each_command),
        cmocka_unit_test(man_pages_list_the_same_options),
        cmocka_unit_test(version),
        cmocka_unit_test(unknown_words),
        cmocka_unit_test(output_that_fails),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
