/* test_run.c - what `h2okv run` refuses before a model is needed. tests/cli/test_run_model.c runs one. */
#include "program.h"

#include "h2okv/h2okv.h"

#include <string.h>

static void usage_errors(void **state)
{
    static const struct {
        const char *words[6], *says;
    } cases[] = {
        { { "-n", "3" }, "no text given: use -f FILE, -p TEXT, or - for standard input" },
        { { "-p", "a", "-f", "b" }, "more than one text given" },
        { { "-p", "a", "-" }, "more than one text given" },
        { { "-f", "-", "-" }, "standard input is given twice" },
        { { "-p", "" }, "--prompt is empty" },
        { { "-p", "a", "b" }, "unexpected argument 'b': a text goes with -p, a file with -f" },
        { { "-p", "a", "--bugdet", "64" }, "unknown option '--bugdet'; did you mean '--budget'?" },
        { { "-p", "a", "--budget", "15" }, "--budget 15 is out of range: 16 to " },
        { { "-p", "a", "--budget", "0" }, "--budget 0 is out of range: 16 to " },
        { { "-p", "a", "--budget", "-1" }, "--budget '-1' is not a whole number from 16 to " },
        { { "-p", "a", "--budget", "1e3" }, "--budget '1e3' is not a whole number" },
        { { "-p", "a", "--budget", "4294967360" }, "--budget 4294967360 is out of range" }, /* 2^32 + 64 */
        { { "-p", "a", "--recent", "0" }, "--recent 0: llama.cpp needs the newest token" },
        { { "-p", "a", "--recent", "513" }, "--recent 513 is more than --budget 512" },
        { { "-p", "a", "--sink", "257" }, "sinks is 257: sinks + recent (256) must not be over the budget, 512" },
        { { "-p", "a", "--sink=1", "--recent=512" }, "--sink 1 + --recent 512 is more than --budget 512" },
        { { "-p", "a", "--policy", "windwo" }, "--policy 'windwo' is unknown; did you mean 'window'?" },
        { { "-p", "a", "--policy", "lru" }, "--policy 'lru' is unknown; choose from default, h2o, " },
        { { "-p", "a", "--lanes", "heads" }, "--lanes 'heads' is unknown; did you mean 'head'?" },
        { { "-p", "a", "--decay", "0" }, "--decay 0 would forget every score" },
        { { "-p", "a", "--decay", "1.5" }, "--decay 1.5 is out of range: 0 to 1" },
        { { "-p", "a", "--decay=.5", "--policy=window" }, "--decay has no effect with --policy window" },
        { { "-p", "a", "--pin", "5:5" }, "--pin '5:5' is no list of positions such as 0:50,80:90" },
        { { "-p", "a", "--pin", "0:5," }, "--pin '0:5,' is no list of positions" },
        { { "-p", "a", "--pin", "-1:5" }, "--pin '-1:5' is no list of positions" },
        { { "-p", "a", "--pin", "0:4294967296" }, "--pin '0:4294967296' is no list of positions" },
        { { "-p", "a", "--prompt-budget", "500" }, "--prompt-budget 500 is less than --budget 512" },
        { { "-p", "a", "--pin", "0:5", "--pin=9:" }, "--pin '9:' is no list of positions" },
        { { "-p", "a", "--pin", "1:+5" }, "--pin '1:+5' is no list of positions" },
        { { "-p", "a", "--pin", "0:1,2:3,4:5,6:7,8:9,10:11,12:13,14:15,16:17,18:19,20:21,22:23,24:25,26:27,28:29,30:31",
            "--pin", "32:33" }, "--pin 32:33: more than 16 ranges in all" },
        { { "-p", "a", "--pool=3", "--policy=window" }, "--pool has no effect with --policy window, which uses no" },
        { { "-p", "a", "--grace", "65537" }, "--grace 65537 is out of range: 0 to 65536" },
        { { "-p", "a", "--guide-chunk", "0" }, "--guide-chunk 0 is out of range: 1 to " },
        { { "-p", "a", "--guide-chunk=9", "--guide=off" }, "--guide-chunk has no effect with --guide off" },
        { { "-p", "a", "--guide-recent=9", "--guide=off" }, "--guide-recent has no effect with --guide off" },
        { { "-p", "a", "--guide-spread=0", "--guide=off" }, "--guide-spread has no effect with --guide off" },
        { { "-p", "a", "--guide-spread=3", "--policy=window" }, "--guide-spread has no effect with --policy window" },
        { { "-p", "a", "--guide-recent", "0" }, "--guide-recent 0 is out of range: 1 to " },
        { { "-p", "a", "--guide-recent", "257" }, "--guide-recent 257 is more than --recent, 256" },
        { { "-p", "a", "--guide", "none" }, "--guide 'none' is neither auto nor off nor a number of tokens" },
        { { "-p", "a", "--guide", "0" }, "--guide 0 is out of range: 1 to 4096" },
        { { "-p", "a", "--guide-text", "" }, "--guide-text is empty" },
        { { "-p", "a", "--guide=off", "--guide-text=b" }, "give --guide or --guide-text, not both" },
        { { "-p", "a", "--guide=9", "--policy=window" }, "--guide has no effect with --policy window" },
        { { "-p", "a", "--guide-text=b", "--policy=full" }, "--guide-text has no effect with --policy full" },
        { { "-p", "a", "--top-k", "5" }, "--top-k has no effect at --temp 0" },
        { { "-p", "a", "--top-p", "0.5" }, "--top-p has no effect at --temp 0" },
        { { "-p", "a", "--min-p", "0" }, "--min-p has no effect at --temp 0" },
        { { "-p", "a", "--temp", "nan" }, "--temp 'nan' is not a number" },
        { { "-p", "a", "--attention", "fussed" }, "--attention 'fussed' is unknown; did you mean 'fused'?" },
        { { "-p", "a", "--kv-type", "q4_0" }, "--kv-type 'q4_0' is unknown; did you mean 'q8_0'?" },
        { { "-p", "a", "--kv-type=q8_0", "--attention=observe" }, "--kv-type q8_0 needs fused attention" },
        { { "-p", "a", "--isa", "sse9000" }, "--isa 'sse9000' is unknown; choose from scalar" },
        { { "-p", "a", "--isa=scalar", "--attention=observe" }, "--isa has no effect with --attention" },
        { { "-p", "a", "--ubatch", "0" }, "--ubatch 0 is out of range: 1 to " },
        { { "-p", "a", "--threads", "0" }, "--threads 0 is out of range: 1 to 1024" },
        { { "-p", "a", "-n", "many" }, "--new 'many' is not a whole number" },
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const char *words[8] = { "run" };
        for (size_t k = 0; k < 6; k++) words[k + 1] = cases[i].words[k];
        program_expect_list(2, cases[i].says, words);
    }
}

static void help_names_every_policy(void **state)
{
    program_result r = program_run("run", "--help");
    (void)state;
    for (uint32_t i = 0; h2okv_policy_name(i); i++) assert_contains(r.out, h2okv_policy_name(i));
    program_free(&r);
}

#ifdef H2OKV_HAVE_LLAMA

static void texts_that_are_none(void **state)
{
    program_result r = program_run_with(((program_setup){ .input = "" }), "run", "-");
    (void)state;
    assert_int_equal(r.code, 4);
    assert_contains(r.err, "standard input: is empty");
    program_free(&r);
    r = program_run_with(((program_setup){ .input = "caf\xc3\xa9 \xe9" }), "run", "-f", "-");
    assert_int_equal(r.code, 4);
    assert_contains(r.err, "standard input: not a text: invalid UTF-8 at byte 6");
    program_free(&r);
    program_expect(4, "/nowhere.txt: cannot open: No such file or directory", "run", "-f", "/nowhere.txt");
    program_expect(4, ": is a directory, not a text", "run", "-f", H2OKV_TEST_DIR);
    program_expect(4, ": is empty", "run", "-f", program_file("", 0));
    program_expect(4, ": is empty", "run", "-f", program_file("\xef\xbb\xbf", 3)); /* a byte order mark alone */
    program_expect(4, ": not a text: a NUL at byte 6", "run", "-f", program_file("\xef\xbb\xbf""abc\0", 7));
    program_expect(4, ": not a text: a NUL at byte 3", "run", "-f", program_file("abc\0def", 7));
    program_expect(4, ": not a text: invalid UTF-8 at byte 4", "run", "-f", program_file("text\xe2\x82", 6));
    program_expect(4, "--prompt: not a text: invalid UTF-8 at byte 1", "run", "-p", "a\xff");
    program_clean();
}

static void models_that_are_none(void **state)
{
    program_result r = program_run_with(((program_setup){ .environment = "H2OKV_CACHE=/nowhere" }), "run",
                                        "-p", "a");
    (void)state;
    assert_int_equal(r.code, 4);
    assert_contains(r.err, "no model: /nowhere/models/SmolLM2-135M-Instruct.Q4_1.gguf is missing");
    assert_contains(r.err, "make model");
    program_free(&r);
    program_expect(4, "/nowhere.gguf: cannot open: No such file or directory", "run", "-p", "a", "-m",
                   "/nowhere.gguf");
    program_expect(4, ": is a directory, not a model", "run", "-p", "a", "-m", H2OKV_TEST_DIR);
    program_expect(4, ": is not a regular file", "run", "-p", "a", "-m", "/dev/null");
    program_expect(4, ": is not a regular file", "run", "-p", "a", "-m", "/dev/stdin");
    program_expect(4, ": is no GGUF file", "run", "-p", "a", "-m", program_file("PK\3\4 something else", 20));
    program_expect(4, ": is no GGUF file", "run", "-p", "a", "-m", program_file("GG", 2));
    program_expect(5, ": llama.cpp cannot load it: ", "run", "-p", "a", "-m",
                   program_file("GGUF\3\0\0\0", 8));
    program_clean();
}

#else

static void without_llama(void **state)
{
    (void)state;
    program_expect(3, "this h2okv was built without llama.cpp", "run", "-p", "a");
    program_expect(3, "LLAMA_DIR=", "run", "-f", "/nowhere");
}

#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(usage_errors),
        cmocka_unit_test(help_names_every_policy),
#ifdef H2OKV_HAVE_LLAMA
        cmocka_unit_test(texts_that_are_none),
        cmocka_unit_test(models_that_are_none),
#else
        cmocka_unit_test(without_llama),
#endif
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
