/* avx2.c - the table for AVX2, FMA and F16C: 8 lanes, 16 registers. See vector.h. */
#include <immintrin.h>
#include <math.h>
#include <string.h>

#include "kernels/isa.h"

typedef __m256 vec;
enum { LANES = 8 };
#define V_LANES 8
#define V_MOST_COLUMNS(rows) ((rows) <= 3 ? 4 : 2)
#define V_FEW 3
#define VECTOR_TABLE h2okv__isa_avx2
#define VECTOR_NAME "avx2"
#define VECTOR_TILE_ROWS 48

#define v_zero() _mm256_setzero_ps()
#define v_set(x) _mm256_set1_ps(x)
#define v_load(p) _mm256_loadu_ps(p)
#define v_store(p, v) _mm256_storeu_ps(p, v)
#define v_f16(p) _mm256_cvtph_ps(_mm_loadu_si128((const __m128i_u *)(const void *)(p)))
#define v_add(a, b) _mm256_add_ps(a, b)
#define v_mul(a, b) _mm256_mul_ps(a, b)
#define v_div(a, b) _mm256_div_ps(a, b)
#define v_fma(a, b, c) _mm256_fmadd_ps(a, b, c)
#define v_max(a, b) _mm256_max_ps(a, b)
#define v_min(a, b) _mm256_min_ps(a, b)

static inline vec v_one_f16(const char *p)
{
    int16_t half;
    memcpy(&half, p, sizeof half);
    return _mm256_cvtph_ps(_mm_set1_epi16(half));
}

static inline vec v_bf16(const char *p)
{
    __m256i wide = _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i_u *)(const void *)p));
    return _mm256_castsi256_ps(_mm256_slli_epi32(wide, 16));
}

static inline vec v_int8(const char *p)
{
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i_u *)(const void *)p)));
}

static inline vec v_scale_or_zero(vec a, vec n, vec whole, vec x, float low)
{
    (void)n;
    __m256i exponent = _mm256_slli_epi32(_mm256_castps_si256(whole), 23);
    vec scaled = _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(a), exponent));
    vec kept = _mm256_and_ps(_mm256_cmp_ps(x, v_set(low), _CMP_GE_OQ), scaled);
    return _mm256_blendv_ps(kept, x, _mm256_cmp_ps(x, x, _CMP_UNORD_Q));
}

static inline float v_sum(vec a)
{
    __m128 b = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    b = _mm_add_ps(b, _mm_movehl_ps(b, b));
    return _mm_cvtss_f32(_mm_add_ss(b, _mm_shuffle_ps(b, b, 1)));
}

static inline float v_most(vec a)
{
    __m128 b = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    b = _mm_max_ps(b, _mm_movehl_ps(b, b));
    return _mm_cvtss_f32(_mm_max_ss(b, _mm_shuffle_ps(b, b, 1)));
}

static inline __attribute__((always_inline)) void v_put_sums(float *p, vec a, vec b, vec c, vec d)
{
    vec sums = _mm256_hadd_ps(_mm256_hadd_ps(a, b), _mm256_hadd_ps(c, d)); /* a b c d of each half */
    _mm_storeu_ps(p, _mm_add_ps(_mm256_castps256_ps128(sums), _mm256_extractf128_ps(sums, 1)));
}

static inline __attribute__((always_inline)) void v_turn(vec v[LANES])
{
    vec t[LANES];
#pragma GCC unroll 2
    for (int i = 0; i < LANES; i += 4) {
        vec a = _mm256_unpacklo_ps(v[i], v[i + 1]), b = _mm256_unpackhi_ps(v[i], v[i + 1]);
        vec c = _mm256_unpacklo_ps(v[i + 2], v[i + 3]), d = _mm256_unpackhi_ps(v[i + 2], v[i + 3]);
        t[i] = _mm256_shuffle_ps(a, c, 0x44);
        t[i + 1] = _mm256_shuffle_ps(a, c, 0xee);
        t[i + 2] = _mm256_shuffle_ps(b, d, 0x44);
        t[i + 3] = _mm256_shuffle_ps(b, d, 0xee);
    } /* t[4g + j]: half L holds column 4L + j of rows 4g..4g+3 */
#pragma GCC unroll 4
    for (int j = 0; j < 4; j++) {
        v[j] = _mm256_permute2f128_ps(t[j], t[4 + j], 0x20);
        v[4 + j] = _mm256_permute2f128_ps(t[j], t[4 + j], 0x31);
    }
}

#include "kernels/vector.h"
