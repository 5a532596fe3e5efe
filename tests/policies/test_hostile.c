/*
 * test_hostile.c - policies that do their worst: NaN, infinities, equal and negative ranks, an array of the view,
 * another answer at each call. None may harm what is protected, the order of tokens or the moves.
 */
#include "support/check.h"
#include "support/rig.h"
#include "support/small.h"
#include "support/snapshot.h"

#include <float.h>
#include <math.h>
#include <string.h>

static const double *ranks_equal(const h2okv_lane_view *v, double *scratch)
{
    for (uint32_t c = 0; c < v->cells; c++) {
        scratch[c] = 42.0;
    }
    return scratch;
}

/* The oldest should stay: what is recent must stay all the same. */
static const double *ranks_negative(const h2okv_lane_view *v, double *scratch)
{
    for (uint32_t c = 0; c < v->cells; c++) {
        scratch[c] = -(double)v->pos[c] - 1e300;
    }
    return scratch;
}

static const double *ranks_extreme(const h2okv_lane_view *v, double *scratch)
{
    static const double extremes[] = { INFINITY, -INFINITY, DBL_MAX, -DBL_MAX, DBL_MIN, 5e-324, 0.0, -0.0 };
    for (uint32_t i = 0; i < v->live; i++) {
        uint32_t c = v->order[i];
        rng r = { (uint64_t)v->pos[c] * 31 + v->lane };
        scratch[c] = extremes[rng_below(&r, 8)];
    }
    return scratch;
}

/* An array of the view, as allowed. */
static const double *ranks_view(const h2okv_lane_view *v, double *scratch)
{
    (void)scratch;
    return v->score;
}

/* Holes are not looked at: what stands there may be anything. */
static const double *ranks_nan_in_holes(const h2okv_lane_view *v, double *scratch)
{
    for (uint32_t c = 0; c < v->cells; c++) {
        scratch[c] = v->pos[c] == -1 ? (double)NAN : sin((double)v->pos[c]);
    }
    return scratch;
}

/* Not a function of the view: another answer at each call. */
static const double *ranks_fickle(const h2okv_lane_view *v, double *scratch)
{
    static rng r = { 99 };
    for (uint32_t c = 0; c < v->cells; c++) {
        scratch[c] = (double)rng_next(&r);
    }
    return scratch;
}

static h2okv_policy policy_of(const double *(*rank)(const h2okv_lane_view *, double *), uint32_t flags)
{
    return (h2okv_policy){ .size = sizeof(h2okv_policy), .flags = flags, .name = "hostile", .summary = "a test",
                           .rank = rank };
}

typedef struct hostile {
    const char *what;
    const double *(*rank)(const h2okv_lane_view *, double *);
} hostile;

static const hostile hostiles[] = {
    { "all equal", ranks_equal },        { "negative", ranks_negative },
    { "extreme", ranks_extreme },        { "array of the view", ranks_view },
    { "NaN in holes", ranks_nan_in_holes },
};

static rig_options hostile_options(uint64_t seed, const h2okv_policy *policy)
{
    rig_options o = rig_defaults(seed);
    o.custom = policy;
    o.lanes = 3;
    o.cells = 40;
    o.sinks = 2;
    o.recent = 4;
    o.grace = (uint32_t)(seed % 3);
    o.scatter = 1;
    return o;
}

/* The same sets as the oracle with these ranks, so sinks, recent and grace hold and ties keep the newer. */
static void test_selector_with_hostile_ranks(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof hostiles / sizeof hostiles[0]; i++) {
        h2okv_policy policy = policy_of(hostiles[i].rank, H2OKV_POLICY_NEEDS_SCORES);
        for (uint64_t seed = 1; seed <= 6; seed++) {
            rig_options o = hostile_options(seed, &policy);
            rig *r = rig_create(&o);
            for (uint32_t step = 0; step < 24; step++) {
                check_context("%s, seed %u step %u", hostiles[i].what, (unsigned)seed, step);
                rig_pass(r, 1 + step % 9);
                if (step % 7 == 6) {
                    rig_trim(r, r->next_pos - (int32_t)step % 11);
                }
            }
            rig_free(r);
        }
    }
}

/* Nothing to compare with, but the books stay in order and the protected tokens stay. */
static void test_fickle_policy(void **state)
{
    h2okv_policy policy = policy_of(ranks_fickle, 0);
    rig_options o = hostile_options(1, &policy);
    rig *r = rig_create(&o);
    (void)state;
    for (uint32_t step = 0; step < 50; step++) {
        const h2okv_plan *plan;
        int32_t pos[ENGINE_MAX_CELLS];
        rig_choose(r, 1 + step % 9);
        CHECK_RIGHT(engine_put(&r->engine, r->cell, r->pos, r->fresh));
        CHECK_OK(h2okv_cache_admit(r->cache, r->cell, r->pos, r->fresh));
        CHECK_OK(h2okv_cache_plan(r->cache, &plan));
        rig_commit(r, plan, 0);
        CHECK_RIGHT(engine_check(&r->engine, r->cache));
        for (uint32_t l = 0; l < o.lanes && r->next_pos > 12; l++) {
            CHECK(h2okv_cache_kept(r->cache, l, pos, NULL, NULL) == 12);
            CHECK(pos[0] == 0 && pos[1] == 1);
            CHECK(pos[8] == r->next_pos - 4 && pos[11] == r->next_pos - 1);
        }
    }
    rig_free(r);
}

/* ---- NaN ------------------------------------------------------------------------------------------------- */

static int32_t nan_at = -1; /* the position that gets a NaN, in lane 1 */

static const double *ranks_nan(const h2okv_lane_view *v, double *scratch)
{
    for (uint32_t c = 0; c < v->cells; c++) {
        scratch[c] = v->lane == 1 && v->pos[c] == nan_at && nan_at >= 0 ? (double)NAN : v->score[c];
    }
    return scratch;
}

static void test_nan_rank_changes_nothing(void **state)
{
    h2okv_policy policy = policy_of(ranks_nan, H2OKV_POLICY_NEEDS_SCORES);
    h2okv_options o = small_options(4, 2, 2);
    const h2okv_plan *plan = NULL;
    snapshot before;
    (void)state;
    o.lanes = 2;
    o.custom_policy = &policy;
    h2okv_cache *c = small_create(&o);
    small_admit(c, 0, 6);
    small_give(c, 0, (float[]){ 1, 9, 8, 2, 0, 0 });
    small_give(c, 1, (float[]){ 9, 1, 2, 8, 0, 0 });
    before = snapshot_take(c, 2);
    for (nan_at = 0; nan_at < 4; nan_at++) { /* any that ranks may decide on */
        CHECK_STATUS(h2okv_cache_plan(c, &plan), H2OKV_E_NAN);
        CHECK(plan == NULL && snapshot_same(&before, c, 2));
    }
    nan_at = -1;
    CHECK(small_evict(c) == 2);
    CHECK(SMALL_HOLDS(c, 0, 1, 2, 4, 5) && SMALL_HOLDS(c, 1, 0, 3, 4, 5));
    snapshot_free(&before);
    h2okv_cache_free(c);
}

static void test_nan_rank_in_trim(void **state)
{
    h2okv_policy policy = policy_of(ranks_nan, H2OKV_POLICY_NEEDS_SCORES);
    h2okv_options o = small_options(4, 2, 2);
    const h2okv_plan *plan = NULL;
    (void)state;
    o.lanes = 2;
    o.custom_policy = &policy;
    h2okv_cache *c = small_create(&o);
    small_admit(c, 0, 6);
    small_give(c, 0, (float[]){ 1, 9, 8, 2, 0, 0 });
    small_give(c, 1, (float[]){ 9, 8, 2, 1, 0, 0 });
    small_evict(c); /* {1 2 4 5} and {0 1 4 5}; the engine has 2..5 */
    snapshot before = snapshot_take(c, 2);
    nan_at = 0;
    CHECK_STATUS(h2okv_cache_trim(c, 3, &plan), H2OKV_E_NAN);
    CHECK(plan == NULL && snapshot_same(&before, c, 2));
    nan_at = -1;
    CHECK(small_trim(c, 3) == 1);
    CHECK(h2okv_cache_live(c) == 1);
    snapshot_free(&before);
    h2okv_cache_free(c);
}

/* A plan that was made before a plan that failed is not to be trusted. */
static void test_no_commit_after_a_failed_plan(void **state)
{
    h2okv_policy policy = policy_of(ranks_nan, H2OKV_POLICY_NEEDS_SCORES);
    h2okv_options o = small_options(4, 2, 2);
    const h2okv_plan *plan, *failed = NULL;
    (void)state;
    o.lanes = 2;
    o.custom_policy = &policy;
    h2okv_cache *c = small_create(&o);
    small_admit(c, 0, 6);
    small_idle(c, 2);
    CHECK_OK(h2okv_cache_plan(c, &plan));
    nan_at = 1;
    CHECK_STATUS(h2okv_cache_plan(c, &failed), H2OKV_E_NAN);
    nan_at = -1;
    snapshot before = snapshot_take(c, 2);
    CHECK_STATUS(h2okv_cache_commit(c, plan), H2OKV_E_STALE);
    CHECK(failed == NULL && snapshot_same(&before, c, 2));
    CHECK(small_evict(c) == 2);
    snapshot_free(&before);
    h2okv_cache_free(c);
}

/* The policy struct is copied; its flags act. */
static void test_flags_and_copy(void **state)
{
    h2okv_policy policy = policy_of(ranks_equal, H2OKV_POLICY_KEEPS_ALL);
    h2okv_options o = small_options(2, 1, 4);
    const h2okv_plan *plan;
    (void)state;
    o.custom_policy = &policy;
    o.policy = "no such name"; /* not looked at */
    h2okv_cache *keeps_all = small_create(&o);
    policy.flags = 0;
    h2okv_cache *plain = small_create(&o);
    policy.flags = H2OKV_POLICY_NEEDS_SCORES;
    h2okv_cache *needy = small_create(&o);
    memset(&policy, 0, sizeof policy);
    small_admit(keeps_all, 0, 6);
    small_admit(plain, 0, 6);
    small_admit(needy, 0, 6);
    CHECK(small_evict(keeps_all) == 0 && small_evict(plain) == 4);
    CHECK(SMALL_HOLDS(plain, 0, 4, 5));
    CHECK_STATUS(h2okv_cache_plan(needy, &plan), H2OKV_E_ORDER);
    small_idle(needy, 1);
    CHECK(small_evict(needy) == 4);
    h2okv_cache_free(keeps_all);
    h2okv_cache_free(plain);
    h2okv_cache_free(needy);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_selector_with_hostile_ranks), cmocka_unit_test(test_fickle_policy),
        cmocka_unit_test(test_nan_rank_changes_nothing),    cmocka_unit_test(test_nan_rank_in_trim),
        cmocka_unit_test(test_no_commit_after_a_failed_plan), cmocka_unit_test(test_flags_and_copy),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
