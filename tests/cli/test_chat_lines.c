/* test_chat_lines.c - `h2okv chat` before a model is needed: messages from lines, requests from messages, bad options. */
#include "chat.h"

#include "program.h"

#include <string.h>
#include <unistd.h>

static int end(void **state)
{
    (void)state;
    program_clean();
    return 0;
}

/* ---- Lines -------------------------------------------------------------------------------------------- */

/* From here on standard input holds these bytes. */
static chat_lines input(const char *bytes, size_t n)
{
    FILE *file = tmpfile();
    assert_true(file && fwrite(bytes, 1, n, file) == n && fflush(file) == 0);
    rewind(file);
    assert_int_equal(lseek(fileno(file), 0, SEEK_SET), 0);
    assert_int_equal(dup2(fileno(file), 0), 0);
    fclose(file);
    return (chat_lines){ 0 };
}

static void messages_from_lines(void **state)
{
    static const struct {
        const char *input, *message[4];
    } cases[] = {
        { "one\ntwo\n", { "one", "two" } },
        { "one\r\n\r\ntwo", { "one", "", "two" } },          /* of another system; no end of line at the end */
        { "a\\\n  b\\\nc\nd\n", { "a\n  b\nc", "d" } },      /* goes on */
        { "a\\", { "a\n" } },
        { "\"\"\"\n a\\\n\n/x\n\"\"\" \nb\n", { " a\\\n\n/x\n", "b" } }, /* a block is taken as it is */
        { "say \"\"\"\nb\n", { "say \"\"\"", "b" } },        /* it has to stand alone */
        { "\"\"\"\n\"\"\"\nb\n", { "", "b" } },
        { "\xef\xbb\xbf" "a\n\xef\xbb\xbf" "b\n", { "a", "\xef\xbb\xbf" "b" } },
        { "", { NULL } },
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        chat_lines l = input(cases[i].input, strlen(cases[i].input));
        for (size_t k = 0; cases[i].message[k]; k++) {
            assert_int_equal(chat_read_message(&l), CHAT_MESSAGE);
            assert_string_equal(l.message.data, cases[i].message[k]);
        }
        assert_int_equal(chat_read_message(&l), CHAT_END);
        assert_int_equal(chat_read_message(&l), CHAT_END);
        chat_lines_free(&l);
    }
}

static void long_lines(void **state)
{
    enum { LONG = 300000 };
    cli_buffer b = { 0 };
    chat_lines l;
    (void)state;
    assert_true(cli_buffer_reserve(&b, LONG + 16));
    memset(b.data, 'x', LONG);
    memcpy(b.data + LONG, "\nshort\n", 8);
    l = input(b.data, LONG + 7);
    assert_int_equal(chat_read_message(&l), CHAT_MESSAGE);
    assert_int_equal(l.message.n, LONG);
    assert_int_equal(l.message.data[LONG - 1], 'x');
    assert_int_equal(chat_read_message(&l), CHAT_MESSAGE);
    assert_string_equal(l.message.data, "short");
    assert_int_equal(chat_read_message(&l), CHAT_END);
    chat_lines_free(&l);
    cli_buffer_free(&b);
}

static void bad_messages(void **state)
{
    static const struct {
        const char *input;
        size_t n;
        const char *says, *next;
    } cases[] = {
        { "a\nb\xff" "c\nd\n", 8, NULL, "a" },
        { "b\xff" "c\nd\n", 6, "line 1 is no text: invalid UTF-8 at its byte 1", "d" },
        { "b\0c\nd\n", 6, "line 1 is no text: a NUL at its byte 1", "d" },
        { "\"\"\"\na\n", 6, "the \"\"\" in line 1 has no other that ends the message", NULL },
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        chat_lines l = input(cases[i].input, cases[i].n);
        if (cases[i].says) {
            stderr_catch();
            assert_int_equal(chat_read_message(&l), CHAT_BAD);
            assert_contains(stderr_caught(), cases[i].says);
        }
        assert_int_equal(chat_read_message(&l), cases[i].next ? CHAT_MESSAGE : CHAT_END);
        if (cases[i].next) assert_string_equal(l.message.data, cases[i].next);
        chat_lines_free(&l);
    }
}

/* ---- Requests ----------------------------------------------------------------------------------------- */

static bool parse(const char *text, chat_request *out)
{
    static cli_buffer message;
    message.n = 0;
    assert_true(cli_buffer_add(&message, text, strlen(text)));
    return chat_parse(&message, out);
}

static void requests_from_messages(void **state)
{
    static const struct {
        const char *message;
        enum chat_verb verb;
        const char *text;
    } cases[] = {
        { "Hello", CHAT_SAY, "Hello" },
        { "\n \n  Hello\n  you \n\n", CHAT_SAY, "  Hello\n  you" },
        { "", CHAT_SAY, "" },
        { " \n\t\n ", CHAT_SAY, "" },
        { "//etc", CHAT_SAY, "/etc" },
        { "/*\n * a comment\n */", CHAT_SAY, "/*\n * a comment\n */" }, /* of many lines: text */
        { "/help", CHAT_HELP, "" },
        { "/undo \n", CHAT_UNDO, "" },
        { "/regen", CHAT_REGEN, "" },
        { "/clear", CHAT_CLEAR, "" },
        { "/stats", CHAT_STATS, "" },
        { "/quit", CHAT_QUIT, "" },
        { "/budget  300 ", CHAT_BUDGET, "300" },
        { "/save my talk \n", CHAT_SAVE, "my talk" },
        { "/load ~/talk", CHAT_LOAD, "~/talk" },
    };
    chat_request r;
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_true(parse(cases[i].message, &r));
        assert_int_equal(r.verb, cases[i].verb);
        assert_int_equal(r.n, strlen(cases[i].text));
        assert_memory_equal(r.text, cases[i].text, r.n);
    }
    assert_true(parse("/budget 16", &r));
    assert_int_equal(r.budget, 16);
}

static void bad_commands(void **state)
{
    static const char *const cases[][2] = {
        { "/", "unknown command '/'; /help lists them" },
        { "/stat", "unknown command '/stat'; did you mean '/stats'?" },
        { "/etc/passwd", "unknown command '/etc/passwd'; /help lists them, and a message that starts with / is written //" },
        { "/undo 3", "/undo takes nothing behind it, and '3' is there" },
        { "/budget", "/budget N: what is N?" },
        { "/save", "/save FILE: what is FILE?" },
        { "/budget 15", "/budget 15 is out of range: 16 to " },
        { "/budget many", "/budget 'many' is not a whole number from 16 to " },
    };
    chat_request r;
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        stderr_catch();
        assert_false(parse(cases[i][0], &r));
        assert_contains(stderr_caught(), cases[i][1]);
    }
}

/* ---- Options ------------------------------------------------------------------------------------------ */

static void usage_errors(void **state)
{
    static const struct {
        const char *words[5], *says;
    } cases[] = {
        { { "hello" }, "unexpected argument 'hello': what you say comes from standard input" },
        { { "--system", "a", "--system-file", "b" }, "give --system or --system-file, not both" },
        { { "-n", "0" }, "--new 0 is out of range: 1 to 1048576" },
        { { "--temp", "0", "--top-k", "3" }, "--top-k has no effect at --temp 0" },
        { { "--budget", "15" }, "--budget 15 is out of range: 16 to " },
        { { "--policy", "windwo" }, "did you mean 'window'?" },
        { { "--guide", "none" }, "--guide 'none' is neither auto nor off nor a number" },
        { { "--guide-text", "a" }, "unknown option '--guide-text'" }, /* a message is its own guide */
        { { "--prompt-budget", "500" }, "--prompt-budget 500 is less than --budget 512" },
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const char *words[7] = { "chat" };
        for (size_t k = 0; k < 5; k++) words[k + 1] = cases[i].words[k];
        program_expect_list(2, cases[i].says, words);
    }
}

#ifdef H2OKV_HAVE_LLAMA
static void system_prompts_that_are_none(void **state)
{
    (void)state;
    program_expect(4, "the system prompt is blank", "chat", "--system", " \n ");
    program_expect(4, "--system: is empty", "chat", "--system", "");
    program_expect(4, "--system: not a text: invalid UTF-8 at byte 1", "chat", "--system", "a\xff");
    program_expect(4, "/no/such: cannot open", "chat", "--system-file", "/no/such");
}

static void templates_are_listed(void **state)
{
    (void)state;
    program_expect(0, "chatml\n", "chat", "--template", "list");
}
#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(messages_from_lines),
        cmocka_unit_test(long_lines),
        cmocka_unit_test(bad_messages),
        cmocka_unit_test(requests_from_messages),
        cmocka_unit_test(bad_commands),
        cmocka_unit_test(usage_errors),
#ifdef H2OKV_HAVE_LLAMA
        cmocka_unit_test(system_prompts_that_are_none),
        cmocka_unit_test(templates_are_listed),
#endif
    };
    return cmocka_run_group_tests(tests, NULL, end);
}
