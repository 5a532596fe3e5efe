/* test_trim.c - dropping the newest tokens: exact while all are among the recent, lossy further back. */
#include "support/check.h"
#include "support/rig.h"
#include "support/small.h"
#include "support/snapshot.h"

#include <string.h>

typedef struct held {
    int32_t pos[ENGINE_MAX_CELLS];
    double score[ENGINE_MAX_CELLS];
    uint32_t cell[ENGINE_MAX_CELLS], n;
} held;

static held read_lane(const rig *r, uint32_t lane)
{
    held h;
    h.n = h2okv_cache_kept(r->cache, lane, h.pos, h.score, h.cell);
    return h;
}

/* Not a token before the cut is lost, moved or changed. */
static void trim_exactly(rig *r, uint32_t back)
{
    held before[RIG_LANES];
    uint32_t moves = r->engine.n_moves;
    for (uint32_t l = 0; l < r->options.lanes; l++) {
        before[l] = read_lane(r, l);
    }
    rig_trim(r, r->next_pos - (int32_t)back);
    CHECK(r->engine.n_moves == moves);
    for (uint32_t l = 0; l < r->options.lanes; l++) {
        held after = read_lane(r, l);
        CHECK(after.n == before[l].n - back);
        CHECK(memcmp(after.pos, before[l].pos, after.n * sizeof after.pos[0]) == 0);
        CHECK(memcmp(after.score, before[l].score, after.n * sizeof after.score[0]) == 0);
        CHECK(memcmp(after.cell, before[l].cell, after.n * sizeof after.cell[0]) == 0);
    }
}

static void test_exact_within_recent(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 24; seed++) {
        rig_options o = rig_defaults(seed);
        check_context("seed %u", (unsigned)seed);
        o.lanes = 4;
        o.decay = seed % 2 ? 1.0 : 0.98;
        rig *r = rig_create(&o);
        for (uint32_t i = 0; i < 12; i++) {
            rig_pass(r, 1 + (i + (uint32_t)seed) % 7);
        }
        trim_exactly(r, (uint32_t)(seed % (o.recent + 1)));
        /* Life goes on at the cut. */
        rig_pass(r, 5);
        trim_exactly(r, 5);
        rig_free(r);
    }
}

/*
 * Two lanes that hold {0 1 4 5} and {2 3 4 5}. Trimmed to 3, the engine has position 2 left: one token a lane.
 * Lane 0 has 0 and 1 before the cut and gives up the lower, lane 1 has just 2.
 */
static h2okv_cache *two_views(void)
{
    h2okv_options o = small_options(4, 2, 4);
    o.lanes = 2;
    h2okv_cache *c = small_create(&o);
    small_admit(c, 0, 6);
    small_give(c, 0, (float[]){ 3, 4, 0, 0, 0, 0 });
    small_give(c, 1, (float[]){ 0, 0, 4, 3, 0, 0 });
    small_evict(c);
    CHECK(SMALL_HOLDS(c, 0, 0, 1, 4, 5) && SMALL_HOLDS(c, 1, 2, 3, 4, 5));
    return c;
}

static void test_lossy_by_hand(void **state)
{
    h2okv_cache *c = two_views();
    h2okv_cache_stats stats;
    const h2okv_plan *plan;
    (void)state;
    CHECK_OK(h2okv_cache_trim(c, 3, &plan));
    CHECK(plan->n_freed == 3 && plan->n_lost == 1);
    CHECK_OK(h2okv_cache_commit(c, plan));
    h2okv_cache_get_stats(c, &stats);
    CHECK(stats.live == 1 && stats.evicted == 2 && stats.passes == 2);
    CHECK(small_holds(c, 1, (int32_t[]){ 2 }, 1));
    CHECK(h2okv_cache_live(c) == 1);
    CHECK_STATUS(h2okv_cache_admit(c, (uint32_t[]){ 7 }, (int32_t[]){ 2 }, 1), H2OKV_E_INVALID);
    small_admit(c, 3, 1);
    h2okv_cache_free(c);
}

static void test_cuts_at_the_edges(void **state)
{
    h2okv_cache *c = two_views();
    h2okv_cache_stats stats;
    const h2okv_plan *plan = NULL;
    snapshot before = snapshot_take(c, 2);
    (void)state;
    CHECK_STATUS(h2okv_cache_trim(c, -1, &plan), H2OKV_E_INVALID);
    CHECK(plan == NULL && snapshot_same(&before, c, 2));
    CHECK_OK(h2okv_cache_trim(c, 6, &plan)); /* past the newest: nothing to do */
    CHECK(plan->n_freed == 0 && plan->n_moves == 0 && plan->n_lost == 0);
    CHECK(snapshot_same(&before, c, 2));
    CHECK_OK(h2okv_cache_trim(c, INT32_MAX, &plan));
    CHECK(plan->n_freed == 0);
    CHECK_OK(h2okv_cache_commit(c, plan));
    CHECK(SMALL_HOLDS(c, 0, 0, 1, 4, 5));
    CHECK_OK(h2okv_cache_trim(c, 0, &plan)); /* everything */
    CHECK(plan->n_freed == 4 && plan->n_lost == 0);
    CHECK_OK(h2okv_cache_commit(c, plan));
    h2okv_cache_get_stats(c, &stats);
    CHECK(stats.live == 0 && stats.newest == -1 && h2okv_cache_kept(c, 0, NULL, NULL, NULL) == 0);
    small_admit(c, 0, 8);
    snapshot_free(&before);
    h2okv_cache_free(c);
}

/* Further back than all that the engine has: the tokens before the cut, which only moves kept, go as well. */
static void test_cut_before_the_engines_oldest(void **state)
{
    h2okv_cache *c = two_views(); /* the engine holds 2..5 */
    const h2okv_plan *plan;
    (void)state;
    CHECK_OK(h2okv_cache_trim(c, 2, &plan));
    CHECK(plan->n_freed == 4 && plan->n_lost == 2);
    CHECK_OK(h2okv_cache_commit(c, plan));
    CHECK(h2okv_cache_live(c) == 0);
    small_admit(c, 2, 1);
    h2okv_cache_free(c);
}

/* The scores of what stays keep what the dropped tokens' queries added. */
static void test_scores_keep_what_dropped_queries_added(void **state)
{
    h2okv_options o = small_options(4, 3, 1);
    (void)state;
    h2okv_cache *c = small_create(&o);
    small_admit(c, 0, 2);
    small_give(c, 0, (float[]){ 1, 1 });
    small_evict(c);
    small_admit(c, 2, 2);
    small_give(c, 0, (float[]){ 5, 0, 0, 0 });
    small_evict(c);
    CHECK(small_trim(c, 2) == 0);
    CHECK(SMALL_HOLDS(c, 0, 0, 1));
    CHECK(small_score(c, 0, 0) >= 6 && small_score(c, 0, 0) <= 6);
    h2okv_cache_free(c);
}

/* A trim ends the pass: tokens not yet observed may go, or stay at 0, and nobody has to observe them. */
static void test_trim_of_tokens_not_observed(void **state)
{
    h2okv_options o = small_options(4, 2, 4);
    (void)state;
    h2okv_cache *c = small_create(&o);
    small_admit(c, 0, 6);
    CHECK(small_trim(c, 5) == 0);
    CHECK(h2okv_cache_live(c) == 5);
    CHECK_STATUS(h2okv_cache_observe_mass(c, 0, NULL), H2OKV_E_ORDER);
    CHECK(small_evict(c) == 1); /* one over the budget: ranks are all 0, so the oldest goes */
    CHECK(SMALL_HOLDS(c, 0, 1, 2, 3, 4));
    small_admit(c, 5, 1);
    h2okv_cache_free(c);
}

/* Sinks and recent tokens outlast others in a lossy trim. */
static void test_lossy_trim_keeps_sinks_and_recent(void **state)
{
    h2okv_options o = small_options(6, 2, 6);
    (void)state;
    o.sinks = 1;
    h2okv_cache *c = small_create(&o);
    small_admit(c, 0, 9);
    small_give(c, 0, (float[]){ 0, 5, 9, 1, 0, 0, 0, 0, 0 });
    small_evict(c);
    CHECK(SMALL_HOLDS(c, 0, 0, 1, 2, 3, 7, 8)); /* the engine has 3..8 */
    CHECK(small_trim(c, 6) == 1);               /* 3 places, 4 tokens */
    CHECK(SMALL_HOLDS(c, 0, 0, 2, 3));          /* 1 is neither sink nor one of the two newest left */
    h2okv_cache_free(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_exact_within_recent),
        cmocka_unit_test(test_lossy_by_hand),
        cmocka_unit_test(test_cuts_at_the_edges),
        cmocka_unit_test(test_cut_before_the_engines_oldest),
        cmocka_unit_test(test_scores_keep_what_dropped_queries_added),
        cmocka_unit_test(test_trim_of_tokens_not_observed),
        cmocka_unit_test(test_lossy_trim_keeps_sinks_and_recent),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
