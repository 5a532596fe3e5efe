/*
 * snapshot.c - see snapshot.h. Content: stats, live, then per lane: kept arrays, pos and score by cell, order.
 */
#include "support/snapshot.h"

#include "h2okv/advanced.h"

#include <stdlib.h>
#include <string.h>

static void put(snapshot *s, const void *data, size_t size)
{
    unsigned char *grown = realloc(s->data, s->size + size + 1);
    if (!grown) {
        abort();
    }
    s->data = grown;
    if (size) memcpy(s->data + s->size, data, size);
    s->size += size;
}

/* Member by member: padding bytes of a struct say nothing. */
static void put_stats(snapshot *s, const h2okv_cache *cache)
{
    h2okv_cache_stats st;
    uint32_t live = h2okv_cache_live(cache);
    h2okv_cache_get_stats(cache, &st);
    put(s, &live, sizeof live);
    put(s, &st.live, sizeof st.live);
    put(s, &st.peak_live, sizeof st.peak_live);
    put(s, &st.newest, sizeof st.newest);
    put(s, &st.admitted, sizeof st.admitted);
    put(s, &st.evicted, sizeof st.evicted);
    put(s, &st.moves, sizeof st.moves);
    put(s, &st.passes, sizeof st.passes);
}

static void put_lane(snapshot *s, const h2okv_cache *cache, uint32_t lane)
{
    h2okv_lane_view view;
    int32_t *pos;
    double *score;
    uint32_t *cell, n;
    if (h2okv_cache_lane(cache, lane, &view) != H2OKV_OK) {
        abort();
    }
    pos = calloc(view.live + 1u, sizeof *pos);
    score = calloc(view.live + 1u, sizeof *score);
    cell = calloc(view.live + 1u, sizeof *cell);
    if (!pos || !score || !cell) {
        abort();
    }
    n = h2okv_cache_kept(cache, lane, pos, score, cell);
    put(s, pos, n * sizeof *pos);
    put(s, score, n * sizeof *score);
    put(s, cell, n * sizeof *cell);
    put(s, view.pos, view.cells * sizeof *view.pos);
    put(s, view.score, view.cells * sizeof *view.score);
    put(s, view.order, view.live * sizeof *view.order);
    free(pos);
    free(score);
    free(cell);
}

snapshot snapshot_take(const h2okv_cache *cache, uint32_t lanes)
{
    snapshot s = { NULL, 0 };
    put_stats(&s, cache);
    for (uint32_t l = 0; l < lanes; l++) put_lane(&s, cache, l);
    return s;
}

void snapshot_free(snapshot *s)
{
    free(s->data);
    *s = (snapshot){ NULL, 0 };
}

int snapshot_equal(const snapshot *a, const snapshot *b)
{
    return a->size == b->size && memcmp(a->data, b->data, a->size) == 0;
}

int snapshot_same(const snapshot *before, const h2okv_cache *cache, uint32_t lanes)
{
    snapshot now = snapshot_take(cache, lanes);
    int same = snapshot_equal(before, &now);
    snapshot_free(&now);
    return same;
}
