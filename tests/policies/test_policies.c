/*
 * test_policies.c - the built-in policies: their list, what each keeps by hand, and that none depends on how a
 * text is split into passes. Against the oracle they run in core/test_trace.c.
 */
#include "support/check.h"
#include "support/small.h"

#include <math.h>
#include <string.h>

static void test_registry(void **state)
{
    static const char *const names[] = { "default", "h2o", "h2o-paper", "snapkv", "tova", "lifetime", "streaming", "window",
                                         "random", "full" };
    uint32_t n = 0;
    (void)state;
    for (; h2okv_policy_name(n) != NULL; n++) {
        const h2okv_policy *p = h2okv_policy_find(h2okv_policy_name(n));
        CHECK(p != NULL && strcmp(p->name, h2okv_policy_name(n)) == 0 && p->rank != NULL);
        CHECK(p->size == sizeof *p && strcmp(p->summary, h2okv_policy_summary(n)) == 0);
        CHECK(strlen(p->summary) > 0 && strchr(p->summary, '\n') == NULL);
        for (uint32_t i = 0; i < n; i++) {
            CHECK(strcmp(h2okv_policy_name(i), h2okv_policy_name(n)) != 0);
        }
    }
    CHECK(n >= 4 && strcmp(h2okv_policy_name(0), "default") == 0);
    CHECK(h2okv_policy_summary(n) == NULL && h2okv_policy_name(UINT32_MAX) == NULL);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        CHECK(h2okv_policy_find(names[i]) != NULL);
    }
    CHECK(h2okv_policy_find(NULL) == NULL && h2okv_policy_find("") == NULL && h2okv_policy_find("H2O") == NULL);
}

static void test_window_is_the_newest(void **state)
{
    h2okv_options o = small_options(6, 1, 9);
    (void)state;
    o.policy = "window";
    h2okv_cache *c = small_create(&o);
    small_admit(c, 0, 15);
    small_give(c, 0, (float[]){ 9, 9, 9, 9, 9, 9, 0, 0, 0, 0, 0, 0, 0, 0, 0 }); /* changes nothing */
    small_evict(c);
    CHECK(SMALL_HOLDS(c, 0, 9, 10, 11, 12, 13, 14));
    h2okv_cache_free(c);
    o.sinks = 2;
    c = small_create(&o);
    small_admit(c, 0, 15);
    small_evict(c);
    CHECK(SMALL_HOLDS(c, 0, 0, 1, 11, 12, 13, 14));
    h2okv_cache_free(c);
}

static void test_full_never_evicts(void **state)
{
    h2okv_options o = small_options(2, 1, 30);
    h2okv_cache_stats stats;
    (void)state;
    o.policy = "full";
    h2okv_cache *c = small_create(&o);
    for (int32_t p = 0; p < 32; p++) {
        small_admit(c, p, 1);
        CHECK(small_evict(c) == 0);
    }
    h2okv_cache_get_stats(c, &stats);
    CHECK(stats.live == 32 && stats.evicted == 0 && stats.passes == 32);
    h2okv_cache_free(c);
}

/* Every policy ranks every token, and by the view alone. */
static void test_ranks_are_numbers(void **state)
{
    h2okv_options o = small_options(6, 1, 3);
    h2okv_lane_view view;
    (void)state;
    o.lanes = 2;
    h2okv_cache *c = small_create(&o);
    small_admit(c, 5, 7);
    small_give(c, 1, (float[]){ 9, 0, 3, 0, 1, 2, 0 });
    CHECK_OK(h2okv_cache_lane(c, 1, &view));
    for (uint32_t i = 0; h2okv_policy_name(i) != NULL; i++) {
        double first[16], second[16];
        const double *a = h2okv_policy_find(h2okv_policy_name(i))->rank(&view, first);
        const double *b = h2okv_policy_find(h2okv_policy_name(i))->rank(&view, second);
        check_context("policy %s", h2okv_policy_name(i));
        for (uint32_t k = 0; k < view.live; k++) {
            CHECK(isfinite(a[view.order[k]]));
            CHECK(a[view.order[k]] >= b[view.order[k]] && a[view.order[k]] <= b[view.order[k]]);
        }
    }
    h2okv_cache_free(c);
}

/* `tokens` tokens in passes of `chunk` with equal attention for all, into pos [lane][budget]. */
enum { TOKENS = 400, BUDGET = 40, LANES = 5 };

static void keep_of(const char *policy, uint64_t seed, uint32_t chunk, int32_t pos[LANES][BUDGET])
{
    h2okv_options o = small_options(BUDGET, 4, 90);
    o.policy = policy;
    o.seed = seed;
    o.lanes = LANES;
    h2okv_cache *c = small_create(&o);
    for (uint32_t p = 0; p < TOKENS; p += chunk) {
        small_admit(c, (int32_t)p, p + chunk <= TOKENS ? chunk : TOKENS - p);
        small_idle(c, LANES);
        small_evict(c);
    }
    for (uint32_t l = 0; l < LANES; l++) {
        CHECK(h2okv_cache_kept(c, l, pos[l], NULL, NULL) == BUDGET);
    }
    h2okv_cache_free(c);
}

static void test_passes_of_any_size_keep_the_same(void **state)
{
    static const char *const policies[] = { "h2o", "window", "random" };
    static const uint32_t chunks[] = { 3, 8, 37, 90 };
    (void)state;
    for (size_t i = 0; i < 3; i++) {
        int32_t one[LANES][BUDGET], other[LANES][BUDGET];
        keep_of(policies[i], 5, 1, one);
        for (size_t k = 0; k < 4; k++) {
            check_context("policy %s, chunk %u", policies[i], chunks[k]);
            keep_of(policies[i], 5, chunks[k], other);
            CHECK(memcmp(one, other, sizeof one) == 0);
        }
    }
}

static uint32_t in_common(const int32_t *a, const int32_t *b)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < BUDGET; i++) {
        for (uint32_t k = 0; k < BUDGET; k++) {
            n += a[i] == b[k];
        }
    }
    return n;
}

static void test_random_by_seed_and_lane(void **state)
{
    static const uint64_t seeds[] = { 0, 1, 2, (uint64_t)1 << 32, UINT64_MAX };
    int32_t kept[5][LANES][BUDGET], again[LANES][BUDGET];
    (void)state;
    for (uint32_t s = 0; s < 5; s++) {
        keep_of("random", seeds[s], 7, kept[s]);
        keep_of("random", seeds[s], 7, again);
        CHECK(memcmp(again, kept[s], sizeof again) == 0);
    }
    /* Two independent draws of 36 of 396 share 3.3 on average besides the recent 4. */
    for (uint32_t i = 0; i < 5 * LANES; i++) {
        for (uint32_t k = 0; k < i; k++) {
            check_context("draws %u and %u", i, k);
            CHECK(in_common(kept[i / LANES][i % LANES], kept[k / LANES][k % LANES]) < 4 + 16);
        }
    }
}

/* 60 seeds x 5 lanes x 36 survivors over 396 positions, in 11 bins: 981.8 +- 30 each. */
static void test_random_is_uniform(void **state)
{
    uint32_t bin[11] = { 0 };
    (void)state;
    for (uint64_t seed = 0; seed < 60; seed++) {
        int32_t kept[LANES][BUDGET];
        keep_of("random", seed, 50, kept);
        for (uint32_t i = 0; i < LANES * BUDGET; i++) {
            int32_t pos = kept[i / BUDGET][i % BUDGET];
            if (pos < TOKENS - 4) {
                bin[pos / 36]++;
            }
        }
    }
    for (uint32_t b = 0; b < 11; b++) {
        check_context("bin %u holds %u", b, bin[b]);
        CHECK(bin[b] > 981 - 130 && bin[b] < 981 + 130);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_registry),
        cmocka_unit_test(test_window_is_the_newest),
        cmocka_unit_test(test_full_never_evicts),
        cmocka_unit_test(test_ranks_are_numbers),
        cmocka_unit_test(test_passes_of_any_size_keep_the_same),
        cmocka_unit_test(test_random_by_seed_and_lane),
        cmocka_unit_test(test_random_is_uniform),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
