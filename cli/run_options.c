/* run_options.c - defaults of `h2okv run`, and what its options must fulfil together. */
#include "run.h"

#include "h2okv/advanced.h"

#include <inttypes.h>
#include <string.h>

static const char *const command = "run";
const char *const run_lane_names[] = { "head", "layer", "all", NULL };
const char *const run_attention_names[] = { "auto", "fused", "observe", NULL };
const char *const run_kv_type_names[] = { "f16", "q8_0", NULL };

enum { OBSERVE = 2 }; /* in run_attention_names; llama.h is not there in every build */

enum { DEFAULT_SINKS = 4, NOT_GIVEN = -1 };

void run_defaults(run_options *o)
{
    *o = (run_options){
        .n_new = 128,
        .budget = 512,
        .recent = RUN_AUTO,
        .sinks = RUN_AUTO,
        .policy = "h2o",
        .decay = 1,
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
    if (o->recent == RUN_AUTO) o->recent = o->budget / 2;
    if (o->recent > o->budget) {
        return cli_error(command, "--recent %" PRIu32 " is more than --budget %" PRIu32, o->recent,
                         o->budget);
    }
    if (o->sinks == RUN_AUTO) {
        uint32_t room = o->budget - o->recent;
        o->sinks = room < DEFAULT_SINKS ? room : DEFAULT_SINKS;
    }
    if ((uint64_t)o->sinks + o->recent > o->budget) {
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

static bool check_decay(const run_options *o)
{
    const h2okv_policy *policy = h2okv_policy_find(o->policy);
    if (!(o->decay > 0)) {
        return cli_error(command, "--decay 0 would forget every score; give above 0 and at most 1");
    }
    if (o->decay < 1 && policy && !(policy->flags & H2OKV_POLICY_NEEDS_SCORES)) {
        return cli_error(command, "--decay has no effect with --policy %s, which uses no scores", o->policy);
    }
    return true;
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
    return check_source(o) && check_budget(o) && check_policy(o) && check_decay(o) && check_attention(o) &&
           check_sampling(o);
}
