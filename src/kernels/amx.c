/*
 * amx.c - the table for prompt tiles on processors with AMX-BF16: 16 x 16 sums by 32 products in one instruction.
 *
 * bf16 alone would round q, K, the weights and V to 8 bits. Every number is split into two of them instead,
 *
 *   x = high + low,  high = x rounded to bf16,  low = (x - high) rounded to bf16        (f16 is split exactly)
 *   x y ~ high high + high low + low high                                (the rest is at most 2^-16 of it)
 *
 * so the products are nearly f32's and still several times as fast as f32's own. Layout, in tiles of 1 KB:
 *
 *   q row:       for each 32 dimensions   | 32 high | 32 low |
 *   B of a sum over k (K: k is a dimension, columns are cells; V: k is a cell, columns are dimensions), for each 16
 *   columns and 32 k:   | 16 pairs of k x 16 columns x 2 high |  the same, low |
 *
 * Rows that do not come to 32, and inner loops over few cells, are avx512.c's, as is all that is not a product.
 */
#include <immintrin.h>
#include <string.h>

#include "kernels/tables.h"

enum { K_OF_TILE = 32, TILE_BYTES = 1024, PAIR_BYTES = 2 * TILE_BYTES /* high, low */ };

typedef struct tile_config {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
} tile_config;

/* Compilers do not know that tile loads read memory: what was stored before this is there. */
static inline void settle(const void *memory)
{
    __asm__ volatile("" : : "r"(memory) : "memory");
}

/* The configuration belongs to the thread, and an engine may have left its own: it is put back at the end. */
static void begin(void *saved)
{
    tile_config config = {.palette = 1};
    for (int i = 0; i < 8; i++) {
        config.row_bytes[i] = 64;
        config.rows[i] = 16;
    }
    _tile_storeconfig(saved);
    settle(saved);
    settle(&config);
    _tile_loadconfig(&config);
}

static void end(const void *saved)
{
    settle(saved);
    if (((const tile_config *)saved)->palette != 0) {
        _tile_loadconfig(saved);
    } else {
        _tile_release();
    }
}

/* ---- Splitting ---- */

/* To bf16, halves away from zero; as a float. */
static inline __m512 high_of(__m512 x)
{
    __m512i bits = _mm512_add_epi32(_mm512_castps_si512(x), _mm512_set1_epi32(0x8000));
    return _mm512_castsi512_ps(_mm512_and_si512(bits, _mm512_set1_epi32((int)0xffff0000)));
}

/* (a, b) -> pairs of bf16 in one vector, a in the lower half of each lane. Both hold no more than bf16 can. */
static inline __m512i pairs_of(__m512 a, __m512 b)
{
    return _mm512_or_si512(_mm512_srli_epi32(_mm512_castps_si512(a), 16), _mm512_castps_si512(b));
}

static inline void split_pair(__m512 a, __m512 b, char *out)
{
    __m512 a_high = high_of(a), b_high = high_of(b);
    _mm512_storeu_si512(out, pairs_of(a_high, b_high));
    __m512 a_low = high_of(_mm512_sub_ps(a, a_high)), b_low = high_of(_mm512_sub_ps(b, b_high));
    _mm512_storeu_si512(out + TILE_BYTES, pairs_of(a_low, b_low));
}

/* 32 neighbours of a row -> 32 high at `high`, 32 low at `low`. */
static inline void split_row(const float *x, char *high, char *low)
{
    __m512 a = _mm512_loadu_ps(x), b = _mm512_loadu_ps(x + 16);
    __m512 a_high = high_of(a), b_high = high_of(b);
    _mm512_storeu_si512(high, (__m512i)_mm512_cvtne2ps_pbh(b_high, a_high));
    _mm512_storeu_si512(low, (__m512i)_mm512_cvtne2ps_pbh(_mm512_sub_ps(b, b_high), _mm512_sub_ps(a, a_high)));
}

/* b [depth][columns] f32 -> tiles [columns / 16][depth / 32]. */
static void split_b(const float *b, size_t stride, size_t depth, size_t columns, char *out)
{
    for (size_t column = 0; column < columns; column += 16) {
        for (size_t k = 0; k < depth; k += 2) {
            const float *from = b + k * stride + column;
            char *tile = out + (column / 16 * (depth / K_OF_TILE) + k / K_OF_TILE) * PAIR_BYTES;
            split_pair(_mm512_loadu_ps(from), _mm512_loadu_ps(from + stride), tile + k % K_OF_TILE / 2 * 64);
        }
    }
}

/* ---- Packing ---- */

/* Through the f32 panel of avx512.c: 64 KB of stack at most. */
static bool pack_k(const h2okv__rows *rows, const uint32_t *cell, uint32_t n, void *panel)
{
    _Alignas(64) float f32[H2OKV__MAX_DIM * H2OKV__PANEL];
    size_t pad = h2okv__pad(rows->dim);
    memset(f32 + rows->dim * H2OKV__PANEL, 0, (pad - rows->dim) * H2OKV__PANEL * sizeof *f32);
    bool finite = h2okv__isa_avx512.pack_k(rows, cell, n, f32);
    for (uint32_t c = (n + 15) / 16 * 16; c < H2OKV__PANEL; c++) {
        for (uint32_t d = 0; d < rows->dim; d++) {
            f32[d * H2OKV__PANEL + c] = 0.0f;
        }
    }
    split_b(f32, H2OKV__PANEL, pad, H2OKV__PANEL, panel);
    return finite;
}

static bool pack_v(const h2okv__rows *rows, const uint32_t *cell, uint32_t n, void *panel)
{
    _Alignas(64) float f32[H2OKV__MAX_DIM * H2OKV__PANEL];
    size_t pad = h2okv__pad(rows->dim), columns = ((size_t)rows->dim + 15) / 16 * 16;
    bool finite = h2okv__isa_avx512.pack_v(rows, cell, n, f32);
    memset(f32 + n * pad, 0, (H2OKV__PANEL - n) * pad * sizeof *f32);
    split_b(f32, pad, H2OKV__PANEL, columns, panel);
    return finite;
}

static bool pack_q(const float *row, uint32_t dim, float scale, uint32_t index, void *q)
{
    _Alignas(64) float f32[H2OKV__MAX_DIM];
    size_t pad = h2okv__pad(dim);
    char *out = (char *)q + index * pad * sizeof(float);
    bool finite = h2okv__isa_avx512.pack_q(row, dim, scale, 0, f32);
    for (size_t d = 0; d < pad; d += K_OF_TILE) {
        split_row(f32 + d, out + d * sizeof(float), out + d * sizeof(float) + 64);
    }
    return finite;
}

/* ---- Products ---- */

/* C += A B over `depth` / 32 tiles: A [16 or 32 rows] as q rows are laid out, B two columns of tiles `b_columns` bytes
 * apart. Tiles 0..3 are C, 4 and 5 hold A, 6 and 7 B. */
#define ADD_PRODUCTS_32()        \
    do {                         \
        _tile_dpbf16ps(0, 4, 6); \
        _tile_dpbf16ps(1, 4, 7); \
        _tile_dpbf16ps(2, 5, 6); \
        _tile_dpbf16ps(3, 5, 7); \
    } while (0)

static inline void multiply_32(const char *a, size_t a_stride, const char *b, size_t b_columns, size_t depth)
{
    for (size_t k = 0; k < depth; k += K_OF_TILE, a += 128, b += PAIR_BYTES) {
        _tile_loadd(4, a, a_stride);
        _tile_loadd(6, b, 64);
        _tile_loadd(7, b + b_columns, 64);
        _tile_loadd(5, a + 16 * a_stride, a_stride);
        ADD_PRODUCTS_32();
        _tile_loadd(4, a + 64, a_stride);
        _tile_loadd(5, a + 16 * a_stride + 64, a_stride);
        ADD_PRODUCTS_32();
        _tile_loadd(6, b + TILE_BYTES, 64);
        _tile_loadd(7, b + b_columns + TILE_BYTES, 64);
        _tile_loadd(4, a, a_stride);
        _tile_loadd(5, a + 16 * a_stride, a_stride);
        ADD_PRODUCTS_32();
    }
}

static inline void multiply_16(const char *a, size_t a_stride, const char *b, size_t b_columns, size_t depth)
{
    for (size_t k = 0; k < depth; k += K_OF_TILE, a += 128, b += PAIR_BYTES) {
        _tile_loadd(4, a, a_stride);
        _tile_loadd(5, a + 64, a_stride);
        _tile_loadd(6, b, 64);
        _tile_loadd(7, b + b_columns, 64);
        _tile_dpbf16ps(0, 4, 6);
        _tile_dpbf16ps(1, 4, 7);
        _tile_dpbf16ps(0, 5, 6);
        _tile_dpbf16ps(1, 5, 7);
        _tile_loadd(6, b + TILE_BYTES, 64);
        _tile_loadd(7, b + b_columns + TILE_BYTES, 64);
        _tile_dpbf16ps(0, 4, 6);
        _tile_dpbf16ps(1, 4, 7);
    }
}

static void logits(const void *q, uint32_t rows, uint32_t dim, const void *panel, uint32_t n, float *s, size_t stride)
{
    size_t pad = h2okv__pad(dim), column = pad / K_OF_TILE * PAIR_BYTES, bytes = stride * sizeof *s;
    settle(q);
    for (uint32_t c = 0; c < n; c += 32) {
        const char *b = (const char *)panel + c / 16 * column;
        _tile_zero(0);
        _tile_zero(1);
        if (rows > 16) {
            _tile_zero(2);
            _tile_zero(3);
            multiply_32(q, pad * sizeof(float), b, column, pad);
            _tile_stored(2, s + 16 * stride + c, bytes);
            _tile_stored(3, s + 16 * stride + c + 16, bytes);
        } else {
            multiply_16(q, pad * sizeof(float), b, column, pad);
        }
        _tile_stored(0, s + c, bytes);
        _tile_stored(1, s + c + 16, bytes);
    }
}

enum { S_ROW_BYTES = H2OKV__PANEL * 4 };

static void values(const float *s, size_t stride, uint32_t rows, uint32_t n, const void *panel, uint32_t dim, float *o)
{
    _Alignas(64) char a[32 * S_ROW_BYTES];
    size_t pad = h2okv__pad(dim), column = H2OKV__PANEL / K_OF_TILE * PAIR_BYTES, bytes = pad * sizeof *o;
    size_t depth = n <= K_OF_TILE ? K_OF_TILE : H2OKV__PANEL;
    for (uint32_t r = 0; r < rows; r++) {
        for (size_t c = 0; c < depth; c += K_OF_TILE) {
            split_row(s + r * stride + c, a + r * S_ROW_BYTES + c * 4, a + r * S_ROW_BYTES + c * 4 + 64);
        }
    }
    settle(a);
    for (uint32_t d = 0; d < dim; d += 32) {
        const char *b = (const char *)panel + d / 16 * column;
        _tile_loadd(0, o + d, bytes);
        _tile_loadd(1, o + d + 16, bytes);
        if (rows > 16) {
            _tile_loadd(2, o + 16 * pad + d, bytes);
            _tile_loadd(3, o + 16 * pad + d + 16, bytes);
            multiply_32(a, S_ROW_BYTES, b, column, depth);
            _tile_stored(2, o + 16 * pad + d, bytes);
            _tile_stored(3, o + 16 * pad + d + 16, bytes);
        } else {
            multiply_16(a, S_ROW_BYTES, b, column, depth);
        }
        _tile_stored(0, o + d, bytes);
        _tile_stored(1, o + d + 16, bytes);
    }
}

/* ---- What avx512.c does as well ---- */

static void add_mass(const float *s, size_t stride, uint32_t rows, uint32_t n, const float *factor, float *mass)
{
    h2okv__isa_avx512.add_mass(s, stride, rows, n, factor, mass);
}

static float max(const float *x, uint32_t n)
{
    return h2okv__isa_avx512.max(x, n);
}

static float exp_sum(float *x, uint32_t n, float minus)
{
    return h2okv__isa_avx512.exp_sum(x, n, minus);
}

static void softcap(float *x, uint32_t n, float cap)
{
    h2okv__isa_avx512.softcap(x, n, cap);
}

const h2okv__isa h2okv__isa_amx = {
    .name = "amx",
    .tile_rows = 32,
    .few = &h2okv__isa_avx512,
    .begin = begin,
    .end = end,
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
