/*
 * test_window.c - models with sliding windows, as Gemma 3: full attention in every sixth layer. While all fits they
 * compute what plain llama.cpp computes; past the budget the layers with full attention are bounded, and the windows see
 * what they always saw; a budget below the window is refused, and so is what cannot be done with such a model.
 */
#include "plain.h"
#include "synth.h"

#include <math.h>
#include <string.h>

enum { LAYERS = 6, HEADS = 2, WINDOW = 24, BUDGET = 40, RECENT = 16, UBATCH = 8, N = 300 };

static struct llama_model *model;
static llama_token text[N];

static int open_model(void **state)
{
    static const synth_key keys[] = {{"attention.sliding_window", SYNTH_U32, WINDOW, {0}},
                                     {"attention.sliding_window_pattern", SYNTH_U32, 3, {0}}, {0}};
    if (synth_open(state) != 0) {
        return -1;
    }
    synth_text(text, N, 12);
    model = synth_model(&(synth_shape){
        .architecture = "gemma3", .layers = LAYERS, .query_heads = 4, .kv_heads = HEADS, .k_dim = 32, .v_dim = 32,
        .seed = 5, .keys = keys,
    });
    return 0;
}

static int close_model(void **state)
{
    llama_model_free(model);
    return synth_close(state);
}

static h2okv_llama *make(uint32_t attention, uint32_t budget, uint32_t sequences)
{
    h2okv_options cache = synth_cache_options(budget, RECENT);
    h2okv_llama_options options;
    h2okv_llama *h = NULL;
    h2okv_error error = {0};
    h2okv_llama_options_init(&options);
    options.cache = &cache;
    options.ubatch = UBATCH;
    options.attention = attention;
    options.sequences = sequences;
    options.room = budget > BUDGET ? budget : BUDGET + 8;
    if (h2okv_llama_create(&h, model, synth_params(64, UBATCH), &options, &error) != H2OKV_OK) {
        fail_msg("create: %s", error.text);
    }
    return h;
}

static const uint32_t modes[] = {H2OKV_ATTENTION_FUSED, H2OKV_ATTENTION_OBSERVE};

/* ---- What they compute -------------------------------------------------------------------------------- */

static void test_layers_with_full_attention_have_lanes(void **state)
{
    (void)state;
    h2okv_llama *h = make(H2OKV_ATTENTION_AUTO, BUDGET, 1);
    h2okv_llama_stats stats;
    h2okv_llama_get_stats(h, &stats);
    assert_int_equal(stats.layers, LAYERS / 3);
    assert_int_equal(stats.lanes, LAYERS / 3 * HEADS);
    assert_int_equal(stats.kv_bytes_per_token, LAYERS / 3 * HEADS * 2 * 32 * 2);
    assert_int_equal(stats.kv_bytes_window, (LAYERS - LAYERS / 3) * HEADS * 2 * 32 * 2 * (uint64_t)stats.cells);
    assert_non_null(stats.isa); /* fused */
    h2okv_llama_free(h);
}

static void test_as_plain_while_all_fits(void **state)
{
    (void)state;
    for (uint32_t m = 0; m < 2; m++) {
        h2okv_llama *h = make(modes[m], N + 8, 1);
        h2okv_llama_stats stats;
        h2okv_llama_get_stats(h, &stats);
        struct llama_context_params params = synth_params(stats.cells, UBATCH);
        params.swa_full = true;
        struct llama_context *plain = synth_plain(model, params);
        for (uint32_t at = 0; at < N; at += UBATCH) {
            uint32_t n = N - at < UBATCH ? N - at : UBATCH;
            assert_int_equal(h2okv_llama_decode(h, text + at, n), H2OKV_OK);
            plain_decode(plain, text + at, (int32_t)at, n);
            double differ = synth_logits_differ(h2okv_llama_context(h), plain);
            if (differ > (modes[m] == H2OKV_ATTENTION_OBSERVE ? 0 : 2e-3)) {
                fail_msg("mode %u, at %u: logits differ by %g", modes[m], at, differ);
            }
        }
        llama_free(plain);
        h2okv_llama_free(h);
    }
}

/* Of two budgets the one that holds all is right. The windows' layers alone make most of the difference to a model whose
 * windows see less; so with a model of windows and a policy that keeps what full attention likes, logits stay near. */
static void test_past_the_budget(void **state)
{
    (void)state;
    h2okv_llama *fused = make(H2OKV_ATTENTION_FUSED, BUDGET, 1), *observe = make(H2OKV_ATTENTION_OBSERVE, BUDGET, 1);
    for (uint32_t at = 0; at < N;) {
        uint32_t n = at % 3 == 0 ? 7 : 1;
        n = n < N - at ? n : N - at;
        assert_int_equal(h2okv_llama_decode(fused, text + at, n), H2OKV_OK);
        assert_int_equal(h2okv_llama_decode(observe, text + at, n), H2OKV_OK);
        at += n;
        assert_true(h2okv_cache_live(h2okv_llama_cache(fused)) <= BUDGET);
        assert_int_equal(h2okv_llama_next_pos(fused), at);
        double differ = synth_logits_differ(h2okv_llama_context(fused), h2okv_llama_context(observe));
        if (differ > 2e-3) {
            fail_msg("at %u: fused and observe differ by %g", at, differ);
        }
    }
    for (uint32_t lane = 0; lane < LAYERS / 3 * HEADS; lane++) {
        int32_t a[BUDGET], b[BUDGET];
        assert_int_equal(h2okv_cache_kept(h2okv_llama_cache(fused), lane, a, NULL, NULL), BUDGET);
        assert_int_equal(h2okv_cache_kept(h2okv_llama_cache(observe), lane, b, NULL, NULL), BUDGET);
        assert_memory_equal(a, b, sizeof a);
        assert_int_not_equal(a[0], N - BUDGET); /* no mere window */
    }
    h2okv_llama_free(fused);
    h2okv_llama_free(observe);
}

/* A pure window of the budget in the full layers: then the model is one of windows, and each lane holds the newest. The
 * same text from a later start gives nearly the same logits, as nothing before the windows is seen. */
static void test_windows_see_what_they_always_saw(void **state)
{
    (void)state;
    for (uint32_t m = 0; m < 2; m++) {
        h2okv_options cache = synth_cache_options(BUDGET, BUDGET);
        cache.policy = "window";
        h2okv_llama_options options;
        h2okv_llama *h = NULL;
        h2okv_error error = {0};
        h2okv_llama_options_init(&options);
        options.cache = &cache;
        options.ubatch = 1;
        options.attention = modes[m];
        assert_int_equal(h2okv_llama_create(&h, model, synth_params(64, 1), &options, &error), H2OKV_OK);
        struct llama_context_params params = synth_params(N + 8, 1);
        params.swa_full = true;
        struct llama_context *plain = synth_plain(model, params);
        for (uint32_t at = 0; at < N; at++) {
            assert_int_equal(h2okv_llama_decode(h, text + at, 1), H2OKV_OK);
            plain_decode(plain, text + at, (int32_t)at, 1);
            if (at >= BUDGET) { /* what the full layers may see, by hand */
                llama_memory_seq_rm(llama_get_memory(plain), 0, (int32_t)(at - BUDGET), (int32_t)(at - BUDGET + 1));
            }
            double differ = synth_logits_differ(h2okv_llama_context(h), plain);
            if (differ > 2e-3) {
                fail_msg("mode %u, at %u: logits differ by %g", modes[m], at, differ);
            }
        }
        llama_free(plain);
        h2okv_llama_free(h);
    }
}

static void test_several_sequences(void **state)
{
    (void)state;
    h2okv_llama *both = make(H2OKV_ATTENTION_FUSED, BUDGET, 2), *alone = make(H2OKV_ATTENTION_FUSED, BUDGET, 1);
    h2okv_llama_input input[2] = {{.seq = 0, .n = N / 2, .tokens = text}, {.seq = 1, .n = N / 2, .tokens = text + 9}};
    assert_int_equal(h2okv_llama_decode_batch(both, input, 2), H2OKV_OK);
    assert_int_equal(h2okv_llama_decode(alone, text + 9, N / 2), H2OKV_OK);
    for (uint32_t lane = 0; lane < LAYERS / 3 * HEADS; lane++) {
        int32_t a[BUDGET], b[BUDGET];
        assert_int_equal(h2okv_cache_kept(h2okv_llama_seq_cache(both, 1), lane, a, NULL, NULL), BUDGET);
        assert_int_equal(h2okv_cache_kept(h2okv_llama_cache(alone), lane, b, NULL, NULL), BUDGET);
        assert_memory_equal(a, b, sizeof a);
    }
    assert_int_equal(h2okv_llama_seq_copy(both, 1, 0), H2OKV_OK);
    llama_token token = text[3];
    h2okv_llama_input again[2] = {{.seq = 0, .n = 1, .tokens = &token}, {.seq = 1, .n = 1, .tokens = &token}};
    assert_int_equal(h2okv_llama_decode_batch(both, again, 2), H2OKV_OK);
    const float *x = h2okv_llama_logits(both, 0), *y = h2okv_llama_logits(both, 1);
    for (uint32_t i = 1; i < SYNTH_VOCAB; i++) {
        assert_true(fabsf(x[i] - y[i]) < 1e-3f);
    }
    h2okv_llama_free(both);
    h2okv_llama_free(alone);
}

static void test_guided(void **state)
{
    (void)state;
    h2okv_llama *h = make(H2OKV_ATTENTION_FUSED, BUDGET, 1);
    h2okv_llama_guide guide;
    h2okv_llama_guide_init(&guide);
    guide.n = 3;
    guide.tokens = text + 5;
    assert_int_equal(h2okv_llama_decode_guided(h, text, 200, &guide), H2OKV_OK);
    assert_int_equal(h2okv_llama_next_pos(h), 200);
    assert_int_equal(h2okv_cache_live(h2okv_llama_cache(h)), BUDGET);
    assert_int_equal(h2okv_llama_decode(h, text, 20), H2OKV_OK);
    h2okv_llama_free(h);
}

/* ---- What is refused ---------------------------------------------------------------------------------- */

static void test_a_budget_below_the_window(void **state)
{
    (void)state;
    h2okv_options cache = synth_cache_options(WINDOW - 1, 8);
    h2okv_llama_options options;
    h2okv_llama *h = (h2okv_llama *)&options;
    h2okv_error error = {0};
    h2okv_llama_options_init(&options);
    options.cache = &cache;
    assert_int_equal(h2okv_llama_create(&h, model, synth_params(64, 8), &options, &error), H2OKV_E_INVALID);
    assert_null(h);
    assert_string_equal(error.field, "budget");
    assert_non_null(strstr(error.text, "budget is 23: this model's sliding-window layers see 24 tokens"));
    h = make(H2OKV_ATTENTION_AUTO, BUDGET, 1);
    assert_int_equal(h2okv_llama_decode(h, text, 60), H2OKV_OK);
    synth_assert_failed(h, h2okv_llama_set_budget(h, WINDOW - 1, 8), H2OKV_E_INVALID, "budget", "see 24 tokens");
    assert_int_equal(h2okv_llama_set_budget(h, WINDOW, 8), H2OKV_OK);
    assert_int_equal(h2okv_llama_decode(h, text, 30), H2OKV_OK);
    assert_int_equal(h2okv_cache_live(h2okv_llama_cache(h)), WINDOW);
    h2okv_llama_free(h);
}

static void test_cuts_and_sessions(void **state)
{
    (void)state;
    h2okv_llama *h = make(H2OKV_ATTENTION_FUSED, BUDGET, 1);
    uint32_t lost = 0;
    assert_int_equal(h2okv_llama_decode(h, text, 20), H2OKV_OK);
    assert_int_equal(h2okv_llama_trim(h, 15, NULL), H2OKV_OK); /* the windows hold all of it */
    assert_int_equal(h2okv_llama_decode(h, text + 15, 100), H2OKV_OK);
    for (uint32_t i = 0; i < 60; i++) { /* one by one, so that the windows give up one by one */
        assert_int_equal(h2okv_llama_decode(h, text + 115 + i, 1), H2OKV_OK);
    }
    int32_t next = h2okv_llama_next_pos(h);
    int32_t oldest = llama_memory_seq_pos_min(llama_get_memory(h2okv_llama_context(h)), 0);
    int32_t exact = oldest + WINDOW - 1; /* the first at which the windows are whole */
    if (exact < next) {
        assert_int_equal(h2okv_llama_trim(h, exact > next - RECENT ? exact : next - RECENT, NULL), H2OKV_OK);
    }
    next = h2okv_llama_next_pos(h);
    synth_assert_failed(h, h2okv_llama_trim(h, next - RECENT - 8, NULL), H2OKV_E_UNSUPPORTED, "pos0", "would lose");
    assert_int_equal(h2okv_llama_trim(h, next - RECENT - 8, &lost), H2OKV_OK);
    assert_true(lost > 0);
    assert_int_equal(h2okv_llama_decode(h, text, 50), H2OKV_OK);
    synth_assert_failed(h, h2okv_llama_save(h, "/nowhere/session"), H2OKV_E_UNSUPPORTED, "model", "cannot be saved yet");
    synth_assert_failed(h, h2okv_llama_restore(h, "/nowhere/session"), H2OKV_E_UNSUPPORTED, "model", "cannot be saved");
    h2okv_llama_free(h);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_layers_with_full_attention_have_lanes),
        cmocka_unit_test(test_as_plain_while_all_fits),
        cmocka_unit_test(test_past_the_budget),
        cmocka_unit_test(test_windows_see_what_they_always_saw),
        cmocka_unit_test(test_several_sequences),
        cmocka_unit_test(test_guided),
        cmocka_unit_test(test_a_budget_below_the_window),
        cmocka_unit_test(test_cuts_and_sessions),
    };
    return cmocka_run_group_tests(tests, open_model, close_model);
}
