/*
 * test_failures.c - passes that fail half way (aborted, NaN, a policy's fault, no cell left), and a context used
 * behind the adapter's back. The handle must be as before the pass, or broken for good, never between.
 */
#include "plain.h"
#include "synth.h"

#include <math.h>
#include <string.h>

enum { BUDGET = 24, RECENT = 8, UBATCH = 8, N = 160 };

static struct llama_model *model;
static llama_token text[N];

static int open_model(void **state)
{
    if (synth_open(state) != 0) {
        return -1;
    }
    synth_text(text, N, 12);
    model = synth_nan_model(1.5f);
    return 0;
}

static int close_model(void **state)
{
    llama_model_free(model);
    return synth_close(state);
}

static h2okv_llama *make(void)
{
    h2okv_options cache = synth_cache_options(BUDGET, RECENT);
    return synth_adapter(model, &cache, H2OKV_LANES_HEAD, UBATCH);
}

/* ---- Passes that fail ---- */

/* Scores may differ in their last bits: a pass tried again may get other cells, and sums another order. */
static void assert_nearly_same_books(const h2okv_llama *a, const h2okv_llama *b)
{
    int32_t pos_a[BUDGET + UBATCH], pos_b[BUDGET + UBATCH];
    double score_a[BUDGET + UBATCH], score_b[BUDGET + UBATCH];
    for (uint32_t lane = 0; lane < 6; lane++) {
        uint32_t n = h2okv_cache_kept(h2okv_llama_cache(a), lane, pos_a, score_a, NULL);
        assert_int_equal(h2okv_cache_kept(h2okv_llama_cache(b), lane, pos_b, score_b, NULL), n);
        assert_memory_equal(pos_a, pos_b, n * sizeof *pos_a);
        for (uint32_t i = 0; i < n; i++) {
            if (fabs(score_a[i] - score_b[i]) > 1e-4 * fabs(score_b[i])) {
                fail_msg("lane %u: position %d has score %g instead of %g", lane, pos_a[i], score_a[i], score_b[i]);
            }
        }
    }
}

/* Every pass is first broken off somewhere, then made: the end must be as if nothing had happened. */
static void test_aborted_passes_leave_nothing(void **state)
{
    (void)state;
    h2okv_llama *h = make(), *straight = make();
    synth_aborter a = {0};
    llama_set_abort_callback(h2okv_llama_context(h), synth_abort_at, &a);
    assert_int_equal(h2okv_llama_decode(h, text, UBATCH), H2OKV_OK);
    assert_int_equal(h2okv_llama_decode(straight, text, UBATCH), H2OKV_OK);
    uint32_t calls = a.calls, aborted = 0;
    assert_true(calls > 20);
    for (uint32_t done = UBATCH, pass = 1; done < N; done += UBATCH, pass++) {
        a = (synth_aborter){.at = 1 + (pass * 7919) % calls};
        int status = h2okv_llama_decode(h, text + done, UBATCH);
        if (status != H2OKV_OK) { /* the last nodes of a piece of the graph cannot be aborted any more */
            synth_assert_failed(h, status, H2OKV_E_ENGINE, "decode", "failed to decode 8 tokens");
            aborted++;
            assert_int_equal(h2okv_llama_next_pos(h), done);
            synth_assert_books_match_engine(h);
            assert_nearly_same_books(h, straight);
            a = (synth_aborter){.at = 0};
            assert_int_equal(h2okv_llama_decode(h, text + done, UBATCH), H2OKV_OK);
        }
        assert_int_equal(h2okv_llama_decode(straight, text + done, UBATCH), H2OKV_OK);
        synth_assert_books_match_engine(h);
        assert_nearly_same_books(h, straight);
        assert_true(synth_logits_differ(h2okv_llama_context(h), h2okv_llama_context(straight)) < 1e-4);
    }
    assert_true(aborted > 12);
    h2okv_llama_free(h);
    h2okv_llama_free(straight);
}

/* An abort within a call of many passes: those before it count. */
static void test_abort_in_a_later_pass(void **state)
{
    (void)state;
    h2okv_llama *h = make();
    synth_aborter a = {0};
    llama_set_abort_callback(h2okv_llama_context(h), synth_abort_at, &a);
    assert_int_equal(h2okv_llama_decode(h, text, UBATCH), H2OKV_OK);
    a = (synth_aborter){.at = a.calls * 3 + a.calls / 2};
    assert_int_equal(h2okv_llama_decode(h, text + UBATCH, N - UBATCH), H2OKV_E_ENGINE);
    assert_int_equal(h2okv_llama_next_pos(h), 4 * UBATCH);
    synth_assert_books_match_engine(h);
    assert_int_equal(h2okv_llama_decode(h, text + 4 * UBATCH, N - 4 * UBATCH), H2OKV_OK);
    assert_int_equal(h2okv_llama_next_pos(h), N);
    h2okv_llama_free(h);
}

static bool logits_are_finite(h2okv_llama *h)
{
    const float *logits = llama_get_logits_ith(h2okv_llama_context(h), -1);
    for (uint32_t i = SYNTH_NAN_TOKEN + 1; i < SYNTH_VOCAB; i++) {
        if (!isfinite(logits[i])) {
            return false;
        }
    }
    return true;
}

/* A token whose embedding is NaN, within a pass of good ones: the pass does not count, and nothing of it stays
 * in the cells, where it would spoil later attention although it is masked (0 * NaN). */
static void test_nan_pass_leaves_nothing(void **state)
{
    (void)state;
    h2okv_llama *h = make(), *straight = make();
    llama_token bad[UBATCH];
    memcpy(bad, text, sizeof bad);
    bad[2] = SYNTH_NAN_TOKEN;
    for (uint32_t done = 0; done < 100; done++) {
        if (done % 9 == 1) {
            synth_assert_failed(h, h2okv_llama_decode(h, bad, UBATCH), H2OKV_E_NAN, "weights", "NaN");
            assert_int_equal(h2okv_llama_next_pos(h), done);
            synth_assert_books_match_engine(h);
            assert_nearly_same_books(h, straight);
        }
        assert_int_equal(h2okv_llama_decode(h, text + done, 1), H2OKV_OK);
        assert_int_equal(h2okv_llama_decode(straight, text + done, 1), H2OKV_OK);
        assert_true(logits_are_finite(h));
        assert_true(synth_logits_differ(h2okv_llama_context(h), h2okv_llama_context(straight)) < 1e-4);
    }
    h2okv_llama_free(h);
    h2okv_llama_free(straight);
}

static void test_a_model_full_of_nan(void **state)
{
    (void)state;
    struct llama_model *nan_model = synth_model(&(synth_shape){
        .layers = 2, .query_heads = 4, .kv_heads = 2, .k_dim = 32, .v_dim = 32, .seed = 5,
        .nan_tensor = "blk.1.attn_q.weight",
    });
    h2okv_options cache = synth_cache_options(BUDGET, RECENT);
    h2okv_llama *h = synth_adapter(nan_model, &cache, H2OKV_LANES_HEAD, UBATCH);
    for (int i = 0; i < 3; i++) {
        synth_assert_failed(h, h2okv_llama_decode(h, text, N), H2OKV_E_NAN, "weights", "NaN");
        assert_int_equal(h2okv_llama_next_pos(h), 0);
        synth_assert_books_match_engine(h);
        h2okv_llama_clear(h);
    }
    h2okv_llama_free(h);
    llama_model_free(nan_model);
}

static bool rank_is_nan;

static const double *rank_now_and_then(const h2okv_lane_view *lane, double *scratch)
{
    for (uint32_t i = 0; i < lane->cells; i++) {
        scratch[i] = rank_is_nan && lane->lane == 4 ? (double)NAN : lane->score[i];
    }
    return scratch;
}

/* A policy whose rank is NaN: the tokens were computed, but nothing could be evicted. */
static void test_a_policy_that_fails(void **state)
{
    (void)state;
    const h2okv_policy policy = {
        .size = sizeof policy, .flags = H2OKV_POLICY_NEEDS_SCORES, .name = "moody", .rank = rank_now_and_then,
    };
    h2okv_options cache = synth_cache_options(BUDGET, RECENT);
    cache.custom_policy = &policy;
    h2okv_llama *h = synth_adapter(model, &cache, H2OKV_LANES_HEAD, UBATCH), *straight = make();
    for (uint32_t done = 0; done < N; done += UBATCH) {
        rank_is_nan = done >= BUDGET;
        if (rank_is_nan) {
            synth_assert_failed(h, h2okv_llama_decode(h, text + done, UBATCH), H2OKV_E_NAN, "plan", "NaN");
            assert_int_equal(h2okv_llama_next_pos(h), done);
            synth_assert_books_match_engine(h);
            assert_nearly_same_books(h, straight);
        }
        rank_is_nan = false;
        assert_int_equal(h2okv_llama_decode(h, text + done, UBATCH), H2OKV_OK);
        assert_int_equal(h2okv_llama_decode(straight, text + done, UBATCH), H2OKV_OK);
        assert_nearly_same_books(h, straight);
    }
    h2okv_llama_free(h);
    h2okv_llama_free(straight);
}

/* Policy "full" evicts nothing: the text ends where the cells do, and a cut makes room again. */
static void test_a_full_cache(void **state)
{
    (void)state;
    enum { CELLS = 256 };
    h2okv_options cache = synth_cache_options(CELLS - UBATCH, RECENT);
    cache.policy = "full";
    h2okv_llama *h = synth_adapter(model, &cache, H2OKV_LANES_HEAD, UBATCH);
    llama_token much[CELLS + UBATCH];
    synth_text(much, CELLS + UBATCH, 3);
    synth_assert_failed(h, h2okv_llama_decode(h, much, CELLS + UBATCH), H2OKV_E_ENGINE, "decode", "at position 256");
    assert_int_equal(h2okv_llama_next_pos(h), CELLS);
    synth_assert_books_match_engine(h);
    assert_int_equal(h2okv_llama_decode(h, much, 1), H2OKV_E_ENGINE);
    assert_int_equal(h2okv_llama_trim(h, CELLS - 5, NULL), H2OKV_OK);
    assert_int_equal(h2okv_llama_decode(h, much, 5), H2OKV_OK);
    synth_assert_books_match_engine(h);
    h2okv_llama_free(h);
}

/* ---- Behind the adapter's back ---- */

static void meddle(struct llama_context *context, int how)
{
    llama_memory_t memory = llama_get_memory(context);
    switch (how) {
    case 0: llama_memory_seq_rm(memory, 0, 57, -1); break; /* the newest */
    case 1: llama_memory_seq_rm(memory, 0, 0, 40); break;  /* the oldest */
    case 2: llama_memory_clear(memory, false); break;
    case 3: plain_decode(context, text, 60, 1); break;
    case 4: llama_memory_seq_add(memory, 0, 0, -1, 5); break;
    default: llama_memory_seq_rm(memory, 0, 45, 50); break; /* some in the middle */
    }
}

/* Whatever llama.cpp says of a removal, the positions that it then holds are looked at. */
static void test_fault_54_meddling_is_noticed(void **state)
{
    (void)state;
    for (int how = 0; how < 6; how++) {
        for (int by_trim = 0; by_trim < 2; by_trim++) {
            h2okv_llama *h = make();
            assert_int_equal(h2okv_llama_decode(h, text, 60), H2OKV_OK);
            meddle(h2okv_llama_context(h), how);
            int status = by_trim && how < 5 ? h2okv_llama_trim(h, 58, NULL) : h2okv_llama_decode(h, text, UBATCH);
            if (status != H2OKV_E_BROKEN) {
                fail_msg("way %d: status %d, %s", how, status, h2okv_llama_last_error(h)->text);
            }
            for (int again = 0; again < 2; again++) {
                synth_assert_failed(h, h2okv_llama_decode(h, text, 1), H2OKV_E_BROKEN, "handle", "free");
                synth_assert_failed(h, h2okv_llama_trim(h, 0, NULL), H2OKV_E_BROKEN, "handle", "free");
                h2okv_llama_clear(h); /* does not mend it */
            }
            h2okv_llama_free(h);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_aborted_passes_leave_nothing),
        cmocka_unit_test(test_abort_in_a_later_pass),
        cmocka_unit_test(test_nan_pass_leaves_nothing),
        cmocka_unit_test(test_a_model_full_of_nan),
        cmocka_unit_test(test_a_policy_that_fails),
        cmocka_unit_test(test_a_full_cache),
        cmocka_unit_test(test_fault_54_meddling_is_noticed),
    };
    return cmocka_run_group_tests(tests, open_model, close_model);
}
