/*
 * test_attend_errors.c - what append and attend refuse, that a refused call changes nothing, and their memory.
 */
#include "store/attend_model.h"

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
    shape.head_dim = 32;
    shape.lane_per_head = 1;
    shape.max_pass = 4;
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

/* Layer 0 past its budget, layer 1 with three tokens. */
static void open_filled(rig *r, const h2okv_shape *shape, const h2okv_options *options)
{
    attend_count count = {0, 0};
    rig_open(r, shape, options, 3);
    r->score_error = ATTEND_ERROR;
    rig_pass(r, 0, 4, &count);
    rig_pass(r, 0, 4, &count);
    rig_pass(r, 1, 3, &count);
}

/* Refused, with nothing changed. */
static void expect_append(rig *r, uint32_t layer, uint32_t n, const float *key, const float *value, int status)
{
    shown before = show_store(r->store, &r->shape);
    CHECK_STATUS(h2okv_store_append(r->store, layer, n, key, value), status);
    CHECK(shown_equal(before, show_store(r->store, &r->shape)));
}

static void expect_attend(rig *r, uint32_t layer, const float *q, float *out, int status)
{
    shown before = show_store(r->store, &r->shape);
    CHECK_STATUS(h2okv_store_attend(r->store, layer, q, out), status);
    CHECK(shown_equal(before, show_store(r->store, &r->shape)));
}

/* The pass goes through after all, in a store that is as if nothing had been refused. */
static void end_pass(rig *r, const pass *p)
{
    attend_count count = {0, 0};
    CHECK_OK(h2okv_store_attend(r->store, 0, p->q, p->out));
    rig_model_pass(r, 0, p, &count);
    rig_check(r);
    rig_pass(r, 0, 2, &count);
    rig_check(r);
}

/* ---- Arguments and order ------------------------------------------------------------------------------ */

static void refused_calls_change_nothing(void **state)
{
    (void)state;
    h2okv_shape shape = make_shape();
    h2okv_options options = make_options();
    rig r;
    open_filled(&r, &shape, &options);
    pass p = pass_make(&r, 4);
    expect_append(&r, 2, 4, p.key, p.value, H2OKV_E_INVALID);
    expect_append(&r, 0, 0, p.key, p.value, H2OKV_E_INVALID);
    expect_append(&r, 0, 5, p.key, p.value, H2OKV_E_INVALID); /* over max_pass */
    expect_append(&r, 0, 4, NULL, p.value, H2OKV_E_INVALID);
    expect_append(&r, 0, 4, p.key, NULL, H2OKV_E_INVALID);
    expect_attend(&r, 0, p.q, p.out, H2OKV_E_ORDER); /* nothing appended */
    CHECK_OK(h2okv_store_append(r.store, 0, 4, p.key, p.value));
    expect_append(&r, 0, 1, p.key, p.value, H2OKV_E_ORDER);
    expect_attend(&r, 1, p.q, p.out, H2OKV_E_ORDER); /* another layer's append */
    expect_attend(&r, 2, p.q, p.out, H2OKV_E_INVALID);
    expect_attend(&r, 0, NULL, p.out, H2OKV_E_INVALID);
    expect_attend(&r, 0, p.q, NULL, H2OKV_E_INVALID);
    CHECK_STATUS(h2okv_store_attend_thread(r.store, 0, p.q, p.out, 0, 0), H2OKV_E_INVALID);
    CHECK_STATUS(h2okv_store_attend_thread(r.store, 0, p.q, p.out, 0, 2), H2OKV_E_INVALID); /* shape.threads is 1 */
    CHECK_STATUS(h2okv_store_attend_thread(r.store, 0, p.q, p.out, 1, 1), H2OKV_E_INVALID);
    CHECK_STATUS(h2okv_store_update(r.store, 0, p.key, p.value, p.q), H2OKV_E_ORDER);
    end_pass(&r, &p);
    pass_free(&p);
    rig_close(&r);
}

static void full_policy_ends_with_its_cells(void **state)
{
    (void)state;
    h2okv_shape shape = make_shape();
    h2okv_options options = make_options();
    attend_count count = {0, 0};
    rig r;
    options.policy = "full";
    options.cells = 13;
    open_filled(&r, &shape, &options); /* 8 tokens */
    rig_pass(&r, 0, 3, &count);
    pass p = pass_make(&r, 3);
    expect_append(&r, 0, 3, p.key, p.value, H2OKV_E_FULL);
    rig_pass(&r, 0, 2, &count);
    rig_check(&r);
    expect_append(&r, 0, 1, p.key, p.value, H2OKV_E_FULL);
    pass_free(&p);
    rig_close(&r);
}

static void positions_end_at_2_to_the_31(void **state)
{
    (void)state;
    h2okv_shape shape = make_shape();
    h2okv_options options = make_options();
    rig r;
    open_filled(&r, &shape, &options);
    pass p = pass_make(&r, 3);
    r.store->next_pos[0] = INT32_MAX - 2;
    expect_append(&r, 0, 3, p.key, p.value, H2OKV_E_FULL);
    CHECK_OK(h2okv_store_append(r.store, 0, 2, p.key, p.value));
    CHECK_OK(h2okv_store_attend(r.store, 0, p.q, p.out));
    CHECK(h2okv_store_next_pos(r.store, 0) == INT32_MAX);
    expect_append(&r, 0, 1, p.key, p.value, H2OKV_E_FULL);
    pass_free(&p);
    rig_close(&r);
}

/* ---- Numbers ------------------------------------------------------------------------------------------ */

/* faults.md 19: a NaN or an infinity anywhere, in any sequence, refuses the call. */
static void fault_19_bad_number_anywhere_changes_nothing(void **state)
{
    (void)state;
    const float bad[] = {NAN, -NAN, INFINITY, -INFINITY};
    h2okv_shape shape = make_shape();
    h2okv_options options = make_options();
    rig r;
    open_filled(&r, &shape, &options);
    pass p = pass_make(&r, 3);
    float *arrays[] = {p.key, p.value, p.q};
    for (uint32_t a = 0; a < 3; a++) {
        size_t numbers = 2 * 3 * (a < 2 ? rig_row(&r) : pass_q_row(&r));
        if (a == 2) {
            CHECK_OK(h2okv_store_append(r.store, 0, 3, p.key, p.value));
        }
        for (size_t i = 0; i < numbers; i += i + 40 < numbers ? 37 : 1) {
            float good = arrays[a][i];
            check_context("array %u, number %u", a, (unsigned)i);
            arrays[a][i] = bad[i % 4];
            if (a < 2) {
                expect_append(&r, 0, 3, p.key, p.value, H2OKV_E_NAN);
            } else {
                expect_attend(&r, 0, p.q, p.out, H2OKV_E_NAN);
            }
            arrays[a][i] = good;
        }
    }
    end_pass(&r, &p);
    pass_free(&p);
    rig_close(&r);
}

/* What the type rounds to an infinity (q8_0: to NaN) is refused, and nothing that it can hold. */
static void numbers_too_large_for_the_type(void **state)
{
    (void)state;
    const float first[] = {INFINITY, 65520.0f, 0x1.ffp127f, 8321040.0f};
    for (uint32_t type = H2OKV_TYPE_F32; type <= H2OKV_TYPE_Q8_0; type++) {
        for (uint32_t is_value = 0; is_value < 2; is_value++) {
            h2okv_shape shape = make_shape();
            h2okv_options options = make_options();
            float row[32] = {0}, back[32];
            unsigned char encoded[128];
            rig r;
            *(is_value ? &shape.type_v : &shape.type_k) = type;
            open_filled(&r, &shape, &options);
            pass p = pass_make(&r, 1);
            float *number = (is_value ? p.value : p.key) + 77;
            check_context("type %u, value %u", type, is_value);
            *number = -first[type];
            expect_append(&r, 0, 1, p.key, p.value, H2OKV_E_NAN);
            *number = row[5] = nextafterf(first[type], 0.0f);
            CHECK_OK(h2okv_store_append(r.store, 0, 1, p.key, p.value));
            h2okv__row_encode(type, row, encoded, 32); /* the border is where the type's own rounding has it */
            h2okv__row_decode(type, encoded, back, 32);
            CHECK(isfinite(back[5]));
            row[5] = first[type];
            h2okv__row_encode(type, row, encoded, 32);
            h2okv__row_decode(type, encoded, back, 32);
            CHECK(!isfinite(back[5]));
            pass_free(&p);
            rig_close(&r);
        }
    }
}

/* Finite numbers whose products are not: seen after the attention, in the second sequence only; all is taken back. */
static void overflow_in_attention_is_taken_back(void **state)
{
    (void)state;
    for (uint32_t count_self = 0; count_self < 2; count_self++) {
        h2okv_shape shape = make_shape();
        h2okv_options options = make_options();
        rig r;
        options.count_self = count_self;
        options.decay = 0.9;
        open_filled(&r, &shape, &options);
        pass p = pass_make(&r, 3);
        float *key = p.key + 2 * 3 * rig_row(&r) - 1, *q = p.q + 2 * 3 * pass_q_row(&r) - 1; /* the very last numbers */
        float good_key = *key, good_q = *q;
        *key = *q = 3e30f; /* the last token's weight on itself */
        CHECK_OK(h2okv_store_append(r.store, 0, 3, p.key, p.value));
        expect_attend(&r, 0, p.q, p.out, H2OKV_E_NAN);
        expect_attend(&r, 0, p.q, p.out, H2OKV_E_NAN);
        *key = good_key;
        *q = good_q;
        CHECK_STATUS(h2okv_store_append(r.store, 0, 3, p.key, p.value), H2OKV_E_ORDER); /* it still waits */
        CHECK_OK(h2okv_store_trim(r.store, h2okv_store_next_pos(r.store, 0)));
        CHECK_OK(h2okv_store_append(r.store, 0, 3, p.key, p.value));
        end_pass(&r, &p);
        pass_free(&p);
        rig_close(&r);
    }
}

/* The first n tokens of a store, refused when `change` has been at work; then q is put right, or all that was given. */
static void expect_nan_of_first_pass(uint32_t n, void (*change)(pass *p), int refill)
{
    h2okv_shape shape = make_shape();
    h2okv_options options = make_options();
    rig r;
    rig_open(&r, &shape, &options, 3);
    r.score_error = ATTEND_ERROR;
    pass p = pass_make(&r, n);
    float good = p.q[2 * n * pass_q_row(&r) - 1];
    change(&p);
    CHECK_OK(h2okv_store_append(r.store, 0, n, p.key, p.value));
    expect_attend(&r, 0, p.q, p.out, H2OKV_E_NAN);
    if (refill) {
        CHECK_OK(h2okv_store_trim(r.store, 0));
        pass_free(&p);
        p = pass_make(&r, n);
        CHECK_OK(h2okv_store_append(r.store, 0, n, p.key, p.value));
    } else {
        p.q[2 * n * pass_q_row(&r) - 1] = good;
    }
    end_pass(&r, &p);
    pass_free(&p);
    rig_close(&r);
}

/* A logit of -infinity would only weigh nothing: it is q that is refused, here in the second sequence. */
static void q_of_minus_infinity(pass *p)
{
    p->q[2 * p->n * 2 * 2 * 32 - 1] = -INFINITY;
    p->key[2 * p->n * 2 * 32 - 1] = 1.0f;
}

/* Every weight and every mass is finite, the sum of values is not. */
static void values_near_the_end(pass *p)
{
    for (uint32_t i = 0; i < 2 * p->n * 2 * 32; i++) {
        p->key[i] = 0.0f;
        p->value[i] = 3e38f;
    }
}

static void what_only_q_or_out_shows(void **state)
{
    (void)state;
    expect_nan_of_first_pass(1, q_of_minus_infinity, 0);
    expect_nan_of_first_pass(4, values_near_the_end, 1);
}

/* update() takes K as it is; attend says that there is something in it. */
static void bad_keys_by_update_are_reported(void **state)
{
    (void)state;
    h2okv_shape shape = make_shape();
    h2okv_options options = make_options();
    rig r;
    rig_open(&r, &shape, &options, 3);
    pass p = pass_make(&r, 1);
    r.key[5] = NAN;
    CHECK_OK(h2okv_store_update(r.store, 0, r.key, r.value, NULL));
    CHECK_OK(h2okv_store_append(r.store, 0, 1, p.key, p.value));
    expect_attend(&r, 0, p.q, p.out, H2OKV_E_NAN);
    pass_free(&p);
    rig_close(&r);
}

static int rank_nan; /* set by the test below */

static const double *rank_badly(const h2okv_lane_view *lane, double *scratch)
{
    static uint32_t calls;
    calls = rank_nan ? calls + 1 : 0; /* a sequence has two lanes */
    for (uint32_t i = 0; i < lane->cells; i++) {
        scratch[i] = rank_nan && calls > 2 ? (double)NAN : lane->score[i];
    }
    return scratch;
}

/* A custom policy's NaN, in the second sequence when the first has its plan already: all is taken back. */
static void nan_rank_is_taken_back(void **state)
{
    (void)state;
    h2okv_policy policy = {.size = sizeof policy, .flags = H2OKV_POLICY_NEEDS_SCORES, .name = "bad",
                           .rank = rank_badly};
    h2okv_shape shape = make_shape();
    h2okv_options options = make_options();
    rig r;
    options.custom_policy = &policy;
    rank_nan = 0;
    open_filled(&r, &shape, &options);
    pass p = pass_make(&r, 3);
    CHECK_OK(h2okv_store_append(r.store, 0, 3, p.key, p.value));
    rank_nan = 1;
    expect_attend(&r, 0, p.q, p.out, H2OKV_E_NAN);
    rank_nan = 0;
    end_pass(&r, &p);
    pass_free(&p);
    rig_close(&r);
}

/* ---- Create ------------------------------------------------------------------------------------------- */

static void expect_refusal(const h2okv_shape *shape, const h2okv_options *options, int status, const char *field,
                           const char *part_of_text)
{
    h2okv_error error = {0, "", ""};
    h2okv_store *store = (h2okv_store *)&error;
    size_t bytes = 77;
    CHECK_STATUS(h2okv_store_create(&store, shape, options, &error), status);
    check_context("expected field %s, text %s; got %s: %s", field, part_of_text, error.field, error.text);
    CHECK(store == NULL && strcmp(error.field, field) == 0 && strstr(error.text, part_of_text) != NULL);
    CHECK_STATUS(h2okv_store_bytes(shape, options, &bytes), status);
    CHECK(bytes == 77);
}

static void shapes_refused_by_field(void **state)
{
    (void)state;
    h2okv_options options = make_options();
    h2okv_shape shape = make_shape();
    shape.threads = 0;
    expect_refusal(&shape, &options, H2OKV_E_INVALID, "threads", "threads is 0");
    shape.threads = 1;
    shape.isa = "sse17";
    expect_refusal(&shape, &options, H2OKV_E_INVALID, "isa", "sse17");
    shape.isa = NULL;
    shape.head_dim = 24;
    expect_refusal(&shape, &options, H2OKV_E_UNSUPPORTED, "max_pass", "32 to 256");
    shape.head_dim = 264;
    expect_refusal(&shape, &options, H2OKV_E_UNSUPPORTED, "max_pass", "32 to 256");
    shape = make_shape();
    shape.scale = NAN;
    expect_refusal(&shape, &options, H2OKV_E_UNSUPPORTED, "max_pass", "finite");
    shape = make_shape();
    shape.softcap = -1.0f;
    expect_refusal(&shape, &options, H2OKV_E_UNSUPPORTED, "max_pass", "negative");
    shape = make_shape();
    options.cells = 8; /* budget 5 + 4 tokens */
    expect_refusal(&shape, &options, H2OKV_E_INVALID, "cells", "needs 4 more than the 5");
    options.policy = "full";
    shape.max_pass = 9;
    expect_refusal(&shape, &options, H2OKV_E_INVALID, "cells", "needs 9 more than the 0");
    options = make_options();
    shape.max_pass = UINT32_MAX;
    expect_refusal(&shape, &options, H2OKV_E_INVALID, "cells", "4294967295");
    shape.max_pass = UINT32_MAX - 5;
    expect_refusal(&shape, &options, H2OKV_E_INVALID, "cells", "4294967295");
}

/* cells 0 is the budget and the largest pass; just enough is enough. */
static void least_cells(void **state)
{
    (void)state;
    h2okv_options options = make_options(), given = options;
    h2okv_shape shape = make_shape();
    size_t bytes[2] = {0, 1};
    given.cells = 9;
    CHECK_OK(h2okv_store_bytes(&shape, &options, &bytes[0]));
    CHECK_OK(h2okv_store_bytes(&shape, &given, &bytes[1]));
    CHECK(bytes[0] == bytes[1]);
}

/* ---- Memory ------------------------------------------------------------------------------------------- */

static void bytes_are_known_and_later_calls_take_none(void **state)
{
    (void)state;
    for (uint32_t threads = 1; threads <= 3; threads++) {
        test_memory memory;
        attend_count count = {0, 0};
        h2okv_options options = make_options();
        h2okv_shape shape = make_shape();
        size_t bytes = 0;
        rig r;
        test_memory_init(&memory, 0);
        options.allocator = &memory.hook;
        shape.threads = threads;
        shape.max_pass = 11;
        CHECK_OK(h2okv_store_bytes(&shape, &options, &bytes));
        CHECK(memory.calls == 0);
        rig_open(&r, &shape, &options, 3);
        uint32_t calls = memory.calls;
        CHECK(memory.bytes == bytes && calls == 5);
        for (uint32_t n = 1; n <= 11; n++) {
            rig_pass(&r, 0, n, &count);
        }
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

/* Without max_pass, as in an older caller's struct that ends before it, a store is for update() only. */
static void without_max_pass_there_is_no_attend(void **state)
{
    (void)state;
    for (uint32_t is_old = 0; is_old < 2; is_old++) {
        h2okv_options options = make_options();
        h2okv_shape shape;
        float numbers[4] = {0};
        h2okv_store *store;
        memset(&shape, 0xee, sizeof shape);
        h2okv_shape_init_sized(&shape, (uint32_t)(is_old ? offsetof(h2okv_shape, max_pass) : sizeof shape));
        shape.heads = shape.head_dim = 1; /* which attention could not do */
        CHECK(shape.max_pass == (is_old ? 0xeeeeeeee : 0));
        CHECK_OK(h2okv_store_create(&store, &shape, &options, NULL));
        CHECK_STATUS(h2okv_store_append(store, 0, 1, numbers, numbers), H2OKV_E_UNSUPPORTED);
        CHECK_STATUS(h2okv_store_attend(store, 0, numbers, numbers), H2OKV_E_UNSUPPORTED);
        CHECK_OK(h2okv_store_update(store, 0, numbers, numbers, NULL));
        h2okv_store_free(store);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(refused_calls_change_nothing),
        cmocka_unit_test(full_policy_ends_with_its_cells),
        cmocka_unit_test(positions_end_at_2_to_the_31),
        cmocka_unit_test(fault_19_bad_number_anywhere_changes_nothing),
        cmocka_unit_test(numbers_too_large_for_the_type),
        cmocka_unit_test(overflow_in_attention_is_taken_back),
        cmocka_unit_test(what_only_q_or_out_shows),
        cmocka_unit_test(bad_keys_by_update_are_reported),
        cmocka_unit_test(nan_rank_is_taken_back),
        cmocka_unit_test(shapes_refused_by_field),
        cmocka_unit_test(least_cells),
        cmocka_unit_test(bytes_are_known_and_later_calls_take_none),
        cmocka_unit_test(each_allocation_fails_in_turn),
        cmocka_unit_test(without_max_pass_there_is_no_attend),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
