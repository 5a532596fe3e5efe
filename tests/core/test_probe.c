/* test_probe.c - guided reading: a probe's queries alone make the scores, which neighbours share; and pooling. */
#include "support/check.h"
#include "support/rig.h"
#include "support/small.h"
#include "support/snapshot.h"

static void test_as_the_oracle(void **state)
{
    (void)state;
    for (uint32_t seed = 1; seed <= 60; seed++) {
        rig_options o = rig_defaults(seed);
        o.lanes = 3;
        o.group = 1 + seed % 3;
        o.parts = 1 + seed % 2;
        o.decay = seed % 3 ? 1.0 : 0.9;
        o.heads = seed % 4 ? H2OKV_HEADS_SUM : H2OKV_HEADS_MEAN;
        o.count_self = seed % 5 != 0;
        o.pool = seed % 4;
        o.sinks = seed % 2;
        o.coarse = seed % 7 == 0 && o.heads == H2OKV_HEADS_SUM; /* a mean is rounded, so there are no exact ties */
        check_context("seed %u", seed);
        rig *r = rig_create(&o);
        for (uint32_t i = 0; i < 15; i++) {
            rig_probe_pass(r, 1 + (i + seed) % 6, 1 + i % 5);
            if (i % 3 == 0) {
                rig_pass(r, 1 + i % 4);
            }
        }
        rig_free(r);
    }
}

/* By hand: heads sum, one lane. */
static void test_old_scores_do_not_count(void **state)
{
    (void)state;
    h2okv_options o = small_options(4, 1, 4);
    o.decay = 0.5; /* a probe is not weighed by age */
    h2okv_cache *c = small_create(&o);
    small_admit(c, 0, 4);
    small_give(c, 0, (const float[]){ 9, 9, 9, 9 });
    small_evict(c);
    small_admit(c, 4, 3); /* one token of text, a probe of two */
    CHECK_OK(h2okv_cache_probe(c, 2, 0));
    const float weights[3][7] = { { 5, 5, 5, 5, 5 }, { .125f, 0, .5f, 0, .25f, .125f }, { 0, 0, .25f, 0, .5f, 0, .25f } };
    h2okv_weights w = { .heads = 1, .queries = 3, .columns = 7, .data = &weights[0][0], .query_stride = 7 };
    CHECK_OK(h2okv_cache_observe(c, 0, &w));
    const double expected[] = { .125, 0, .75, 0, .75 };
    for (int32_t pos = 0; pos < 5; pos++) {
        check_context("position %d", pos);
        CHECK(check_close(small_score(c, 0, pos), expected[pos]));
    }
    CHECK(small_trim(c, 5) == 0);
    small_evict(c);
    CHECK(SMALL_HOLDS(c, 0, 0, 2, 3, 4)); /* of 1 and 3, both 0, the newer stays */
    h2okv_cache_free(c);
}

static void test_order_of_calls(void **state)
{
    (void)state;
    h2okv_options o = small_options(8, 1, 4);
    o.lanes = 2;
    h2okv_cache *c = small_create(&o);
    CHECK_STATUS(h2okv_cache_probe(c, 1, 0), H2OKV_E_ORDER);
    small_admit(c, 0, 3);
    CHECK_STATUS(h2okv_cache_probe(c, 0, 0), H2OKV_E_INVALID);
    CHECK_STATUS(h2okv_cache_probe(c, 4, 0), H2OKV_E_INVALID);
    CHECK_OK(h2okv_cache_observe_mass(c, 1, NULL));
    CHECK_STATUS(h2okv_cache_probe(c, 1, 0), H2OKV_E_ORDER);
    CHECK_OK(h2okv_cache_abandon(c));
    CHECK_STATUS(h2okv_cache_probe(c, 1, 0), H2OKV_E_ORDER);
    small_admit(c, 0, 3);
    CHECK_OK(h2okv_cache_probe(c, 3, 8)); /* all of them */
    small_idle(c, 2);
    CHECK(small_trim(c, 0) == 0 && h2okv_cache_live(c) == 0);
    h2okv_cache_free(c);
}

static void test_a_probe_is_taken_back(void **state)
{
    (void)state;
    for (uint32_t seed = 1; seed <= 20; seed++) {
        rig_options o = rig_defaults(seed);
        static rig saved;
        check_context("seed %u", seed);
        rig *r = rig_create(&o);
        rig_pass(r, 8); /* the largest passes: peak_live is theirs */
        rig_pass(r, 8);
        saved = *r;
        snapshot before = snapshot_take(r->cache, o.lanes);
        rig_admit(r, 4);
        CHECK_OK(h2okv_cache_probe(r->cache, 2, 2));
        oracle_probe(&r->oracle, 2);
        for (uint32_t l = 0; l < seed % 3; l++) {
            rig_observe(r, l);
        }
        CHECK_OK(h2okv_cache_abandon(r->cache));
        CHECK(snapshot_same(&before, r->cache, o.lanes));
        snapshot_free(&before);
        *r = saved;
        rig_pass(r, 5); /* an ordinary pass: the probe must not linger */
        rig_pass(r, 3);
        rig_free(r);
    }
}

/* ---- Pooling ---- */

static void test_neighbours_stay(void **state)
{
    (void)state;
    for (uint32_t seed = 1; seed <= 60; seed++) {
        rig_options o = rig_defaults(seed);
        o.pool = 1 + seed % 5;
        o.recent = 1 + seed % 6;
        o.sinks = seed % 3;
        o.grace = seed % 4;
        o.gaps = seed % 2;
        o.coarse = seed % 3 == 0;
        check_context("seed %u", seed);
        rig *r = rig_create(&o);
        for (uint32_t i = 0; i < 25; i++) {
            rig_pass(r, 1 + (i * seed) % 8);
            if (i % 9 == 8) {
                rig_trim(r, r->next_pos - 4);
            }
        }
        rig_free(r);
    }
}

static void test_pooling_by_hand(void **state)
{
    (void)state;
    h2okv_options o = small_options(5, 1, 9);
    o.pool = 1;
    h2okv_cache *c = small_create(&o);
    small_admit(c, 0, 9);
    small_give(c, 0, (const float[]){ 1, 2, 0, 9, 0, 3, 0, 0, 0 });
    small_evict(c);
    CHECK(SMALL_HOLDS(c, 0, 2, 3, 4, 6, 8)); /* pooled: 2 2 9 9 9 3 3 0; of 5 and 6 the newer */
    h2okv_cache_free(c);
}

/* Sums of roots, of what is held; sinks and the probe give nothing, what lies too far away neither. */
static void test_neighbours_share_scores(void **state)
{
    (void)state;
    h2okv_options o = small_options(9, 1, 8);
    o.lanes = 2;
    o.sinks = 1;
    h2okv_cache *c = small_create(&o);
    small_admit(c, 0, 4);
    small_idle(c, 2);
    small_evict(c);
    small_admit(c, 7, 4); /* a gap, two tokens of text and a probe of two */
    CHECK_OK(h2okv_cache_probe(c, 2, 1));
    small_give(c, 0, (const float[]){ 100, 1, 0, 9, 4, 0, 25, 25 });
    CHECK(check_close(small_score(c, 0, 3), 3)); /* a lane's scores are made when it is observed */
    small_give(c, 1, (const float[]){ 0, 0, 0, -1, 2, .25f, 0, 16 }); /* less than nothing counts as nothing */
    const int32_t pos[] = { 0, 1, 2, 3, 7, 8 };
    const double one[] = { 1, 1, 4, 3, 2, 2 }, two[] = { 0, 0, 0, 0, 1.9142135623730951, 1.9142135623730951 };
    for (uint32_t i = 0; i < 6; i++) {
        check_context("position %d", pos[i]);
        CHECK(check_close(small_score(c, 0, pos[i]), one[i]) && check_close(small_score(c, 1, pos[i]), two[i]));
    }
    small_trim(c, 9);
    small_admit(c, 9, 1); /* no probe: scores add up as ever */
    small_give(c, 0, (const float[]){ 0, 0, 5, 0, 0, 0, 1 });
    CHECK(check_close(small_score(c, 0, 2), 9) && check_close(small_score(c, 0, 3), 3));
    h2okv_cache_free(c);
}

/* ---- The hook ---- */

typedef struct told {
    uint32_t calls, lane;
    double mass[SMALL_CELLS];
} told;

static void on_mass(void *user, uint32_t lane, const double *mass)
{
    told *t = user;
    t->calls++;
    t->lane = lane;
    for (uint32_t i = 0; i < 12; i++) {
        t->mass[i] = mass[i];
    }
}

static void test_the_mass_is_told(void **state)
{
    (void)state;
    told t = { 0 };
    h2okv_options o = small_options(8, 2, 4);
    o.lanes = 2;
    o.on_mass = on_mass;
    o.mass_user = &t;
    h2okv_cache *c = small_create(&o);
    const uint32_t cells[] = { 5, 2, 7 };
    const int32_t pos[] = { 0, 1, 2 };
    CHECK_OK(h2okv_cache_admit(c, cells, pos, 3));
    const float rows[3][3] = { { 1, 0, 0 }, { .5f, .5f, 0 }, { .25f, .25f, .5f } };
    h2okv_weights w = { .heads = 1, .queries = 3, .columns = 3, .data = &rows[0][0], .query_stride = 3,
                        .cell_of_column = cells };
    CHECK_OK(h2okv_cache_observe(c, 0, &w));
    CHECK(t.calls == 1 && t.lane == 0);
    CHECK(check_close(t.mass[5], 1.75) && check_close(t.mass[2], .75) && check_close(t.mass[7], .5) && t.mass[0] == 0);
    float mass[12] = { 7, 0, 1, 0, 0, 2, 0, 3 }; /* cell 0 is a hole */
    CHECK_OK(h2okv_cache_observe_mass(c, 1, mass));
    CHECK(t.calls == 2 && t.lane == 1);
    CHECK(check_close(t.mass[5], 2) && check_close(t.mass[2], 1) && check_close(t.mass[7], 3) && t.mass[0] == 0);
    h2okv_cache_free(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_as_the_oracle),
        cmocka_unit_test(test_old_scores_do_not_count),
        cmocka_unit_test(test_order_of_calls),
        cmocka_unit_test(test_a_probe_is_taken_back),
        cmocka_unit_test(test_neighbours_stay),
        cmocka_unit_test(test_pooling_by_hand),
        cmocka_unit_test(test_neighbours_share_scores),
        cmocka_unit_test(test_the_mass_is_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
