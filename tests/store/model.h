/*
 * model.h - the store's class a second time, as plainly as possible, and a rig that feeds both alike.
 *
 *   model lane:   token[]  | pos, score | pos, score | ...     by rising position
 *   past[pos]     every K and V ever put, so that kept rows can be compared with what went in
 *
 * The model knows nothing of cells and moves. It has the policies h2o, window and full, decay, sinks, and the
 * sum or mean over heads. attend_model.h adds append and attend to both.
 */
#ifndef TEST_STORE_MODEL_H
#define TEST_STORE_MODEL_H

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "h2okv/h2okv.h"
#include "base/dtype.h"
#include "support/check.h"
#include "support/rng.h"

enum { MODEL_TOKENS = 160, MODEL_MOST = 65536 /* numbers in any array of a test */ };

typedef struct model_lane {
    uint32_t count;
    int32_t pos[MODEL_TOKENS];
    double score[MODEL_TOKENS];
} model_lane;

typedef struct rig {
    h2okv_shape shape;
    h2okv_options options; /* recent is a number */
    h2okv_store *store;
    rng rng;
    int coarse; /* weights are multiples of 1/16: many exact ties */
    double score_error; /* relative, that scores of the store may have */
    uint32_t lanes;
    model_lane *lane;   /* [batch][layers][lanes] */
    float *past_k;      /* [batch][layers][MODEL_TOKENS][heads * head_dim] */
    float *past_v;
    int32_t *next_pos;  /* [layers] */
    float *key, *value; /* [batch][heads][head_dim], of the last update */
    float *weights;     /* [batch][heads * group][size], of the last update */
} rig;

static inline h2okv_shape model_shape(uint32_t batch, uint32_t heads, uint32_t head_dim)
{
    h2okv_shape shape;
    h2okv_shape_init(&shape);
    shape.batch = batch;
    shape.heads = heads;
    shape.head_dim = head_dim;
    return shape;
}

static inline h2okv_options model_options(uint32_t recent, uint32_t heavy)
{
    h2okv_options options;
    h2okv_options_init(&options);
    options.sinks = 0; /* the model knows no presets */
    options.decay = 1.0;
    options.recent = recent;
    options.budget = recent + heavy;
    return options;
}

static inline void *rig_array(size_t count, size_t size)
{
    void *memory = calloc(count, size);
    CHECK(memory != NULL);
    return memory;
}

static inline size_t rig_row(const rig *r)
{
    return (size_t)r->shape.heads * r->shape.head_dim;
}

static inline size_t rig_part(const rig *r, uint32_t sequence, uint32_t layer)
{
    return (size_t)sequence * r->shape.layers + layer;
}

static inline model_lane *rig_lane(const rig *r, uint32_t sequence, uint32_t layer, uint32_t lane)
{
    return &r->lane[rig_part(r, sequence, layer) * r->lanes + lane];
}

static inline void rig_open(rig *r, const h2okv_shape *shape, const h2okv_options *options, uint64_t seed)
{
    *r = (rig){.shape = *shape, .options = *options, .rng = {seed}, .score_error = 1e-9};
    size_t parts = (size_t)shape->batch * shape->layers;
    size_t query_heads = (size_t)shape->batch * shape->heads * shape->group;
    CHECK_OK(h2okv_store_create(&r->store, shape, options, NULL));
    r->options.recent = options->recent == H2OKV_AUTO ? options->budget / 2 : options->recent;
    r->lanes = shape->lane_per_head ? shape->heads : 1;
    r->lane = rig_array(parts * r->lanes, sizeof *r->lane);
    r->past_k = rig_array(parts * MODEL_TOKENS * rig_row(r), sizeof(float));
    r->past_v = rig_array(parts * MODEL_TOKENS * rig_row(r), sizeof(float));
    r->next_pos = rig_array(shape->layers, sizeof *r->next_pos);
    r->key = rig_array(shape->batch * rig_row(r), sizeof(float));
    r->value = rig_array(shape->batch * rig_row(r), sizeof(float));
    r->weights = rig_array(query_heads * MODEL_TOKENS, sizeof(float));
}

static inline void rig_close(rig *r)
{
    h2okv_store_free(r->store);
    free(r->lane);
    free(r->past_k);
    free(r->past_v);
    free(r->next_pos);
    free(r->key);
    free(r->value);
    free(r->weights);
}

/* ---- The model ---------------------------------------------------------------------------------------- */

static inline double model_rank(const rig *r, const model_lane *lane, uint32_t i)
{
    return strcmp(r->options.policy, "window") == 0 ? lane->pos[i] : lane->score[i];
}

/* The lowest rank that may go, the oldest of equals; the newest token always stays. */
static inline uint32_t model_victim(const rig *r, const model_lane *lane)
{
    uint32_t recent = r->options.recent > 0 ? r->options.recent : 1;
    uint32_t victim = UINT32_MAX;
    for (uint32_t i = 0; i + recent < lane->count; i++) {
        int is_sink = (uint32_t)lane->pos[i] < r->options.sinks;
        if (!is_sink && (victim == UINT32_MAX || model_rank(r, lane, i) < model_rank(r, lane, victim))) {
            victim = i;
        }
    }
    return victim;
}

static inline void model_remove(model_lane *lane, uint32_t i)
{
    lane->count--;
    for (; i < lane->count; i++) {
        lane->pos[i] = lane->pos[i + 1];
        lane->score[i] = lane->score[i + 1];
    }
}

/* weights [heads][count], or NULL: scores by rising position, then the new token. */
static inline void model_take(const rig *r, model_lane *lane, int32_t pos, uint32_t heads,
                              const float *weights)
{
    uint32_t columns = lane->count;
    for (uint32_t i = 0; i < columns; i++) {
        double sum = 0.0, decayed = lane->score[i] * r->options.decay;
        for (uint32_t h = 0; weights != NULL && h < heads; h++) {
            sum += (double)weights[h * columns + i];
        }
        sum = r->options.heads == H2OKV_HEADS_MEAN ? sum / heads : sum;
        lane->score[i] = (decayed < 1e-30 ? 0.0 : decayed) + sum;
    }
    lane->pos[lane->count] = pos;
    lane->score[lane->count++] = 0.0;
    while (lane->count > r->options.budget && strcmp(r->options.policy, "full") != 0) {
        model_remove(lane, model_victim(r, lane));
    }
}

/* ---- Both --------------------------------------------------------------------------------------------- */

static inline void rig_fill(rig *r, float *out, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        out[i] = 4.0f * rng_float(&r->rng) - 2.0f;
    }
}

static inline void rig_fill_weights(rig *r, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        r->weights[i] = r->coarse ? (float)rng_below(&r->rng, 3) / 16.0f : rng_float(&r->rng);
    }
}

/* Put key, value and weights (or NULL) into the model: what the store was given. */
static inline void rig_model_update(rig *r, uint32_t layer, const float *weights)
{
    int32_t pos = r->next_pos[layer]++;
    uint32_t columns = rig_lane(r, 0, layer, 0)->count;
    uint32_t lane_heads = r->shape.heads * r->shape.group / r->lanes;
    CHECK(pos < MODEL_TOKENS);
    for (uint32_t b = 0; b < r->shape.batch; b++) {
        size_t past = (rig_part(r, b, layer) * MODEL_TOKENS + (size_t)pos) * rig_row(r);
        memcpy(r->past_k + past, r->key + b * rig_row(r), rig_row(r) * sizeof(float));
        memcpy(r->past_v + past, r->value + b * rig_row(r), rig_row(r) * sizeof(float));
        for (uint32_t l = 0; l < r->lanes; l++) {
            size_t first = (size_t)(b * r->lanes + l) * lane_heads * columns;
            const float *own = weights != NULL ? weights + first : NULL;
            model_take(r, rig_lane(r, b, layer, l), pos, lane_heads, own);
        }
    }
}

/* One random token in a layer. */
static inline void rig_step(rig *r, uint32_t layer)
{
    uint32_t size = h2okv_store_size(r->store, layer);
    rig_fill(r, r->key, r->shape.batch * rig_row(r));
    rig_fill(r, r->value, r->shape.batch * rig_row(r));
    rig_fill_weights(r, (size_t)r->shape.batch * r->shape.heads * r->shape.group * size);
    const float *weights = size > 0 ? r->weights : NULL;
    CHECK_OK(h2okv_store_update(r->store, layer, r->key, r->value, weights));
    rig_model_update(r, layer, weights);
}

/* A trim among the `recent` newest is exact. */
static inline void rig_trim(rig *r, int32_t pos0)
{
    CHECK_OK(h2okv_store_trim(r->store, pos0));
    for (uint32_t layer = 0; layer < r->shape.layers; layer++) {
        r->next_pos[layer] = r->next_pos[layer] < pos0 ? r->next_pos[layer] : pos0;
    }
    for (size_t i = 0; i < (size_t)r->shape.batch * r->shape.layers * r->lanes; i++) {
        model_lane *lane = &r->lane[i];
        while (lane->count > 0 && lane->pos[lane->count - 1] >= pos0) {
            lane->count--;
        }
    }
}

/* ---- Compare ------------------------------------------------------------------------------------------ */

/* copied [heads][size][head_dim] against what `past` says of the lane's tokens, bit for bit after the type's
 * own rounding. */
static inline void rig_check_rows(const rig *r, uint32_t sequence, uint32_t layer, uint32_t type,
                                  const float *past, const float *copied)
{
    uint32_t dim = r->shape.head_dim;
    float expected[256];
    unsigned char row[1024];
    for (uint32_t head = 0; head < r->shape.heads; head++) {
        const model_lane *lane = rig_lane(r, sequence, layer, r->shape.lane_per_head ? head : 0);
        for (uint32_t i = 0; i < lane->count; i++, copied += dim) {
            size_t at = (rig_part(r, sequence, layer) * MODEL_TOKENS + (size_t)lane->pos[i]) * rig_row(r);
            h2okv__row_encode(type, past + at + (size_t)head * dim, row, dim);
            h2okv__row_decode(type, row, expected, dim);
            CHECK(memcmp(copied, expected, dim * sizeof(float)) == 0);
        }
    }
}

static inline void rig_check_part(const rig *r, uint32_t sequence, uint32_t layer)
{
    static float rows[MODEL_MOST];
    static int32_t pos[MODEL_MOST];
    static double score[MODEL_MOST];
    uint32_t size = h2okv_store_size(r->store, layer), at = 0;
    CHECK_OK(h2okv_store_positions(r->store, sequence, layer, pos));
    CHECK_OK(h2okv_store_scores(r->store, sequence, layer, score));
    for (uint32_t l = 0; l < r->lanes; l++) {
        const model_lane *lane = rig_lane(r, sequence, layer, l);
        CHECK(lane->count == size);
        for (uint32_t i = 0; i < size; i++, at++) {
            CHECK(pos[at] == lane->pos[i]);
            CHECK(fabs(score[at] - lane->score[i]) <= r->score_error * (fabs(lane->score[i]) + 1e-6));
        }
    }
    CHECK_OK(h2okv_store_keys(r->store, sequence, layer, rows));
    rig_check_rows(r, sequence, layer, r->shape.type_k, r->past_k, rows);
    CHECK_OK(h2okv_store_values(r->store, sequence, layer, rows));
    rig_check_rows(r, sequence, layer, r->shape.type_v, r->past_v, rows);
}

static inline void rig_check(const rig *r)
{
    for (uint32_t layer = 0; layer < r->shape.layers; layer++) {
        CHECK(h2okv_store_next_pos(r->store, layer) == r->next_pos[layer]);
        for (uint32_t b = 0; b < r->shape.batch; b++) {
            rig_check_part(r, b, layer);
        }
    }
}

/* ---- Snapshots ---------------------------------------------------------------------------------------- */

/* All that a store shows of one sequence, as bytes: bit-equal or not. */
typedef struct shown {
    unsigned char *data;
    size_t bytes;
} shown;

static inline void shown_add(shown *s, const void *data, size_t bytes)
{
    s->data = realloc(s->data, s->bytes + bytes + 1);
    CHECK(s->data != NULL);
    memcpy(s->data + s->bytes, data, bytes);
    s->bytes += bytes;
}

static inline shown show_sequence(const h2okv_store *store, const h2okv_shape *shape, uint32_t sequence)
{
    static float rows[MODEL_MOST];
    static int32_t pos[MODEL_MOST];
    static double score[MODEL_MOST];
    uint32_t lanes = shape->lane_per_head ? shape->heads : 1;
    shown s = {NULL, 0};
    for (uint32_t layer = 0; layer < shape->layers; layer++) {
        uint32_t size = h2okv_store_size(store, layer);
        int32_t next = h2okv_store_next_pos(store, layer);
        size_t numbers = (size_t)shape->heads * size * shape->head_dim;
        CHECK_OK(h2okv_store_positions(store, sequence, layer, pos));
        CHECK_OK(h2okv_store_scores(store, sequence, layer, score));
        shown_add(&s, &size, sizeof size);
        shown_add(&s, &next, sizeof next);
        shown_add(&s, pos, (size_t)lanes * size * sizeof *pos);
        shown_add(&s, score, (size_t)lanes * size * sizeof *score);
        CHECK_OK(h2okv_store_keys(store, sequence, layer, rows));
        shown_add(&s, rows, numbers * sizeof *rows);
        CHECK_OK(h2okv_store_values(store, sequence, layer, rows));
        shown_add(&s, rows, numbers * sizeof *rows);
    }
    return s;
}

static inline shown show_store(const h2okv_store *store, const h2okv_shape *shape)
{
    shown all = {NULL, 0};
    for (uint32_t b = 0; b < shape->batch; b++) {
        shown one = show_sequence(store, shape, b);
        shown_add(&all, one.data, one.bytes);
        free(one.data);
    }
    return all;
}

/* Frees both. */
static inline int shown_equal(shown a, shown b)
{
    int equal = a.bytes == b.bytes && memcmp(a.data, b.data, a.bytes) == 0;
    free(a.data);
    free(b.data);
    return equal;
}

#endif
