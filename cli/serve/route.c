/*
 * route.c - method, path, key and type of a request -> what answers it.
 *
 * What is wrong is known before the body comes, and told once it is there, so that the client hears it; a body that is
 * too long alone is refused at once.
 */
#include "http.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* By the index in api_route_names. */
enum { CHAT, COMPLETION, MODELS, HEALTH, METRICS, LIVE, PAGE, OTHER };

static bool starts(const char *path, const char *with)
{
    return strncmp(path, with, strlen(with)) == 0;
}

static unsigned find(const char *path, const char **rest)
{
    static const unsigned exact[] = { CHAT, COMPLETION, MODELS, HEALTH, METRICS };
    *rest = "";
    for (size_t i = 0; i < sizeof exact / sizeof exact[0]; i++) {
        if (strcmp(path, api_route_names[exact[i]]) == 0) return exact[i];
    }
    if (starts(path, "/v1/models/")) {
        *rest = path + strlen("/v1/models/");
        return MODELS;
    }
    if (starts(path, "/live/")) {
        *rest = path + strlen("/live/");
        return LIVE;
    }
    if (!api_find_page(path)) return OTHER;
    *rest = path;
    return PAGE;
}

static bool takes_body(unsigned route)
{
    return route == CHAT || route == COMPLETION;
}

const char *route_methods(unsigned route)
{
    return takes_body(route) ? "POST" : "GET, HEAD";
}

static const char *header(const http_exchange *x, const char *name)
{
    return MHD_lookup_connection_value(x->mhd, MHD_HEADER_KIND, name);
}

/* ---- Who may ask --------------------------------------------------------------------------------------- */

/* Takes the same time wherever two keys of the same length differ. */
static bool same_key(const char *given, const char *key)
{
    size_t n = strlen(key), m = strlen(given);
    volatile unsigned char differ = n != m;
    for (size_t i = 0; i < n; i++) differ |= (unsigned char)(key[i] ^ given[m > 0 ? i % m : 0]);
    return !differ;
}

static bool has_key(const http_exchange *x)
{
    const char *given = header(x, "Authorization"), *key = x->h->o->api_key;
    if (!key || x->route == HEALTH || x->route == PAGE) return true;
    return given && strncasecmp(given, "Bearer ", 7) == 0 && same_key(given + 7, key);
}

/* A page of another site whose name leads to this machine must not talk with a server that only this machine should
 * reach: its requests name that site. Numbers and localhost are no such names. */
static bool from_here(const http_exchange *x)
{
    const char *host = header(x, "Host");
    size_t n;
    if (!x->h->loopback || x->h->o->api_key || !host) return true;
    n = *host == '[' ? strcspn(host, "]") : strcspn(host, ":");
    if (*host == '[') return true;
    if (n == 9 && strncasecmp(host, "localhost", n) == 0) return true;
    return strspn(host, "0123456789.") == n || (n == strlen(x->h->o->host) && strncasecmp(host, x->h->o->host, n) == 0);
}

/* ---- What is wrong already ----------------------------------------------------------------------------- */

static bool is_json(const char *type)
{
    static const char json[] = "application/json";
    size_t n = sizeof json - 1;
    if (!type || strncasecmp(type, json, n) != 0) return false;
    while (type[n] == ' ') n++;
    return type[n] == '\0' || type[n] == ';';
}

static void check_type(http_exchange *x)
{
    const char *type = header(x, "Content-Type");
    if (is_json(type)) return;
    api_fail(&x->early, 415, NULL, "unsupported_media_type", "send 'Content-Type: application/json'%s%.60s",
             type ? ", not " : "", type ? type : "");
}

static void check_method(http_exchange *x, const char *method)
{
    bool read = strcmp(method, "GET") == 0 || strcmp(method, "HEAD") == 0, post = strcmp(method, "POST") == 0;
    if (takes_body(x->route) ? post : read) return;
    api_fail(&x->early, 405, NULL, "method_not_allowed", "%s does not take %.20s: use %s", api_route_names[x->route],
             method, route_methods(x->route));
}

void route_find(http_exchange *x, const char *path, const char *method)
{
    x->route = find(path, &x->rest);
    if (!from_here(x)) {
        api_fail(&x->early, 403, NULL, "host_not_allowed", "this server answers to localhost and to numbers, not to "
                 "the host name '%.60s': start it with --host or with an API key", header(x, "Host"));
    } else if (!has_key(x)) {
        api_fail(&x->early, 401, NULL, "invalid_api_key", "%s: send 'Authorization: Bearer KEY'",
                 header(x, "Authorization") ? "the API key is not right" : "an API key is needed");
    } else if (x->route == OTHER) {
        api_fail(&x->early, 404, NULL, "not_found", "there is nothing at '%.80s'", path);
    } else {
        check_method(x, method);
    }
    if (!x->early.status && takes_body(x->route)) check_type(x);
}

/* ---- Answers ------------------------------------------------------------------------------------------- */

static enum MHD_Result send_built(http_exchange *x, bool good, const char *type)
{
    api_error e;
    if (good) return exchange_send(x, 200, type, &x->out);
    api_fail(&e, 500, NULL, "out_of_memory", "the server has no memory left: try again later");
    return exchange_fail(x, &e);
}

static void read_state(serve_http *h, api_state *s)
{
    s->model = &h->model;
    s->queue = serve_queue_length(h->q);
    s->queue_most = h->o->queue;
    s->stopping = serve_queue_stopping(h->q);
    serve_stats_get(h->stats, &s->numbers);
    serve_lock_take(&h->lock);
    s->counts = h->counts;
    serve_lock_give(&h->lock);
}

static enum MHD_Result tell_state(http_exchange *x)
{
    api_state s;
    bool good;
    read_state(x->h, &s);
    if (x->route == METRICS) {
        return send_built(x, api_add_metrics(&x->out, &s), "text/plain; version=0.0.4; charset=utf-8");
    }
    good = api_add_health(&x->out, &s);
    if (good && s.stopping) return exchange_send(x, 503, "application/json", &x->out);
    return send_built(x, good, "application/json");
}

static enum MHD_Result tell_models(http_exchange *x)
{
    api_error e;
    if (!*x->rest || strcmp(x->rest, x->h->model.name) == 0) {
        return send_built(x, api_add_models(&x->out, &x->h->model, !*x->rest), "application/json");
    }
    api_fail(&e, 404, "model", "model_not_found", "there is no model '%.80s' here, but '%s'", x->rest,
             x->h->model.name);
    return exchange_fail(x, &e);
}

static enum MHD_Result tell_live(http_exchange *x)
{
    api_error e;
    bool number = x->rest[0] && strlen(x->rest) < 5 && strspn(x->rest, "0123456789") == strlen(x->rest);
    unsigned long slot = number ? strtoul(x->rest, NULL, 10) : 0;
    if (number && slot < x->h->model.slots) return exchange_look(x, (uint32_t)slot);
    api_fail(&e, 404, "slot", "slot_not_found", "there is no slot '%.20s': they go from 0 to %u", x->rest,
             (unsigned)x->h->model.slots - 1);
    return exchange_fail(x, &e);
}

static enum MHD_Result tell_page(http_exchange *x)
{
    const api_page *page = api_find_page(x->rest);
    return send_built(x, page && cli_buffer_add(&x->out, page->text, strlen(page->text)), page ? page->type : "");
}

static enum MHD_Result run(http_exchange *x)
{
    enum serve_kind kind = x->route == CHAT ? SERVE_CHAT : SERVE_COMPLETION;
    serve_request *r = NULL;
    api_error e = { 0 };
    if (kind == SERVE_CHAT && !x->h->model.chat) {
        api_fail(&e, 400, "messages", "no_chat_template", "the model has no chat template: use /v1/completions, or "
                 "start the server with --template");
    } else {
        r = api_read_request(kind, x->body.data, x->body.n, &x->h->rules, &e);
        cli_buffer_free(&x->body);
    }
    return r ? exchange_run(x, r) : exchange_fail(x, &e);
}

enum MHD_Result route_answer(http_exchange *x)
{
    if (x->early.status) return exchange_fail(x, &x->early);
    switch (x->route) {
    case CHAT:
    case COMPLETION: return run(x);
    case MODELS: return tell_models(x);
    case LIVE: return tell_live(x);
    case PAGE: return tell_page(x);
    default: return tell_state(x);
    }
}
