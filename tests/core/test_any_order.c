/*
 * test_any_order.c - calls in any order, good and bad. A few lines of model say which must succeed; what is refused
 * changes nothing, and after every call engine and cache agree on what lies where.
 *
 *   fresh tokens --observe each lane `parts` times--> plan or trim --> commit;  every other success makes plans stale
 */
#include "support/check.h"
#include "support/engine.h"
#include "support/rng.h"
#include "support/snapshot.h"

#include "h2okv/advanced.h"

#include <math.h>
#include <string.h>

enum { LANES = 3, CELLS = 20, BUDGET = 9, PARTS = 2, CALLS = 400 };

typedef struct model {
    h2okv_cache *cache;
    engine engine;
    rng rng;
    const h2okv_plan *plan; /* the newest, NULL when a call made it stale */
    int is_trim;
    uint32_t fresh, observed[LANES];
    int32_t next_pos;
    int needs_scores;
} model;

static int all_observed(const model *m)
{
    uint32_t missing = 0;
    for (uint32_t l = 0; l < LANES; l++) {
        missing += m->observed[l] < PARTS;
    }
    return m->fresh == 0 || missing == 0 || !m->needs_scores;
}

static void expect(model *m, const snapshot *before, int status, int expected)
{
    CHECK_STATUS(status, expected);
    CHECK(status == H2OKV_OK || snapshot_same(before, m->cache, LANES));
}

/* Cells and positions that are right, then one of them spoilt now and then. */
static void call_admit(model *m, const snapshot *before)
{
    uint32_t n = rng_range(&m->rng, 1, 6), cell[6], free_cells = CELLS - m->engine.used;
    int32_t pos[6];
    int expected = all_observed(m) ? n > free_cells ? H2OKV_E_FULL : H2OKV_OK : H2OKV_E_ORDER;
    engine try = m->engine;
    for (uint32_t i = 0; i < n; i++) {
        cell[i] = engine_find(&try, 1);
        pos[i] = m->next_pos + (int32_t)i;
        if (cell[i] != UINT32_MAX) {
            CHECK_RIGHT(engine_put(&try, &cell[i], &pos[i], 1));
        }
    }
    m->engine.order = try.order;
    if (rng_below(&m->rng, 4) == 0) {
        uint32_t i = rng_below(&m->rng, n);
        if (rng_below(&m->rng, 2)) {
            pos[i] = m->next_pos - 1 - (int32_t)rng_below(&m->rng, 3);
        } else {
            cell[i] = n > 1 ? cell[(i + 1) % n] : CELLS + rng_below(&m->rng, 3);
        }
        expected = expected == H2OKV_OK ? H2OKV_E_INVALID : expected;
    }
    expect(m, before, h2okv_cache_admit(m->cache, cell, pos, n), expected);
    if (expected == H2OKV_OK) {
        CHECK_RIGHT(engine_put(&m->engine, cell, pos, n));
        m->next_pos += (int32_t)n;
        m->fresh = n;
        memset(m->observed, 0, sizeof m->observed);
        m->plan = NULL;
    }
}

static void call_observe(model *m, const snapshot *before)
{
    uint32_t lane = rng_below(&m->rng, LANES + 1), spoilt = rng_below(&m->rng, 6) == 0;
    float row[CELLS];
    h2okv_weights w = { 1, m->fresh, CELLS, row, 0, 0, NULL };
    int expected = H2OKV_OK;
    for (uint32_t c = 0; c < CELLS; c++) {
        row[c] = m->engine.pos[c] != -1 && spoilt ? NAN : rng_float(&m->rng);
    }
    if (lane == LANES) {
        expected = H2OKV_E_INVALID;
    } else if (m->fresh == 0 || m->observed[lane] == PARTS) {
        expected = H2OKV_E_ORDER;
    } else if (spoilt) {
        expected = H2OKV_E_NAN;
    }
    expect(m, before, rng_below(&m->rng, 2) ? h2okv_cache_observe(m->cache, lane, &w)
                                            : h2okv_cache_observe_mass(m->cache, lane, row), expected);
    if (expected == H2OKV_OK) {
        m->observed[lane]++;
        m->plan = NULL;
    }
}

static void call_plan(model *m, const snapshot *before)
{
    const h2okv_plan *plan = NULL;
    int expected = all_observed(m) ? H2OKV_OK : H2OKV_E_ORDER;
    expect(m, before, h2okv_cache_plan(m->cache, &plan), expected);
    CHECK((plan != NULL) == (expected == H2OKV_OK) && snapshot_same(before, m->cache, LANES));
    if (plan) {
        CHECK(plan->n_freed == (m->engine.used > BUDGET ? m->engine.used - BUDGET : 0));
        m->plan = plan;
        m->is_trim = 0;
    }
}

static void call_trim(model *m, const snapshot *before)
{
    const h2okv_plan *plan = NULL;
    int32_t pos0 = m->next_pos - (int32_t)rng_below(&m->rng, 9) + 1;
    expect(m, before, h2okv_cache_trim(m->cache, pos0, &plan), pos0 < 0 ? H2OKV_E_INVALID : H2OKV_OK);
    CHECK((plan != NULL) == (pos0 >= 0) && snapshot_same(before, m->cache, LANES));
    if (plan) {
        m->plan = plan;
        m->is_trim = 1;
    }
}

static int32_t newest(const model *m)
{
    h2okv_cache_stats stats;
    h2okv_cache_get_stats(m->cache, &stats);
    return stats.newest;
}

static void call_commit(model *m, const snapshot *before)
{
    static const h2okv_plan forged;
    if (!m->plan) {
        expect(m, before, h2okv_cache_commit(m->cache, &forged), H2OKV_E_STALE);
        return;
    }
    CHECK_RIGHT(engine_apply(&m->engine, m->plan, m->is_trim));
    CHECK_OK(h2okv_cache_commit(m->cache, m->plan));
    CHECK_STATUS(h2okv_cache_commit(m->cache, m->plan), H2OKV_E_STALE);
    m->plan = NULL;
    m->fresh = 0;
    m->next_pos = newest(m) + 1;
}

static void call_clear(model *m, const snapshot *before)
{
    (void)before;
    if (rng_below(&m->rng, 12) == 0) {
        h2okv_cache_clear(m->cache);
        engine_init(&m->engine, LANES, CELLS, m->rng.state);
        m->plan = NULL;
        m->fresh = 0;
        m->next_pos = 0;
    }
}

static void run(uint64_t seed, const char *policy)
{
    static void (*const calls[])(model *, const snapshot *) = {
        call_admit, call_admit, call_observe, call_observe, call_observe, call_observe, call_observe,
        call_observe, call_plan, call_plan, call_commit, call_commit, call_trim, call_clear,
    };
    model m = { .rng = { seed }, .needs_scores = strcmp(policy, "h2o") == 0 };
    h2okv_options o;
    h2okv_options_init(&o);
    o.lanes = LANES;
    o.cells = CELLS;
    o.budget = BUDGET;
    o.parts = PARTS;
    o.grace = (uint32_t)(seed % 4);
    o.sinks = (uint32_t)(seed % 3);
    o.decay = seed % 2 ? 1.0 : 0.9;
    o.policy = policy;
    CHECK_OK(h2okv_cache_create(&m.cache, &o, NULL));
    engine_init(&m.engine, LANES, CELLS, seed);
    for (uint32_t i = 0; i < CALLS; i++) {
        uint32_t which = rng_below(&m.rng, sizeof calls / sizeof calls[0]);
        snapshot before = snapshot_take(m.cache, LANES);
        check_context("policy %s, seed %u, call %u is %u", policy, (unsigned)seed, i, which);
        calls[which](&m, &before);
        snapshot_free(&before);
        CHECK_RIGHT(engine_check(&m.engine, m.cache));
    }
    h2okv_cache_free(m.cache);
}

static void test_any_order(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 40; seed++) {
        run(seed, "h2o");
        run(seed, "window");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_any_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
