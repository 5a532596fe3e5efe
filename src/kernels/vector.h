/*
 * vector.h - a table over f32 vectors of any width: the body of avx2.c, avx512.c and neon.c, which first define
 *
 *   vec, V_LANES                  V_MOST_COLUMNS(rows)   vectors of a tile's row that fit into registers
 *   v_zero() v_set(x) v_load(p) v_store(p, v)            any address
 *   v_f16(p) v_bf16(p) v_int8(p)                         V_LANES numbers at any address -> floats
 *   v_one_f16(p)                                         one number for all lanes
 *   v_add(a, b) v_mul(a, b) v_fma(a, b, c) = a * b + c   v_div(a, b)
 *   v_max(a, b) v_min(a, b)                              b when either is NaN
 *   v_scale_or_zero(a, n, whole, x, low)                 x < low ? 0 : a * 2^n, NaN when x is; n = the lowest bits of
 *                                                        whole, which for a NaN may be any
 *   v_sum(a) v_most(a)                                   over the lanes
 *   v_turn(v[V_LANES])                                   transpose
 *   v_put_sums(p, a, b, c, d)                            their four v_sum, to p[0..4)
 *   V_FEW                                                query rows times 4 vectors that fit into registers: 3 or 4
 *   VECTOR_TABLE, VECTOR_NAME, VECTOR_TILE_ROWS
 *
 * Panels are laid out as in scalar.c. A tile of the products keeps its sums in registers:
 *
 *             b0 b1 b2 b3      <- `columns` vectors of row k of B
 *   a[r][k] * s  s  s  s       <- `rows` x `columns` sums
 */
#include "kernels/convert.h"
#include "kernels/tables.h"

#define INLINE static inline __attribute__((always_inline))
#define UNROLL _Pragma("GCC unroll 16")

/* ---- Rows where they lie ---- */

INLINE void fetch_next(const h2okv__rows *rows, uint32_t i)
{
    if (i < rows->next_n) {
        const char *next = rows->next_base + rows->next_cell[i] * rows->next_stride;
        for (uint32_t at = 0; at < rows->next_bytes; at += 64) {
            __builtin_prefetch(next + at);
        }
    }
}

/* n <= V_LANES numbers of a row from index `at` on, then zeros. */
INLINE vec load_some(uint32_t type, const char *row, uint32_t at, uint32_t n)
{
    float some[V_LANES] = {0};
    for (uint32_t i = 0; i < n; i++) {
        some[i] = h2okv__load_number(type, row, at + i);
    }
    return v_load(some);
}

INLINE vec load_vector(uint32_t type, const char *row, uint32_t at)
{
    const char *block;
    switch (type) {
    case H2OKV_TYPE_F16:
        return v_f16(row + 2 * (size_t)at);
    case H2OKV_TYPE_BF16:
        return v_bf16(row + 2 * (size_t)at);
    case H2OKV_TYPE_Q8_0:
        block = row + (size_t)(at / H2OKV__Q8_0_BLOCK) * H2OKV__Q8_0_BYTES;
        return v_mul(v_one_f16(block), v_int8(block + 2 + at % H2OKV__Q8_0_BLOCK));
    default:
        return v_load((const float *)(const void *)(row + 4 * (size_t)at));
    }
}

INLINE vec load_part(uint32_t type, const char *row, uint32_t at, uint32_t dim)
{
    return dim - at >= V_LANES ? load_vector(type, row, at) : load_some(type, row, at, dim - at);
}

/* ---- Few rows, without a panel ---- */

#include "kernels/vector_few.h"

/* ---- Packing ---- */

/* x * 0 is 0 for a finite x, else NaN: sum it up, look once. Four sums, so that they need not wait for each other. */
typedef struct noted {
    vec sum[4];
} noted;

INLINE void note(noted *seen, uint32_t i, vec x)
{
    seen->sum[i % 4] = v_fma(x, v_zero(), seen->sum[i % 4]);
}

INLINE bool noted_finite(const noted *seen)
{
    return v_sum(v_add(v_add(seen->sum[0], seen->sum[1]), v_add(seen->sum[2], seen->sum[3]))) == 0.0f;
}

INLINE bool pack_k_of_type(uint32_t type, const h2okv__rows *rows, const uint32_t *cell, uint32_t n, float *panel)
{
    noted seen = {{v_zero(), v_zero(), v_zero(), v_zero()}};
    for (uint32_t c = 0; c < n; c += V_LANES) {
        for (uint32_t i = 0; i < V_LANES; i++) {
            fetch_next(rows, c + i);
        }
        for (uint32_t d = 0; d < rows->dim; d += V_LANES) {
            vec v[V_LANES];
            UNROLL for (uint32_t i = 0; i < V_LANES; i++) {
                v[i] = v_zero();
                if (c + i < n) {
                    v[i] = load_part(type, rows->base + cell[c + i] * rows->stride, d, rows->dim);
                }
                note(&seen, i, v[i]);
            }
            v_turn(v);
            UNROLL for (uint32_t i = 0; i < V_LANES; i++) {
                v_store(panel + (size_t)(d + i) * H2OKV__PANEL + c, v[i]);
            }
        }
    }
    return noted_finite(&seen);
}

INLINE bool pack_v_of_type(uint32_t type, const h2okv__rows *rows, const uint32_t *cell, uint32_t n, float *panel)
{
    size_t pad = h2okv__pad(rows->dim);
    noted seen = {{v_zero(), v_zero(), v_zero(), v_zero()}};
    for (uint32_t c = 0; c < n; c++) {
        const char *row = rows->base + cell[c] * rows->stride;
        fetch_next(rows, c);
        for (uint32_t d = 0; d < rows->dim; d += V_LANES) {
            vec v = load_part(type, row, d, rows->dim);
            note(&seen, d / V_LANES, v);
            v_store(panel + c * pad + d, v);
        }
        if (rows->dim % 16 != 0) { /* products take whole sixteens */
            for (uint32_t d = (rows->dim + V_LANES - 1) / V_LANES * V_LANES; d % 16 != 0; d += V_LANES) {
                v_store(panel + c * pad + d, v_zero());
            }
        }
    }
    return noted_finite(&seen);
}

/* Each type gets its own loop. */
#define BY_TYPE(function, rows, cell, n, panel)                            \
    switch ((rows)->type) {                                                \
    case H2OKV_TYPE_F16:                                                   \
        return function(H2OKV_TYPE_F16, rows, cell, n, panel);             \
    case H2OKV_TYPE_BF16:                                                  \
        return function(H2OKV_TYPE_BF16, rows, cell, n, panel);            \
    case H2OKV_TYPE_Q8_0:                                                  \
        return function(H2OKV_TYPE_Q8_0, rows, cell, n, panel);            \
    default:                                                               \
        return function(H2OKV_TYPE_F32, rows, cell, n, panel);             \
    }

static bool pack_k(const h2okv__rows *rows, const uint32_t *cell, uint32_t n, void *panel)
{
    BY_TYPE(pack_k_of_type, rows, cell, n, panel)
}

static bool pack_v(const h2okv__rows *rows, const uint32_t *cell, uint32_t n, void *panel)
{
    BY_TYPE(pack_v_of_type, rows, cell, n, panel)
}

static bool pack_q(const float *row, uint32_t dim, float scale, uint32_t index, void *q)
{
    float *out = (float *)q + index * h2okv__pad(dim);
    noted seen = {{v_zero(), v_zero(), v_zero(), v_zero()}};
    for (uint32_t d = 0; d < h2okv__pad(dim); d += V_LANES) {
        vec x = d < dim ? v_mul(load_part(H2OKV_TYPE_F32, (const char *)row, d, dim), v_set(scale)) : v_zero();
        note(&seen, d / V_LANES, x);
        v_store(out + d, x);
    }
    return noted_finite(&seen);
}

/* ---- Products: C (+)= A B ---- */

typedef struct product {
    const float *a; /* [rows][depth], a_stride floats from row to row */
    const float *b; /* [depth][columns of V_LANES] */
    float *c;       /* [rows][columns of V_LANES] */
    size_t a_stride, b_stride, c_stride;
    uint32_t depth;
    bool add;
} product;

INLINE void tile(const product *p, uint32_t row, uint32_t column, const uint32_t rows, const uint32_t columns)
{
    const float *a = p->a + row * p->a_stride, *b = p->b + (size_t)column * V_LANES;
    float *c = p->c + row * p->c_stride + (size_t)column * V_LANES;
    vec sum[6][4];
    UNROLL for (uint32_t r = 0; r < rows; r++) {
        UNROLL for (uint32_t j = 0; j < columns; j++) {
            sum[r][j] = p->add ? v_load(c + r * p->c_stride + (size_t)j * V_LANES) : v_zero();
        }
    }
    for (uint32_t k = 0; k < p->depth; k++) {
        vec line[4];
        UNROLL for (uint32_t j = 0; j < columns; j++) {
            line[j] = v_load(b + k * p->b_stride + (size_t)j * V_LANES);
        }
        UNROLL for (uint32_t r = 0; r < rows; r++) {
            vec x = v_set(a[r * p->a_stride + k]);
            UNROLL for (uint32_t j = 0; j < columns; j++) {
                sum[r][j] = v_fma(x, line[j], sum[r][j]);
            }
        }
    }
    UNROLL for (uint32_t r = 0; r < rows; r++) {
        UNROLL for (uint32_t j = 0; j < columns; j++) {
            v_store(c + r * p->c_stride + (size_t)j * V_LANES, sum[r][j]);
        }
    }
}

/* Sizes of tiles are constants, so that the sums are registers. */
INLINE void tile_of_rows(const product *p, uint32_t row, uint32_t column, const uint32_t rows, uint32_t columns)
{
    switch (columns) {
#if V_LANES == 16
    case 1:
        tile(p, row, column, rows, 1);
        break;
    case 3:
        tile(p, row, column, rows, 3);
        break;
#endif
#if V_LANES >= 8
    case 2:
        tile(p, row, column, rows, 2);
        break;
#endif
    default:
        tile(p, row, column, rows, 4);
        break;
    }
}

static void multiply_columns(const product *p, uint32_t rows, uint32_t column, uint32_t columns)
{
    uint32_t r = 0;
    for (; rows - r >= 6; r += 6) {
        tile_of_rows(p, r, column, 6, columns);
    }
    for (; rows - r >= 3; r += 3) {
        tile_of_rows(p, r, column, 3, columns);
    }
    for (; r < rows; r++) {
        tile_of_rows(p, r, column, 1, columns);
    }
}

static void multiply(const product *p, uint32_t rows, uint32_t columns)
{
    uint32_t most = V_MOST_COLUMNS(rows);
    for (uint32_t j = 0; j < columns; j += most) {
        multiply_columns(p, rows, j, columns - j < most ? columns - j : most);
    }
}

/* Vectors that hold n numbers, in whole sixteens. */
static uint32_t vectors(uint32_t n)
{
    return (n + 15) / 16 * (16 / V_LANES);
}

static void logits(const void *q, uint32_t rows, uint32_t dim, const void *panel, uint32_t n, float *s,
                   size_t stride)
{
    product p = {q, panel, s, h2okv__pad(dim), H2OKV__PANEL, stride, dim, false};
    multiply(&p, rows, vectors(n));
}

static void values(const float *s, size_t stride, uint32_t rows, uint32_t n, const void *panel, uint32_t dim,
                   float *o)
{
    product p = {s, panel, o, stride, h2okv__pad(dim), h2okv__pad(dim), n, true};
    multiply(&p, rows, vectors(dim));
}

static void add_mass(const float *s, size_t stride, uint32_t rows, uint32_t n, const float *factor, float *mass)
{
    product p = {factor, s, mass, rows, stride, 0, rows, true};
    multiply(&p, 1, vectors(n));
}

/* ---- Softmax ---- */

static float max(const float *x, uint32_t n)
{
    vec most[4] = {v_set(-INFINITY), v_set(-INFINITY), v_set(-INFINITY), v_set(-INFINITY)};
    uint32_t i = 0;
    for (; n - i >= 4 * V_LANES; i += 4 * V_LANES) {
        UNROLL for (uint32_t j = 0; j < 4; j++) {
            most[j] = v_max(v_load(x + i + j * V_LANES), most[j]);
        }
    }
    for (; n - i >= V_LANES; i += V_LANES) {
        most[0] = v_max(v_load(x + i), most[0]);
    }
    float all = v_most(v_max(v_max(most[0], most[1]), v_max(most[2], most[3])));
    for (; i < n; i++) {
        all = x[i] > all ? x[i] : all;
    }
    return all;
}

/* e^x for x <= 88, within 2 ulp: x = n ln 2 + r, |r| <= ln 2 / 2, and e^r by a polynomial through Chebyshev points of
 * (e^r - 1 - r) / r^2, whose error is below 2^-26. Adding 1.5 * 2^23 rounds to a whole n and leaves n in the lowest
 * bits, from where it goes into the exponent. Below -87, where results would soon be subnormal, it is 0. */
INLINE vec exponential(vec x)
{
    vec y = v_max(v_set(-87.0f), x); /* NaN passes */
    vec whole = v_fma(y, v_set(1.44269504f), v_set(0x1.8p23f));
    vec n = v_add(whole, v_set(-0x1.8p23f));
    vec r = v_fma(n, v_set(-0x1.62e4p-1f), y); /* ln 2 in two parts; the first has zeros to spare */
    r = v_fma(n, v_set(-1.42860677e-6f), r);
    vec p = v_set(0.001392618359f);
    p = v_fma(p, r, v_set(0.008363179053f));
    p = v_fma(p, r, v_set(0.04166655462f));
    p = v_fma(p, r, v_set(0.1666657699f));
    p = v_fma(p, r, v_set(0.5f));
    p = v_fma(p, r, v_set(1.0f));
    p = v_fma(p, r, v_set(1.0f));
    return v_scale_or_zero(p, n, whole, x, -87.0f);
}

/* The last n < V_LANES of a row, through a vector of its own. */
INLINE vec tail_load(const float *x, uint32_t n, float fill)
{
    float some[V_LANES];
    for (uint32_t i = 0; i < V_LANES; i++) {
        some[i] = i < n ? x[i] : fill;
    }
    return v_load(some);
}

INLINE void tail_store(float *x, uint32_t n, vec v)
{
    float some[V_LANES];
    v_store(some, v);
    memcpy(x, some, n * sizeof *x);
}

static float exp_sum(float *x, uint32_t n, float minus)
{
    vec less = v_set(-minus), sum[2] = {v_zero(), v_zero()};
    uint32_t i = 0;
    for (; n - i >= 2 * V_LANES; i += 2 * V_LANES) {
        UNROLL for (uint32_t j = 0; j < 2; j++) {
            vec e = exponential(v_add(v_load(x + i + j * V_LANES), less));
            v_store(x + i + j * V_LANES, e);
            sum[j] = v_add(sum[j], e);
        }
    }
    for (; n - i >= V_LANES; i += V_LANES) {
        vec e = exponential(v_add(v_load(x + i), less));
        v_store(x + i, e);
        sum[0] = v_add(sum[0], e);
    }
    if (i < n) {
        vec e = exponential(v_add(tail_load(x + i, n - i, -INFINITY), less));
        tail_store(x + i, n - i, e);
        sum[1] = v_add(sum[1], e);
    }
    return v_sum(v_add(sum[0], sum[1]));
}

/* tanh y = 1 - 2 / (e^2y + 1); 10 is as good as infinity. */
INLINE vec hyperbolic_tangent(vec y)
{
    vec e = exponential(v_mul(v_min(v_set(10.0f), v_max(v_set(-10.0f), y)), v_set(2.0f)));
    return v_add(v_set(1.0f), v_div(v_set(-2.0f), v_add(e, v_set(1.0f))));
}

static void softcap(float *x, uint32_t n, float cap)
{
    vec inverse = v_set(1.0f / cap), most = v_set(cap);
    uint32_t i = 0;
    for (; n - i >= V_LANES; i += V_LANES) {
        v_store(x + i, v_mul(hyperbolic_tangent(v_mul(v_load(x + i), inverse)), most));
    }
    if (i < n) {
        vec y = v_mul(tail_load(x + i, n - i, 0.0f), inverse);
        tail_store(x + i, n - i, v_mul(hyperbolic_tangent(y), most));
    }
}

const h2okv__isa VECTOR_TABLE = {
    .name = VECTOR_NAME,
    .tile_rows = VECTOR_TILE_ROWS,
    .pack_k = pack_k,
    .pack_v = pack_v,
    .pack_q = pack_q,
    .logits = logits,
    .values = values,
    .add_mass = add_mass,
    .few_rows = 2 * V_FEW,
    .few_logits = few_logits,
    .few_values = few_values,
    .max = max,
    .exp_sum = exp_sum,
    .softcap = softcap,
};
