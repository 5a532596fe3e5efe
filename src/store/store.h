/*
 * store.h - what the files of the store share.
 *
 * A part is one sequence's share of one layer: an h2okv_cache that decides, and the memory it decides on.
 *
 *   store
 *     part (sequence 0, layer 0) --> cache
 *     part (sequence 0, layer 1)     free cells | 7 4 5
 *     part (sequence 1, layer 0)     K  [heads][cells] rows of head_dim numbers: a head's cells lie in a run,
 *     ...                            V  [heads][cells]                           as attention reads them
 *
 * One block holds the store, its parts, their free cells and every K and V; each cache has one of its own.
 * Invariant: a cell is on the part's stack of free cells or holds a token of its cache, never both.
 */
#ifndef H2OKV_STORE_STORE_H
#define H2OKV_STORE_STORE_H

#include <stdbool.h>

#include "h2okv/advanced.h"

typedef struct h2okv__part {
    h2okv_store *store;
    h2okv_cache *cache;
    const h2okv_plan *plan; /* during a trim */
    uint32_t *free_cell;    /* [cells], a stack of n_free */
    uint32_t n_free;
    uint32_t first_lane; /* this part's lane 0 among the lanes of all parts, for events */
    unsigned char *k, *v; /* [heads][cells][row] */
} h2okv__part;

struct h2okv_store {
    h2okv_shape shape;
    h2okv_options options; /* of each part's cache; `policy` and `custom_policy` are NULL after create */
    h2okv_allocator allocator;
    size_t bytes;        /* of the store's own block, without the caches */
    size_t row_k, row_v; /* bytes of one head's K and V of one token */
    uint32_t lanes;      /* of a part: heads, or 1 */
    uint32_t policy_flags;
    bool broken;
    int32_t *next_pos; /* [layers] */
    h2okv__part *part; /* [batch][layers] */
};

static inline h2okv__part *h2okv__part_at(const h2okv_store *store, uint32_t sequence, uint32_t layer)
{
    return &store->part[(size_t)sequence * store->shape.layers + layer];
}

static inline size_t h2okv__n_parts(const h2okv_store *store)
{
    return (size_t)store->shape.batch * store->shape.layers;
}

/* Every cell on the stack, as at create; the cache has to be empty. */
void h2okv__part_reset(h2okv__part *part);

#endif
