/* cache_options.c - see cache_options.h. */
#include "cache_options.h"

#include "h2okv/advanced.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

const char *const cache_lane_names[] = { "head", "layer", "all", NULL };
const char *const cache_attention_names[] = { "auto", "fused", "observe", NULL };
const char *const cache_kv_type_names[] = { "f16", "q8_0", NULL };

enum { OBSERVE = 2 }; /* in cache_attention_names; llama.h is not there in every build */

void cache_defaults(cache_options *o)
{
    *o = (cache_options){
        .policy = "default",
        .budget = 512,
        .recent = CACHE_AUTO,
        .sinks = CACHE_AUTO,
        .pool = CACHE_AUTO,
        .decay = CACHE_POLICYS_DECAY,
        .guide = CACHE_AUTO,
        .guide_chunk = CACHE_AUTO,
        .guide_recent = CACHE_AUTO,
        .guide_spread = CACHE_AUTO,
        .ubatch = CACHE_AUTO,
    };
}

/* ---- Values ------------------------------------------------------------------------------------------- */

bool cache_parse_policy(const char *command, const char *text, const char **policy)
{
    const char *names[32] = { NULL };
    uint32_t n = 0;
    while (n < 31 && (names[n] = h2okv_policy_name(n)) != NULL) n++;
    if (!cli_parse_name(command, "--policy", text, names, &n)) return false;
    *policy = names[n];
    return true;
}

bool cache_parse_guide(const char *command, const char *text, uint32_t *out)
{
    *out = strcmp(text, "auto") == 0 ? CACHE_AUTO : 0;
    if (*out == CACHE_AUTO || strcmp(text, "off") == 0) return true;
    if (strspn(text, "0123456789") == strlen(text) && *text) {
        return cli_parse_count(command, "--guide", text, 1, CACHE_MOST_GUIDE, out);
    }
    return cli_error(command, "--guide '%s' is neither auto nor off nor a number of tokens", text);
}

/* Digits up to `end`; returns what follows them, NULL when it is no position. */
static const char *parse_position(const char *at, char end, int32_t *out)
{
    size_t n = strspn(at, "0123456789");
    unsigned long long value = strtoull(at, NULL, 10);
    if (n == 0 || (at[n] != end && at[n]) || value > INT32_MAX) return NULL;
    *out = (int32_t)value;
    return at + n;
}

/* "0:50,80:90" */
static bool parse_pins(const char *command, const char *text, cache_options *o)
{
    const char *at = text;
    for (;;) {
        cache_range r = { 0, 0 };
        at = parse_position(at, ':', &r.first);
        at = at && *at ? parse_position(at + 1, ',', &r.end) : NULL;
        if (!at || r.first >= r.end) {
            return cli_error(command, "--pin '%s' is no list of positions such as 0:50,80:90, each from the first to "
                             "before the second", text);
        }
        if (o->n_pins == CACHE_MOST_PINS) {
            return cli_error(command, "--pin %s: more than %d ranges in all", text, CACHE_MOST_PINS);
        }
        o->pin[o->n_pins++] = r;
        if (!*at) return true;
        at++;
    }
}

/* ---- Checks ------------------------------------------------------------------------------------------- */

static bool check_attention(const char *command, const cache_options *o)
{
    if (o->isa && !cli_check_isa(command, o->isa)) return false;
    if (o->attention != OBSERVE) return true;
    if (o->kv_type == CACHE_KV_Q8_0) {
        return cli_error(command, "--kv-type q8_0 needs fused attention: without flash attention llama.cpp "
                         "keeps V transposed, and cannot quantise it so");
    }
    if (!o->isa) return true;
    return cli_error(command, "--isa has no effect with --attention observe, which uses no kernels");
}

bool cache_check(const char *command, cache_options *o)
{
    if (o->recent == 0) {
        return cli_error(command, "--recent 0: llama.cpp needs the newest token; give at least 1");
    }
    if (o->decay >= 0 && o->decay <= 0) {
        return cli_error(command, "--decay 0 would forget every score; give above 0 and at most 1");
    }
    for (uint32_t i = 0; i < o->pin_texts.n; i++) {
        if (!parse_pins(command, o->pin_texts.text[i], o)) return false;
    }
    return check_attention(command, o);
}

bool cache_uses_scores(const char *policy)
{
    const h2okv_policy *found = h2okv_policy_find(policy);
    return found && (found->flags & H2OKV_POLICY_NEEDS_SCORES);
}

const char *cache_guide_option(const cache_options *o)
{
    if (o->guide_chunk != CACHE_AUTO) return "--guide-chunk";
    if (o->guide_recent != CACHE_AUTO) return "--guide-recent";
    return o->guide_spread != CACHE_AUTO ? "--guide-spread" : NULL;
}

const char *cache_scores_option(const cache_options *o)
{
    if (o->decay >= 0 && o->decay < 1) return "--decay";
    if (o->pool != CACHE_AUTO && o->pool > 0) return "--pool";
    return cache_guide_option(o);
}

/* ---- What the policy makes of them -------------------------------------------------------------------- */

static bool check_budgets(const char *command, const cache_options *o)
{
    if (o->recent != CACHE_AUTO && o->recent > o->budget) {
        return cli_error(command, "--recent %" PRIu32 " is more than --budget %" PRIu32, o->recent, o->budget);
    }
    if (o->sinks != CACHE_AUTO && o->recent != CACHE_AUTO && (uint64_t)o->sinks + o->recent > o->budget) {
        return cli_error(command, "--sink %" PRIu32 " + --recent %" PRIu32 " is more than --budget %" PRIu32,
                         o->sinks, o->recent, o->budget);
    }
    if (o->prompt_budget == 0 || o->prompt_budget >= o->budget) return true;
    return cli_error(command, "--prompt-budget %" PRIu32 " is less than --budget %" PRIu32
                     ": it is the room while the prompt is read", o->prompt_budget, o->budget);
}

bool cache_resolve(const char *command, cache_options *o)
{
    bool scores = cache_uses_scores(o->policy);
    h2okv_options cache;
    h2okv_error error;
    if (!check_budgets(command, o)) return false;
    h2okv_options_init(&cache);
    cache.policy = o->policy;
    cache.budget = cache.cells = o->budget;
    cache.recent = o->recent;
    cache.sinks = o->sinks;
    cache.grace = o->grace;
    cache.pool = scores ? o->pool : 0; /* one value goes for many policies: `h2okv eval` */
    cache.decay = !scores ? 1 : o->decay < 0 ? 0 : o->decay;
    if (h2okv_options_resolve(&cache, &cache, &error)) return cli_error(command, "%s", error.text);
    o->recent = cache.recent > 0 ? cache.recent : 1; /* the newest token stays in any case */
    o->sinks = cache.sinks;
    o->pool = cache.pool;
    o->decay = cache.decay;
    if (!scores) o->guide = 0;
    return true;
}
