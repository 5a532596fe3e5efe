/*
 * test_eval_model.c - `h2okv eval` on the default model: one thread, 300 tokens. A cache that holds the whole text is the
 * full cache, so its numbers are known.
 */
#include "program.h"

#include <jansson.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#define SMALL "-m", H2OKV_TEST_MODEL, "-t", "1", "--json", "-f", prose
#define SAME SMALL, "--tokens", "300", "--attention", "observe"
#define SHORT SMALL, "--tokens", "128", "--policy", "random", "--budget", "16", "--seed", "5"

static const char *prose; /* a file of about 350 tokens */

static int start(void **state)
{
    static const char text[] =
        "The ferry left the island at six, before the fog had lifted. Anna stood at the rail with her collar up and "
        "counted the buoys as they came out of the grey, one after the other, each with its small bell. Behind her the "
        "crew were coiling rope and arguing about the price of herring. Nobody had asked her why she was going, and she "
        "was glad of it.\n\nOn the mainland the road ran straight along the dyke. A cart had broken its wheel there, and "
        "the driver sat on the grass beside it, eating bread and looking at the sky as if the wheel were somebody else's "
        "business. She stopped to help him. They found a plank, and two stones, and between them they raised the axle "
        "far enough to see that the pin had gone. He laughed at that. He had a second pin in his pocket, he said, and "
        "had carried it for eleven years without once needing it.\n\nThe town was smaller than she remembered. The "
        "baker's window had been painted blue, and the old school was a store for nets and barrels, but the clock on "
        "the hall still showed the wrong hour with great confidence. She asked a child for the way to the harbour "
        "master. The child pointed with a whole arm, up the hill, past the church, and then left, where the wall had "
        "fallen down in the winter storm and no one had yet found the money or the will to build it up again. At the "
        "top she turned round. From here one could see the whole coast, the sandbanks, the lighthouse and, very far "
        "out, the thin dark line of the island that she had left that morning.";
    (void)state;
    prose = program_file(text, strlen(text));
    return 0;
}

static int end(void **state)
{
    (void)state;
    program_clean();
    return 0;
}

static json_t *object_of(const program_result *r)
{
    json_error_t error;
    json_t *j = json_loads(r->out, 0, &error);
    if (!j) fail_msg("%s in: %s%s", error.text, r->out, r->err);
    return j;
}

static json_t *row_of(const json_t *j, size_t i)
{
    json_t *row = json_array_get(json_object_get(j, "rows"), i);
    if (!row) fail_msg("no row %zu", i);
    return row;
}

static double number(const json_t *row, const char *key)
{
    const json_t *value = json_object_get(row, key);
    if (!json_is_number(value)) fail_msg("no number \"%s\"", key);
    return json_number_value(value);
}

static const char *string(const json_t *row, const char *key)
{
    const char *text = json_string_value(json_object_get(row, key));
    if (!text) fail_msg("no text \"%s\"", key);
    return text;
}

static bool is_null(const json_t *row, const char *key)
{
    return json_is_null(json_object_get(row, key));
}

static void names_what_it_measured(const json_t *row)
{
    const json_t *options = json_object_get(row, "options");
    assert_int_equal(strlen(string(row, "model_sha256")), 64);
    assert_string_equal(string(row, "model"), H2OKV_TEST_MODEL);
    assert_true(strlen(string(row, "version")) > 0);
    assert_true(number(options, "threads") == 1 && number(options, "ubatch") > 0 && number(options, "tokens") == 300);
    assert_string_equal(string(options, "lanes"), "head");
}

/* ---- ppl and kl --------------------------------------------------------------------------------------- */

static void a_budget_for_all_is_the_full_cache(void **state)
{
    program_result r = program_run("eval", "kl", SAME, "--policy", "h2o", "--budget", "100%,50%");
    json_t *j = object_of(&r);
    const json_t *full = row_of(j, 0), *all = row_of(j, 1), *half = row_of(j, 2);
    (void)state;
    assert_int_equal(r.code, 0);
    assert_string_equal(r.err, "");
    assert_string_equal(string(full, "policy"), "full");
    assert_string_equal(string(all, "policy"), "h2o");
    assert_true(number(full, "ppl_ratio") == 1 && number(all, "ppl_ratio") == 1);
    assert_true(number(full, "ppl") > 2 && number(full, "ppl") < 1000);
    assert_true(number(all, "kl_mean") == 0 && number(all, "kl_p99") == 0 && number(all, "top1_agree") == 1);
    assert_true(number(all, "budget") == 300 && number(half, "budget") == 150 && number(half, "recent") == 75);
    assert_true(number(half, "kl_mean") > 0.0001 && number(half, "kl_mean") < 1);
    assert_true(number(half, "kl_p99") > number(half, "kl_mean"));
    assert_true(number(half, "top1_agree") > 0.5 && number(half, "top1_agree") < 1);
    assert_true(number(half, "n") == 150);
    assert_true(is_null(full, "recent") && is_null(half, "recall"));
    for (size_t i = 0; i < 3; i++) names_what_it_measured(row_of(j, i));
    json_decref(j);
    program_free(&r);
}

/* Row by row and pass by pass are two ways to the same numbers; and the same command prints the same. */
static void ppl_says_what_kl_says(void **state)
{
    program_result kl = program_run("eval", "kl", SHORT);
    program_result a = program_run("eval", "ppl", SHORT);
    program_result b = program_run("eval", "ppl", SHORT);
    json_t *j = object_of(&kl), *k = object_of(&a);
    (void)state;
    assert_int_equal(a.code, 0);
    assert_string_equal(a.out, b.out);
    for (size_t i = 0; i < 2; i++) {
        assert_true(number(row_of(j, i), "ppl") == number(row_of(k, i), "ppl"));
        assert_true(is_null(row_of(k, i), "kl_mean") && is_null(row_of(k, i), "top1_agree"));
    }
    assert_true(number(row_of(k, 1), "ppl_ratio") > 1.01); /* 16 tokens of 128 do cost */
    json_decref(j);
    json_decref(k);
    program_free(&kl);
    program_free(&a);
    program_free(&b);
}

static void texts_that_are_too_short(void **state)
{
    const char *text = program_file("Forty words are not in here.", 28);
    (void)state;
    program_expect(4, " tokens: at least 32", "eval", "ppl", "-m", H2OKV_TEST_MODEL, "-f", text);
    program_expect(4, " tokens: --tokens 64 is more", "eval", "ppl", "-m", H2OKV_TEST_MODEL, "-f", text, "--tokens",
                   "64");
    program_expect(2, "--tokens 32 is too few: the keys alone take ", "eval", "recall", "-m", H2OKV_TEST_MODEL, "-f", prose,
                   "--tokens", "32", "--keys", "6", "--questions", "6");
}

/* The second row's context is the first of fewer cells, which llama.cpp tells with -v. */
static void ctrl_c_keeps_whole_rows(void **state)
{
    program_setup setup = { .signal = SIGINT, .signal_after = "n_ctx                 = 256" };
    program_result r = program_run_with(setup, "eval", "ppl", SAME, "--policy", "h2o", "--budget", "50%", "-v");
    json_t *j = object_of(&r);
    (void)state;
    assert_int_equal(r.code, 130);
    assert_true(json_is_true(json_object_get(j, "stopped")));
    assert_int_equal(json_array_size(json_object_get(j, "rows")), 1);
    json_decref(j);
    program_free(&r);
}

static void ctrl_c_while_loading(void **state)
{
    program_setup setup = { .signal = SIGINT, .signal_after = "llama_model_loader: loaded meta data" };
    program_result r = program_run_with(setup, "eval", "ppl", SAME, "--policy", "h2o", "--budget", "50%", "-v");
    json_t *j = object_of(&r);
    (void)state;
    assert_int_equal(r.code, 130);
    assert_true(json_is_true(json_object_get(j, "stopped")));
    assert_int_equal(json_array_size(json_object_get(j, "rows")), 0);
    json_decref(j);
    program_free(&r);
}

/* ---- recall ------------------------------------------------------------------------------------------- */

static void keys_are_found(void **state)
{
    program_result r = program_run("eval", "recall", SMALL, "--tokens", "300", "--keys", "3", "--questions", "2",
                                   "--seed", "3", "--policy", "window", "--budget", "16,100%", "--depths", "10%,40%");
    json_t *j = object_of(&r);
    const json_t *full = row_of(j, 0), *least = row_of(j, 1), *all = row_of(j, 2);
    (void)state;
    assert_int_equal(r.code, 0);
    assert_true(number(full, "recall") == 1 && number(full, "recall_first") == 1 && number(full, "recall_later") == 1);
    assert_true(number(full, "n") == 3 && number(full, "budget") > 300);
    assert_true(number(least, "recall") == 0); /* none of the last 16 tokens is a key's */
    assert_true(number(all, "recall_first") == 1);
    assert_true(is_null(full, "ppl") && is_null(full, "kl_mean") && is_null(least, "ppl_ratio"));
    assert_int_equal(json_array_size(json_object_get(full, "by_depth")), 2);
    names_what_it_measured(least);
    json_decref(j);
    program_free(&r);
}

/* Both rows read the same documents; what a guide finds is why it is there. */
static void guided_rows(void **state)
{
    program_result r = program_run("eval", "recall", SMALL, "--tokens", "300", "--keys", "5", "--seed", "3", "--policy",
                                   "h2o,streaming", "--budget", "20%", "--guide", "off,auto");
    json_t *j = object_of(&r);
    const json_t *full = row_of(j, 0), *plain = row_of(j, 1), *guided = row_of(j, 2), *streaming = row_of(j, 3);
    (void)state;
    assert_int_equal(r.code, 0);
    assert_true(number(full, "recall") == 1);
    assert_true(number(guided, "recall") > number(plain, "recall"));
    assert_string_equal(json_string_value(json_object_get(full, "guide")), "off");
    assert_string_equal(json_string_value(json_object_get(plain, "guide")), "off");
    assert_string_equal(json_string_value(json_object_get(guided, "guide")), "auto");
    assert_string_equal(json_string_value(json_object_get(streaming, "guide")), "off"); /* it has no scores to guide */
    assert_true(number(guided, "decay") == 1 && number(guided, "pool") == 0);
    assert_int_equal(json_array_size(json_object_get(j, "rows")), 4);
    json_decref(j);
    program_free(&r);
}

/* With room for all of a document, and then the budget, the answer to a question behind the key is there. */
static void room_and_pins_reach_each_row(void **state)
{
    program_result r = program_run("eval", "recall", SMALL, "--tokens", "200", "--keys", "2", "--policy", "h2o",
                                   "--budget", "64", "--guide", "off", "--prompt-budget", "200", "--pin", "3:9", "--pool",
                                   "1", "--decay", "0.99");
    json_t *j = object_of(&r);
    const json_t *row = row_of(j, 1);
    (void)state;
    assert_int_equal(r.code, 0);
    assert_true(number(row, "prompt_budget") == 200 && number(row, "pool") == 1 && number(row, "decay") == 0.99);
    assert_string_equal(json_string_value(json_object_get(json_object_get(row, "options"), "pin")), "3:9");
    json_decref(j);
    program_free(&r);
    program_expect(2, "--pin 0:40: pinned tokens are 40", "eval", "recall", SMALL, "--tokens", "200", "--policy", "h2o",
                   "--budget", "64", "--pin", "0:40");
    program_expect(2, "--prompt-budget 50 is less than --budget 64", "eval", "recall", SMALL, "--tokens", "200", "--policy",
                   "h2o", "--budget", "64", "--prompt-budget", "50");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_budget_for_all_is_the_full_cache),
        cmocka_unit_test(ppl_says_what_kl_says),
        cmocka_unit_test(texts_that_are_too_short),
        cmocka_unit_test(ctrl_c_keeps_whole_rows),
        cmocka_unit_test(ctrl_c_while_loading),
        cmocka_unit_test(keys_are_found),
        cmocka_unit_test(guided_rows),
        cmocka_unit_test(room_and_pins_reach_each_row),
    };
    return cmocka_run_group_tests(tests, start, end);
}
