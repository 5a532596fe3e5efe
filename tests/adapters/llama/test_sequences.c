/*
 * test_sequences.c - several sequences in one context: each is what it would be alone, whatever the others do.
 */
#include "twins.h"

#include "adapter.h"
#include "support/rng.h"

#include <math.h>
#include <string.h>

enum { BUDGET = 40, RECENT = 12, UBATCH = 16, ROOM = 56 };

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

static h2okv_llama_options options_of(const h2okv_options *cache, uint32_t lanes)
{
    h2okv_llama_options o;
    h2okv_llama_options_init(&o);
    o.cache = cache;
    o.lanes = lanes;
    o.ubatch = UBATCH;
    o.room = ROOM;
    o.attention = attention;
    return o;
}

/* ---- Anything in any order ---- */

static uint32_t some_length(rng *r)
{
    uint32_t kind = rng_below(r, 8);
    return kind < 4 ? 1 : kind < 6 ? rng_range(r, 2, UBATCH) : kind == 6 ? UBATCH : rng_range(r, 1, 5 * UBATCH);
}

static void decode_some(twins *t, rng *r)
{
    twins_op op[TWINS_MOST] = {0};
    uint32_t who = rng_range(r, 1, (1u << t->n) - 1), alike = rng_below(r, 2) == 0 ? some_length(r) : 0;
    for (uint32_t s = 0; s < t->n; s++) {
        uint32_t n = alike > 0 ? alike : some_length(r);
        op[s] = (twins_op){TWINS_DECODE, (who >> s & 1) != 0 ? n : 0, rng_next(r)};
    }
    twins_decode(t, op);
}

static void do_something(twins *t, rng *r)
{
    uint32_t seq = rng_below(r, t->n);
    switch (rng_below(r, 13)) {
    case 0:
        (void)twins_do(t, seq, (twins_op){TWINS_TRIM, rng_range(r, 1, RECENT), 0});
        break;
    case 1:
        (void)twins_do(t, seq, (twins_op){TWINS_TRIM, rng_range(r, 1, 2 * BUDGET), 0});
        break;
    case 2:
        (void)twins_do(t, seq, (twins_op){TWINS_CLEAR, 0, 0});
        break;
    case 3:
        (void)twins_do(t, seq, (twins_op){TWINS_PIN, rng_range(r, 1, 6), 0}); /* now and then too many: refused */
        break;
    case 4:
        (void)twins_do(t, seq, (twins_op){TWINS_BUDGET, rng_range(r, 30, ROOM), 0});
        break;
    case 5:
        (void)twins_do(t, seq, (twins_op){TWINS_GUIDED, rng_range(r, 1, 3 * UBATCH), rng_next(r)});
        break;
    case 6:
        twins_copy(t, seq, rng_below(r, t->n));
        break;
    default:
        decode_some(t, r);
    }
}

static void check_any_order(uint32_t lanes, uint32_t n, double decay, uint64_t seed)
{
    static twins t;
    h2okv_options cache = synth_cache_options(BUDGET, RECENT);
    cache.decay = decay;
    cache.sinks = 2;
    h2okv_llama_options options = options_of(&cache, lanes);
    twins_open(&t, model, &options, n);
    rng r = {seed};
    for (uint32_t step = 0; step < 150; step++) {
        do_something(&t, &r);
        twins_check(&t);
    }
    print_message("%u sequences, lanes %u: logits off by %g, scores by %g\n", n, lanes, t.worst_logit, t.worst_score);
    twins_close(&t);
}

static void test_any_order_lanes_by_head(void **state)
{
    (void)state;
    check_any_order(H2OKV_LANES_HEAD, 2, 1.0, 1);
    check_any_order(H2OKV_LANES_HEAD, 5, 0.99, 2);
}

static void test_any_order_lanes_by_layer(void **state)
{
    (void)state;
    check_any_order(H2OKV_LANES_LAYER, 3, 0.99, 3);
}

static void test_any_order_one_lane(void **state)
{
    (void)state;
    check_any_order(H2OKV_LANES_ALL, 4, 1.0, 4);
}

/* ---- Calls ---- */

static h2okv_llama *make_threaded(const h2okv_options *cache, uint32_t sequences, int32_t threads)
{
    struct llama_context_params params = synth_params(0, 0);
    params.n_threads = params.n_threads_batch = threads;
    h2okv_llama_options o = options_of(cache, H2OKV_LANES_HEAD);
    o.sequences = sequences;
    o.room = 0;
    h2okv_llama *h = NULL;
    h2okv_error error = {0};
    if (h2okv_llama_create(&h, model, params, &o, &error) != H2OKV_OK) {
        fail_msg("create: %s", error.text);
    }
    return h;
}

static h2okv_llama *make(const h2okv_options *cache, uint32_t sequences)
{
    return make_threaded(cache, sequences, 1);
}

/* The threads of llama.cpp share out a batch's attention; nothing depends on how. */
static void test_threads(void **state)
{
    (void)state;
    enum { SEQS = 5, LANES = 6, CALLS = 3 }; /* few: ggml threads that spin crawl beside other programs */
    h2okv_options cache = synth_cache_options(BUDGET, RECENT);
    h2okv_llama *one = make_threaded(&cache, SEQS, 1), *two = make_threaded(&cache, SEQS, 2);
    llama_token text[CALLS + SEQS];
    synth_text(text, CALLS + SEQS, 1);
    for (uint32_t call = 0; call < CALLS; call++) {
        h2okv_llama_input input[SEQS];
        for (uint32_t s = 0; s < SEQS; s++) {
            input[s] = (h2okv_llama_input){.seq = s, .n = call == 0 ? 2 : 1, .tokens = text + call + s};
        }
        assert_int_equal(h2okv_llama_decode_batch(one, input, SEQS), H2OKV_OK);
        assert_int_equal(h2okv_llama_decode_batch(two, input, SEQS), H2OKV_OK);
    }
    for (uint32_t i = 0; i < SEQS * LANES; i++) {
        double score[2][BUDGET];
        assert_int_equal(h2okv_cache_kept(h2okv_llama_seq_cache(one, i / LANES), i % LANES, NULL, score[0], NULL),
                         CALLS + 1);
        (void)h2okv_cache_kept(h2okv_llama_seq_cache(two, i / LANES), i % LANES, NULL, score[1], NULL);
        assert_memory_equal(score[0], score[1], (CALLS + 1) * sizeof score[0][0]);
    }
    h2okv_llama_free(one);
    h2okv_llama_free(two);
}

typedef struct progress {
    uint32_t n, done[64], total, stop_after;
} progress;

static bool on_pass(void *user, uint32_t done, uint32_t total)
{
    progress *p = user;
    assert_true(p->n < 64);
    p->done[p->n++] = done;
    p->total = total;
    return p->n != p->stop_after;
}

/* What goes to llama.cpp together: neighbours with equally many tokens, up to ubatch tokens in all. */
static void test_what_goes_together(void **state)
{
    (void)state;
    const struct {
        uint32_t n[5]; /* tokens of each sequence */
        uint32_t passes, done[12];
    } cases[] = {
        {{1, 1, 1, 1, 1}, 1, {5}},
        {{1, 0, 1, 1, 0}, 2, {1, 3}},
        {{0, 0, 0, 0, 7}, 1, {7}},
        {{4, 4, 4, 4, 4}, 2, {16, 20}},
        {{8, 8, 8, 1, 1}, 3, {16, 24, 26}},
        {{1, 2, 1, 1, 1}, 3, {1, 3, 6}},
        {{16, 16, 16, 0, 0}, 3, {16, 32, 48}},
        {{17, 1, 1, 33, 17}, 8, {16, 18, 34, 50, 51, 67, 68, 69}}, /* 16 1 1 16 16, then 1 - - 16 1, then - - - 1 - */
    };
    h2okv_options cache = synth_cache_options(BUDGET, RECENT);
    llama_token text[64];
    synth_text(text, 64, 1);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        h2okv_llama *h = make(&cache, 5);
        progress p = {0};
        h2okv_llama_input input[5];
        uint32_t n = 0, total = 0;
        for (uint32_t s = 5; s-- > 0;) { /* the order of the inputs does not matter */
            if (cases[i].n[s] > 0) {
                input[n++] = (h2okv_llama_input){.seq = s, .n = cases[i].n[s], .tokens = text};
            }
            total += cases[i].n[s];
        }
        h2okv_llama_set_progress(h, on_pass, &p);
        assert_int_equal(h2okv_llama_decode_batch(h, input, n), H2OKV_OK);
        assert_int_equal(p.total, total);
        assert_int_equal(p.n, cases[i].passes);
        assert_memory_equal(p.done, cases[i].done, p.n * sizeof p.done[0]);
        h2okv_llama_free(h);
    }
}

static void test_stops_between_passes(void **state)
{
    (void)state;
    h2okv_options cache = synth_cache_options(BUDGET, RECENT);
    h2okv_llama *h = make(&cache, 3);
    llama_token text[64];
    synth_text(text, 64, 1);
    const h2okv_llama_input input[] = {
        {.seq = 0, .n = 40, .tokens = text}, {.seq = 1, .n = 1, .tokens = text}, {.seq = 2, .n = 40, .tokens = text}};
    progress p = {.stop_after = 2};
    h2okv_llama_set_progress(h, on_pass, &p);
    synth_assert_failed(h, h2okv_llama_decode_batch(h, input, 3), H2OKV_E_STOPPED, "progress", "after 17 of 81 tokens");
    assert_int_equal(h2okv_llama_seq_next_pos(h, 0), 16);
    assert_int_equal(h2okv_llama_seq_next_pos(h, 1), 1);
    assert_int_equal(h2okv_llama_seq_next_pos(h, 2), 0);
    h2okv_llama_free(h);
}

typedef struct rows {
    uint32_t n;
    float row[64][SYNTH_VOCAB];
} rows;

static void keep_row(void *user, uint32_t index, const float *logits)
{
    rows *r = user;
    assert_true(index == r->n && index < 64);
    memcpy(r->row[r->n++], logits, sizeof r->row[0]);
}

/* Every token's logits where they are wanted, as each sequence has them alone, and the last ones at the end. */
static void test_logits_of_every_token(void **state)
{
    (void)state;
    enum { SEQS = 3 };
    static rows got[SEQS], want[SEQS];
    const uint32_t n[SEQS] = {37, 5, 5};
    h2okv_options cache = synth_cache_options(BUDGET, RECENT);
    h2okv_llama *h = make(&cache, SEQS), *alone[SEQS];
    llama_token text[SEQS][64];
    h2okv_llama_input input[SEQS];
    memset(got, 0, sizeof got);
    memset(want, 0, sizeof want);
    for (uint32_t s = 0; s < SEQS; s++) {
        synth_text(text[s], n[s], 50 + s);
        alone[s] = make(&cache, 1);
        assert_int_equal(h2okv_llama_decode_each(alone[s], text[s], n[s], keep_row, &want[s]), H2OKV_OK);
        input[s] = (h2okv_llama_input){.seq = s, .n = n[s], .tokens = text[s]};
        input[s].on_logits = s != 1 ? keep_row : NULL;
        input[s].user = &got[s];
    }
    assert_int_equal(h2okv_llama_decode_batch(h, input, SEQS), H2OKV_OK);
    for (uint32_t s = 0; s < SEQS; s++) {
        assert_int_equal(got[s].n, s != 1 ? n[s] : 0);
        for (uint32_t i = 0; i < n[s] * SYNTH_VOCAB; i++) {
            uint32_t row = i / SYNTH_VOCAB, token = i % SYNTH_VOCAB;
            const float *last = h2okv_llama_logits(h, s), right = want[s].row[row][token];
            bool counts = token != SYNTH_NAN_TOKEN;
            assert_true(!counts || s == 1 || fabsf(got[s].row[row][token] - right) < 2e-2f);
            assert_true(!counts || row + 1 < n[s] || fabsf(last[token] - right) < 2e-2f);
        }
        h2okv_llama_free(alone[s]);
    }
    h2okv_llama_free(h);
}

typedef struct seen {
    uint32_t events[64], masses[64]; /* by lane */
} seen;

static void see_event(void *user, const h2okv_event *event)
{
    assert_true(event->lane < 64);
    ((seen *)user)->events[event->lane]++;
}

static void see_mass(void *user, uint32_t lane, const double *mass)
{
    assert_true(lane < 64 && mass != NULL);
    ((seen *)user)->masses[lane]++;
}

static void test_callbacks_count_lanes_over_all(void **state)
{
    (void)state;
    enum { LANES = 6 };
    seen s = {0};
    h2okv_options cache = synth_cache_options(BUDGET, RECENT);
    cache.on_event = see_event;
    cache.on_mass = see_mass;
    cache.event_user = cache.mass_user = &s;
    h2okv_llama *h = make(&cache, 3);
    llama_token text[64];
    synth_text(text, 64, 1);
    const h2okv_llama_input input[] = {{.seq = 0, .n = 42, .tokens = text}, {.seq = 2, .n = 45, .tokens = text}};
    assert_int_equal(h2okv_llama_decode_batch(h, input, 2), H2OKV_OK);
    for (uint32_t lane = 0; lane < 64; lane++) {
        uint32_t seq = lane / LANES;
        assert_int_equal(s.events[lane], seq == 0 ? 2 : seq == 2 ? 5 : 0);
        assert_int_equal(s.masses[lane], seq == 0 || seq == 2 ? 3 : 0);
    }
    h2okv_llama_free(h);
}

/* ---- Copies ---- */

static void decode_one(h2okv_llama *h, uint32_t seq, uint32_t n, uint64_t seed)
{
    llama_token text[256];
    synth_text(text, n, seed);
    assert_int_equal(h2okv_llama_decode_batch(h, &(h2okv_llama_input){.seq = seq, .n = n, .tokens = text}, 1),
                     H2OKV_OK);
}

static void assert_same_logits(const float *a, const float *b)
{
    assert_true(a != NULL && b != NULL && a != b);
    assert_memory_equal(a + 1, b + 1, (SYNTH_VOCAB - 1) * sizeof *a); /* the first is SYNTH_NAN_TOKEN's */
}

/* The copy has the logits that the next token is drawn from, and nobody loses any. */
static void test_a_copy_has_the_logits(void **state)
{
    (void)state;
    h2okv_options cache = synth_cache_options(BUDGET, RECENT);
    h2okv_llama *h = make(&cache, 4);
    llama_token text[64];
    float before[SYNTH_VOCAB];
    synth_text(text, 64, 1);
    const h2okv_llama_input input[] = {{.seq = 0, .n = 50, .tokens = text}, {.seq = 1, .n = 51, .tokens = text}};
    assert_int_equal(h2okv_llama_decode_batch(h, input, 2), H2OKV_OK);
    memcpy(before, h2okv_llama_logits(h, 1), sizeof before);
    assert_int_equal(h2okv_llama_seq_copy(h, 1, 3), H2OKV_OK);
    assert_int_equal(h2okv_llama_seq_copy(h, 1, 1), H2OKV_OK);
    assert_same_logits(h2okv_llama_logits(h, 3), before);
    assert_same_logits(h2okv_llama_logits(h, 1), before);
    assert_non_null(h2okv_llama_logits(h, 0));
    assert_int_equal(h2okv_llama_seq_copy(h, 2, 3), H2OKV_OK); /* of nothing */
    assert_null(h2okv_llama_logits(h, 3));
    assert_int_equal(h2okv_llama_seq_next_pos(h, 3), 0);
    decode_one(h, 3, 5, 7);
    h2okv_llama_free(h);
}

/* With every cell taken there is none for the token that makes llama.cpp copy, and it copies all the same. */
static void test_a_copy_of_full_cells(void **state)
{
    (void)state;
    enum { CELLS = 256 };
    h2okv_options cache = synth_cache_options(CELLS - UBATCH, RECENT);
    cache.policy = "full";
    h2okv_llama *h = make(&cache, 2);
    decode_one(h, 0, CELLS, 3);
    decode_one(h, 1, 100, 4);
    assert_int_equal(h2okv_llama_seq_copy(h, 0, 1), H2OKV_OK);
    for (uint32_t cell = 0; cell < CELLS; cell++) {
        ggml_fp16_t k[2][32], v[2][32];
        h2okv__read_kv(h, 0, 2, 1, cell, k[0], v[0]);
        h2okv__read_kv(h, 1, 2, 1, cell, k[1], v[1]);
        assert_memory_equal(k[0], k[1], sizeof k[0]);
        assert_memory_equal(v[0], v[1], sizeof v[0]);
    }
    assert_int_equal(h2okv_llama_seq_trim(h, 1, CELLS - 5, NULL), H2OKV_OK);
    decode_one(h, 1, 5, 5);
    assert_int_equal(h2okv_llama_seq_next_pos(h, 0), CELLS);
    h2okv_llama_free(h);
}

/* ---- Clear ---- */

static bool all_zero(const h2okv_llama *h, uint32_t seq)
{
    uint32_t sum = 0;
    for (uint32_t cell = 0; cell < 256; cell++) {
        for (uint32_t i = 0; i < 6; i++) {
            ggml_fp16_t row[64];
            h2okv__read_kv(h, seq, i / 2, i % 2, cell, row, row + 32);
            for (uint32_t d = 0; d < 64; d++) {
                sum |= row[d];
            }
        }
    }
    return sum == 0;
}

/* Nor does it leave numbers behind, in its own cells alone. */
static void test_clear_leaves_nothing(void **state)
{
    (void)state;
    h2okv_options cache = synth_cache_options(BUDGET, RECENT);
    h2okv_llama *h = make(&cache, 3);
    for (uint32_t s = 0; s < 3; s++) {
        assert_true(all_zero(h, s));
        decode_one(h, s, 60 + s, s);
    }
    assert_int_equal(h2okv_llama_seq_clear(h, 1), H2OKV_OK);
    assert_true(!all_zero(h, 0) && all_zero(h, 1) && !all_zero(h, 2));
    h2okv_llama_clear(h);
    assert_true(all_zero(h, 0) && !all_zero(h, 2));
    assert_int_equal(h2okv_llama_seq_next_pos(h, 0), 0);
    assert_int_equal(h2okv_llama_seq_next_pos(h, 2), 62);
    h2okv_llama_free(h);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_any_order_lanes_by_head),
        cmocka_unit_test(test_any_order_lanes_by_layer),
        cmocka_unit_test(test_any_order_one_lane),
        cmocka_unit_test(test_threads),
        cmocka_unit_test(test_what_goes_together),
        cmocka_unit_test(test_stops_between_passes),
        cmocka_unit_test(test_logits_of_every_token),
        cmocka_unit_test(test_callbacks_count_lanes_over_all),
        cmocka_unit_test(test_a_copy_has_the_logits),
        cmocka_unit_test(test_a_copy_of_full_cells),
        cmocka_unit_test(test_clear_leaves_nothing),
    };
    int failed = 0;
    const uint32_t modes[] = {H2OKV_ATTENTION_OBSERVE, H2OKV_ATTENTION_FUSED};
    for (size_t i = 0; i < 2; i++) {
        attention = modes[i];
        failed += cmocka_run_group_tests_name(i == 0 ? "observe" : "fused", tests, open_model, close_model);
    }
    return failed;
}
