/*
 * block.h - a cache's books as a block of bytes, whole, or forged: changed with a checksum that is right again.
 */
#ifndef TEST_BLOCK_H
#define TEST_BLOCK_H

#include "h2okv/advanced.h"

typedef struct block {
    unsigned char *data; /* exactly `bytes`, so that a sanitizer sees one too many */
    size_t bytes;
} block;

block block_save(const h2okv_cache *cache);
void block_sign(block *b);
void block_put(unsigned char *at, uint64_t value, unsigned bytes); /* little-endian */

/* The cache refuses it, naming field and text, and is as before. */
void block_refused(h2okv_cache *cache, uint32_t lanes, const void *data, size_t bytes, const char *field,
                   const char *text);

/* A small cache, and where things lie in its block: two lanes, budget 4, two pins, grace 2, after eight tokens in two
 * passes. Lane 0 holds 0 1 3 7, lane 1 0 2 3 7, in cells 4 5 0 1 by rising engine position. */
enum {
    AT_VERSION = 8, AT_LENGTH = 12, AT_POLICY = 68, AT_BUDGET = 132, AT_RECENT = 136, AT_LIVE = 140, AT_PEAK = 144,
    AT_N_PINS = 148, AT_ADMITTED = 152, AT_EVICTED = 160, AT_MOVES = 168, AT_PASSES = 176, AT_PIN = 184,
    AT_GRACE = AT_PIN + 2 * 8, AT_ENGINE = AT_GRACE + 2 * 4, AT_LANE = AT_ENGINE + 4 * 8,
    BLOCK_BYTES = AT_LANE + 2 * 4 * 16 + 8
};
h2okv_cache *block_cache(void);

#endif
