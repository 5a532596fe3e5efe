/*
 * test_sequences_errors.c - several sequences in one context: what is refused, and passes that fail for one of them,
 * which must leave all of them as before.
 */
#include "twins.h"

#include "support/rng.h"

#include <math.h>
#include <string.h>

enum { BUDGET = 40, RECENT = 12, UBATCH = 16, N = 3, MOST_TOKENS = 64 };

static struct llama_model *model;
static uint32_t attention; /* enum h2okv_llama_attention of this round */

static int open_model(void **state)
{
    if (synth_open(state) != 0) {
        return -1;
    }
    model = synth_nan_model(0.5f);
    return 0;
}

static int close_model(void **state)
{
    llama_model_free(model);
    return synth_close(state);
}

static h2okv_options cache_options(void)
{
    return synth_cache_options(BUDGET, RECENT);
}

static h2okv_llama_options options_of(const h2okv_options *cache)
{
    h2okv_llama_options o;
    h2okv_llama_options_init(&o);
    o.cache = cache;
    o.ubatch = UBATCH;
    o.attention = attention;
    return o;
}

static h2okv_llama *make(uint32_t sequences)
{
    h2okv_options cache = cache_options();
    h2okv_llama_options o = options_of(&cache);
    o.sequences = sequences;
    h2okv_llama *h = NULL;
    h2okv_error error = {0};
    if (h2okv_llama_create(&h, model, synth_params(0, 0), &o, &error) != H2OKV_OK) {
        fail_msg("create: %s", error.text);
    }
    return h;
}

/* ---- Options ---- */

static void test_how_many_sequences(void **state)
{
    (void)state;
    h2okv_options cache = cache_options();
    h2okv_llama_options o = options_of(&cache);
    const struct {
        uint32_t sequences, budget;
        const char *part;
    } bad[] = {{257, BUDGET, "257: llama.cpp has at most 256"}, {256, 5000000, "256: of 5000016 cells each"}};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        o.sequences = bad[i].sequences;
        cache.budget = bad[i].budget;
        h2okv_llama *h = (h2okv_llama *)(uintptr_t)1;
        h2okv_error error = {0};
        assert_int_equal(h2okv_llama_create(&h, model, synth_params(0, 0), &o, &error), H2OKV_E_INVALID);
        assert_null(h);
        assert_string_equal(error.field, "sequences");
        assert_non_null(strstr(error.text, bad[i].part));
    }
}

/* Every sequence has the cells that one alone has, and the bytes are those of all. */
static void test_memory(void **state)
{
    (void)state;
    h2okv_llama *one = make(0), *many = make(20); /* more than ubatch */
    h2okv_llama_stats a, b;
    h2okv_llama_get_stats(one, &a);
    assert_int_equal(h2okv_llama_seq_get_stats(many, 19, &b), H2OKV_OK);
    assert_int_equal(b.cells, a.cells);
    assert_int_equal(b.lanes, a.lanes);
    assert_int_equal(b.kv_bytes, 20 * a.kv_bytes);
    assert_int_equal(b.kv_bytes_per_token, a.kv_bytes_per_token);
    assert_int_equal(llama_n_ubatch(h2okv_llama_context(one)), UBATCH);
    assert_int_equal(llama_n_ubatch(h2okv_llama_context(many)), 20);
    assert_int_equal(h2okv_llama_seq_clear(one, 1), H2OKV_E_INVALID); /* 0 means 1 */
    h2okv_llama_free(one);
    h2okv_llama_free(many);
}

/* ---- Arguments ---- */

static void test_no_such_sequence(void **state)
{
    (void)state;
    h2okv_llama *h = make(2);
    llama_token text[4];
    uint32_t lost;
    h2okv_llama_stats stats;
    h2okv_llama_guide guide;
    h2okv_llama_guide_init(&guide);
    synth_text(text, 4, 1);
    guide.tokens = text;
    guide.n = 4;
    const int status[] = {
        h2okv_llama_decode_batch(h, &(h2okv_llama_input){.seq = 2, .n = 4, .tokens = text}, 1),
        h2okv_llama_seq_decode_guided(h, 2, text, 4, &guide), h2okv_llama_seq_trim(h, 2, 0, &lost),
        h2okv_llama_seq_clear(h, 2), h2okv_llama_seq_pin(h, 2, 0, 1), h2okv_llama_seq_set_budget(h, 2, 30, 5),
        h2okv_llama_seq_copy(h, 2, 0), h2okv_llama_seq_copy(h, 0, UINT32_MAX),
    };
    for (size_t i = 0; i < sizeof status / sizeof status[0]; i++) {
        assert_int_equal(status[i], H2OKV_E_INVALID);
    }
    synth_assert_failed(h, h2okv_llama_seq_clear(h, 2), H2OKV_E_INVALID, "seq", "seq is 2: there are sequences 0 to 1");
    assert_int_equal(h2okv_llama_seq_get_stats(h, 2, &stats), H2OKV_E_INVALID);
    assert_int_equal(h2okv_llama_seq_next_pos(h, 2), -1);
    assert_null(h2okv_llama_seq_cache(h, 2));
    assert_null(h2okv_llama_logits(h, 2));
    h2okv_llama_free(h);
}

static void test_inputs_that_will_not_do(void **state)
{
    (void)state;
    h2okv_llama *h = make(3);
    llama_token text[4], wrong[4];
    synth_text(text, 4, 1);
    memcpy(wrong, text, sizeof wrong);
    wrong[3] = SYNTH_VOCAB;
    const struct {
        h2okv_llama_input last;
        const char *field, *part;
    } bad[] = {
        {{.seq = 0, .n = 2, .tokens = text}, "seq", "seq is 0 twice"},
        {{.seq = 3, .n = 2, .tokens = text}, "seq", "seq is 3"},
        {{.seq = 2, .n = 0, .tokens = text}, "n", "sequence 2: n is 0"},
        {{.seq = 2, .n = 4, .tokens = wrong}, "tokens", "sequence 2: tokens: token 3 is 97"},
        {{.seq = 2, .n = 4, .tokens = NULL}, "tokens", "sequence 2: tokens: there are none"},
        {{.seq = 2, .n = (uint32_t)INT32_MAX, .tokens = text}, "n", "sequence 2: n is 2147483647"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        const h2okv_llama_input input[] = {{.seq = 0, .n = 4, .tokens = text}, bad[i].last};
        synth_assert_failed(h, h2okv_llama_decode_batch(h, input, 2), H2OKV_E_INVALID, bad[i].field, bad[i].part);
        for (uint32_t s = 0; s < 3; s++) {
            assert_int_equal(h2okv_llama_seq_next_pos(h, s), 0);
        }
    }
    synth_assert_failed(h, h2okv_llama_decode_batch(h, NULL, 0), H2OKV_E_INVALID, "n_inputs", "n_inputs is 0");
    h2okv_llama_free(h);
}

/* ---- Passes that fail ---- */

/* One token each, or as many as a pass that all share may have; sometimes with a NaN in one of them. */
static int decode_all(twins *t, uint32_t n, uint64_t seed, uint32_t bad)
{
    llama_token text[N][MOST_TOKENS];
    h2okv_llama_input input[N];
    for (uint32_t s = 0; s < N; s++) {
        synth_text(text[s], n, seed + s);
        input[s] = (h2okv_llama_input){.seq = s, .n = n, .tokens = text[s]};
    }
    if (bad < N) {
        text[bad][n / 2] = SYNTH_NAN_TOKEN;
    }
    return h2okv_llama_decode_batch(t->h, input, N);
}

static void decode_right(twins *t, uint32_t n, uint64_t seed)
{
    twins_op op[TWINS_MOST];
    for (uint32_t s = 0; s < N; s++) {
        op[s] = (twins_op){TWINS_DECODE, n, seed + s};
    }
    twins_decode(t, op);
    twins_check(t);
}

static void open_twins(twins *t, const h2okv_options *cache)
{
    h2okv_llama_options o = options_of(cache);
    twins_open(t, model, &o, N);
}

static void test_nan_in_one(void **state)
{
    (void)state;
    static twins t;
    h2okv_options cache = cache_options();
    open_twins(&t, &cache);
    for (uint32_t i = 0; i < 60; i++) {
        uint32_t n = 1 + i % 5, bad = i % N;
        if (i % 2 == 1) {
            synth_assert_failed(t.h, decode_all(&t, n, 100 + i, bad), H2OKV_E_NAN, "weights",
                                bad == 0 ? "sequence 0: " : bad == 1 ? "sequence 1: " : "sequence 2: ");
            twins_check(&t);
        }
        decode_right(&t, n, 1000 + i * N);
    }
    twins_close(&t);
}

static uint32_t ranks_left; /* calls until a rank is NaN; 0: none will be */

static const double *rank_fails_once(const h2okv_lane_view *lane, double *scratch)
{
    bool fails = ranks_left > 0 && --ranks_left == 0;
    for (uint32_t i = 0; i < lane->cells; i++) {
        scratch[i] = fails ? (double)NAN : lane->score[i];
    }
    return scratch;
}

/* The rank of any lane of any of them: those before it must not have evicted. */
static void test_a_rank_that_fails_in_one(void **state)
{
    (void)state;
    static twins t;
    enum { LANES = 6 };
    const h2okv_policy policy = {
        .size = sizeof policy, .flags = H2OKV_POLICY_NEEDS_SCORES, .name = "moody", .rank = rank_fails_once,
    };
    h2okv_options cache = cache_options();
    cache.custom_policy = &policy;
    ranks_left = 0;
    open_twins(&t, &cache);
    decode_right(&t, UBATCH, 1);
    decode_right(&t, BUDGET, 9);
    for (uint32_t call = 1; call <= N * LANES; call++) {
        ranks_left = call;
        const char *names[] = {"sequence 0: ", "sequence 1: ", "sequence 2: "};
        synth_assert_failed(t.h, decode_all(&t, 3, call, N), H2OKV_E_NAN, "plan", names[(call - 1) / LANES]);
        twins_check(&t);
        decode_right(&t, 1 + call % 4, 1000 + call * N);
    }
    twins_close(&t);
}

static void test_aborted_passes(void **state)
{
    (void)state;
    static twins t;
    h2okv_options cache = cache_options();
    open_twins(&t, &cache);
    synth_aborter a = {0};
    llama_set_abort_callback(h2okv_llama_context(t.h), synth_abort_at, &a);
    decode_right(&t, 5, 1);
    uint32_t calls = a.calls, aborted = 0;
    for (uint32_t i = 0; i < 40; i++) {
        a = (synth_aborter){.at = 1 + (i * 7919) % calls};
        int status = decode_all(&t, 5, 100 + i, N);
        a = (synth_aborter){.at = 0};
        if (status == H2OKV_OK) { /* the last nodes of a piece of the graph cannot be aborted any more */
            for (uint32_t s = 0; s < N; s++) {
                assert_int_equal(h2okv_llama_seq_trim(t.h, s, h2okv_llama_next_pos(t.alone[s]), NULL), H2OKV_OK);
            }
            break; /* what the tokens' queries added stays */
        }
        synth_assert_failed(t.h, status, H2OKV_E_ENGINE, "decode", "failed to decode 5 tokens");
        aborted++;
        twins_check(&t);
        decode_right(&t, 5, 1000 + i * N);
    }
    assert_true(aborted > 5);
    twins_close(&t);
}

/* A pass that fails is not the whole call: what the others had before it counts, and what comes after is not done. */
static void test_passes_before_a_failure_count(void **state)
{
    (void)state;
    h2okv_llama *h = make(3);
    llama_token text[3][MOST_TOKENS];
    for (uint32_t s = 0; s < 3; s++) {
        synth_text(text[s], MOST_TOKENS, s + 1);
    }
    text[1][2 * UBATCH + 3] = SYNTH_NAN_TOKEN;
    const h2okv_llama_input input[] = {
        {.seq = 0, .n = UBATCH + 1, .tokens = text[0]},
        {.seq = 1, .n = 3 * UBATCH, .tokens = text[1]},
        {.seq = 2, .n = 4 * UBATCH, .tokens = text[2]},
    };
    synth_assert_failed(h, h2okv_llama_decode_batch(h, input, 3), H2OKV_E_NAN, "weights", "sequence 1: ");
    assert_int_equal(h2okv_llama_seq_next_pos(h, 0), UBATCH + 1);
    assert_int_equal(h2okv_llama_seq_next_pos(h, 1), 2 * UBATCH);
    assert_int_equal(h2okv_llama_seq_next_pos(h, 2), 2 * UBATCH); /* its turn would have been after sequence 1's */
    assert_non_null(h2okv_llama_logits(h, 0));
    assert_null(h2okv_llama_logits(h, 1));
    assert_null(h2okv_llama_logits(h, 2));
    h2okv_llama_free(h);
}

static void test_meddling_is_noticed(void **state)
{
    (void)state;
    for (uint32_t seq = 0; seq < 3; seq++) {
        h2okv_llama *h = make(3);
        llama_token text[MOST_TOKENS];
        synth_text(text, MOST_TOKENS, 1);
        h2okv_llama_input input[3];
        for (uint32_t s = 0; s < 3; s++) {
            input[s] = (h2okv_llama_input){.seq = s, .n = 30 + s, .tokens = text};
        }
        assert_int_equal(h2okv_llama_decode_batch(h, input, 3), H2OKV_OK);
        llama_memory_seq_rm(llama_get_memory(h2okv_llama_context(h)), (llama_seq_id)seq, 29, -1);
        input[0].n = input[1].n = input[2].n = 1;
        synth_assert_failed(h, h2okv_llama_decode_batch(h, input, 3), H2OKV_E_BROKEN, "memory", "past this handle");
        synth_assert_failed(h, h2okv_llama_decode_batch(h, input, 1), H2OKV_E_BROKEN, "handle", "free");
        h2okv_llama_free(h);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_how_many_sequences),
        cmocka_unit_test(test_memory),
        cmocka_unit_test(test_no_such_sequence),
        cmocka_unit_test(test_inputs_that_will_not_do),
        cmocka_unit_test(test_nan_in_one),
        cmocka_unit_test(test_a_rank_that_fails_in_one),
        cmocka_unit_test(test_aborted_passes),
        cmocka_unit_test(test_passes_before_a_failure_count),
        cmocka_unit_test(test_meddling_is_noticed),
    };
    int failed = 0;
    const uint32_t modes[] = {H2OKV_ATTENTION_OBSERVE, H2OKV_ATTENTION_FUSED};
    for (size_t i = 0; i < 2; i++) {
        attention = modes[i];
        failed += cmocka_run_group_tests_name(i == 0 ? "observe" : "fused", tests, open_model, close_model);
    }
    return failed;
}
