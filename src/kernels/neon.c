/* neon.c - the table for AArch64, where NEON with f16 conversions is part of the base: 4 lanes, 32 registers. See
 * vector.h. */
#include <arm_neon.h>
#include <math.h>
#include <string.h>

#include "kernels/isa.h"

typedef float32x4_t vec;
enum { LANES = 4 };
#define V_LANES 4
#define V_MOST_COLUMNS(rows) 4
#define V_FEW 4
#define VECTOR_TABLE h2okv__isa_neon
#define VECTOR_NAME "neon"
#define VECTOR_TILE_ROWS 48

#define v_zero() vdupq_n_f32(0.0f)
#define v_set(x) vdupq_n_f32(x)
#define v_load(p) vld1q_f32(p)
#define v_store(p, v) vst1q_f32(p, v)
#define v_add(a, b) vaddq_f32(a, b)
#define v_mul(a, b) vmulq_f32(a, b)
#define v_div(a, b) vdivq_f32(a, b)
#define v_fma(a, b, c) vfmaq_f32(c, a, b)
#define v_sum(a) vaddvq_f32(a)
#define v_most(a) vmaxvq_f32(a)

static inline vec v_max(vec a, vec b) /* b when either is NaN */
{
    return vbslq_f32(vcgtq_f32(a, b), a, b);
}

static inline vec v_min(vec a, vec b)
{
    return vbslq_f32(vcltq_f32(a, b), a, b);
}

static inline vec v_f16(const char *p)
{
    uint16_t half[4];
    memcpy(half, p, sizeof half);
    return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(half)));
}

static inline vec v_one_f16(const char *p)
{
    uint16_t half;
    memcpy(&half, p, sizeof half);
    return vcvt_f32_f16(vreinterpret_f16_u16(vdup_n_u16(half)));
}

static inline vec v_bf16(const char *p)
{
    uint16_t half[4];
    memcpy(half, p, sizeof half);
    return vreinterpretq_f32_u32(vshll_n_u16(vld1_u16(half), 16));
}

static inline vec v_int8(const char *p)
{
    int8_t level[8] = {0};
    memcpy(level, p, 4);
    return vcvtq_f32_s32(vmovl_s16(vget_low_s16(vmovl_s8(vld1_s8(level)))));
}

static inline vec v_scale_or_zero(vec a, vec n, vec whole, vec x, float low)
{
    (void)n;
    int32x4_t exponent = vshlq_n_s32(vreinterpretq_s32_f32(whole), 23);
    int32x4_t scaled = vaddq_s32(vreinterpretq_s32_f32(a), exponent);
    uint32x4_t kept = vandq_u32(vcgeq_f32(x, v_set(low)), vreinterpretq_u32_s32(scaled));
    return vbslq_f32(vceqq_f32(x, x), vreinterpretq_f32_u32(kept), x);
}

static inline __attribute__((always_inline)) void v_put_sums(float *p, vec a, vec b, vec c, vec d)
{
    vst1q_f32(p, vpaddq_f32(vpaddq_f32(a, b), vpaddq_f32(c, d)));
}

static inline __attribute__((always_inline)) void v_turn(vec v[LANES])
{
    float32x4x2_t low = vtrnq_f32(v[0], v[1]), high = vtrnq_f32(v[2], v[3]);
    v[0] = vcombine_f32(vget_low_f32(low.val[0]), vget_low_f32(high.val[0]));
    v[1] = vcombine_f32(vget_low_f32(low.val[1]), vget_low_f32(high.val[1]));
    v[2] = vcombine_f32(vget_high_f32(low.val[0]), vget_high_f32(high.val[0]));
    v[3] = vcombine_f32(vget_high_f32(low.val[1]), vget_high_f32(high.val[1]));
}

#include "kernels/vector.h"
