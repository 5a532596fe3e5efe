/* run_options.c - defaults of `h2okv run`, and what its options must fulfil together. */
#include "run.h"

#include "h2okv/advanced.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static const char *const command = "run";
const char *const run_lane_names[] = { "head", "layer", "all", NULL };
const char *const run_attention_names[] = { "auto", "fused", "observe", NULL };
const char *const run_kv_type_names[] = { "f16", "q8_0", NULL };

enum { OBSERVE = 2 }; /* in run_attention_names; llama.h is not there in every build */

enum { NOT_GIVEN = -1 };

void run_defaults(run_options *o)
{
    *o = (run_options){
        .n_new = 128,
        .budget = 512,
        .recent = RUN_AUTO,
        .sinks = RUN_AUTO,
        .policy = "default",
        .decay = NOT_GIVEN,
        .pool = RUN_AUTO,
        .guide_chunk = RUN_AUTO,
        .ubatch = RUN_AUTO,
        .top_k = RUN_AUTO,
        .top_p = NOT_GIVEN,
        .min_p = NOT_GIVEN,
        .threads = cli_cpus(),
    };
}

static bool check_source(const run_options *o)
{
    int given = (o->file != NULL) + (o->prompt != NULL) + o->from_stdin;
    if (given == 0) return cli_error(command, "no text given: use -f FILE, -p TEXT, or - for standard input");
    if (given > 1) return cli_error(command, "more than one text given: use one of -f FILE, -p TEXT and -");
    if (o->prompt && !*o->prompt) return cli_error(command, "--prompt is empty: give some text");
    return true;
}

/* recent + heavy = budget, sinks count in heavy. */
static bool check_budget(run_options *o)
{
    if (o->recent == 0) {
        return cli_error(command, "--recent 0: llama.cpp needs the newest token; give at least 1");
    }
    if (o->recent != RUN_AUTO && o->recent > o->budget) {
        return cli_error(command, "--recent %" PRIu32 " is more than --budget %" PRIu32, o->recent,
                         o->budget);
    }
    if (o->prompt_budget > 0 && o->prompt_budget < o->budget) {
        return cli_error(command, "--prompt-budget %" PRIu32 " is less than --budget %" PRIu32
                         ": it is the room while the prompt is read", o->prompt_budget, o->budget);
    }
    if (o->sinks != RUN_AUTO && o->recent != RUN_AUTO && (uint64_t)o->sinks + o->recent > o->budget) {
        return cli_error(command, "--sink %" PRIu32 " + --recent %" PRIu32 " is more than --budget %" PRIu32,
                         o->sinks, o->recent, o->budget);
    }
    return true;
}

static bool check_policy(const run_options *o)
{
    const char *names[32] = { NULL };
    uint32_t n = 0;
    while (n < 31 && (names[n] = h2okv_policy_name(n)) != NULL) n++;
    return cli_parse_name(command, "--policy", o->policy, names, &n);
}

static bool check_attention(const run_options *o)
{
    if (o->isa && !cli_check_isa(command, o->isa)) return false;
    if (o->attention != OBSERVE) return true;
    if (o->kv_type == RUN_KV_Q8_0) {
        return cli_error(command, "--kv-type q8_0 needs fused attention: without flash attention llama.cpp "
                         "keeps V transposed, and cannot quantise it so");
    }
    if (!o->isa) return true;
    return cli_error(command, "--isa has no effect with --attention observe, which uses no kernels");
}

/* What the policy makes of what was not given. */
static bool resolve(run_options *o)
{
    h2okv_options cache;
    h2okv_error error;
    h2okv_options_init(&cache);
    cache.policy = o->policy;
    cache.budget = cache.cells = o->budget;
    cache.recent = o->recent;
    cache.sinks = o->sinks;
    cache.pool = o->pool;
    cache.decay = o->decay < 0 ? 0 : o->decay;
    cache.grace = o->grace;
    if (h2okv_options_resolve(&cache, &cache, &error)) return cli_error(command, "%s", error.text);
    o->recent = cache.recent > 0 ? cache.recent : 1;
    o->sinks = cache.sinks;
    o->pool = cache.pool;
    o->decay = cache.decay;
    return true;
}

/* Does the policy choose by scores? */
static bool uses_scores(const run_options *o)
{
    const h2okv_policy *policy = h2okv_policy_find(o->policy);
    return policy && (policy->flags & H2OKV_POLICY_NEEDS_SCORES);
}

static bool check_scoring(const run_options *o)
{
    const char *idle = o->decay >= 0 && o->decay < 1 ? "--decay" : NULL;
    if (o->decay >= 0 && o->decay <= 0) {
        return cli_error(command, "--decay 0 would forget every score; give above 0 and at most 1");
    }
    if (o->guide_text && strcmp(o->guide_text, "off") != 0) idle = "--guide";
    if (o->guide_words) idle = "--guide-text";
    if (!idle || uses_scores(o)) return true;
    return cli_error(command, "%s has no effect with --policy %s, which uses no scores", idle, o->policy);
}

/* "0:50,80:90" */
static bool check_pins(run_options *o)
{
    const char *at = o->pins_text;
    while (at) {
        unsigned long long first, end;
        int n = 0;
        if (sscanf(at, "%10llu:%10llu%n", &first, &end, &n) != 2 || n == 0 || (at[n] && at[n] != ',') || *at == '-' ||
            *at == '+' || *at == ' ' || end > INT32_MAX || first >= end) {
            return cli_error(command, "--pin '%s' is no list of positions such as 0:50,80:90, each from the first to "
                             "before the second", o->pins_text);
        }
        if (o->n_pins == RUN_MOST_PINS) return cli_error(command, "--pin names more than %d ranges", RUN_MOST_PINS);
        o->pin[o->n_pins].first = (uint32_t)first;
        o->pin[o->n_pins++].end = (uint32_t)end;
        at = at[n] ? at + n + 1 : NULL;
    }
    return true;
}

static bool check_guide(run_options *o)
{
    if (o->guide_text && o->guide_words) return cli_error(command, "give --guide or --guide-text, not both");
    if (o->guide_words && !*o->guide_words) return cli_error(command, "--guide-text is empty: give some text");
    o->guide = uses_scores(o) ? RUN_AUTO : 0;
    if (!o->guide_text || strcmp(o->guide_text, "auto") == 0) return true;
    o->guide = 0;
    return strcmp(o->guide_text, "off") == 0 ||
           cli_parse_count(command, "--guide", o->guide_text, 1, RUN_MOST_GUIDE, &o->guide);
}

/* An option that would do nothing is refused, so that nobody believes it did something. */
static bool check_sampling(run_options *o)
{
    const char *idle = o->min_p >= 0 ? "--min-p" : NULL;
    if (o->top_p >= 0) idle = "--top-p";
    if (o->top_k != RUN_AUTO) idle = "--top-k";
    if (o->temp <= 0 && idle) {
        return cli_error(command,
                         "%s has no effect at --temp 0, which takes the most likely token; add --temp", idle);
    }
    if (o->top_k == RUN_AUTO) o->top_k = 40;
    if (o->top_p < 0) o->top_p = 0.95;
    if (o->min_p < 0) o->min_p = 0.05;
    return true;
}

bool run_check(run_options *o)
{
    return check_source(o) && check_budget(o) && check_policy(o) && check_scoring(o) && check_attention(o) &&
           check_sampling(o) && resolve(o) && check_pins(o) && check_guide(o);
}
