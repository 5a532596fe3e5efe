/*
 * test_presets.c - what each built-in policy stands for, against the oracle with its presets written out here; and the
 * presets of policies of one's own: older ones that have none, and values that cannot be.
 */
#include "support/check.h"
#include "support/rig.h"
#include "support/small.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct preset {
    const char *policy;
    uint32_t recent, sinks, pool; /* with a budget of 20 */
    double decay;
} preset;

static const preset presets[] = {
    { "h2o", 10, 0, 0, 1.0 },       { "h2o-paper", 10, 0, 0, 1.0 }, { "default", 10, 4, 0, 0.9968 },
    { "lifetime", 10, 4, 0, 1.0 },  { "snapkv", 10, 0, 3, 0.96875 }, { "streaming", 10, 4, 0, 1.0 },
    { "tova", 10, 0, 0, 1e-300 },   { "window", 10, 0, 0, 1.0 },    { "random", 10, 0, 0, 1.0 },
    { "full", 10, 0, 0, 1.0 },
};

enum { PRESETS = sizeof presets / sizeof presets[0] };

static h2okv_options of_policy(const char *policy, uint32_t budget)
{
    h2okv_options o;
    h2okv_options_init(&o);
    o.cells = 64;
    o.budget = budget;
    o.policy = policy;
    return o;
}

static int same(double a, double b)
{
    return a >= b && a <= b;
}

static void test_what_is_left_open_is_the_policys(void **state)
{
    uint32_t n = 0;
    (void)state;
    for (; h2okv_policy_name(n) != NULL; n++) {}
    CHECK(n == PRESETS);
    for (size_t i = 0; i < PRESETS; i++) {
        const preset *p = &presets[i];
        h2okv_options o = of_policy(p->policy, 20), now;
        h2okv_cache *c;
        check_context("policy %s", p->policy);
        CHECK_OK(h2okv_options_resolve(&o, &now, NULL));
        CHECK(now.recent == p->recent && now.sinks == p->sinks && now.pool == p->pool && same(now.decay, p->decay));
        CHECK_OK(h2okv_cache_create(&c, &o, NULL));
        h2okv_cache_get_options(c, &now);
        CHECK(now.recent == p->recent && now.sinks == p->sinks && now.pool == p->pool && same(now.decay, p->decay));
        h2okv_cache_free(c);
    }
}

static void test_what_is_given_is_kept(void **state)
{
    (void)state;
    for (size_t i = 0; i < PRESETS; i++) {
        h2okv_options o = of_policy(presets[i].policy, 20), now;
        check_context("policy %s", presets[i].policy);
        o.recent = 7;
        o.sinks = 0;
        o.pool = 0;
        o.decay = 1.0;
        CHECK_OK(h2okv_options_resolve(&o, &now, NULL));
        CHECK(now.recent == 7 && now.sinks == 0 && now.pool == 0 && same(now.decay, 1.0));
        o.pool = 9;
        o.sinks = 3;
        o.decay = 0.5;
        CHECK_OK(h2okv_options_resolve(&o, &now, NULL));
        CHECK(now.sinks == 3 && now.pool == 9 && same(now.decay, 0.5));
        /* Resolved options are options: they mean the same again. */
        h2okv_options again;
        CHECK_OK(h2okv_options_resolve(&now, &again, NULL));
        CHECK(memcmp(&again, &now, sizeof now) == 0);
    }
}

/* Sinks that the policy asks for give way in a small budget; sinks that the caller asks for are refused. */
static void test_sinks_in_small_budgets(void **state)
{
    static const uint32_t sinks[] = { 0, 0, 1, 2, 2, 3, 3, 4, 4, 4 }; /* budget 0..9, half of it recent */
    (void)state;
    for (uint32_t budget = 1; budget < 10; budget++) {
        h2okv_options o = of_policy("default", budget), now;
        check_context("budget %u", budget);
        CHECK_OK(h2okv_options_resolve(&o, &now, NULL));
        CHECK(now.recent == budget / 2 && now.sinks == sinks[budget]);
    }
    h2okv_options o = of_policy("default", 6);
    o.recent = 6; /* all of it */
    CHECK_OK(h2okv_options_resolve(&o, &o, NULL));
    CHECK(o.sinks == 0);
    o.sinks = 1;
    CHECK_STATUS(h2okv_options_check(&o, NULL), H2OKV_E_INVALID);
}

/* The presets as above, ranks by the oracle's own rules. */
static void test_each_as_the_oracle(void **state)
{
    (void)state;
    for (uint32_t seed = 1; seed <= 24; seed++) {
        for (size_t i = 0; i < PRESETS; i++) {
            const preset *p = &presets[i];
            if (strcmp(p->policy, "random") == 0 || strcmp(p->policy, "full") == 0) {
                continue; /* test_policies.c and core/test_trace.c */
            }
            rig_options o = rig_defaults(seed);
            o.policy = p->policy;
            o.budget = 20;
            o.cells = 32;
            o.recent = p->recent;
            o.sinks = p->sinks;
            o.pool = p->pool;
            o.decay = p->decay;
            o.group = 1 + seed % 3;
            o.gaps = seed % 2;
            o.scatter = 1;
            rig *r = rig_create(&o);
            for (uint32_t step = 0; step < 20; step++) {
                check_context("policy %s, seed %u, step %u", p->policy, seed, step);
                rig_pass(r, 1 + (step * seed) % 12);
            }
            rig_free(r);
        }
    }
}

/* ---- Policies of one's own ---- */

static h2okv_policy own_policy(void)
{
    h2okv_policy p = *h2okv_policy_find("h2o");
    p.name = "own";
    p.recent_share = 0.25;
    p.sinks = 2;
    p.pool = 6;
    p.decay = 0.5;
    return p;
}

static void test_own_presets(void **state)
{
    h2okv_policy p = own_policy();
    h2okv_options o = of_policy(NULL, 20), now;
    h2okv_cache *c;
    (void)state;
    o.custom_policy = &p;
    CHECK_OK(h2okv_cache_create(&c, &o, NULL));
    memset(&p, 0, sizeof p); /* it was copied */
    h2okv_cache_get_options(c, &now);
    CHECK(now.recent == 5 && now.sinks == 2 && now.pool == 6 && same(now.decay, 0.5));
    CHECK_OK(h2okv_cache_set_budget(c, 40, H2OKV_AUTO, NULL));
    h2okv_cache_get_options(c, &now);
    CHECK(now.recent == 10 && now.budget == 40);
    h2okv_cache_free(c);
}

/* Built before there were presets: 32 bytes, and nothing behind them may be read. */
static void test_an_older_policy_is_plain(void **state)
{
    const uint32_t known = offsetof(h2okv_policy, recent_share);
    h2okv_policy p = own_policy(), *old = malloc(known);
    h2okv_options o = of_policy(NULL, 20), now;
    h2okv_cache *c;
    (void)state;
    CHECK(old != NULL);
    p.size = known;
    memcpy((void *)old, &p, known);
    o.custom_policy = old;
    CHECK_OK(h2okv_cache_create(&c, &o, NULL));
    free(old);
    h2okv_cache_get_options(c, &now);
    CHECK(now.recent == 10 && now.sinks == 0 && now.pool == 0 && same(now.decay, 1.0));
    CHECK(now.custom_policy->size == sizeof p && strcmp(now.custom_policy->name, "own") == 0);
    h2okv_cache_free(c);
}

static void test_a_newer_policy_only_with_zeros(void **state)
{
    struct {
        h2okv_policy known;
        uint64_t unknown[2];
    } newer = { .known = own_policy() };
    h2okv_options o = of_policy(NULL, 20);
    h2okv_error error;
    (void)state;
    newer.known.size = sizeof newer;
    o.custom_policy = &newer.known;
    CHECK_OK(h2okv_options_check(&o, NULL));
    newer.unknown[1] = 1;
    CHECK_STATUS(h2okv_options_check(&o, &error), H2OKV_E_INVALID);
    CHECK(strcmp(error.field, "custom_policy") == 0 && strstr(error.text, "72") != NULL);
}

static void test_presets_that_cannot_be(void **state)
{
    static const double bad[] = { -0.25, 1.25, 1e300, -INFINITY, INFINITY, NAN };
    (void)state;
    for (size_t i = 0; i < 2 * (sizeof bad / sizeof bad[0]); i++) {
        h2okv_policy p = own_policy();
        h2okv_options o = of_policy(NULL, 20);
        h2okv_error error;
        h2okv_cache *c;
        *(i % 2 ? &p.decay : &p.recent_share) = bad[i / 2];
        o.custom_policy = &p;
        check_context("%s %g", i % 2 ? "decay" : "recent_share", bad[i / 2]);
        CHECK_STATUS(h2okv_cache_create(&c, &o, &error), H2OKV_E_INVALID);
        CHECK(strcmp(error.field, "custom_policy") == 0);
        CHECK(strstr(error.text, i % 2 ? "decay" : "recent_share") != NULL);
    }
    h2okv_policy p = own_policy();
    h2okv_options o = of_policy(NULL, 20), now;
    o.custom_policy = &p;
    p.recent_share = 1.0;
    p.sinks = UINT32_MAX;
    p.pool = UINT32_MAX - 1;
    CHECK_OK(h2okv_options_resolve(&o, &now, NULL));
    CHECK(now.recent == 20 && now.sinks == 0 && now.pool == UINT32_MAX - 1);
}

/* ---- By hand ---- */

static h2okv_cache *after_two_passes(const char *policy)
{
    h2okv_options o = small_options(4, 1, 8);
    o.policy = policy;
    o.sinks = 0;
    h2okv_cache *c = small_create(&o);
    small_admit(c, 0, 4);
    small_give(c, 0, (const float[]){ .9f, .3f, .2f, .1f });
    small_evict(c);
    small_admit(c, 4, 2);
    small_give(c, 0, (const float[]){ .1f, .2f, .25f, .4f, .05f, 0 });
    small_evict(c);
    return c;
}

static void test_by_hand(void **state)
{
    (void)state;
    h2okv_cache *c = after_two_passes("h2o"); /* 1 .5 .45 .5 .05 | recent */
    CHECK(SMALL_HOLDS(c, 0, 0, 1, 3, 5));
    h2okv_cache_free(c);
    c = after_two_passes("tova"); /* .1 .2 .25 .4 .05 */
    CHECK(SMALL_HOLDS(c, 0, 1, 2, 3, 5));
    h2okv_cache_free(c);
    c = after_two_passes("lifetime"); /* 1/6 .5/5 .45/4 .5/3 .05/2 */
    CHECK(SMALL_HOLDS(c, 0, 0, 2, 3, 5));
    h2okv_cache_free(c);
    c = after_two_passes("snapkv"); /* pooled +-3: .94 .94 .94 .94 .48: 0 is the oldest of equals */
    CHECK(SMALL_HOLDS(c, 0, 1, 2, 3, 5));
    h2okv_cache_free(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_is_left_open_is_the_policys),
        cmocka_unit_test(test_what_is_given_is_kept),
        cmocka_unit_test(test_sinks_in_small_budgets),
        cmocka_unit_test(test_each_as_the_oracle),
        cmocka_unit_test(test_own_presets),
        cmocka_unit_test(test_an_older_policy_is_plain),
        cmocka_unit_test(test_a_newer_policy_only_with_zeros),
        cmocka_unit_test(test_presets_that_cannot_be),
        cmocka_unit_test(test_by_hand),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
