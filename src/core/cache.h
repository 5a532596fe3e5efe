/*
 * cache.h - the cache's own view of itself; nothing outside src/core includes it.
 *
 *   shared by all lanes                          for each lane
 *   engine_pos[cell]  the engine's position      pos[cell]    position of the token that lies there, -1: hole
 *   engine_order[k]   cells by engine position   score[cell]  attention it received so far, 0: hole
 *                                                order[k]     cells by rising position of their tokens
 *
 *   engine_order:  | oldest ... | fresh ... newest |      fresh: the n_fresh tokens that admit took last
 *                  0            live - n_fresh     live
 *
 * Invariants, between calls:
 *   - engine_pos[c] < 0 exactly where every lane's pos[c] < 0; live counts the others, in each lane.
 *   - engine positions are an unbroken window of those admitted (evict frees the oldest, trim the newest).
 *   - a token among the `recent` newest lies, in every lane, in the cell it was admitted to, unless a trim that
 *     lost tokens has moved it.
 */
#ifndef H2OKV_CORE_CACHE_H
#define H2OKV_CORE_CACHE_H

#include "h2okv/advanced.h"

#include "base/memory.h"

enum { H2OKV__HOLE = -1 };

/* Positions first..end-1. */
typedef struct h2okv__range {
    int32_t first, end;
} h2okv__range;

/* A token that the selector may give up; see select.c. */
typedef struct h2okv__candidate {
    double rank;
    uint32_t guard; /* 0: open to ranks, 1: in grace, 2: recent, 3: sink or pinned */
    uint32_t index; /* in the lane's order */
} h2okv__candidate;

struct h2okv_cache {
    h2okv_options options; /* read and resolved; budget and recent are those of now */
    uint32_t first_budget, first_recent; /* at create */
    h2okv_policy policy;
    h2okv_allocator allocator; /* used when has_allocator */
    bool has_allocator;
    size_t bytes;

    /* the same for every lane */
    uint32_t live, peak_live;
    uint32_t n_fresh;    /* tokens that the last admit took */
    uint32_t n_observed; /* lanes observed in full since then */
    uint32_t n_probe;    /* of the fresh tokens the last so many, whose queries alone count; 0: all count */
    uint32_t spread;     /* how far what a probe gives goes; 0: nowhere */
    int32_t pass_first;  /* first position admitted in this pass, H2OKV__HOLE: none yet */
    uint64_t admitted, evicted, moves, passes, epoch;
    int32_t *engine_pos;     /* [cells] */
    uint32_t *engine_order;  /* [cells] */
    h2okv__range pin[H2OKV_MOST_PINS]; /* n_pins of them, rising, neither overlapping nor touching */
    uint32_t n_pins;
    int32_t *grace_first;    /* [grace] ring: first position of the pass, by passes % grace */

    /* [lanes][cells] */
    int32_t *pos;
    double *score;
    double *score_before; /* score as it was when the last admit had been made, in lanes observed since */
    uint32_t *order;
    uint32_t *observed; /* [lanes] times since the last admit */

    /* scratch of one call */
    double *mass;                /* [cells] */
    double *rank;                /* [cells] */
    h2okv__candidate *candidate; /* [cells] */
    uint8_t *mark;               /* [cells], all 0 between calls */

    h2okv_plan plan;
    uint32_t plan_kind; /* enum h2okv_event_kind */
    int32_t plan_cut;   /* a trim's pos0, else INT32_MAX */
    h2okv_move *move;   /* [lanes][cells / 2] at most */
    int32_t *freed_pos; /* [cells] */
};

/* One lane's rows of the arrays above. */
typedef struct h2okv__lane {
    uint32_t index;
    int32_t *pos;
    double *score;
    uint32_t *order;
} h2okv__lane;

h2okv__lane h2okv__lane_of(const h2okv_cache *cache, uint32_t lane);

/* First position admitted in this pass; while nothing is, the first that could be. */
int32_t h2okv__pass_first(const h2okv_cache *cache);

/* pins.c: is the token at `pos` pinned; how many pinned positions are no sinks; and a trim's effect. */
bool h2okv__is_pinned(const h2okv_cache *cache, int32_t pos);
uint32_t h2okv__count_pinned(const h2okv__range *pin, uint32_t n, uint32_t sinks);
void h2okv__cut_pins(h2okv_cache *cache, int32_t pos0);

/* spread.c: a lane's scores, all given by a probe, become sums over neighbours. */
void h2okv__spread(const h2okv_cache *cache, uint32_t lane);

/* lane.c: one token in a lane's books. `live` is what the lane holds before the call. */
void h2okv__lane_append(const h2okv__lane *lane, uint32_t live, uint32_t cell, int32_t pos);
void h2okv__lane_remove(const h2okv__lane *lane, uint32_t live, uint32_t cell);
void h2okv__lane_rename(const h2okv__lane *lane, uint32_t live, uint32_t from, uint32_t to);
uint32_t h2okv__lane_count_below(const h2okv__lane *lane, uint32_t live, int32_t pos);

/* The options at create that two caches must share for the books of one to mean the same in the other. */
enum { H2OKV__MOST_POLICY_NAME = 64 };
typedef struct h2okv__kind {
    uint32_t lanes, budget, recent, sinks, pool, grace, count_self, heads;
    double decay;
    uint64_t seed;
    char policy[H2OKV__MOST_POLICY_NAME]; /* its name, the rest 0 */
} h2okv__kind;

/* copy.c: the cache's kind; E_INVALID with the first field in which `theirs` is not `ours` and both values; and
 * E_ORDER, naming `field`, when tokens are admitted and not yet committed. */
h2okv__kind h2okv__kind_of(const h2okv_cache *cache);
int h2okv__check_kind(const h2okv__kind *theirs, const h2okv__kind *ours, h2okv_error *error);
int h2okv__check_between_passes(const h2okv_cache *cache, const char *field, h2okv_error *error);

/* select.c: choose n of the lane's tokens order[0..n_among) to give up; their candidates come first in
 * cache->candidate. E_NAN when the policy ranks with a NaN. */
int h2okv__select(h2okv_cache *cache, const h2okv__lane *lane, uint32_t n_among, uint32_t n);

#endif
