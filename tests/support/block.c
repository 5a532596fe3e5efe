/* block.c - see block.h. */
#include "support/block.h"

#include "support/check.h"
#include "support/small.h"
#include "support/snapshot.h"

#include <stdlib.h>
#include <string.h>

block block_save(const h2okv_cache *cache)
{
    block b = { .bytes = h2okv_cache_state_bytes(cache) };
    b.data = malloc(b.bytes);
    CHECK(b.data != NULL);
    CHECK_OK(h2okv_cache_save(cache, b.data, b.bytes, NULL));
    return b;
}

void block_put(unsigned char *at, uint64_t value, unsigned bytes)
{
    for (unsigned i = 0; i < bytes; i++) {
        at[i] = (unsigned char)(value >> (8 * i));
    }
}

void block_sign(block *b)
{
    block_put(b->data + b->bytes - 8, h2okv_checksum(H2OKV_CHECKSUM_START, b->data, b->bytes - 8), 8);
}

void block_refused(h2okv_cache *cache, uint32_t lanes, const void *data, size_t bytes, const char *field,
                   const char *text)
{
    h2okv_error error = { .status = 0 };
    snapshot before = snapshot_take(cache, lanes);
    CHECK_STATUS(h2okv_cache_restore(cache, data, bytes, NULL, &error), H2OKV_E_INVALID);
    check_context("says: %s: %s", error.field, error.text);
    CHECK(error.status == H2OKV_E_INVALID && strcmp(error.field, field) == 0 && strstr(error.text, text) != NULL);
    CHECK(snapshot_same(&before, cache, lanes));
    snapshot_free(&before);
}

h2okv_cache *block_cache(void)
{
    h2okv_options o = small_options(4, 1, 6);
    o.lanes = 2;
    o.grace = 2;
    h2okv_cache *c = small_create(&o);
    CHECK_OK(h2okv_cache_pin(c, 0, 1, NULL));
    CHECK_OK(h2okv_cache_pin(c, 3, 4, NULL));
    small_admit(c, 0, 6);
    small_give(c, 0, (float[]){ 0.5f, 3, 0.25f, 0, 0, 0 });
    small_give(c, 1, (float[]){ 0, 1, 2, 0, 0, 0 });
    small_evict(c);
    small_admit(c, 6, 2);
    small_idle(c, 2);
    small_evict(c);
    CHECK(h2okv_cache_live(c) == 4);
    return c;
}
