/*
 * view.c - what a store holds: sizes, and copies of keys, values, positions and scores by rising position.
 */
#include "store/store.h"

#include "base/dtype.h"

/* How many tokens a cache frees depends on their positions only, so all sequences of a layer hold as many. */
uint32_t h2okv_store_size(const h2okv_store *store, uint32_t layer)
{
    return layer < store->shape.layers ? h2okv_cache_live(h2okv__part_at(store, 0, layer)->cache) : 0;
}

uint32_t h2okv_store_max_size(const h2okv_store *store)
{
    return store->policy_flags & H2OKV_POLICY_KEEPS_ALL ? store->options.cells : store->options.budget;
}

int32_t h2okv_store_next_pos(const h2okv_store *store, uint32_t layer)
{
    return layer < store->shape.layers ? store->next_pos[layer] : 0;
}

static bool can_copy(const h2okv_store *store, uint32_t sequence, uint32_t layer, const void *out)
{
    return sequence < store->shape.batch && layer < store->shape.layers && out != NULL;
}

/* Rows [heads][cells] of `type`, `row` bytes each, into out [heads][size][head_dim]. */
static int copy_rows(const h2okv__part *part, const unsigned char *rows, uint32_t type, size_t row,
                     float *out)
{
    const h2okv_shape *s = &part->store->shape;
    for (uint32_t head = 0; head < s->heads; head++) {
        h2okv_lane_view view;
        int status = h2okv_cache_lane(part->cache, s->lane_per_head ? head : 0, &view);
        if (status != H2OKV_OK) {
            return status;
        }
        const unsigned char *first = rows + (size_t)head * part->store->options.cells * row;
        for (uint32_t i = 0; i < view.live; i++, out += s->head_dim) {
            h2okv__row_decode(type, first + view.order[i] * row, out, s->head_dim);
        }
    }
    return H2OKV_OK;
}

int h2okv_store_keys(const h2okv_store *store, uint32_t sequence, uint32_t layer, float *out)
{
    if (!can_copy(store, sequence, layer, out)) {
        return H2OKV_E_INVALID;
    }
    const h2okv__part *part = h2okv__part_at(store, sequence, layer);
    return copy_rows(part, part->k, store->shape.type_k, store->row_k, out);
}

int h2okv_store_values(const h2okv_store *store, uint32_t sequence, uint32_t layer, float *out)
{
    if (!can_copy(store, sequence, layer, out)) {
        return H2OKV_E_INVALID;
    }
    const h2okv__part *part = h2okv__part_at(store, sequence, layer);
    return copy_rows(part, part->v, store->shape.type_v, store->row_v, out);
}

int h2okv_store_positions(const h2okv_store *store, uint32_t sequence, uint32_t layer, int32_t *out)
{
    if (!can_copy(store, sequence, layer, out)) {
        return H2OKV_E_INVALID;
    }
    const h2okv_cache *cache = h2okv__part_at(store, sequence, layer)->cache;
    for (uint32_t lane = 0; lane < store->lanes; lane++) {
        out += h2okv_cache_kept(cache, lane, out, NULL, NULL);
    }
    return H2OKV_OK;
}

int h2okv_store_scores(const h2okv_store *store, uint32_t sequence, uint32_t layer, double *out)
{
    if (!can_copy(store, sequence, layer, out)) {
        return H2OKV_E_INVALID;
    }
    const h2okv_cache *cache = h2okv__part_at(store, sequence, layer)->cache;
    for (uint32_t lane = 0; lane < store->lanes; lane++) {
        out += h2okv_cache_kept(cache, lane, NULL, out, NULL);
    }
    return H2OKV_OK;
}
