/*
 * attention.h - attention over a cache with holes, with the mass that every cell received: for engines of your own.
 * May change between minor versions.
 *
 *   cell[]:  | n_cells - n_fresh cells that every query sees | n_fresh cells of the pass's own tokens |
 *   query i:   ------------- all of them ------------------->  the first i + 1 of these (causal by true position)
 *
 *   h2okv_kernels *kernels;                      once: instruction set, threads, scratch memory
 *   h2okv_kernels_create(&kernels, &largest, n_threads, NULL, NULL, &error);
 *   h2okv_kernels_attend(kernels, &attention, thread, n_threads);     each layer, by each thread
 *   h2okv_cache_observe_mass(cache, lane, mass of that lane);
 */
#ifndef H2OKV_ATTENTION_H
#define H2OKV_ATTENTION_H

#include "h2okv.h"

#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

/* softmax(scale * q k^T) v of one layer (Vaswani et al. 2017, section 3.2.1), softmax in the stable form. */
typedef struct h2okv_attention {
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

    /* mass[kv_head * mass_head_stride + cell] = sum over the group's heads and the queries of weight * query_weight
     * (Zhang et al. 2023, section 4.2). Written for the cells in the list only. NULL: none is wanted. */
    float *mass;
    size_t mass_head_stride;   /* in floats; at least the highest cell + 1 */
    const float *query_weight; /* [queries]; NULL: 1 each */
    bool leave_out_self;       /* a query's weight on its own (fresh) cell is not added to the mass */
} h2okv_attention;

/* NULL when the kernels can do this, else why not: a fixed text for people. Looks at the shape and types only. */
H2OKV_API const char *h2okv_attention_unsupported(const h2okv_attention *attention);

/* Sequences that have a pass together: n calls that differ in their cells and in where things lie. Member i of a batch
 * is the call described, with n_cells[i] cells and every pointer i strides further on. */
typedef struct h2okv_attention_batch {
    uint32_t n;
    const uint32_t *n_cells;                 /* [n] */
    size_t cell_stride;                      /* of `cell`, in entries */
    size_t k_stride, v_stride;               /* in bytes */
    size_t q_stride, out_stride, mass_stride; /* in floats */
} h2okv_attention_batch;

typedef struct h2okv_kernels h2okv_kernels;

/* Room for calls with up to these sizes. `isa`: a name from
 * h2okv_isa_name (advanced.h), NULL: the best that is usable here. Errors: E_INVALID (no such
 * instruction set, n_threads 0), E_UNSUPPORTED (not usable here, or a shape that is not supported), E_NOMEM. */
H2OKV_API int h2okv_kernels_create(h2okv_kernels **out, const h2okv_attention *largest, uint32_t n_threads,
                                   const char *isa, const h2okv_allocator *allocator, h2okv_error *error);
/* And for batches of up to n_batch. */
H2OKV_API int h2okv_kernels_create_batch(h2okv_kernels **out, const h2okv_attention *largest, uint32_t n_batch,
                                         uint32_t n_threads, const char *isa, const h2okv_allocator *allocator,
                                         h2okv_error *error);
H2OKV_API void h2okv_kernels_free(h2okv_kernels *kernels); /* NULL is allowed */

/* The instruction set in use. */
H2OKV_API const char *h2okv_kernels_isa(const h2okv_kernels *kernels);

/* This thread's part. n_threads threads (at most as many as at create) call it with the same arguments and their own
 * number from 0; `out` and `mass` are complete, and the next call may begin, when all have returned. Allocates
 * nothing. A row that sees no cell gives output 0 and mass 0; NaN goes where the formula takes it and no further.
 * Mass has the same bits for any number of threads. Not checked here: shape, types, pointers. */
H2OKV_API void h2okv_kernels_attend(h2okv_kernels *kernels, const h2okv_attention *attention, uint32_t thread,
                                    uint32_t n_threads);

/* The same for a batch, for kernels from h2okv_kernels_create_batch. Each member gets the bits that it gets alone;
 * members of one query each are shared out among the threads in one go. */
H2OKV_API void h2okv_kernels_attend_batch(h2okv_kernels *kernels, const h2okv_attention *attention,
                                          const h2okv_attention_batch *batch, uint32_t thread, uint32_t n_threads);

#ifdef __cplusplus
}
#endif

#endif
