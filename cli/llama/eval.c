/*
 * eval.c - `h2okv eval` from its checked options and text on.
 *
 *   load -> SHA-256 -> eval_score or eval_ask: tokens -> rows -> a context for each row -> numbers in the rows
 */
#include "eval.h"

#include <inttypes.h>
#include <string.h>

static const char *const command = "eval";

/* ---- For both kinds ----------------------------------------------------------------------------------- */

static void keep_attention(eval_row *row, const h2okv_llama *h)
{
    h2okv_llama_stats stats;
    h2okv_llama_get_stats(h, &stats);
    snprintf(row->attention, sizeof row->attention, "%s", stats.isa ? "fused" : "observe");
    snprintf(row->isa, sizeof row->isa, "%s", stats.isa ? stats.isa : "");
}

int eval_attach(eval_work *w, eval_row *row, h2okv_llama **out)
{
    cache_options cache = row->cache;
    uint32_t chunk = cache.guide_chunk == CACHE_AUTO ? cache.ubatch : cache.guide_chunk;
    int code;
    if (cache.guide > 0 && chunk + w->longest_guide > cache.ubatch) cache.ubatch = chunk + w->longest_guide;
    code = engine_attach(&w->engine, &cache, w->eval->options->threads);
    *out = w->engine.h;
    w->engine.h = NULL; /* there may be many at once: each belongs to its row */
    if (!code) keep_attention(row, *out);
    return code ? code : engine_pin(&w->engine, *out, &cache);
}

int eval_failed(eval_work *w, const h2okv_llama *h, int status)
{
    if (status == H2OKV_E_STOPPED) {
        w->eval->stopped = true;
        return CLI_OK;
    }
    cli_progress_end(&w->progress);
    cli_error(command, "at position %" PRId32 ": %s", h2okv_llama_next_pos(h), h2okv_llama_last_error(h)->text);
    return CLI_ENGINE;
}

bool eval_advance(eval_work *w, uint32_t n)
{
    w->done += n;
    cli_progress_show(&w->progress, w->done, w->total);
    w->eval->stopped = w->eval->stopped || cli_interrupted();
    return !w->eval->stopped;
}

/* ---- The command -------------------------------------------------------------------------------------- */

static void warn_past_trained(const eval_work *w)
{
    int32_t trained = llama_model_n_ctx_train(w->engine.model);
    char last[32], most[32];
    if (w->eval->options->quiet || trained <= 0 || w->eval->tokens <= (uint32_t)trained) return;
    cli_warn(command, "%s tokens run past the %s that the model was trained for", cli_thousands(last, w->eval->tokens),
             cli_thousands(most, (uint64_t)trained));
}

static void name_model(eval_work *w)
{
    eval *e = w->eval;
    snprintf(e->model, sizeof e->model, "%s", w->engine.path);
    eval_hash_file(e->model, e->hash);
    if (e->hash[0] || e->options->quiet || cli_interrupted()) return; /* Ctrl-C ends sha256sum too */
    cli_warn(command, "neither sha256sum nor shasum is here: the rows do not name the model's hash");
}

int eval_measure(eval *e)
{
    eval_work w = { .eval = e };
    int code;
    cli_catch_signals();
    code = engine_load(&w.engine, command, e->options->model, false, e->options->verbose);
    if (!code) {
        e->tokens = e->options->tokens;
        name_model(&w);
        warn_past_trained(&w);
        e->stopped = cli_interrupted();
        if (!e->stopped) code = e->options->what == EVAL_RECALL ? eval_ask(&w) : eval_score(&w);
    }
    if (code == CLI_STOPPED) { /* while the model was loaded */
        e->stopped = true;
        code = CLI_OK;
    }
    cli_progress_end(&w.progress);
    engine_free(&w.engine);
    return code;
}
