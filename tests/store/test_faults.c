/*
 * test_faults.c - faults that systems of this kind have shipped: each test is named after the number in the
 * project's list of faults and what is right instead (19 and 36 are in test_errors.c).
 */
#include "store/model.h"

/* A token whose key is its position, with weights for those before it. */
static void put(h2okv_store *store, const float *weights)
{
    float key[1] = {(float)h2okv_store_next_pos(store, 0)};
    CHECK_OK(h2okv_store_update(store, 0, key, key, weights));
}

static void expect_kept(const h2okv_store *store, const int32_t *expected, uint32_t n)
{
    int32_t pos[64];
    float keys[64];
    CHECK(h2okv_store_size(store, 0) == n);
    CHECK_OK(h2okv_store_positions(store, 0, 0, pos));
    CHECK_OK(h2okv_store_keys(store, 0, 0, keys));
    for (uint32_t i = 0; i < n; i++) {
        check_context("entry %u: position %d, key %g, expected %d", i, pos[i], (double)keys[i], expected[i]);
        CHECK(pos[i] == expected[i] && (int32_t)keys[i] == expected[i]);
    }
}

/* Top-k left the cache in score order: it must stay in time order, before and after an eviction. */
static void fault_2_order_is_time_not_score(void **state)
{
    (void)state;
    const float none[4] = {0}, weights[4] = {3, 9, 1, 7}, more[5] = {0};
    const int32_t all[5] = {0, 1, 2, 3, 4}, kept[5] = {0, 1, 3, 4, 5};
    h2okv_shape shape = model_shape(1, 1, 1);
    h2okv_options options = model_options(2, 3);
    h2okv_store *store;
    CHECK_OK(h2okv_store_create(&store, &shape, &options, NULL));
    for (uint32_t i = 0; i < 4; i++) {
        put(store, none);
    }
    put(store, weights);
    expect_kept(store, all, 5);
    put(store, more);
    expect_kept(store, kept, 5);
    h2okv_store_free(store);
}

/* Scores were summed in a narrow type: 2^21 + .124 must grow, 1e6 times .1 must not drift. */
static void fault_15_scores_are_double(void **state)
{
    (void)state;
    const float large = 0x1p21f, small = 0.124f, tenth = 0.1f;
    h2okv_shape shape = model_shape(1, 1, 1);
    h2okv_options options = model_options(1, 1);
    h2okv_store *store;
    double score[2], expected = 0x1p21 + (double)small;
    float weights[2] = {large, 0};
    CHECK_OK(h2okv_store_create(&store, &shape, &options, NULL));
    put(store, NULL);
    put(store, weights);
    weights[0] = small;
    put(store, weights);
    CHECK_OK(h2okv_store_scores(store, 0, 0, score));
    CHECK(score[0] == expected);
    weights[0] = tenth;
    for (uint32_t i = 0; i < 1000000; i++) {
        put(store, weights);
    }
    CHECK_OK(h2okv_store_scores(store, 0, 0, score));
    CHECK(fabs(score[0] - (expected + 1e6 * (double)tenth)) < 1e-3); /* float: stuck at steps of 0.25 */
    h2okv_store_free(store);
}

/* Scores of a batch were mixed: sequences run together must be, to the bit, what each is alone. */
static void compare_with_alone(const h2okv_shape *shape, const h2okv_options *options, uint32_t sequence)
{
    rig together, alone;
    h2okv_shape one = *shape;
    size_t row = (size_t)shape->heads * shape->head_dim, query_heads = (size_t)shape->heads * shape->group;
    one.batch = 1;
    rig_open(&together, shape, options, 21);
    rig_open(&alone, &one, options, 0);
    for (uint32_t step = 0; step < 40; step++) {
        uint32_t size = h2okv_store_size(alone.store, 0);
        const float *weights = together.weights + sequence * query_heads * size;
        rig_step(&together, 0);
        CHECK_OK(h2okv_store_update(alone.store, 0, together.key + sequence * row,
                                    together.value + sequence * row, size > 0 ? weights : NULL));
        if (step % 7 == 6) {
            rig_trim(&together, together.next_pos[0] - 2);
            CHECK_OK(h2okv_store_trim(alone.store, together.next_pos[0]));
        }
        check_context("sequence %u, step %u", sequence, step);
        CHECK(shown_equal(show_sequence(together.store, shape, sequence),
                          show_sequence(alone.store, &one, 0)));
    }
    rig_close(&together);
    rig_close(&alone);
}

static void fault_22_sequences_are_independent(void **state)
{
    (void)state;
    h2okv_options options = model_options(3, 4);
    options.decay = 0.97;
    for (uint32_t i = 0; i < 6; i++) {
        h2okv_shape shape = model_shape(3, 2, 4);
        shape.group = 2;
        shape.lane_per_head = i / 3;
        compare_with_alone(&shape, &options, i % 3);
    }
}

/* The type of the scores changed on the way: whatever was done before, sums keep all bits of a double. */
static void fault_24_scores_keep_their_type(void **state)
{
    (void)state;
    h2okv_shape shape = model_shape(1, 1, 1);
    h2okv_options options = model_options(4, 4);
    h2okv_store *store;
    double score[8];
    const float large[1] = {0x1p30f}, small[2] = {0x1p-20f, 0};
    CHECK(sizeof score[0] == 8 && sizeof(h2okv_event) == 32);
    CHECK_OK(h2okv_store_create(&store, &shape, &options, NULL));
    for (uint32_t round = 0; round < 3; round++) { /* fresh; after a trim; after a clear */
        put(store, NULL);
        put(store, large);
        put(store, small);
        CHECK_OK(h2okv_store_scores(store, 0, 0, score));
        check_context("round %u: %a", round, score[0]);
        CHECK(score[0] == 0x1p30 + 0x1p-20);
        if (round == 0) {
            CHECK_OK(h2okv_store_trim(store, 0));
        } else {
            h2okv_store_clear(store);
        }
    }
    h2okv_store_free(store);
}

/* Compressed once, then grew forever; and a counter that said otherwise. */
static void fault_29_never_over_budget(void **state)
{
    (void)state;
    rig r;
    h2okv_shape shape = model_shape(2, 2, 4);
    h2okv_options options = model_options(8, 8);
    shape.lane_per_head = 1;
    rig_open(&r, &shape, &options, 29);
    for (uint32_t step = 0; step < 3 * 16; step++) {
        rig_step(&r, 0);
        rig_check(&r); /* counts what the copies hold, not only what size says */
        CHECK(h2okv_store_size(r.store, 0) == (step < 16 ? step + 1 : 16));
    }
    rig_close(&r);
}

/* Trimmed by the padded width, live tokens were lost: 4 of a budget of 4 stay among 256 cells. */
static void fault_32_spare_cells_change_nothing(void **state)
{
    (void)state;
    rig tight, padded;
    h2okv_shape shape = model_shape(1, 2, 4);
    h2okv_options options = model_options(2, 2), wide = options;
    wide.cells = 256;
    rig_open(&tight, &shape, &options, 32);
    rig_open(&padded, &shape, &wide, 32);
    for (uint32_t step = 0; step < 30; step++) {
        rig_step(&tight, 0);
        rig_step(&padded, 0);
        CHECK(h2okv_store_size(padded.store, 0) == (step < 4 ? step + 1 : 4));
        CHECK(shown_equal(show_store(tight.store, &shape), show_store(padded.store, &shape)));
    }
    rig_close(&tight);
    rig_close(&padded);
}

/* The next position came from the number of tokens kept; and a reused prefix was off by one (53). */
static void fault_39_next_position_is_tokens_seen(void **state)
{
    (void)state;
    rig r;
    h2okv_shape shape = model_shape(1, 1, 2);
    h2okv_options options = model_options(4, 2);
    rig_open(&r, &shape, &options, 39);
    for (int32_t step = 0; step < 10; step++) {
        CHECK(h2okv_store_next_pos(r.store, 0) == step);
        rig_step(&r, 0);
    }
    CHECK(h2okv_store_size(r.store, 0) == 6 && h2okv_store_next_pos(r.store, 0) == 10);
    rig_trim(&r, 7);
    CHECK(h2okv_store_next_pos(r.store, 0) == 7);
    rig_trim(&r, 9); /* nothing there */
    CHECK(h2okv_store_next_pos(r.store, 0) == 7);
    rig_step(&r, 0);
    rig_check(&r);
    rig_close(&r);
}

/* A trim that drops nothing is not a pass: tokens in grace do not age by it. */
static void empty_trims_change_nothing(void **state)
{
    (void)state;
    rig plain, trimmed;
    h2okv_shape shape = model_shape(1, 2, 4);
    h2okv_options options = model_options(1, 7);
    options.grace = 5;
    rig_open(&plain, &shape, &options, 8);
    rig_open(&trimmed, &shape, &options, 8);
    for (uint32_t step = 0; step < 60; step++) {
        rig_step(&plain, 0);
        rig_step(&trimmed, 0);
        CHECK_OK(h2okv_store_trim(trimmed.store, (int32_t)step + 1));
        check_context("step %u", step);
        CHECK(shown_equal(show_store(plain.store, &shape), show_store(trimmed.store, &shape)));
    }
    rig_close(&plain);
    rig_close(&trimmed);
}

/* ---- One handle for several texts --------------------------------------------------------------------- */

enum { TEXT_TOKENS = 40 };

/* All that a text leaves behind at each step, from a cleared store. */
static shown run_text(rig *r, uint64_t text)
{
    shown all = {NULL, 0};
    h2okv_store_clear(r->store);
    memset(r->lane, 0, (size_t)r->shape.batch * r->shape.layers * r->lanes * sizeof *r->lane);
    memset(r->next_pos, 0, r->shape.layers * sizeof *r->next_pos);
    r->rng.state = text;
    for (uint32_t step = 0; step < TEXT_TOKENS; step++) {
        for (uint32_t layer = 0; layer < r->shape.layers; layer++) {
            rig_step(r, layer);
        }
        shown one = show_store(r->store, &r->shape);
        shown_add(&all, one.data, one.bytes);
        free(one.data);
    }
    return all;
}

static void open_for_texts(rig *r)
{
    h2okv_shape shape = model_shape(2, 2, 4);
    h2okv_options options = model_options(3, 5);
    shape.layers = 2;
    shape.lane_per_head = 1;
    options.grace = 3;
    options.decay = 0.95;
    rig_open(r, &shape, &options, 0);
}

/* A stale length: only the first text was compressed. */
static void fault_49_same_text_twice_same_trace(void **state)
{
    (void)state;
    rig r;
    open_for_texts(&r);
    shown first = run_text(&r, 1);
    CHECK(shown_equal(first, run_text(&r, 1)));
    rig_close(&r);
}

/* State leaked from one text into the next. */
static void fault_50_another_text_between_changes_nothing(void **state)
{
    (void)state;
    rig r;
    open_for_texts(&r);
    shown first = run_text(&r, 1), other = run_text(&r, 2);
    CHECK(first.bytes == other.bytes && memcmp(first.data, other.data, first.bytes) != 0);
    CHECK(shown_equal(first, run_text(&r, 1)));
    free(other.data);
    rig_close(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fault_2_order_is_time_not_score),
        cmocka_unit_test(fault_15_scores_are_double),
        cmocka_unit_test(fault_22_sequences_are_independent),
        cmocka_unit_test(fault_24_scores_keep_their_type),
        cmocka_unit_test(fault_29_never_over_budget),
        cmocka_unit_test(fault_32_spare_cells_change_nothing),
        cmocka_unit_test(fault_39_next_position_is_tokens_seen),
        cmocka_unit_test(empty_trims_change_nothing),
        cmocka_unit_test(fault_49_same_text_twice_same_trace),
        cmocka_unit_test(fault_50_another_text_between_changes_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
