/*
 * run.c - `h2okv run` from its checked options and prompt on.
 *
 *   load -> tokenize -> attach -> read the prompt -> write new tokens -> report
 *                         with --trace each pass goes to trace_write.c
 */
#include "../trace_write.h"
#include "report.h"

#include "h2okv/advanced.h"

#include <inttypes.h>
#include <stdlib.h>

/* Policy "full" never evicts, so everything has to have its place. */
static bool full_policy_fits(const run_options *o, uint32_t n_prompt)
{
    const h2okv_policy *policy = h2okv_policy_find(o->cache.policy);
    uint64_t need = (uint64_t)n_prompt + o->n_new;
    if (!policy || !(policy->flags & H2OKV_POLICY_KEEPS_ALL) || need <= o->cache.budget) return true;
    return cli_error(o->command, "--policy %s keeps every token: %" PRIu32 " in the text and %" PRIu32
                     " new ones need --budget %" PRIu64, o->cache.policy, n_prompt, o->n_new, need);
}

static int report(const generation *g)
{
    if (g->options->json) {
        if (!report_json(stdout, g)) return CLI_ENGINE;
    } else if (!g->options->quiet) {
        report_text(stderr, g);
    }
    return g->stopped == STOP_INTERRUPT ? CLI_STOPPED : CLI_OK;
}

/* Ctrl-C came before there was a model. */
static int report_nothing(const run_options *o, engine *e)
{
    generation g = { .options = o, .engine = e, .stopped = STOP_INTERRUPT, .first_token_s = -1 };
    return report(&g);
}

static int generate(const run_options *o, engine *e, const cli_buffer *text, const llama_token *tokens, uint32_t n)
{
    generation g;
    int code = CLI_ENGINE;
    if (generation_start(&g, o, e, tokens, n)) {
        code = generation_read_prompt(&g, text);
        if (!code && g.stopped != STOP_INTERRUPT) code = generation_write(&g);
        if (!code) code = report(&g);
    }
    generation_free(&g);
    return code;
}

int run_load(const run_options *o, engine *e, const cli_buffer *text, llama_token **tokens, uint32_t *n)
{
    llama_token *more;
    int code = engine_load(e, o->command, o->model, o->mmap, o->verbose);
    *tokens = NULL;
    if (!code) code = engine_tokenize(e, text, tokens, n);
    if (!code && !full_policy_fits(o, *n)) code = CLI_USAGE;
    if (code) return code;
    more = realloc(*tokens, ((size_t)*n + o->n_new) * sizeof *more);
    if (!more) {
        cli_error(o->command, "out of memory for %" PRIu32 " new tokens", o->n_new);
        return CLI_ENGINE;
    }
    *tokens = more;
    if (!o->quiet) cli_warn_floor(o->command, o->cache.policy, o->cache.budget, *n);
    return CLI_OK;
}

/* ---- --trace ------------------------------------------------------------------------------------------ */

typedef struct run_trace {
    trace_writer writer;
    const engine *engine;
    bool failed;
} run_trace;

static void on_mass(void *user, uint32_t lane, const double *mass)
{
    run_trace *t = user;
    trace_writer_mass(&t->writer, h2okv_llama_cache(t->engine->h), lane, mass);
}

/* A trace that cannot be written is no reason to go on without one. */
static bool on_pass(void *user, const h2okv_cache *cache, uint32_t seen)
{
    run_trace *t = user;
    t->failed = !trace_writer_pass(&t->writer, cache, seen);
    return !t->failed;
}

static void on_guided(void *user, uint32_t spread)
{
    trace_writer_guided(&((run_trace *)user)->writer, spread);
}

static int attach(const run_options *o, engine *e, run_trace *t)
{
    int code;
    t->engine = e;
    if (o->trace) e->watch = (engine_watch){ .mass = on_mass, .pass = on_pass, .guided = on_guided, .user = t };
    code = engine_attach(e, &o->cache, o->threads);
    if (code || !o->trace) return code;
    return trace_writer_begin(&t->writer, h2okv_llama_cache(e->h), &o->cache, e->path) ? CLI_OK : CLI_ENGINE;
}

/* After Ctrl-C the passes that there were are a trace too. */
static int keep(const run_options *o, run_trace *t, int code)
{
    bool usable = o->trace && (code == CLI_OK || code == CLI_STOPPED || t->failed) && t->writer.steps > 0;
    if (usable && !trace_writer_keep(&t->writer)) return CLI_ENGINE;
    trace_writer_drop(&t->writer);
    return code;
}

int run_model(const run_options *o, const cli_buffer *prompt)
{
    engine e;
    run_trace trace = { 0 };
    llama_token *tokens = NULL;
    uint32_t n = 0;
    int code;
    cli_catch_signals();
    if (o->trace && !trace_writer_open(&trace.writer, o->command, o->trace)) return CLI_ENGINE;
    code = run_load(o, &e, prompt, &tokens, &n);
    if (code == CLI_STOPPED) code = report_nothing(o, &e);
    if (!code) code = attach(o, &e, &trace);
    if (!code && o->print_config) report_config(stderr, o, &e);
    if (!code) code = generate(o, &e, prompt, tokens, n);
    code = keep(o, &trace, code);
    free(tokens);
    engine_free(&e);
    return code;
}
