/*
 * trace.c - `h2okv trace` from its checked options and prompt on.
 *
 *   load -> attach, watched by a recording -> read and write as `h2okv run` does -> the page
 */
#include "../trace_record.h"
#include "../trace_run.h"
#include "generate.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static const char *const command = "trace";

typedef struct trace_job {
    const trace_options *options;
    engine *engine;
    recording record;
    cli_saving page;
    llama_token *tokens; /* [n_prompt], then the new ones */
    uint32_t n_prompt, n_guide;
    bool stopped;
} trace_job;

/* ---- The run ------------------------------------------------------------------------------------------ */

static void on_event(void *user, const h2okv_event *event)
{
    recording_event(&((trace_job *)user)->record, event);
}

static bool on_pass(void *user, const h2okv_cache *cache, uint32_t seen)
{
    recording *r = &((trace_job *)user)->record;
    recording_pass(r, cache, seen);
    return !r->failed;
}

static int no_memory(void)
{
    cli_error(command, "out of memory for the recording");
    return CLI_ENGINE;
}

static int start_record(trace_job *t)
{
    const run_options *o = &t->options->run;
    uint64_t tokens = (uint64_t)t->n_prompt + o->n_new, most = TRACE_MOST_TOKENS;
    uint32_t budget = o->cache.budget;
    char has[32], room[32];
    h2okv_llama_stats stats;
    h2okv_llama_get_stats(t->engine->h, &stats);
    if (most > TRACE_MOST_PLACES / stats.lanes) most = TRACE_MOST_PLACES / stats.lanes;
    if (tokens > most) {
        cli_error(command, "%s tokens in the text and new ones; with %" PRIu32 " lanes a page holds %s: give a shorter "
                  "text", cli_thousands(has, tokens), stats.lanes, cli_thousands(room, most));
        return CLI_USAGE;
    }
    if (o->cache.prompt_budget > budget) budget = o->cache.prompt_budget;
    return recording_start(&t->record, stats.lanes, t->n_prompt, o->n_new, budget) ? CLI_OK : no_memory();
}

static int run_recorded(trace_job *t, const cli_buffer *text)
{
    generation g;
    int code = CLI_ENGINE;
    if (generation_start(&g, &t->options->run, t->engine, t->tokens, t->n_prompt)) {
        g.written = t->tokens + t->n_prompt;
        code = generation_read_prompt(&g, text);
        if (!code && g.stopped != STOP_INTERRUPT) code = generation_write(&g);
        t->stopped = g.stopped == STOP_INTERRUPT;
        t->n_guide = g.n_guide;
    }
    generation_free(&g);
    return t->record.failed ? no_memory() : code;
}

/* ---- The page ----------------------------------------------------------------------------------------- */

static const char *last_part(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash && slash[1] ? slash + 1 : path;
}

static const char *text_name(const run_options *o)
{
    return o->file ? last_part(o->file) : o->prompt ? "a prompt" : "standard input";
}

/* Bytes of every token, special ones spelled out. *length is the caller's. */
static bool spell(const trace_job *t, uint32_t n, cli_buffer *bytes, uint32_t **length)
{
    *length = malloc((n + 1) * sizeof **length);
    for (uint32_t i = 0; *length && i < n; i++) {
        size_t before = bytes->n;
        if (!engine_piece(t->engine, t->tokens[i], bytes)) return false;
        if (bytes->n == before && !engine_special(t->engine, t->tokens[i], bytes)) return false;
        (*length)[i] = (uint32_t)(bytes->n - before);
    }
    return *length != NULL;
}

static bool put_page(trace_job *t, const cli_buffer *bytes, const uint32_t *length)
{
    const run_options *o = &t->options->run;
    int32_t pin[CACHE_MOST_PINS][2];
    h2okv_llama_stats s;
    trace_about about = {
        .model = last_part(t->engine->path), .text_file = text_name(o), .policy = o->cache.policy,
        .sinks = o->cache.sinks, .pool = o->cache.pool, .decay = o->cache.decay, .guide = t->n_guide,
        .pin = (const int32_t(*)[2])pin, .n_pins = o->cache.n_pins, .stopped = t->stopped,
        .bytes = bytes->data, .length = length,
    };
    h2okv_llama_get_stats(t->engine->h, &s);
    about.cells = s.cells;
    about.layers = o->cache.lanes == H2OKV_LANES_ALL ? 1 : s.layers;
    about.heads = s.lanes / about.layers;
    for (uint32_t i = 0; i < o->cache.n_pins; i++) {
        pin[i][0] = o->cache.pin[i].first;
        pin[i][1] = o->cache.pin[i].end;
    }
    return trace_page_write(t->page.file, &t->record, &about);
}

static int write_page(trace_job *t)
{
    uint32_t n = recording_tokens(&t->record), *length = NULL;
    cli_buffer bytes = { 0 };
    bool ok = spell(t, n, &bytes, &length);
    errno = 0;
    ok = ok && put_page(t, &bytes, length);
    (void)cli_save_check(&t->page); /* cli_save_keep tells */
    free(length);
    cli_buffer_free(&bytes);
    return ok ? CLI_OK : no_memory();
}

static void tell(const trace_job *t, long size)
{
    char tokens[32], bytes[32];
    fprintf(stderr, "%s: %s tokens, %" PRIu32 " lanes, %" PRIu32 " passes, %s%s\n", t->options->output,
            cli_thousands(tokens, recording_tokens(&t->record)), t->record.lanes, t->record.n_passes,
            cli_bytes(bytes, (uint64_t)size), t->stopped ? " (interrupted)" : "");
}

/* After Ctrl-C the page shows the passes that there were. */
static int finish(trace_job *t)
{
    long size;
    int code;
    if (t->record.n_passes == 0) {
        cli_error(command, "interrupted before the first pass had ended: no page");
        return CLI_STOPPED;
    }
    recording_end(&t->record, h2okv_llama_cache(t->engine->h));
    code = t->record.failed ? no_memory() : write_page(t);
    if (code) return code;
    size = ftell(t->page.file);
    if (!cli_save_keep(&t->page)) return CLI_ENGINE;
    if (!t->options->run.quiet) tell(t, size);
    return t->stopped ? CLI_STOPPED : CLI_OK;
}

int trace_model(const trace_options *o, const cli_buffer *prompt)
{
    engine e;
    trace_job t = { .options = o, .engine = &e };
    int code;
    cli_catch_signals();
    if (!cli_save_open(&t.page, command, o->output)) return CLI_ENGINE;
    code = run_load(&o->run, &e, prompt, &t.tokens, &t.n_prompt);
    if (code == CLI_STOPPED) cli_error(command, "interrupted while the model was loaded: no page");
    e.watch = (engine_watch){ .event = on_event, .pass = on_pass, .user = &t };
    if (!code) code = engine_attach(&e, &o->run.cache, o->run.threads);
    if (!code) code = start_record(&t);
    if (!code) code = run_recorded(&t, prompt);
    if (!code) code = finish(&t);
    cli_save_drop(&t.page);
    recording_free(&t.record);
    free(t.tokens);
    engine_free(&e);
    return code;
}
