/* test_faults_scores.c - faults that systems of this kind have shipped: masks, aggregation, precision. */
#include "support/check.h"
#include "support/rng.h"
#include "support/small.h"
#include "support/snapshot.h"

#include <math.h>
#include <string.h>

static int near(double a, double b, double tolerance)
{
    return fabs(a - b) <= tolerance;
}

/* The causal mask was right in the last window only. Uniform logits, 4 tokens: column sums of causal rows. */
static void test_fault_09_causal_column_sums(void **state)
{
    static const double sums[] = { 2.083333, 1.083333, .583333, .25 };
    h2okv_options o = small_options(4, 2, 0);
    float rows[4][4] = { { 0 } };
    (void)state;
    h2okv_cache *c = small_create(&o);
    for (uint32_t q = 0; q < 4; q++) {
        for (uint32_t i = 0; i <= q; i++) {
            rows[q][i] = 1.0f / (float)(q + 1);
        }
    }
    h2okv_weights w = { 1, 4, 4, &rows[0][0], 16, 4, NULL };
    small_admit(c, 0, 4);
    CHECK_OK(h2okv_cache_observe(c, 0, &w));
    for (int32_t p = 0; p < 4; p++) {
        CHECK(near(small_score(c, 0, p), sums[p], 1e-6));
    }
    h2okv_cache_free(c);
}

/* The sum was kept in the model's half type, which stops at 2048. */
static void test_fault_14_sum_does_not_stop(void **state)
{
    h2okv_options o = small_options(1, 1, 0);
    float one = 1.0f;
    h2okv_weights w = { 4096, 1, 1, &one, 0, 1, NULL }; /* 4096 heads, all the same row */
    (void)state;
    h2okv_cache *c = small_create(&o);
    small_admit(c, 0, 1);
    CHECK_OK(h2okv_cache_observe(c, 0, &w));
    CHECK(near(small_score(c, 0, 0), 4096.0, 0.0));
    h2okv_cache_free(c);
    o = small_options(2, 1, 1);
    c = small_create(&o);
    for (int32_t p = 0; p < 4096; p++) { /* and over passes */
        small_admit(c, p, 1);
        small_give(c, 0, (float[]){ 1, 0, 0 });
        small_evict(c);
    }
    CHECK(near(small_score(c, 0, 0), 4096.0, 0.0));
    h2okv_cache_free(c);
}

/* The pooled sum stalled: float has no room for a small weight beside a large sum. */
static void test_fault_15_sum_grows(void **state)
{
    h2okv_options o = small_options(2, 1, 0);
    float tenth = 0.1f;
    h2okv_weights w = { 10 * 1000 * 1000, 1, 1, &tenth, 0, 1, NULL };
    (void)state;
    h2okv_cache *c = small_create(&o);
    small_admit(c, 0, 1);
    small_give(c, 0, (float[]){ 2097152.0f });
    small_evict(c);
    small_admit(c, 1, 1);
    small_give(c, 0, (float[]){ .124f, 0 });
    CHECK(near(small_score(c, 0, 0), 2097152.124, 1e-7));
    h2okv_cache_clear(c);
    small_admit(c, 0, 1);
    CHECK_OK(h2okv_cache_observe(c, 0, &w));
    CHECK(near(small_score(c, 0, 0), 1000000.015, 1e-3));
    h2okv_cache_free(c);
}

/* A decayed float became subnormal and stuck: idle tokens stayed slow and tied at a wrong value. */
static void test_fault_16_idle_becomes_zero(void **state)
{
    h2okv_options o = small_options(4, 1, 1);
    (void)state;
    o.decay = 0.98;
    h2okv_cache *c = small_create(&o);
    small_admit(c, 0, 3);
    small_give(c, 0, (float[]){ 1, 1, 1 });
    small_evict(c);
    for (int32_t p = 3; p < 10003; p++) {
        double score;
        small_admit(c, p, 1);
        small_idle(c, 1);
        score = small_score(c, 0, 0);
        CHECK(p > 3000 ? !(score > 0.0 && score < 1e-30) : score >= 1e-30);
        small_evict(c);
    }
    /* All are 0, so the tie rule applies. */
    CHECK(SMALL_HOLDS(c, 0, 9999, 10000, 10001, 10002));
    for (int32_t p = 9999; p < 10003; p++) {
        CHECK(near(small_score(c, 0, p), 0.0, 0.0));
    }
    h2okv_cache_free(c);
}

/* A score that is not decayed is never cut off, however small. */
static void test_fault_16_no_decay_no_cut(void **state)
{
    h2okv_options o = small_options(2, 1, 1);
    (void)state;
    h2okv_cache *c = small_create(&o);
    small_admit(c, 0, 2);
    small_give(c, 0, (float[]){ 1e-36f, 0 });
    small_evict(c);
    small_admit(c, 2, 1);
    small_idle(c, 1);
    CHECK(small_score(c, 0, 0) > 0.0);
    small_evict(c);
    CHECK(SMALL_HOLDS(c, 0, 0, 2));
    h2okv_cache_free(c);
}

static void give_lane(h2okv_cache *c, uint32_t lane, float spoil, int expected)
{
    rng r = { lane };
    float mass[SMALL_CELLS];
    for (uint32_t i = 0; i < SMALL_CELLS; i++) {
        mass[i] = rng_float(&r);
    }
    mass[4] = spoil > 0.0f || spoil < 0.0f || spoil != spoil ? spoil : mass[4];
    CHECK_STATUS(h2okv_cache_observe_mass(c, lane, mass), expected);
}

/* One NaN row in a batch of four: an error for it, the other three as without it. */
static void test_fault_19_nan_in_one_lane(void **state)
{
    h2okv_options o = small_options(4, 2, 2);
    (void)state;
    o.lanes = 4;
    h2okv_cache *c = small_create(&o), *well = small_create(&o);
    const h2okv_plan *plan = NULL;
    small_admit(c, 0, 6);
    small_admit(well, 0, 6);
    for (uint32_t l = 0; l < 4; l++) {
        give_lane(well, l, 0.0f, H2OKV_OK);
        give_lane(c, l, l == 2 ? NAN : 0.0f, l == 2 ? H2OKV_E_NAN : H2OKV_OK);
    }
    CHECK_STATUS(h2okv_cache_plan(c, &plan), H2OKV_E_ORDER);
    CHECK(plan == NULL);
    for (int32_t p = 0; p < 6; p++) {
        CHECK(near(small_score(c, 2, p), 0.0, 0.0));
        CHECK(near(small_score(c, 1, p), small_score(well, 1, p), 0.0));
        CHECK(near(small_score(c, 3, p), small_score(well, 3, p), 0.0));
    }
    give_lane(c, 2, 0.0f, H2OKV_OK); /* may be told again */
    CHECK(small_evict(c) == small_evict(well));
    snapshot s = snapshot_take(well, 4);
    CHECK(snapshot_same(&s, c, 4));
    snapshot_free(&s);
    h2okv_cache_free(c);
    h2okv_cache_free(well);
}

/* Scores of query heads were indexed by KV head: lane of KV head k takes query heads k * group and on. */
static void test_fault_20_group_of_a_lane(void **state)
{
    static const double expected[2][4] = { { 1, 1, 0, 0 }, { 0, 0, 1, 1 } };
    float data[4][4][4] = { { { 0 } } }; /* [query head][query][cell]: head h looks at token h */
    h2okv_options o = small_options(4, 1, 0);
    (void)state;
    o.lanes = 2;
    h2okv_cache *c = small_create(&o);
    for (uint32_t h = 0; h < 4; h++) {
        data[h][3][h] = 1;
    }
    small_admit(c, 0, 4);
    for (uint32_t kv = 0; kv < 2; kv++) {
        h2okv_weights w = { 2, 4, 4, &data[2 * kv][0][0], 16, 4, NULL };
        CHECK_OK(h2okv_cache_observe(c, kv, &w));
        for (int32_t p = 0; p < 4; p++) {
            CHECK(near(small_score(c, kv, p), expected[kv][p], 0.0));
        }
    }
    h2okv_cache_free(c);
}

static void one_token(h2okv_cache *c, int32_t pos, rng *r)
{
    float mass[SMALL_CELLS];
    for (uint32_t i = 0; i < SMALL_CELLS; i++) {
        mass[i] = rng_float(r);
    }
    small_admit(c, pos, 1);
    small_give(c, 0, mass);
    small_evict(c);
}

/* Scores were summed over the batch: two sequences of 5 and 9 tokens, run together, must be as each alone. */
static void test_fault_22_sequences_are_apart(void **state)
{
    h2okv_options o = small_options(4, 2, 1);
    (void)state;
    h2okv_cache *a = small_create(&o), *b = small_create(&o), *alone = small_create(&o);
    rng ra = { 5 }, rb = { 9 }, r = { 5 };
    for (int32_t p = 0; p < 9; p++) {
        if (p < 5) {
            one_token(a, p, &ra);
        }
        one_token(b, p, &rb);
    }
    for (uint32_t which = 0; which < 2; which++) {
        snapshot s;
        h2okv_cache_clear(alone);
        r.state = which ? 9 : 5;
        for (int32_t p = 0; p < (which ? 9 : 5); p++) {
            one_token(alone, p, &r);
        }
        s = snapshot_take(alone, 1);
        CHECK(snapshot_same(&s, which ? b : a, 1));
        snapshot_free(&s);
    }
    h2okv_cache_free(a);
    h2okv_cache_free(b);
    h2okv_cache_free(alone);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fault_09_causal_column_sums),
        cmocka_unit_test(test_fault_14_sum_does_not_stop),
        cmocka_unit_test(test_fault_15_sum_grows),
        cmocka_unit_test(test_fault_16_idle_becomes_zero),
        cmocka_unit_test(test_fault_16_no_decay_no_cut),
        cmocka_unit_test(test_fault_19_nan_in_one_lane),
        cmocka_unit_test(test_fault_20_group_of_a_lane),
        cmocka_unit_test(test_fault_22_sequences_are_apart),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
