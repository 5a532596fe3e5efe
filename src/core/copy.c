/*
 * copy.c - one cache's books in another of the same kind: a fork.
 *
 *   block: | h2okv_cache ............ | engine_pos .. grace_first .. pos, score, order | scratch |
 *            the counts: copied         copied                                           stays
 *            options, hooks: to's own, but for budget and recent of now
 */
#include "cache.h"

#include <stdio.h>
#include <string.h>

h2okv__kind h2okv__kind_of(const h2okv_cache *c)
{
    h2okv__kind kind = {
        .lanes = c->options.lanes,
        .budget = c->first_budget,
        .recent = c->first_recent,
        .sinks = c->options.sinks,
        .pool = c->options.pool,
        .grace = c->options.grace,
        .count_self = c->options.count_self,
        .heads = c->options.heads,
        .decay = c->options.decay,
        .seed = c->options.seed,
    };
    (void)snprintf(kind.policy, sizeof kind.policy, "%s", c->policy.name != NULL ? c->policy.name : "");
    return kind;
}

static int differs(h2okv_error *error, const char *field, const char *theirs, const char *ours)
{
    return h2okv_error_set(error, H2OKV_E_INVALID, field,
                           "%s is %s where the books come from and %s here: create both with equal options", field,
                           theirs, ours);
}

static int differs_in_count(h2okv_error *error, const char *field, uint32_t theirs, uint32_t ours)
{
    char a[16], b[16];
    (void)snprintf(a, sizeof a, "%u", theirs);
    (void)snprintf(b, sizeof b, "%u", ours);
    return differs(error, field, a, b);
}

static int check_counts(const h2okv__kind *theirs, const h2okv__kind *ours, h2okv_error *error)
{
    const struct {
        const char *field;
        uint32_t theirs, ours;
    } count[] = {
        {"lanes", theirs->lanes, ours->lanes},
        {"budget", theirs->budget, ours->budget},
        {"recent", theirs->recent, ours->recent},
        {"sinks", theirs->sinks, ours->sinks},
        {"pool", theirs->pool, ours->pool},
        {"grace", theirs->grace, ours->grace},
        {"count_self", theirs->count_self, ours->count_self},
        {"heads", theirs->heads, ours->heads},
    };
    for (size_t i = 0; i < sizeof count / sizeof count[0]; i++) {
        if (count[i].theirs != count[i].ours) {
            return differs_in_count(error, count[i].field, count[i].theirs, count[i].ours);
        }
    }
    return H2OKV_OK;
}

int h2okv__check_kind(const h2okv__kind *theirs, const h2okv__kind *ours, h2okv_error *error)
{
    char a[H2OKV__MOST_POLICY_NAME + 2], b[H2OKV__MOST_POLICY_NAME + 2];
    if (strncmp(theirs->policy, ours->policy, sizeof ours->policy) != 0) {
        (void)snprintf(a, sizeof a, "\"%.*s\"", H2OKV__MOST_POLICY_NAME - 1, theirs->policy);
        (void)snprintf(b, sizeof b, "\"%.*s\"", H2OKV__MOST_POLICY_NAME - 1, ours->policy);
        return differs(error, "policy", a, b);
    }
    int status = check_counts(theirs, ours, error);
    if (status == H2OKV_OK && memcmp(&theirs->decay, &ours->decay, sizeof ours->decay) != 0) {
        (void)snprintf(a, sizeof a, "%.17g", theirs->decay);
        (void)snprintf(b, sizeof b, "%.17g", ours->decay);
        return differs(error, "decay", a, b);
    }
    if (status == H2OKV_OK && theirs->seed != ours->seed) {
        (void)snprintf(a, sizeof a, "%llu", (unsigned long long)theirs->seed);
        (void)snprintf(b, sizeof b, "%llu", (unsigned long long)ours->seed);
        return differs(error, "seed", a, b);
    }
    return status;
}

int h2okv__check_between_passes(const h2okv_cache *c, const char *field, h2okv_error *error)
{
    if (c->pass_first != H2OKV__HOLE) {
        return h2okv_error_set(error, H2OKV_E_ORDER, field,
                               "the cache is in the middle of a pass: its tokens are admitted and not yet committed");
    }
    return H2OKV_OK;
}

static int check_copy(const h2okv_cache *to, const h2okv_cache *from, h2okv_error *error)
{
    h2okv__kind theirs = h2okv__kind_of(from), ours = h2okv__kind_of(to);
    int status = h2okv__check_kind(&theirs, &ours, error);
    if (status == H2OKV_OK && from->options.cells != to->options.cells) {
        return differs_in_count(error, "cells", from->options.cells, to->options.cells);
    }
    if (status == H2OKV_OK && from->policy.rank != to->policy.rank) {
        return h2okv_error_set(error, H2OKV_E_INVALID, "custom_policy",
                               "the policies have one name, \"%s\", and different rank functions", ours.policy);
    }
    status = status != H2OKV_OK ? status : h2okv__check_between_passes(from, "from", error);
    return status != H2OKV_OK ? status : h2okv__check_between_passes(to, "to", error);
}

static void copy_arrays(h2okv_cache *to, const h2okv_cache *from)
{
    size_t cells = from->options.cells, all = cells * from->options.lanes;
    memcpy(to->engine_pos, from->engine_pos, cells * sizeof *to->engine_pos);
    memcpy(to->engine_order, from->engine_order, cells * sizeof *to->engine_order);
    memcpy(to->grace_first, from->grace_first, from->options.grace * sizeof *to->grace_first);
    memcpy(to->pos, from->pos, all * sizeof *to->pos);
    memcpy(to->score, from->score, all * sizeof *to->score);
    memcpy(to->order, from->order, all * sizeof *to->order);
}

int h2okv_cache_copy(h2okv_cache *to, const h2okv_cache *from, h2okv_error *error)
{
    int status = check_copy(to, from, error);
    if (status != H2OKV_OK || to == from) {
        return status;
    }
    copy_arrays(to, from);
    memcpy(to->pin, from->pin, sizeof to->pin);
    to->n_pins = from->n_pins;
    to->options.budget = from->options.budget;
    to->options.recent = from->options.recent;
    to->live = from->live;
    to->peak_live = from->peak_live;
    to->admitted = from->admitted;
    to->evicted = from->evicted;
    to->moves = from->moves;
    to->passes = from->passes;
    to->epoch++; /* plans made before are stale */
    return H2OKV_OK;
}
