/* convert.h - one number of K or V as a float, inline: base/dtype.h has the rows, for whoever is in no hurry. */
#ifndef H2OKV_KERNELS_CONVERT_H
#define H2OKV_KERNELS_CONVERT_H

#include "base/dtype.h"
#include "h2okv/h2okv.h"

#include <stdbool.h>
#include <string.h>

static inline float h2okv__float_of_bits(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static inline uint32_t h2okv__bits_of_float(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

/* Sign 1, exponent 5, fraction 10 at any address. */
static inline float h2okv__load_f16(const char *at)
{
    uint16_t half;
    memcpy(&half, at, sizeof half);
    uint32_t sign = (half & 0x8000u) << 16, size = half & 0x7fffu;
    if (size >= 0x7c00u) { /* infinity, NaN */
        return h2okv__float_of_bits(sign | 0x7f800000u | (size & 0x3ffu) << 13);
    }
    float value = h2okv__float_of_bits(size << 13) * 0x1p112f; /* exact, also for subnormals */
    return h2okv__float_of_bits(sign | h2okv__bits_of_float(value));
}

static inline float h2okv__load_number(uint32_t type, const char *row, uint32_t i)
{
    uint16_t half;
    float value;
    const char *block;
    switch (type) {
    case H2OKV_TYPE_F16:
        return h2okv__load_f16(row + 2 * (size_t)i);
    case H2OKV_TYPE_BF16:
        memcpy(&half, row + 2 * (size_t)i, sizeof half);
        return h2okv__float_of_bits((uint32_t)half << 16);
    case H2OKV_TYPE_Q8_0:
        block = row + (size_t)(i / H2OKV__Q8_0_BLOCK) * H2OKV__Q8_0_BYTES;
        return h2okv__load_f16(block) * (float)(signed char)block[2 + i % H2OKV__Q8_0_BLOCK];
    default:
        memcpy(&value, row + 4 * (size_t)i, sizeof value);
        return value;
    }
}

/* All exponent bits set: infinity or NaN. On bits, because compilers may fold tests of values. */
static inline bool h2okv__finite(float value)
{
    return (h2okv__bits_of_float(value) & 0x7f800000u) != 0x7f800000u;
}

#endif
