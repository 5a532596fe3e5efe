/*
 * attend.c - tokens that the store itself attends to: append, then attend.
 *
 *   append   K, V -> rows in the cells on top of each part's stack of free cells
 *   attend   begin  (thread 0)     admit in each part
 *            attend (all threads)  each part: softmax over its cells -> out, mass [heads][cells]
 *            end    (thread 0)     each part: mass -> observe each lane -> plan;  then apply all plans
 *
 * Until the last plan is made nothing has happened that h2okv_cache_abandon does not take back, so that an attend is
 * all or nothing, whatever q, K, V or a policy hold.
 */
#include "store/store.h"

/* ---- Append ------------------------------------------------------------------------------------------- */

/* Bits of the smallest magnitude that becomes an infinity (q8_0: a scale that is one) when it is rounded. */
static uint32_t too_large(uint32_t type)
{
    switch (type) {
    case H2OKV_TYPE_F16:
        return 0x477ff000; /* 65520 */
    case H2OKV_TYPE_BF16:
        return 0x7f7f8000;
    case H2OKV_TYPE_Q8_0:
        return 0x4afdf020; /* 127 * 65520 */
    default:
        return H2OKV__INFINITY_BITS;
    }
}

static int check_append(const h2okv_store *store, uint32_t layer, uint32_t n, const float *key, const float *value)
{
    const h2okv_shape *s = &store->shape;
    if (store->broken) {
        return H2OKV_E_BROKEN;
    }
    if (s->max_pass == 0) {
        return H2OKV_E_UNSUPPORTED;
    }
    if (layer >= s->layers || n == 0 || n > s->max_pass || key == NULL || value == NULL) {
        return H2OKV_E_INVALID;
    }
    if (store->n_appended[layer] > 0) {
        return H2OKV_E_ORDER;
    }
    if (n > store->options.cells - h2okv_store_size(store, layer) ||
        n > (uint32_t)(INT32_MAX - store->next_pos[layer])) {
        return H2OKV_E_FULL;
    }
    size_t numbers = (size_t)s->batch * n * s->heads * s->head_dim;
    bool fits = h2okv__all_below(key, numbers, too_large(s->type_k)) &&
                h2okv__all_below(value, numbers, too_large(s->type_v));
    return fits ? H2OKV_OK : H2OKV_E_NAN;
}

int h2okv_store_append(h2okv_store *store, uint32_t layer, uint32_t n, const float *key, const float *value)
{
    int status = check_append(store, layer, n, key, value);
    if (status != H2OKV_OK) {
        return status;
    }
    size_t row = (size_t)store->shape.heads * store->shape.head_dim;
    for (uint32_t sequence = 0; sequence < store->shape.batch; sequence++) {
        h2okv__part *part = h2okv__part_at(store, sequence, layer);
        for (uint32_t i = 0; i < n; i++) {
            size_t at = ((size_t)sequence * n + i) * row;
            h2okv__write_cell(part, h2okv__next_cell(part, i), key + at, value + at);
        }
    }
    store->n_appended[layer] = n;
    return H2OKV_OK;
}

/* ---- Attend: begin ------------------------------------------------------------------------------------ */

/* Numbers of q, and of out, of one sequence. */
static size_t pass_numbers(const h2okv_store *store, uint32_t layer)
{
    return store->n_appended[layer] * h2okv__query_heads(store) * store->shape.head_dim;
}

static int admit_pass(h2okv_store *store, h2okv__part *part, uint32_t layer)
{
    const h2okv__attend_state *attend = &store->attend;
    uint32_t n = store->n_appended[layer];
    for (uint32_t i = 0; i < n; i++) {
        attend->cell[i] = h2okv__next_cell(part, i);
        attend->pos[i] = store->next_pos[layer] + (int32_t)i;
    }
    int status = h2okv_cache_admit(part->cache, attend->cell, attend->pos, n);
    part->n_free -= status == H2OKV_OK ? n : 0;
    return status;
}

/* The layer as it was before the attend. Parts that have admitted nothing refuse, rightly. */
static void take_back(h2okv_store *store, uint32_t layer)
{
    for (uint32_t sequence = 0; sequence < store->shape.batch; sequence++) {
        h2okv__part *part = h2okv__part_at(store, sequence, layer);
        if (h2okv_cache_abandon(part->cache) == H2OKV_OK) {
            part->n_free += store->n_appended[layer]; /* the cells are still there, above the top */
        }
    }
}

static int begin(h2okv_store *store, uint32_t layer, const float *q)
{
    int status = H2OKV_OK;
    if (!h2okv__all_below(q, store->shape.batch * pass_numbers(store, layer), H2OKV__INFINITY_BITS)) {
        return H2OKV_E_NAN;
    }
    for (uint32_t sequence = 0; status == H2OKV_OK && sequence < store->shape.batch; sequence++) {
        status = admit_pass(store, h2okv__part_at(store, sequence, layer), layer);
    }
    if (status != H2OKV_OK) {
        take_back(store, layer);
    }
    return status;
}

/* ---- Attend: attention -------------------------------------------------------------------------------- */

/* [heads][cells] of a sequence. */
static float *mass_of(const h2okv_store *store, uint32_t sequence)
{
    return store->attend.mass + (size_t)sequence * store->shape.heads * store->options.cells;
}

/* The cells of lane 0 by rising position are those of every lane: lanes may differ in which old token a cell holds, but
 * all of these are visible to all queries, and the new tokens, in order the last, lie in the same cells everywhere. */
static h2okv__attention attention_of(const h2okv_store *store, uint32_t layer, uint32_t sequence, const float *q,
                                     float *out)
{
    const h2okv__part *part = h2okv__part_at(store, sequence, layer);
    h2okv__attention call = store->attend.call;
    uint32_t n = store->n_appended[layer];
    h2okv_lane_view lane;
    (void)h2okv_cache_lane(part->cache, 0, &lane);
    call.k = part->k;
    call.v = part->v;
    call.queries = call.n_fresh = n;
    call.cell = lane.order;
    call.n_cells = lane.live;
    call.q = q + sequence * pass_numbers(store, layer);
    call.out = out + sequence * pass_numbers(store, layer);
    call.mass = mass_of(store, sequence);
    call.query_weight = store->options.decay < 1.0 ? store->attend.query_weight + (store->shape.max_pass - n) : NULL;
    return call;
}

static void attend_all(h2okv_store *store, uint32_t layer, const float *q, float *out, uint32_t thread,
                       uint32_t n_threads)
{
    h2okv__attend_state *attend = &store->attend;
    for (uint32_t sequence = 0; sequence < store->shape.batch; sequence++) {
        h2okv__attention call = attention_of(store, layer, sequence, q, out);
        h2okv__attend(attend->isa, &call, &attend->team, attend->scratch, thread, n_threads);
        h2okv__team_wait(&attend->gate, n_threads); /* the scratch is free, and out and mass are complete */
    }
}

/* ---- Attend: end -------------------------------------------------------------------------------------- */

/* mass [heads][cells] of the lane's KV heads, summed or averaged into its first row. Holes hold anything. */
static void sum_heads(const h2okv_store *store, float *mass, uint32_t heads)
{
    uint32_t cells = store->options.cells;
    uint32_t divisor = store->options.heads == H2OKV_HEADS_MEAN ? heads * store->shape.group : 1;
    if (heads == 1 && divisor == 1) {
        return;
    }
    for (uint32_t cell = 0; cell < cells; cell++) {
        double sum = 0.0;
        for (uint32_t head = 0; head < heads; head++) {
            sum += (double)mass[(size_t)head * cells + cell];
        }
        mass[cell] = (float)(sum / divisor);
    }
}

static int observe_and_plan(h2okv_store *store, h2okv__part *part, float *mass)
{
    uint32_t heads = store->shape.heads / store->lanes;
    int status = H2OKV_OK;
    for (uint32_t lane = 0; status == H2OKV_OK && lane < store->lanes; lane++) {
        float *own = mass + (size_t)lane * heads * store->options.cells;
        sum_heads(store, own, heads);
        status = h2okv_cache_observe_mass(part->cache, lane, own);
    }
    return status != H2OKV_OK ? status : h2okv_cache_plan(part->cache, &part->plan);
}

static int plan_all(h2okv_store *store, uint32_t layer, const float *out)
{
    int status = H2OKV_OK;
    if (!h2okv__all_below(out, store->shape.batch * pass_numbers(store, layer), H2OKV__INFINITY_BITS)) {
        return H2OKV_E_NAN;
    }
    for (uint32_t sequence = 0; status == H2OKV_OK && sequence < store->shape.batch; sequence++) {
        status = observe_and_plan(store, h2okv__part_at(store, sequence, layer), mass_of(store, sequence));
    }
    return status;
}

static int end(h2okv_store *store, uint32_t layer, const float *out)
{
    int status = plan_all(store, layer, out);
    if (status != H2OKV_OK) {
        take_back(store, layer);
        return status;
    }
    for (uint32_t sequence = 0; sequence < store->shape.batch; sequence++) {
        h2okv__part *part = h2okv__part_at(store, sequence, layer);
        if (h2okv__apply_plan(part, part->plan) != H2OKV_OK) {
            store->broken = true;
            return H2OKV_E_BROKEN;
        }
    }
    store->next_pos[layer] += (int32_t)store->n_appended[layer];
    store->n_appended[layer] = 0;
    return H2OKV_OK;
}

/* ---- Attend ------------------------------------------------------------------------------------------- */

static int check_attend(const h2okv_store *store, uint32_t layer, const float *q, const float *out, uint32_t thread,
                        uint32_t n_threads)
{
    if (store->broken) {
        return H2OKV_E_BROKEN;
    }
    if (store->shape.max_pass == 0) {
        return H2OKV_E_UNSUPPORTED;
    }
    if (layer >= store->shape.layers || q == NULL || out == NULL || n_threads > store->shape.threads ||
        thread >= n_threads) {
        return H2OKV_E_INVALID;
    }
    return store->n_appended[layer] == 0 ? H2OKV_E_ORDER : H2OKV_OK;
}

/* What one thread writes between two gates, others read after the second only; so each keeps its own `status`. */
int h2okv_store_attend_thread(h2okv_store *store, uint32_t layer, const float *q, float *out, uint32_t thread,
                              uint32_t n_threads)
{
    h2okv__attend_state *attend = &store->attend;
    int status = check_attend(store, layer, q, out, thread, n_threads);
    if (status != H2OKV_OK) {
        return status;
    }
    if (thread == 0) {
        attend->begun = begin(store, layer, q);
    }
    h2okv__team_wait(&attend->gate, n_threads);
    status = attend->begun;
    if (status == H2OKV_OK) {
        attend_all(store, layer, q, out, thread, n_threads);
    }
    if (status == H2OKV_OK && thread == 0) {
        attend->ended = end(store, layer, out);
    }
    h2okv__team_wait(&attend->gate, n_threads);
    return status != H2OKV_OK ? status : attend->ended;
}

int h2okv_store_attend(h2okv_store *store, uint32_t layer, const float *q, float *out)
{
    return h2okv_store_attend_thread(store, layer, q, out, 0, 1);
}
