/*
 * small.h - a few calls for tests written out by hand: tokens in the lowest free cells, attention by token.
 */
#ifndef TEST_SMALL_H
#define TEST_SMALL_H

#include "h2okv/advanced.h"

enum { SMALL_CELLS = 512 };

h2okv_options small_options(uint32_t budget, uint32_t recent, uint32_t most_tokens_a_pass);
h2okv_cache *small_create(const h2okv_options *options);

/* n tokens from position pos0 on. */
void small_admit(h2okv_cache *cache, int32_t pos0, uint32_t n);
/* mass[i] goes to the lane's i-th token by position; [live] */
void small_give(h2okv_cache *cache, uint32_t lane, const float *mass);
/* Observe every lane with nothing. */
void small_idle(h2okv_cache *cache, uint32_t lanes);
/* Plan and commit; how many cells were freed. */
uint32_t small_evict(h2okv_cache *cache);
uint32_t small_trim(h2okv_cache *cache, int32_t pos0); /* returns n_lost */

int small_holds(const h2okv_cache *cache, uint32_t lane, const int32_t *pos, uint32_t n);
double small_score(const h2okv_cache *cache, uint32_t lane, int32_t pos); /* NaN when the token is not held */

/* SMALL_HOLDS(cache, lane, 0, 2, 3): exactly these positions. */
#define SMALL_HOLDS(cache, lane, ...)                                     \
    small_holds(cache, lane, (const int32_t[]){ __VA_ARGS__ },            \
                (uint32_t)(sizeof((const int32_t[]){ __VA_ARGS__ }) / 4))

#endif
