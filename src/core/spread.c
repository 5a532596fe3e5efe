/*
 * spread.c - what a probe gave a token goes to its neighbours as well, so that a fact stays whole.
 *
 *   given      0  1  4  9  0  0  1      by position, spread 1
 *   score      1  3  6  5  3  1  1      sums of square roots
 *
 * A fact is a stretch of tokens of which many are looked at a little; a comma or a line end is one token that is looked
 * at a lot. Roots tell the two apart, where the best of the neighbours or the plain sum would keep what surrounds the
 * comma (docs/quality.md has the figures). The sums' order is fixed.
 */
#include "cache.h"

#include <math.h>

/* Sinks stay in any case, and what they are given, often the most of all, says nothing of their neighbours. */
static double root_of(const h2okv_cache *c, int32_t pos, double score)
{
    return score > 0.0 && pos >= 0 && (uint32_t)pos >= c->options.sinks ? sqrt(score) : 0.0;
}

void h2okv__spread(const h2okv_cache *c, uint32_t index)
{
    h2okv__lane lane = h2okv__lane_of(c, index);
    uint32_t n = c->live - c->n_probe, first = 0, end = 0;
    double *root = c->rank; /* by order here; no observe reads it */
    for (uint32_t k = 0; k < n; k++) {
        root[k] = root_of(c, lane.pos[lane.order[k]], lane.score[lane.order[k]]);
    }
    for (uint32_t k = 0; k < n; k++) {
        int64_t pos = lane.pos[lane.order[k]];
        double sum = 0.0;
        while (pos - lane.pos[lane.order[first]] > (int64_t)c->spread) {
            first++;
        }
        while (end < n && lane.pos[lane.order[end]] - pos <= (int64_t)c->spread) {
            end++;
        }
        for (uint32_t i = first; i < end; i++) {
            sum += root[i];
        }
        lane.score[lane.order[k]] = sum;
    }
}
