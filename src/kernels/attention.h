/*
 * attention.h - softmax(scale * q k^T) v over a cache with holes, and on the way the mass that every cell received.
 *
 *   cell[]:  | n_cells - n_fresh cells that every query sees | n_fresh cells of the pass's own tokens |
 *   query i:   ------------- all of them ------------------->  the first i + 1 of these (causal by true position)
 *
 * A call is made by each of n_threads threads. Two ways inside: few queries (decode.c) read every K and V row
 * once for all queries and heads that need it; many queries (prompt.c) pack K and V once and multiply tiles.
 *
 * Mass is exact: a query's true maximum and sum are known before anything is added (two passes). Its bits do not
 * depend on n_threads or on which thread did what: every sum is over pieces that are cut by the shape alone, and
 * pieces are added in a fixed order.
 */
#ifndef H2OKV_KERNELS_ATTENTION_H
#define H2OKV_KERNELS_ATTENTION_H

#include "h2okv/h2okv.h"
#include "kernels/isa.h"
#include "kernels/team.h"

#include <stdbool.h>

typedef struct h2okv__attention {
    /* the shape; scratch_bytes looks at these and at n_cells, n_fresh */
    uint32_t kv_heads;
    uint32_t group;          /* query heads that share a KV head: query head h uses KV head h / group */
    uint32_t queries;        /* tokens of the pass */
    uint32_t k_dim, v_dim;   /* 32..256 in steps of 8; they may differ */
    uint32_t type_k, type_v; /* enum h2okv_type, laid out as ggml does; q8_0 needs a multiple of 32 */

    /* K and V: the row of a cell and head is at base + cell * cell_stride + head * head_stride; strides in bytes,
     * no alignment needed */
    const void *k, *v;
    size_t k_cell_stride, k_head_stride;
    size_t v_cell_stride, v_head_stride;

    /* [n_cells], no cell twice. Empty cells are simply not in it: they are neither read nor computed. */
    const uint32_t *cell;
    uint32_t n_cells;
    uint32_t n_fresh; /* `queries`, or 0: then every query sees every cell */

    /* f32 [kv_heads * group][queries][dim], dim contiguous; strides in floats */
    const float *q;
    float *out;
    size_t q_head_stride, q_query_stride;
    size_t out_head_stride, out_query_stride;

    float scale;        /* logit = scale * q.k */
    float softcap;      /* 0: none; else logit = softcap * tanh(logit / softcap) */
    const float *sinks; /* [kv_heads * group]: a further logit whose weight goes to no cell; NULL: none */

    /* mass[kv_head * mass_head_stride + cell] = sum over the group's heads and the queries of weight * query_weight.
     * Written for the cells in the list only. NULL: none is wanted. */
    float *mass;
    size_t mass_head_stride;    /* in floats; at least the highest cell + 1 */
    const float *query_weight;  /* [queries]; NULL: 1 each */
    bool leave_out_self;        /* a query's weight on its own (fresh) cell is not added to the mass */
} h2okv__attention;

/* NULL when the kernels can do this, else why not: a fixed text for people. Looks at the shape and types. */
const char *h2okv__attention_unsupported(const h2okv__attention *a);

/* Bytes of the memory, aligned to 64, that calls with this shape need; enough for every call with fewer queries
 * or cells too. O(cells) for each thread. 0 when the size overflows. */
size_t h2okv__attention_scratch_bytes(const h2okv__isa *isa, const h2okv__attention *shape, uint32_t n_threads);

/* This thread's part. All n_threads threads call it with the same arguments and their own number from 0; `out` and
 * `mass` are complete when all have returned, and only then may `team` and `scratch` be used again. Allocates
 * nothing. A row that sees no cell (or only logits of -infinity) gives output 0 and mass 0; NaN goes where the formula
 * takes it and no further. The shape is supported and the scratch large enough: not checked again here. */
void h2okv__attend(const h2okv__isa *isa, const h2okv__attention *a, h2okv__team *team, void *scratch,
                   uint32_t thread, uint32_t n_threads);

#endif
