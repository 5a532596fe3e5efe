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
 * One block holds the store, its parts, their free cells, every K and V, and the memory of attend; each cache has one
 * of its own.
 * Invariant: a cell is on the part's stack of free cells or holds a token of its cache, never both. While an append
 * waits for its attend, its rows lie in the cells on top of the stack: they are still free, so that nothing has to be
 * taken back when the attend never comes.
 */
#ifndef H2OKV_STORE_STORE_H
#define H2OKV_STORE_STORE_H

#include <stdbool.h>

#include "h2okv/advanced.h"
#include "kernels/attention.h"

typedef struct h2okv__part {
    h2okv_store *store;
    h2okv_cache *cache;
    const h2okv_plan *plan; /* during a trim */
    uint32_t *free_cell;    /* [cells], a stack of n_free */
    uint32_t n_free;
    uint32_t first_lane; /* this part's lane 0 among the lanes of all parts, for events */
    unsigned char *k, *v; /* [heads][cells][row] */
} h2okv__part;

/* What append and attend need beside the parts; isa is NULL in a store without them (shape.max_pass 0). */
typedef struct h2okv__attend_state {
    const h2okv__isa *isa;
    h2okv__attention call; /* what all calls have in common, at its largest */
    h2okv__team team;      /* of the kernels' threads, during one part */
    h2okv__team gate;      /* of the same threads, between the steps of an attend */
    int begun, ended;      /* thread 0's verdicts before and after the attention, for all threads */
    uint32_t *cell;        /* [max_pass] a part's new tokens, for admit */
    int32_t *pos;          /* [max_pass] */
    float *query_weight;   /* [max_pass] decay^(max_pass - 1), ..., decay, 1: a pass of n uses the last n */
    float *mass;           /* [batch][heads][cells] that the tokens of a pass received */
    void *scratch;         /* the kernels' */
} h2okv__attend_state;

struct h2okv_store {
    h2okv_shape shape;
    h2okv_options options; /* of each part's cache; `policy` and `custom_policy` are NULL after create */
    h2okv_allocator allocator;
    size_t bytes;        /* of the store's own block, without the caches */
    size_t row_k, row_v; /* bytes of one head's K and V of one token */
    uint32_t lanes;      /* of a part: heads, or 1 */
    uint32_t policy_flags;
    bool broken;
    int32_t *next_pos;    /* [layers] */
    uint32_t *n_appended; /* [layers] tokens that wait for their attend */
    h2okv__part *part;    /* [batch][layers] */
    h2okv__attend_state attend;
};

static inline h2okv__part *h2okv__part_at(const h2okv_store *store, uint32_t sequence, uint32_t layer)
{
    return &store->part[(size_t)sequence * store->shape.layers + layer];
}

static inline size_t h2okv__n_parts(const h2okv_store *store)
{
    return (size_t)store->shape.batch * store->shape.layers;
}

/* The free cell that the i-th of the next tokens will take. */
static inline uint32_t h2okv__next_cell(const h2okv__part *part, uint32_t i)
{
    return part->free_cell[part->n_free - 1 - i];
}

static inline size_t h2okv__query_heads(const h2okv_store *store)
{
    return (size_t)store->shape.heads * store->shape.group;
}

/* Every cell on the stack, as at create; the cache has to be empty. */
void h2okv__part_reset(h2okv__part *part);

/* key, value [heads][head_dim] into a cell of the part. */
void h2okv__write_cell(h2okv__part *part, uint32_t cell, const float *key, const float *value);

/* Carry out a plan and commit it. */
int h2okv__apply_plan(h2okv__part *part, const h2okv_plan *plan);

/* Whether no number is NaN, and each has a magnitude below the float whose bits are `limit`. */
bool h2okv__all_below(const float *data, size_t n, uint32_t limit);
enum { H2OKV__INFINITY_BITS = 0x7f800000 };

#endif
