/*
 * test_mixed.c - pins, budgets, probes, pooling and trims near and far, in any order, against the oracle: each call that
 * must be refused is, the others do the same to both.
 */
#include "support/check.h"
#include "support/rig.h"
#include "support/small.h"
#include "support/snapshot.h"

#include <math.h>
#include <string.h>

enum { CELLS = 60, STEPS = 36, PASS_MOST = 8 };

static uint32_t always_kept(const rig *r, uint32_t recent)
{
    uint32_t n = 0;
    for (uint32_t pos = 0; pos < ORACLE_MAX_PINNED; pos++) {
        n += pos < r->options.sinks || r->oracle.pinned[pos];
    }
    return n + (recent > 0 ? recent : 1);
}

static int held_by_all(const rig *r, int32_t pos)
{
    for (uint32_t l = 0; l < r->options.lanes; l++) {
        uint32_t i = 0;
        while (i < r->oracle.lane[l].count && r->oracle.lane[l].token[i].pos != pos) {
            i++;
        }
        if (i == r->oracle.lane[l].count) {
            return 0;
        }
    }
    return 1;
}

static uint32_t count_ranges(const rig *r)
{
    uint32_t n = r->oracle.pinned[0];
    for (uint32_t pos = 1; pos < ORACLE_MAX_PINNED; pos++) {
        n += r->oracle.pinned[pos] && !r->oracle.pinned[pos - 1];
    }
    return n;
}

/* What the header says of a pin, tried out on the oracle. */
static int may_pin(rig *r, int32_t first, int32_t end)
{
    unsigned char before[ORACLE_MAX_PINNED];
    int32_t newest = r->oracle.engine_count ? r->oracle.engine[r->oracle.engine_count - 1] : -1;
    for (int32_t pos = first; pos < end; pos++) {
        if (pos <= newest && !held_by_all(r, pos)) {
            return 0;
        }
    }
    memcpy(before, r->oracle.pinned, sizeof before);
    oracle_pin(&r->oracle, first, end);
    int fits = always_kept(r, r->oracle.options.recent) <= r->oracle.options.budget && count_ranges(r) <= H2OKV_MOST_PINS;
    memcpy(r->oracle.pinned, before, sizeof before);
    return fits;
}

static void try_pin(rig *r)
{
    int32_t reach = r->next_pos + 20, first = (int32_t)rng_below(&r->rng, (uint32_t)reach);
    int32_t end = first + 1 + (int32_t)rng_below(&r->rng, 4);
    snapshot before = snapshot_take(r->cache, r->options.lanes);
    if (may_pin(r, first, end)) {
        rig_pin(r, first, end);
    } else {
        CHECK_STATUS(h2okv_cache_pin(r->cache, first, end, NULL), H2OKV_E_INVALID);
    }
    CHECK(snapshot_same(&before, r->cache, r->options.lanes)); /* nothing moves before a plan */
    snapshot_free(&before);
}

static void try_budget(rig *r)
{
    uint32_t budget = rng_range(&r->rng, 8, 30), recent = rng_below(&r->rng, 9);
    if (always_kept(r, recent) <= budget) {
        rig_set_budget(r, budget, recent);
    } else {
        CHECK_STATUS(h2okv_cache_set_budget(r->cache, budget, recent, NULL), H2OKV_E_INVALID);
    }
}

/* While tokens are admitted and not committed, whatever was done with them. */
static void budget_must_wait(rig *r)
{
    h2okv_options before, after;
    h2okv_cache_get_options(r->cache, &before);
    CHECK_STATUS(h2okv_cache_set_budget(r->cache, 20, 2, NULL), H2OKV_E_ORDER);
    h2okv_cache_get_options(r->cache, &after);
    CHECK(before.budget == after.budget && before.recent == after.recent);
}

static void pass_with_waiting(rig *r, uint32_t n)
{
    const h2okv_plan *plan;
    rig_admit(r, n);
    budget_must_wait(r);
    rig_observe(r, 0);
    budget_must_wait(r);
    for (uint32_t l = 1; l < r->options.lanes; l++) {
        rig_observe(r, l);
    }
    CHECK_OK(h2okv_cache_plan(r->cache, &plan));
    budget_must_wait(r);
    CHECK(plan->n_freed == oracle_evict(&r->oracle)); /* a refused call leaves plans alone */
    rig_commit(r, plan, 0);
    CHECK_RIGHT(rig_check(r));
}

static void step_of(rig *r)
{
    uint32_t n = rng_range(&r->rng, 1, PASS_MOST);
    switch (rng_below(&r->rng, 8)) {
    case 0:
    case 1:
        rig_probe_pass(r, n, rng_range(&r->rng, 1, 4));
        break;
    case 2:
        try_budget(r);
        rig_evict(r);
        break;
    case 3:
    case 4:
        try_pin(r);
        break;
    case 5:
        rig_trim(r, rng_range(&r->rng, 0, 2) ? r->next_pos - (int32_t)rng_below(&r->rng, (uint32_t)r->next_pos / 3 + 1)
                                             : r->next_pos);
        break;
    default:
        pass_with_waiting(r, n);
    }
}

static void test_in_any_order(void **state)
{
    (void)state;
    for (uint32_t seed = 1; seed <= 250; seed++) {
        rig_options o = rig_defaults(seed);
        o.lanes = 3;
        o.cells = CELLS;
        o.budget = 16;
        o.recent = 1 + seed % 7;
        o.sinks = seed % 4;
        o.grace = seed % 3;
        o.pool = seed % 5;
        o.decay = seed % 2 ? 1.0 : 0.95;
        o.coarse = seed % 3 == 0;
        o.gaps = seed % 4 == 0;
        rig *r = rig_create(&o);
        for (uint32_t step = 0; step < STEPS; step++) {
            check_context("seed %u, step %u", seed, step);
            step_of(r);
        }
        rig_free(r);
    }
}

/* A probe's positions come again as text: what is pinned among them and behind them stays pinned. */
static void test_a_probe_leaves_pins(void **state)
{
    (void)state;
    rig_options o = rig_defaults(7);
    o.recent = 1;
    rig *r = rig_create(&o);
    rig_pin(r, 2, 9);
    for (uint32_t i = 0; i < 12; i++) {
        rig_probe_pass(r, 4, 3);
    }
    for (uint32_t l = 0; l < o.lanes; l++) {
        int32_t kept[CELLS];
        CHECK(h2okv_cache_kept(r->cache, l, kept, NULL, NULL) == 12);
        for (int32_t i = 0; i < 7; i++) {
            CHECK(kept[i] == 2 + i || kept[i + 1] == 2 + i || kept[i + 2] == 2 + i);
        }
    }
    rig_free(r);
}

static void give_probe(h2okv_cache *c, int32_t pos)
{
    small_admit(c, pos, 4);
    CHECK_OK(h2okv_cache_probe(c, 2, 1));
    small_idle(c, 1);
}

static int is_pinned_later(h2okv_cache *c, int32_t pos)
{
    int32_t newest = pos;
    for (; newest < pos + 12; newest++) {
        small_admit(c, newest, 1);
        small_idle(c, 1);
        small_evict(c);
    }
    int32_t kept[SMALL_CELLS];
    uint32_t n = h2okv_cache_kept(c, 0, kept, NULL, NULL);
    for (uint32_t i = 0; i < n; i++) {
        if (kept[i] == pos) {
            return 1;
        }
    }
    return 0;
}

/* Only a trim that drops the probe, and nothing else, leaves pins. */
static void test_other_trims_cut_pins(void **state)
{
    (void)state;
    for (int32_t cut = 3; cut <= 7; cut++) {
        h2okv_options o = small_options(6, 1, 8);
        h2okv_cache *c = small_create(&o);
        small_admit(c, 0, 4);
        small_idle(c, 1);
        small_evict(c);
        CHECK_OK(h2okv_cache_pin(c, cut, cut + 1, NULL));
        give_probe(c, 4); /* text 4 and 5, probe 6 and 7 */
        small_trim(c, cut);
        check_context("cut at %d", cut);
        CHECK(is_pinned_later(c, cut) == (cut == 6));
        h2okv_cache_free(c);
    }
}

/* A probe given up, or one that more tokens came after, is none. */
static void test_a_probe_is_that_of_its_admit(void **state)
{
    (void)state;
    h2okv_options o = small_options(6, 1, 8);
    const h2okv_plan *plan;
    h2okv_cache *c = small_create(&o);
    small_admit(c, 0, 4);
    small_idle(c, 1);
    small_evict(c);
    CHECK_OK(h2okv_cache_pin(c, 2, 3, NULL));
    give_probe(c, 4);
    CHECK_OK(h2okv_cache_abandon(c));
    small_trim(c, 2);
    CHECK(!is_pinned_later(c, 2));
    h2okv_cache_clear(c);
    small_admit(c, 0, 2);
    CHECK_OK(h2okv_cache_trim(c, 1, &plan));
    CHECK_OK(h2okv_cache_probe(c, 1, 0));
    CHECK_STATUS(h2okv_cache_commit(c, plan), H2OKV_E_STALE);
    small_give(c, 0, (const float[]){ 4, 2 });
    small_admit(c, 2, 1);
    small_give(c, 0, (const float[]){ 1, 1, 1 }); /* adds: no probe */
    CHECK(check_close(small_score(c, 0, 0), 5) && check_close(small_score(c, 0, 1), 3));
    h2okv_cache_free(c);
}

/* A rank that is no number is found also where neighbours would keep the token. */
static int32_t nan_pos;

static const double *rank_nan(const h2okv_lane_view *lane, double *scratch)
{
    for (uint32_t i = 0; i < lane->cells; i++) {
        scratch[i] = lane->pos[i] == nan_pos ? (double)NAN : lane->score[i];
    }
    return scratch;
}

static void test_a_pooled_nan_is_refused(void **state)
{
    (void)state;
    h2okv_policy policy = *h2okv_policy_find("h2o");
    h2okv_options o = small_options(6, 1, 8);
    const h2okv_plan *plan;
    policy.rank = rank_nan;
    policy.pool = 2;
    o.custom_policy = &policy;
    h2okv_cache *c = small_create(&o);
    small_admit(c, 0, 8);
    small_give(c, 0, (const float[]){ 0, 0, 0, 9, 0, 9, 0, 0 });
    for (nan_pos = 0; nan_pos < 7; nan_pos++) {
        check_context("position %d", nan_pos);
        CHECK_STATUS(h2okv_cache_plan(c, &plan), H2OKV_E_NAN);
    }
    CHECK_OK(h2okv_cache_plan(c, &plan)); /* 7 is the newest: no rank decides on it */
    h2okv_cache_free(c);
}

/* One victim a pass or nearly all, windows that reach one neighbour or everything, ties and gaps. */
static void test_pooling_of_any_reach(void **state)
{
    static const uint32_t pools[] = { 1, 2, 3, 7, 20, 400, 2147483647, 2147483648, UINT32_MAX - 1 };
    (void)state;
    for (uint32_t seed = 1; seed <= 90; seed++) {
        rig_options o = rig_defaults(seed);
        o.pool = pools[seed % 9];
        o.cells = CELLS;
        o.budget = seed % 2 ? 44 : 4;
        o.recent = 1 + seed % 3;
        o.sinks = seed % 5 == 0;
        o.gaps = seed % 4 < 2;
        o.coarse = seed % 3 == 0;
        o.scatter = 1;
        check_context("seed %u, pool %u", seed, o.pool);
        rig *r = rig_create(&o);
        for (uint32_t i = 0; i < 40; i++) {
            rig_pass(r, seed % 3 ? 1 + i % 2 : 16 - i % 12);
            if (r->next_pos > 440) {
                break;
            }
        }
        rig_free(r);
    }
}

static int holds(const h2okv_cache *c, uint32_t lane, int32_t wanted)
{
    int32_t pos[ENGINE_MAX_CELLS];
    uint32_t n = h2okv_cache_kept(c, lane, pos, NULL, NULL), i = 0;
    while (i < n && pos[i] != wanted) {
        i++;
    }
    return i < n;
}

/* Whatever happened: below it every lane holds every token, at it some lane does not, and a cut there loses none
 * where the engine can make it. */
static void test_a_whole_beginning_can_be_kept(void **state)
{
    (void)state;
    uint32_t somewhere = 0;
    for (uint64_t seed = 1; seed <= 60; seed++) {
        rig *r = rig_with_a_past(seed);
        uint32_t whole = h2okv_cache_whole(r->cache), missing = 0, lanes = r->created.lanes;
        const h2okv_plan *plan = NULL;
        check_context("seed %d: whole up to %u", (int)seed, whole);
        for (uint32_t l = 0; l < lanes; l++) {
            for (uint32_t p = 0; p < whole; p++) {
                CHECK(holds(r->cache, l, (int32_t)p));
            }
            missing += !holds(r->cache, l, (int32_t)whole);
        }
        CHECK(missing > 0);
        int32_t taken[ENGINE_MAX_CELLS];
        CHECK(h2okv_cache_engine_cells(r->cache, taken, NULL) > 0);
        if (whole > 0 && taken[0] <= (int32_t)whole) {
            somewhere++;
            CHECK_OK(h2okv_cache_trim(r->cache, (int32_t)whole, &plan));
            CHECK(plan->n_lost == 0 && plan->n_freed == h2okv_cache_live(r->cache) - whole);
        }
        rig_free(r);
    }
    CHECK(somewhere > 5);
}

/* A cut so deep that lanes have to give up guarded tokens: what is pinned stays longest, then what is recent. */
static void test_a_deep_cut_takes_pins_last(void **state)
{
    (void)state;
    h2okv_options o = small_options(8, 4, 16);
    o.lanes = 2;
    o.sinks = 1;
    h2okv_cache *c = small_create(&o);
    small_admit(c, 0, 3);
    small_idle(c, 2);
    small_evict(c);
    CHECK_OK(h2okv_cache_pin(c, 1, 3, NULL));
    for (int32_t pos = 3; pos < 11; pos++) { /* lane 0 likes the newest, lane 1 the oldest: it has 3 and 4 longest */
        small_admit(c, pos, 1);
        for (uint32_t lane = 0; lane < 2; lane++) {
            float mass[SMALL_CELLS] = {0};
            h2okv_lane_view view;
            CHECK_OK(h2okv_cache_lane(c, lane, &view));
            for (uint32_t i = 0; i < view.live; i++) {
                uint32_t cell = view.order[i];
                mass[cell] = view.pos[cell] < 3 ? 0.0f : lane == 0 ? (float)view.pos[cell] : 20.0f - (float)view.pos[cell];
            }
            CHECK_OK(h2okv_cache_observe_mass(c, lane, mass));
        }
        small_evict(c);
    }
    small_trim(c, 6); /* lane 0 holds 0 1 2 and more of the end than lane 1 */
    for (uint32_t lane = 0; lane < 2; lane++) {
        check_context("lane %u, %u live", lane, h2okv_cache_live(c));
        CHECK(h2okv_cache_live(c) == 3);
        for (int32_t p = 0; p < 3; p++) {
            CHECK(holds(c, lane, p));
        }
    }
    h2okv_cache_free(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_in_any_order),
        cmocka_unit_test(test_a_probe_leaves_pins),
        cmocka_unit_test(test_other_trims_cut_pins),
        cmocka_unit_test(test_a_probe_is_that_of_its_admit),
        cmocka_unit_test(test_a_pooled_nan_is_refused),
        cmocka_unit_test(test_pooling_of_any_reach),
        cmocka_unit_test(test_a_whole_beginning_can_be_kept),
        cmocka_unit_test(test_a_deep_cut_takes_pins_last),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
