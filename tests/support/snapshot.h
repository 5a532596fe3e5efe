/*
 * snapshot.h - all that a cache shows to the outside, as one block of bytes: to prove that a refused call
 * changed nothing, or that two runs are the same.
 */
#ifndef TEST_SNAPSHOT_H
#define TEST_SNAPSHOT_H

#include "h2okv/h2okv.h"

typedef struct snapshot {
    unsigned char *data;
    size_t size;
} snapshot;

snapshot snapshot_take(const h2okv_cache *cache, uint32_t lanes);
void snapshot_free(snapshot *s);
int snapshot_equal(const snapshot *a, const snapshot *b);

/* True when the cache still shows what `before` holds. */
int snapshot_same(const snapshot *before, const h2okv_cache *cache, uint32_t lanes);

#endif
