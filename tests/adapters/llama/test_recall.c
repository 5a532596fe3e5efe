/*
 * test_recall.c - what a guide is for, on the real model: a number hidden in a long text is still there when 20 % of
 * the text is kept, since the text was read with the question in mind; and it is gone when it was read without.
 */
#include "fixture.h"

#include <stdio.h>
#include <string.h>

enum { TEXT = 1500, BUDGET = 300, UBATCH = 128, ANSWER = 8, MOST = 64 };

typedef struct key {
    const char *name, *number;
    uint32_t at; /* tokens of text before it */
} key;

static uint32_t tokenize(const char *text, llama_token *out)
{
    const struct llama_vocab *vocab = llama_model_get_vocab(fixture_model);
    int32_t n = llama_tokenize(vocab, text, (int32_t)strlen(text), out, MOST, false, false);
    assert_true(n > 0);
    return (uint32_t)n;
}

/* The text with the sentence in it, TEXT tokens. */
static void hide(const key *k, llama_token out[TEXT])
{
    char sentence[128];
    llama_token hidden[MOST];
    snprintf(sentence, sizeof sentence, "\nThe secret number of %s is %s. Remember it.\n", k->name, k->number);
    uint32_t n = tokenize(sentence, hidden);
    memcpy(out, fixture_token, k->at * sizeof *out);
    memcpy(out + k->at, hidden, n * sizeof *out);
    memcpy(out + k->at + n, fixture_token + k->at, (TEXT - k->at - n) * sizeof *out);
}

static void answer(h2okv_llama *h, char *out, size_t size)
{
    const struct llama_vocab *vocab = llama_model_get_vocab(fixture_model);
    size_t length = 0;
    for (int i = 0; i < ANSWER; i++) {
        const float *logits = llama_get_logits_ith(h2okv_llama_context(h), -1);
        llama_token best = 0;
        for (llama_token t = 1; t < fixture_n_vocab; t++) {
            best = logits[t] > logits[best] ? t : best;
        }
        int32_t n = llama_token_to_piece(vocab, best, out + length, (int32_t)(size - length - 1), 0, false);
        length += n > 0 ? (size_t)n : 0;
        assert_int_equal(h2okv_llama_decode(h, &best, 1), H2OKV_OK);
    }
    out[length] = '\0';
}

static bool found(const key *k, bool guided)
{
    static llama_token text[TEXT];
    llama_token question[MOST];
    char words[128], said[256];
    snprintf(words, sizeof words, "\nQuestion: What is the secret number of %s?\nAnswer: The secret number of %s is",
             k->name, k->name);
    hide(k, text);
    h2okv_options cache = fixture_options("h2o", BUDGET, BUDGET / 2);
    cache.sinks = 4;
    h2okv_llama *h = fixture_adapter(&cache, H2OKV_LANES_HEAD, UBATCH);
    h2okv_llama_guide guide;
    h2okv_llama_guide_init(&guide);
    guide.tokens = question;
    guide.n = tokenize(words, question);
    int status = guided ? h2okv_llama_decode_guided(h, text, TEXT, &guide) : h2okv_llama_decode(h, text, TEXT);
    assert_int_equal(status, H2OKV_OK);
    assert_int_equal(h2okv_cache_live(h2okv_llama_cache(h)), BUDGET);
    assert_int_equal(h2okv_llama_decode(h, question, guide.n), H2OKV_OK);
    answer(h, said, sizeof said);
    h2okv_llama_free(h);
    bool right = strstr(said, k->number) != NULL;
    print_message("%s at %u %s: \"%s\"%s\n", k->name, k->at, guided ? "guided" : "plain", said, right ? "" : " (wrong)");
    return right;
}

/* Of three keys one may be lost to a rounding that another machine makes otherwise. */
static void test_keys_are_found_with_a_guide_only(void **state)
{
    (void)state;
    static const key keys[] = {{"Delhi", "7415", 350}, {"Tunis", "5941", 600}, {"Oslo", "9036", 900}};
    uint32_t guided = 0, plain = 0;
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        guided += found(&keys[i], true);
        plain += found(&keys[i], false);
    }
    assert_true(guided >= 2);
    assert_int_equal(plain, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_keys_are_found_with_a_guide_only),
    };
    int failed = 0;
    const uint32_t modes[] = {H2OKV_ATTENTION_OBSERVE, H2OKV_ATTENTION_FUSED};
    for (size_t i = 0; i < 2; i++) {
        fixture_attention = modes[i];
        failed += cmocka_run_group_tests_name(i == 0 ? "observe" : "fused", tests, fixture_open, fixture_close);
    }
    return failed;
}
