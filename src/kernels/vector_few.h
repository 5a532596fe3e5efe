/*
 * vector_few.h - part of vector.h: products of a few query rows with K and V rows as they lie in the cache. Each row is
 * loaded and converted once for up to V_FEW query rows.
 *
 *   logits: 4 cells x V_FEW query rows of sums, each a vector over the dimensions, added up at the end
 *   values: V_FEW query rows x 4 vectors of dimensions, summed over all cells in registers
 */

INLINE void dots(uint32_t type, const float *q, size_t q_stride, const uint32_t rows, const h2okv__rows *k,
                 const uint32_t *cell, uint32_t n, float *s, size_t stride)
{
    for (uint32_t c = 0; c < n; c += 4) {
        const char *row[4];
        vec sum[V_FEW][4];
        UNROLL for (uint32_t i = 0; i < 4; i++) {
            row[i] = k->base + cell[c + i < n ? c + i : n - 1] * k->stride;
            fetch_next(k, c + i);
            UNROLL for (uint32_t r = 0; r < rows; r++) {
                sum[r][i] = v_zero();
            }
        }
        uint32_t d = 0;
        for (; k->dim - d >= V_LANES; d += V_LANES) {
            UNROLL for (uint32_t i = 0; i < 4; i++) {
                vec numbers = load_vector(type, row[i], d);
                UNROLL for (uint32_t r = 0; r < rows; r++) {
                    sum[r][i] = v_fma(v_load(q + r * q_stride + d), numbers, sum[r][i]);
                }
            }
        }
        if (d < k->dim) {
            UNROLL for (uint32_t i = 0; i < 4; i++) {
                vec numbers = load_some(type, row[i], d, k->dim - d);
                UNROLL for (uint32_t r = 0; r < rows; r++) {
                    sum[r][i] = v_fma(v_load(q + r * q_stride + d), numbers, sum[r][i]);
                }
            }
        }
        UNROLL for (uint32_t r = 0; r < rows; r++) { /* a whole four: columns past n may be written */
            v_put_sums(s + r * stride + c, sum[r][0], sum[r][1], sum[r][2], sum[r][3]);
        }
    }
}

INLINE void weighed(uint32_t type, const float *s, size_t stride, const uint32_t rows, const h2okv__rows *v,
                    const uint32_t *cell, uint32_t n, uint32_t d, const uint32_t vectors_of_dim,
                    float *o, size_t o_stride)
{
    vec sum[V_FEW][4];
    UNROLL for (uint32_t r = 0; r < rows; r++) {
        UNROLL for (uint32_t j = 0; j < vectors_of_dim; j++) {
            sum[r][j] = v_load(o + r * o_stride + d + j * V_LANES);
        }
    }
    for (uint32_t c = 0; c < n; c++) {
        const char *row = v->base + cell[c] * v->stride;
        if (d == 0) {
            fetch_next(v, c);
        }
        UNROLL for (uint32_t j = 0; j < vectors_of_dim; j++) {
            vec numbers = vectors_of_dim > 1 ? load_vector(type, row, d + j * V_LANES)
                                             : load_part(type, row, d, v->dim);
            UNROLL for (uint32_t r = 0; r < rows; r++) {
                sum[r][j] = v_fma(v_set(s[r * stride + c]), numbers, sum[r][j]);
            }
        }
    }
    UNROLL for (uint32_t r = 0; r < rows; r++) {
        UNROLL for (uint32_t j = 0; j < vectors_of_dim; j++) {
            v_store(o + r * o_stride + d + j * V_LANES, sum[r][j]);
        }
    }
}

INLINE void weighed_all(uint32_t type, const float *s, size_t stride, const uint32_t rows, const h2okv__rows *v,
                        const uint32_t *cell, uint32_t n, float *o, size_t o_stride)
{
    uint32_t d = 0;
    for (; v->dim - d >= 4 * V_LANES; d += 4 * V_LANES) {
        weighed(type, s, stride, rows, v, cell, n, d, 4, o, o_stride);
    }
    for (; d < v->dim; d += V_LANES) {
        weighed(type, s, stride, rows, v, cell, n, d, 1, o, o_stride);
    }
}

/* The number of rows and the type as constants. */
#define FEW_BY_TYPE(function, type, ...)                     \
    switch (type) {                                          \
    case H2OKV_TYPE_F16:                                     \
        function(H2OKV_TYPE_F16, __VA_ARGS__);               \
        break;                                               \
    case H2OKV_TYPE_BF16:                                    \
        function(H2OKV_TYPE_BF16, __VA_ARGS__);              \
        break;                                               \
    case H2OKV_TYPE_Q8_0:                                    \
        function(H2OKV_TYPE_Q8_0, __VA_ARGS__);              \
        break;                                               \
    default:                                                 \
        function(H2OKV_TYPE_F32, __VA_ARGS__);               \
        break;                                               \
    }

#define FEW_OF_ROWS(rows)                                                                                            \
    static void few_logits_##rows(const float *q, const h2okv__rows *k, const uint32_t *cell, uint32_t n, float *s,  \
                                  size_t stride)                                                                     \
    {                                                                                                                \
        FEW_BY_TYPE(dots, k->type, q, h2okv__pad(k->dim), rows, k, cell, n, s, stride)                               \
    }                                                                                                                \
    static void few_values_##rows(const float *s, size_t stride, const h2okv__rows *v, const uint32_t *cell,         \
                                  uint32_t n, float *o)                                                              \
    {                                                                                                                \
        FEW_BY_TYPE(weighed_all, v->type, s, stride, rows, v, cell, n, o, h2okv__pad(v->dim))                        \
    }

FEW_OF_ROWS(1)
FEW_OF_ROWS(2)
FEW_OF_ROWS(3)
#if V_FEW >= 4
FEW_OF_ROWS(4)
#endif

static void few_logits(const void *q, uint32_t rows, const h2okv__rows *k, const uint32_t *cell, uint32_t n, float *s,
                       size_t stride)
{
    static void (*const by_rows[])(const float *, const h2okv__rows *, const uint32_t *, uint32_t, float *, size_t) = {
        few_logits_1, few_logits_2, few_logits_3,
#if V_FEW >= 4
        few_logits_4,
#endif
    };
    for (uint32_t r = 0; r < rows; r += V_FEW) {
        uint32_t some = rows - r < V_FEW ? rows - r : V_FEW;
        by_rows[some - 1]((const float *)q + r * h2okv__pad(k->dim), k, cell, n, s + r * stride, stride);
    }
}

static void few_values(const float *s, size_t stride, uint32_t rows, const h2okv__rows *v, const uint32_t *cell,
                       uint32_t n, float *o)
{
    static void (*const by_rows[])(const float *, size_t, const h2okv__rows *, const uint32_t *, uint32_t, float *) = {
        few_values_1, few_values_2, few_values_3,
#if V_FEW >= 4
        few_values_4,
#endif
    };
    for (uint32_t r = 0; r < rows; r += V_FEW) {
        uint32_t some = rows - r < V_FEW ? rows - r : V_FEW;
        by_rows[some - 1](s + r * stride, stride, v, cell, n, o + r * h2okv__pad(v->dim));
    }
}
