/*
 * attend_model.h - append and attend a second time, as plainly as possible: softmax attention in double over what a
 * model lane of model.h holds and the pass's own tokens, then the same evictions.
 *
 *   model lane:   | kept, by rising position | the pass's tokens |     query i sees all but the last n - 1 - i
 *
 * K and V are the given numbers after the type's own rounding, so that only the order and width of sums differ. Where
 * the store keeps another token than the model, their scores must be as good as equal; the model then goes on with the
 * store's choice, and counts a near tie.
 */
#ifndef TEST_STORE_ATTEND_MODEL_H
#define TEST_STORE_ATTEND_MODEL_H

#include "store/model.h"

/* Rounding of f32 products and sums in the store, in units of the numbers themselves (values are within 2). */
#define ATTEND_ERROR 1e-4

typedef struct pass {
    uint32_t n;
    float *q, *out;     /* [batch][n][query heads][head_dim] */
    float *key, *value; /* [batch][n][heads][head_dim] */
} pass;

typedef struct attend_count {
    uint32_t choices, near_ties; /* of lanes in passes that evict */
} attend_count;

static inline size_t pass_q_row(const rig *r)
{
    return rig_row(r) * r->shape.group;
}

static inline pass pass_make(rig *r, uint32_t n)
{
    size_t tokens = (size_t)r->shape.batch * n;
    pass p = {n, rig_array(tokens * pass_q_row(r), sizeof(float)), rig_array(tokens * pass_q_row(r), sizeof(float)),
              rig_array(tokens * rig_row(r), sizeof(float)), rig_array(tokens * rig_row(r), sizeof(float))};
    rig_fill(r, p.q, tokens * pass_q_row(r));
    rig_fill(r, p.key, tokens * rig_row(r));
    rig_fill(r, p.value, tokens * rig_row(r));
    return p;
}

static inline void pass_free(pass *p)
{
    free(p->q);
    free(p->out);
    free(p->key);
    free(p->value);
}

/* ---- The model: attention ----------------------------------------------------------------------------- */

/* The rows of a head, as the type holds them. */
static inline void past_row(const rig *r, const float *past, uint32_t type, uint32_t sequence, uint32_t layer,
                            uint32_t head, int32_t pos, float *out)
{
    unsigned char row[1024];
    size_t token = (rig_part(r, sequence, layer) * MODEL_TOKENS + (size_t)pos) * rig_row(r);
    h2okv__row_encode(type, past + token + (size_t)head * r->shape.head_dim, row, r->shape.head_dim);
    h2okv__row_decode(type, row, out, r->shape.head_dim);
}

/* Softmax weights of q over the first `seen` tokens of the lane. */
static inline void model_weights(const rig *r, const model_lane *lane, uint32_t seen, uint32_t sequence,
                                 uint32_t layer, uint32_t head, const float *q, double *weight)
{
    double scale = r->shape.scale != 0.0f ? (double)r->shape.scale : 1.0 / sqrt(r->shape.head_dim);
    double cap = (double)r->shape.softcap, most = -INFINITY, sum = 0.0;
    float key[256];
    for (uint32_t i = 0; i < seen; i++) {
        past_row(r, r->past_k, r->shape.type_k, sequence, layer, head, lane->pos[i], key);
        weight[i] = 0.0;
        for (uint32_t d = 0; d < r->shape.head_dim; d++) {
            weight[i] += scale * (double)q[d] * (double)key[d];
        }
        weight[i] = cap > 0.0 ? cap * tanh(weight[i] / cap) : weight[i];
        most = fmax(most, weight[i]);
    }
    for (uint32_t i = 0; i < seen; i++) {
        weight[i] = exp(weight[i] - most);
        sum += weight[i];
    }
    for (uint32_t i = 0; i < seen; i++) {
        weight[i] /= sum;
    }
}

static inline void model_check_out(const rig *r, const model_lane *lane, uint32_t seen, uint32_t sequence,
                                   uint32_t layer, uint32_t head, const double *weight, const float *out)
{
    double expected[256] = {0};
    float value[256];
    for (uint32_t i = 0; i < seen; i++) {
        past_row(r, r->past_v, r->shape.type_v, sequence, layer, head, lane->pos[i], value);
        for (uint32_t d = 0; d < r->shape.head_dim; d++) {
            expected[d] += weight[i] * (double)value[d];
        }
    }
    for (uint32_t d = 0; d < r->shape.head_dim; d++) {
        CHECK(fabs((double)out[d] - expected[d]) <= ATTEND_ERROR);
    }
}

/* One query head's n queries: check `out`, and add to the lane's mass. */
static inline void model_attend_head(const rig *r, const pass *p, const model_lane *lane, uint32_t sequence,
                                     uint32_t layer, uint32_t query_head, double *mass)
{
    uint32_t head = query_head / r->shape.group, old = lane->count - p->n;
    double weight[MODEL_TOKENS];
    for (uint32_t i = 0; i < p->n; i++) {
        size_t at = ((size_t)sequence * p->n + i) * pass_q_row(r) + (size_t)query_head * r->shape.head_dim;
        uint32_t seen = old + i + 1;
        model_weights(r, lane, seen, sequence, layer, head, p->q + at, weight);
        model_check_out(r, lane, seen, sequence, layer, head, weight, p->out + at);
        for (uint32_t c = 0; c < seen; c++) {
            int own = c == seen - 1;
            mass[c] += own && !r->options.count_self ? 0.0 : weight[c] * pow(r->options.decay, p->n - 1 - i);
        }
    }
}

/* ---- The model: eviction ------------------------------------------------------------------------------ */

static inline int has_pos(const int32_t *pos, uint32_t n, int32_t wanted)
{
    for (uint32_t i = 0; i < n; i++) {
        if (pos[i] == wanted) {
            return 1;
        }
    }
    return 0;
}

/* `kept` is what the store kept of `before`; where `lane`, the model's choice, differs, scores must be nearly equal. */
static inline void model_accept_near_ties(const model_lane *before, model_lane *lane, const int32_t *kept,
                                          attend_count *count)
{
    double most_lost = -1.0, least_kept = 1e300;
    model_lane own = {.count = 0};
    for (uint32_t i = 0; i < before->count; i++) {
        int in_store = has_pos(kept, lane->count, before->pos[i]);
        int in_model = has_pos(lane->pos, lane->count, before->pos[i]);
        most_lost = in_model && !in_store ? fmax(most_lost, before->score[i]) : most_lost;
        least_kept = in_store && !in_model ? fmin(least_kept, before->score[i]) : least_kept;
        if (in_store) {
            own.pos[own.count] = before->pos[i];
            own.score[own.count++] = before->score[i];
        }
    }
    CHECK(own.count == lane->count);
    count->choices++;
    if (most_lost >= 0.0) {
        CHECK(most_lost - least_kept <= ATTEND_ERROR * most_lost);
        count->near_ties++;
        *lane = own;
    }
}

static inline void model_end_lane(const rig *r, const pass *p, model_lane *lane, const double *mass,
                                  const int32_t *kept, attend_count *count)
{
    uint32_t heads = r->shape.heads * r->shape.group / r->lanes;
    for (uint32_t i = 0; i < lane->count; i++) {
        double decayed = lane->score[i] * pow(r->options.decay, p->n);
        lane->score[i] = (decayed < 1e-30 ? 0.0 : decayed) +
                         (r->options.heads == H2OKV_HEADS_MEAN ? mass[i] / heads : mass[i]);
    }
    if (lane->count > r->options.budget && strcmp(r->options.policy, "full") != 0) {
        model_lane before = *lane;
        while (lane->count > r->options.budget) {
            model_remove(lane, model_victim(r, lane));
        }
        model_accept_near_ties(&before, lane, kept, count);
    }
}

/* What the store was given and has answered, in the model. */
static inline void rig_model_pass(rig *r, uint32_t layer, const pass *p, attend_count *count)
{
    static int32_t kept[MODEL_MOST];
    uint32_t lane_heads = r->shape.heads * r->shape.group / r->lanes, size = h2okv_store_size(r->store, layer);
    CHECK(r->next_pos[layer] + (int32_t)p->n <= MODEL_TOKENS);
    for (uint32_t b = 0; b < r->shape.batch; b++) {
        size_t past = (rig_part(r, b, layer) * MODEL_TOKENS + (size_t)r->next_pos[layer]) * rig_row(r);
        memcpy(r->past_k + past, p->key + b * p->n * rig_row(r), p->n * rig_row(r) * sizeof(float));
        memcpy(r->past_v + past, p->value + b * p->n * rig_row(r), p->n * rig_row(r) * sizeof(float));
        CHECK_OK(h2okv_store_positions(r->store, b, layer, kept));
        for (uint32_t l = 0; l < r->lanes; l++) {
            model_lane *lane = rig_lane(r, b, layer, l);
            double mass[MODEL_TOKENS] = {0};
            for (uint32_t i = 0; i < p->n; i++) {
                lane->pos[lane->count] = r->next_pos[layer] + (int32_t)i;
                lane->score[lane->count++] = 0.0;
            }
            for (uint32_t h = l * lane_heads; h < (l + 1) * lane_heads; h++) {
                model_attend_head(r, p, lane, b, layer, h, mass);
            }
            model_end_lane(r, p, lane, mass, kept + (size_t)l * size, count);
        }
    }
    r->next_pos[layer] += (int32_t)p->n;
}

/* One random pass of n tokens through a layer of both. */
static inline void rig_pass(rig *r, uint32_t layer, uint32_t n, attend_count *count)
{
    pass p = pass_make(r, n);
    CHECK_OK(h2okv_store_append(r->store, layer, n, p.key, p.value));
    CHECK_OK(h2okv_store_attend(r->store, layer, p.q, p.out));
    rig_model_pass(r, layer, &p, count);
    pass_free(&p);
}

#endif
