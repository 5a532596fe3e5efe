/*
 * scalar.c - the table in plain C: the specification of all others. Panels are f32, K turned so that the cells of
 * one dimension are neighbours: K [pad(dim)][64], V [64][pad(dim)], q [rows][pad(dim)].
 */
#include "kernels/convert.h"
#include "kernels/tables.h"

#include <math.h>

static bool pack_k(const h2okv__rows *rows, const uint32_t *cell, uint32_t n, void *panel)
{
    float *out = panel;
    bool finite = true;
    memset(out, 0, h2okv__pad(rows->dim) * H2OKV__PANEL * sizeof *out);
    for (uint32_t c = 0; c < n; c++) {
        const char *row = rows->base + cell[c] * rows->stride;
        for (uint32_t d = 0; d < rows->dim; d++) {
            out[d * H2OKV__PANEL + c] = h2okv__load_number(rows->type, row, d);
            finite &= h2okv__finite(out[d * H2OKV__PANEL + c]);
        }
    }
    return finite;
}

static bool pack_v(const h2okv__rows *rows, const uint32_t *cell, uint32_t n, void *panel)
{
    size_t pad = h2okv__pad(rows->dim);
    float *out = panel;
    bool finite = true;
    memset(out, 0, pad * H2OKV__PANEL * sizeof *out);
    for (uint32_t c = 0; c < n; c++) {
        const char *row = rows->base + cell[c] * rows->stride;
        for (uint32_t d = 0; d < rows->dim; d++) {
            out[c * pad + d] = h2okv__load_number(rows->type, row, d);
            finite &= h2okv__finite(out[c * pad + d]);
        }
    }
    return finite;
}

static bool pack_q(const float *row, uint32_t dim, float scale, uint32_t index, void *q)
{
    size_t pad = h2okv__pad(dim);
    float *out = (float *)q + index * pad;
    bool finite = true;
    for (uint32_t d = 0; d < pad; d++) {
        out[d] = d < dim ? row[d] * scale : 0.0f;
        finite &= h2okv__finite(out[d]);
    }
    return finite;
}

static void logits(const void *q, uint32_t rows, uint32_t dim, const void *panel, uint32_t n, float *s,
                   size_t stride)
{
    const float *k = panel;
    for (uint32_t r = 0; r < rows; r++) {
        const float *row = (const float *)q + r * h2okv__pad(dim);
        for (uint32_t c = 0; c < n; c++) {
            float sum = 0.0f;
            for (uint32_t d = 0; d < dim; d++) {
                sum += row[d] * k[d * H2OKV__PANEL + c];
            }
            s[r * stride + c] = sum;
        }
    }
}

static void values(const float *s, size_t stride, uint32_t rows, uint32_t n, const void *panel, uint32_t dim,
                   float *o)
{
    size_t pad = h2okv__pad(dim);
    const float *v = panel;
    for (uint32_t r = 0; r < rows; r++) {
        for (uint32_t c = 0; c < n; c++) {
            for (uint32_t d = 0; d < dim; d++) {
                o[r * pad + d] += s[r * stride + c] * v[c * pad + d];
            }
        }
    }
}

static void add_mass(const float *s, size_t stride, uint32_t rows, uint32_t n, const float *factor, float *mass)
{
    for (uint32_t r = 0; r < rows; r++) {
        for (uint32_t c = 0; c < n; c++) {
            mass[c] += factor[r] * s[r * stride + c];
        }
    }
}

static float max(const float *x, uint32_t n)
{
    float most = -INFINITY;
    for (uint32_t i = 0; i < n; i++) {
        most = x[i] > most ? x[i] : most;
    }
    return most;
}

static float exp_sum(float *x, uint32_t n, float minus)
{
    double sum = 0.0;
    for (uint32_t i = 0; i < n; i++) {
        x[i] = expf(x[i] - minus);
        sum += (double)x[i];
    }
    return (float)sum;
}

static void softcap(float *x, uint32_t n, float cap)
{
    for (uint32_t i = 0; i < n; i++) {
        x[i] = cap * tanhf(x[i] / cap);
    }
}

const h2okv__isa h2okv__isa_scalar = {
    .name = "scalar",
    .tile_rows = 16,
    .pack_k = pack_k,
    .pack_v = pack_v,
    .pack_q = pack_q,
    .logits = logits,
    .values = values,
    .add_mass = add_mass,
    .max = max,
    .exp_sum = exp_sum,
    .softcap = softcap,
};
