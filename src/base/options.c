/* options.c - defaults and checks of h2okv_options. Each refusal names the field, its value and what to do. */
#include "options.h"

#include "memory.h"

#include <string.h>

static const h2okv_options defaults = {
    .size = (uint32_t)sizeof(h2okv_options),
    .lanes = 1,
    .recent = H2OKV_AUTO,
    .sinks = H2OKV_AUTO,
    .count_self = 1,
    .parts = 1,
    .policy = "h2o",
    .pool = H2OKV_AUTO,
};

void h2okv_options_init_sized(h2okv_options *options, uint32_t size)
{
    h2okv_options filled = defaults;
    filled.size = size;
    memset(options, 0, size);
    memcpy(options, &filled, size < sizeof filled ? size : sizeof filled);
}

static int check_counts(const h2okv_options *o, h2okv_error *error)
{
    if (o->lanes == 0) {
        return h2okv_error_set(error, H2OKV_E_INVALID, "lanes", "lanes is 0: there must be at least one lane");
    }
    if (o->cells == 0 || o->cells > INT32_MAX) {
        return h2okv_error_set(error, H2OKV_E_INVALID, "cells",
                           "cells is %u: give the budget plus the tokens of the largest pass", o->cells);
    }
    if (o->budget == 0 || o->budget > o->cells) {
        return h2okv_error_set(error, H2OKV_E_INVALID, "budget",
                           "budget is %u: it must be from 1 to the number of cells, %u", o->budget, o->cells);
    }
    return H2OKV_OK;
}

/* `recent` and `sinks` are resolved here: never H2OKV_AUTO. */
int h2okv__check_shares(const h2okv_options *o, uint32_t pinned, h2okv_error *error)
{
    uint32_t recent = o->recent > 0 ? o->recent : 1; /* the newest token always stays */
    if (recent > o->budget) {
        return h2okv_error_set(error, H2OKV_E_INVALID, "recent", "recent is %u: it must not be over the budget, %u",
                           o->recent, o->budget);
    }
    if (o->sinks > o->budget - recent) {
        return h2okv_error_set(error, H2OKV_E_INVALID, "sinks",
                           "sinks is %u: sinks + recent (%u) must not be over the budget, %u", o->sinks, recent,
                           o->budget);
    }
    if (pinned > o->budget - recent - o->sinks) {
        return h2okv_error_set(error, H2OKV_E_INVALID, "pin",
                           "pinned tokens are %u: with %u sinks and %u recent tokens they are over the budget, %u",
                           pinned, o->sinks, recent, o->budget);
    }
    return H2OKV_OK;
}

enum { MOST_GRACE = 65536 }; /* each pass is remembered for so long */

static int check_scoring(const h2okv_options *o, h2okv_error *error)
{
    if (!(o->decay > 0.0 && o->decay <= 1.0)) {
        return h2okv_error_set(error, H2OKV_E_INVALID, "decay",
                           "decay is %g: it must be above 0 and at most 1 (1: no decay), or 0 for the policy's own",
                           o->decay);
    }
    if (o->grace > MOST_GRACE) {
        return h2okv_error_set(error, H2OKV_E_INVALID, "grace",
                               "grace is %u: it must be at most %d passes; to keep tokens for longer raise recent",
                               o->grace, MOST_GRACE);
    }
    if (o->count_self > 1) {
        return h2okv_error_set(error, H2OKV_E_INVALID, "count_self", "count_self is %u: it must be 0 or 1",
                           o->count_self);
    }
    if (o->heads != H2OKV_HEADS_SUM && o->heads != H2OKV_HEADS_MEAN) {
        return h2okv_error_set(error, H2OKV_E_INVALID, "heads",
                           "heads is %u: it must be H2OKV_HEADS_SUM or H2OKV_HEADS_MEAN", o->heads);
    }
    if (o->parts == 0) {
        return h2okv_error_set(error, H2OKV_E_INVALID, "parts", "parts is 0: each lane is observed at least once");
    }
    return H2OKV_OK;
}

static int check_hooks(const h2okv_options *o, h2okv_error *error)
{
    if (o->allocator != NULL && (o->allocator->alloc == NULL || o->allocator->free == NULL)) {
        return h2okv_error_set(error, H2OKV_E_INVALID, "allocator",
                           "allocator has no alloc or no free function: set both, or leave allocator NULL");
    }
    return H2OKV_OK;
}

static int resolve_policy(h2okv_options *o, h2okv_error *error)
{
    if (o->custom_policy == NULL) {
        o->custom_policy = o->policy != NULL ? h2okv_policy_find(o->policy) : NULL;
        if (o->custom_policy == NULL) {
            return h2okv_error_set(error, H2OKV_E_INVALID, "policy",
                               "policy is \"%s\": there is none of that name (see h2okv_policy_name)",
                               o->policy != NULL ? o->policy : "(null)");
        }
    }
    return H2OKV_OK;
}

enum { SMALLEST_POLICY = offsetof(h2okv_policy, recent_share) }; /* its size before it had presets */

/* Copy a policy, of whatever size its author knew it, and check it. */
int h2okv__policy_read(h2okv_policy *out, const h2okv_policy *given, h2okv_error *error)
{
    *out = (h2okv_policy){.size = 0};
    uint32_t size = given->size;
    if (size < SMALLEST_POLICY || !h2okv__read_sized(out, sizeof *out, given, size) || out->rank == NULL) {
        return h2okv_error_set(error, H2OKV_E_INVALID, "custom_policy",
                               "custom_policy has size %u and %s rank function: it needs sizeof(h2okv_policy) and one",
                               size, size >= SMALLEST_POLICY && given->rank != NULL ? "a" : "no");
    }
    out->size = (uint32_t)sizeof *out;
    bool share = out->recent_share >= 0.0 && out->recent_share <= 1.0, decay = out->decay >= 0.0 && out->decay <= 1.0;
    if (!share || !decay) {
        return h2okv_error_set(error, H2OKV_E_INVALID, "custom_policy",
                               "custom_policy has %s %g: it must be from 0 to 1", share ? "decay" : "recent_share",
                               share ? out->decay : out->recent_share);
    }
    return H2OKV_OK;
}

uint32_t h2okv__recent_of(const h2okv_policy *policy, uint32_t budget)
{
    double share = policy->recent_share > 0.0 ? policy->recent_share : 0.5;
    return (uint32_t)(share * budget);
}

/* What was left open becomes the policy's. */
static void fill_in(h2okv_options *o, const h2okv_policy *policy)
{
    if (o->recent == H2OKV_AUTO) {
        o->recent = h2okv__recent_of(policy, o->budget);
    }
    if (o->sinks == H2OKV_AUTO) {
        uint32_t recent = o->recent > 0 ? o->recent : 1;
        uint32_t room = o->budget > recent ? o->budget - recent : 0;
        o->sinks = policy->sinks < room ? policy->sinks : room;
    }
    if (o->pool == H2OKV_AUTO) {
        o->pool = policy->pool;
    }
    if (o->decay >= 0.0 && o->decay <= 0.0) {
        o->decay = policy->decay > 0.0 ? policy->decay : 1.0;
    }
}

int h2okv__options_read(h2okv_options *out, const h2okv_options *given, h2okv_error *error)
{
    *out = defaults;
    uint32_t size = given != NULL ? given->size : 0;
    if (size < sizeof given->size) {
        return h2okv_error_set(error, H2OKV_E_INVALID, "size",
                               "options are missing or have size %u: call h2okv_options_init first", size);
    }
    if (!h2okv__read_sized(out, sizeof *out, given, given->size)) {
        return h2okv_error_set(error, H2OKV_E_INVALID, "size",
                           "options of %u bytes use a field that this library (%s) does not have", given->size,
                           H2OKV_VERSION);
    }
    out->size = (uint32_t)sizeof *out;
    int status = check_counts(out, error);
    status = status != H2OKV_OK ? status : resolve_policy(out, error);
    h2okv_policy policy;
    status = status != H2OKV_OK ? status : h2okv__policy_read(&policy, out->custom_policy, error);
    if (status != H2OKV_OK) {
        return status;
    }
    fill_in(out, &policy);
    status = h2okv__check_shares(out, 0, error);
    status = status != H2OKV_OK ? status : check_scoring(out, error);
    return status != H2OKV_OK ? status : check_hooks(out, error);
}

int h2okv_options_check(const h2okv_options *options, h2okv_error *error)
{
    h2okv_options read;
    return h2okv__options_read(&read, options, error);
}

int h2okv_options_resolve(const h2okv_options *options, h2okv_options *out, h2okv_error *error)
{
    h2okv_options read;
    int status = h2okv__options_read(&read, options, error);
    if (status == H2OKV_OK) {
        *out = read;
    }
    return status;
}
