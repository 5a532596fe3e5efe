/*
 * test_sequences_model.c - several sequences in one context on the real model, each against the same text alone: what
 * every lane keeps after every call, and the logits.
 *
 * llama.cpp multiplies one row of numbers in another way than several on some processors. Where it does not, scores and
 * logits must be the same to the last bit. Where it does, layer 0, whose inputs are the same, must choose alike but for
 * near ties, and logits must stay close.
 */
#include "fixture.h"

#include <math.h>
#include <string.h>

enum { BUDGET = 192, RECENT = 64, UBATCH = 64, MOST = 4, KV_HEADS = 3, LANES = 90, CALLS = 50, SINKS = 4 };

typedef struct rig {
    uint32_t n;
    h2okv_llama *h, *alone[MOST];
    uint32_t start[MOST], done[MOST];
    uint32_t calls_alike, calls; /* sequences' parts of calls, and those with logits the same to the last bit */
    uint32_t near_ties;
    double worst; /* logits, as a share of the largest */
} rig;

static h2okv_llama *make(uint32_t sequences)
{
    h2okv_options cache = fixture_options("h2o", BUDGET, RECENT);
    cache.sinks = SINKS;
    h2okv_llama_options o;
    h2okv_llama_options_init(&o);
    o.cache = &cache;
    o.ubatch = UBATCH;
    o.attention = fixture_attention;
    o.sequences = sequences;
    h2okv_llama *h = NULL;
    h2okv_error error = {0};
    if (h2okv_llama_create(&h, fixture_model, fixture_params(), &o, &error) != H2OKV_OK) {
        fail_msg("create: %s", error.text);
    }
    return h;
}

static void check_logits(rig *r, uint32_t s)
{
    const float *a = h2okv_llama_logits(r->h, s), *b = h2okv_llama_logits(r->alone[s], 0);
    double size = 0.0, most = 0.0;
    assert_true(a != NULL && b != NULL);
    for (int i = 0; i < fixture_n_vocab; i++) {
        size = fmax(size, fabs((double)b[i]));
        most = fmax(most, fabs((double)a[i] - (double)b[i]));
    }
    r->calls++;
    r->calls_alike += memcmp(a, b, (size_t)fixture_n_vocab * sizeof *a) == 0;
    r->worst = fmax(r->worst, most / size);
    assert_true(most < 0.1 * size);
}

/* The positions that one of the two keeps and the other does not have scores as low as the lowest that could have gone. */
static void check_near_tie(rig *r, const int32_t *pos, const double *score, const int32_t *other, uint32_t n)
{
    double lowest = INFINITY;
    for (uint32_t i = 0; i < n - RECENT; i++) {
        lowest = pos[i] >= SINKS ? fmin(lowest, score[i]) : lowest;
    }
    for (uint32_t i = 0, k = 0; i < n; i++) {
        while (k < n && other[k] < pos[i]) {
            k++;
        }
        if (k == n || other[k] != pos[i]) {
            assert_true(score[i] <= lowest * (1.0 + 2e-3));
            r->near_ties++;
        }
    }
}

static void check_lane(rig *r, uint32_t s, uint32_t lane)
{
    int32_t pos[BUDGET], alone_pos[BUDGET];
    double score[BUDGET], alone_score[BUDGET];
    bool alike = r->calls_alike == r->calls;
    uint32_t n = h2okv_cache_kept(h2okv_llama_seq_cache(r->h, s), lane, pos, score, NULL);
    assert_true(n <= BUDGET);
    assert_int_equal(h2okv_cache_kept(h2okv_llama_cache(r->alone[s]), lane, alone_pos, alone_score, NULL), n);
    if (alike) {
        assert_memory_equal(pos, alone_pos, n * sizeof *pos);
        assert_memory_equal(score, alone_score, n * sizeof *score);
    } else if (lane < KV_HEADS && memcmp(pos, alone_pos, n * sizeof *pos) != 0) {
        check_near_tie(r, pos, score, alone_pos, n);
    }
}

static void decode(rig *r, const uint32_t n[MOST])
{
    h2okv_llama_input input[MOST];
    uint32_t inputs = 0;
    for (uint32_t s = 0; s < r->n; s++) {
        if (n[s] > 0) {
            const llama_token *text = fixture_token + r->start[s] + r->done[s];
            input[inputs++] = (h2okv_llama_input){.seq = s, .n = n[s], .tokens = text};
            assert_int_equal(h2okv_llama_decode(r->alone[s], text, n[s]), H2OKV_OK);
            r->done[s] += n[s];
        }
    }
    assert_int_equal(h2okv_llama_decode_batch(r->h, input, inputs), H2OKV_OK);
    for (uint32_t s = 0; s < r->n; s++) {
        if (n[s] > 0) {
            check_logits(r, s);
        }
        assert_int_equal(h2okv_llama_seq_next_pos(r->h, s), r->done[s]);
        for (uint32_t lane = 0; lane < LANES; lane++) {
            check_lane(r, s, lane);
        }
    }
}

/* Prompts of different lengths, then single tokens; now and then one pauses, or reads some more. */
static void check_run(uint32_t n)
{
    rig r = {.n = n, .h = make(n), .start = {0, 300, 700, 1100}};
    for (uint32_t s = 0; s < n; s++) {
        r.alone[s] = make(1);
    }
    decode(&r, (const uint32_t[MOST]){300, 5, 448, 77});
    for (uint32_t call = 0; call < CALLS; call++) {
        uint32_t each[MOST] = {1, 1, 1, 1};
        each[call % MOST] = call % 7 == 0 ? 0 : call % 11 == 5 ? 70 : 1;
        decode(&r, each);
    }
    print_message("%u sequences: logits the same to the last bit in %u of %u, worst %g; near ties %u\n", n,
                  r.calls_alike, r.calls, r.worst, r.near_ties);
    for (uint32_t s = 0; s < n; s++) {
        h2okv_llama_free(r.alone[s]);
    }
    h2okv_llama_free(r.h);
}

static void test_two(void **state)
{
    (void)state;
    check_run(2);
}

static void test_four(void **state)
{
    (void)state;
    check_run(4);
}

/* A fork in the middle of a text: original and copy go different ways, each as if it had been alone from the start. */
static void test_fork(void **state)
{
    (void)state;
    rig r = {.n = 3, .h = make(3)};
    for (uint32_t s = 0; s < 3; s++) {
        r.alone[s] = make(1);
    }
    decode(&r, (const uint32_t[MOST]){500, 0, 9});
    assert_int_equal(h2okv_llama_seq_copy(r.h, 0, 1), H2OKV_OK);
    assert_int_equal(h2okv_llama_decode(r.alone[1], fixture_token, 500), H2OKV_OK);
    r.done[1] = 500;
    r.start[1] = 800;
    for (uint32_t call = 0; call < 20; call++) {
        decode(&r, (const uint32_t[MOST]){1, 1, call % 2});
    }
    decode(&r, (const uint32_t[MOST]){100, 130, 0});
    for (uint32_t s = 0; s < 3; s++) {
        h2okv_llama_free(r.alone[s]);
    }
    h2okv_llama_free(r.h);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_two),
        cmocka_unit_test(test_four),
        cmocka_unit_test(test_fork),
    };
    int failed = 0;
    const uint32_t modes[] = {H2OKV_ATTENTION_OBSERVE, H2OKV_ATTENTION_FUSED};
    for (size_t i = 0; i < 2; i++) {
        fixture_attention = modes[i];
        failed += cmocka_run_group_tests_name(i == 0 ? "observe" : "fused", tests, fixture_open, fixture_close);
    }
    return failed;
}
