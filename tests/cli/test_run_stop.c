/*
 * test_run_stop.c - `h2okv run` stopped: by Ctrl-C and SIGTERM, by a reader that goes away; and its warnings about texts
 * that are too long, which are stopped so that they need not be read to the end.
 */
#define _POSIX_C_SOURCE 200809L /* popen */
#include "program.h"
#include "report.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

#define MODEL "-m", H2OKV_TEST_MODEL, "-t", "1"
#define SMALL MODEL, "--budget", "48", "--ubatch", "16"
#define SHORT "Water boils at a hundred degrees because"

static int end(void **state)
{
    (void)state;
    program_clean();
    return 0;
}

/* A text of so many words, each a token, and one token more. The model was trained for 8,192. */
static const char *words(int n)
{
    static char many[10000 * 6 + 1];
    assert_true(n <= 10000);
    for (int i = 0; i < n; i++) memcpy(many + 6 * i, "apple ", 6);
    return program_file(many, (size_t)n * 6);
}

/* The model's parts are read when the signal comes, or have been just now. */
static void ctrl_c_while_loading(void **state)
{
    program_setup soon = { .signal = SIGINT, .signal_after = "llama_model_loader: loaded meta data" };
    program_result r = program_run_with(soon, "run", "-p", SHORT, SMALL, "-v", "--json");
    json_t *j = object_of(&r);
    (void)state;
    assert_int_equal(r.code, 130);
    assert_string_equal(string(j, "stopped"), "interrupt");
    assert_true(number(j, "generated_tokens") == 0 && number(j, "positions") == 0 && number(j, "budget") == 48);
    json_decref(j);
    program_free(&r);
    r = program_run_with(soon, "run", "-p", SHORT, SMALL, "-v");
    assert_int_equal(r.code, 130);
    assert_string_equal(r.out, "");
    assert_contains(r.err, "interrupted");
    program_free(&r);
}

/* As under nohup, or behind `&` in a script. */
static void an_ignored_signal_stays_ignored(void **state)
{
    program_setup setup = { .signal = SIGINT, .signal_after = "", .ignored = SIGINT };
    program_result r = program_run_with(setup, "run", "-p", SHORT, SMALL, "-n", "40", "--ignore-eos");
    (void)state;
    assert_int_equal(r.code, 0);
    assert_contains(r.err, "(-n reached)");
    program_free(&r);
}

static void ctrl_c_while_writing(void **state)
{
    program_result r = program_run_with(((program_setup){ .signal = SIGINT, .signal_after = "" }), "run",
                                        "-p", SHORT, SMALL, "-n", "100000", "--ignore-eos");
    (void)state;
    assert_int_equal(r.code, 130);
    assert_contains(r.err, "(interrupted)");
    assert_contains(r.err, "  KV       ");
    program_free(&r);
}

static void ctrl_c_while_reading(void **state)
{
    program_setup term = { .signal = SIGTERM, .signal_after = "seed  " };
    program_result r = program_run_with(term, "run", "-f", words(10000), SMALL, "--print-config", "--json",
                                        "-q");
    json_t *j = object_of(&r);
    (void)state;
    assert_int_equal(r.code, 130);
    assert_string_equal(string(j, "stopped"), "interrupt");
    assert_int_equal(number(j, "generated_tokens"), 0);
    assert_true(number(j, "positions") < number(j, "prompt_tokens"));
    assert_lacks(r.err, "warning");
    json_decref(j);
    program_free(&r);
}

/* While the first pass runs, which takes seconds with the plainest kernels. */
static void ctrl_c_twice(void **state)
{
    program_setup twice = { .signal = SIGINT, .signal_after = "seed  ", .signal_delay = 500, .signal_twice = true };
    program_result r;
    (void)state;
    r = program_run_with(twice, "run", "-f", words(10000), MODEL, "--ubatch", "2048", "--guide", "off", "--isa", "scalar",
                         "--print-config");
    assert_int_equal(r.code, -SIGINT);
    assert_lacks(r.err, "interrupted");
    program_free(&r);
}

/* As in `h2okv run ... | head -c 1`: no message, and it does not go on for 100,000 tokens. */
static void a_reader_that_goes_away(void **state)
{
    char command[1024];
    const char *err = program_file(NULL, 0);
    FILE *file;
    (void)state;
    snprintf(command, sizeof command,
             "'%s' run -m '%s' -t 1 --budget 48 -p '%s' -n 100000 --ignore-eos -q 2>%s | head -c 1",
             H2OKV_TEST_CLI, H2OKV_TEST_MODEL, SHORT, err);
    file = popen(command, "r");
    assert_non_null(file);
    assert_int_not_equal(fgetc(file), EOF);
    assert_int_equal(fgetc(file), EOF);
    assert_int_equal(pclose(file), 0);
    file = fopen(err, "r");
    assert_non_null(file);
    assert_int_equal(fgetc(file), EOF);
    fclose(file);
}

static void a_text_past_the_trained_context_is_warned_of(void **state)
{
    program_setup soon = { .signal = SIGINT, .signal_after = " tokens run past " }; /* the rest would take long */
    program_result r = program_run_with(soon, "run", "-f", words(10000), SMALL);
    (void)state;
    assert_int_equal(r.code, 130);
    assert_int_equal(count_of(r.err, " tokens run past "), 1);
    assert_contains(r.err, " tokens run past the 8,192 that the model was trained for");
    assert_contains(r.err, " read) in "); /* so many of the prompt's tokens */
    assert_contains(r.err, "  new      0 tokens (interrupted)\n");
    program_free(&r);
}

static void running_past_the_trained_context_is_warned_of_once(void **state)
{
    program_result r = program_run("run", "-f", words(8188), MODEL, "--budget", "16", "--policy", "window",
                                   "-n", "8", "--ignore-eos");
    (void)state;
    assert_int_equal(r.code, 0);
    assert_contains(r.err, "  prompt   8,189 tokens in ");
    assert_int_equal(count_of(r.err, " tokens run past "), 1);
    assert_contains(r.err, "warning: 8,193 tokens run past the 8,192 ");
    program_free(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ctrl_c_while_loading),
        cmocka_unit_test(an_ignored_signal_stays_ignored),
        cmocka_unit_test(ctrl_c_while_writing),
        cmocka_unit_test(ctrl_c_while_reading),
        cmocka_unit_test(ctrl_c_twice),
        cmocka_unit_test(a_reader_that_goes_away),
        cmocka_unit_test(a_text_past_the_trained_context_is_warned_of),
        cmocka_unit_test(running_past_the_trained_context_is_warned_of_once),
    };
    return cmocka_run_group_tests(tests, NULL, end);
}
