/*
 * bytes.h - numbers as little-endian bytes in a block, wherever the machine keeps its own, and a checksum over them.
 *
 *   | 78 56 34 12 | ...     put32(0x12345678), then the cursor stands behind it
 *
 * A reader asks for no more than it has counted beforehand: nothing is checked here.
 */
#ifndef H2OKV_BASE_BYTES_H
#define H2OKV_BASE_BYTES_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

static inline unsigned char *h2okv__put(unsigned char *at, uint64_t value, unsigned bytes)
{
    for (unsigned i = 0; i < bytes; i++) {
        at[i] = (unsigned char)(value >> (8 * i));
    }
    return at + bytes;
}

static inline uint64_t h2okv__get(const unsigned char **at, unsigned bytes)
{
    uint64_t value = 0;
    for (unsigned i = 0; i < bytes; i++) {
        value |= (uint64_t)(*at)[i] << (8 * i);
    }
    *at += bytes;
    return value;
}

static inline unsigned char *h2okv__put32(unsigned char *at, uint32_t value)
{
    return h2okv__put(at, value, 4);
}

static inline uint32_t h2okv__get32(const unsigned char **at)
{
    return (uint32_t)h2okv__get(at, 4);
}

static inline unsigned char *h2okv__put_double(unsigned char *at, double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    return h2okv__put(at, bits, 8);
}

static inline double h2okv__get_double(const unsigned char **at)
{
    uint64_t bits = h2okv__get(at, 8);
    double value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

#endif
