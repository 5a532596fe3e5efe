/*
 * test_errors.c - what the store refuses, that a refused call changes nothing, and memory: sizes known
 * before, each allocation failing in turn.
 */
#include "store/model.h"

#include <stdio.h>

#include "h2okv/advanced.h"
#include "store/store.h"
#include "support/memory.h"

static h2okv_shape make_shape(void)
{
    h2okv_shape shape;
    h2okv_shape_init(&shape);
    shape.batch = 2;
    shape.layers = 2;
    shape.heads = 2;
    shape.group = 2;
    shape.head_dim = 4;
    shape.lane_per_head = 1;
    return shape;
}

static h2okv_options make_options(void)
{
    h2okv_options options;
    h2okv_options_init(&options);
    options.sinks = 0; /* the model knows no presets */
    options.decay = 1.0;
    options.budget = 5;
    options.recent = 2;
    return options;
}

/* A store of two layers with tokens in both, one of them past its budget. */
static void open_filled(rig *r, const h2okv_options *options)
{
    h2okv_shape shape = make_shape();
    rig_open(r, &shape, options, 3);
    for (uint32_t i = 0; i < 9; i++) {
        rig_step(r, 0);
        if (i < 3) {
            rig_step(r, 1);
        }
    }
}

/* ---- Create ------------------------------------------------------------------------------------------- */

static void expect_refusal(const h2okv_shape *shape, const h2okv_options *options, const char *field,
                           const char *part_of_text)
{
    h2okv_error error = {0, "", ""};
    h2okv_store *store = (h2okv_store *)&error;
    size_t bytes = 77;
    check_context("expected field %s", field);
    CHECK_STATUS(h2okv_store_create(&store, shape, options, &error), H2OKV_E_INVALID);
    CHECK(store == NULL && error.status == H2OKV_E_INVALID);
    check_context("expected field %s, text %s; got %s: %s", field, part_of_text, error.field, error.text);
    CHECK(strcmp(error.field, field) == 0 && strstr(error.text, part_of_text) != NULL);
    CHECK_STATUS(h2okv_store_create(&store, shape, options, NULL), H2OKV_E_INVALID);
    CHECK_STATUS(h2okv_store_bytes(shape, options, &bytes), H2OKV_E_INVALID);
    CHECK(bytes == 77);
}

static void shapes_refused_by_field(void **state)
{
    (void)state;
    const struct {
        size_t at;
        uint32_t value;
        const char *field, *text;
    } rows[] = {
        {offsetof(h2okv_shape, batch), 0, "batch", "batch is 0"},
        {offsetof(h2okv_shape, batch), 0x80000000u, "batch", "2147483648"},
        {offsetof(h2okv_shape, layers), 0, "layers", "layers is 0"},
        {offsetof(h2okv_shape, heads), 0, "heads", "heads is 0"},
        {offsetof(h2okv_shape, group), 0, "group", "group is 0"},
        {offsetof(h2okv_shape, group), 0x7fffffff, "group", "heads (2) * group"},
        {offsetof(h2okv_shape, head_dim), 0, "head_dim", "head_dim is 0"},
        {offsetof(h2okv_shape, type_k), 4, "type_k", "type_k is 4"},
        {offsetof(h2okv_shape, type_v), 9, "type_v", "type_v is 9"},
        {offsetof(h2okv_shape, type_v), H2OKV_TYPE_Q8_0, "head_dim", "multiple of 32"},
        {offsetof(h2okv_shape, lane_per_head), 2, "lane_per_head", "lane_per_head is 2"},
        {offsetof(h2okv_shape, size), 0, "size", "h2okv_shape_init"},
    };
    h2okv_options options = make_options();
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        h2okv_shape shape = make_shape();
        memcpy((unsigned char *)&shape + rows[i].at, &rows[i].value, sizeof rows[i].value);
        expect_refusal(&shape, &options, rows[i].field, rows[i].text);
    }
    expect_refusal(NULL, &options, "size", "h2okv_shape_init");
    h2okv_shape shape = make_shape();
    shape.heads = 4;
    shape.group = 0x40000000; /* their product is 0 in 32 bits */
    expect_refusal(&shape, &options, "group", "heads (4) * group");
}

/* faults.md 36: each odd budget is one error or has one stated meaning. */
static void fault_36_budgets_refused_by_field(void **state)
{
    (void)state;
    const struct {
        size_t at;
        uint32_t value;
        const char *field, *text;
    } rows[] = {
        {offsetof(h2okv_options, budget), 0, "budget", "budget is 0"},
        {offsetof(h2okv_options, budget), UINT32_MAX, "budget", "4294967295"}, /* -1 */
        {offsetof(h2okv_options, budget), 0x7fffffff, "budget", "2147483647"},
        {offsetof(h2okv_options, recent), 6, "recent", "recent is 6"},
        {offsetof(h2okv_options, recent), UINT32_MAX - 1, "recent", "4294967294"}, /* -2 */
        {offsetof(h2okv_options, sinks), 4, "sinks", "sinks is 4"},
        {offsetof(h2okv_options, cells), 5, "cells", "cells is 5"},
        {offsetof(h2okv_options, cells), 4, "budget", "budget is 5"},
        {offsetof(h2okv_options, lanes), 2, "lanes", "lane_per_head"},
        {offsetof(h2okv_options, parts), 2, "parts", "parts is 2"},
        {offsetof(h2okv_options, heads), 2, "heads", "heads is 2"},
        {offsetof(h2okv_options, size), 0, "size", "h2okv_options_init"},
    };
    h2okv_shape shape = make_shape();
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        h2okv_options options = make_options();
        memcpy((unsigned char *)&options + rows[i].at, &rows[i].value, sizeof rows[i].value);
        expect_refusal(&shape, &options, rows[i].field, rows[i].text);
    }
    expect_refusal(&shape, NULL, "size", "h2okv_options_init");
}

/* recent 0: the newest token still stays, as one of the heavy; heavy 0: a window. */
static void fault_36_zero_recent_and_zero_heavy(void **state)
{
    (void)state;
    for (uint32_t recent = 0; recent <= 5; recent += 5) {
        h2okv_options options = make_options();
        int32_t pos[10];
        rig r;
        options.recent = recent;
        open_filled(&r, &options);
        CHECK_OK(h2okv_store_positions(r.store, 1, 0, pos));
        for (uint32_t lane = 0; lane < 2; lane++) {
            CHECK(pos[5 * lane + 4] == 8);
            CHECK(recent == 0 || pos[5 * lane] == 4);
            CHECK(recent == 5 || pos[5 * lane] < 4);
        }
        rig_close(&r);
    }
}

static void sized_structs(void **state)
{
    (void)state;
    struct {
        h2okv_shape known;
        uint32_t newer;
    } wide = {.newer = 0};
    h2okv_options options = make_options();
    h2okv_store *store;
    h2okv_shape old;
    wide.known = make_shape();
    wide.known.size = sizeof wide;
    /* a newer caller that uses nothing new */
    CHECK_OK(h2okv_store_create(&store, &wide.known, &options, NULL));
    h2okv_store_free(store);
    wide.newer = 1;
    expect_refusal(&wide.known, &options, "size", H2OKV_VERSION);

    memset(&old, 0xee, sizeof old); /* an older caller: what it does not know has the default */
    h2okv_shape_init_sized(&old, (uint32_t)offsetof(h2okv_shape, type_k));
    old.heads = old.head_dim = 1;
    CHECK(old.type_k == 0xeeeeeeee && old.batch == 1 && old.layers == 1 && old.group == 1);
    CHECK_OK(h2okv_store_create(&store, &old, &options, NULL));
    h2okv_store_free(store);
}

/* ---- Refused calls change nothing --------------------------------------------------------------------- */

static void expect_update(rig *r, uint32_t layer, const float *key, const float *value, const float *weights,
                          int status)
{
    shown before = show_store(r->store, &r->shape);
    CHECK_STATUS(h2okv_store_update(r->store, layer, key, value, weights), status);
    CHECK(shown_equal(before, show_store(r->store, &r->shape)));
}

static void refused_updates_change_nothing(void **state)
{
    (void)state;
    h2okv_options options = make_options();
    rig r;
    open_filled(&r, &options);
    expect_update(&r, 2, r.key, r.value, r.weights, H2OKV_E_INVALID);
    expect_update(&r, 0, NULL, r.value, r.weights, H2OKV_E_INVALID);
    expect_update(&r, 0, r.key, NULL, r.weights, H2OKV_E_INVALID);
    expect_update(&r, 0, r.key, r.value, NULL, H2OKV_E_INVALID);
    CHECK_STATUS(h2okv_store_trim(r.store, -1), H2OKV_E_INVALID);
    rig_check(&r);
    rig_step(&r, 0); /* and the store works on as if nothing had been tried */
    rig_check(&r);
    rig_close(&r);
}

/* faults.md 19: a NaN or an infinity anywhere, in any sequence, refuses the whole update. */
static void fault_19_bad_weight_anywhere_changes_nothing(void **state)
{
    (void)state;
    const float bad[] = {NAN, -NAN, INFINITY, -INFINITY};
    h2okv_options options = make_options();
    rig r;
    open_filled(&r, &options);
    for (uint32_t i = 0; i < 2 * 4 * 5; i++) {
        float good = r.weights[i];
        check_context("weight %u", i);
        r.weights[i] = bad[i % 4];
        expect_update(&r, 0, r.key, r.value, r.weights, H2OKV_E_NAN);
        r.weights[i] = good;
    }
    rig_step(&r, 0);
    rig_check(&r);
    rig_close(&r);
}

static void full_policy_ends_with_its_cells(void **state)
{
    (void)state;
    h2okv_options options = make_options();
    rig r;
    h2okv_shape shape = make_shape();
    options.policy = "full";
    options.cells = 12;
    rig_open(&r, &shape, &options, 3);
    CHECK(h2okv_store_max_size(r.store) == 12);
    for (uint32_t i = 0; i < 12; i++) {
        rig_step(&r, 0);
    }
    expect_update(&r, 0, r.key, r.value, NULL, H2OKV_E_FULL);
    rig_check(&r);
    rig_close(&r);
}

static void positions_end_at_2_to_the_31(void **state)
{
    (void)state;
    h2okv_options options = make_options();
    rig r;
    open_filled(&r, &options);
    r.store->next_pos[0] = INT32_MAX - 1;
    CHECK_OK(h2okv_store_update(r.store, 0, r.key, r.value, r.weights));
    CHECK(h2okv_store_next_pos(r.store, 0) == INT32_MAX);
    expect_update(&r, 0, r.key, r.value, r.weights, H2OKV_E_FULL);
    rig_close(&r);
}

static void bad_copies_write_nothing(void **state)
{
    (void)state;
    h2okv_options options = make_options();
    float rows[1] = {7.0f};
    int32_t pos[1] = {7};
    double score[1] = {7.0};
    rig r;
    open_filled(&r, &options);
    for (uint32_t i = 0; i < 2; i++) {
        uint32_t sequence = i == 0 ? 2 : 0, layer = i == 0 ? 0 : 2;
        CHECK_STATUS(h2okv_store_keys(r.store, sequence, layer, rows), H2OKV_E_INVALID);
        CHECK_STATUS(h2okv_store_values(r.store, sequence, layer, rows), H2OKV_E_INVALID);
        CHECK_STATUS(h2okv_store_positions(r.store, sequence, layer, pos), H2OKV_E_INVALID);
        CHECK_STATUS(h2okv_store_scores(r.store, sequence, layer, score), H2OKV_E_INVALID);
        CHECK(rows[0] == 7.0f && pos[0] == 7 && score[0] == 7.0);
    }
    CHECK_STATUS(h2okv_store_keys(r.store, 0, 0, NULL), H2OKV_E_INVALID);
    CHECK_STATUS(h2okv_store_values(r.store, 0, 0, NULL), H2OKV_E_INVALID);
    CHECK_STATUS(h2okv_store_positions(r.store, 0, 0, NULL), H2OKV_E_INVALID);
    CHECK_STATUS(h2okv_store_scores(r.store, 0, 0, NULL), H2OKV_E_INVALID);
    CHECK(h2okv_store_size(r.store, 2) == 0 && h2okv_store_next_pos(r.store, 2) == 0);
    rig_close(&r);
}

/* ---- A policy that ranks with NaN --------------------------------------------------------------------- */

static int rank_nan; /* set by the tests below */

static const double *rank_badly(const h2okv_lane_view *lane, double *scratch)
{
    for (uint32_t i = 0; i < lane->cells; i++) {
        scratch[i] = rank_nan ? (double)NAN : -(double)lane->pos[i]; /* the first tokens stay */
    }
    return scratch;
}

static void open_with_bad_policy(rig *r)
{
    h2okv_policy policy = {.size = sizeof policy, .name = "bad", .rank = rank_badly};
    h2okv_options options = make_options();
    options.custom_policy = &policy; /* copied: it may go when create is done */
    rank_nan = 0;
    open_filled(r, &options);
    memset(&policy, 0xee, sizeof policy);
    rank_nan = 1;
}

/* The token is in when ranks are asked for, so that the store is lost: it says so, now and later. */
static void nan_rank_breaks_an_update(void **state)
{
    (void)state;
    rig r;
    open_with_bad_policy(&r);
    CHECK_STATUS(h2okv_store_update(r.store, 0, r.key, r.value, r.weights), H2OKV_E_BROKEN);
    rank_nan = 0;
    CHECK_STATUS(h2okv_store_update(r.store, 1, r.key, r.value, r.weights), H2OKV_E_BROKEN);
    CHECK_STATUS(h2okv_store_trim(r.store, 0), H2OKV_E_BROKEN);
    rig_close(&r);
}

/* A trim that has to rank asks before it changes anything. */
static void nan_rank_refuses_a_trim(void **state)
{
    (void)state;
    rig r;
    open_with_bad_policy(&r);
    shown before = show_store(r.store, &r.shape);
    CHECK_STATUS(h2okv_store_trim(r.store, 5), H2OKV_E_NAN);
    CHECK(shown_equal(before, show_store(r.store, &r.shape)));
    rank_nan = 0;
    CHECK_OK(h2okv_store_trim(r.store, 5));
    CHECK(h2okv_store_next_pos(r.store, 0) == 5 && h2okv_store_next_pos(r.store, 1) == 3);
    rig_close(&r);
}

/* ---- Memory ------------------------------------------------------------------------------------------- */

static void bytes_are_known_and_later_calls_take_none(void **state)
{
    (void)state;
    for (uint32_t type = H2OKV_TYPE_F32; type <= H2OKV_TYPE_Q8_0; type++) {
        test_memory memory;
        h2okv_options options = make_options();
        h2okv_shape shape = make_shape();
        size_t bytes = 0;
        rig r;
        test_memory_init(&memory, 0);
        options.allocator = &memory.hook;
        shape.head_dim = 32;
        shape.type_k = type;
        CHECK_OK(h2okv_store_bytes(&shape, &options, &bytes));
        CHECK(memory.calls == 0);
        rig_open(&r, &shape, &options, 3);
        uint32_t calls = memory.calls;
        CHECK(memory.bytes == bytes && calls > 0);
        for (uint32_t step = 0; step < 20; step++) {
            rig_step(&r, 0);
        }
        rig_trim(&r, 18);
        h2okv_store_clear(r.store);
        CHECK(memory.calls == calls);
        rig_close(&r);
        CHECK(memory.held == 0 && memory.wrong_frees == 0);
    }
}

static void each_allocation_fails_in_turn(void **state)
{
    (void)state;
    h2okv_shape shape = make_shape();
    int status = H2OKV_E_NOMEM;
    for (uint32_t n = 1; status == H2OKV_E_NOMEM; n++) {
        test_memory memory;
        h2okv_options options = make_options();
        h2okv_error error = {0, "", ""};
        h2okv_store *store = NULL;
        check_context("allocation %u fails", n);
        test_memory_init(&memory, n);
        options.allocator = &memory.hook;
        status = h2okv_store_create(&store, &shape, &options, &error);
        CHECK(status == H2OKV_OK ? n == 6 : store == NULL && error.status == status && error.text[0] != '\0');
        h2okv_store_free(store);
        CHECK(memory.held == 0 && memory.wrong_frees == 0);
    }
    CHECK_OK(status);
}

/* Sizes whose product does not fit are refused, not wrapped. */
static void impossible_sizes(void **state)
{
    (void)state;
    h2okv_options options = make_options();
    h2okv_shape shape = make_shape();
    h2okv_store *store;
    size_t bytes;
    shape.batch = shape.layers = shape.heads = shape.head_dim = 0x7fffffff;
    shape.group = 1;
    CHECK_STATUS(h2okv_store_bytes(&shape, &options, &bytes), H2OKV_E_NOMEM);
    CHECK_STATUS(h2okv_store_create(&store, &shape, &options, NULL), H2OKV_E_NOMEM);
    CHECK_STATUS(h2okv_store_bytes(&shape, &options, NULL), H2OKV_E_INVALID);
    CHECK_STATUS(h2okv_store_create(NULL, &shape, &options, NULL), H2OKV_E_INVALID);
    h2okv_store_free(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shapes_refused_by_field),
        cmocka_unit_test(fault_36_budgets_refused_by_field),
        cmocka_unit_test(fault_36_zero_recent_and_zero_heavy),
        cmocka_unit_test(sized_structs),
        cmocka_unit_test(refused_updates_change_nothing),
        cmocka_unit_test(fault_19_bad_weight_anywhere_changes_nothing),
        cmocka_unit_test(full_policy_ends_with_its_cells),
        cmocka_unit_test(positions_end_at_2_to_the_31),
        cmocka_unit_test(bad_copies_write_nothing),
        cmocka_unit_test(nan_rank_breaks_an_update),
        cmocka_unit_test(nan_rank_refuses_a_trim),
        cmocka_unit_test(bytes_are_known_and_later_calls_take_none),
        cmocka_unit_test(each_allocation_fails_in_turn),
        cmocka_unit_test(impossible_sizes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
