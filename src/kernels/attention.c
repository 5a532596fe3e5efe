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

size_t h2okv__attention_scratch_bytes(const h2okv__isa *isa, const h2okv__attention *shape, uint32_t n_batch,
                                      uint32_t n_threads)
{
    h2okv__layout one = {0}, few = {0}, many = {0};
    h2okv__attention a = *shape;
    h2okv__prompt_place(isa, &a, n_threads, &many);
    a.queries = h2okv__min(a.queries, H2OKV__FEW_QUERIES);
    h2okv__decode_place(&a, 1, n_threads, &few);
    a.queries = 1;
    h2okv__decode_place(&a, h2okv__min(n_batch, H2OKV__TOGETHER), n_threads, &one);
    if (one.overflow || few.overflow || many.overflow) {
        return 0;
    }
    size_t most = one.bytes > few.bytes ? one.bytes : few.bytes;
    return most > many.bytes ? most : many.bytes;
}

/* ---- Calls ---- */

void h2okv__end_call(const h2okv__call *call)
{
    if (call->more) {
        h2okv__team_wait(call->team, call->n_threads);
    } else {
        h2okv__team_leave(call->team, call->n_threads);
    }
}

static void do_call(const h2okv__call *call)
{
    if (call->a->queries <= H2OKV__FEW_QUERIES) {
        h2okv__decode(call);
    } else {
        h2okv__prompt(call);
    }
}

void h2okv__attend(const h2okv__isa *isa, const h2okv__attention *a, h2okv__team *team, void *scratch,
                   uint32_t thread, uint32_t n_threads)
{
    h2okv__call call = {isa, a, 1, false, team, scratch, thread, n_threads};
    do_call(&call);
}

static h2okv__attention member_of(const h2okv__attention *first, const h2okv_attention_batch *batch, uint32_t i)
{
    h2okv__attention a = *first;
    a.cell += i * batch->cell_stride;
    a.n_cells = batch->n_cells[i];
    a.k = (const char *)a.k + i * batch->k_stride;
    a.v = (const char *)a.v + i * batch->v_stride;
    a.q += i * batch->q_stride;
    a.out += i * batch->out_stride;
    a.mass = a.mass != NULL ? a.mass + i * batch->mass_stride : NULL;
    return a;
}

/* Members with one query each share their work out in one go; otherwise one alone is work enough for all threads. */
void h2okv__attend_batch(const h2okv__isa *isa, const h2okv__attention *a, const h2okv_attention_batch *batch,
                         h2okv__team *team, void *scratch, uint32_t thread, uint32_t n_threads)
{
    h2okv__attention member[H2OKV__TOGETHER];
    uint32_t most = a->queries == 1 ? H2OKV__TOGETHER : 1;
    for (uint32_t first = 0, n; first < batch->n; first += n) {
        n = h2okv__min(batch->n - first, most);
        for (uint32_t i = 0; i < n; i++) {
            member[i] = member_of(a, batch, first + i);
        }
        h2okv__call call = {isa, member, n, first + n < batch->n, team, scratch, thread, n_threads};
        do_call(&call);
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
