/* avx512.c - the table for AVX-512 F, BW, DQ and VL: 16 lanes, 32 registers. See vector.h. */
#include <immintrin.h>
#include <math.h>
#include <string.h>

#include "kernels/isa.h"

typedef __m512 vec;
enum { LANES = 16 };
#define V_LANES 16
#define V_MOST_COLUMNS(rows) 4
#define V_FEW 4
#define VECTOR_TABLE h2okv__isa_avx512
#define VECTOR_NAME "avx512"
#define VECTOR_TILE_ROWS 48

#define v_zero() _mm512_setzero_ps()
#define v_set(x) _mm512_set1_ps(x)
#define v_load(p) _mm512_loadu_ps(p)
#define v_store(p, v) _mm512_storeu_ps(p, v)
#define v_f16(p) _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i_u *)(const void *)(p)))
#define v_add(a, b) _mm512_add_ps(a, b)
#define v_mul(a, b) _mm512_mul_ps(a, b)
#define v_div(a, b) _mm512_div_ps(a, b)
#define v_fma(a, b, c) _mm512_fmadd_ps(a, b, c)
#define v_max(a, b) _mm512_max_ps(a, b)
#define v_min(a, b) _mm512_min_ps(a, b)
#define v_sum(a) _mm512_reduce_add_ps(a)
#define v_most(a) _mm512_reduce_max_ps(a)

static inline vec v_one_f16(const char *p)
{
    int16_t half;
    memcpy(&half, p, sizeof half);
    return _mm512_cvtph_ps(_mm256_set1_epi16(half));
}

static inline vec v_bf16(const char *p)
{
    __m512i wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i_u *)(const void *)p));
    return _mm512_castsi512_ps(_mm512_slli_epi32(wide, 16));
}

static inline vec v_int8(const char *p)
{
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i_u *)(const void *)p)));
}

#define v_scale_or_zero(a, n, whole, x, low) \
    _mm512_maskz_scalef_ps(_mm512_cmp_ps_mask(x, v_set(low), _CMP_NLT_UQ), a, n) /* not less: NaN too */

static inline __attribute__((always_inline)) void v_put_sums(float *p, vec a, vec b, vec c, vec d)
{
    vec ab = _mm512_add_ps(_mm512_unpacklo_ps(a, b), _mm512_unpackhi_ps(a, b));
    vec cd = _mm512_add_ps(_mm512_unpacklo_ps(c, d), _mm512_unpackhi_ps(c, d));
    vec sums = _mm512_add_ps(_mm512_shuffle_ps(ab, cd, 0x44), _mm512_shuffle_ps(ab, cd, 0xee)); /* a b c d, by 4 */
    __m256 half = _mm256_add_ps(_mm512_castps512_ps256(sums), _mm512_extractf32x8_ps(sums, 1));
    _mm_storeu_ps(p, _mm_add_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1)));
}

/* Pairs of rows at distance 1, 2, 4, 8 swap their off-diagonal blocks. */
static inline __attribute__((always_inline)) void v_turn(vec v[LANES])
{
    vec t[LANES];
#pragma GCC unroll 4
    for (int i = 0; i < LANES; i += 4) {
        vec a = _mm512_unpacklo_ps(v[i], v[i + 1]), b = _mm512_unpackhi_ps(v[i], v[i + 1]);
        vec c = _mm512_unpacklo_ps(v[i + 2], v[i + 3]), d = _mm512_unpackhi_ps(v[i + 2], v[i + 3]);
        t[i] = _mm512_shuffle_ps(a, c, 0x44);
        t[i + 1] = _mm512_shuffle_ps(a, c, 0xee);
        t[i + 2] = _mm512_shuffle_ps(b, d, 0x44);
        t[i + 3] = _mm512_shuffle_ps(b, d, 0xee);
    } /* t[4g + j]: lane block L holds column 4L + j of rows 4g..4g+3 */
#pragma GCC unroll 4
    for (int j = 0; j < 4; j++) {
        vec low0 = _mm512_shuffle_f32x4(t[j], t[4 + j], 0x88), high0 = _mm512_shuffle_f32x4(t[j], t[4 + j], 0xdd);
        vec low1 = _mm512_shuffle_f32x4(t[8 + j], t[12 + j], 0x88);
        vec high1 = _mm512_shuffle_f32x4(t[8 + j], t[12 + j], 0xdd);
        v[j] = _mm512_shuffle_f32x4(low0, low1, 0x88);
        v[8 + j] = _mm512_shuffle_f32x4(low0, low1, 0xdd);
        v[4 + j] = _mm512_shuffle_f32x4(high0, high1, 0x88);
        v[12 + j] = _mm512_shuffle_f32x4(high0, high1, 0xdd);
    }
}

#include "kernels/vector.h"
