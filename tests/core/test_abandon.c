/* test_abandon.c - a pass that the engine gave up: the cache is as it was before the admit, whatever was observed. */
#include "support/check.h"
#include "support/rig.h"
#include "support/snapshot.h"

/* Admit n tokens, observe the first `lanes` lanes (the last of them only in part when it has parts), take it back.
 * Their positions leap ahead, so that the next pass begins before them. */
static void give_up(rig *r, uint32_t n, uint32_t lanes)
{
    static rig saved;
    saved = *r;
    snapshot before = snapshot_take(r->cache, r->options.lanes);
    r->next_pos += 5;
    rig_admit(r, n);
    for (uint32_t l = 0; l < lanes; l++) {
        for (uint32_t part = 0; part < r->options.parts; part++) {
            if (part == 0 || l + 1 < lanes) {
                rig_observe(r, l);
            }
        }
    }
    CHECK(!snapshot_same(&before, r->cache, r->options.lanes));
    CHECK_OK(h2okv_cache_abandon(r->cache));
    CHECK(snapshot_same(&before, r->cache, r->options.lanes));
    CHECK_STATUS(h2okv_cache_abandon(r->cache), H2OKV_E_ORDER);
    snapshot_free(&before);
    *r = saved;
}

static rig *begun(uint64_t seed, uint32_t parts, double decay, uint32_t grace)
{
    rig_options o = rig_defaults(seed);
    o.lanes = 4;
    o.parts = parts;
    o.decay = decay;
    o.grace = grace;
    rig *r = rig_create(&o);
    CHECK_STATUS(h2okv_cache_abandon(r->cache), H2OKV_E_ORDER);
    for (uint32_t i = 0; i < 8; i++) {
        rig_pass(r, 8); /* the largest passes: peak_live is theirs */
    }
    return r;
}

/* The oracle never hears of the passes given up, and agrees ever after. */
static void test_nothing_stays(void **state)
{
    (void)state;
    for (uint32_t seed = 1; seed <= 24; seed++) {
        check_context("seed %u", seed);
        rig *r = begun(seed, 1 + seed % 2, seed % 3 ? 1.0 : 0.97, seed % 4);
        for (uint32_t i = 0; i < 15; i++) {
            give_up(r, 1 + (i + seed) % 7, i % 5);
            rig_pass(r, 1 + i % 4);
        }
        rig_free(r);
    }
}

static void test_a_first_pass_may_be_given_up(void **state)
{
    (void)state;
    rig_options o = rig_defaults(3);
    rig *r = rig_create(&o);
    rig fresh = *r;
    rig_admit(r, 5);
    rig_observe(r, 0);
    CHECK_OK(h2okv_cache_abandon(r->cache));
    CHECK(h2okv_cache_live(r->cache) == 0);
    *r = fresh;
    for (uint32_t i = 0; i < 20; i++) {
        rig_pass(r, 5);
    }
    rig_free(r);
}

/* Of two admits in a pass only the last is taken back. */
static void test_an_earlier_admit_of_the_pass_stays(void **state)
{
    (void)state;
    rig *r = begun(9, 1, 0.99, 2);
    rig_admit(r, 3);
    rig_observe_all(r);
    give_up(r, 4, 2);
    rig_evict(r);
    rig_pass(r, 6);
    rig_free(r);
}

static void test_a_plan_made_before_is_stale(void **state)
{
    (void)state;
    rig *r = begun(5, 1, 1.0, 0);
    const h2okv_plan *plan;
    rig_admit(r, 4);
    rig_observe_all(r);
    CHECK_OK(h2okv_cache_plan(r->cache, &plan));
    CHECK_OK(h2okv_cache_abandon(r->cache));
    CHECK_STATUS(h2okv_cache_commit(r->cache, plan), H2OKV_E_STALE);
    rig_free(r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nothing_stays),
        cmocka_unit_test(test_a_first_pass_may_be_given_up),
        cmocka_unit_test(test_an_earlier_admit_of_the_pass_stays),
        cmocka_unit_test(test_a_plan_made_before_is_stale),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
