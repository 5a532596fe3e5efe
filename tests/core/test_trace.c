/*
 * test_trace.c - random attention through cache, engine and oracle in lockstep (rig.h): every policy with random
 * options, passes of 1..9 tokens, several rounds before a plan, trims at random distances, refused calls in
 * between. A failure prints the seed.
 */
#include "support/check.h"
#include "support/rig.h"
#include "support/snapshot.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { ROUNDS_MAX = 3, TOKENS_MAX = 9, STEPS = 24 };

static rig_options random_options(uint64_t seed, const char *policy)
{
    static const double decays[] = { 1.0, 0.98, 0.5 };
    static const uint32_t groups[] = { 1, 2, 3, 4, 7, 8 };
    rng r = { seed * 2654435761u };
    rig_options o = { .seed = seed, .policy = policy };
    o.lanes = rng_range(&r, 1, 5);
    o.budget = rng_range(&r, 1, 24);
    o.recent = rng_below(&r, o.budget + 1);
    o.sinks = rng_below(&r, o.budget - (o.recent ? o.recent : 1) + 1);
    o.grace = rng_below(&r, 4);
    o.group = groups[rng_below(&r, 6)];
    o.count_self = rng_below(&r, 2);
    o.heads = rng_below(&r, 2);
    o.parts = rng_below(&r, 4) == 0 ? rng_range(&r, 2, 3) : 1;
    o.decay = decays[rng_below(&r, 3)];
    o.scatter = (int)rng_below(&r, 2);
    o.gaps = rng_below(&r, 3) == 0;
    /* Coarse weights make exact ties, which only exact sums keep: no decay, or a half; no division by 3 or 7. */
    int exact = fabs(o.decay - 0.98) > 0.01 && (o.heads == H2OKV_HEADS_SUM || (o.group & (o.group - 1)) == 0);
    o.coarse = exact && rng_below(&r, 2);
    o.cells = o.budget + TOKENS_MAX * ROUNDS_MAX + rng_below(&r, 20);
    o.cells = strcmp(policy, "full") == 0 ? o.cells + STEPS * TOKENS_MAX : o.cells;
    return o;
}

static void say(const rig_options *o, const char *what, uint32_t step)
{
    check_context("%s, seed %llu step %u: lanes %u cells %u budget %u recent %u sinks %u grace %u group %u self %u "
                  "heads %u parts %u decay %g policy %s coarse %d gaps %d", what, (unsigned long long)o->seed, step,
                  o->lanes, o->cells, o->budget, o->recent, o->sinks, o->grace, o->group, o->count_self, o->heads,
                  o->parts, o->decay, o->policy, o->coarse, o->gaps);
}

/* What the policy does not need may be left out, in some lanes or parts. */
static void observe_some(rig *r)
{
    int all = strcmp(r->options.policy, "h2o") == 0;
    for (uint32_t i = 0; i < r->options.lanes * r->options.parts; i++) {
        if (all || rng_below(&r->rng, 4) != 0) {
            rig_observe(r, i % r->options.lanes);
        }
    }
}

/* One pass: rounds of admit and observe, then evict. Now and then an empty pass or a trim. */
static void random_step(rig *r)
{
    uint32_t rounds = rng_below(&r->rng, 4) == 0 ? rng_range(&r->rng, 0, ROUNDS_MAX) : 1;
    for (uint32_t i = 0; i < rounds; i++) {
        rig_admit(r, rng_range(&r->rng, 1, TOKENS_MAX));
        CHECK_RIGHT(rig_check(r));
        observe_some(r);
        CHECK_RIGHT(rig_check(r));
    }
    rig_evict(r);
    if (rng_below(&r->rng, 8) == 0 && r->next_pos > 0) {
        uint32_t reach = rng_below(&r->rng, 3) == 0 ? 40 : 6, back = rng_below(&r->rng, reach);
        rig_trim(r, (uint32_t)r->next_pos > back ? r->next_pos - (int32_t)back : 0);
    }
}

static void run_trace(uint64_t seed, const char *policy)
{
    rig_options o = random_options(seed, policy);
    rig *r = rig_create(&o);
    for (uint32_t step = 0; step < STEPS; step++) {
        say(&o, "trace", step);
        random_step(r);
        CHECK(r->engine.peak <= o.budget + TOKENS_MAX * ROUNDS_MAX || strcmp(policy, "full") == 0);
    }
    rig_free(r);
}

static void test_h2o_as_oracle(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 300; seed++) {
        run_trace(seed, "h2o");
    }
}

static void test_other_policies_as_oracle(void **state)
{
    static const char *const policies[] = { "window", "full", "random" };
    (void)state;
    for (uint64_t seed = 1; seed <= 180; seed++) {
        run_trace(1000 + seed, policies[seed % 3]);
    }
}

/* Trims before plan and commit, also of tokens not yet observed. */
static void test_trim_in_mid_pass(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 60; seed++) {
        rig_options o = random_options(2000 + seed, "h2o");
        rig *r = rig_create(&o);
        for (uint32_t step = 0; step < STEPS; step++) {
            say(&o, "trim in mid pass", step);
            rig_admit(r, rng_range(&r->rng, 1, TOKENS_MAX));
            if (rng_below(&r->rng, 2)) {
                rig_observe_all(r);
            }
            if (rng_below(&r->rng, 3) == 0) {
                int32_t back = (int32_t)rng_range(&r->rng, 0, 12);
                rig_trim(r, r->next_pos > back ? r->next_pos - back : 0);
                rig_evict(r);
                continue;
            }
            rig_trim(r, r->next_pos - (int32_t)r->fresh);
            rig_pass(r, rng_range(&r->rng, 1, TOKENS_MAX));
        }
        rig_free(r);
    }
}

/* ---- The same trace on two caches, one of which also gets refused calls at every turn ---------------------- */

static void refused(rig *r, int status, int expected, const snapshot *before)
{
    CHECK_STATUS(status, expected);
    CHECK(snapshot_same(before, r->cache, r->options.lanes));
}

/* Calls that are wrong whatever the state. */
static void always_wrong(rig *r, const snapshot *s)
{
    uint32_t cell = r->options.cells;
    int32_t pos = r->next_pos + 1;
    h2okv_plan forged = { .epoch = 1 };
    const h2okv_plan *plan = NULL;
    float *mass = r->data;
    memset(mass, 0, r->options.cells * sizeof *mass);
    refused(r, h2okv_cache_admit(r->cache, &cell, &pos, 0), H2OKV_E_ORDER, s);
    refused(r, h2okv_cache_observe_mass(r->cache, r->options.lanes, mass), H2OKV_E_INVALID, s);
    refused(r, h2okv_cache_trim(r->cache, -1, &plan), H2OKV_E_INVALID, s);
    refused(r, h2okv_cache_commit(r->cache, &forged), H2OKV_E_STALE, s);
}

/* While tokens wait to be observed. */
static void wrong_before_observe(rig *r)
{
    snapshot s = snapshot_take(r->cache, r->options.lanes);
    const h2okv_plan *plan = NULL;
    uint32_t cell = engine_find(&r->engine, 0);
    h2okv_weights w = rig_weights(r, 0);
    always_wrong(r, &s);
    refused(r, h2okv_cache_plan(r->cache, &plan), H2OKV_E_ORDER, &s);
    CHECK(plan == NULL);
    if (cell != UINT32_MAX) {
        refused(r, h2okv_cache_admit(r->cache, &cell, &r->next_pos, 1), H2OKV_E_ORDER, &s);
    }
    w = rig_weights(r, 0);
    w.queries++;
    refused(r, h2okv_cache_observe(r->cache, 0, &w), H2OKV_E_INVALID, &s);
    w.queries--;
    for (uint32_t i = 0; i < w.columns; i++) {
        if (r->engine.pos[r->column[i]] != -1) {
            r->data[(w.heads - 1) * w.head_stride + i] = NAN;
        }
    }
    if (r->engine.used > 1 || r->options.count_self) { /* else the one weight is one that is not looked at */
        refused(r, h2okv_cache_observe(r->cache, 0, &w), H2OKV_E_NAN, &s);
    }
    snapshot_free(&s);
}

/* When all is observed and nothing planned, or planned and not committed. */
static void wrong_after_observe(rig *r)
{
    snapshot s = snapshot_take(r->cache, r->options.lanes);
    uint32_t cell = engine_find(&r->engine, 0);
    int32_t pos = r->pos[r->fresh - 1];
    always_wrong(r, &s);
    refused(r, h2okv_cache_observe_mass(r->cache, 0, NULL), H2OKV_E_ORDER, &s);
    if (cell != UINT32_MAX) {
        refused(r, h2okv_cache_admit(r->cache, &cell, &pos, 1), H2OKV_E_INVALID, &s);
        refused(r, h2okv_cache_admit(r->cache, &r->cell[0], &r->next_pos, 1), H2OKV_E_INVALID, &s);
    }
    snapshot_free(&s);
}

static void pass_with_refusals(rig *r, uint32_t n)
{
    const h2okv_plan *plan = NULL;
    rng before;
    rig_admit(r, n);
    before = r->rng; /* refused calls must not shift the random attention */
    wrong_before_observe(r);
    r->rng = before;
    rig_observe_all(r);
    wrong_after_observe(r);
    CHECK_OK(h2okv_cache_plan(r->cache, &plan));
    wrong_after_observe(r);
    oracle_evict(&r->oracle);
    rig_commit(r, plan, 0);
    CHECK_RIGHT(rig_check(r));
    {
        snapshot s = snapshot_take(r->cache, r->options.lanes);
        refused(r, h2okv_cache_commit(r->cache, plan), H2OKV_E_STALE, &s);
        refused(r, h2okv_cache_observe_mass(r->cache, 0, NULL), H2OKV_E_ORDER, &s);
        snapshot_free(&s);
    }
}

static void test_refused_calls_leave_no_trace(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 40; seed++) {
        rig_options o = random_options(3000 + seed, "h2o");
        rig *plain = rig_create(&o), *bothered = rig_create(&o);
        for (uint32_t step = 0; step < STEPS; step++) {
            uint32_t n = rng_range(&plain->rng, 1, TOKENS_MAX);
            snapshot s;
            say(&o, "refusals", step);
            bothered->rng = plain->rng;
            bothered->engine.order = plain->engine.order;
            rig_pass(plain, n);
            pass_with_refusals(bothered, n);
            s = snapshot_take(plain->cache, o.lanes);
            CHECK(snapshot_same(&s, bothered->cache, o.lanes));
            snapshot_free(&s);
        }
        rig_free(plain);
        rig_free(bothered);
    }
}

/* A cleared cache is a new one. */
static void test_clear_is_a_new_start(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 40; seed++) {
        rig_options o = random_options(4000 + seed, seed % 2 ? "h2o" : "random");
        rig *r = rig_create(&o), *fresh = rig_create(&o);
        snapshot first;
        for (uint32_t step = 0; step < 6; step++) {
            say(&o, "before clear", step);
            random_step(r);
        }
        rig_admit(r, 3); /* in mid pass */
        h2okv_cache_clear(r->cache);
        first = snapshot_take(fresh->cache, o.lanes);
        CHECK(snapshot_same(&first, r->cache, o.lanes));
        snapshot_free(&first);
        rig_restart(r);
        for (uint32_t step = 0; step < 12; step++) {
            say(&o, "after clear", step);
            random_step(r);
            random_step(fresh);
            first = snapshot_take(fresh->cache, o.lanes);
            CHECK(snapshot_same(&first, r->cache, o.lanes));
            snapshot_free(&first);
        }
        rig_free(r);
        rig_free(fresh);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_h2o_as_oracle),
        cmocka_unit_test(test_other_policies_as_oracle),
        cmocka_unit_test(test_trim_in_mid_pass),
        cmocka_unit_test(test_refused_calls_leave_no_trace),
        cmocka_unit_test(test_clear_is_a_new_start),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
