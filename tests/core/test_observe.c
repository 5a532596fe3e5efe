/*
 * test_observe.c - weights become scores: each shape that is refused, holes, strides and columns by hand, self
 * weights, mean and sum, parts of a lane. Random layouts against the oracle are in test_trace.c.
 */
#include "support/check.h"
#include "support/small.h"
#include "support/snapshot.h"

#include <math.h>
#include <string.h>

enum { CELLS = 6 };

static int is(double score, double expected)
{
    return fabs(score - expected) < 1e-12;
}

/* Tokens 0, 1, 2 in cells 4, 0, 2; cells 1, 3 and 5 are holes. */
static h2okv_cache *three_tokens(const h2okv_options *options)
{
    h2okv_cache *c = small_create(options);
    CHECK_OK(h2okv_cache_admit(c, (uint32_t[]){ 4, 0, 2 }, (int32_t[]){ 0, 1, 2 }, 3));
    return c;
}

static h2okv_options options_of(uint32_t lanes)
{
    h2okv_options o = small_options(3, 1, 3);
    o.lanes = lanes;
    return o;
}

typedef struct shape_case {
    const char *what;
    uint32_t heads, queries, columns;
    int no_data, mapped;
    uint32_t cell[CELLS + 1];
} shape_case;

static const shape_case bad_shapes[] = {
    { "no heads", 0, 3, CELLS, 0, 0, { 0 } },
    { "fewer queries than tokens", 1, 2, CELLS, 0, 0, { 0 } },
    { "more queries than tokens", 1, 4, CELLS, 0, 0, { 0 } },
    { "no queries", 1, 0, CELLS, 0, 0, { 0 } },
    { "no data", 1, 3, CELLS, 1, 0, { 0 } },
    { "more columns than cells", 1, 3, CELLS + 1, 0, 0, { 0 } },
    { "fewer columns than a live cell needs", 1, 3, 4, 0, 0, { 0 } },
    { "no columns", 1, 3, 0, 0, 0, { 0 } },
    { "column of no cell", 1, 3, 3, 0, 1, { 0, CELLS, 4 } },
    { "column far from any cell", 1, 3, 3, 0, 1, { 0, 4, UINT32_MAX } },
    { "more mapped columns than cells", 1, 3, CELLS + 1, 0, 1, { 0, 1, 2, 3, 4, 5, 0 } },
};

static void test_bad_shapes_change_nothing(void **state)
{
    h2okv_options o = options_of(2);
    h2okv_cache *c = three_tokens(&o);
    snapshot before = snapshot_take(c, 2);
    float data[4 * (CELLS + 1)] = { 0 };
    (void)state;
    for (size_t i = 0; i < sizeof bad_shapes / sizeof bad_shapes[0]; i++) {
        const shape_case *s = &bad_shapes[i];
        h2okv_weights w = { s->heads, s->queries, s->columns, s->no_data ? NULL : data, CELLS + 1, CELLS + 1,
                            s->mapped ? s->cell : NULL };
        check_context("%s", s->what);
        CHECK_STATUS(h2okv_cache_observe(c, 1, &w), H2OKV_E_INVALID);
        CHECK(snapshot_same(&before, c, 2));
    }
    CHECK_STATUS(h2okv_cache_observe(c, 1, NULL), H2OKV_E_INVALID);
    h2okv_weights good = { 1, 3, CELLS, data, 0, CELLS, NULL };
    CHECK_STATUS(h2okv_cache_observe(c, 2, &good), H2OKV_E_INVALID);
    CHECK(snapshot_same(&before, c, 2));
    CHECK_OK(h2okv_cache_observe(c, 1, &good));
    CHECK_STATUS(h2okv_cache_observe(c, 1, &good), H2OKV_E_ORDER); /* twice */
    CHECK_STATUS(h2okv_cache_observe_mass(c, 1, NULL), H2OKV_E_ORDER);
    CHECK_OK(h2okv_cache_observe(c, 0, &good));
    CHECK(snapshot_same(&before, c, 2)); /* all zeros */
    snapshot_free(&before);
    h2okv_cache_free(c);
}

static void test_nothing_admitted(void **state)
{
    h2okv_options o = options_of(1);
    float data[CELLS] = { 0 };
    h2okv_weights w = { 1, 0, CELLS, data, 0, 0, NULL };
    (void)state;
    h2okv_cache *c = small_create(&o);
    CHECK_STATUS(h2okv_cache_observe(c, 0, &w), H2OKV_E_ORDER);
    CHECK_STATUS(h2okv_cache_observe_mass(c, 0, NULL), H2OKV_E_ORDER);
    small_admit(c, 0, 1);
    small_idle(c, 1);
    small_evict(c);
    CHECK_STATUS(h2okv_cache_observe_mass(c, 0, NULL), H2OKV_E_ORDER); /* the pass is over */
    h2okv_cache_free(c);
}

/* A bad number for any token, from any query or head, refuses the lane's weights as a whole. */
static void test_bad_numbers_anywhere(void **state)
{
    static const float bad[] = { NAN, INFINITY, -INFINITY };
    static const uint32_t live[] = { 4, 0, 2 };
    h2okv_options o = options_of(2);
    (void)state;
    o.decay = 0.5;
    h2okv_cache *c = three_tokens(&o);
    snapshot before = snapshot_take(c, 2);
    for (uint32_t i = 0; i < 3 * 2 * 3 * 3; i++) {
        float data[2][3][CELLS];
        h2okv_weights w = { 2, 3, CELLS, &data[0][0][0], 3 * CELLS, CELLS, NULL };
        for (uint32_t k = 0; k < 2 * 3 * CELLS; k++) {
            (&data[0][0][0])[k] = 0.25f;
        }
        data[i % 2][i / 2 % 3][live[i / 6 % 3]] = bad[i / 18];
        check_context("head %u query %u token %u is %g", i % 2, i / 2 % 3, i / 6 % 3, (double)bad[i / 18]);
        CHECK_STATUS(h2okv_cache_observe(c, 1, &w), H2OKV_E_NAN);
        CHECK(snapshot_same(&before, c, 2));
    }
    float both[CELLS] = { 1, 0, INFINITY, 0, 1, 0 };
    CHECK_STATUS(h2okv_cache_observe_mass(c, 1, both), H2OKV_E_NAN);
    CHECK(snapshot_same(&before, c, 2));
    snapshot_free(&before);
    h2okv_cache_free(c);
}

/* +inf from one head and -inf from another, huge weights that only overflow a float: neither is a number lost. */
static void test_sums_beyond_float(void **state)
{
    h2okv_options o = options_of(1);
    float huge[2][CELLS] = { { 3e38f, 0, 0, 0, 0, 0 }, { 3e38f, 0, 0, 0, 0, 0 } };
    float opposed[2][CELLS] = { { INFINITY, 0, 0, 0, 0, 0 }, { -INFINITY, 0, 0, 0, 0, 0 } };
    h2okv_weights w = { 2, 1, CELLS, &opposed[0][0], CELLS, CELLS, NULL };
    (void)state;
    h2okv_cache *c = small_create(&o);
    small_admit(c, 0, 1);
    CHECK_STATUS(h2okv_cache_observe(c, 0, &w), H2OKV_E_NAN);
    w.data = &huge[0][0];
    CHECK_OK(h2okv_cache_observe(c, 0, &w));
    CHECK(small_score(c, 0, 0) > 5.9e38);
    h2okv_cache_free(c);
}

/* Whatever lies in a hole's column is not attention, and holes stay at 0. */
static void test_holes_are_not_read(void **state)
{
    static const float junk[] = { 1e30f, -5, NAN, INFINITY };
    (void)state;
    for (size_t i = 0; i < sizeof junk / sizeof junk[0]; i++) {
        h2okv_options o = options_of(2);
        h2okv_cache *c = three_tokens(&o);
        h2okv_lane_view view;
        float row[CELLS] = { 1, junk[i], 2, junk[i], 4, junk[i] };
        h2okv_weights w = { 1, 3, CELLS, row, 0, 0, NULL }; /* all three queries alike */
        CHECK_OK(h2okv_cache_observe(c, 0, &w));
        CHECK_OK(h2okv_cache_observe_mass(c, 1, row));
        for (uint32_t l = 0; l < 2; l++) {
            double times = l == 0 ? 3 : 1;
            CHECK_OK(h2okv_cache_lane(c, l, &view));
            CHECK(is(view.score[1], 0) && is(view.score[3], 0) && is(view.score[5], 0));
            CHECK(is(small_score(c, l, 0), 4 * times) && is(small_score(c, l, 1), times));
            CHECK(is(small_score(c, l, 2), 2 * times));
        }
        h2okv_cache_free(c);
    }
}

/* A weight w[head][query][cell] that says where it came from. */
static float tagged(uint32_t h, uint32_t q, uint32_t cell)
{
    return (float)((h + 1) * 100 + (q + 1) * 10 + cell);
}

static double expected_sum(uint32_t cell, uint32_t heads, int self, uint32_t own_query, double decay)
{
    double sum = 0;
    for (uint32_t q = 0; q < 3; q++) {
        double row = 0;
        for (uint32_t h = 0; h < heads; h++) {
            row += self || q != own_query ? (double)tagged(h, q, cell) : 0;
        }
        sum = sum * decay + row;
    }
    return sum;
}

typedef struct layout_case {
    const char *what;
    size_t head_stride, query_stride;
    int mapped;
} layout_case;

static const layout_case layouts[] = {
    { "heads outside", 3 * CELLS, CELLS, 0 },
    { "queries outside", CELLS, 2 * CELLS, 0 },
    { "padded rows", 3 * (CELLS + 5) + 2, CELLS + 5, 0 },
    { "mapped", 3 * CELLS, CELLS, 1 },
    { "mapped, queries outside", CELLS, 2 * CELLS, 1 },
};

static void check_layout(const layout_case *k, int self, int mean, double decay)
{
    static const uint32_t columns[] = { 2, 5, 4, 0 }; /* 5 is a hole; the order is no one's */
    static const uint32_t cell_of_token[] = { 4, 0, 2 };
    h2okv_options o = options_of(1);
    h2okv_lane_view view;
    float data[128] = { 0 };
    o.count_self = (uint32_t)self;
    o.heads = mean ? H2OKV_HEADS_MEAN : H2OKV_HEADS_SUM;
    o.decay = decay;
    h2okv_cache *c = three_tokens(&o);
    h2okv_weights w = { 2, 3, k->mapped ? 4 : CELLS, data, k->head_stride, k->query_stride,
                        k->mapped ? columns : NULL };
    for (uint32_t i = 0; i < 2 * 3 * w.columns; i++) {
        uint32_t h = i % 2, q = i / 2 % 3, col = i / 6;
        data[h * w.head_stride + q * w.query_stride + col] = tagged(h, q, k->mapped ? columns[col] : col);
    }
    CHECK_OK(h2okv_cache_observe(c, 0, &w));
    for (uint32_t t = 0; t < 3; t++) {
        double sum = expected_sum(cell_of_token[t], 2, self, t, decay);
        CHECK(is(small_score(c, 0, (int32_t)t), mean ? sum / 2 : sum));
    }
    CHECK_OK(h2okv_cache_lane(c, 0, &view));
    CHECK(is(view.score[1], 0) && is(view.score[3], 0) && is(view.score[5], 0)); /* holes */
    h2okv_cache_free(c);
}

static void test_layouts_by_hand(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof layouts / sizeof layouts[0]; i++) {
        for (int way = 0; way < 8; way++) {
            check_context("%s, self %d mean %d decayed %d", layouts[i].what, way & 1, way >> 1 & 1, way >> 2);
            check_layout(&layouts[i], way & 1, way >> 1 & 1, way >> 2 ? 0.5 : 1.0);
        }
    }
}

/* Live cells that no column names receive nothing: how a caller leaves out the new tokens. */
static void test_mapped_columns_may_leave_cells_out(void **state)
{
    h2okv_options o = options_of(1);
    uint32_t cell = 0;
    float row = 7;
    h2okv_weights w = { 1, 3, 1, &row, 0, 0, &cell };
    (void)state;
    o.count_self = 0;
    h2okv_cache *c = three_tokens(&o);
    CHECK_OK(h2okv_cache_observe(c, 0, &w));
    CHECK(is(small_score(c, 0, 0), 0) && is(small_score(c, 0, 1), 14) && is(small_score(c, 0, 2), 0));
    h2okv_cache_free(c);
}

/* The last of two tokens in the seed's mode: only columns before it. */
static void test_self_is_the_own_cell_only(void **state)
{
    h2okv_options o = options_of(1);
    float rows[2][CELLS] = { { 1, 2, 0, 0, 0, 0 }, { 4, 8, 0, 0, 0, 0 } };
    h2okv_weights w = { 1, 2, CELLS, &rows[0][0], 0, CELLS, NULL };
    (void)state;
    o.count_self = 0;
    h2okv_cache *c = small_create(&o);
    small_admit(c, 0, 2);
    CHECK_OK(h2okv_cache_observe(c, 0, &w));
    CHECK(is(small_score(c, 0, 0), 4) && is(small_score(c, 0, 1), 2));
    h2okv_cache_free(c);
}

/* Old scores fade by decay^n; a mass is taken as it is; NULL only fades. */
static void test_mass_and_decay(void **state)
{
    h2okv_options o = small_options(4, 2, 4);
    (void)state;
    o.decay = 0.5;
    o.heads = H2OKV_HEADS_MEAN; /* changes nothing for a mass */
    h2okv_cache *c = small_create(&o);
    small_admit(c, 0, 1);
    small_give(c, 0, (float[]){ 8 });
    CHECK(is(small_score(c, 0, 0), 8));
    small_admit(c, 1, 2);
    small_give(c, 0, (float[]){ 1, 3, 5 });
    CHECK(is(small_score(c, 0, 0), 3) && is(small_score(c, 0, 1), 3) && is(small_score(c, 0, 2), 5));
    small_admit(c, 3, 1);
    small_idle(c, 1);
    CHECK(is(small_score(c, 0, 0), 1.5) && is(small_score(c, 0, 2), 2.5) && is(small_score(c, 0, 3), 0));
    h2okv_cache_free(c);
}

/* A lane that spans layers is observed in parts: old scores fade once, and the order of calls waits for all. */
static void test_parts(void **state)
{
    h2okv_options o = small_options(3, 1, 3);
    const h2okv_plan *plan = NULL;
    (void)state;
    o.decay = 0.5;
    o.parts = 3;
    h2okv_cache *c = small_create(&o);
    small_admit(c, 0, 1);
    for (uint32_t part = 0; part < 3; part++) {
        CHECK_STATUS(h2okv_cache_plan(c, &plan), H2OKV_E_ORDER);
        CHECK_STATUS(h2okv_cache_admit(c, (uint32_t[]){ 3 }, (int32_t[]){ 1 }, 1), H2OKV_E_ORDER);
        small_give(c, 0, (float[]){ 4 });
    }
    CHECK_STATUS(h2okv_cache_observe_mass(c, 0, NULL), H2OKV_E_ORDER);
    CHECK(is(small_score(c, 0, 0), 12));
    small_admit(c, 1, 2);
    small_idle(c, 1);
    CHECK(is(small_score(c, 0, 0), 3));
    CHECK_STATUS(h2okv_cache_observe_mass(c, 0, (float[]){ NAN, 0, 0, 0, 0, 0 }), H2OKV_E_NAN);
    small_give(c, 0, (float[]){ 1, 2, 3 });
    small_give(c, 0, (float[]){ 1, 2, 3 });
    CHECK(is(small_score(c, 0, 0), 5) && is(small_score(c, 0, 1), 4) && is(small_score(c, 0, 2), 6));
    CHECK(small_evict(c) == 0);
    h2okv_cache_free(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bad_shapes_change_nothing),
        cmocka_unit_test(test_nothing_admitted),
        cmocka_unit_test(test_bad_numbers_anywhere),
        cmocka_unit_test(test_sums_beyond_float),
        cmocka_unit_test(test_holes_are_not_read),
        cmocka_unit_test(test_layouts_by_hand),
        cmocka_unit_test(test_mapped_columns_may_leave_cells_out),
        cmocka_unit_test(test_self_is_the_own_cell_only),
        cmocka_unit_test(test_mass_and_decay),
        cmocka_unit_test(test_parts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
