/*
 * test_store.c - the store against the naive model of model.h: random runs, the worked example and the
 * demonstration of the H2O class, trims, shapes and events.
 */
#include "store/model.h"

#include <stdio.h>

#include "store/store.h"

/* ---- Random runs -------------------------------------------------------------------------------------- */

static h2okv_shape random_shape(rng *r)
{
    static const uint32_t dims[] = {1, 3, 8, 32, 64};
    h2okv_shape shape = model_shape(rng_range(r, 1, 4), rng_range(r, 1, 3), dims[rng_below(r, 5)]);
    uint32_t types = shape.head_dim % 32 == 0 ? 4 : 3;
    shape.layers = rng_range(r, 1, 2);
    shape.group = rng_range(r, 1, 3);
    shape.type_k = rng_below(r, types);
    shape.type_v = rng_below(r, types);
    shape.lane_per_head = rng_below(r, 2);
    return shape;
}

static h2okv_options random_options(rng *r)
{
    static const char *const policies[] = {"h2o", "h2o", "h2o", "window", "full"};
    static const double decays[] = {1.0, 1.0, 0.98, 0.5};
    h2okv_options options = model_options(rng_below(r, 8), rng_range(r, 1, 8));
    uint32_t recent = options.recent > 0 ? options.recent : 1;
    options.policy = policies[rng_below(r, 5)];
    options.decay = decays[rng_below(r, 4)];
    options.heads = rng_below(r, 2);
    options.sinks = rng_below(r, options.budget - recent + 1);
    if (strcmp(options.policy, "full") == 0) {
        options.cells = MODEL_TOKENS;
    } else if (rng_below(r, 2)) {
        options.cells = options.budget + 1 + rng_below(r, 5);
    }
    return options;
}

static void random_run(uint64_t seed)
{
    rng choice = {seed};
    rig r;
    h2okv_shape shape = random_shape(&choice);
    h2okv_options options = random_options(&choice);
    rig_open(&r, &shape, &options, seed);
    r.coarse = options.decay >= 1.0 && rng_below(&choice, 2);
    for (uint32_t step = 0; step < 40; step++) {
        check_context("seed %u, step %u, policy %s, lanes %u, budget %u", (unsigned)seed, step,
                      options.policy, r.lanes, options.budget);
        rig_step(&r, rng_below(&choice, shape.layers));
        rig_check(&r);
        CHECK(h2okv_store_size(r.store, 0) <= h2okv_store_max_size(r.store));
    }
    rig_close(&r);
}

static void random_runs_equal_the_model(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 150; seed++) {
        random_run(seed);
    }
}

/* Trims that drop only recent tokens are exact: what follows equals the model, in which they never were. */
static void short_trims_equal_the_model(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 30; seed++) {
        rng choice = {seed};
        rig r;
        h2okv_shape shape = random_shape(&choice);
        h2okv_options options = model_options(6, 5);
        shape.layers = 1;
        rig_open(&r, &shape, &options, seed);
        for (uint32_t step = 0; step < 12; step++) {
            check_context("seed %u, round %u", (unsigned)seed, step);
            for (uint32_t i = 0; i < 6; i++) { /* a window of 6 full again, so that the next trim is exact */
                rig_step(&r, 0);
                rig_check(&r);
            }
            rig_trim(&r, r.next_pos[0] - (int32_t)rng_below(&choice, 7));
            rig_check(&r);
        }
        rig_close(&r);
    }
}

/* A trim that goes further loses tokens, but what it leaves is right and every sequence is as long. */
static void long_trims_leave_right_rows(void **state)
{
    (void)state;
    for (int32_t cut = 0; cut <= 30; cut++) {
        rig r;
        h2okv_shape shape = model_shape(3, 2, 8);
        h2okv_options options = model_options(4, 6);
        int32_t pos[20];
        shape.lane_per_head = 1;
        rig_open(&r, &shape, &options, 5);
        for (uint32_t step = 0; step < 30; step++) {
            rig_step(&r, 0);
        }
        check_context("cut at %d", cut);
        CHECK_OK(h2okv_store_trim(r.store, cut));
        CHECK(h2okv_store_next_pos(r.store, 0) == cut);
        uint32_t size = h2okv_store_size(r.store, 0);
        for (uint32_t b = 0; b < 3; b++) { /* the model takes over what is left; then rows must match */
            CHECK_OK(h2okv_store_positions(r.store, b, 0, pos));
            for (uint32_t i = 0; i < 2 * size; i++) {
                model_lane *lane = rig_lane(&r, b, 0, i / size);
                uint32_t from = 0;
                CHECK(pos[i] < cut && (i % size == 0 || pos[i - 1] < pos[i]));
                while (lane->pos[from] != pos[i]) {
                    CHECK(++from < lane->count); /* nothing comes back */
                }
                lane->pos[i % size] = pos[i];
                lane->score[i % size] = lane->score[from];
            }
            rig_lane(&r, b, 0, 0)->count = rig_lane(&r, b, 0, 1)->count = size;
        }
        r.next_pos[0] = cut;
        rig_check(&r);
        for (uint32_t step = 0; step < 30; step++) {
            rig_step(&r, 0);
            rig_check(&r);
        }
        rig_close(&r);
    }
}

/* The random policy draws by seed alone: what it keeps carries the K and V that were put there. */
static void random_policy_keeps_true_rows(void **state)
{
    (void)state;
    rig r;
    h2okv_shape shape = model_shape(2, 2, 8);
    h2okv_options options = model_options(3, 5);
    int32_t pos[16];
    float keys[2 * 8 * 8];
    options.policy = "random";
    options.seed = 11;
    rig_open(&r, &shape, &options, 1);
    for (uint32_t step = 0; step < 60; step++) {
        rig_fill(&r, r.key, 2 * rig_row(&r));
        memcpy(r.past_k + step * rig_row(&r), r.key, rig_row(&r) * sizeof(float));
        CHECK_OK(h2okv_store_update(r.store, 0, r.key, r.key, NULL));
        CHECK_OK(h2okv_store_positions(r.store, 0, 0, pos));
        CHECK_OK(h2okv_store_keys(r.store, 0, 0, keys));
        uint32_t size = h2okv_store_size(r.store, 0);
        CHECK(size == (step < 8 ? step + 1 : 8) && pos[size - 1] == (int32_t)step);
        for (uint32_t i = 0; i < 2 * size; i++) {
            const float *put = r.past_k + (size_t)pos[i % size] * 16 + (i / size) * 8;
            CHECK(memcmp(keys + (size_t)i * 8, put, 8 * sizeof(float)) == 0);
        }
    }
    rig_close(&r);
}

/* ---- The class's own examples ------------------------------------------------------------------------- */

static void check_positions(const h2okv_store *store, const int32_t *expected, uint32_t n)
{
    int32_t pos[64];
    CHECK(h2okv_store_size(store, 0) == n);
    CHECK_OK(h2okv_store_positions(store, 0, 0, pos));
    for (uint32_t i = 0; i < n; i++) {
        check_context("entry %u is position %d, expected %d", i, pos[i], expected[i]);
        CHECK(pos[i] == expected[i]);
    }
}

/* Scores 3.8 0.4 2.1 0.3 0.0 at positions 0..4, recent 2, heavy 2: position 1 goes. */
static void worked_example(void **state)
{
    (void)state;
    const float rows[5][4] = {{0}, {0}, {0}, {0}, {3.8f, 0.4f, 2.1f, 0.3f}};
    const double scores[4] = {3.8, 2.1, 0.3, 0.0};
    const int32_t kept[4] = {0, 2, 3, 4};
    h2okv_shape shape = model_shape(1, 1, 2);
    h2okv_options options = model_options(2, 2);
    h2okv_store *store;
    double score[4];
    float keys[8];
    CHECK_OK(h2okv_store_create(&store, &shape, &options, NULL));
    for (uint32_t i = 0; i < 5; i++) {
        const float key[2] = {(float)i, (float)i + 0.5f};
        CHECK_OK(h2okv_store_update(store, 0, key, key, i > 0 ? rows[i] : NULL));
    }
    check_positions(store, kept, 4);
    CHECK_OK(h2okv_store_scores(store, 0, 0, score));
    CHECK_OK(h2okv_store_keys(store, 0, 0, keys));
    for (uint32_t i = 0; i < 4; i++) {
        CHECK(fabs(score[i] - scores[i]) < 1e-6);
        CHECK((double)keys[2 * i] == kept[i] && (double)keys[2 * i + 1] == kept[i] + 0.5);
    }
    h2okv_store_free(store);
}

/* softmax(uniform[0,1) + 2 at positions 5 and 10) for each head, over the tokens at pos[0..n). */
static void demonstration_weights(rng *r, const int32_t *pos, uint32_t n, float *weights)
{
    for (uint32_t head = 0; head < 8; head++, weights += n) {
        double e[32], sum = 0.0;
        for (uint32_t i = 0; i < n; i++) {
            e[i] = exp((double)rng_float(r) + (pos[i] == 5 || pos[i] == 10 ? 2.0 : 0.0));
            sum += e[i];
        }
        for (uint32_t i = 0; i < n; i++) {
            weights[i] = (float)(e[i] / sum);
        }
    }
}

static void demonstration_of_50_tokens(void **state)
{
    (void)state;
    const int32_t kept[16] = {0, 1, 2, 3, 4, 5, 6, 10, 42, 43, 44, 45, 46, 47, 48, 49};
    for (uint64_t seed = 1; seed <= 20; seed++) {
        rng r = {seed};
        h2okv_shape shape = model_shape(1, 8, 64);
        h2okv_options options = model_options(8, 8);
        h2okv_store *store;
        float key[512] = {0}, weights[8 * 16];
        int32_t pos[16];
        CHECK_OK(h2okv_store_create(&store, &shape, &options, NULL));
        for (uint32_t i = 0; i < 50; i++) {
            uint32_t size = h2okv_store_size(store, 0);
            CHECK_OK(h2okv_store_positions(store, 0, 0, pos));
            demonstration_weights(&r, pos, size, weights);
            CHECK_OK(h2okv_store_update(store, 0, key, key, size > 0 ? weights : NULL));
        }
        check_positions(store, kept, 16);
        h2okv_store_free(store);
    }
}

/* ---- Shapes, layout, events --------------------------------------------------------------------------- */

/* Copies fill exactly [heads][size][head_dim] and [lanes][size]: not a number more. */
static void copies_have_the_stated_shapes(void **state)
{
    (void)state;
    for (uint32_t lane_per_head = 0; lane_per_head < 2; lane_per_head++) {
        rig r;
        h2okv_shape shape = model_shape(2, 3, 5);
        h2okv_options options = model_options(2, 2);
        shape.lane_per_head = lane_per_head;
        rig_open(&r, &shape, &options, 9);
        for (uint32_t step = 0; step < 7; step++) {
            uint32_t size = h2okv_store_size(r.store, 0), lanes = lane_per_head ? 3 : 1;
            float rows[3 * 4 * 5 + 1], numbers = (float)(3 * size * 5);
            int32_t pos[3 * 4 + 1];
            double score[3 * 4 + 1];
            memset(rows, 0xee, sizeof rows);
            memset(pos, 0xee, sizeof pos);
            memset(score, 0xee, sizeof score);
            const float no_row = rows[60];
            const double no_score = score[12];
            CHECK_OK(h2okv_store_keys(r.store, 1, 0, rows));
            CHECK_OK(h2okv_store_positions(r.store, 1, 0, pos));
            CHECK_OK(h2okv_store_scores(r.store, 1, 0, score));
            CHECK(rows[(int)numbers] == no_row && (size == 0 || rows[(int)numbers - 1] != no_row));
            CHECK(pos[lanes * size] == (int32_t)0xeeeeeeee && score[lanes * size] == no_score);
            CHECK(size == 0 || pos[lanes * size - 1] == (int32_t)step - 1);
            CHECK(size == 0 || score[lanes * size - 1] == 0.0);
            rig_step(&r, 0);
        }
        CHECK(h2okv_store_max_size(r.store) == 4 && h2okv_store_size(r.store, 1) == 0);
        rig_close(&r);
    }
}

/* What attention kernels build on: a head's cells in a run, from an address that is a multiple of 64. */
static void rows_of_a_head_lie_in_a_run(void **state)
{
    (void)state;
    rig r;
    h2okv_shape shape = model_shape(2, 3, 5);
    h2okv_options options = model_options(2, 2);
    shape.layers = 2;
    rig_open(&r, &shape, &options, 2);
    for (uint32_t step = 0; step < 4; step++) {
        rig_step(&r, 1);
    }
    for (uint32_t b = 0; b < 2; b++) {
        const h2okv__part *part = h2okv__part_at(r.store, b, 1);
        CHECK((uintptr_t)part->k % 64 == 0 && (uintptr_t)part->v % 64 == 0);
        for (uint32_t head = 0; head < 3; head++) {
            const float *past = r.past_v + rig_part(&r, b, 1) * MODEL_TOKENS * 15;
            const unsigned char *rows = part->v + (size_t)head * 5 * 20; /* 5 cells of 5 floats */
            for (uint32_t cell = 0; cell < 4; cell++) { /* tokens 0..3 took cells 0..3 */
                CHECK(memcmp(rows + (size_t)cell * 20, past + cell * 15 + head * 5, 20) == 0);
            }
        }
    }
    rig_close(&r);
}

typedef struct heard {
    uint32_t evictions[8], trims[8];
    int32_t last_pos[8];
    double last_score[8];
} heard;

static void hear(void *user, const h2okv_event *event)
{
    heard *h = user;
    CHECK(event->lane < 8);
    (event->kind == H2OKV_EVENT_TRIM ? h->trims : h->evictions)[event->lane]++;
    h->last_pos[event->lane] = event->pos;
    h->last_score[event->lane] = event->score;
}

/* Lane of an event: (sequence * layers + layer) * lanes + lane. */
static void events_name_the_lane_among_all(void **state)
{
    (void)state;
    heard h = {{0}, {0}, {0}, {0}};
    rig r;
    h2okv_shape shape = model_shape(2, 2, 1);
    h2okv_options options = model_options(2, 1);
    shape.layers = 2;
    shape.lane_per_head = 1;
    options.on_event = hear;
    options.event_user = &h;
    rig_open(&r, &shape, &options, 4);
    for (uint32_t step = 0; step < 4; step++) {
        rig_step(&r, 1);
    }
    for (uint32_t lane = 0; lane < 8; lane++) {
        uint32_t layer = lane / 2 % 2;
        const model_lane *own = rig_lane(&r, lane / 4, layer, lane % 2);
        check_context("lane %u", lane);
        CHECK(h.evictions[lane] == layer && h.trims[lane] == 0);
        for (uint32_t i = 0; layer == 1 && i < own->count; i++) {
            CHECK(own->pos[i] != h.last_pos[lane]);
        }
    }
    rig_trim(&r, 3);
    for (uint32_t lane = 0; lane < 8; lane++) {
        CHECK(h.trims[lane] == lane / 2 % 2);
        CHECK(h.trims[lane] == 0 || (h.last_pos[lane] == 3 && h.last_score[lane] == 0.0));
    }
    rig_close(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_runs_equal_the_model),
        cmocka_unit_test(short_trims_equal_the_model),
        cmocka_unit_test(long_trims_leave_right_rows),
        cmocka_unit_test(random_policy_keeps_true_rows),
        cmocka_unit_test(worked_example),
        cmocka_unit_test(demonstration_of_50_tokens),
        cmocka_unit_test(copies_have_the_stated_shapes),
        cmocka_unit_test(rows_of_a_head_lie_in_a_run),
        cmocka_unit_test(events_name_the_lane_among_all),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
