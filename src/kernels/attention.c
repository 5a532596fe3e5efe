/* attention.c - what is supported, the memory that a call needs, and the steps that both ways share. */
#include "kernels/attend.h"

#include <math.h>
#include <string.h>

#include "kernels/convert.h"

/* ---- What is supported ---- */

static const char *dim_unsupported(uint32_t dim, uint32_t type)
{
    if (dim < 32 || dim > H2OKV__MAX_DIM || dim % 8 != 0) {
        return "head size is not a multiple of 8 from 32 to 256";
    }
    if (type > H2OKV_TYPE_Q8_0) {
        return "K or V is not f32, f16, bf16 or q8_0";
    }
    return type == H2OKV_TYPE_Q8_0 && dim % H2OKV__Q8_0_BLOCK != 0 ? "q8_0 needs a head size that is a multiple of 32"
                                                                 : NULL;
}

const char *h2okv__attention_unsupported(const h2okv__attention *a)
{
    const char *why = dim_unsupported(a->k_dim, a->type_k);
    why = why != NULL ? why : dim_unsupported(a->v_dim, a->type_v);
    if (why != NULL) {
        return why;
    }
    if (a->kv_heads == 0 || a->group == 0 || a->queries == 0) {
        return "no heads or no queries";
    }
    if ((uint64_t)a->group * a->queries > INT32_MAX || (uint64_t)a->group * a->kv_heads > INT32_MAX) {
        return "too many heads or queries";
    }
    if (a->n_fresh != 0 && (a->n_fresh != a->queries || a->n_fresh > a->n_cells)) {
        return "the pass's own cells are not one for each query";
    }
    if (!isfinite(a->scale) || !isfinite(a->softcap) || a->softcap < 0.0f) {
        return "scale or softcap is negative or not finite";
    }
    return NULL;
}

/* ---- Memory ---- */

size_t h2okv__attention_scratch_bytes(const h2okv__isa *isa, const h2okv__attention *shape, uint32_t n_threads)
{
    h2okv__layout few = {0}, many = {0};
    h2okv__attention a = *shape;
    h2okv__prompt_place(isa, &a, n_threads, &many);
    a.queries = h2okv__min(a.queries, H2OKV__FEW_QUERIES);
    h2okv__decode_place(&a, n_threads, &few);
    if (few.overflow || many.overflow) {
        return 0;
    }
    return few.bytes > many.bytes ? few.bytes : many.bytes;
}

void h2okv__attend(const h2okv__isa *isa, const h2okv__attention *a, h2okv__team *team, void *scratch,
                   uint32_t thread, uint32_t n_threads)
{
    h2okv__call call = {isa, a, team, scratch, thread, n_threads};
    if (a->queries <= H2OKV__FEW_QUERIES) {
        h2okv__decode(&call);
    } else {
        h2okv__prompt(&call);
    }
}

/* ---- Rows ---- */

bool h2okv__pack_q(const h2okv__isa *isa, const h2okv__attention *a, uint32_t head, uint32_t first, uint32_t rows,
                   void *q)
{
    bool finite = true;
    for (uint32_t i = 0; i < rows; i++) {
        uint32_t query = (first + i) / a->group, query_head = head * a->group + (first + i) % a->group;
        const float *row = a->q + query_head * a->q_head_stride + query * a->q_query_stride;
        finite &= isa->pack_q(row, a->k_dim, a->scale, i, q);
    }
    return finite;
}

float *h2okv__out_row(const h2okv__attention *a, uint32_t head, uint32_t row)
{
    uint32_t query_head = head * a->group + row % a->group;
    return a->out + query_head * a->out_head_stride + row / a->group * a->out_query_stride;
}

float h2okv__sink(const h2okv__attention *a, uint32_t head, uint32_t row)
{
    return a->sinks != NULL ? a->sinks[head * a->group + row % a->group] : -INFINITY;
}

float h2okv__anchor(float max)
{
    return max == -INFINITY ? 0.0f : max;
}

float h2okv__inverse(float sum)
{
    return sum == 0.0f ? 0.0f : 1.0f / sum;
}

/* ---- Products that keep NaN in its place ---- */

void h2okv__add_values(const h2okv__isa *isa, const h2okv__attention *a, const h2okv__span *span, const void *panel,
                       bool finite, float *o)
{
    if (finite || h2okv__seen(a, span->row) >= span->first + span->n) {
        isa->values(span->s, span->stride, span->rows, span->n, panel, a->v_dim, o);
        return;
    }
    for (uint32_t i = 0; i < span->rows; i++) {
        uint32_t seen = h2okv__seen_of_span(a, span, span->row + i);
        isa->values(span->s + i * span->stride, span->stride, 1, seen, panel, a->v_dim,
                    o + i * h2okv__pad(a->v_dim));
    }
}

static bool all_finite(const float *x, uint32_t n)
{
    bool finite = true;
    for (uint32_t i = 0; i < n; i++) {
        finite &= h2okv__finite(x[i]);
    }
    return finite;
}

void h2okv__add_mass(const h2okv__isa *isa, const h2okv__attention *a, const h2okv__span *span, const float *factor,
                     float *mass)
{
    if (all_finite(factor, span->rows)) {
        isa->add_mass(span->s, span->stride, span->rows, span->n, factor, mass);
        return;
    }
    for (uint32_t i = 0; i < span->rows; i++) {
        uint32_t seen = h2okv__seen_of_span(a, span, span->row + i);
        for (uint32_t c = 0; c < seen; c++) {
            mass[c] += factor[i] * span->s[i * span->stride + c];
        }
    }
}

void h2okv__put_mass(const h2okv__attention *a, uint32_t head, uint32_t first, uint32_t n, const float *mass)
{
    float *out = a->mass + head * a->mass_head_stride;
    for (uint32_t i = 0; i < n; i++) {
        out[a->cell[first + i]] = mass[i];
    }
}
