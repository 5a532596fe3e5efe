/*
 * test_guided.c - reading with a guide, on a tiny model in both modes: what is left behind, what is refused, and
 * passes that fail half way. That the choice itself is right: test_shapes.c.
 */
#include "synth.h"

#include <math.h>
#include <string.h>

enum { BUDGET = 48, RECENT = 16, UBATCH = 24, CHUNK = 10, GUIDE = 5, N = 200, LANES = 6, MOST = 160 };

static struct llama_model *model;
static llama_token text[N], question[UBATCH];
static uint32_t attention; /* enum h2okv_llama_attention of this round */

static int open_model(void **state)
{
    if (synth_open(state) != 0) {
        return -1;
    }
    synth_text(text, N, 31);
    synth_text(question, UBATCH, 32);
    model = synth_model(&(synth_shape){
        .layers = 3, .query_heads = 4, .kv_heads = 2, .k_dim = 32, .v_dim = 32, .seed = 9,
        .nan_tensor = "token_embd.weight",
    });
    return 0;
}

static int close_model(void **state)
{
    llama_model_free(model);
    return synth_close(state);
}

static h2okv_llama *make_with(const h2okv_options *cache, uint32_t room)
{
    h2okv_llama_options options;
    h2okv_llama_options_init(&options);
    options.cache = cache;
    options.ubatch = UBATCH;
    options.attention = attention;
    options.room = room;
    h2okv_llama *h = NULL;
    h2okv_error error = {0};
    if (h2okv_llama_create(&h, model, synth_params(0, 0), &options, &error) != H2OKV_OK) {
        fail_msg("create: %s", error.text);
    }
    return h;
}

static h2okv_llama *make(void)
{
    h2okv_options cache = synth_cache_options(BUDGET, RECENT);
    return make_with(&cache, 0);
}

static h2okv_llama_guide make_guide(void)
{
    h2okv_llama_guide guide;
    h2okv_llama_guide_init(&guide);
    guide.tokens = question;
    guide.n = GUIDE;
    guide.chunk = CHUNK;
    guide.recent = 6;
    return guide;
}

static double logits_differ(h2okv_llama *a, h2okv_llama *b)
{
    return synth_logits_differ(h2okv_llama_context(a), h2okv_llama_context(b));
}

/* Scores may differ in their last bits: a pass tried again may get other cells, and sums another order. */
static void assert_nearly_same_books(const h2okv_llama *a, const h2okv_llama *b)
{
    int32_t pos_a[MOST], pos_b[MOST];
    double score_a[MOST], score_b[MOST];
    for (uint32_t lane = 0; lane < LANES; lane++) {
        uint32_t n = h2okv_cache_kept(h2okv_llama_cache(a), lane, pos_a, score_a, NULL);
        assert_int_equal(h2okv_cache_kept(h2okv_llama_cache(b), lane, pos_b, score_b, NULL), n);
        assert_memory_equal(pos_a, pos_b, n * sizeof *pos_a);
        for (uint32_t i = 0; i < n; i++) {
            if (fabs(score_a[i] - score_b[i]) > 1e-3 * fabs(score_b[i]) + 1e-9) {
                fail_msg("lane %u: position %d has score %g instead of %g", lane, pos_a[i], score_a[i], score_b[i]);
            }
        }
    }
}

/* ---- What a guide leaves ---- */

/* While everything fits the guide decides nothing, so all is as if it had not been there. */
static void test_a_guide_leaves_no_token_behind(void **state)
{
    (void)state;
    enum { SOME = 43 };
    h2okv_options cache = synth_cache_options(MOST, 20);
    h2okv_llama *plain = make_with(&cache, 0), *guided = make_with(&cache, 0);
    h2okv_llama_guide guide = make_guide();
    assert_int_equal(h2okv_llama_decode(plain, text, SOME), H2OKV_OK);
    assert_int_equal(h2okv_llama_decode_guided(guided, text, SOME, &guide), H2OKV_OK);
    assert_int_equal(h2okv_llama_next_pos(guided), SOME);
    synth_assert_books_match_engine(guided);
    assert_true(logits_differ(plain, guided) < 1e-4); /* of the last token of text, not of the guide */
    guide.chunk = 7;
    assert_int_equal(h2okv_llama_decode(plain, text + SOME, SOME), H2OKV_OK);
    assert_int_equal(h2okv_llama_decode_guided(guided, text + SOME, SOME, &guide), H2OKV_OK);
    assert_true(logits_differ(plain, guided) < 1e-4);
    assert_int_equal(h2okv_llama_decode(plain, text + 2 * SOME, 1), H2OKV_OK);
    assert_int_equal(h2okv_llama_decode(guided, text + 2 * SOME, 1), H2OKV_OK);
    assert_true(logits_differ(plain, guided) < 1e-4);
    assert_int_equal(h2okv_cache_live(h2okv_llama_cache(guided)), 2 * SOME + 1);
    h2okv_llama_free(plain);
    h2okv_llama_free(guided);
}

/* The room that the guide takes is that of the pass; what it asks for decides. */
static void test_a_long_text_stays_within_its_cells(void **state)
{
    (void)state;
    h2okv_llama *h = make(), *other = make();
    h2okv_llama_guide guide = make_guide(), other_guide = make_guide();
    other_guide.tokens = question + GUIDE;
    assert_int_equal(h2okv_llama_decode_guided(h, text, N, &guide), H2OKV_OK);
    assert_int_equal(h2okv_llama_decode_guided(other, text, N, &other_guide), H2OKV_OK);
    h2okv_llama_stats stats;
    h2okv_llama_get_stats(h, &stats);
    assert_int_equal(h2okv_llama_next_pos(h), N);
    assert_int_equal(stats.cache.live, BUDGET);
    assert_int_equal(stats.cache.evicted, N - BUDGET);
    assert_int_equal(stats.cache.peak_live, BUDGET + CHUNK + GUIDE);
    synth_assert_books_match_engine(h);
    uint32_t differ = 0;
    for (uint32_t lane = 0; lane < LANES; lane++) {
        for (int32_t pos = 0; pos < N; pos++) {
            differ += synth_keeps(h, lane, pos) != synth_keeps(other, lane, pos);
            assert_true(pos < N - 6 || synth_keeps(h, lane, pos));
        }
    }
    assert_true(differ > 2 * LANES);
    h2okv_llama_free(h);
    h2okv_llama_free(other);
}

/* Both modes leave the queries of the text out; the scores that are left add up to the guide's, each query one a head. */
static void test_scores_are_the_guides_alone(void **state)
{
    (void)state;
    h2okv_options cache = synth_cache_options(MOST, 20);
    cache.decay = 0.5;
    h2okv_llama *h = make_with(&cache, 0);
    h2okv_llama_guide guide = make_guide();
    guide.spread = 0; /* or scores would be sums of roots */
    double score[MOST], sum = 0.0;
    assert_int_equal(h2okv_llama_decode_guided(h, text, 60, &guide), H2OKV_OK);
    uint32_t n = h2okv_cache_kept(h2okv_llama_cache(h), 3, NULL, score, NULL);
    for (uint32_t i = 0; i < n; i++) {
        sum += score[i];
    }
    assert_true(sum > 0.5 * 2 * GUIDE && sum < 2 * GUIDE); /* 2 heads a lane; the rest went to the guide's own tokens */
    h2okv_llama_free(h);
}

/* ---- Passes ---- */

typedef struct progress {
    uint32_t done[64], calls, stop_at;
} progress;

static bool on_pass(void *user, uint32_t done, uint32_t total)
{
    progress *p = user;
    assert_true(total <= N && p->calls < 64);
    p->done[p->calls++] = done;
    return done < p->stop_at;
}

/* Text tokens are counted. What fits beside the last chunk is read at once, in passes of ubatch. */
static void test_passes(void **state)
{
    (void)state;
    static const struct {
        uint32_t n, chunk, guide, done[8];
    } c[] = {
        {100, CHUNK, GUIDE, {24, 48, 58, 68, 78, 88, 98, 100}}, /* 48 fit */
        {9, CHUNK, GUIDE, {9}},
        {30, CHUNK, GUIDE, {20, 30}},
        {19, CHUNK, GUIDE, {10, 19}}, /* 9 without and 10 with the guide would be no fewer passes */
        {80, 0, 12, {24, 48, 60, 72, 80}}, /* by itself: what the guide leaves of ubatch */
        {80, H2OKV_AUTO, UBATCH - 16, {24, 48, 64, 80}},
        {50, 23, 1, {24, 47, 50}}, /* the 3 that fit are fewer than a chunk, so that it is read instead */
    };
    h2okv_llama *h = make();
    for (size_t i = 0; i < sizeof c / sizeof c[0]; i++) {
        progress p = {.stop_at = UINT32_MAX};
        h2okv_llama_guide guide = make_guide();
        guide.chunk = c[i].chunk;
        guide.n = c[i].guide;
        h2okv_llama_clear(h);
        h2okv_llama_set_progress(h, on_pass, &p);
        assert_int_equal(h2okv_llama_decode_guided(h, text, c[i].n, &guide), H2OKV_OK);
        for (uint32_t k = 0; k < p.calls; k++) {
            if (p.done[k] != c[i].done[k]) {
                fail_msg("case %zu: pass %u ends at %u instead of %u", i, k, p.done[k], c[i].done[k]);
            }
        }
        assert_int_equal(p.done[p.calls - 1], c[i].n);
    }
    h2okv_llama_free(h);
}

static void test_stops_between_passes_and_goes_on(void **state)
{
    (void)state;
    h2okv_llama *straight = make();
    h2okv_llama_guide guide = make_guide();
    assert_int_equal(h2okv_llama_decode_guided(straight, text, N, &guide), H2OKV_OK);
    assert_int_equal(synth_recent(straight), RECENT);
    for (uint32_t stop = 50; stop < N; stop += 60) {
        h2okv_llama *h = make();
        progress p = {.stop_at = stop};
        h2okv_llama_set_progress(h, on_pass, &p);
        synth_assert_failed(h, h2okv_llama_decode_guided(h, text, N, &guide), H2OKV_E_STOPPED, "progress", "of 200 tokens");
        uint32_t done = p.done[p.calls - 1];
        assert_true(done >= stop && done < stop + CHUNK);
        assert_int_equal(h2okv_llama_next_pos(h), done);
        assert_int_equal(synth_recent(h), RECENT);
        synth_assert_books_match_engine(h);
        h2okv_llama_set_progress(h, NULL, NULL);
        assert_int_equal(h2okv_llama_decode_guided(h, text + done, N - done, &guide), H2OKV_OK);
        assert_true(synth_same_books(h, straight));
        assert_true(logits_differ(h, straight) <= 0.0);
        h2okv_llama_free(h);
    }
    h2okv_llama_free(straight);
}

/* A policy that asks for no scores has no use for a guide. */
static void test_policies_without_scores_read_as_they_do(void **state)
{
    (void)state;
    const char *const policy[] = {"window", "random"};
    for (size_t i = 0; i < 2; i++) {
        h2okv_options cache = synth_cache_options(BUDGET, 6);
        cache.policy = policy[i];
        h2okv_llama *plain = make_with(&cache, 0), *guided = make_with(&cache, 0);
        h2okv_llama_guide guide = make_guide();
        assert_int_equal(h2okv_llama_decode(plain, text, N), H2OKV_OK);
        assert_int_equal(h2okv_llama_decode_guided(guided, text, N, &guide), H2OKV_OK);
        assert_true(synth_same_books(plain, guided));
        assert_true(logits_differ(plain, guided) <= 0.0);
        h2okv_llama_free(plain);
        h2okv_llama_free(guided);
    }
}

/* ---- Failures ---- */

/* Every pass is first broken off somewhere, then made: the end must be as if nothing had happened. */
static void test_aborted_passes_leave_nothing(void **state)
{
    (void)state;
    h2okv_llama *h = make(), *straight = make();
    h2okv_llama_guide guide = make_guide();
    synth_aborter a = {0};
    llama_set_abort_callback(h2okv_llama_context(h), synth_abort_at, &a);
    assert_int_equal(h2okv_llama_decode_guided(h, text, CHUNK, &guide), H2OKV_OK);
    assert_int_equal(h2okv_llama_decode_guided(straight, text, CHUNK, &guide), H2OKV_OK);
    uint32_t calls = a.calls, aborted = 0;
    for (uint32_t done = CHUNK, pass = 1; done < N; done += CHUNK, pass++) {
        a = (synth_aborter){.at = 1 + (pass * 7919) % calls};
        int status = h2okv_llama_decode_guided(h, text + done, CHUNK, &guide);
        if (status != H2OKV_OK) { /* the last nodes of a piece of the graph cannot be aborted any more */
            synth_assert_failed(h, status, H2OKV_E_ENGINE, "decode", "failed to decode 15 tokens");
            aborted++;
            assert_int_equal(h2okv_llama_next_pos(h), done);
            assert_int_equal(synth_recent(h), RECENT);
            synth_assert_books_match_engine(h);
            assert_nearly_same_books(h, straight);
            a = (synth_aborter){.at = 0};
            assert_int_equal(h2okv_llama_decode_guided(h, text + done, CHUNK, &guide), H2OKV_OK);
        }
        assert_int_equal(h2okv_llama_decode_guided(straight, text + done, CHUNK, &guide), H2OKV_OK);
        assert_nearly_same_books(h, straight);
        assert_true(logits_differ(h, straight) < 1e-3);
    }
    assert_true(aborted > 12);
    h2okv_llama_free(h);
    h2okv_llama_free(straight);
}

/* NaN in the guide, then in the text: the pass does not count, and the cells that either had are clean. */
static void test_nan_leaves_nothing(void **state)
{
    (void)state;
    h2okv_llama *h = make(), *straight = make();
    h2okv_llama_guide guide = make_guide(), spoiled = make_guide();
    llama_token bad_question[GUIDE], bad_text[CHUNK];
    memcpy(bad_question, question, sizeof bad_question);
    memcpy(bad_text, text + 80, sizeof bad_text);
    bad_question[2] = bad_text[4] = SYNTH_NAN_TOKEN;
    spoiled.tokens = bad_question;
    assert_int_equal(h2okv_llama_decode_guided(h, text, 80, &guide), H2OKV_OK);
    assert_int_equal(h2okv_llama_decode_guided(straight, text, 80, &guide), H2OKV_OK);
    for (int i = 0; i < 2; i++) {
        int status = i == 0 ? h2okv_llama_decode_guided(h, text + 80, CHUNK, &spoiled)
                            : h2okv_llama_decode_guided(h, bad_text, CHUNK, &guide);
        synth_assert_failed(h, status, H2OKV_E_NAN, "weights", "");
        assert_int_equal(h2okv_llama_next_pos(h), 80);
        assert_int_equal(synth_recent(h), RECENT);
        assert_nearly_same_books(h, straight);
        /* A pass too short to write over the cells of the one that failed: masked, but not harmless if NaN. */
        assert_int_equal(h2okv_llama_decode(h, text, 1), H2OKV_OK);
        assert_int_equal(h2okv_llama_trim(h, 80, NULL), H2OKV_OK);
        assert_int_equal(h2okv_llama_decode(straight, text, 1), H2OKV_OK);
        assert_int_equal(h2okv_llama_trim(straight, 80, NULL), H2OKV_OK);
        assert_nearly_same_books(h, straight);
    }
    assert_int_equal(h2okv_llama_decode_guided(h, text + 80, 80, &guide), H2OKV_OK);
    assert_int_equal(h2okv_llama_decode_guided(straight, text + 80, 80, &guide), H2OKV_OK);
    assert_nearly_same_books(h, straight);
    assert_true(logits_differ(h, straight) < 1e-3);
    h2okv_llama_free(h);
    h2okv_llama_free(straight);
}

static bool rank_fails;

static const double *rank_or_fail(const h2okv_lane_view *lane, double *scratch)
{
    memcpy(scratch, lane->score, lane->cells * sizeof *scratch);
    for (uint32_t i = 0; rank_fails && i < lane->cells; i++) {
        scratch[i] = (double)NAN;
    }
    return scratch;
}

static const h2okv_policy failing = {
    .size = sizeof(h2okv_policy), .flags = H2OKV_POLICY_NEEDS_SCORES, .name = "failing", .summary = "",
    .rank = rank_or_fail,
};

/* The eviction fails when the guide has already gone: the text goes too. */
static void test_a_rank_that_fails(void **state)
{
    (void)state;
    h2okv_options cache = synth_cache_options(BUDGET, RECENT);
    cache.custom_policy = &failing;
    h2okv_llama *h = make_with(&cache, MOST);
    h2okv_llama_guide guide = make_guide();
    assert_int_equal(h2okv_llama_decode_guided(h, text, 80, &guide), H2OKV_OK);
    int32_t before[MOST], after[MOST];
    uint32_t n = h2okv_cache_kept(h2okv_llama_cache(h), 4, before, NULL, NULL);
    rank_fails = true;
    synth_assert_failed(h, h2okv_llama_decode_guided(h, text + 80, CHUNK, &guide), H2OKV_E_NAN, "plan", "");
    assert_int_equal(h2okv_llama_next_pos(h), 80);
    assert_int_equal(synth_recent(h), RECENT);
    synth_assert_books_match_engine(h);
    assert_int_equal(h2okv_cache_kept(h2okv_llama_cache(h), 4, after, NULL, NULL), n);
    assert_memory_equal(before, after, n * sizeof *before);
    synth_assert_failed(h, h2okv_llama_set_budget(h, 20, 6), H2OKV_E_NAN, "plan", "");
    h2okv_llama_stats stats;
    h2okv_llama_get_stats(h, &stats);
    assert_true(stats.budget == BUDGET && stats.cache.live == BUDGET && synth_recent(h) == RECENT);
    rank_fails = false;
    assert_int_equal(h2okv_llama_decode_guided(h, text + 80, 80, &guide), H2OKV_OK);
    synth_assert_books_match_engine(h);
    h2okv_llama_free(h);
}

/* ---- Arguments ---- */

static void spoil(h2okv_llama_guide *guide, llama_token *tokens, int what)
{
    switch (what) {
    case 0: guide->size = 0; break;
    case 1: guide->size += 8; break;
    case 2: guide->n = 0; break;
    case 3: guide->tokens = NULL; break;
    case 4: guide->n = UBATCH; break;
    case 5: guide->n = UINT32_MAX; break;
    case 6: guide->chunk = UBATCH - GUIDE + 1; break;
    case 7: guide->chunk = UINT32_MAX - 1; break;
    case 8: tokens[4] = SYNTH_VOCAB; break;
    case 9: tokens[0] = -1; break;
    case 10: guide->recent = BUDGET + 1; break;
    default: guide->recent = UINT32_MAX - 1;
    }
}

static void test_guides_are_refused_by_name(void **state)
{
    (void)state;
    const char *const field[] = {"guide", "guide", "guide", "guide", "guide", "guide", "chunk", "chunk", "guide",
                                 "guide", "recent", "recent"};
    h2okv_llama *h = make();
    assert_int_equal(h2okv_llama_decode(h, text, 30), H2OKV_OK);
    for (int i = 0; i < (int)(sizeof field / sizeof field[0]); i++) {
        struct {
            h2okv_llama_guide guide;
            uint64_t newer; /* a field that this library does not have */
        } later = {make_guide(), 1};
        llama_token tokens[GUIDE];
        memcpy(tokens, question, sizeof tokens);
        later.guide.tokens = tokens;
        spoil(&later.guide, tokens, i);
        synth_assert_failed(h, h2okv_llama_decode_guided(h, text, 10, &later.guide), H2OKV_E_INVALID, field[i], "");
        assert_int_equal(h2okv_llama_next_pos(h), 30);
        assert_int_equal(synth_recent(h), RECENT);
        later.guide = make_guide();
        later.guide.size = (uint32_t)sizeof later;
        later.newer = 0; /* unused, so that it need not be known */
        assert_int_equal(h2okv_llama_decode_guided(h, text, 10, &later.guide), H2OKV_OK);
        assert_int_equal(h2okv_llama_trim(h, 30, NULL), H2OKV_OK);
    }
    h2okv_llama_guide guide = make_guide();
    synth_assert_failed(h, h2okv_llama_decode_guided(h, text, 10, NULL), H2OKV_E_INVALID, "guide", "missing");
    synth_assert_failed(h, h2okv_llama_decode_guided(h, text, 0, &guide), H2OKV_E_INVALID, "n", "n is 0");
    assert_int_equal(h2okv_llama_next_pos(h), 30);
    h2okv_llama_free(h);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_guide_leaves_no_token_behind),
        cmocka_unit_test(test_a_long_text_stays_within_its_cells),
        cmocka_unit_test(test_scores_are_the_guides_alone),
        cmocka_unit_test(test_passes),
        cmocka_unit_test(test_stops_between_passes_and_goes_on),
        cmocka_unit_test(test_policies_without_scores_read_as_they_do),
        cmocka_unit_test(test_aborted_passes_leave_nothing),
        cmocka_unit_test(test_nan_leaves_nothing),
        cmocka_unit_test(test_a_rank_that_fails),
        cmocka_unit_test(test_guides_are_refused_by_name),
    };
    int failed = 0;
    const uint32_t modes[] = {H2OKV_ATTENTION_OBSERVE, H2OKV_ATTENTION_FUSED};
    for (size_t i = 0; i < 2; i++) {
        attention = modes[i];
        failed += cmocka_run_group_tests_name(i == 0 ? "observe" : "fused", tests, open_model, close_model);
    }
    return failed;
}
