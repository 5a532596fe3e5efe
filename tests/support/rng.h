/*
 * rng.h - seeded random numbers for tests (splitmix64: Steele, Lea, Flood 2014). The same on every machine.
 */
#ifndef TEST_RNG_H
#define TEST_RNG_H

#include <stdint.h>

typedef struct rng {
    uint64_t state;
} rng;

static inline uint64_t rng_next(rng *r)
{
    uint64_t z = (r->state += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

/* 0 .. n-1 */
static inline uint32_t rng_below(rng *r, uint32_t n)
{
    return (uint32_t)(rng_next(r) % n);
}

static inline uint32_t rng_range(rng *r, uint32_t low, uint32_t high)
{
    return low + rng_below(r, high - low + 1);
}

/* [0, 1) with 24 bits, exact in a float */
static inline float rng_float(rng *r)
{
    return (float)(rng_next(r) >> 40) * 0x1p-24f;
}

#endif
