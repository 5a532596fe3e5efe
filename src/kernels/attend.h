/* attend.h - what the two ways through a call (decode.c, prompt.c) share with each other and with attention.c. */
#ifndef H2OKV_KERNELS_ATTEND_H
#define H2OKV_KERNELS_ATTEND_H

#include "base/memory.h"
#include "kernels/attention.h"

enum {
    H2OKV__FEW_QUERIES = 8, /* up to here K and V are packed by whoever reads them, piece by piece */
    H2OKV__TOGETHER = 16,   /* most members of a batch that are done at once */
};

/* One thread's view of one call. */
typedef struct h2okv__call {
    const h2okv__isa *isa;
    const h2okv__attention *a; /* [n]; all but cells and pointers is the same in each */
    uint32_t n;
    bool more; /* another call follows at once, so nobody may leave before all are done */
    h2okv__team *team;
    char *scratch;
    uint32_t thread, n_threads;
} h2okv__call;

/* Each way's needs are placed by the same code that later turns offsets into pointers. */
void h2okv__decode_place(const h2okv__attention *a, uint32_t n, uint32_t n_threads, h2okv__layout *layout);
void h2okv__decode(const h2okv__call *call);
void h2okv__prompt_place(const h2okv__isa *isa, const h2okv__attention *a, uint32_t n_threads, h2okv__layout *layout);
void h2okv__prompt(const h2okv__call *call); /* n is 1 */

/* A thread's last deed in a call. */
void h2okv__end_call(const h2okv__call *call);

/* The rows of a KV head: its group's heads of query 0, then of query 1, ... */
static inline uint32_t h2okv__row_count(const h2okv__attention *a)
{
    return a->queries * a->group;
}

/* Cells of the list that a row sees: the first so many. */
static inline uint32_t h2okv__seen(const h2okv__attention *a, uint32_t row)
{
    return a->n_fresh == 0 ? a->n_cells : a->n_cells - a->n_fresh + row / a->group + 1;
}

/* Where a row's own cell is in the list; past its end when it has none. */
static inline uint32_t h2okv__self(const h2okv__attention *a, uint32_t row)
{
    return a->n_fresh == 0 ? UINT32_MAX : h2okv__seen(a, row) - 1;
}

static inline h2okv__rows h2okv__k_rows(const h2okv__attention *a, uint32_t head)
{
    return (h2okv__rows){.base = (const char *)a->k + head * a->k_head_stride, .stride = a->k_cell_stride,
                         .type = a->type_k, .dim = a->k_dim};
}

static inline h2okv__rows h2okv__v_rows(const h2okv__attention *a, uint32_t head)
{
    return (h2okv__rows){.base = (const char *)a->v + head * a->v_head_stride, .stride = a->v_cell_stride,
                         .type = a->type_v, .dim = a->v_dim};
}

/* Rows first .. first + rows - 1 of a head, packed. False when one is not finite. */
bool h2okv__pack_q(const h2okv__isa *isa, const h2okv__attention *a, uint32_t head, uint32_t first, uint32_t rows,
                   void *q);

float *h2okv__out_row(const h2okv__attention *a, uint32_t head, uint32_t row);

/* The logit of a row's sink; -infinity when there is none. */
float h2okv__sink(const h2okv__attention *a, uint32_t head, uint32_t row);

/* What exp subtracts: the maximum, or 0 when there is none (then every exp is 0, and not NaN). */
float h2okv__anchor(float max);

/* 1 / sum, or 0 for a row that sees nothing. */
float h2okv__inverse(float sum);

/* A span of list cells [first, first + n) as columns of S; row 0 of S is row `row` of the head. */
typedef struct h2okv__span {
    uint32_t row, rows;
    uint32_t first, n;
    float *s;
    size_t stride;
} h2okv__span;

/* o += S * V panel. With numbers in V that are not finite no row may meet a cell that it does not see (0 * NaN). */
void h2okv__add_values(const h2okv__isa *isa, const h2okv__attention *a, const h2okv__span *span, const void *panel,
                       bool finite, float *o);

/* mass[0..n) += sum over rows of factor * S, for factors that may be NaN. */
void h2okv__add_mass(const h2okv__isa *isa, const h2okv__attention *a, const h2okv__span *span, const float *factor,
                     float *mass);

/* mass[0..n) of list cells from `first` on, to where the caller wants it. */
void h2okv__put_mass(const h2okv__attention *a, uint32_t head, uint32_t first, uint32_t n, const float *mass);

static inline float h2okv__query_weight(const h2okv__attention *a, uint32_t row)
{
    return a->query_weight != NULL ? a->query_weight[row / a->group] : 1.0f;
}

static inline uint32_t h2okv__min(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

/* How many of the columns of a span a row sees. */
static inline uint32_t h2okv__seen_of_span(const h2okv__attention *a, const h2okv__span *span, uint32_t row)
{
    uint32_t seen = h2okv__seen(a, row);
    return seen <= span->first ? 0 : h2okv__min(seen - span->first, span->n);
}

static inline void *h2okv__at(char *base, size_t offset)
{
    return base != NULL ? base + offset : NULL; /* NULL: only the size is asked for */
}

#endif
