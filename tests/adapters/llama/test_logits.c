/*
 * test_logits.c - where nothing is approximated the adapter must equal plain llama.cpp bit for bit: a budget that
 * the text never reaches, and a pure window, which llama.cpp can do by itself.
 */
#include "fixture.h"
#include "plain.h"

#include <stdlib.h>
#include <string.h>

enum { UBATCH = 64 };

static llama_token argmax(struct llama_context *context)
{
    const float *logits = llama_get_logits_ith(context, -1);
    llama_token best = 0;
    for (int i = 1; i < fixture_n_vocab; i++) {
        best = logits[i] > logits[best] ? i : best;
    }
    return best;
}

/* Prompt in passes of UBATCH, then some greedy tokens, on both; `window` > 0: plain drops what is older. */
static void compare_with_plain(h2okv_llama *h, uint32_t prompt, uint32_t generate, uint32_t window)
{
    h2okv_llama_stats stats;
    h2okv_llama_get_stats(h, &stats);
    struct llama_context *ours = h2okv_llama_context(h), *plain = fixture_plain(stats.cells, UBATCH);
    llama_token next[UBATCH];
    for (uint32_t pos = 0, n; pos < prompt + generate; pos += n) {
        n = pos < prompt ? (prompt - pos < UBATCH ? prompt - pos : UBATCH) : 1;
        memcpy(next, fixture_token + pos, n * sizeof *next);
        if (pos >= prompt) {
            next[0] = argmax(ours);
        }
        assert_int_equal(h2okv_llama_decode(h, next, n), H2OKV_OK);
        plain_decode(plain, next, (int32_t)pos, n);
        fixture_assert_same_logits(ours, plain, "against plain llama.cpp", (int32_t)(pos + n - 1));
        if (window > 0 && pos + n > window) {
            assert_true(llama_memory_seq_rm(llama_get_memory(plain), 0, 0, (int32_t)(pos + n - window)));
        }
    }
    llama_free(plain);
}

static void test_budget_never_reached_equals_plain(void **state)
{
    (void)state;
    h2okv_options options = fixture_options("h2o", 448, 200);
    h2okv_llama *h = fixture_adapter(&options, H2OKV_LANES_HEAD, UBATCH);
    compare_with_plain(h, 400, 24, 0);
    h2okv_llama_stats stats;
    h2okv_llama_get_stats(h, &stats);
    assert_int_equal(stats.cache.evicted, 0);
    assert_int_equal(stats.cache.live, 424);
    h2okv_llama_free(h);
}

static void test_window_equals_plain_with_its_own_removal(void **state)
{
    (void)state;
    h2okv_options options = fixture_options("window", 192, 96);
    h2okv_llama *h = fixture_adapter(&options, H2OKV_LANES_HEAD, UBATCH);
    compare_with_plain(h, 500, 24, 192);
    h2okv_llama_stats stats;
    h2okv_llama_get_stats(h, &stats);
    assert_int_equal(stats.cache.evicted, 524 - 192);
    assert_int_equal(stats.cache.moves, 0);
    h2okv_llama_free(h);
}

/* H2O with nothing left to heavy hitters is a window too. */
static void test_h2o_without_heavy_hitters_is_the_window(void **state)
{
    (void)state;
    h2okv_options options = fixture_options("h2o", 192, 192);
    h2okv_llama *h = fixture_adapter(&options, H2OKV_LANES_LAYER, UBATCH);
    compare_with_plain(h, 300, 8, 192);
    h2okv_llama_free(h);
}

static void copy_logits(void *user, uint32_t index, const float *logits)
{
    memcpy((float *)user + (size_t)index * (size_t)fixture_n_vocab, logits, (size_t)fixture_n_vocab * sizeof(float));
}

/* However the caller cuts a text into calls (at pass borders), and whether it asks for all logits or the last. */
static void test_calls_do_not_matter(void **state)
{
    (void)state;
    enum { N = 320 };
    h2okv_options options = fixture_options("h2o", 192, 96);
    h2okv_llama *one = fixture_adapter(&options, H2OKV_LANES_HEAD, UBATCH);
    h2okv_llama *many = fixture_adapter(&options, H2OKV_LANES_HEAD, UBATCH);
    h2okv_llama *each = fixture_adapter(&options, H2OKV_LANES_HEAD, UBATCH);
    float *all = malloc((size_t)N * (size_t)fixture_n_vocab * sizeof *all);
    assert_non_null(all);
    assert_int_equal(h2okv_llama_decode(one, fixture_token, N), H2OKV_OK);
    assert_int_equal(h2okv_llama_decode(many, fixture_token, 128), H2OKV_OK);
    assert_int_equal(h2okv_llama_decode(many, fixture_token + 128, N - 128), H2OKV_OK);
    assert_int_equal(h2okv_llama_decode_each(each, fixture_token, N, copy_logits, all), H2OKV_OK);
    fixture_assert_same_logits(h2okv_llama_context(one), h2okv_llama_context(many), "two calls", N - 1);
    fixture_assert_same_logits(h2okv_llama_context(one), h2okv_llama_context(each), "all logits", N - 1);
    const float *last = llama_get_logits_ith(h2okv_llama_context(one), -1);
    assert_memory_equal(all + (size_t)(N - 1) * (size_t)fixture_n_vocab, last,
                        (size_t)fixture_n_vocab * sizeof(float));
    free(all);
    h2okv_llama_free(one);
    h2okv_llama_free(many);
    h2okv_llama_free(each);
}

/* Fault 49: a second text on the same handle must not see the first. */
static void test_fault_49_clear_forgets_everything(void **state)
{
    (void)state;
    h2okv_options options = fixture_options("h2o", 192, 96);
    h2okv_llama *used = fixture_adapter(&options, H2OKV_LANES_HEAD, UBATCH);
    h2okv_llama *fresh = fixture_adapter(&options, H2OKV_LANES_HEAD, UBATCH);
    assert_int_equal(h2okv_llama_decode(used, fixture_token + 700, 400), H2OKV_OK);
    h2okv_llama_clear(used);
    assert_int_equal(h2okv_llama_next_pos(used), 0);
    assert_int_equal(h2okv_llama_decode(used, fixture_token, 300), H2OKV_OK);
    assert_int_equal(h2okv_llama_decode(fresh, fixture_token, 300), H2OKV_OK);
    fixture_assert_same_logits(h2okv_llama_context(used), h2okv_llama_context(fresh), "after clear", 299);
    for (uint32_t lane = 0; lane < 90; lane++) {
        int32_t a[192], b[192];
        double x[192], y[192];
        assert_int_equal(h2okv_cache_kept(h2okv_llama_cache(used), lane, a, x, NULL), 192);
        assert_int_equal(h2okv_cache_kept(h2okv_llama_cache(fresh), lane, b, y, NULL), 192);
        assert_memory_equal(a, b, sizeof a);
        assert_memory_equal(x, y, sizeof x);
    }
    h2okv_llama_free(used);
    h2okv_llama_free(fresh);
}

/* A tail that was cut off and read again is the tail as it was, while nothing was evicted. */
static void test_trim_and_reread_equals(void **state)
{
    (void)state;
    h2okv_options options = fixture_options("h2o", 448, 200);
    h2okv_llama *h = fixture_adapter(&options, H2OKV_LANES_HEAD, UBATCH);
    h2okv_llama *straight = fixture_adapter(&options, H2OKV_LANES_HEAD, UBATCH);
    assert_int_equal(h2okv_llama_decode(h, fixture_token, 256), H2OKV_OK);
    assert_int_equal(h2okv_llama_decode(h, fixture_token + 900, 64), H2OKV_OK);
    assert_int_equal(h2okv_llama_trim(h, 256, NULL), H2OKV_OK);
    assert_int_equal(h2okv_llama_next_pos(h), 256);
    assert_int_equal(h2okv_llama_decode(h, fixture_token + 256, 64), H2OKV_OK);
    assert_int_equal(h2okv_llama_decode(straight, fixture_token, 320), H2OKV_OK);
    fixture_assert_same_logits(h2okv_llama_context(h), h2okv_llama_context(straight), "after trim", 319);
    h2okv_llama_free(h);
    h2okv_llama_free(straight);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_budget_never_reached_equals_plain),
        cmocka_unit_test(test_window_equals_plain_with_its_own_removal),
        cmocka_unit_test(test_h2o_without_heavy_hitters_is_the_window),
        cmocka_unit_test(test_calls_do_not_matter),
        cmocka_unit_test(test_fault_49_clear_forgets_everything),
        cmocka_unit_test(test_trim_and_reread_equals),
    };
    return cmocka_run_group_tests(tests, fixture_open, fixture_close);
}
