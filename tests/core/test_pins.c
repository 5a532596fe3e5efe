/* test_pins.c - pinned positions stay whatever their ranks, and the budget can change between passes. */
#include "support/check.h"
#include "support/rig.h"
#include "support/small.h"
#include "support/snapshot.h"

#include <string.h>

static int holds(const h2okv_cache *cache, uint32_t lane, int32_t pos)
{
    int32_t kept[64];
    uint32_t n = h2okv_cache_kept(cache, lane, kept, NULL, NULL);
    for (uint32_t i = 0; i < n; i++) {
        if (kept[i] == pos) {
            return 1;
        }
    }
    return 0;
}

/* Against the oracle: pins before their tokens come and after, overlapping sinks and each other. */
static void test_pinned_tokens_stay(void **state)
{
    (void)state;
    for (uint32_t seed = 1; seed <= 40; seed++) {
        rig_options o = rig_defaults(seed);
        o.sinks = seed % 3;
        o.recent = 1 + seed % 5;
        o.grace = seed % 4;
        o.coarse = seed % 2;
        o.pool = seed % 5 == 0 ? 2 : 0;
        check_context("seed %u", seed);
        rig *r = rig_create(&o);
        rig_pin(r, 1, 3);
        rig_pass(r, 5);
        rig_pin(r, 3, 4);
        rig_pin(r, 20, 22);
        for (uint32_t i = 0; i < 25; i++) {
            rig_pass(r, 1 + (i + seed) % 8);
            for (uint32_t l = 0; l < o.lanes; l++) {
                CHECK(holds(r->cache, l, 1) && holds(r->cache, l, 2) && holds(r->cache, l, 3));
                CHECK(r->next_pos < 22 || (holds(r->cache, l, 20) && holds(r->cache, l, 21)));
            }
        }
        rig_free(r);
    }
}

static void refused(h2okv_cache *cache, int32_t first, int32_t end, const char *text)
{
    h2okv_error error;
    CHECK_STATUS(h2okv_cache_pin(cache, first, end, &error), H2OKV_E_INVALID);
    check_context("pin %d:%d says: %s", first, end, error.text);
    CHECK(strcmp(error.field, "pin") == 0 && strstr(error.text, text) != NULL);
    CHECK_STATUS(h2okv_cache_pin(cache, first, end, NULL), H2OKV_E_INVALID);
}

static void test_what_does_not_fit_is_refused(void **state)
{
    (void)state;
    h2okv_options o = small_options(8, 3, 4);
    o.sinks = 2;
    h2okv_cache *c = small_create(&o);
    refused(c, -1, 2, "pin is -1:2: the first position must be from 0 and before the end");
    refused(c, 5, 5, "pin is 5:5");
    refused(c, 7, 3, "pin is 7:3");
    refused(c, 2, 6, "pinned tokens are 4: with 2 sinks and 3 recent tokens they are over the budget, 8");
    CHECK_OK(h2okv_cache_pin(c, 0, 5, NULL)); /* two of these are sinks */
    refused(c, 9, 10, "pinned tokens are 4");
    CHECK_OK(h2okv_cache_pin(c, 1, 4, NULL)); /* they are already */
    h2okv_cache_free(c);
}

static void test_tokens_that_are_gone_are_refused(void **state)
{
    (void)state;
    h2okv_options o = small_options(4, 2, 4);
    h2okv_cache *c = small_create(&o);
    small_admit(c, 0, 6);
    small_give(c, 0, (const float[]){ 3, 0, 2, 0, 0, 0 });
    small_evict(c);
    CHECK(SMALL_HOLDS(c, 0, 0, 2, 4, 5));
    refused(c, 1, 2, "not all of these tokens are held any more");
    refused(c, 0, 3, "not all of these tokens are held any more");
    CHECK_OK(h2okv_cache_pin(c, 2, 3, NULL));
    CHECK_OK(h2okv_cache_pin(c, 5, 6, NULL)); /* held, and to stay when it is recent no more */
    for (int32_t pos = 6; pos < 12; pos++) {
        small_admit(c, pos, 1);
        small_give(c, 0, (const float[]){ 1, 0, 1, 1, 1 });
        small_evict(c);
    }
    CHECK(SMALL_HOLDS(c, 0, 2, 5, 10, 11));
    h2okv_cache_free(c);
}

static void test_there_is_room_for_16_ranges(void **state)
{
    (void)state;
    h2okv_options o = small_options(100, 3, 4);
    h2okv_cache *c = small_create(&o);
    for (int32_t i = 0; i < H2OKV_MOST_PINS; i++) {
        CHECK_OK(h2okv_cache_pin(c, 10 * i, 10 * i + 2, NULL));
    }
    refused(c, 500, 501, "pin 500:501 would be one range more than the 16 there may be");
    CHECK_OK(h2okv_cache_pin(c, 2, 10, NULL)); /* makes one of two */
    CHECK_OK(h2okv_cache_pin(c, 500, 501, NULL));
    refused(c, 600, 601, "one range more");
    h2okv_cache_clear(c);
    CHECK_OK(h2okv_cache_pin(c, 600, 690, NULL));
    h2okv_cache_free(c);
}

/* Positions cut off come again as others: they are not pinned. */
static void test_a_trim_cuts_pins(void **state)
{
    (void)state;
    h2okv_options o = small_options(4, 1, 4);
    h2okv_cache *c = small_create(&o);
    CHECK_OK(h2okv_cache_pin(c, 0, 3, NULL));
    small_admit(c, 0, 4);
    small_idle(c, 1);
    small_evict(c);
    small_trim(c, 1);
    for (int32_t pos = 1; pos < 9; pos++) {
        small_admit(c, pos, 1);
        small_idle(c, 1);
        small_evict(c);
    }
    CHECK(SMALL_HOLDS(c, 0, 0, 6, 7, 8));
    h2okv_cache_free(c);
}

/* ---- The budget ---- */

static void test_the_budget_changes_between_passes(void **state)
{
    (void)state;
    for (uint32_t seed = 1; seed <= 30; seed++) {
        rig_options o = rig_defaults(seed);
        check_context("seed %u", seed);
        o.cells = 32;
        o.sinks = seed % 3;
        rig *r = rig_create(&o);
        for (uint32_t i = 0; i < 30; i++) {
            uint32_t budget = 6 + (seed * 7 + i * 5) % 18;
            rig_set_budget(r, budget, 1 + (i + seed) % 4);
            rig_evict(r);
            CHECK(h2okv_cache_live(r->cache) <= budget);
            rig_pass(r, 1 + i % 8);
        }
        rig_free(r);
    }
}

static void budget_refused(h2okv_cache *cache, uint32_t budget, uint32_t recent, int status, const char *field,
                           const char *text)
{
    h2okv_error error;
    h2okv_options before, after;
    h2okv_cache_get_options(cache, &before);
    CHECK_STATUS(h2okv_cache_set_budget(cache, budget, recent, &error), status);
    check_context("budget %u, recent %u says: %s", budget, recent, error.text);
    CHECK(strcmp(error.field, field) == 0 && strstr(error.text, text) != NULL);
    h2okv_cache_get_options(cache, &after);
    CHECK(before.budget == after.budget && before.recent == after.recent);
}

static void test_budgets_that_cannot_be(void **state)
{
    (void)state;
    h2okv_options o = small_options(8, 3, 4), now;
    o.sinks = 2;
    h2okv_cache *c = small_create(&o);
    budget_refused(c, 0, 1, H2OKV_E_INVALID, "budget", "budget is 0: it must be from 1 to the number of cells, 12");
    budget_refused(c, 13, 1, H2OKV_E_INVALID, "budget", "budget is 13");
    budget_refused(c, 4, 5, H2OKV_E_INVALID, "recent", "recent is 5");
    budget_refused(c, 4, 3, H2OKV_E_INVALID, "sinks", "sinks is 2");
    CHECK_OK(h2okv_cache_pin(c, 3, 5, NULL));
    budget_refused(c, 6, 3, H2OKV_E_INVALID, "pin", "pinned tokens are 2: with 2 sinks and 3 recent tokens");
    CHECK_OK(h2okv_cache_set_budget(c, 12, H2OKV_AUTO, NULL));
    h2okv_cache_get_options(c, &now);
    CHECK(now.budget == 12 && now.recent == 6 && now.sinks == 2);
    small_admit(c, 0, 1);
    budget_refused(c, 8, 3, H2OKV_E_ORDER, "budget", "between passes only");
    h2okv_cache_clear(c);
    h2okv_cache_get_options(c, &now);
    CHECK(now.budget == 8 && now.recent == 3);
    h2okv_cache_free(c);
}

/* A plan made for another budget must not be committed. */
static void test_a_change_makes_plans_stale(void **state)
{
    (void)state;
    const h2okv_plan *plan;
    h2okv_options o = small_options(8, 3, 4);
    h2okv_cache *c = small_create(&o);
    CHECK_OK(h2okv_cache_plan(c, &plan));
    CHECK_OK(h2okv_cache_set_budget(c, 7, 3, NULL));
    CHECK_STATUS(h2okv_cache_commit(c, plan), H2OKV_E_STALE);
    CHECK_OK(h2okv_cache_plan(c, &plan));
    CHECK_OK(h2okv_cache_pin(c, 3, 4, NULL));
    CHECK_STATUS(h2okv_cache_commit(c, plan), H2OKV_E_STALE);
    h2okv_cache_free(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pinned_tokens_stay),
        cmocka_unit_test(test_what_does_not_fit_is_refused),
        cmocka_unit_test(test_tokens_that_are_gone_are_refused),
        cmocka_unit_test(test_there_is_room_for_16_ranges),
        cmocka_unit_test(test_a_trim_cuts_pins),
        cmocka_unit_test(test_the_budget_changes_between_passes),
        cmocka_unit_test(test_budgets_that_cannot_be),
        cmocka_unit_test(test_a_change_makes_plans_stale),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
