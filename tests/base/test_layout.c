/*
 * test_layout.c - what callers compiled against: sizes and offsets of the public structs. A change here breaks
 * programs that were built before (fault 24: a score buffer changed its type unnoticed). On LP64.
 */
#include "support/check.h"

#include "h2okv/advanced.h"

#if defined(__LP64__)
#define SAME(what, bytes) _Static_assert((what) == (bytes), #what " is not " #bytes)
SAME(sizeof(h2okv_error), 292);
SAME(sizeof(h2okv_allocator), 24);
SAME(sizeof(h2okv_event), 32);
SAME(sizeof(h2okv_options), 120);
SAME(offsetof(h2okv_options, parts), 36);
SAME(offsetof(h2okv_options, decay), 40);
SAME(offsetof(h2okv_options, event_user), 88);
SAME(offsetof(h2okv_options, pool), 96);
SAME(offsetof(h2okv_options, mass_user), 112);
SAME(sizeof(h2okv_weights), 48);
SAME(offsetof(h2okv_weights, cell_of_column), 40);
SAME(sizeof(h2okv_move), 12);
SAME(sizeof(h2okv_plan), 48);
SAME(offsetof(h2okv_plan, epoch), 40);
SAME(sizeof(h2okv_cache_stats), 48);
SAME(sizeof(h2okv_shape), 64);
SAME(offsetof(h2okv_shape, max_pass), 36);
SAME(offsetof(h2okv_shape, isa), 56);
SAME(sizeof(h2okv_lane_view), 48);
SAME(sizeof(h2okv_policy), 56);
SAME(offsetof(h2okv_policy, decay), 48);
#endif

/* The type of a score everywhere it can be seen; _Generic has no match for another. */
#define IS_DOUBLE(lvalue) _Generic(&(lvalue), double *: 1, const double *: 1)

static void test_fault_24_scores_are_double(void **state)
{
    h2okv_event event = { 0 };
    h2okv_options options;
    h2okv_lane_view view = { 0 };
    uint32_t (*kept)(const h2okv_cache *, uint32_t, int32_t *, double *, uint32_t *) = h2okv_cache_kept;
    (void)state;
    h2okv_options_init(&options);
    CHECK(IS_DOUBLE(event.score) && IS_DOUBLE(options.decay) && IS_DOUBLE(*view.score));
    CHECK(kept != NULL);
    CHECK(options.size == sizeof options);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fault_24_scores_are_double),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
