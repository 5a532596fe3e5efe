/*
 * test_window_model.c - Gemma 3, a real model with sliding windows, by the program: past its budget in fixed memory, and
 * a budget below the window refused by name.
 */
#include "program.h"
#include "report.h"

#include <stdlib.h>
#include <string.h>

/* Some 700 tokens, in which a pattern is easy to go on with. */
static const char *counting(void)
{
    static char text[4096];
    if (!*text) {
        for (int i = 1; i <= 230; i++) sprintf(text + strlen(text), "%d, ", i);
        strcat(text, "231,");
    }
    return program_file(text, strlen(text));
}

static void it_runs_past_its_budget(void **state)
{
    static const char *const modes[] = { "fused", "observe" };
    (void)state;
    for (int m = 0; m < 2; m++) {
        program_result r = program_run("run", "-m", H2OKV_TEST_WINDOW_MODEL, "-f", counting(), "-t", "1", "--budget", "520",
                                       "--guide", "off", "-n", "6", "--temp", "0", "--json", "--attention", modes[m]);
        json_t *j = json_loads(r.out, 0, NULL);
        assert_int_equal(r.code, 0);
        assert_non_null(j);
        assert_true(json_integer_value(json_object_get(j, "prompt_tokens")) > 600);
        assert_int_equal(json_integer_value(json_object_get(j, "live")), 520);
        assert_int_equal(json_integer_value(json_object_get(j, "lanes")), 3); /* 18 layers, of which every sixth has one */
        assert_contains(json_string_value(json_object_get(j, "text")), "232");
        json_decref(j);
        program_free(&r);
    }
}

static void a_budget_below_the_window_is_refused(void **state)
{
    (void)state;
    program_expect(2, "h2okv run: budget is 511: this model's sliding-window layers see 512 tokens, so it must be at least "
                   "that\n", "run", "-m", H2OKV_TEST_WINDOW_MODEL, "-p", "Hello", "--budget", "511");
}

static int end(void **state)
{
    (void)state;
    program_clean();
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_runs_past_its_budget),
        cmocka_unit_test(a_budget_below_the_window_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, end);
}
