/* test_admit.c - new tokens: what is refused and leaves the cache as it was, and stats of what is taken. */
#include "support/check.h"
#include "support/small.h"
#include "support/snapshot.h"

#include <limits.h>

enum { LANES = 3 };

/* 8 cells, budget 4; tokens at positions 2, 3 and 7 in cells 5, 0 and 2, observed. */
static h2okv_cache *filled(void)
{
    h2okv_options o = small_options(4, 2, 4);
    o.lanes = LANES;
    h2okv_cache *c = small_create(&o);
    CHECK_OK(h2okv_cache_admit(c, (uint32_t[]){ 5, 0, 2 }, (int32_t[]){ 2, 3, 7 }, 3));
    small_idle(c, LANES);
    return c;
}

typedef struct refusal {
    const char *what;
    int status;
    uint32_t n;
    uint32_t cell[6];
    int32_t pos[6];
} refusal;

static const refusal refusals[] = {
    { "no token", H2OKV_E_ORDER, 0, { 1 }, { 8 } },
    { "position held", H2OKV_E_INVALID, 1, { 1 }, { 7 } },
    { "position before the newest", H2OKV_E_INVALID, 1, { 1 }, { 4 } },
    { "negative position", H2OKV_E_INVALID, 1, { 1 }, { -1 } },
    { "smallest position", H2OKV_E_INVALID, 1, { 1 }, { INT32_MIN } },
    { "same position twice", H2OKV_E_INVALID, 2, { 1, 3 }, { 8, 8 } },
    { "falling positions", H2OKV_E_INVALID, 3, { 1, 3, 4 }, { 8, 10, 9 } },
    { "occupied cell", H2OKV_E_INVALID, 1, { 0 }, { 8 } },
    { "occupied cell, last of some", H2OKV_E_INVALID, 3, { 1, 3, 5 }, { 8, 9, 10 } },
    { "cell out of range", H2OKV_E_INVALID, 1, { 8 }, { 8 } },
    { "cell far out of range", H2OKV_E_INVALID, 2, { 1, UINT32_MAX }, { 8, 9 } },
    { "cell twice", H2OKV_E_INVALID, 3, { 1, 3, 1 }, { 8, 9, 10 } },
    { "more tokens than cells", H2OKV_E_FULL, 6, { 1, 3, 4, 6, 7, 1 }, { 8, 9, 10, 11, 12, 13 } },
};

static void test_refusals_change_nothing(void **state)
{
    h2okv_cache *c = filled();
    snapshot before = snapshot_take(c, LANES);
    (void)state;
    for (size_t i = 0; i < sizeof refusals / sizeof refusals[0]; i++) {
        const refusal *r = &refusals[i];
        check_context("%s", r->what);
        CHECK_STATUS(h2okv_cache_admit(c, r->cell, r->pos, r->n), r->status);
        CHECK(snapshot_same(&before, c, LANES));
    }
    snapshot_free(&before);
    /* Nothing of the refused tokens sticks: the same cells are still good, and the order of calls as well. */
    CHECK_OK(h2okv_cache_admit(c, (uint32_t[]){ 7, 1, 3, 4, 6 }, (int32_t[]){ 8, 9, 10, 11, 12 }, 5));
    small_idle(c, LANES);
    CHECK(SMALL_HOLDS(c, 2, 2, 3, 7, 8, 9, 10, 11, 12));
    h2okv_cache_free(c);
}

static void test_first_position_may_be_any(void **state)
{
    h2okv_options o = small_options(4, 2, 0);
    (void)state;
    h2okv_cache *c = small_create(&o);
    CHECK_STATUS(h2okv_cache_admit(c, (uint32_t[]){ 0 }, (int32_t[]){ -1 }, 1), H2OKV_E_INVALID);
    CHECK_OK(h2okv_cache_admit(c, (uint32_t[]){ 3, 1 }, (int32_t[]){ 1000, 2000000000 }, 2));
    CHECK(SMALL_HOLDS(c, 0, 1000, 2000000000));
    h2okv_cache_free(c);
}

/* The last position there can be is refused, or it is the newest token and stays. */
static void test_last_position(void **state)
{
    h2okv_options o = small_options(2, 1, 2);
    (void)state;
    h2okv_cache *c = small_create(&o);
    small_admit(c, 0, 3);
    small_give(c, 0, (float[]){ 1, 2, 3 });
    small_evict(c);
    if (h2okv_cache_admit(c, (uint32_t[]){ 3 }, (int32_t[]){ INT32_MAX }, 1) == H2OKV_OK) {
        small_idle(c, 1);
        small_evict(c);
        CHECK(SMALL_HOLDS(c, 0, 2, INT32_MAX));
    } else {
        CHECK(SMALL_HOLDS(c, 0, 1, 2));
        CHECK_OK(h2okv_cache_admit(c, (uint32_t[]){ 3 }, (int32_t[]){ INT32_MAX - 1 }, 1));
        small_idle(c, 1);
        small_evict(c);
        CHECK(SMALL_HOLDS(c, 0, 2, INT32_MAX - 1));
    }
    h2okv_cache_free(c);
}

static void test_order_with_observe(void **state)
{
    h2okv_options o = small_options(2, 1, 6);
    (void)state;
    o.lanes = 2;
    h2okv_cache *c = small_create(&o);
    small_admit(c, 0, 1);
    CHECK_OK(h2okv_cache_observe_mass(c, 1, NULL));
    CHECK_STATUS(h2okv_cache_admit(c, (uint32_t[]){ 7 }, (int32_t[]){ 1 }, 1), H2OKV_E_ORDER); /* lane 0 waits */
    CHECK_OK(h2okv_cache_observe_mass(c, 0, NULL));
    small_admit(c, 1, 1);
    h2okv_cache_free(c);
    o.policy = "window"; /* needs no scores: nobody has to observe */
    c = small_create(&o);
    small_admit(c, 0, 1);
    small_admit(c, 1, 5);
    CHECK(small_evict(c) == 4);
    CHECK(SMALL_HOLDS(c, 1, 4, 5));
    h2okv_cache_free(c);
}

static void test_full(void **state)
{
    h2okv_options o = small_options(3, 1, 1);
    (void)state;
    h2okv_cache *c = small_create(&o);
    small_admit(c, 0, 4);
    small_idle(c, 1);
    CHECK_STATUS(h2okv_cache_admit(c, (uint32_t[]){ 0 }, (int32_t[]){ 4 }, 1), H2OKV_E_FULL);
    CHECK(small_evict(c) == 1);
    small_admit(c, 4, 1);
    h2okv_cache_free(c);
    o.policy = "full"; /* ends when its cells do */
    c = small_create(&o);
    small_admit(c, 0, 4);
    CHECK(small_evict(c) == 0);
    CHECK_STATUS(h2okv_cache_admit(c, (uint32_t[]){ 0 }, (int32_t[]){ 4 }, 1), H2OKV_E_FULL);
    CHECK(h2okv_cache_live(c) == 4);
    h2okv_cache_free(c);
}

static void test_lane_that_does_not_exist(void **state)
{
    h2okv_cache *c = filled();
    h2okv_lane_view view = { .lane = 77 };
    int32_t pos = 5;
    (void)state;
    CHECK_STATUS(h2okv_cache_lane(c, LANES, &view), H2OKV_E_INVALID);
    CHECK(view.lane == 77);
    CHECK(h2okv_cache_kept(c, LANES, &pos, NULL, NULL) == 0 && pos == 5);
    h2okv_cache_free(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_refusals_change_nothing),
        cmocka_unit_test(test_first_position_may_be_any),
        cmocka_unit_test(test_last_position),
        cmocka_unit_test(test_order_with_observe),
        cmocka_unit_test(test_full),
        cmocka_unit_test(test_lane_that_does_not_exist),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
