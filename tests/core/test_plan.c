/* test_plan.c - plans: one worked out by hand, what makes one stale, what an uncommitted one leaves behind. */
#include "support/check.h"
#include "support/rig.h"
#include "support/small.h"
#include "support/snapshot.h"

#include <string.h>

static int cells_are(const h2okv_cache *c, uint32_t lane, const uint32_t *expected, uint32_t n)
{
    uint32_t cell[SMALL_CELLS];
    return h2okv_cache_kept(c, lane, NULL, NULL, cell) == n && memcmp(cell, expected, n * sizeof *cell) == 0;
}

/*
 *   cell          0   1   2   3
 *   engine        1   3   0   2      the oldest, position 0 in cell 2, is to be freed
 *   lane 0 gives up token 1: token 0 has to move from cell 2 over it. Lane 1 gives up token 0: no move.
 */
static h2okv_cache *two_lanes(void)
{
    h2okv_options o = small_options(3, 1, 1);
    o.lanes = 2;
    h2okv_cache *c = small_create(&o);
    CHECK_OK(h2okv_cache_admit(c, (uint32_t[]){ 2, 0, 3, 1 }, (int32_t[]){ 0, 1, 2, 3 }, 4));
    small_give(c, 0, (float[]){ 9, 1, 5, 0 });
    small_give(c, 1, (float[]){ 1, 9, 5, 0 });
    return c;
}

static void test_by_hand(void **state)
{
    h2okv_cache *c = two_lanes();
    const h2okv_plan *plan;
    (void)state;
    CHECK_OK(h2okv_cache_plan(c, &plan));
    CHECK(plan->n_freed == 1 && plan->freed_cell[0] == 2 && plan->freed_pos[0] == 0 && plan->n_lost == 0);
    CHECK(plan->n_moves == 1 && plan->moves[0].lane == 0 && plan->moves[0].from == 2 && plan->moves[0].to == 0);
    CHECK_OK(h2okv_cache_commit(c, plan));
    CHECK(SMALL_HOLDS(c, 0, 0, 2, 3) && cells_are(c, 0, (uint32_t[]){ 0, 3, 1 }, 3));
    CHECK(SMALL_HOLDS(c, 1, 1, 2, 3) && cells_are(c, 1, (uint32_t[]){ 0, 3, 1 }, 3));
    CHECK(small_score(c, 0, 0) >= 9 && small_score(c, 1, 1) >= 9);
    /* Cell 0 is now the engine's oldest, at its position 1, whatever the lanes hold there. */
    small_admit(c, 4, 1);
    small_give(c, 0, (float[]){ 0, 0, 0, 0 });
    small_give(c, 1, (float[]){ 0, 0, 0, 0 });
    CHECK_OK(h2okv_cache_plan(c, &plan));
    CHECK(plan->n_freed == 1 && plan->freed_cell[0] == 0 && plan->freed_pos[0] == 1);
    CHECK(plan->n_moves == 2 && plan->moves[0].lane == 0 && plan->moves[1].lane == 1);
    CHECK_OK(h2okv_cache_commit(c, plan));
    CHECK(SMALL_HOLDS(c, 0, 0, 2, 4) && cells_are(c, 0, (uint32_t[]){ 1, 3, 2 }, 3));
    CHECK(SMALL_HOLDS(c, 1, 1, 2, 4) && cells_are(c, 1, (uint32_t[]){ 1, 3, 2 }, 3));
    h2okv_cache_free(c);
}

/* Without a commit the plan never happened: plan as often as you like, the answer is the same. */
static void test_refused_plan_changes_nothing(void **state)
{
    h2okv_cache *c = two_lanes();
    snapshot before = snapshot_take(c, 2);
    const h2okv_plan *plan;
    (void)state;
    for (uint32_t i = 0; i < 3; i++) {
        CHECK_OK(h2okv_cache_plan(c, &plan));
        CHECK(plan->n_freed == 1 && plan->n_moves == 1 && plan->moves[0].from == 2 && plan->moves[0].to == 0);
        CHECK(snapshot_same(&before, c, 2));
        CHECK_OK(h2okv_cache_trim(c, 1, &plan));
        CHECK(plan->n_freed == 3 && snapshot_same(&before, c, 2));
    }
    CHECK(small_evict(c) == 1);
    CHECK(SMALL_HOLDS(c, 0, 0, 2, 3));
    snapshot_free(&before);
    h2okv_cache_free(c);
}

static void check_stale(h2okv_cache *c, const h2okv_plan *plan)
{
    snapshot before = snapshot_take(c, 2);
    CHECK_STATUS(h2okv_cache_commit(c, plan), H2OKV_E_STALE);
    CHECK(snapshot_same(&before, c, 2));
    snapshot_free(&before);
}

static void test_stale_plans(void **state)
{
    h2okv_cache *c = two_lanes(), *other = two_lanes();
    const h2okv_plan *plan, *foreign;
    h2okv_plan copy;
    (void)state;
    CHECK_OK(h2okv_cache_plan(c, &plan));
    CHECK_OK(h2okv_cache_plan(other, &foreign));
    check_stale(c, foreign);
    copy = *plan;
    copy.epoch--;
    check_stale(c, &copy);
    check_stale(c, NULL);
    CHECK_OK(h2okv_cache_commit(c, plan));
    check_stale(c, plan); /* twice */
    h2okv_cache_free(other);
    CHECK_OK(h2okv_cache_plan(c, &plan));
    small_admit(c, 4, 1);
    check_stale(c, plan); /* a token came in between */
    h2okv_cache_free(c);
    c = two_lanes();
    CHECK_OK(h2okv_cache_plan(c, &plan));
    h2okv_cache_clear(c);
    check_stale(c, plan);
    h2okv_cache_free(c);
}

static void test_observe_makes_a_plan_stale(void **state)
{
    h2okv_options o = small_options(2, 1, 2);
    const h2okv_plan *plan;
    (void)state;
    o.lanes = 2;
    o.policy = "window";
    h2okv_cache *c = small_create(&o);
    small_admit(c, 0, 4);
    CHECK_OK(h2okv_cache_plan(c, &plan));
    CHECK_OK(h2okv_cache_observe_mass(c, 0, NULL));
    check_stale(c, plan);
    h2okv_cache_free(c);
}

static void test_empty_plan_ends_a_pass(void **state)
{
    h2okv_options o = small_options(4, 1, 0);
    h2okv_cache_stats stats;
    const h2okv_plan *plan;
    (void)state;
    h2okv_cache *c = small_create(&o);
    CHECK_OK(h2okv_cache_plan(c, &plan));
    CHECK(plan->n_freed == 0 && plan->n_moves == 0);
    CHECK_OK(h2okv_cache_commit(c, plan));
    small_admit(c, 0, 4);
    small_idle(c, 1);
    CHECK(small_evict(c) == 0);
    h2okv_cache_get_stats(c, &stats);
    CHECK(stats.passes == 2 && stats.admitted == 4 && stats.evicted == 0 && stats.moves == 0 && stats.newest == 3);
    h2okv_cache_free(c);
}

/* Where a pass began must not outlive a clear: all six tokens are in grace here, so ranks decide. */
static void test_clear_in_mid_pass(void **state)
{
    h2okv_options o = small_options(4, 1, 2);
    (void)state;
    o.grace = 1;
    h2okv_cache *c = small_create(&o);
    small_admit(c, 0, 1);
    small_idle(c, 1);
    small_evict(c);
    small_admit(c, 3, 1);
    h2okv_cache_clear(c);
    small_admit(c, 0, 6);
    small_give(c, 0, (float[]){ 9, 8, 7, 1, 1, 0 });
    CHECK(small_evict(c) == 2);
    CHECK(SMALL_HOLDS(c, 0, 0, 1, 2, 5));
    h2okv_cache_free(c);
}

/* Nothing in a plan but what is needed: a lane that gives up exactly the oldest tokens moves nothing. */
static void test_window_moves_nothing(void **state)
{
    rig_options o = rig_defaults(7);
    (void)state;
    o.policy = "window";
    o.lanes = 5;
    o.cells = 40;
    o.scatter = 1;
    rig *r = rig_create(&o);
    for (uint32_t i = 0; i < 40; i++) {
        rig_pass(r, 1 + i % 9);
    }
    CHECK(r->engine.n_moves == 0);
    rig_free(r);
}

/* The checks of the make-believe engine can fail: one that frees but does not move is caught. */
static void test_engine_that_skips_moves_is_caught(void **state)
{
    rig_options o = rig_defaults(3);
    const char *wrong = NULL;
    (void)state;
    rig *r = rig_create(&o);
    r->engine.skip_moves = 1;
    for (uint32_t i = 0; i < 30 && !wrong; i++) {
        const h2okv_plan *plan;
        rig_admit(r, 3);
        rig_observe_all(r);
        CHECK_OK(h2okv_cache_plan(r->cache, &plan));
        oracle_evict(&r->oracle);
        rig_commit(r, plan, 0);
        wrong = rig_check(r);
    }
    CHECK(wrong != NULL && strcmp(wrong, "cell holds another token's K and V") == 0);
    rig_free(r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_by_hand),
        cmocka_unit_test(test_refused_plan_changes_nothing),
        cmocka_unit_test(test_stale_plans),
        cmocka_unit_test(test_observe_makes_a_plan_stale),
        cmocka_unit_test(test_empty_plan_ends_a_pass),
        cmocka_unit_test(test_clear_in_mid_pass),
        cmocka_unit_test(test_window_moves_nothing),
        cmocka_unit_test(test_engine_that_skips_moves_is_caught),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
