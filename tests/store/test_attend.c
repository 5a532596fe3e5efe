/*
 * test_attend.c - append and attend against the naive model of attend_model.h: random passes, hand-computed scores,
 * chunks, threads, trims in the middle of a pass.
 */
#define _POSIX_C_SOURCE 200809L

#include "store/attend_model.h"

#include <pthread.h>
#include <stdio.h>

#include "h2okv/advanced.h"

static h2okv_shape make_shape(uint32_t heads, uint32_t group, uint32_t head_dim, uint32_t max_pass)
{
    h2okv_shape shape = model_shape(1, heads, head_dim);
    shape.group = group;
    shape.max_pass = max_pass;
    shape.lane_per_head = 1;
    return shape;
}

/* ---- Random passes ------------------------------------------------------------------------------------ */

static h2okv_shape random_shape(rng *r)
{
    static const uint32_t heads[][2] = {{1, 1}, {3, 1}, {1, 3}, {2, 3}, {1, 8}, {2, 8}};
    static const uint32_t dims[] = {32, 40, 64, 96};
    const uint32_t *pair = heads[rng_below(r, 6)];
    h2okv_shape shape = make_shape(pair[0], pair[1], dims[rng_below(r, 4)], rng_range(r, 1, 9));
    uint32_t types = shape.head_dim % 32 == 0 ? 4 : 3;
    shape.batch = rng_range(r, 1, 2);
    shape.layers = rng_range(r, 1, 2);
    shape.type_k = rng_below(r, types);
    shape.type_v = rng_below(r, types);
    shape.lane_per_head = rng_below(r, 2);
    shape.scale = rng_below(r, 2) ? 0.3f : 0.0f;
    shape.softcap = rng_below(r, 3) == 0 ? 2.5f : 0.0f;
    shape.isa = rng_below(r, 2) ? "scalar" : NULL;
    return shape;
}

static h2okv_options random_options(rng *r, const h2okv_shape *shape)
{
    static const char *const policies[] = {"h2o", "h2o", "h2o", "h2o", "window", "full"};
    static const double decays[] = {1.0, 1.0, 0.98, 0.7};
    h2okv_options options = model_options(rng_below(r, 8), rng_range(r, 1, 8));
    uint32_t recent = options.recent > 0 ? options.recent : 1;
    options.policy = policies[rng_below(r, 6)];
    options.decay = decays[rng_below(r, 4)];
    options.heads = rng_below(r, 2);
    options.count_self = rng_below(r, 2);
    options.sinks = rng_below(r, options.budget - recent + 1);
    if (strcmp(options.policy, "full") == 0) {
        options.cells = MODEL_TOKENS;
    } else if (rng_below(r, 2)) {
        options.cells = options.budget + shape->max_pass + rng_below(r, 70);
    }
    return options;
}

static void random_run(uint64_t seed, attend_count *count)
{
    rng choice = {seed};
    rig r;
    h2okv_shape shape = random_shape(&choice);
    h2okv_options options = random_options(&choice, &shape);
    rig_open(&r, &shape, &options, seed);
    r.score_error = ATTEND_ERROR;
    for (uint32_t step = 0; step < 24; step++) {
        uint32_t layer = rng_below(&choice, shape.layers), n = rng_range(&choice, 1, shape.max_pass);
        check_context("seed %u, step %u: %u tokens, policy %s, lanes %u, group %u, budget %u, count_self %u, decay %g",
                      (unsigned)seed, step, n, options.policy, r.lanes, shape.group, options.budget,
                      options.count_self, options.decay);
        if (r.next_pos[layer] + 9 > MODEL_TOKENS) {
            break;
        }
        if (rng_below(&choice, 8) == 0) {
            rig_step(&r, layer); /* update() may take its turn */
        } else {
            rig_pass(&r, layer, n, count);
        }
        rig_check(&r);
    }
    rig_close(&r);
}

static void random_passes_equal_the_model(void **state)
{
    attend_count count = {0, 0};
    (void)state;
    for (uint64_t seed = 1; seed <= 120; seed++) {
        random_run(seed, &count);
    }
    print_message("%u near ties in %u choices\n", count.near_ties, count.choices);
    CHECK(count.choices > 2000 && count.near_ties * 1000 <= count.choices);
}

/* A trim among the `recent` newest leaves what the model has without them, also after passes of several tokens. */
static void short_trims_equal_the_model(void **state)
{
    attend_count count = {0, 0};
    (void)state;
    for (uint64_t seed = 1; seed <= 10; seed++) {
        rng choice = {seed};
        rig r;
        h2okv_shape shape = make_shape(2, 2, 32, 3);
        h2okv_options options = model_options(6, 5);
        rig_open(&r, &shape, &options, seed);
        r.score_error = ATTEND_ERROR;
        for (uint32_t round = 0; round < 12; round++) {
            check_context("seed %u, round %u", (unsigned)seed, round);
            for (uint32_t i = 0; i < 3; i++) {
                rig_pass(&r, 0, rng_range(&choice, 2, 3), &count);
                rig_check(&r);
            }
            rig_trim(&r, r.next_pos[0] - (int32_t)rng_below(&choice, 7));
            rig_check(&r);
        }
        rig_close(&r);
    }
}

/* ---- By hand ------------------------------------------------------------------------------------------ */

/* q is 0, so that each query pays all it sees alike. Three tokens in one pass, V the token's number: query i reads the
 * mean of 0..i; token 0 gets 1 + 1/2 + 1/3, token 1 1/2 + 1/3, token 2 1/3, the first of each from itself. */
static void scores_by_hand(void **state)
{
    const struct {
        uint32_t count_self, heads;
        double decay, score[3];
    } rows[] = {
        {1, H2OKV_HEADS_SUM, 1.0, {11.0 / 3, 5.0 / 3, 2.0 / 3}}, /* the group's two query heads add up */
        {1, H2OKV_HEADS_MEAN, 1.0, {11.0 / 6, 5.0 / 6, 1.0 / 3}},
        {0, H2OKV_HEADS_MEAN, 1.0, {5.0 / 6, 1.0 / 3, 0.0}},
        {1, H2OKV_HEADS_MEAN, 0.5, {1.0 / 4 + 1.0 / 4 + 1.0 / 3, 1.0 / 4 + 1.0 / 3, 1.0 / 3}},
        {0, H2OKV_HEADS_MEAN, 0.5, {1.0 / 4 + 1.0 / 3, 1.0 / 3, 0.0}},
    };
    (void)state;
    for (uint32_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        h2okv_shape shape = make_shape(1, 2, 32, 3);
        h2okv_options options = model_options(2, 2);
        h2okv_store *store;
        float q[3 * 2 * 32] = {0}, out[3 * 2 * 32], key[3 * 32], value[3 * 32];
        double score[3];
        for (uint32_t d = 0; d < 3 * 32; d++) {
            key[d] = 1.0f;
            value[d] = (float)(d / 32);
        }
        options.count_self = rows[i].count_self;
        options.heads = rows[i].heads;
        options.decay = rows[i].decay;
        CHECK_OK(h2okv_store_create(&store, &shape, &options, NULL));
        CHECK_OK(h2okv_store_append(store, 0, 3, key, value));
        CHECK_OK(h2okv_store_attend(store, 0, q, out));
        CHECK_OK(h2okv_store_scores(store, 0, 0, score));
        for (uint32_t token = 0; token < 3; token++) {
            check_context("row %u, token %u: score %.9g, out %.9g", i, token, score[token], (double)out[token * 64]);
            CHECK(fabs(score[token] - rows[i].score[token]) < 1e-6);
            CHECK(fabs((double)out[token * 64] - 0.5 * token) < 1e-6);
            CHECK(fabs((double)out[token * 64 + 63] - 0.5 * token) < 1e-6);
        }
        h2okv_store_free(store);
    }
}

/* Token 2 of 20 draws attention by its key; it and the newest two stay, with its own V, and are read. */
static void heavy_hitter_by_hand(void **state)
{
    (void)state;
    h2okv_shape shape = make_shape(1, 1, 32, 1);
    h2okv_options options = model_options(2, 1);
    h2okv_store *store;
    int32_t pos[3];
    CHECK_OK(h2okv_store_create(&store, &shape, &options, NULL));
    for (int32_t token = 0; token < 20; token++) {
        float q[32] = {8.0f}, key[32] = {token == 2 ? 8.0f : 0.0f}, value[32], out[32];
        for (uint32_t d = 0; d < 32; d++) {
            value[d] = (float)token;
        }
        CHECK_OK(h2okv_store_append(store, 0, 1, key, value));
        CHECK(h2okv_store_size(store, 0) == (token < 3 ? (uint32_t)token : 3) && h2okv_store_next_pos(store, 0) == token);
        CHECK_OK(h2okv_store_attend(store, 0, q, out));
        CHECK(h2okv_store_size(store, 0) == (token < 3 ? (uint32_t)token + 1 : 3));
        CHECK(token < 2 || fabsf(out[7] - 2.0f) < 0.02f);
    }
    CHECK_OK(h2okv_store_positions(store, 0, 0, pos));
    CHECK(pos[0] == 2 && pos[1] == 18 && pos[2] == 19);
    h2okv_store_free(store);
}

/* ---- Chunks ------------------------------------------------------------------------------------------- */

enum { CHUNK_TOKENS = 60 };

/* The same 60 tokens in passes of `n`; all of them kept. out [60][4][64], score [2][60] */
static void run_chunks(uint32_t n, double decay, float *out, double *score)
{
    h2okv_shape shape = make_shape(2, 2, 64, n);
    h2okv_options options = model_options(30, 30);
    options.decay = decay;
    rig r;
    rig_open(&r, &shape, &options, 17);
    pass p = pass_make(&r, CHUNK_TOKENS);
    for (uint32_t i = 0; i < CHUNK_TOKENS; i += n) {
        uint32_t now = CHUNK_TOKENS - i < n ? CHUNK_TOKENS - i : n;
        CHECK_OK(h2okv_store_append(r.store, 0, now, p.key + i * rig_row(&r), p.value + i * rig_row(&r)));
        CHECK_OK(h2okv_store_attend(r.store, 0, p.q + i * pass_q_row(&r), out + i * pass_q_row(&r)));
    }
    CHECK(h2okv_store_size(r.store, 0) == CHUNK_TOKENS);
    CHECK_OK(h2okv_store_scores(r.store, 0, 0, score));
    pass_free(&p);
    rig_close(&r);
}

/* While the budget is not reached it is plain attention, and how a text is cut into passes changes nothing. */
static void chunks_below_the_budget_are_plain_attention(void **state)
{
    static float whole[CHUNK_TOKENS * 4 * 64], out[CHUNK_TOKENS * 4 * 64];
    static double whole_score[2 * CHUNK_TOKENS], score[2 * CHUNK_TOKENS];
    const uint32_t sizes[] = {1, 7, 8, 9, 31};
    (void)state;
    for (uint32_t i = 0; i < 10; i++) {
        double decay = i < 5 ? 1.0 : 0.9;
        run_chunks(CHUNK_TOKENS, decay, whole, whole_score);
        run_chunks(sizes[i % 5], decay, out, score);
        for (uint32_t k = 0; k < CHUNK_TOKENS * 4 * 64; k++) {
            CHECK(fabsf(out[k] - whole[k]) <= (float)ATTEND_ERROR);
        }
        for (uint32_t k = 0; k < 2 * CHUNK_TOKENS; k++) {
            check_context("decay %g, passes of %u, token %u: %g, %g", decay, sizes[i % 5], k, score[k], whole_score[k]);
            CHECK(fabs(score[k] - whole_score[k]) <= ATTEND_ERROR * whole_score[k]);
        }
    }
}

/* ---- Threads ------------------------------------------------------------------------------------------ */

typedef struct worker {
    h2okv_store *store;
    const pass *p;
    float *out;
    uint32_t thread, n_threads;
    int status;
} worker;

static void *work(void *argument)
{
    worker *w = argument;
    w->status = h2okv_store_attend_thread(w->store, 0, w->p->q, w->out, w->thread, w->n_threads);
    return NULL;
}

static void attend_on(const rig *r, const pass *p, uint32_t n_threads, int status)
{
    pthread_t handle[3];
    worker w[3];
    for (uint32_t i = 0; i < n_threads; i++) {
        w[i] = (worker){r->store, p, p->out, i, n_threads, 1};
        CHECK(pthread_create(&handle[i], NULL, work, &w[i]) == 0);
    }
    for (uint32_t i = 0; i < n_threads; i++) {
        CHECK(pthread_join(handle[i], NULL) == 0);
        CHECK_STATUS(w[i].status, status);
    }
}

/* Scores and kept sets have the same bits on 1, 2 and 3 threads; all threads hear of an error. */
static void threads_change_nothing(void **state)
{
    rig r[3];
    h2okv_shape shape = make_shape(3, 3, 64, 20);
    h2okv_options options = model_options(20, 20);
    attend_count count = {0, 0};
    (void)state;
    shape.batch = 2;
    shape.threads = 3;
    for (uint32_t t = 0; t < 3; t++) {
        rig_open(&r[t], &shape, &options, 5);
        r[t].score_error = ATTEND_ERROR;
    }
    for (uint32_t step = 0; step < 12; step++) {
        for (uint32_t t = 0; t < 3; t++) {
            pass p = pass_make(&r[t], step % 3 == 0 ? 20 : step % 3);
            check_context("step %u, %u threads", step, t + 1);
            CHECK_OK(h2okv_store_append(r[t].store, 0, p.n, p.key, p.value));
            float good = p.q[11];
            p.q[11] = NAN;
            attend_on(&r[t], &p, t + 1, H2OKV_E_NAN);
            p.q[11] = good;
            attend_on(&r[t], &p, t + 1, H2OKV_OK);
            rig_model_pass(&r[t], 0, &p, &count);
            rig_check(&r[t]);
            CHECK(shown_equal(show_store(r[0].store, &shape), show_store(r[t].store, &shape)));
            pass_free(&p);
        }
    }
    for (uint32_t t = 0; t < 3; t++) {
        rig_close(&r[t]);
    }
}

/* ---- A pass given up ---------------------------------------------------------------------------------- */

/* Layer 0 has had the pass, layer 1 has it appended, layer 2 has not seen it: a trim to its first position is as if
 * there had been none, but for the mass that layer 0's queries left. */
static void trim_in_the_middle_of_a_pass(void **state)
{
    rig r;
    h2okv_shape shape = make_shape(2, 1, 32, 4);
    h2okv_options options = model_options(8, 8);
    attend_count count = {0, 0};
    (void)state;
    shape.layers = 3;
    rig_open(&r, &shape, &options, 6);
    r.score_error = ATTEND_ERROR;
    for (uint32_t layer = 0; layer < 3; layer++) {
        rig_pass(&r, layer, 4, &count);
    }
    rig_pass(&r, 0, 3, &count);
    pass p = pass_make(&r, 3);
    CHECK_OK(h2okv_store_append(r.store, 1, 3, p.key, p.value));
    CHECK_STATUS(h2okv_store_trim(r.store, -1), H2OKV_E_INVALID); /* takes nothing back */
    CHECK_STATUS(h2okv_store_append(r.store, 1, 3, p.key, p.value), H2OKV_E_ORDER);
    rig_trim(&r, 4);
    rig_check(&r);
    CHECK_STATUS(h2okv_store_attend(r.store, 1, p.q, p.out), H2OKV_E_ORDER);
    pass_free(&p);
    for (uint32_t layer = 0; layer < 3; layer++) {
        rig_pass(&r, layer, 4, &count);
        rig_pass(&r, layer, 1, &count);
    }
    rig_check(&r);
    rig_close(&r);
}

static void clear_forgets_an_append(void **state)
{
    rig r;
    h2okv_shape shape = make_shape(2, 1, 32, 4);
    h2okv_options options = model_options(3, 3);
    attend_count count = {0, 0};
    (void)state;
    rig_open(&r, &shape, &options, 6);
    r.score_error = ATTEND_ERROR;
    for (uint32_t i = 0; i < 4; i++) {
        rig_pass(&r, 0, 4, &count);
    }
    pass p = pass_make(&r, 3);
    CHECK_OK(h2okv_store_append(r.store, 0, 3, p.key, p.value));
    pass_free(&p);
    h2okv_store_clear(r.store);
    memset(r.lane, 0, r.lanes * sizeof *r.lane);
    r.next_pos[0] = 0;
    for (uint32_t i = 0; i < 4; i++) {
        rig_pass(&r, 0, 4, &count);
        rig_check(&r);
    }
    rig_close(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_passes_equal_the_model),
        cmocka_unit_test(short_trims_equal_the_model),
        cmocka_unit_test(scores_by_hand),
        cmocka_unit_test(heavy_hitter_by_hand),
        cmocka_unit_test(chunks_below_the_budget_are_plain_attention),
        cmocka_unit_test(threads_change_nothing),
        cmocka_unit_test(trim_in_the_middle_of_a_pass),
        cmocka_unit_test(clear_forgets_an_append),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
