/* metrics.c - /metrics in Prometheus' text format, /health and /v1/models. */
#include "api.h"

#include "h2okv/h2okv.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

const char *const api_route_names[API_ROUTES] = { "/v1/chat/completions", "/v1/completions", "/v1/models", "/health",
                                                  "/metrics", "/live", "/", "other", "none" };
static const int codes[API_CODES] = { 200, 400, 401, 403, 404, 405, 408, 411, 413, 415, 429, 500, 503, 504 };

void api_count(api_counts *c, unsigned route, int status)
{
    unsigned i = 0;
    while (i < API_CODES - 1 && codes[i] != status) i++;
    c->answers[route < API_ROUTES ? route : API_ROUTES - 1][i]++;
}

/* ---- Metrics ------------------------------------------------------------------------------------------- */

typedef struct page {
    cli_buffer *out;
    bool good;
} page;

static void add(page *p, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void add(page *p, const char *format, ...)
{
    char line[512];
    va_list arguments;
    int n;
    va_start(arguments, format);
    n = vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    if (n < 0 || (size_t)n >= sizeof line || !cli_buffer_add(p->out, line, (size_t)n)) p->good = false;
}

static void head(page *p, const char *name, const char *type, const char *help)
{
    add(p, "# HELP h2okv_%s %s\n# TYPE h2okv_%s %s\n", name, help, name, type);
}

static void counter(page *p, const char *name, const char *help, uint64_t value)
{
    head(p, name, "counter", help);
    add(p, "h2okv_%s %" PRIu64 "\n", name, value);
}

static void real(page *p, const char *name, const char *type, const char *help, double value)
{
    head(p, name, type, help);
    add(p, "h2okv_%s %.6f\n", name, value);
}

static void gauge(page *p, const char *name, const char *help, uint64_t value)
{
    head(p, name, "gauge", help);
    add(p, "h2okv_%s %" PRIu64 "\n", name, value);
}

/* A label's value: \, " and ends of lines are escaped. */
static void label(page *p, const char *name, const char *value)
{
    add(p, "%s=\"", name);
    for (; *value; value++) {
        if (*value == '\n') add(p, "\\n");
        else if (*value == '\\' || *value == '"') add(p, "\\%c", *value);
        else add(p, "%c", *value);
    }
    add(p, "\"");
}

static void add_info(page *p, const serve_model *m)
{
    head(p, "info", "gauge", "Always 1; the labels say what is served.");
    add(p, "h2okv_info{");
    label(p, "version", h2okv_version());
    add(p, ",");
    label(p, "model", m->name);
    add(p, ",");
    label(p, "policy", m->policy);
    add(p, ",");
    label(p, "isa", m->isa ? m->isa : "");
    add(p, "} 1\n");
}

static void add_answers(page *p, const api_counts *c)
{
    head(p, "http_answers_total", "counter", "HTTP answers by route and status.");
    for (unsigned r = 0; r < API_ROUTES; r++) {
        for (unsigned i = 0; i < API_CODES; i++) {
            if (c->answers[r][i] == 0) continue;
            add(p, "h2okv_http_answers_total{route=\"%s\",code=\"%d\"} %" PRIu64 "\n", api_route_names[r], codes[i],
                c->answers[r][i]);
        }
    }
    counter(p, "http_clients_gone_total", "Clients that left before their answer was whole.", c->gone);
    gauge(p, "http_connections", "Connections open now.", c->connections);
}

static void add_engine(page *p, const serve_numbers *n)
{
    counter(p, "requests_total", "Requests that the engine took.", n->requests);
    counter(p, "requests_failed_total", "Of these, ended by an error.", n->failed);
    counter(p, "requests_left_total", "Of these, ended because the client left.", n->left);
    counter(p, "prompt_tokens_total", "Tokens of prompts, those reused from a slot not counted.", n->prompt_tokens);
    counter(p, "new_tokens_total", "Tokens of answers.", n->new_tokens);
    counter(p, "reused_tokens_total", "Tokens of prompts that a slot still held.", n->reused_tokens);
    counter(p, "evictions_total", "Evictions, of one token from one lane each.", n->evictions);
    real(p, "prompt_seconds_total", "counter", "Time spent reading prompts.", n->prompt_s);
    real(p, "decode_seconds_total", "counter", "Time spent on new tokens.", n->decode_s);
    real(p, "prompt_tokens_per_second", "gauge", "Over all prompts so far.",
         n->prompt_s > 0 ? (double)n->prompt_tokens / n->prompt_s : 0);
    real(p, "new_tokens_per_second", "gauge", "Over all answers so far.",
         n->decode_s > 0 ? (double)n->new_tokens / n->decode_s : 0);
}

static uint32_t busy_slots(const serve_numbers *n)
{
    uint32_t busy = 0;
    for (uint32_t i = 0; i < n->n_slots && i < SERVE_MOST_SLOTS; i++) busy += n->slots[i].busy;
    return busy;
}

static void add_slots(page *p, const serve_numbers *n)
{
    static const char *const names[] = { "slot_busy", "slot_budget_tokens", "slot_live_cells", "slot_next_position" };
    static const char *const help[] = { "1 while a request is in the slot.", "Cells that the slot's lanes may use.",
                                        "Cells in use, the most of any lane.", "Position of the next token." };
    gauge(p, "slots", "Requests that are decoded at once.", n->n_slots);
    gauge(p, "slots_busy", "Slots with a request.", busy_slots(n));
    for (int what = 0; what < 4; what++) {
        head(p, names[what], "gauge", help[what]);
        for (uint32_t i = 0; i < n->n_slots && i < SERVE_MOST_SLOTS; i++) {
            const serve_slot_stats *s = &n->slots[i];
            const int64_t values[] = { s->busy, s->budget, s->cells, s->next_pos };
            add(p, "h2okv_%s{slot=\"%" PRIu32 "\"} %" PRId64 "\n", names[what], i, values[what]);
        }
    }
}

/* Bytes of the process in memory; 0 when unknown. */
static uint64_t resident(void)
{
    FILE *file = fopen("/proc/self/statm", "r");
    unsigned long long all = 0, here = 0;
    if (!file) return 0;
    if (fscanf(file, "%llu %llu", &all, &here) != 2) here = 0;
    fclose(file);
    return (uint64_t)here * 4096;
}

bool api_add_metrics(cli_buffer *out, const api_state *s)
{
    page p = { out, true };
    add_info(&p, s->model);
    add_answers(&p, &s->counts);
    add_engine(&p, &s->numbers);
    gauge(&p, "queue_length", "Requests that wait for a slot.", s->queue);
    gauge(&p, "queue_limit", "Requests that may wait; the next one gets 429.", s->queue_most);
    add_slots(&p, &s->numbers);
    gauge(&p, "resident_bytes", "Memory of the process.", resident());
    return p.good;
}

/* ---- Health and models --------------------------------------------------------------------------------- */

static bool add_json(cli_buffer *out, json_t *json)
{
    char *text = json ? json_dumps(json, JSON_COMPACT) : NULL;
    bool done = text && cli_buffer_add(out, text, strlen(text)) && cli_buffer_add(out, "\n", 1);
    free(text);
    json_decref(json);
    return done;
}

bool api_add_health(cli_buffer *out, const api_state *s)
{
    return add_json(out, json_pack("{sssss{sisi}s{sIsI}}", "status", s->stopping ? "stopping" : "ok", "model",
                                   s->model->name, "slots", "all", (int)s->numbers.n_slots, "busy",
                                   (int)busy_slots(&s->numbers), "queue", "length", (json_int_t)s->queue, "limit",
                                   (json_int_t)s->queue_most));
}

static json_t *model_of(const serve_model *m)
{
    return json_pack("{sssssIsss{sIsIsIsIsssssb}}", "id", m->name, "object", "model", "created", (json_int_t)m->created,
                     "owned_by", "h2okv", "h2okv", "trained_context", (json_int_t)m->trained, "slots",
                     (json_int_t)m->slots, "budget", (json_int_t)m->budget, "most_budget", (json_int_t)m->room,
                     "policy", m->policy, "isa", m->isa ? m->isa : "", "chat", (int)m->chat);
}

bool api_add_models(cli_buffer *out, const serve_model *m, bool list)
{
    return add_json(out, list ? json_pack("{sss[o]}", "object", "list", "data", model_of(m)) : model_of(m));
}
