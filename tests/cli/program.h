/*
 * program.h - runs the built program h2okv as a shell would, and keeps what it said.
 *
 *   program_result r = program_run("replay", path, "--check");
 *   assert_int_equal(r.code, 0);
 */
#ifndef TEST_PROGRAM_H
#define TEST_PROGRAM_H

#include <stdbool.h>
#include <stddef.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>

#include <cmocka.h>

typedef struct program_setup {
    const char *input;       /* standard input; NULL: /dev/null */
    const char *output_file; /* where standard output goes instead of result.out; "" closes it */
    const char *environment; /* one "NAME=value" beside what there is */
    int signal;              /* sent once `signal_after` stands in stderr, or in stdout when that is "" */
    const char *signal_after;
    unsigned signal_delay;   /* ms that it is sent later */
    bool signal_twice;       /* and once more after 0.1 s */
    unsigned long file_limit; /* bytes that a file may have, as on a full disk; 0: any number */
    int ignored;             /* a signal that the program finds ignored, as nohup leaves it; 0: none */
} program_setup;

typedef struct program_result {
    int code; /* exit code, or minus the signal that ended it */
    char *out, *err;
    size_t n_out;
} program_result;

/* Arguments are strings, without the program's name. Fails the test when the program takes 300 s. */
#define program_run(...) program_run_with((program_setup){ 0 }, __VA_ARGS__)
#define program_run_with(setup, ...) program_run_list(setup, (const char *const[]){ __VA_ARGS__, NULL })
program_result program_run_list(program_setup setup, const char *const *arguments);
void program_free(program_result *r);

/* Runs it and asserts the exit code and that `text` stands in stderr (in stdout when the code is 0). */
#define program_expect(code, text, ...) program_expect_list(code, text, (const char *const[]){ __VA_ARGS__, NULL })
void program_expect_list(int code, const char *text, const char *const *arguments);

void assert_contains(const char *text, const char *part);
void assert_lacks(const char *text, const char *part);
unsigned count_of(const char *text, const char *part);
size_t longest_line(const char *text);

/* A file of the test's own, removed by program_clean; the name lives until then. NULL text: only a name. */
const char *program_file(const char *text, size_t n);
void program_clean(void);

/* Files beside this one whose names are longer by ".something": what a program that saves by renaming has left. */
unsigned program_left(const char *path);

/* What is written to stderr between the two calls, without leaving this process. */
void stderr_catch(void);
const char *stderr_caught(void);

#endif
