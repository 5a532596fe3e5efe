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

#include "h2okv/attention.h"
#include "kernels/isa.h"
#include "kernels/team.h"

#include <stdbool.h>

typedef h2okv_attention h2okv__attention;

/* NULL when the kernels can do this, else why not: a fixed text for people. Looks at the shape and types. */
const char *h2okv__attention_unsupported(const h2okv__attention *a);

/* Bytes of the memory, aligned to 64, that calls with this shape, and batches of up to n_batch, need; enough for every
 * call with fewer queries or cells too. O(cells) for each thread. 0 when the size overflows. */
size_t h2okv__attention_scratch_bytes(const h2okv__isa *isa, const h2okv__attention *shape, uint32_t n_batch,
                                      uint32_t n_threads);

/* This thread's part. All n_threads threads call it with the same arguments and their own number from 0; `out` and
 * `mass` are complete when all have returned, and only then may `team` and `scratch` be used again. Allocates
 * nothing. A row that sees no cell (or only logits of -infinity) gives output 0 and mass 0; NaN goes where the formula
 * takes it and no further. The shape is supported and the scratch large enough: not checked again here. */
void h2okv__attend(const h2okv__isa *isa, const h2okv__attention *a, h2okv__team *team, void *scratch,
                   uint32_t thread, uint32_t n_threads);

/* The same for every member of a batch, each with the bits that it has alone. */
void h2okv__attend_batch(const h2okv__isa *isa, const h2okv__attention *a, const h2okv_attention_batch *batch,
                         h2okv__team *team, void *scratch, uint32_t thread, uint32_t n_threads);

#endif
