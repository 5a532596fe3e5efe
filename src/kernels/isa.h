/*
 * isa.h - the instruction sets: a const table of functions for each, and which of them this machine can run.
 *
 * All work on panels, pieces of H2OKV__PANEL cells of one head:
 *
 *   q rows [rows][k_dim]  x  K panel [k_dim][64 cells]  ->  S [rows][64 cells]      logits()
 *   S [rows][64 cells]    x  V panel [64 cells][v_dim]  ->  O [rows][v_dim]         values()
 *
 * How q and the panels are laid out inside is a table's own business; their sizes are the same for all tables.
 * The scalar table is the specification; the others equal it within the tolerances of tests/kernels.
 */
#ifndef H2OKV_KERNELS_ISA_H
#define H2OKV_KERNELS_ISA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    H2OKV__PANEL = 64,      /* cells of a panel */
    H2OKV__MAX_DIM = 256,
    H2OKV__TILE_ROWS = 48,  /* the largest tile_rows */
};

/* Numbers in a padded row of q, K or V. */
static inline size_t h2okv__pad(uint32_t dim)
{
    return ((size_t)dim + 31) / 32 * 32;
}

/* Rows of K or V of one head, where the caller has them; and rows that will be wanted next: while a row is read, one of
 * those is fetched. Processors that guess the next address well do not need it, but many guess nothing when rows of
 * 128 bytes lie apart, and virtual machines may have guessing turned off. */
typedef struct h2okv__rows {
    const char *base;
    size_t stride; /* bytes from cell to cell */
    uint32_t type; /* enum h2okv_type */
    uint32_t dim;
    const char *next_base;
    size_t next_stride;
    const uint32_t *next_cell; /* [next_n] */
    uint32_t next_n, next_bytes;
} h2okv__rows;

typedef struct h2okv__isa {
    const char *name;
    uint32_t tile_rows; /* most rows for prompt.c to hand over at once: a multiple of 16, <= H2OKV__TILE_ROWS */
    const struct h2okv__isa *few; /* the table for few rows, and for numbers that are not finite; NULL: itself */

    /* Around a thread's use of logits() and values(); `saved` is 64 bytes. NULL: nothing to do. */
    void (*begin)(void *saved);
    void (*end)(const void *saved);

    /* n <= 64 cells -> a panel of h2okv__pad(dim) * 64 * 4 bytes, zero past n (up to the next multiple of 16 at least)
     * and past dim. Returns whether all numbers are finite. */
    bool (*pack_k)(const h2okv__rows *rows, const uint32_t *cell, uint32_t n, void *panel);
    bool (*pack_v)(const h2okv__rows *rows, const uint32_t *cell, uint32_t n, void *panel);

    /* Row `index` of a q of h2okv__pad(dim) * 4 bytes a row, times scale. `index` rises from 0, and rows up to the next
     * multiple of 16 are there to be written. Returns whether all are finite. */
    bool (*pack_q)(const float *row, uint32_t dim, float scale, uint32_t index, void *q);

    /* s[r * stride + c] = q row r . K of cell c; the rest of the panel's 64 columns, and of tile_rows rows, may
     * be written. */
    void (*logits)(const void *q, uint32_t rows, uint32_t dim, const void *panel, uint32_t n, float *s,
                   size_t stride);

    /* o[r * h2okv__pad(dim) + d] += sum over c < n of s[r * stride + c] * V[c][d]; s is 0 from n on; the rest of
     * tile_rows rows of o may be written. */
    void (*values)(const float *s, size_t stride, uint32_t rows, uint32_t n, const void *panel, uint32_t dim,
                   float *o);

    /* mass[c] += sum over r of factor[r] * s[r * stride + c], c < n, r in order; up to the next multiple of 16 may
     * be written. */
    void (*add_mass)(const float *s, size_t stride, uint32_t rows, uint32_t n, const float *factor, float *mass);

    /* The same two products for at most few_rows rows, straight from the cells' rows: packing would cost more than
     * it saves. q as pack_q of this table leaves it. */
    uint32_t few_rows;
    void (*few_logits)(const void *q, uint32_t rows, const h2okv__rows *k, const uint32_t *cell, uint32_t n, float *s,
                       size_t stride);
    void (*few_values)(const float *s, size_t stride, uint32_t rows, const h2okv__rows *v, const uint32_t *cell,
                       uint32_t n, float *o);

    float (*max)(const float *x, uint32_t n);            /* -infinity for n = 0; NaN is passed over */
    float (*exp_sum)(float *x, uint32_t n, float minus); /* x = exp(x - minus); returns their sum */
    void (*softcap)(float *x, uint32_t n, float cap);    /* x = cap * tanh(x / cap) */
} h2okv__isa;

/* By index from 0, the plainest first; NULL past the last that this build has for this kind of processor. */
const h2okv__isa *h2okv__isa_at(uint32_t index);

/* By name; NULL when this build does not have it. "auto" or NULL: the last of the list that is usable. */
const h2okv__isa *h2okv__isa_find(const char *name);

/* Whether processor and operating system let this process run it. For amx this asks Linux for the permission to use
 * tiles, which the process then keeps. Ask once, at create: it is not fast. */
bool h2okv__isa_usable(const h2okv__isa *isa);

#endif
