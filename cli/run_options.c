/* run_options.c - defaults of `h2okv run`, and what its options must fulfil together; `h2okv trace` shares them. */
#include "run.h"

#include <inttypes.h>
#include <string.h>

enum { NOT_GIVEN = -1 };

void run_defaults(run_options *o, const char *command)
{
    *o = (run_options){
        .command = command,
        .n_new = 128,
        .top_k = RUN_AUTO,
        .top_p = NOT_GIVEN,
        .min_p = NOT_GIVEN,
        .threads = cli_cpus(),
    };
    cache_defaults(&o->cache);
}

bool run_take_arguments(run_options *o, int argc, char **argv, int first)
{
    for (; first < argc; first++) {
        if (strcmp(argv[first], "-") != 0) {
            return cli_error(o->command, "unexpected argument '%s': a text goes with -p, a file with -f",
                             argv[first]);
        }
        o->from_stdin = true;
    }
    if (o->file && strcmp(o->file, "-") == 0) {
        if (o->from_stdin) return cli_error(o->command, "standard input is given twice");
        o->file = NULL;
        o->from_stdin = true;
    }
    return true;
}

static bool check_source(const run_options *o)
{
    int given = (o->file != NULL) + (o->prompt != NULL) + o->from_stdin;
    if (given == 0) return cli_error(o->command, "no text given: use -f FILE, -p TEXT, or - for standard input");
    if (given > 1) return cli_error(o->command, "more than one text given: use one of -f FILE, -p TEXT and -");
    if (o->prompt && !*o->prompt) return cli_error(o->command, "--prompt is empty: give some text");
    return true;
}

static bool check_guide(run_options *o)
{
    if (o->guide_how && o->guide_text) return cli_error(o->command, "give --guide or --guide-text, not both");
    if (o->guide_text && !*o->guide_text) return cli_error(o->command, "--guide-text is empty: give some text");
    if (o->guide_how && !cache_parse_guide(o->command, o->guide_how, &o->cache.guide)) return false;
    if (!cache_guide_option(&o->cache) || o->guide_text || o->cache.guide > 0) return true;
    return cli_error(o->command, "%s has no effect with --guide off", cache_guide_option(&o->cache));
}

/* Once the policy has said what is recent. */
static bool check_guide_recent(const run_options *o)
{
    const cache_options *c = &o->cache;
    if (c->guide_recent == CACHE_AUTO || c->guide_recent <= c->recent) return true;
    return cli_error(o->command, "--guide-recent %" PRIu32 " is more than --recent, %" PRIu32, c->guide_recent,
                     c->recent);
}

/* An option that would do nothing is refused, so that nobody believes it did something. */
static bool check_scoring(const run_options *o)
{
    const char *idle = cache_scores_option(&o->cache);
    if (o->guide_how && o->cache.guide > 0) idle = "--guide";
    if (o->guide_text) idle = "--guide-text";
    if (!idle || cache_uses_scores(o->cache.policy)) return true;
    return cli_error(o->command, "%s has no effect with --policy %s, which uses no scores", idle, o->cache.policy);
}

/* The same. */
static bool check_sampling(run_options *o)
{
    const char *idle = o->min_p >= 0 ? "--min-p" : NULL;
    if (o->top_p >= 0) idle = "--top-p";
    if (o->top_k != RUN_AUTO) idle = "--top-k";
    if (o->temp <= 0 && idle) {
        return cli_error(o->command,
                         "%s has no effect at --temp 0, which takes the most likely token; add --temp", idle);
    }
    if (o->top_k == RUN_AUTO) o->top_k = 40;
    if (o->top_p < 0) o->top_p = 0.95;
    if (o->min_p < 0) o->min_p = 0.05;
    return true;
}

bool run_check_settings(run_options *o)
{
    const char *policy = o->cache.policy;
    return cache_parse_policy(o->command, policy, &o->cache.policy) &&
           cache_check(o->command, &o->cache) && check_guide(o) && check_scoring(o) && check_sampling(o) &&
           cache_resolve(o->command, &o->cache) && check_guide_recent(o);
}

bool run_check(run_options *o)
{
    const cli_path paths[] = {
        { "-f", o->file, false }, { "-m", o->model, false }, { "--trace", o->trace, true },
    };
    return check_source(o) && cli_check_paths(o->command, paths, sizeof paths / sizeof *paths) && run_check_settings(o);
}
