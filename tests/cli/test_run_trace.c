/* test_run_trace.c - what `h2okv run --trace` records is what `h2okv replay --check` finds, whatever the options. */
#include "program.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

#define MODEL "-m", H2OKV_TEST_MODEL, "-t", "1", "-q", "--ignore-eos", "--budget", "32", "--ubatch", "24"

static const char text[] =
    "A cooper makes barrels. He cuts the staves from oak and lets them dry for a year, for green wood shrinks and the "
    "barrel would leak. Then he planes each stave so that it is wide in the middle and narrow at the ends, stands them in "
    "a ring, and heats them over a small fire until they bend. Hoops of iron hold them. The key of the shed is under the "
    "third barrel from the door. At last he cuts a groove for the head, and fits it with rushes.\n\n"
    "Where is the key of the shed?";

/* Up to so many arguments more, and what the check then says. */
static const struct {
    const char *more[10], *says;
} runs[] = {
    { { NULL }, "90 lanes: every kept set and score is as recorded" }, /* guided: the last paragraph */
    { { "--guide", "off" }, "90 lanes: every" },
    { { "--guide", "off", "--attention", "observe", "--policy", "h2o", "--pool", "2" }, "90 lanes: every" },
    { { "--attention", "observe", "--guide", "5", "--guide-chunk", "9" }, "90 lanes: every" },
    { { "--guide", "5", "--guide-recent", "3", "--guide-spread", "2" }, "90 lanes: every" },
    { { "--guide-text", "the key", "--lanes", "layer" }, "30 lanes: every" },
    { { "--lanes", "all", "--policy", "tova" }, "1 lane: every" },
    { { "--prompt-budget", "64", "--pin", "3:6,10:12", "--grace", "2" }, "90 lanes: every" },
    { { "--policy", "lifetime", "--guide", "off", "--decay", "0.9" }, "90 lanes: every" },
    { { "--policy", "snapkv" }, "90 lanes: every" },
    { { "--policy", "random", "--seed", "5" }, "90 lanes: every" },
    { { "--policy", "streaming" }, "90 lanes: every" },
    { { "--policy", "full", "--budget", "256" }, "90 lanes: every" },
};

static int clean(void **state)
{
    (void)state;
    program_clean();
    return 0;
}

static void recorded_is_replayed(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof runs / sizeof runs[0]; i++) {
        const char *path = program_file("old", 3), *arguments[40] = { "run", MODEL, "-p", text, "-n", "4", "--trace", path };
        size_t n = 0;
        program_result r;
        while (arguments[n]) n++;
        for (size_t k = 0; runs[i].more[k]; k++) arguments[n++] = runs[i].more[k];
        r = program_run_list((program_setup){ 0 }, arguments);
        if (r.code) fail_msg("run %zu: %s", i, r.err);
        program_free(&r);
        program_expect(0, runs[i].says, "replay", path, "--check");
        program_clean();
    }
}

/* Lines of a trace that say so in what stands before their masses. */
static unsigned lines_with(const char *path, const char *says)
{
    static char line[1 << 20];
    FILE *file = fopen(path, "r");
    unsigned n = 0;
    assert_non_null(file);
    while (fgets(line, sizeof line, file)) {
        line[strcspn(line, "[")] = '\0';
        n += strstr(line, says) != NULL;
    }
    fclose(file);
    return n;
}

/* The trace does what it is told and is no copy: in a guided run there are probes, and scores are handed on. */
static void a_guided_trace_has_probes(void **state)
{
    const char *path = program_file(NULL, 0);
    program_result r = program_run("run", MODEL, "-p", text, "-n", "3", "--trace", path);
    (void)state;
    assert_int_equal(r.code, 0);
    assert_int_equal(lines_with(path, "\"policy\": \"default\""), 1);
    assert_int_equal(lines_with(path, "\"sinks\": 4"), 1);
    assert_true(lines_with(path, "\"probe\": 8") >= 4);
    assert_int_equal(lines_with(path, "\"spread\": 8"), lines_with(path, "\"probe\": 8"));
    program_free(&r);
}

/* How many are newest while it is read so, then as before; and how far scores go. */
static void guided_reading_as_told(void **state)
{
    const char *path = program_file(NULL, 0);
    program_result r = program_run("run", MODEL, "-p", text, "-n", "3", "--guide-recent", "3", "--guide-spread", "2",
                                   "--trace", path);
    (void)state;
    assert_int_equal(r.code, 0);
    assert_int_equal(lines_with(path, ", \"recent\": 3, "), 1);
    assert_int_equal(lines_with(path, ", \"recent\": 16, "), 2); /* the header too */
    assert_true(lines_with(path, ", \"spread\": 2, ") > 0);
    program_free(&r);
}

static void ctrl_c_leaves_what_there_was(void **state)
{
    program_setup soon = { .signal = SIGINT, .signal_after = "" };
    const char *path = program_file(NULL, 0);
    program_result r = program_run_with(soon, "run", "-m", H2OKV_TEST_MODEL, "-t", "1", "--budget", "32", "-p", "A cooper",
                                        "--ignore-eos", "-n", "100000", "--trace", path);
    (void)state;
    assert_int_equal(r.code, 130);
    program_free(&r);
    program_expect(0, "as recorded", "replay", path, "--check");
}

static const char *words(int n)
{
    static char many[6000 * 6 + 1];
    assert_true(n <= 6000);
    for (int i = 0; i < n; i++) memcpy(many + 6 * i, "apple ", 6);
    return program_file(many, (size_t)n * 6);
}

/* During the first pass, which takes seconds. What was there before is still there, and nothing else. */
static void killed_it_leaves_nothing(void **state)
{
    static const struct {
        int signal;
        bool twice;
    } ends[] = { { SIGINT, true }, { SIGTERM, true }, { SIGHUP, false }, { SIGPIPE, false } };
    (void)state;
    for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++) {
        const char *path = program_file("old", 3);
        program_setup kill = { .signal = ends[i].signal, .signal_after = "seed  ", .signal_delay = 300,
                               .signal_twice = ends[i].twice };
        program_result r = program_run_with(kill, "run", "-f", words(6000), "-m", H2OKV_TEST_MODEL, "-t", "1",
                                            "--ubatch", "2048", "--guide", "off", "--isa", "scalar", "--print-config",
                                            "--trace", path);
        assert_int_equal(r.code, -ends[i].signal);
        assert_int_equal(program_left(path), 0);
        assert_int_equal(lines_with(path, "old"), 1);
        program_free(&r);
        program_clean();
    }
}

/* It ends when the file cannot grow any more: while the text is read, and while new tokens are written. */
static void a_full_disk(void **state)
{
    static const struct {
        const char *more, *n;
    } cases[] = { { "--guide=off", "0" }, { "--guide=8", "0" }, { "--budget=256", "100000" } };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const char *path = program_file("old", 3);
        program_setup full = { .file_limit = 400000 };
        program_result r = program_run_with(full, "run", MODEL, i < 2 ? "-f" : "-p", i < 2 ? words(6000) : "A cooper",
                                            cases[i].more, "-n", cases[i].n, "--trace", path);
        assert_int_equal(r.code, 6);
        assert_int_equal(count_of(r.err, "h2okv run: "), 1);
        assert_contains(r.err, path);
        assert_contains(r.err, ": cannot write: File too large");
        assert_int_equal(program_left(path), 0);
        assert_int_equal(lines_with(path, "old"), 1);
        program_free(&r);
        program_clean();
    }
}

static void unwritable(void **state)
{
    (void)state;
    program_expect(6, "h2okv run: /nowhere/x: cannot write: No such file", "run", MODEL, "-p", "x", "--trace",
                   "/nowhere/x");
    program_expect(6, "h2okv run: /dev/full: cannot write: is not a regular file", "run", MODEL, "-p", "x", "--trace",
                   "/dev/full");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(recorded_is_replayed),
        cmocka_unit_test(a_guided_trace_has_probes),
        cmocka_unit_test(guided_reading_as_told),
        cmocka_unit_test(ctrl_c_leaves_what_there_was),
        cmocka_unit_test(killed_it_leaves_nothing),
        cmocka_unit_test(a_full_disk),
        cmocka_unit_test(unwritable),
    };
    return cmocka_run_group_tests(tests, NULL, clean);
}
