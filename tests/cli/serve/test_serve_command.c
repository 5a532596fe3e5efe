/* test_serve_command.c - `h2okv serve` before a model is needed: bad options and keys. */
#include "cli/program.h"

#include <string.h>

static int end(void **state)
{
    (void)state;
    program_clean();
    return 0;
}

static void usage_errors(void **state)
{
    static const struct {
        const char *words[5], *says;
    } cases[] = {
        { { "model.gguf" }, "unexpected argument 'model.gguf': a model goes with -m" },
        { { "--port", "65536" }, "--port 65536 is out of range: 0 to 65535" },
        { { "--slots", "0" }, "--slots 0 is out of range: 1 to 64" },
        { { "--slots", "65" }, "--slots 65 is out of range: 1 to 64" },
        { { "--max-tokens", "0" }, "--max-tokens 0 is out of range" },
        { { "--max-body", "10" }, "--max-body 10 is out of range: 1024 to" },
        { { "--time-limit", "-1" }, "--time-limit -1 is out of range" },
        { { "--connections", "x" }, "--connections 'x' is not a whole number" },
        { { "--host", "" }, "--host is empty: give an address" },
        { { "--budget", "15" }, "--budget 15 is out of range: 16 to " },
        { { "--recent", "0" }, "--recent 0: llama.cpp needs the newest token" },
        { { "--policy", "windwo" }, "did you mean 'window'?" },
        { { "--guide", "12" }, "--guide '12' is unknown; choose from auto, off" },
        { { "--guide", "off", "--guide-chunk", "64" }, "--guide-chunk has no effect with --guide off" },
        { { "--policy", "window", "--decay", "0.9" }, "--decay has no effect with --policy window" },
        { { "--guide-recent", "500" }, "--guide-recent 500 is more than --recent, 256" },
        { { "--prompt-budget", "500" }, "--prompt-budget 500 is less than --budget 512" },
        { { "--pin", "0:4" }, "unknown option '--pin'" },
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const char *words[7] = { "serve" };
        for (size_t k = 0; k < 5; k++) words[k + 1] = cases[i].words[k];
        program_expect_list(2, cases[i].says, words);
    }
}

#ifdef H2OKV_HAVE_LLAMA
static void bad_keys(void **state)
{
    const char *blank = program_file("\n", 1), *two = program_file("one two\n", 8);
    program_result r;
    (void)state;
    program_expect(2, "--api-key: the key is empty", "serve", "--api-key", "");
    program_expect(2, "--api-key: the key has to be of printable ASCII", "serve", "--api-key", "a b");
    program_expect(2, "--api-key: the key has to be of printable ASCII", "serve", "--api-key", "caf\xc3\xa9");
    program_expect(2, "give --api-key or --api-key-file, not both", "serve", "--api-key", "a", "--api-key-file", blank);
    program_expect(2, "--api-key-file: the key is empty", "serve", "--api-key-file", blank);
    program_expect(2, "--api-key-file: the key has to be of printable ASCII", "serve", "--api-key-file", two);
    program_expect(4, "/no/such: cannot open", "serve", "--api-key-file", "/no/such");
    r = program_run_with(((program_setup){ .environment = "H2OKV_API_KEY=" }), "serve");
    assert_int_equal(r.code, 2);
    assert_contains(r.err, "H2OKV_API_KEY: the key is empty");
    program_free(&r);
    program_expect(4, "", "serve", "-m", "/no/such.gguf", "--api-key", "good");
}
#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(usage_errors),
#ifdef H2OKV_HAVE_LLAMA
        cmocka_unit_test(bad_keys),
#endif
    };
    return cmocka_run_group_tests(tests, NULL, end);
}
