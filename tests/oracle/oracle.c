/*
 * oracle.c - see oracle.h. Slow on purpose: triple loops, repeated multiplication, one victim at a time.
 */
#include "oracle/oracle.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define IDLE 1e-30 /* decayed scores below this are 0 */

void oracle_init(oracle *o, const oracle_options *options)
{
    memset(o, 0, sizeof *o);
    o->options = *options;
}

void oracle_admit(oracle *o, const int32_t *pos, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        for (uint32_t l = 0; l < o->options.lanes; l++) {
            oracle_lane *lane = &o->lane[l];
            if (lane->count == ORACLE_MAX_TOKENS) {
                abort();
            }
            lane->token[lane->count++] = (oracle_token){ .pos = pos[i], .pass = o->pass };
        }
        o->engine[o->engine_count++] = pos[i];
        o->fresh[i] = pos[i];
    }
    o->fresh_count = n;
    o->probe = 0;
    memset(o->observed, 0, sizeof o->observed);
}

void oracle_probe(oracle *o, uint32_t n)
{
    o->probe = n;
}

void oracle_pin(oracle *o, int32_t first, int32_t end)
{
    for (int32_t pos = first; pos < end; pos++) {
        o->pinned[pos] = 1;
    }
}

static double received(const oracle *o, uint32_t heads, oracle_weight *weight, void *user, uint32_t query,
                       int32_t pos)
{
    double sum = 0.0;
    if (!o->options.count_self && o->fresh[query] == pos) {
        return 0.0;
    }
    for (uint32_t h = 0; h < heads; h++) {
        sum += weight(user, h, query, pos);
    }
    return o->options.mean ? sum / heads : sum;
}

static double decayed(const oracle *o, double score)
{
    score *= o->options.decay;
    return o->options.decay < 1.0 && score < IDLE && score > -IDLE ? 0.0 : score;
}

void oracle_observe(oracle *o, uint32_t lane, uint32_t heads, oracle_weight *weight, void *user)
{
    int first = o->observed[lane]++ == 0;
    if (o->probe > 0) {
        for (uint32_t i = 0; i < o->lane[lane].count; i++) {
            oracle_token *t = &o->lane[lane].token[i];
            t->score = first ? 0.0 : t->score;
            for (uint32_t q = o->fresh_count - o->probe; q < o->fresh_count; q++) {
                t->score += received(o, heads, weight, user, q, t->pos);
            }
        }
        return;
    }
    for (uint32_t i = 0; i < o->lane[lane].count; i++) {
        oracle_token *t = &o->lane[lane].token[i];
        double mass = 0.0;
        if (o->options.policy == ORACLE_NEWEST) {
            t->score = (first ? 0.0 : t->score) + received(o, heads, weight, user, o->fresh_count - 1, t->pos);
            continue;
        }
        for (uint32_t q = 0; q < o->fresh_count; q++) {
            t->score = first ? decayed(o, t->score) : t->score;
            mass = mass * o->options.decay + received(o, heads, weight, user, q, t->pos);
        }
        t->score += mass;
    }
}

static double root_of(const oracle *o, const oracle_token *t)
{
    return t->pos < (int64_t)o->options.sinks ? 0.0 : sqrt(t->score);
}

void oracle_spread(oracle *o, uint32_t reach)
{
    for (uint32_t l = 0; l < o->options.lanes && reach > 0; l++) {
        oracle_lane *lane = &o->lane[l];
        uint32_t n = lane->count - o->probe;
        double sum[ORACLE_MAX_TOKENS] = { 0.0 };
        for (uint32_t i = 0; i < n; i++) {
            for (uint32_t k = 0; k < n; k++) {
                int64_t apart = (int64_t)lane->token[i].pos - lane->token[k].pos;
                sum[i] += apart <= (int64_t)reach && -apart <= (int64_t)reach ? root_of(o, &lane->token[k]) : 0.0;
            }
        }
        for (uint32_t i = 0; i < n; i++) {
            lane->token[i].score = sum[i];
        }
    }
}

static double rank_of(const oracle *o, uint32_t lane, const oracle_token *t)
{
    switch (o->options.policy) {
    case ORACLE_WINDOW:
        return t->pos;
    case ORACLE_LIFETIME:
        return t->score / (o->lane[lane].token[o->lane[lane].count - 1].pos - t->pos + 1);
    case ORACLE_GIVEN:
        return o->options.rank(o->options.user, lane, t->pos, t->score);
    default:
        return t->score;
    }
}

static void rank_all(oracle *o, uint32_t lane)
{
    oracle_lane *l = &o->lane[lane];
    for (uint32_t i = 0; i < l->count; i++) {
        l->token[i].rank = rank_of(o, lane, &l->token[i]);
        for (uint32_t j = 0; j < l->count; j++) {
            int64_t apart = (int64_t)l->token[i].pos - l->token[j].pos;
            double other = rank_of(o, lane, &l->token[j]);
            if (apart <= (int64_t)o->options.pool && -apart <= (int64_t)o->options.pool && other > l->token[i].rank) {
                l->token[i].rank = other;
            }
        }
    }
}

/* 3: pinned or sink; 2: recent or the newest token; 1: in grace; 0: ranks decide. */
static int protection(const oracle *o, uint32_t lane, uint32_t index)
{
    const oracle_lane *l = &o->lane[lane];
    const oracle_token *t = &l->token[index];
    uint32_t newer = l->count - 1 - index;
    if ((t->pos < ORACLE_MAX_PINNED && o->pinned[t->pos]) || t->pos < (int64_t)o->options.sinks) {
        return 3;
    }
    if (newer < o->options.recent || newer == 0) {
        return 2;
    }
    return o->pass - t->pass < o->options.grace ? 1 : 0;
}

static int goes_before(const oracle *o, uint32_t lane, uint32_t a, uint32_t b)
{
    const oracle_token *ta = &o->lane[lane].token[a], *tb = &o->lane[lane].token[b];
    int pa = protection(o, lane, a), pb = protection(o, lane, b);
    double ra = ta->rank, rb = tb->rank;
    if (pa != pb) {
        return pa < pb;
    }
    if (ra < rb || ra > rb) {
        return ra < rb;
    }
    return ta->pos < tb->pos;
}

static void drop_worst(oracle *o, uint32_t lane)
{
    oracle_lane *l = &o->lane[lane];
    uint32_t worst = 0;
    for (uint32_t i = 1; i < l->count; i++) {
        if (goes_before(o, lane, i, worst)) {
            worst = i;
        }
    }
    for (uint32_t i = worst + 1; i < l->count; i++) {
        l->token[i - 1] = l->token[i];
    }
    l->count--;
}

uint32_t oracle_evict(oracle *o)
{
    uint32_t live = o->engine_count, keep = o->options.budget;
    uint32_t gone = o->options.policy == ORACLE_FULL || live <= keep ? 0 : live - keep;
    for (uint32_t l = 0; l < o->options.lanes; l++) {
        rank_all(o, l);
        for (uint32_t i = 0; i < gone; i++) {
            drop_worst(o, l);
        }
    }
    o->engine_count -= gone;
    memmove(o->engine, o->engine + gone, o->engine_count * sizeof o->engine[0]);
    o->pass++;
    o->fresh_count = 0;
    return gone;
}

uint32_t oracle_trim(oracle *o, int32_t pos0)
{
    uint32_t most = 0;
    int only_probe = o->probe > 0 && o->fresh_count > 0 && pos0 == o->fresh[o->fresh_count - o->probe];
    while (o->engine_count && o->engine[o->engine_count - 1] >= pos0) {
        o->engine_count--;
    }
    for (uint32_t l = 0; l < o->options.lanes; l++) {
        oracle_lane *lane = &o->lane[l];
        uint32_t lost = 0;
        while (lane->count && lane->token[lane->count - 1].pos >= pos0) {
            lane->count--;
        }
        rank_all(o, l);
        for (; lane->count > o->engine_count; lost++) {
            drop_worst(o, l);
        }
        most = lost > most ? lost : most;
    }
    for (int32_t pos = pos0; !only_probe && pos < ORACLE_MAX_PINNED; pos++) {
        o->pinned[pos] = 0;
    }
    o->pass++;
    o->fresh_count = 0;
    return most;
}
