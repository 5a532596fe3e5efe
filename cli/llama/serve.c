/*
 * serve.c - `h2okv serve`: a model, its slots, and HTTP in front of them, until SIGTERM or Ctrl-C.
 *
 *   model -> context of `slots` sequences -> HTTP's threads | this thread: rounds -> drain -> report
 */
#include "slots.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* How long answers may go on once the server was told to end, and how long it waits for a job. */
#define DRAIN_SECONDS 30
#define WAIT_SECONDS 0.25

typedef struct server {
    const serve_options *options;
    engine engine;
    char name[256];
    serve_model model;
    serve_queue *queue;
    serve_stats *stats;
    serve_http *http;
    slots slots;
} server;

/* ---- The beginning ------------------------------------------------------------------------------------ */

/* The template's text, or NULL when the model has none and none was asked for. */
static int find_template(const server *v, char **text)
{
    *text = NULL;
    if (!v->options->template && !llama_model_chat_template(v->engine.model, NULL)) return CLI_OK;
    return template_find(&v->engine, v->options->template, text);
}

/* The file's name without folders and without its end. */
static void name_model(server *v)
{
    const char *slash = strrchr(v->engine.path, '/'), *file = slash ? slash + 1 : v->engine.path;
    size_t n = strlen(file);
    if (n > 5 && strcmp(file + n - 5, ".gguf") == 0) n -= 5;
    snprintf(v->name, sizeof v->name, "%.*s", (int)n, file);
}

static void describe(server *v)
{
    h2okv_llama_stats stats;
    h2okv_llama_get_stats(v->engine.h, &stats);
    name_model(v);
    v->model = (serve_model){
        .name = v->name,
        .created = (int64_t)time(NULL),
        .trained = v->slots.trained,
        .slots = v->slots.n,
        .budget = v->options->cache.budget,
        .room = v->slots.room,
        .policy = v->options->cache.policy,
        .isa = stats.isa ? stats.isa : "llama.cpp",
        .chat = v->slots.template != NULL,
    };
}

static int load(server *v)
{
    const serve_options *o = v->options;
    int code = engine_load(&v->engine, "serve", o->model, o->mapped, o->verbose);
    v->engine.sequences = o->slots;
    if (!code) code = engine_attach(&v->engine, &o->cache, o->threads);
    return code;
}

static int open_doors(server *v)
{
    char *template;
    int code = find_template(v, &template);
    if (code) return code;
    v->queue = serve_queue_new(v->options->queue);
    v->stats = serve_stats_new(v->options->slots);
    slots_start(&v->slots, &v->engine, v->options, v->queue, template);
    if (!v->queue || !v->stats) {
        cli_error("serve", "out of memory");
        return CLI_ENGINE;
    }
    serve_stats_set(v->stats, &v->slots.numbers);
    describe(v);
    return http_start(&v->http, v->options, &v->model, v->queue, v->stats);
}

/* ---- Rounds ------------------------------------------------------------------------------------------- */

static void round_of(server *v)
{
    slots_round(&v->slots, WAIT_SECONDS);
    serve_stats_set(v->stats, &v->slots.numbers);
}

/* Nothing new is taken in; what is there is answered, as long as that does not take too long. */
static void drain(server *v)
{
    double end = cli_seconds() + DRAIN_SECONDS;
    serve_queue_stop(v->queue);
    if (slots_busy(&v->slots) || serve_queue_length(v->queue) > 0) {
        fprintf(stderr, "h2okv serve: ending: answers have %d seconds to end; a second signal ends at once\n",
                DRAIN_SECONDS);
    }
    while ((slots_busy(&v->slots) || serve_queue_length(v->queue) > 0) && !v->slots.broken && cli_seconds() < end) {
        round_of(v);
    }
}

static void report(const server *v)
{
    const serve_numbers *n = &v->slots.numbers;
    char a[32], b[32], c[32];
    fprintf(stderr, "h2okv serve: %s requests, %s tokens read (%s/s), ", cli_thousands(a, n->requests),
            cli_thousands(b, n->prompt_tokens),
            cli_thousands(c, n->prompt_s > 0 ? (uint64_t)((double)n->prompt_tokens / n->prompt_s) : 0));
    fprintf(stderr, "%s written (%s/s), %s reused\n", cli_thousands(a, n->new_tokens),
            cli_thousands(b, n->decode_s > 0 ? (uint64_t)((double)n->new_tokens / n->decode_s) : 0),
            cli_thousands(c, n->reused_tokens));
}

static int serve(server *v)
{
    while (!cli_interrupted() && !v->slots.broken) round_of(v);
    drain(v);
    slots_free(&v->slots, 503, "the server is ending");
    http_stop(v->http);
    report(v);
    if (!v->slots.broken) return CLI_OK;
    cli_error("serve", "the context cannot be used any more: %s", h2okv_llama_last_error(v->engine.h)->text);
    return CLI_ENGINE;
}

int serve_model_run(const serve_options *o)
{
    server v = { .options = o };
    int code;
    cli_catch_signals();
    code = load(&v);
    if (code == CLI_STOPPED) fputs("interrupted while the model was loaded\n", stderr);
    if (!code) code = open_doors(&v);
    if (!code) code = serve(&v);
    slots_free(&v.slots, 503, "the server is ending");
    serve_queue_free(v.queue);
    serve_stats_free(v.stats);
    engine_free(&v.engine);
    return code;
}
