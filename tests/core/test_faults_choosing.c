/* test_faults_choosing.c - faults that systems of this kind have shipped: choosing, ties, protected tokens. */
#include "support/check.h"
#include "support/rng.h"
#include "support/small.h"

#include <math.h>
#include <string.h>

/* Protected tokens were padded with the maximum score, so that an equal score could push them out. */
static void test_fault_01_tie_keeps_newer(void **state)
{
    h2okv_options o = small_options(4, 2, 2);
    (void)state;
    o.sinks = 1;
    h2okv_cache *c = small_create(&o);
    small_admit(c, 0, 6);
    small_give(c, 0, (float[]){ 5, 5, 5, 5, 5, 5 });
    CHECK(small_evict(c) == 2);
    CHECK(SMALL_HOLDS(c, 0, 0, 3, 4, 5));
    h2okv_cache_free(c);
}

/* top-k left the cache in the order of scores. */
static void test_fault_02_order_of_time(void **state)
{
    h2okv_options o = small_options(4, 1, 0);
    (void)state;
    h2okv_cache *c = small_create(&o);
    uint32_t cell[] = { 2, 0, 3, 1 }, read[4];
    int32_t pos[] = { 0, 1, 2, 3 };
    double score[4];
    CHECK_OK(h2okv_cache_admit(c, cell, pos, 4));
    small_give(c, 0, (float[]){ 3, 9, 1, 7 });
    CHECK(small_evict(c) == 0);
    CHECK(SMALL_HOLDS(c, 0, 0, 1, 2, 3));
    CHECK(h2okv_cache_kept(c, 0, NULL, score, read) == 4);
    CHECK(memcmp(read, cell, sizeof cell) == 0);
    CHECK(score[0] >= 3 && score[0] <= 3 && score[1] >= 9 && score[2] <= 1 && score[3] >= 7);
    h2okv_cache_free(c);
}

/* A token of random choice into each of n free cells, and random attention, the same for each seed. */
static void scattered_pass(h2okv_cache *c, int32_t pos0, uint32_t n, rng *where, rng *what)
{
    float mass[SMALL_CELLS];
    uint32_t cell[16];
    int32_t pos[16];
    h2okv_lane_view view;
    CHECK_OK(h2okv_cache_lane(c, 0, &view));
    for (uint32_t i = 0; i < n; i++) {
        uint32_t at, taken;
        do {
            at = rng_below(where, view.cells);
            taken = view.pos[at] != -1;
            for (uint32_t k = 0; k < i; k++) {
                taken |= cell[k] == at;
            }
        } while (taken);
        cell[i] = at;
        pos[i] = pos0 + (int32_t)i;
    }
    CHECK_OK(h2okv_cache_admit(c, cell, pos, n));
    for (uint32_t i = 0; i < h2okv_cache_live(c); i++) {
        mass[i] = rng_float(what);
    }
    small_give(c, 0, mass);
    small_evict(c);
}

/* Which cells a sequence occupies changed the output. */
static void test_fault_03_cells_do_not_matter(void **state)
{
    h2okv_options o = small_options(12, 5, 30);
    (void)state;
    o.decay = 0.98;
    h2okv_cache *a = small_create(&o), *b = small_create(&o);
    rng where_a = { 1 }, where_b = { 2 }, what_a = { 3 }, what_b = { 3 };
    for (int32_t p = 0; p < 200; p += 5) {
        int32_t pos_a[64], pos_b[64];
        double score_a[64], score_b[64];
        scattered_pass(a, p, 5, &where_a, &what_a);
        scattered_pass(b, p, 5, &where_b, &what_b);
        uint32_t n = h2okv_cache_kept(a, 0, pos_a, score_a, NULL);
        CHECK(h2okv_cache_kept(b, 0, pos_b, score_b, NULL) == n);
        CHECK(memcmp(pos_a, pos_b, n * sizeof *pos_a) == 0);
        CHECK(memcmp(score_a, score_b, n * sizeof *score_a) == 0);
    }
    h2okv_cache_free(a);
    h2okv_cache_free(b);
}

/* The newest token starts at 0, is the minimum, and went at once. */
static void test_fault_04_newest_stays(void **state)
{
    (void)state;
    for (uint32_t recent = 0; recent <= 2; recent++) {
        h2okv_options o = small_options(4, recent, 14);
        h2okv_cache *c = small_create(&o);
        float mass[18];
        for (uint32_t i = 0; i < 14; i++) {
            mass[i] = 5;
        }
        small_admit(c, 0, 14);
        small_give(c, 0, mass);
        small_evict(c);
        for (int32_t p = 14; p < 57; p++) {
            int32_t pos[4];
            small_admit(c, p, 1);
            small_give(c, 0, (float[]){ 1, 1, 1, 1, 0 });
            CHECK(small_evict(c) == 1);
            CHECK(h2okv_cache_kept(c, 0, pos, NULL, NULL) == 4 && pos[3] == p);
            CHECK(recent < 2 || pos[2] == p - 1);
            CHECK(p == 14 || pos[0] == (recent < 2 ? 11 : 12)); /* heavy ones outlive it all */
        }
        h2okv_cache_free(c);
    }
}

/* 415 tokens, one a pass; attention fades with a token's age. */
static h2okv_cache *generate_long(double decay, int check_bits)
{
    h2okv_options o = small_options(64, 8, 1);
    o.sinks = 4;
    o.grace = 16;
    o.decay = decay;
    h2okv_cache *c = small_create(&o);
    double plain[415] = { 0 };
    for (int32_t p = 0; p < 415; p++) {
        float mass[65];
        int32_t pos[65];
        small_admit(c, p, 1);
        uint32_t n = h2okv_cache_kept(c, 0, pos, NULL, NULL);
        for (uint32_t i = 0; i < n; i++) {
            mass[i] = expf(-(float)(p - pos[i]) / 40.0f);
            plain[pos[i]] += (double)mass[i];
        }
        small_give(c, 0, mass);
        for (uint32_t i = 0; check_bits && i < n; i++) {
            double score = small_score(c, 0, pos[i]);
            CHECK(memcmp(&score, &plain[pos[i]], sizeof score) == 0);
        }
        small_evict(c);
    }
    return c;
}

/* Early tokens held a sum that nobody could catch. */
static void test_fault_05_decay_follows_the_text(void **state)
{
    int32_t pos[64];
    (void)state;
    h2okv_cache *c = generate_long(1.0, 1); /* no decay: scores are plain sums, to the bit */
    CHECK(h2okv_cache_kept(c, 0, pos, NULL, NULL) == 64);
    for (uint32_t i = 0; i < 64 - 16; i++) {
        CHECK(pos[i] <= 74);
    }
    h2okv_cache_free(c);
    c = generate_long(0.98, 0);
    CHECK(h2okv_cache_kept(c, 0, pos, NULL, NULL) == 64);
    CHECK(pos[0] == 0 && pos[3] == 3);
    for (uint32_t i = 4; i < 64; i++) {
        CHECK(pos[i] >= 297);
    }
    h2okv_cache_free(c);
}

/* A NaN broke the ordering of the selection. */
static void test_fault_06_nan_is_refused(void **state)
{
    static const float bad[] = { NAN, INFINITY, -INFINITY };
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        h2okv_options o = small_options(3, 1, 1);
        h2okv_cache *c = small_create(&o);
        small_admit(c, 0, 4);
        CHECK_STATUS(h2okv_cache_observe_mass(c, 0, (float[]){ 1, bad[i], 2, .5f }), H2OKV_E_NAN);
        CHECK(small_score(c, 0, 0) <= 0.0 && small_score(c, 0, 2) <= 0.0);
        small_give(c, 0, (float[]){ 1, 0, 2, .5f });
        CHECK(small_evict(c) == 1);
        CHECK(SMALL_HOLDS(c, 0, 0, 2, 3));
        h2okv_cache_free(c);
    }
}

/* Protected places were given a score that a token can reach; empty places looked like starved tokens. */
static void test_fault_07_no_magic_scores(void **state)
{
    h2okv_options o = small_options(4, 1, 4);
    (void)state;
    o.heads = H2OKV_HEADS_MEAN;
    h2okv_cache *c = small_create(&o);
    small_admit(c, 0, 3);
    small_give(c, 0, (float[]){ 1, 1, 1 });
    CHECK(small_evict(c) == 0); /* a free place is used first */
    small_admit(c, 3, 1);
    small_give(c, 0, (float[]){ 0, 0, 0, 0 });
    CHECK(small_evict(c) == 0);
    CHECK(SMALL_HOLDS(c, 0, 0, 1, 2, 3));
    small_admit(c, 4, 1);
    small_give(c, 0, (float[]){ 1e6f, 1e6f, 1e6f, 1, 0 });
    CHECK(small_evict(c) == 1);
    CHECK(SMALL_HOLDS(c, 0, 0, 1, 2, 4));
    h2okv_cache_free(c);
}

/* The first tokens went and the output collapsed. */
static void test_fault_08_sinks_stay(void **state)
{
    h2okv_options o = small_options(8, 2, 1);
    (void)state;
    o.sinks = 4;
    h2okv_cache *c = small_create(&o);
    for (int32_t p = 0; p < 60; p++) {
        float mass[9];
        small_admit(c, p, 1);
        for (uint32_t i = 0; i < 9; i++) {
            mass[i] = i < 4 ? 0.0f : 1.0f;
        }
        small_give(c, 0, mass);
        small_evict(c);
        for (int32_t s = 0; s < 4 && s <= p; s++) {
            CHECK(small_score(c, 0, s) <= 0.0); /* held, at 0 */
        }
    }
    h2okv_cache_free(c);
}

static void test_fault_08b_worked_example(void **state)
{
    h2okv_options o = small_options(4, 2, 1);
    (void)state;
    h2okv_cache *c = small_create(&o);
    small_admit(c, 0, 5);
    small_give(c, 0, (float[]){ 3.8f, .4f, 2.1f, .3f, 0 });
    CHECK(small_evict(c) == 1);
    CHECK(SMALL_HOLDS(c, 0, 0, 2, 3, 4));
    h2okv_cache_free(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fault_01_tie_keeps_newer),
        cmocka_unit_test(test_fault_02_order_of_time),
        cmocka_unit_test(test_fault_03_cells_do_not_matter),
        cmocka_unit_test(test_fault_04_newest_stays),
        cmocka_unit_test(test_fault_05_decay_follows_the_text),
        cmocka_unit_test(test_fault_06_nan_is_refused),
        cmocka_unit_test(test_fault_07_no_magic_scores),
        cmocka_unit_test(test_fault_08_sinks_stay),
        cmocka_unit_test(test_fault_08b_worked_example),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
