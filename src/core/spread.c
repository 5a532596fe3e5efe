/*
 * spread.c - scores handed to neighbours, so that what a text was read for stays whole when tokens come one by one.
 *
 *   score      0  1  0  9  0  0  2      by position, pool 1
 *   after      1  1  9  9  9  2  2
 */
#include "cache.h"

#include <string.h>

static double best_near(const h2okv_cache *c, const h2okv__lane *lane, uint32_t k, uint32_t pool)
{
    int64_t pos = lane->pos[lane->order[k]];
    double best = lane->score[lane->order[k]];
    for (uint32_t i = k; i > 0 && pos - lane->pos[lane->order[i - 1]] <= (int64_t)pool; i--) {
        best = lane->score[lane->order[i - 1]] > best ? lane->score[lane->order[i - 1]] : best;
    }
    for (uint32_t i = k + 1; i < c->live && lane->pos[lane->order[i]] - pos <= (int64_t)pool; i++) {
        best = lane->score[lane->order[i]] > best ? lane->score[lane->order[i]] : best;
    }
    return best;
}

int h2okv_cache_spread(h2okv_cache *c, uint32_t pool)
{
    if (c->n_fresh > 0) {
        return H2OKV_E_ORDER;
    }
    for (uint32_t l = 0; l < c->options.lanes && pool > 0; l++) {
        h2okv__lane lane = h2okv__lane_of(c, l);
        memset(c->rank, 0, c->options.cells * sizeof *c->rank);
        for (uint32_t k = 0; k < c->live; k++) {
            c->rank[lane.order[k]] = best_near(c, &lane, k, pool);
        }
        memcpy(lane.score, c->rank, c->options.cells * sizeof *c->rank);
    }
    c->epoch++;
    return H2OKV_OK;
}
