/*
 * test_run_guide.c - how `h2okv run` reads a prompt that is longer than its budget, on the default model: with its
 * question in mind, with tokens pinned, with more room while it is read.
 *
 *   prompt:  | part of the GPL | the secret number | more of it | the question |
 */
#include "program.h"
#include "report.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MODEL "-m", H2OKV_TEST_MODEL, "-t", "1", "-q", "--json"
#define KEY "\n The secret number of Linden is 48213. Remember it.\n"
#define QUESTION "\n\nQuestion: What is the secret number of Linden?\nAnswer: The secret number of Linden is"
enum { BEFORE = 2500, AFTER = 3500 }; /* bytes */

static char license[BEFORE + AFTER + 1];

static int start(void **state)
{
    FILE *file = fopen("/usr/share/common-licenses/GPL-3", "rb");
    size_t n = file ? fread(license, 1, BEFORE + AFTER, file) : 0;
    (void)state;
    if (file) fclose(file);
    return n == BEFORE + AFTER ? 0 : -1;
}

static int end(void **state)
{
    (void)state;
    program_clean();
    return 0;
}

/* A file of the license's first bytes, then the key, then more of it, then the question; any of them may be missing. */
static const char *prompt(const char *key, int after, const char *question)
{
    char text[BEFORE + AFTER + 256];
    int n = snprintf(text, sizeof text, "%.*s%s%.*s%s", BEFORE, license, key, after, license + BEFORE, question);
    return program_file(text, (size_t)n);
}

static json_t *run(const char *const *more, const char *file)
{
    const char *words[32] = { "run", MODEL, "-n", "8", "-f", file };
    size_t n = 0;
    program_result r;
    json_t *j;
    while (words[n]) n++;
    for (size_t i = 0; more[i]; i++) words[n++] = more[i];
    r = program_run_list((program_setup){ 0 }, words);
    if (r.code) fail_msg("exit code %d: %s", r.code, r.err);
    j = object_of(&r);
    program_free(&r);
    return j;
}
#define RUN(file, ...) run((const char *const[]){ __VA_ARGS__, NULL }, file)

static bool found(const json_t *j)
{
    return strstr(string(j, "text"), "48213") != NULL;
}

static void a_guide_finds_what_is_asked_for(void **state)
{
    const char *file = prompt(KEY, AFTER, QUESTION);
    json_t *plain = RUN(file, "--budget", "260", "--guide", "off"), *guided = RUN(file, "--budget", "260");
    (void)state;
    assert_true(number(plain, "prompt_tokens") > 1300); /* so that the budget is 20 % */
    assert_int_equal(number(plain, "guide_tokens"), 0);
    assert_false(found(plain));
    assert_int_equal(number(guided, "guide_tokens"), 21);
    assert_true(found(guided));
    assert_int_equal(number(guided, "live"), 260);
    assert_int_equal(number(guided, "positions"), number(plain, "positions")); /* the probe leaves nothing behind */
    json_decref(plain);
    json_decref(guided);
}

static void a_guide_may_be_so_many_tokens_or_a_text(void **state)
{
    const char *file = prompt(KEY, AFTER, QUESTION);
    json_t *tokens = RUN(file, "--budget", "260", "--guide", "24");
    json_t *text = RUN(file, "--budget", "260", "--guide-text", "The secret number of Linden is", "--guide-chunk",
                       "32");
    json_t *whole = RUN(file, "--budget", "1400"); /* all of it is kept: there is nothing to guide */
    (void)state;
    assert_int_equal(number(tokens, "guide_tokens"), 24);
    assert_int_equal(number(tokens, "peak_live"), 260 + 192 + 24);
    assert_true(found(tokens));
    assert_int_equal(number(text, "guide_tokens"), 7);
    assert_int_equal(number(text, "peak_live"), 260 + 32 + 7);
    assert_int_equal(number(whole, "guide_tokens"), 0);
    json_decref(tokens);
    json_decref(text);
    json_decref(whole);
}

static json_int_t tokens_of(const char *file)
{
    json_t *j = RUN(file, "-n", "0", "--budget", "1024");
    json_int_t n = number(j, "prompt_tokens");
    json_decref(j);
    return n;
}

/* The key's positions are kept without any guide, and then it is found. */
static void pinned_tokens_stay(void **state)
{
    const char *file = prompt(KEY, AFTER, QUESTION);
    char pin[64], over[64];
    json_int_t first = tokens_of(prompt("", 0, "")), last = tokens_of(prompt(KEY, 0, ""));
    json_t *j;
    (void)state;
    snprintf(pin, sizeof pin, "%d:%d", (int)first, (int)last);
    j = RUN(file, "--budget", "260", "--guide", "off", "--pin", pin, "--pin", "0:2,4:6");
    assert_true(found(j));
    assert_int_equal(number(j, "live"), 260);
    json_decref(j);
    snprintf(over, sizeof over, "%d:%d", (int)first, (int)first + 127);
    program_expect(2, "h2okv run: --pin ", "run", "-f", file, MODEL, "--budget", "260", "--pin", over);
    program_expect(2, "pinned tokens are 127", "run", "-f", file, MODEL, "--budget", "260", "--pin", over);
}

static void a_prompt_has_room_of_its_own(void **state)
{
    const char *file = prompt("", 1000, "");
    json_t *plain = RUN(file, "--budget", "100", "--ubatch", "32", "--guide", "off");
    json_t *roomy = RUN(file, "--budget", "100", "--ubatch", "32", "--guide", "off", "--prompt-budget", "500");
    (void)state;
    assert_true(number(plain, "prompt_tokens") > 600);
    assert_int_equal(number(plain, "peak_live"), 132);
    assert_int_equal(number(roomy, "peak_live"), 532);
    assert_int_equal(number(roomy, "cells") % 256, 0);
    assert_true(number(roomy, "cells") >= 532);
    assert_int_equal(number(roomy, "live"), 100);
    assert_int_equal(number(roomy, "budget"), 100);
    json_decref(plain);
    json_decref(roomy);
    program_expect(2, "--prompt-budget 400000000 with passes of 128 tokens needs ", "run", "-p", "a", MODEL,
                   "--prompt-budget", "400000000");
}

/* What does not fit into a pass is refused by name. */
static void a_guide_that_is_too_long(void **state)
{
    const char *file = prompt(KEY, 1000, QUESTION);
    (void)state;
    program_expect(2, "the guide has 70 tokens: it must have at least 1, and fewer than ubatch, 64", "run", "-f", file,
                   MODEL, "--budget", "100", "--ubatch", "64", "--guide", "70");
    program_expect(2, "chunk is 60: with a guide of 10 tokens it must be at most 54", "run", "-f", file, MODEL, "--budget",
                   "100", "--ubatch", "64", "--guide", "10", "--guide-chunk", "60");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_guide_finds_what_is_asked_for),
        cmocka_unit_test(a_guide_may_be_so_many_tokens_or_a_text),
        cmocka_unit_test(pinned_tokens_stay),
        cmocka_unit_test(a_prompt_has_room_of_its_own),
        cmocka_unit_test(a_guide_that_is_too_long),
    };
    return cmocka_run_group_tests(tests, start, end);
}
