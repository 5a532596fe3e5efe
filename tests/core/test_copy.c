/*
 * test_copy.c - a fork shows what the original shows, goes on as it would have, and neither knows of the other. And which
 * options must be equal, for a copy as for a restore.
 */
#include "support/check.h"
#include "support/rig.h"
#include "support/small.h"
#include "support/snapshot.h"

#include <stdlib.h>
#include <string.h>

enum { SEEDS = 42 };

/* A used cache gets the books, so that whatever is not copied shows. */
static rig *fork_of(rig *r)
{
    rig *twin = rig_twin(r);
    small_admit(twin->cache, 7, 9);
    small_idle(twin->cache, r->options.lanes);
    small_evict(twin->cache);
    CHECK_OK(h2okv_cache_pin(twin->cache, 11, 13, NULL));
    CHECK_OK(h2okv_cache_copy(twin->cache, r->cache, NULL));
    return twin;
}

static void test_fork_goes_on_as_the_original(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        rig *r = rig_with_a_past(seed);
        rig *twin = fork_of(r);
        check_context("seed %u, policy %s", (unsigned)seed, r->options.policy);
        CHECK_RIGHT(rig_differ(r, twin));
        CHECK_RIGHT(rig_check(twin));
        for (uint32_t i = 0; i < 200; i++) {
            uint32_t n = 1 + (i % 5 == 0);
            check_context("seed %u, policy %s, pass %u", (unsigned)seed, r->options.policy, i);
            rig_pass(r, n);
            rig_pass(twin, n);
            CHECK_RIGHT(rig_differ(r, twin));
        }
        rig_free(twin);
        rig_free(r);
    }
}

static void test_each_goes_its_own_way(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        rig *r = rig_with_a_past(seed);
        rig *twin = fork_of(r);
        snapshot before = snapshot_take(r->cache, r->options.lanes);
        check_context("seed %u", (unsigned)seed);
        rig_pass(twin, 5);
        rig_trim(twin, twin->next_pos - 2);
        rig_pass(twin, 1);
        CHECK(snapshot_same(&before, r->cache, r->options.lanes));
        rig_pass(r, 3);
        CHECK_RIGHT(rig_check(twin));
        snapshot_free(&before);
        rig_free(twin);
        rig_free(r);
    }
}

static const double *other_rank(const h2okv_lane_view *lane, double *scratch)
{
    (void)scratch;
    return lane->score;
}

static const h2okv_policy other_h2o = { .size = sizeof other_h2o, .flags = H2OKV_POLICY_NEEDS_SCORES, .name = "h2o",
                                        .rank = other_rank };

typedef struct refusal {
    const char *field, *text;
} refusal;

static void check_refused(h2okv_cache *to, uint32_t lanes, const snapshot *before, int status, const h2okv_error *error,
                          refusal expected)
{
    CHECK_STATUS(status, H2OKV_E_INVALID);
    check_context("%s says: %s", error->field, error->text);
    CHECK(error->status == H2OKV_E_INVALID && strcmp(error->field, expected.field) == 0);
    CHECK(strstr(error->text, expected.text) != NULL);
    CHECK(snapshot_same(before, to, lanes));
}

/* As a copy and, but for what books on their own do not show, as a restore. */
static void refused(const h2okv_cache *from, const h2okv_options *other, refusal expected)
{
    h2okv_cache *to = small_create(other);
    h2okv_error error = { .status = 0 };
    snapshot before = snapshot_take(to, other->lanes);
    check_context("%s", expected.field);
    check_refused(to, other->lanes, &before, h2okv_cache_copy(to, from, &error), &error, expected);
    if (strcmp(expected.field, "cells") != 0 && strcmp(expected.field, "custom_policy") != 0) {
        size_t bytes = h2okv_cache_state_bytes(from);
        void *block = malloc(bytes);
        CHECK(block != NULL);
        CHECK_OK(h2okv_cache_save(from, block, bytes, NULL));
        error = (h2okv_error){ .status = 0 };
        check_refused(to, other->lanes, &before, h2okv_cache_restore(to, block, bytes, NULL, &error), &error, expected);
        free(block);
    }
    snapshot_free(&before);
    h2okv_cache_free(to);
}

static void test_other_options_are_refused_by_name(void **state)
{
    (void)state;
    static const struct {
        size_t at;
        uint32_t value;
        const char *field, *text;
    } count[] = {
        { offsetof(h2okv_options, lanes), 3, "lanes", "lanes is 2 where the books come from and 3 here" },
        { offsetof(h2okv_options, cells), 25, "cells", "cells is 24 " },
        { offsetof(h2okv_options, budget), 13, "budget", "budget is 12 where the books come from and 13 here" },
        { offsetof(h2okv_options, recent), 5, "recent", "recent is 6 where the books come from and 5 here" },
        { offsetof(h2okv_options, sinks), 1, "sinks", "sinks is 0 where the books come from and 1 here" },
        { offsetof(h2okv_options, pool), 2, "pool", "pool is 0 where the books come from and 2 here" },
        { offsetof(h2okv_options, grace), 1, "grace", "grace is 0 where the books come from and 1 here" },
        { offsetof(h2okv_options, count_self), 0, "count_self", "count_self is 1 " },
        { offsetof(h2okv_options, heads), H2OKV_HEADS_MEAN, "heads", "heads is 0 where the books come from and 1" },
    };
    rig_options ro = rig_defaults(3);
    rig *r = rig_create(&ro);
    rig_pass(r, 9);
    for (size_t i = 0; i < sizeof count / sizeof count[0]; i++) {
        h2okv_options o = r->created;
        memcpy((char *)&o + count[i].at, &count[i].value, sizeof count[i].value);
        refused(r->cache, &o, (refusal){ count[i].field, count[i].text });
    }
    h2okv_options policy = r->created, decay = r->created, seed = r->created, custom = r->created;
    policy.policy = "lifetime";
    decay.decay = 0.5;
    seed.seed = 77;
    custom.custom_policy = &other_h2o;
    refused(r->cache, &policy, (refusal){ "policy", "policy is \"h2o\" where the books come from and \"lifetime\" here" });
    refused(r->cache, &decay, (refusal){ "decay", "decay is 1 where the books come from and 0.5 here" });
    refused(r->cache, &seed, (refusal){ "seed", "seed is 3 where the books come from and 77 here" });
    refused(r->cache, &custom, (refusal){ "custom_policy", "one name, \"h2o\", and different rank functions" });
    rig_free(r);
}

/* How a lane is observed is no part of its books. */
static void test_parts_may_differ(void **state)
{
    (void)state;
    h2okv_options o = small_options(4, 2, 4);
    h2okv_cache *from = small_create(&o);
    o.parts = 3;
    h2okv_cache *to = small_create(&o);
    small_admit(from, 0, 6);
    small_give(from, 0, (float[]){ 3, 4, 0, 0, 0, 0 });
    small_evict(from);
    CHECK_OK(h2okv_cache_copy(to, from, NULL));
    CHECK(SMALL_HOLDS(to, 0, 0, 1, 4, 5));
    h2okv_cache_free(to);
    h2okv_cache_free(from);
}

static void refused_in_a_pass(h2okv_cache *to, h2okv_cache *from, const char *field)
{
    h2okv_error error;
    snapshot before = snapshot_take(to, 1);
    CHECK_STATUS(h2okv_cache_copy(to, from, &error), H2OKV_E_ORDER);
    check_context("%s", error.text);
    CHECK(strcmp(error.field, field) == 0 && strstr(error.text, "middle of a pass") != NULL);
    CHECK(snapshot_same(&before, to, 1));
    snapshot_free(&before);
}

static void test_only_between_passes(void **state)
{
    (void)state;
    h2okv_options o = small_options(4, 2, 4);
    h2okv_cache *from = small_create(&o), *to = small_create(&o);
    small_admit(from, 0, 2);
    refused_in_a_pass(to, from, "from");
    refused_in_a_pass(from, to, "to");
    small_idle(from, 1);
    refused_in_a_pass(to, from, "from");
    small_admit(from, 2, 2);
    CHECK_OK(h2okv_cache_abandon(from)); /* the first two are still under way */
    refused_in_a_pass(to, from, "from");
    small_evict(from);
    CHECK_OK(h2okv_cache_copy(to, from, NULL));
    CHECK(SMALL_HOLDS(to, 0, 0, 1));
    h2okv_cache_free(to);
    h2okv_cache_free(from);
}

/* A plan of before is stale in the copy, and still good in the original. */
static void test_plans(void **state)
{
    (void)state;
    h2okv_options o = small_options(4, 2, 4);
    h2okv_cache *from = small_create(&o), *to = small_create(&o);
    const h2okv_plan *old, *good;
    small_admit(from, 0, 3);
    small_idle(from, 1);
    small_evict(from);
    CHECK_OK(h2okv_cache_plan(to, &old));
    CHECK_OK(h2okv_cache_trim(from, 1, &good));
    CHECK_OK(h2okv_cache_copy(to, from, NULL));
    CHECK_STATUS(h2okv_cache_commit(to, old), H2OKV_E_STALE);
    CHECK_STATUS(h2okv_cache_commit(to, good), H2OKV_E_STALE);
    CHECK_OK(h2okv_cache_commit(from, good));
    CHECK(SMALL_HOLDS(from, 0, 0) && SMALL_HOLDS(to, 0, 0, 1, 2));
    CHECK_OK(h2okv_cache_trim(to, 2, &good));
    CHECK_OK(h2okv_cache_copy(to, to, NULL)); /* onto itself: nothing happens */
    CHECK_OK(h2okv_cache_commit(to, good));
    CHECK(SMALL_HOLDS(to, 0, 0, 1));
    h2okv_cache_free(to);
    h2okv_cache_free(from);
}

static void count_event(void *user, const h2okv_event *event)
{
    (void)event;
    ++*(uint32_t *)user;
}

/* Callbacks stay each cache's own, and clear() goes back to the options of create. */
static void test_what_stays_its_own(void **state)
{
    (void)state;
    uint32_t theirs = 0, ours = 0;
    h2okv_options o = small_options(6, 2, 4), now;
    o.on_event = count_event;
    o.event_user = &theirs;
    h2okv_cache *from = small_create(&o);
    o.event_user = &ours;
    h2okv_cache *to = small_create(&o);
    CHECK_OK(h2okv_cache_set_budget(from, 4, 1, NULL));
    small_admit(from, 0, 4);
    small_idle(from, 1);
    small_evict(from);
    CHECK_OK(h2okv_cache_copy(to, from, NULL));
    small_admit(to, 4, 1);
    small_idle(to, 1);
    CHECK(small_evict(to) == 1 && ours == 1 && theirs == 0);
    h2okv_cache_get_options(to, &now);
    CHECK(now.budget == 4 && now.recent == 1);
    h2okv_cache_clear(to);
    h2okv_cache_get_options(to, &now);
    CHECK(now.budget == 6 && now.recent == 2);
    h2okv_cache_free(to);
    h2okv_cache_free(from);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fork_goes_on_as_the_original),
        cmocka_unit_test(test_each_goes_its_own_way),
        cmocka_unit_test(test_other_options_are_refused_by_name),
        cmocka_unit_test(test_parts_may_differ),
        cmocka_unit_test(test_only_between_passes),
        cmocka_unit_test(test_plans),
        cmocka_unit_test(test_what_stays_its_own),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
