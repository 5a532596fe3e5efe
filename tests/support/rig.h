/*
 * rig.h - a cache, an engine and the oracle in lockstep, fed with the same random attention.
 *
 *   random weights by position --> oracle (by position)
 *                              \-> laid out by cell, as the engine's cells say --> cache --> plan --> engine
 *
 * rig_check compares all three: same tokens in every lane, scores to 1e-9, K and V where the cache says.
 */
#ifndef TEST_RIG_H
#define TEST_RIG_H

#include "h2okv/advanced.h"
#include "oracle/oracle.h"
#include "support/engine.h"
#include "support/rng.h"

enum { RIG_LANES = 5, RIG_HEADS = 8, RIG_QUERIES = 16, RIG_POSITIONS = 512 };

typedef struct rig_options {
    uint64_t seed;
    uint32_t lanes, cells, budget, recent, sinks, grace, pool;
    uint32_t group;      /* query heads that share a lane */
    uint32_t count_self; /* 0 or 1 */
    uint32_t heads;      /* enum h2okv_heads */
    uint32_t parts;
    double decay;
    const char *policy;
    int scatter; /* tokens go into random free cells */
    int coarse;  /* weights are multiples of 1/16: many exact ties */
    int gaps;    /* positions leap now and then */
    const h2okv_policy *custom; /* used instead of `policy`; its ranks are the oracle's too */
    void (*on_event)(void *user, const h2okv_event *event);
    void *event_user;
} rig_options;

typedef struct rig {
    rig_options options;
    h2okv_options created; /* what the cache was made with */
    h2okv_cache *cache;
    oracle oracle;
    engine engine;
    rng rng;
    int32_t next_pos;
    uint64_t admitted, evicted, passes; /* what stats must say */
    uint32_t fresh; /* tokens of the last admit */
    uint32_t cell[RIG_QUERIES];
    int32_t pos[RIG_QUERIES];
    /* What query q of head h gives the token at a position, for the lane filled last. */
    float weight[RIG_HEADS][RIG_QUERIES][RIG_POSITIONS];
    uint32_t column[ENGINE_MAX_CELLS];
    float data[RIG_HEADS * RIG_QUERIES * (ENGINE_MAX_CELLS + 8)];
} rig;

rig_options rig_defaults(uint64_t seed);
rig *rig_create(const rig_options *options);
/* A second rig in the same state, but for its cache, which is new: its books are the caller's to copy. */
rig *rig_twin(const rig *r);
void rig_free(rig *r);
void rig_restart(rig *r); /* engine, oracle and randomness anew; the cache is the caller's to clear */

/* Choose cells and positions of n new tokens, into r->cell and r->pos; then tell all three. */
void rig_choose(rig *r, uint32_t n);
void rig_admit_chosen(rig *r);
void rig_admit(rig *r, uint32_t n);
/* Random attention of the admitted tokens for a lane, laid out in a random one of the ways allowed. */
h2okv_weights rig_weights(rig *r, uint32_t lane);
void rig_observe(rig *r, uint32_t lane); /* weights to the cache and the oracle, one part */
void rig_observe_all(rig *r);            /* every lane, every part */
void rig_evict(rig *r); /* plan, apply, commit, check */
/* Apply, commit, count; the oracle is the caller's. */
void rig_commit(rig *r, const h2okv_plan *plan, int trim);
void rig_trim(rig *r, int32_t pos0);
void rig_pin(rig *r, int32_t first, int32_t end);
void rig_set_budget(rig *r, uint32_t budget, uint32_t recent);
/* n tokens of text and a probe of so many: admit, observe, drop the probe, evict. */
void rig_probe_pass(rig *r, uint32_t n, uint32_t probe);
void rig_pass(rig *r, uint32_t n); /* all of it */
/* NULL or what is wrong. */
const char *rig_check(const rig *r);
/* Two caches show the same to the last bit, and two engines hold the same in the same cells. */
const char *rig_differ(const rig *a, const rig *b);
/* A rig that has been through everything that can be in a cache's books: evictions, trims, probes, pins, grace, another
 * budget and pool; `seed` chooses options and policy. */
rig *rig_with_a_past(uint64_t seed);

#endif
