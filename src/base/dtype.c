/*
 * dtype.c - rows of K and V in f32, f16, bf16 and q8_0, in portable C: the same bits on every machine.
 */
#include "dtype.h"

#include <math.h>
#include <string.h>

#include "h2okv/h2okv.h"

static uint32_t bits_of(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static float float_of(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* bits / 2^shift, to nearest, ties to even; shift in 1..31. */
static uint32_t shift_even(uint32_t bits, uint32_t shift)
{
    uint32_t half = (1u << (shift - 1)) - 1;
    return (bits + half + ((bits >> shift) & 1u)) >> shift;
}

uint16_t h2okv__f16_of_f32(float value)
{
    uint32_t bits = bits_of(value);
    uint32_t sign = (bits >> 16) & 0x8000u;
    uint32_t size = bits & 0x7fffffffu;
    uint32_t half;

    if (size > 0x7f800000u) {
        half = 0x7e00u | ((size >> 13) & 0x3ffu); /* quiet, so that a payload cut to 0 is not infinity */
    } else if (size >= 0x47800000u) {
        half = 0x7c00u; /* 2^16 and more */
    } else if (size >= 0x38800000u) {
        half = shift_even(size - 0x38000000u, 13); /* bias 127 to 15; a carry out of 65504 gives infinity */
    } else if (size >= 0x33000000u) {
        uint32_t exponent = size >> 23; /* 2^-25 .. 2^-14: subnormal, in units of 2^-24 */
        half = shift_even((size & 0x7fffffu) | 0x800000u, 126 - exponent);
    } else {
        half = 0;
    }
    return (uint16_t)(sign | half);
}

float h2okv__f32_of_f16(uint16_t half)
{
    uint32_t sign = (half & 0x8000u) << 16;
    uint32_t size = half & 0x7fffu;

    if (size < 0x400u) { /* zero or subnormal: exact in f32 */
        float unsigned_value = (float)size * 0x1p-24f;
        return float_of(sign | bits_of(unsigned_value));
    }
    if (size >= 0x7c00u) {
        return float_of(sign | 0x7f800000u | (size & 0x3ffu) << 13);
    }
    return float_of(sign | ((size << 13) + 0x38000000u));
}

uint16_t h2okv__bf16_of_f32(float value)
{
    uint32_t bits = bits_of(value);
    if ((bits & 0x7fffffffu) > 0x7f800000u) {
        return (uint16_t)(bits >> 16 | 0x40u); /* quiet, so that a payload cut to 0 is not infinity */
    }
    return (uint16_t)shift_even(bits, 16);
}

float h2okv__f32_of_bf16(uint16_t half)
{
    return float_of((uint32_t)half << 16);
}

/* ---- q8_0 --------------------------------------------------------------------------------------------- */

static void put_half(unsigned char *at, uint16_t half)
{
    memcpy(at, &half, sizeof half);
}

static uint16_t get_half(const unsigned char *at)
{
    uint16_t half;
    memcpy(&half, at, sizeof half);
    return half;
}

/* The largest magnitude, or NaN when a value is NaN or infinite. */
static float largest(const float *in)
{
    float most = 0.0f;
    for (uint32_t i = 0; i < H2OKV__Q8_0_BLOCK; i++) {
        if (!isfinite(in[i])) {
            return NAN;
        }
        most = fmaxf(most, fabsf(in[i]));
    }
    return most;
}

static void encode_block(const float *in, unsigned char *block)
{
    float scale = largest(in) / 127.0f;
    float inverse = scale > 0.0f ? 1.0f / scale : 0.0f;
    if (!isfinite(inverse)) { /* a scale below 2^-128: f16 holds it as 0 */
        inverse = 0.0f;
    }
    put_half(block, h2okv__f16_of_f32(scale));
    for (uint32_t i = 0; i < H2OKV__Q8_0_BLOCK; i++) {
        /* A finite product is at most 127 but for rounding; NaN and infinity never reach the cast. */
        float level = inverse > 0.0f ? roundf(in[i] * inverse) : 0.0f;
        block[2 + i] = (unsigned char)(int8_t)level;
    }
}

static void decode_block(const unsigned char *block, float *out)
{
    float scale = h2okv__f32_of_f16(get_half(block));
    for (uint32_t i = 0; i < H2OKV__Q8_0_BLOCK; i++) {
        int8_t level;
        memcpy(&level, block + 2 + i, 1);
        out[i] = scale * (float)level;
    }
}

/* ---- Rows --------------------------------------------------------------------------------------------- */

size_t h2okv__row_bytes(uint32_t type, uint32_t n)
{
    switch (type) {
    case H2OKV_TYPE_F32:
        return (size_t)n * 4;
    case H2OKV_TYPE_F16:
    case H2OKV_TYPE_BF16:
        return (size_t)n * 2;
    case H2OKV_TYPE_Q8_0:
        return n % H2OKV__Q8_0_BLOCK == 0 ? (size_t)(n / H2OKV__Q8_0_BLOCK) * H2OKV__Q8_0_BYTES : 0;
    default:
        return 0;
    }
}

static void encode_halves(uint16_t (*convert)(float), const float *in, unsigned char *row, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        put_half(row + 2 * (size_t)i, convert(in[i]));
    }
}

static void decode_halves(float (*convert)(uint16_t), const unsigned char *row, float *out, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        out[i] = convert(get_half(row + 2 * (size_t)i));
    }
}

void h2okv__row_encode(uint32_t type, const float *in, void *row, uint32_t n)
{
    unsigned char *at = row;
    switch (type) {
    case H2OKV_TYPE_F16:
        encode_halves(h2okv__f16_of_f32, in, at, n);
        break;
    case H2OKV_TYPE_BF16:
        encode_halves(h2okv__bf16_of_f32, in, at, n);
        break;
    case H2OKV_TYPE_Q8_0:
        for (uint32_t i = 0; i < n; i += H2OKV__Q8_0_BLOCK, at += H2OKV__Q8_0_BYTES) {
            encode_block(in + i, at);
        }
        break;
    default:
        memcpy(row, in, (size_t)n * sizeof *in);
    }
}

void h2okv__row_decode(uint32_t type, const void *row, float *out, uint32_t n)
{
    const unsigned char *at = row;
    switch (type) {
    case H2OKV_TYPE_F16:
        decode_halves(h2okv__f32_of_f16, at, out, n);
        break;
    case H2OKV_TYPE_BF16:
        decode_halves(h2okv__f32_of_bf16, at, out, n);
        break;
    case H2OKV_TYPE_Q8_0:
        for (uint32_t i = 0; i < n; i += H2OKV__Q8_0_BLOCK, at += H2OKV__Q8_0_BYTES) {
            decode_block(at, out + i);
        }
        break;
    default:
        memcpy(out, row, (size_t)n * sizeof *out);
    }
}
