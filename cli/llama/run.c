/*
 * run.c - `h2okv run` from its checked options and prompt on.
 *
 *   load -> tokenize -> attach -> read the prompt -> write new tokens -> report
 */
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

int run_model(const run_options *o, const cli_buffer *prompt)
{
    engine e;
    llama_token *tokens = NULL;
    uint32_t n = 0;
    int code;
    cli_catch_signals();
    code = run_load(o, &e, prompt, &tokens, &n);
    if (code == CLI_STOPPED) code = report_nothing(o, &e);
    if (!code) code = engine_attach(&e, &o->cache, o->threads);
    if (!code && o->print_config) report_config(stderr, o, &e);
    if (!code) code = generate(o, &e, prompt, tokens, n);
    free(tokens);
    engine_free(&e);
    return code;
}
