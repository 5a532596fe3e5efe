/*
 * test_chat.c - `h2okv chat` on the default model, scripted over a pipe.
 *
 * One thread and short answers: what is tested is the program, not the model's wit.
 */
#include "llama/engine.h"

#include "program.h"

#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MODEL "-m", H2OKV_TEST_MODEL, "-t", "1"
#define TALK MODEL, "--temp", "0", "--ignore-eos"
#define SMALL TALK, "-n", "8", "--budget", "64", "--ubatch", "16"
#define chat_with(lines, ...) program_run_with((program_setup){ .input = (lines) }, "chat", __VA_ARGS__)

enum { MOST_LINES = 600 };

static int end(void **state)
{
    (void)state;
    program_clean();
    return 0;
}

/* ---- Lines of JSON ------------------------------------------------------------------------------------ */

typedef struct objects {
    json_t *at[MOST_LINES];
    size_t n;
} objects;

/* Every line of standard output is an object. */
static objects objects_of(const program_result *r)
{
    objects all = { .n = 0 };
    for (const char *line = r->out; *line;) {
        size_t n = strcspn(line, "\n");
        json_error_t error;
        assert_true(all.n < MOST_LINES);
        all.at[all.n] = json_loadb(line, n, 0, &error);
        if (!all.at[all.n]) fail_msg("%s in: %.*s%s", error.text, (int)n, line, r->err);
        assert_int_equal(line[n], '\n');
        all.n++;
        line += n + 1;
    }
    return all;
}

static void free_objects(objects *all)
{
    for (size_t i = 0; i < all->n; i++) json_decref(all->at[i]);
}

static const char *word(const objects *all, size_t i, const char *key)
{
    assert_true(i < all->n);
    if (!json_is_string(json_object_get(all->at[i], key))) fail_msg("no \"%s\" in object %zu", key, i);
    return json_string_value(json_object_get(all->at[i], key));
}

static json_int_t whole(const objects *all, size_t i, const char *key)
{
    assert_true(i < all->n);
    if (!json_is_integer(json_object_get(all->at[i], key))) fail_msg("no \"%s\" in object %zu", key, i);
    return json_integer_value(json_object_get(all->at[i], key));
}

/* Of a conversation with --json and -q; it ends well. */
static objects talk_list(const char *lines, const char *const *arguments)
{
    program_result r = program_run_list((program_setup){ .input = lines }, arguments);
    objects all;
    if (r.code != 0) fail_msg("exit code %d: %s", r.code, r.err);
    assert_string_equal(r.err, "");
    all = objects_of(&r);
    assert_true(all.n > 0);
    assert_string_equal(word(&all, all.n - 1, "type"), "report");
    program_free(&r);
    return all;
}
#define talk(lines, ...) talk_list(lines, (const char *const[]){ "chat", "--json", "-q", __VA_ARGS__, NULL })

/* ---- A conversation ----------------------------------------------------------------------------------- */

static void an_answer_a_line_and_a_report(void **state)
{
    program_result r = chat_with("Hello!\nWho are you?\n", SMALL), q = chat_with("Hello!\nWho are you?", SMALL, "-q");
    (void)state;
    assert_int_equal(r.code, 0);
    assert_true(r.n_out > 20 && r.out[r.n_out - 1] == '\n' && r.out[r.n_out - 2] != '\n');
    assert_contains(r.err, "default, budget 64 = 32 recent + 32 heavy (4 sinks)\n");
    assert_contains(r.err, "  turns    2; the conversation is at token ");
    assert_contains(r.err, "  written  16 tokens in ");
    assert_contains(r.err, "; a full cache would need ");
    assert_int_equal(count_of(r.err, "(-n reached)"), 2);
    assert_lacks(r.err, "\r");
    assert_lacks(r.err, "\033");
    assert_true(longest_line(r.err) <= 80);
    assert_int_equal(q.code, 0);
    assert_string_equal(q.out, r.out);
    assert_string_equal(q.err, "");
    program_free(&r);
    program_free(&q);
}

static void nothing_said(void **state)
{
    objects all = talk("\n\n  \n", SMALL);
    (void)state;
    assert_int_equal(all.n, 1);
    assert_int_equal(whole(&all, 0, "turns"), 0);
    assert_int_equal(whole(&all, 0, "positions"), 0);
    free_objects(&all);
}

/* Only what is new is read; and what is in the cache is what llama.cpp's template makes of the whole conversation, token
 * by token. */
static void turns_continue_one_stream_of_tokens(void **state)
{
    objects all = talk("Hello!\nAnd you?\n", TALK, "-n", "6", "--system", "Be brief.");
    char text[1024];
    engine e;
    int32_t n;
    (void)state;
    assert_int_equal(all.n, 3);
    snprintf(text, sizeof text, "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHello!<|im_end|>\n"
             "<|im_start|>assistant\n%s<|im_end|>\n<|im_start|>user\nAnd you?<|im_end|>\n<|im_start|>assistant\n%s",
             word(&all, 0, "text"), word(&all, 1, "text"));
    assert_int_equal(engine_load(&e, "chat", H2OKV_TEST_MODEL, false, false), 0);
    n = -llama_tokenize(e.vocab, text, (int32_t)strlen(text), NULL, 0, true, true);
    engine_free(&e);
    assert_int_equal(whole(&all, 1, "positions"), n);
    assert_int_equal(whole(&all, 0, "positions"), whole(&all, 2, "system_tokens") + whole(&all, 0, "read_tokens") + 6);
    assert_int_equal(whole(&all, 1, "positions"), whole(&all, 0, "positions") + whole(&all, 1, "read_tokens") + 6);
    free_objects(&all);
}

/* An end token ends an answer, is not shown, and the next turn ends it in the template's words. */
static void answers_end(void **state)
{
    objects all = talk("What is the capital of France?\nThank you.\n", MODEL, "--temp", "0", "-n", "300");
    (void)state;
    assert_string_equal(word(&all, 0, "stopped"), "eos");
    assert_true(whole(&all, 0, "written_tokens") < 300);
    assert_int_equal(whole(&all, 0, "positions"), whole(&all, 0, "read_tokens") + whole(&all, 0, "written_tokens"));
    assert_lacks(word(&all, 0, "text"), "im_end");
    free_objects(&all);
}

static void messages_of_many_lines(void **state)
{
    objects block = talk("\"\"\"\nRed\nGreen\n\"\"\"\n", SMALL), slash = talk("Red\\\nGreen\n", SMALL);
    (void)state;
    assert_int_equal(block.n, 2);
    assert_int_equal(slash.n, 2);
    assert_string_equal(word(&block, 0, "text"), word(&slash, 0, "text"));
    assert_int_equal(whole(&block, 0, "read_tokens"), whole(&slash, 0, "read_tokens"));
    free_objects(&block);
    free_objects(&slash);
}

/* ---- Back --------------------------------------------------------------------------------------------- */

/* As if it had not been said: the next turn reads and writes the same as without it. */
static void undo_is_exact_among_the_recent(void **state)
{
    objects undone = talk("Hello!\nCount to three.\n/undo\nWho are you?\n", TALK, "-n", "8");
    objects never = talk("Hello!\nWho are you?\n", TALK, "-n", "8");
    (void)state;
    assert_int_equal(undone.n, 4);
    assert_string_equal(word(&undone, 2, "text"), word(&never, 1, "text"));
    assert_int_equal(whole(&undone, 2, "positions"), whole(&never, 1, "positions"));
    assert_int_equal(whole(&undone, 3, "positions"), whole(&never, 2, "positions"));
    assert_int_equal(whole(&undone, 3, "live"), whole(&never, 2, "live"));
    free_objects(&undone);
    free_objects(&never);
}

static void undo_of_everything(void **state)
{
    objects all = talk("Hello!\nYes?\n/undo\n/undo\nHello!\n", TALK, "-n", "8", "--system", "Be brief.");
    (void)state;
    assert_string_equal(word(&all, 0, "text"), word(&all, 2, "text"));
    assert_int_equal(whole(&all, 2, "read_tokens"), whole(&all, 0, "read_tokens"));
    assert_int_equal(whole(&all, 2, "positions"), whole(&all, 0, "positions"));
    free_objects(&all);
}

/* The answer alone is written anew, from the same place. */
static void regen(void **state)
{
    objects all = talk("Hello!\n/regen\n/regen\nYes?\n", MODEL, "-n", "8", "--temp", "1.5", "--ignore-eos");
    (void)state;
    assert_int_equal(all.n, 5);
    for (size_t i = 1; i < 3; i++) {
        assert_string_not_equal(word(&all, i - 1, "text"), word(&all, i, "text"));
        assert_int_equal(whole(&all, i, "positions"), whole(&all, 0, "positions"));
        assert_int_equal(whole(&all, i, "read_tokens"), 1);
        assert_int_equal(whole(&all, i, "turn"), 1);
    }
    assert_int_equal(whole(&all, 3, "turn"), 2);
    free_objects(&all);
}

/* Past the recent tokens others go as well, which is said; past what the cache holds the turns are read again. */
static void far_back(void **state)
{
    program_result r = chat_with("Hello!\nTell me a story.\n/regen\n", TALK, "-n", "40", "--budget", "64", "--ubatch", "16");
    program_result s = chat_with("Hello!\nTell me a story.\n/undo\n/stats\n", TALK, "-n", "90", "--budget", "64",
                                 "--ubatch", "16", "--system", "Be brief.");
    (void)state;
    assert_int_equal(r.code, 0);
    assert_contains(r.err, "(that reached past the recent tokens: up to ");
    assert_contains(r.err, " older ones are lost with it)");
    assert_int_equal(s.code, 0);
    assert_contains(s.err, "(reading the last 1 turns again: what came before them is lost)");
    program_free(&r);
    program_free(&s);
}

/* Read again it is the same conversation as without what was taken back. */
static void read_again_is_as_read_once(void **state)
{
    objects again = talk("Hello!\nTell me a story.\n/undo\nWho are you?\n", TALK, "-n", "90", "--budget", "64", "--system",
                         "Be brief.");
    objects once = talk("Hello!\nWho are you?\n", TALK, "-n", "90", "--budget", "64", "--system", "Be brief.");
    (void)state;
    assert_int_equal(whole(&again, 2, "positions"), whole(&once, 1, "positions"));
    assert_int_equal(whole(&again, 2, "read_tokens"), whole(&once, 1, "read_tokens"));
    assert_int_equal(whole(&again, 3, "live"), whole(&once, 2, "live"));
    free_objects(&again);
    free_objects(&once);
}

static void clear(void **state)
{
    objects all = talk("Hello!\nYes?\n/clear\nHello!\n/stats\n", SMALL, "--system", "Be brief.");
    (void)state;
    assert_string_equal(word(&all, 2, "text"), word(&all, 0, "text"));
    assert_int_equal(whole(&all, 2, "positions"), whole(&all, 0, "positions"));
    assert_int_equal(whole(&all, 3, "turns"), 3);
    free_objects(&all);
}

/* ---- The cache ---------------------------------------------------------------------------------------- */

/* The conversation outgrows the budget, the cache does not; and what is pinned counts in it. */
static void the_cache_is_bounded(void **state)
{
    static char lines[4096];
    objects all;
    (void)state;
    for (int i = 0; i < 12; i++) strcat(lines, "Tell me more about the number 7, please.\n");
    all = talk(lines, SMALL, "--system", "Be brief.");
    assert_int_equal(all.n, 13);
    assert_true(whole(&all, 12, "positions") > 200);
    assert_int_equal(whole(&all, 12, "live"), 64);
    assert_int_equal(whole(&all, 12, "peak_live"), 64 + 16);
    assert_int_equal(whole(&all, 12, "evicted"), whole(&all, 12, "positions") - 64);
    assert_true(whole(&all, 12, "system_tokens") > 5);
    assert_int_equal(whole(&all, 12, "turns"), 12);
    assert_int_equal(whole(&all, 12, "written_tokens"), 12 * 8);
    free_objects(&all);
}

static void another_budget(void **state)
{
    objects all = talk("Tell me about the number 7, in a few words that are not hard to read, if you please.\n/budget 32\n"
                       "/stats\n/budget 96\nYes?\nYes?\nYes?\n/clear\n/stats\n", SMALL, "--prompt-budget", "96");
    program_result r = chat_with("/budget 97\nHello!\n", SMALL, "--prompt-budget", "96", "-q");
    (void)state;
    assert_int_equal(whole(&all, 1, "budget"), 32);
    assert_int_equal(whole(&all, 1, "live"), 32);
    assert_int_equal(whole(&all, 1, "recent"), 16);
    assert_int_equal(whole(&all, 5, "budget"), 96); /* also behind /clear */
    assert_int_equal(whole(&all, 5, "live"), 0);
    assert_int_equal(r.code, 2);
    assert_string_equal(r.out, ""); /* a script ends with the command that fails */
    assert_contains(r.err, "/budget 97: the cache has room for 96; start with --prompt-budget 97 to have more");
    program_free(&r);
    free_objects(&all);
}

static void a_system_prompt_has_to_fit(void **state)
{
    static char prompt[4096];
    (void)state;
    for (int i = 0; i < 40; i++) strcat(prompt, "Be brief. ");
    program_expect(2, " tokens, which are always kept; with the 32 recent ones that is more than --budget 64: shorten it, "
                      "or give a --budget of ", "chat", SMALL, "--system", prompt);
    program_expect(2, "has no place for a system prompt", "chat", SMALL, "--system", "Be brief.", "--template", "yandex");
}

static void fault_35_full_policy_says_when_it_is_full(void **state)
{
    program_result r = chat_with("Hello!\nYes?\nYes?\nYes?\nYes?\n", SMALL, "--policy", "full");
    (void)state;
    assert_int_equal(r.code, 2);
    assert_contains(r.err, "--policy full keeps every token, and this message needs a budget of ");
    assert_contains(r.err, " of 256; 0 tokens evicted");
    program_free(&r);
}

/* A message of many times the budget that ends with a question is read with that in mind. */
static void a_long_message_is_read_for_its_end(void **state)
{
    static char lines[8192] = "\"\"\"\n";
    objects guided, plain;
    (void)state;
    strcat(lines, "The secret word of the day is marmalade. Remember it.\n");
    for (int i = 0; i < 60; i++) strcat(lines, "The lazy owner counted 17 cups, then slept.\n");
    strcat(lines, "\nWhat is the secret word of the day?\n\"\"\"\n");
    guided = talk(lines, TALK, "-n", "12", "--budget", "128");
    plain = talk(lines, TALK, "-n", "12", "--budget", "128", "--guide", "off");
    assert_contains(word(&guided, 0, "text"), "marmalade");
    assert_lacks(word(&plain, 0, "text"), "marmalade");
    free_objects(&guided);
    free_objects(&plain);
}

/* ---- Refused ------------------------------------------------------------------------------------------ */

/* The default model with another name for the key of its template, of the same length. */
static void a_model_without_a_template_is_refused(void **state)
{
    static const char key[] = "tokenizer.chat_template";
    FILE *file = fopen(H2OKV_TEST_MODEL, "rb");
    const char *name = program_file(NULL, 0);
    char *bytes = NULL, *found = NULL;
    long n = 0;
    (void)state;
    assert_true(file && fseek(file, 0, SEEK_END) == 0 && (n = ftell(file)) > 1 << 23);
    bytes = malloc((size_t)n);
    rewind(file);
    assert_true(bytes && fread(bytes, 1, (size_t)n, file) == (size_t)n);
    fclose(file);
    for (char *at = bytes; !found && at < bytes + (1 << 23); at++) {
        if (memcmp(at, key, sizeof key - 1) == 0) found = at;
    }
    assert_non_null(found);
    memcpy(found + 10, "chut", 4);
    file = fopen(name, "wb");
    assert_true(file && fwrite(bytes, 1, (size_t)n, file) == (size_t)n && fclose(file) == 0);
    program_expect(5, ": has no chat template; give one that fits with --template NAME", "chat", "-t", "1", "-m", name);
    program_expect(0, "", "chat", "-t", "1", "-m", name, "--template", "chatml");
    free(bytes);
}

static void bad_lines_end_a_script(void **state)
{
    static const struct {
        const char *lines;
        int code;
        const char *says;
    } cases[] = {
        { "/undo\nHello!\n", 2, "/undo: nothing has been said yet" },
        { "/regen\nHello!\n", 2, "/regen: nothing has been said yet" },
        { "/stat\nHello!\n", 2, "unknown command '/stat'; did you mean '/stats'?" },
        { "a\xff\nHello!\n", 4, "line 1 is no text: invalid UTF-8 at its byte 1" },
        { "\"\"\"\nHello!\n", 4, "has no other that ends the message" },
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        program_result r = chat_with(cases[i].lines, SMALL, "-q");
        assert_int_equal(r.code, cases[i].code);
        assert_contains(r.err, cases[i].says);
        assert_string_equal(r.out, "");
        program_free(&r);
    }
}

static void commands_that_speak(void **state)
{
    program_result r = chat_with("/help\nHello!\n/quit\nHello!\n", SMALL), once = chat_with("Hello!\n", SMALL);
    (void)state;
    assert_int_equal(r.code, 0);
    assert_contains(r.err, "  /budget N     keep N tokens from now on\n");
    assert_true(longest_line(r.err) <= 80);
    assert_string_equal(r.out, once.out);
    program_free(&r);
    program_free(&once);
}

/* A script ends at Ctrl-C, after the report; its next line is not answered. */
static void ctrl_c_ends_a_script(void **state)
{
    program_setup setup = { .input = "Hello!\nAnd you?\n", .signal = SIGINT, .signal_after = "" };
    program_result r = program_run_with(setup, "chat", TALK, "-n", "100000");
    (void)state;
    assert_int_equal(r.code, 130);
    assert_contains(r.err, "(stopped)\ndefault, budget 512");
    assert_contains(r.err, "  turns    1; ");
    program_free(&r);
}

/* How many wide characters an answer has; each piece of output is of whole ones. */
static size_t wide_characters(const char *lines, uint32_t seed)
{
    char command[1024], piece[4096];
    ssize_t n;
    size_t wide = 0;
    FILE *file;
    snprintf(command, sizeof command, "'%s' chat -m '%s' -t 1 -q -n 60 --ignore-eos --temp 1 --seed %u <'%s'",
             H2OKV_TEST_CLI, H2OKV_TEST_MODEL, seed, lines);
    file = popen(command, "r");
    assert_non_null(file);
    while ((n = read(fileno(file), piece, sizeof piece)) > 0) { /* of a pipe: what was written together */
        if (cli_utf8_bad(piece, (size_t)n) != SIZE_MAX) fail_msg("a character is cut: %.*s", (int)n, piece);
        for (ssize_t i = 0; i < n; i++) wide += (unsigned char)piece[i] >= 0xe0;
    }
    assert_int_equal(pclose(file), 0);
    return wide;
}

/* However the model's tokens cut them. What it draws differs from processor to processor, so some answers may be in
 * English. */
static void characters_come_whole(void **state)
{
    static const char question[] = "\xe6\x97\xa5\xe6\x9c\xac\xe8\xaa\x9e\xe3\x81\xa7\xe7\xad\x94\xe3\x81\x88\xe3\x81"
                                   "\xa6\xe3\x81\x8f\xe3\x81\xa0\xe3\x81\x95\xe3\x81\x84\xe3\x80\x82\n";
    const char *lines = program_file(question, sizeof question - 1);
    size_t wide = 0;
    (void)state;
    for (uint32_t seed = 0; seed < 20 && wide <= 10; seed++) wide += wide_characters(lines, seed);
    assert_true(wide > 10);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_answer_a_line_and_a_report),
        cmocka_unit_test(nothing_said),
        cmocka_unit_test(turns_continue_one_stream_of_tokens),
        cmocka_unit_test(answers_end),
        cmocka_unit_test(messages_of_many_lines),
        cmocka_unit_test(undo_is_exact_among_the_recent),
        cmocka_unit_test(undo_of_everything),
        cmocka_unit_test(regen),
        cmocka_unit_test(far_back),
        cmocka_unit_test(read_again_is_as_read_once),
        cmocka_unit_test(clear),
        cmocka_unit_test(the_cache_is_bounded),
        cmocka_unit_test(another_budget),
        cmocka_unit_test(a_system_prompt_has_to_fit),
        cmocka_unit_test(fault_35_full_policy_says_when_it_is_full),
        cmocka_unit_test(a_long_message_is_read_for_its_end),
        cmocka_unit_test(a_model_without_a_template_is_refused),
        cmocka_unit_test(bad_lines_end_a_script),
        cmocka_unit_test(commands_that_speak),
        cmocka_unit_test(ctrl_c_ends_a_script),
        cmocka_unit_test(characters_come_whole),
    };
    return cmocka_run_group_tests(tests, NULL, end);
}
