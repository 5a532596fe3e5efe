/*
 * engine.h - a make-believe engine: instead of K and V each place carries the position of the token whose K
 * and V would lie there, so that a test can see whether moves put every token where the cache says it is.
 *
 *            cell 0  cell 1  cell 2          kv[lane][cell]: the token that lies there; junk when free
 *   lane 0     0       7      junk
 *   lane 1     3       7      junk
 *   pos        6       7       -1            the engine's own name for the cell, as llama.cpp's metadata
 *
 * All functions return NULL when all is well, else what is wrong, so that a test can also demand a fault.
 */
#ifndef TEST_ENGINE_H
#define TEST_ENGINE_H

#include "h2okv/h2okv.h"
#include "support/rng.h"

enum { ENGINE_MAX_CELLS = 512, ENGINE_MAX_LANES = 8, ENGINE_JUNK = -77 };

typedef struct engine {
    uint32_t lanes, cells;
    int32_t kv[ENGINE_MAX_LANES][ENGINE_MAX_CELLS];
    int32_t pos[ENGINE_MAX_CELLS]; /* -1: free */
    uint32_t used, peak;
    rng order;        /* moves of a lane are applied in a random order */
    int skip_moves;   /* misbehave: leave K and V where they are */
    uint32_t n_moves; /* applied so far, counted here */
} engine;

void engine_init(engine *e, uint32_t lanes, uint32_t cells, uint64_t seed);
const char *engine_put(engine *e, const uint32_t *cell, const int32_t *pos, uint32_t n);
/* A free cell, at random or (scatter = 0) the lowest; call engine_put before the next. UINT32_MAX: none. */
uint32_t engine_find(engine *e, int scatter);
/* Checks the plan's form, then does what it says. `trim`: the newest must be freed, else the oldest. */
const char *engine_apply(engine *e, const h2okv_plan *plan, int trim);
/* Everything the cache says about every lane against what lies in the cells. */
const char *engine_check(const engine *e, const h2okv_cache *cache);

#endif
