/*
 * test_session_model.c - on the real model: after a restore the next 16 greedy tokens and the tokens kept are those of the
 * sequence that was never saved; and files that are damaged anywhere in their megabytes.
 */
#include "fixture.h"
#include "session_rig.h"

#include "support/rng.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { BUDGET = 256, RECENT = 64, GREEDY = 16, GUIDE = 12, MOST_KEPT = 1024 };

static int open_all(void **state)
{
    session_open_folder();
    return fixture_open(state);
}

static int close_all(void **state)
{
    session_close_folder();
    return fixture_close(state);
}

static llama_token best(h2okv_llama *h)
{
    const float *logits = h2okv_llama_logits(h, 0);
    llama_token at = 0;
    assert_non_null(logits);
    for (llama_token i = 1; i < fixture_n_vocab; i++) {
        at = logits[i] > logits[at] ? i : at;
    }
    return at;
}

static void decode(h2okv_llama *h, const llama_token *tokens, uint32_t n)
{
    if (h2okv_llama_decode(h, tokens, n) != H2OKV_OK) {
        fail_msg("decode: %s", h2okv_llama_last_error(h)->text);
    }
}

static void assert_kept_same(const h2okv_llama *a, const h2okv_llama *b)
{
    h2okv_llama_stats stats;
    h2okv_llama_get_stats(a, &stats);
    for (uint32_t lane = 0; lane < stats.lanes; lane++) {
        int32_t pos_a[MOST_KEPT], pos_b[MOST_KEPT];
        uint32_t n = h2okv_cache_kept(h2okv_llama_cache(a), lane, pos_a, NULL, NULL);
        assert_int_equal(h2okv_cache_kept(h2okv_llama_cache(b), lane, pos_b, NULL, NULL), n);
        assert_memory_equal(pos_a, pos_b, n * sizeof *pos_a);
    }
}

static void pass_on(h2okv_llama *a, h2okv_llama *b)
{
    uint64_t before = session_digest(a, 0, true);
    assert_int_equal(h2okv_llama_save(a, session_path("a.session")), H2OKV_OK);
    if (h2okv_llama_restore(b, session_path("a.session")) != H2OKV_OK) {
        fail_msg("restore: %s", h2okv_llama_last_error(b)->text);
    }
    assert_true(session_digest(b, 0, true) == before);
}

/* `a` has just decoded; its next token is chosen, and the rest follows in both, to the last bit. */
static void check_greedy(h2okv_llama *a, h2okv_llama *b)
{
    llama_token token = best(a);
    pass_on(a, b);
    for (uint32_t i = 0; i < GREEDY; i++) {
        decode(a, &token, 1);
        decode(b, &token, 1);
        token = best(a);
        assert_int_equal(best(b), token);
        assert_kept_same(a, b);
        assert_true(session_digest(a, 0, true) == session_digest(b, 0, true));
    }
}

static void read_guided(h2okv_llama *h, uint32_t first, uint32_t n)
{
    h2okv_llama_guide guide;
    h2okv_llama_guide_init(&guide);
    guide.tokens = fixture_token + 40;
    guide.n = GUIDE;
    guide.chunk = 40;
    assert_int_equal(h2okv_llama_decode_guided(h, fixture_token + first, n, &guide), H2OKV_OK);
}

/* Plainly, with presets, and with a guide and pins. The second context has had another text, and other passes. */
static void check_mode(uint32_t attention)
{
    fixture_attention = attention;
    for (uint32_t how = 0; how < 3; how++) {
        h2okv_options cache;
        h2okv_options_init(&cache);
        cache.budget = BUDGET;
        cache.recent = RECENT;
        cache.policy = how == 1 ? "default" : "h2o";
        h2okv_llama *a = fixture_adapter(&cache, H2OKV_LANES_HEAD, 64);
        h2okv_llama *b = fixture_adapter(&cache, H2OKV_LANES_HEAD, 100);
        assert_int_equal(h2okv_llama_pin(a, 5, 6 + (int32_t)how), H2OKV_OK);
        decode(a, fixture_token, 350);
        decode(b, fixture_token + 700, 120);
        if (how == 2) {
            read_guided(a, 350, 150);
        }
        check_greedy(a, b);
        h2okv_llama_free(a);
        h2okv_llama_free(b);
    }
}

static void test_fused(void **state)
{
    (void)state;
    check_mode(H2OKV_ATTENTION_FUSED);
}

static void test_observe(void **state)
{
    (void)state;
    check_mode(H2OKV_ATTENTION_OBSERVE);
}

/* Largest difference of the logits, as a share of the largest. */
static double logits_differ(h2okv_llama *a, h2okv_llama *b)
{
    const float *x = h2okv_llama_logits(a, 0), *y = h2okv_llama_logits(b, 0);
    double most = 0.0, size = 0.0;
    for (int i = 0; i < fixture_n_vocab; i++) {
        most = fabs((double)x[i] - (double)y[i]) > most ? fabs((double)x[i] - (double)y[i]) : most;
        size = fabs((double)x[i]) > size ? fabs((double)x[i]) : size;
    }
    return most / size;
}

/* The modes differ by rounding, so that greedy tokens may part: here the text is given. */
static void test_from_one_mode_to_the_other(void **state)
{
    (void)state;
    h2okv_options cache = fixture_options("h2o", BUDGET, RECENT);
    fixture_attention = H2OKV_ATTENTION_FUSED;
    h2okv_llama *fused = fixture_adapter(&cache, H2OKV_LANES_HEAD, 64);
    fixture_attention = H2OKV_ATTENTION_OBSERVE;
    h2okv_llama *observe = fixture_adapter(&cache, H2OKV_LANES_HEAD, 64);
    decode(fused, fixture_token, 350);
    for (uint32_t i = 0; i < 2 * GREEDY; i++) {
        if (i % GREEDY == 0) {
            pass_on(i == 0 ? fused : observe, i == 0 ? observe : fused);
        }
        decode(fused, fixture_token + 350 + i, 1);
        decode(observe, fixture_token + 350 + i, 1);
        double gap = logits_differ(fused, observe);
        if (!(gap < 0.1)) {
            fail_msg("token %u: logits differ by %g of the largest", i, gap);
        }
    }
    h2okv_llama_free(fused);
    h2okv_llama_free(observe);
}

/* A bit at every so many bytes, and a cut there. */
static void test_damaged(void **state)
{
    (void)state;
    h2okv_options cache = fixture_options("h2o", BUDGET, RECENT);
    fixture_attention = H2OKV_ATTENTION_FUSED;
    h2okv_llama *h = fixture_adapter(&cache, H2OKV_LANES_HEAD, 64);
    rng random = {3};
    decode(h, fixture_token, 300);
    uint64_t before = session_digest(h, 0, true);
    assert_int_equal(h2okv_llama_save(h, session_path("a.session")), H2OKV_OK);
    session_bytes b = session_load(session_path("a.session"));
    for (uint32_t i = 0; i < 40; i++) {
        size_t at = (size_t)(rng_next(&random) % b.n);
        b.data[at] ^= (unsigned char)(1u << (i % 8));
        session_store(session_path("bad"), b.data, b.n);
        assert_int_equal(h2okv_llama_restore(h, session_path("bad")), H2OKV_E_FILE);
        b.data[at] ^= (unsigned char)(1u << (i % 8));
        session_store(session_path("bad"), b.data, at);
        assert_int_equal(h2okv_llama_restore(h, session_path("bad")), H2OKV_E_FILE);
    }
    assert_true(session_digest(h, 0, true) == before);
    free(b.data);
    h2okv_llama_free(h);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fused),
        cmocka_unit_test(test_observe),
        cmocka_unit_test(test_from_one_mode_to_the_other),
        cmocka_unit_test(test_damaged),
    };
    return cmocka_run_group_tests(tests, open_all, close_all);
}
