/*
 * oracle.h - a second H2O, written as plainly as possible, that the tests compare the library with.
 *
 * It shares no code with src/ and includes no header of the library. A lane is a list of tokens; it knows
 * nothing of cells, moves or plans. Weights are asked for by position, one number at a time.
 */
#ifndef ORACLE_H
#define ORACLE_H

#include <stdint.h>

enum { ORACLE_MAX_LANES = 8, ORACLE_MAX_TOKENS = 512, ORACLE_MAX_PASS = 64, ORACLE_MAX_PINNED = 512 };

enum oracle_policy {
    ORACLE_H2O,    /* rank = score */
    ORACLE_WINDOW, /* rank = position */
    ORACLE_FULL,   /* never evicts */
    ORACLE_NEWEST, /* rank = what the newest query gives */
    ORACLE_LIFETIME, /* rank = score / tokens from it to the newest */
    ORACLE_GIVEN,  /* rank = what oracle_options.rank says */
};

typedef struct oracle_options {
    uint32_t lanes, budget, recent, sinks, grace;
    uint32_t pool;  /* a token ranks as the best within so many positions */
    int count_self; /* whether a token's weight on itself counts */
    int mean;       /* mean over heads instead of the sum */
    double decay;
    enum oracle_policy policy;
    double (*rank)(void *user, uint32_t lane, int32_t pos, double score); /* ORACLE_GIVEN */
    void *user;
} oracle_options;

typedef struct oracle_token {
    int32_t pos;
    double score;
    uint64_t pass; /* in which it was admitted */
    double rank;   /* when tokens are chosen: before any goes */
} oracle_token;

typedef struct oracle_lane {
    oracle_token token[ORACLE_MAX_TOKENS]; /* by rising position */
    uint32_t count;
} oracle_lane;

typedef struct oracle {
    oracle_options options;
    oracle_lane lane[ORACLE_MAX_LANES];
    int32_t engine[ORACLE_MAX_TOKENS]; /* positions at which an engine still holds a token, rising */
    uint32_t engine_count;
    int32_t fresh[ORACLE_MAX_PASS]; /* the tokens admitted last */
    uint32_t fresh_count;
    uint32_t observed[ORACLE_MAX_LANES]; /* times since the last admit; old scores decay the first time */
    uint64_t pass;
    uint32_t probe; /* of the tokens admitted last, the last so many: they alone count; 0: all do */
    unsigned char pinned[ORACLE_MAX_PINNED]; /* by position */
} oracle;

/* The weight that query `query` of head `head` gives the token at `pos`. */
typedef double oracle_weight(void *user, uint32_t head, uint32_t query, int32_t pos);

void oracle_init(oracle *o, const oracle_options *options);
void oracle_admit(oracle *o, const int32_t *pos, uint32_t n);
void oracle_observe(oracle *o, uint32_t lane, uint32_t heads, oracle_weight *weight, void *user);
/* After an admit: see oracle.probe. */
void oracle_probe(oracle *o, uint32_t n);
/* After a probe was observed in every lane: scores become sums of roots over neighbours. */
void oracle_spread(oracle *o, uint32_t reach);
void oracle_pin(oracle *o, int32_t first, int32_t end);
/* Down to the budget; ends the pass. Returns how many tokens each lane gave up. */
uint32_t oracle_evict(oracle *o);
/* Drops pos0 and above; ends the pass. Returns the most tokens before pos0 that a lane gave up. */
uint32_t oracle_trim(oracle *o, int32_t pos0);

#endif
