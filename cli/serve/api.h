/*
 * api.h - what the parts of the HTTP half share.
 *
 *   request.c fields.c   a body in JSON -> serve_request, or an api_error     (no thread, no socket)
 *   answer.c logprobs.c  events -> the bytes that a client gets               (the same)
 *   metrics.c view.c     numbers -> /metrics, /health, /v1/models, /live      (the same)
 *   route.c              method, path, key, type -> one of these
 *   http.c guard.c       sockets, threads, limits of time
 */
#ifndef H2OKV_CLI_SERVE_API_H
#define H2OKV_CLI_SERVE_API_H

#include "serve.h"

/* ---- Errors, in OpenAI's shape ------------------------------------------------------------------------ */

typedef struct api_error {
    int status;
    const char *type, *code; /* code: NULL is null */
    char param[64];          /* the field's name; "" is null */
    char text[512];          /* UTF-8; names the field, the value and what to do */
} api_error;

/* Fills it in; always returns false, so that a check can return it. Statuses have their own types. */
bool api_fail(api_error *e, int status, const char *param, const char *code, const char *format, ...)
    __attribute__((format(printf, 5, 6)));
bool api_add_error(cli_buffer *out, const api_error *e); /* {"error":{...}}; false: out of memory */

/* ---- Requests (request.c, fields.c) ------------------------------------------------------------------- */

/* What a request is checked against. */
typedef struct api_rules {
    const serve_model *model;
    uint32_t most_tokens; /* of an answer that names none */
    bool guide, scores;   /* read with a guide when the request does not say; the policy uses scores at all */
} api_rules;

/* NULL: the error tells. `n` bytes of the body, which need not be text. */
serve_request *api_read_request(enum serve_kind kind, const char *body, size_t n, const api_rules *rules,
                                api_error *error);

/* ---- Answers (answer.c, logprobs.c) ------------------------------------------------------------------- */

typedef struct api_answer api_answer;

/* The request must live as long. NULL: out of memory. */
api_answer *api_answer_new(const serve_request *r, const serve_model *model);
void api_answer_free(api_answer *a);

/* Adds to `out` what the client gets now: as a stream of server-sent events, or nothing up to SERVE_DONE and then one
 * JSON object. An event that fails goes out as an error in the stream. False: out of memory, or the text is no UTF-8;
 * then api_answer_break says so in the stream. */
bool api_answer_take(api_answer *a, const serve_event *e, cli_buffer *out);
void api_answer_break(cli_buffer *out);

/* An event that failed, as an error. */
void api_error_of(const serve_event *e, api_error *out);

/* ---- What is told of the server (metrics.c, view.c) --------------------------------------------------- */

enum { API_ROUTES = 9, API_CODES = 20 };

/* Counted by HTTP, beside what the engine counts. */
typedef struct api_counts {
    uint64_t answers[API_ROUTES][API_CODES]; /* by route and status; the last of each: any other */
    uint64_t gone;                           /* clients that left before their answer was whole */
    uint32_t connections;
} api_counts;

extern const char *const api_route_names[API_ROUTES];
void api_count(api_counts *c, unsigned route, int status);

typedef struct api_state {
    const serve_model *model;
    size_t queue, queue_most;
    bool stopping;
    serve_numbers numbers;
    api_counts counts;
} api_state;

/* False: out of memory. */
bool api_add_metrics(cli_buffer *out, const api_state *s);
bool api_add_health(cli_buffer *out, const api_state *s);
bool api_add_models(cli_buffer *out, const serve_model *m, bool list);
bool api_add_view(cli_buffer *out, const serve_view *v);

/* ---- The web page (page.c) ---------------------------------------------------------------------------- */

/* A file of the built-in page by its path, or NULL. */
typedef struct api_page {
    const char *path, *type, *text;
} api_page;
const api_page *api_find_page(const char *path);

#endif
