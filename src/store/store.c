/*
 * store.c - tokens in and out of a store: update, trim, clear.
 *
 * The way of one token in a part:
 *   key, value -> a free cell -> admit;  weights -> observe each lane;  plan -> moves, freed cells -> commit
 * What can be refused is refused before the first part changes, so that an update is all or nothing.
 */
#include "store/store.h"

#include <string.h>

#include "base/dtype.h"

/* ---- Cells -------------------------------------------------------------------------------------------- */

void h2okv__part_reset(h2okv__part *part)
{
    uint32_t cells = part->store->options.cells;
    for (uint32_t i = 0; i < cells; i++) {
        part->free_cell[i] = cells - 1 - i; /* cell 0 on top */
    }
    part->n_free = cells;
}

/* Where the row of a head's cell starts, in rows. */
static size_t row_index(const h2okv_store *store, uint32_t head, uint32_t cell)
{
    return (size_t)head * store->options.cells + cell;
}

void h2okv__write_cell(h2okv__part *part, uint32_t cell, const float *key, const float *value)
{
    const h2okv_store *store = part->store;
    const h2okv_shape *s = &store->shape;
    for (uint32_t head = 0; head < s->heads; head++) {
        size_t first = (size_t)head * s->head_dim;
        size_t at = row_index(store, head, cell);
        h2okv__row_encode(s->type_k, key + first, part->k + at * store->row_k, s->head_dim);
        h2okv__row_encode(s->type_v, value + first, part->v + at * store->row_v, s->head_dim);
    }
}

/* A lane is one head, or all of them. */
int h2okv__apply_plan(h2okv__part *part, const h2okv_plan *plan)
{
    const h2okv_store *store = part->store;
    for (uint32_t i = 0; i < plan->n_moves; i++) {
        const h2okv_move *move = &plan->moves[i];
        uint32_t first = store->shape.lane_per_head ? move->lane : 0;
        uint32_t end = store->shape.lane_per_head ? first + 1 : store->shape.heads;
        for (uint32_t head = first; head < end; head++) {
            size_t from = row_index(store, head, move->from), to = row_index(store, head, move->to);
            memcpy(part->k + to * store->row_k, part->k + from * store->row_k, store->row_k);
            memcpy(part->v + to * store->row_v, part->v + from * store->row_v, store->row_v);
        }
    }
    for (uint32_t i = 0; i < plan->n_freed; i++) {
        part->free_cell[part->n_free++] = plan->freed_cell[i];
    }
    return h2okv_cache_commit(part->cache, plan);
}

/* ---- Update ------------------------------------------------------------------------------------------- */

/* As integers, magnitudes are ordered as the numbers are, and NaN lies above infinity: the sum reaches the highest bit
 * when one reaches the limit. No branch per number, so that compilers use vectors. */
bool h2okv__all_below(const float *data, size_t n, uint32_t limit)
{
    uint32_t found = 0;
    for (size_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, data + i, sizeof bits);
        found |= (bits & 0x7fffffffu) + (0x80000000u - limit);
    }
    return found < 0x80000000u;
}

static int check_update(const h2okv_store *store, uint32_t layer, const float *key, const float *value,
                        const float *weights)
{
    if (store->broken) {
        return H2OKV_E_BROKEN;
    }
    if (layer >= store->shape.layers || key == NULL || value == NULL) {
        return H2OKV_E_INVALID;
    }
    if (store->n_appended[layer] > 0) {
        return H2OKV_E_ORDER;
    }
    uint32_t size = h2okv_store_size(store, layer); /* of every sequence */
    if (size == store->options.cells || store->next_pos[layer] == INT32_MAX) {
        return H2OKV_E_FULL;
    }
    if (weights == NULL) {
        return size > 0 && (store->policy_flags & H2OKV_POLICY_NEEDS_SCORES) ? H2OKV_E_INVALID : H2OKV_OK;
    }
    size_t n = store->shape.batch * h2okv__query_heads(store) * size;
    return h2okv__all_below(weights, n, H2OKV__INFINITY_BITS) ? H2OKV_OK : H2OKV_E_NAN;
}

/* weights [query heads][columns] of the part: columns by rising position of the lane, none for the new one */
static int observe_lane(h2okv__part *part, uint32_t lane, const float *weights, uint32_t columns)
{
    const h2okv_store *store = part->store;
    h2okv_lane_view view;
    int status = h2okv_cache_lane(part->cache, lane, &view);
    if (status != H2OKV_OK || weights == NULL || columns == 0) {
        return status != H2OKV_OK ? status : h2okv_cache_observe_mass(part->cache, lane, NULL);
    }
    uint32_t heads = store->shape.lane_per_head ? store->shape.group : (uint32_t)h2okv__query_heads(store);
    h2okv_weights w = {
        .heads = heads,
        .queries = 1,
        .columns = columns,
        .data = weights + (size_t)lane * heads * columns,
        .head_stride = columns,
        .query_stride = columns,
        .cell_of_column = view.order, /* its last entry, the new token, is past the columns */
    };
    return h2okv_cache_observe(part->cache, lane, &w);
}

static int take_token(h2okv__part *part, int32_t pos, const float *key, const float *value,
                      const float *weights, uint32_t columns)
{
    uint32_t cell = h2okv__next_cell(part, 0);
    const h2okv_plan *plan = NULL;

    h2okv__write_cell(part, cell, key, value);
    int status = h2okv_cache_admit(part->cache, &cell, &pos, 1);
    if (status == H2OKV_OK) {
        part->n_free--;
    }
    for (uint32_t lane = 0; status == H2OKV_OK && lane < part->store->lanes; lane++) {
        status = observe_lane(part, lane, weights, columns);
    }
    status = status != H2OKV_OK ? status : h2okv_cache_plan(part->cache, &plan);
    return status != H2OKV_OK ? status : h2okv__apply_plan(part, plan);
}

int h2okv_store_update(h2okv_store *store, uint32_t layer, const float *key, const float *value,
                       const float *weights)
{
    int status = check_update(store, layer, key, value, weights);
    if (status != H2OKV_OK) {
        return status;
    }
    uint32_t columns = h2okv_store_size(store, layer);
    size_t row = (size_t)store->shape.heads * store->shape.head_dim;
    size_t table = h2okv__query_heads(store) * columns;

    for (size_t sequence = 0; sequence < store->shape.batch; sequence++) {
        h2okv__part *part = h2okv__part_at(store, (uint32_t)sequence, layer);
        const float *own = weights != NULL ? weights + sequence * table : NULL;
        status = take_token(part, store->next_pos[layer], key + sequence * row, value + sequence * row, own,
                            columns);
        if (status != H2OKV_OK) { /* only a custom policy's NaN can do this, when tokens are in already */
            store->broken = true;
            return H2OKV_E_BROKEN;
        }
    }
    store->next_pos[layer]++;
    return H2OKV_OK;
}

/* ---- Trim and clear ----------------------------------------------------------------------------------- */

int h2okv_store_trim(h2okv_store *store, int32_t pos0)
{
    if (store->broken) {
        return H2OKV_E_BROKEN;
    }
    size_t parts = h2okv__n_parts(store);
    for (size_t i = 0; i < parts; i++) { /* all plans before the first is carried out: all or nothing */
        int status = h2okv_cache_trim(store->part[i].cache, pos0, &store->part[i].plan);
        if (status != H2OKV_OK) {
            return status;
        }
    }
    for (size_t i = 0; i < parts; i++) {
        h2okv__part *part = &store->part[i]; /* a commit ends a pass, so none where nothing is dropped */
        if (part->plan->n_freed > 0 && h2okv__apply_plan(part, part->plan) != H2OKV_OK) {
            store->broken = true;
            return H2OKV_E_BROKEN;
        }
    }
    for (uint32_t layer = 0; layer < store->shape.layers; layer++) {
        store->next_pos[layer] = store->next_pos[layer] < pos0 ? store->next_pos[layer] : pos0;
        store->n_appended[layer] = 0;
    }
    return H2OKV_OK;
}

void h2okv_store_clear(h2okv_store *store)
{
    for (size_t i = 0; i < h2okv__n_parts(store); i++) {
        h2okv_cache_clear(store->part[i].cache);
        h2okv__part_reset(&store->part[i]);
    }
    memset(store->next_pos, 0, store->shape.layers * sizeof *store->next_pos);
    memset(store->n_appended, 0, store->shape.layers * sizeof *store->n_appended);
}
