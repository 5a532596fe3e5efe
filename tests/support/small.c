/* small.c - see small.h. */
#include "support/small.h"

#include "support/check.h"

#include <math.h>
#include <string.h>

h2okv_options small_options(uint32_t budget, uint32_t recent, uint32_t most_tokens_a_pass)
{
    h2okv_options o;
    h2okv_options_init(&o);
    o.cells = budget + most_tokens_a_pass;
    o.budget = budget;
    o.recent = recent;
    return o;
}

h2okv_cache *small_create(const h2okv_options *options)
{
    h2okv_cache *cache;
    CHECK(options->cells <= SMALL_CELLS);
    CHECK_OK(h2okv_cache_create(&cache, options, NULL));
    return cache;
}

void small_admit(h2okv_cache *cache, int32_t pos0, uint32_t n)
{
    uint32_t cell[SMALL_CELLS], found = 0;
    int32_t pos[SMALL_CELLS];
    h2okv_lane_view view;
    CHECK_OK(h2okv_cache_lane(cache, 0, &view));
    for (uint32_t c = 0; c < view.cells && found < n; c++) {
        if (view.pos[c] == -1) {
            pos[found] = pos0 + (int32_t)found;
            cell[found++] = c;
        }
    }
    CHECK(found == n);
    CHECK_OK(h2okv_cache_admit(cache, cell, pos, n));
}

void small_give(h2okv_cache *cache, uint32_t lane, const float *mass)
{
    float by_cell[SMALL_CELLS] = { 0 };
    h2okv_lane_view view;
    CHECK_OK(h2okv_cache_lane(cache, lane, &view));
    for (uint32_t i = 0; i < view.live; i++) {
        by_cell[view.order[i]] = mass[i];
    }
    CHECK_OK(h2okv_cache_observe_mass(cache, lane, by_cell));
}

void small_idle(h2okv_cache *cache, uint32_t lanes)
{
    for (uint32_t l = 0; l < lanes; l++) {
        CHECK_OK(h2okv_cache_observe_mass(cache, l, NULL));
    }
}

uint32_t small_evict(h2okv_cache *cache)
{
    const h2okv_plan *plan;
    CHECK_OK(h2okv_cache_plan(cache, &plan));
    uint32_t n = plan->n_freed;
    CHECK_OK(h2okv_cache_commit(cache, plan));
    return n;
}

uint32_t small_trim(h2okv_cache *cache, int32_t pos0)
{
    const h2okv_plan *plan;
    CHECK_OK(h2okv_cache_trim(cache, pos0, &plan));
    uint32_t n = plan->n_lost;
    CHECK_OK(h2okv_cache_commit(cache, plan));
    return n;
}

int small_holds(const h2okv_cache *cache, uint32_t lane, const int32_t *pos, uint32_t n)
{
    int32_t held[SMALL_CELLS];
    return h2okv_cache_kept(cache, lane, held, NULL, NULL) == n && memcmp(held, pos, n * sizeof *pos) == 0;
}

double small_score(const h2okv_cache *cache, uint32_t lane, int32_t pos)
{
    int32_t held[SMALL_CELLS];
    double score[SMALL_CELLS];
    uint32_t n = h2okv_cache_kept(cache, lane, held, score, NULL);
    for (uint32_t i = 0; i < n; i++) {
        if (held[i] == pos) {
            return score[i];
        }
    }
    return NAN;
}
