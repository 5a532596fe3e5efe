/* test_faults_budget.c - faults that systems of this kind have shipped: chunks, budgets, positions, state. */
#include "support/check.h"
#include "support/rig.h"
#include "support/small.h"
#include "support/snapshot.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { UNIFORM = 8 };

/* 8 tokens of uniform causal attention, in chunks; no eviction. */
static h2okv_cache *uniform_in_chunks(uint32_t chunk, double decay)
{
    h2okv_options o = small_options(UNIFORM, 1, 0);
    o.decay = decay;
    h2okv_cache *c = small_create(&o);
    for (uint32_t first = 0; first < UNIFORM; first += chunk) {
        float rows[UNIFORM][UNIFORM] = { { 0 } };
        uint32_t n = first + chunk <= UNIFORM ? chunk : UNIFORM - first;
        for (uint32_t q = 0; q < n; q++) {
            for (uint32_t i = 0; i <= first + q; i++) {
                rows[q][i] = 1.0f / (float)(first + q + 1);
            }
        }
        h2okv_weights w = { 1, n, UNIFORM, &rows[0][0], 0, UNIFORM, NULL };
        small_admit(c, (int32_t)first, n);
        CHECK_OK(h2okv_cache_observe(c, 0, &w));
        CHECK(small_evict(c) == 0);
    }
    return c;
}

/* The kept set depended on the chunk size. */
static void test_fault_27_chunks_give_equal_scores(void **state)
{
    static const double expected[] = { 2.717857, 1.717857, 1.217857, .884524, .634524, .434524, .267857, .125 };
    static const uint32_t chunks[] = { 1, 3, 8 };
    (void)state;
    for (size_t i = 0; i < sizeof chunks / sizeof chunks[0]; i++) {
        h2okv_cache *c = uniform_in_chunks(chunks[i], 1.0), *faded = uniform_in_chunks(chunks[i], 0.9);
        check_context("chunk %u", chunks[i]);
        for (int32_t p = 0; p < UNIFORM; p++) {
            double by_hand = 0.0;
            CHECK(fabs(small_score(c, 0, p) - expected[p]) < 1e-6);
            for (int32_t q = p; q < UNIFORM; q++) {
                by_hand = by_hand * 0.9 + 1.0 / (q + 1);
            }
            CHECK(fabs(small_score(faded, 0, p) - by_hand) < 1e-6);
        }
        h2okv_cache_free(c);
        h2okv_cache_free(faded);
    }
}

/* One row of random causal attention; the same for a position however the pass is split. */
static void random_row(float *row, int32_t pos, uint64_t seed)
{
    rng r = { seed * 1000003u + (uint64_t)pos };
    for (int32_t i = 0; i <= pos; i++) {
        row[i] = rng_float(&r);
    }
}

enum { SPLIT = 24 };

/* SPLIT tokens in rounds of `chunk` before one plan. Cell = position, so columns are positions. */
static h2okv_cache *rounds_before_plan(uint32_t chunk, double decay, uint64_t seed)
{
    h2okv_options o = small_options(10, 4, SPLIT);
    o.decay = decay;
    o.grace = 1;
    h2okv_cache *c = small_create(&o);
    for (uint32_t first = 0; first < SPLIT; first += chunk) {
        float rows[SPLIT][SPLIT] = { { 0 } };
        uint32_t n = first + chunk <= SPLIT ? chunk : SPLIT - first;
        for (uint32_t q = 0; q < n; q++) {
            random_row(rows[q], (int32_t)(first + q), seed);
        }
        h2okv_weights w = { 1, n, SPLIT, &rows[0][0], 0, SPLIT, NULL };
        small_admit(c, (int32_t)first, n);
        CHECK_OK(h2okv_cache_observe(c, 0, &w));
    }
    CHECK(small_evict(c) == SPLIT - 10);
    return c;
}

/* A split inside a pass changes nothing, with eviction too. */
static void test_fault_27_split_inside_a_pass(void **state)
{
    static const uint32_t chunks[] = { 1, 3, 7, 8, 23 };
    (void)state;
    for (uint64_t seed = 1; seed <= 20; seed++) {
        double decay = seed % 2 ? 1.0 : 0.95;
        h2okv_cache *whole = rounds_before_plan(SPLIT, decay, seed);
        int32_t pos[10], split_pos[10];
        double score[10], split_score[10];
        h2okv_cache_kept(whole, 0, pos, score, NULL);
        for (size_t i = 0; i < sizeof chunks / sizeof chunks[0]; i++) {
            h2okv_cache *c = rounds_before_plan(chunks[i], decay, seed);
            h2okv_cache_stats stats;
            check_context("chunk %u seed %u", chunks[i], (unsigned)seed);
            CHECK(h2okv_cache_kept(c, 0, split_pos, split_score, NULL) == 10);
            CHECK(memcmp(pos, split_pos, sizeof pos) == 0);
            for (uint32_t k = 0; k < 10; k++) {
                CHECK(check_close(score[k], split_score[k]));
            }
            h2okv_cache_get_stats(c, &stats);
            CHECK(stats.passes == 1 && stats.peak_live == SPLIT);
            h2okv_cache_free(c);
        }
        h2okv_cache_free(whole);
    }
}

static uint32_t cells_in_use(const engine *e)
{
    uint32_t n = 0;
    for (uint32_t c = 0; c < e->cells; c++) {
        uint32_t lanes = 0;
        for (uint32_t l = 0; l < e->lanes; l++) {
            lanes += e->kv[l][c] != ENGINE_JUNK;
        }
        CHECK(lanes == 0 || lanes == e->lanes);
        n += lanes != 0;
    }
    return n;
}

/* It compressed once and then grew forever; it reported a capped length and stored everything. */
static void test_fault_29_30_engine_stays_within_budget(void **state)
{
    rig_options o = rig_defaults(29);
    (void)state;
    o.budget = 16;
    o.recent = 8;
    o.cells = 16 + 5;
    rig *r = rig_create(&o);
    rig_pass(r, 5);
    for (uint32_t step = 0; step < 3 * 16; step++) {
        rig_pass(r, step % 3 == 2 ? 5 : 1);
        CHECK(cells_in_use(&r->engine) <= 16);
        CHECK(cells_in_use(&r->engine) == h2okv_cache_live(r->cache));
    }
    CHECK(cells_in_use(&r->engine) == 16 && r->engine.peak <= 21);
    rig_free(r);
}

/* 0 was treated as window, or as none. Here each zero has one meaning or one error. */
static void test_fault_36_zeros_and_negatives(void **state)
{
    h2okv_options o = small_options(0, 0, 8);
    h2okv_error error;
    (void)state;
    CHECK_STATUS(h2okv_options_check(&o, &error), H2OKV_E_INVALID); /* recent 0 + heavy 0 */
    CHECK(strcmp(error.field, "budget") == 0);
    o.budget = (uint32_t)-2;
    CHECK_STATUS(h2okv_options_check(&o, &error), H2OKV_E_INVALID);
    CHECK(strcmp(error.field, "budget") == 0);
    o.budget = o.cells + 1;
    CHECK_STATUS(h2okv_options_check(&o, &error), H2OKV_E_INVALID);
    CHECK(strcmp(error.field, "budget") == 0);
    o.budget = 4;
    o.recent = (uint32_t)-2;
    CHECK_STATUS(h2okv_options_check(&o, &error), H2OKV_E_INVALID);
    CHECK(strcmp(error.field, "recent") == 0);
    o.recent = 4; /* heavy 0: a window */
    h2okv_cache *c = small_create(&o);
    small_admit(c, 0, 8);
    small_give(c, 0, (float[]){ 9, 9, 9, 9, 0, 0, 0, 0 });
    small_evict(c);
    CHECK(SMALL_HOLDS(c, 0, 4, 5, 6, 7));
    h2okv_cache_free(c);
    o.recent = 0; /* the newest and three heavy ones */
    c = small_create(&o);
    small_admit(c, 0, 8);
    small_give(c, 0, (float[]){ 9, 9, 9, 9, 0, 0, 0, 0 });
    small_evict(c);
    CHECK(SMALL_HOLDS(c, 0, 1, 2, 3, 7));
    h2okv_cache_free(c);
}

/* Half of the budget, rounded down. */
static void test_fault_36_recent_auto(void **state)
{
    (void)state;
    for (uint32_t budget = 1; budget <= 9; budget++) {
        h2okv_options o = small_options(budget, H2OKV_AUTO, 30);
        h2okv_cache *c = small_create(&o), *half;
        o.recent = budget / 2;
        half = small_create(&o);
        float mass[30];
        for (uint32_t i = 0; i < 30; i++) {
            mass[i] = (float)(30 - i);
        }
        small_admit(c, 0, 30);
        small_admit(half, 0, 30);
        small_give(c, 0, mass);
        small_give(half, 0, mass);
        small_evict(c);
        small_evict(half);
        snapshot s = snapshot_take(half, 1);
        CHECK(snapshot_same(&s, c, 1));
        snapshot_free(&s);
        h2okv_cache_free(c);
        h2okv_cache_free(half);
    }
}

/* The next position was taken from the number of kept tokens. */
static void test_fault_39_gaps_stay(void **state)
{
    h2okv_options o = small_options(6, 3, 4);
    h2okv_cache_stats stats;
    uint32_t cell;
    (void)state;
    h2okv_cache *c = small_create(&o);
    h2okv_lane_view view;
    small_admit(c, 0, 10);
    small_give(c, 0, (float[]){ 9, 9, 9, 1, 1, 1, 1, 0, 0, 0 });
    CHECK(small_evict(c) == 4);
    CHECK(SMALL_HOLDS(c, 0, 0, 1, 2, 7, 8, 9));
    h2okv_cache_get_stats(c, &stats);
    CHECK(stats.newest == 9 && stats.live == 6);
    CHECK_OK(h2okv_cache_lane(c, 0, &view));
    for (cell = 0; view.pos[cell] != -1; cell++) {
    }
    CHECK_STATUS(h2okv_cache_admit(c, &cell, (int32_t[]){ 6 }, 1), H2OKV_E_INVALID);
    CHECK_STATUS(h2okv_cache_admit(c, &cell, (int32_t[]){ 9 }, 1), H2OKV_E_INVALID);
    CHECK_OK(h2okv_cache_admit(c, &cell, (int32_t[]){ 10 }, 1));
    CHECK(SMALL_HOLDS(c, 0, 0, 1, 2, 7, 8, 9, 10));
    h2okv_cache_free(c);
}

enum { PROMPT_PASSES = 12 };

/* A snapshot after each pass. */
static void record(rig *r, uint64_t seed, snapshot trace[PROMPT_PASSES])
{
    r->options.seed = seed;
    rig_restart(r);
    for (uint32_t i = 0; i < PROMPT_PASSES; i++) {
        rig_pass(r, 1 + i % 4);
        trace[i] = snapshot_take(r->cache, r->options.lanes);
    }
}

static void check_same_trace(snapshot a[PROMPT_PASSES], snapshot b[PROMPT_PASSES])
{
    for (uint32_t i = 0; i < PROMPT_PASSES; i++) {
        CHECK(snapshot_equal(&a[i], &b[i]));
    }
}

/* 49: only the first sample was compressed. 50: state of one sequence leaked into the next. */
static void test_fault_49_50_clear_leaves_nothing(void **state)
{
    rig_options o = rig_defaults(49);
    snapshot t[4][PROMPT_PASSES];
    static const uint64_t seeds[4] = { 1, 1, 2, 1 };
    (void)state;
    o.grace = 2;
    o.decay = 0.98;
    rig *r = rig_create(&o);
    for (uint32_t i = 0; i < 4; i++) {
        h2okv_cache_clear(r->cache);
        record(r, seeds[i], t[i]);
    }
    check_same_trace(t[0], t[1]);
    check_same_trace(t[0], t[3]);
    CHECK(!snapshot_equal(&t[0][PROMPT_PASSES - 1], &t[2][PROMPT_PASSES - 1]));
    for (uint32_t i = 0; i < 4 * PROMPT_PASSES; i++) {
        snapshot_free(&t[i / PROMPT_PASSES][i % PROMPT_PASSES]);
    }
    rig_free(r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fault_27_chunks_give_equal_scores),
        cmocka_unit_test(test_fault_27_split_inside_a_pass),
        cmocka_unit_test(test_fault_29_30_engine_stays_within_budget),
        cmocka_unit_test(test_fault_36_zeros_and_negatives),
        cmocka_unit_test(test_fault_36_recent_auto),
        cmocka_unit_test(test_fault_39_gaps_stay),
        cmocka_unit_test(test_fault_49_50_clear_leaves_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
