/*
 * exchange.c - a job's events -> the response.
 *
 *   queue full, stopping  -> 429, 503
 *   first event: failed   -> its status
 *   stream                -> 200, then event after event as it comes
 *   no stream             -> all events, then 200 or the status of the failure
 *
 * While it waits, a thread looks every 50 ms whether its client is still there. A client that has closed its sending
 * side counts as gone: nothing tells it from one that closed all, and an answer that nobody reads costs a slot.
 */
#include "http.h"

#include <poll.h>
#include <stdlib.h>
#include <string.h>

#define LOOK 0.05 /* s */

/* ---- Responses ----------------------------------------------------------------------------------------- */

static void add_headers(struct MHD_Response *response, const http_exchange *x, int status, const char *type)
{
    MHD_add_response_header(response, "Content-Type", type);
    MHD_add_response_header(response, "Cache-Control", "no-store");
    MHD_add_response_header(response, "X-Content-Type-Options", "nosniff");
    if (status == 405) MHD_add_response_header(response, "Allow", route_methods(x->route));
    if (status == 401) MHD_add_response_header(response, "WWW-Authenticate", "Bearer");
    if (status == 429) MHD_add_response_header(response, "Retry-After", "1");
    if (status == 503) MHD_add_response_header(response, "Retry-After", "10");
    if (serve_queue_stopping(x->h->q)) MHD_add_response_header(response, "Connection", "close");
}

static void count(http_exchange *x, int status)
{
    serve_lock_take(&x->h->lock);
    api_count(&x->h->counts, x->route, status);
    serve_lock_give(&x->h->lock);
    if (x->h->o->verbose) fprintf(stderr, "h2okv serve: %d %s\n", status, api_route_names[x->route]);
}

static enum MHD_Result queue(http_exchange *x, int status, struct MHD_Response *response)
{
    enum MHD_Result result = MHD_queue_response(x->mhd, (unsigned)status, response);
    MHD_destroy_response(response);
    count(x, status);
    guard_phase(x->h, x->c, HTTP_WRITES);
    return result;
}

enum MHD_Result exchange_send(http_exchange *x, int status, const char *type, cli_buffer *body)
{
    struct MHD_Response *response;
    response = MHD_create_response_from_buffer(body->n, body->data, MHD_RESPMEM_MUST_FREE);
    if (!response) {
        cli_buffer_free(body);
        return MHD_NO;
    }
    *body = (cli_buffer){ 0 };
    add_headers(response, x, status, type);
    return queue(x, status, response);
}

enum MHD_Result exchange_fail(http_exchange *x, const api_error *e)
{
    cli_buffer body = { 0 };
    if (!api_add_error(&body, e) || !cli_buffer_add(&body, "\n", 1)) {
        cli_buffer_free(&body);
        return MHD_NO;
    }
    return exchange_send(x, e->status, "application/json", &body);
}

static enum MHD_Result out_of_memory(http_exchange *x)
{
    api_error e;
    api_fail(&e, 500, NULL, "out_of_memory", "the server has no memory left: try again later");
    return exchange_fail(x, &e);
}

/* ---- Events -------------------------------------------------------------------------------------------- */

static bool gone(const http_exchange *x)
{
    struct pollfd p = { .fd = x->c->fd, .events = POLLRDHUP };
    return poll(&p, 1, 0) > 0 && (p.revents & (POLLRDHUP | POLLHUP | POLLERR | POLLNVAL));
}

static serve_event *stuck(void)
{
    serve_event *e = serve_event_new(SERVE_FAILED);
    if (!e) return NULL;
    e->status = 504;
    e->text = strdup("the time limit passed, and the engine did not answer");
    return e;
}

/* The next one. NULL: the client is gone. */
static serve_event *next_event(http_exchange *x)
{
    double deadline = serve_job_deadline(x->job);
    for (;;) {
        serve_event *e = gone(x) ? NULL : serve_job_wait(x->job, LOOK);
        if (!e && gone(x)) {
            serve_lock_take(&x->h->lock);
            x->h->counts.gone++;
            serve_lock_give(&x->h->lock);
            return NULL;
        }
        if (!e && deadline > 0 && cli_seconds() > deadline + x->h->limits.late) e = stuck();
        if (e) return e;
    }
}

static void leave(http_exchange *x)
{
    if (x->job) serve_job_leave(x->job);
    x->job = NULL;
}

/* Into `out`, as the answer's shape asks. False: the stream has to end with what is in `out`. */
static bool take(http_exchange *x, serve_event *e)
{
    bool good = api_answer_take(x->answer, e, &x->out);
    x->ended = e->kind == SERVE_DONE || e->kind == SERVE_FAILED;
    serve_event_free(e);
    return good;
}

/* ---- Streams ------------------------------------------------------------------------------------------- */

static bool more_out(http_exchange *x)
{
    serve_event *e;
    x->out.n = x->sent = 0;
    while (x->out.n == 0 && !x->ended) {
        e = next_event(x);
        if (!e) return false;
        if (!take(x, e)) {
            api_answer_break(&x->out);
            x->ended = true;
        }
    }
    return true;
}

/* libmicrohttpd asks for the next bytes, once the client has got those before. */
static ssize_t read_stream(void *user, uint64_t position, char *out, size_t most)
{
    http_exchange *x = user;
    size_t n;
    (void)position;
    guard_phase(x->h, x->c, HTTP_SERVES);
    if (x->sent == x->out.n && !more_out(x)) {
        leave(x);
        return MHD_CONTENT_READER_END_WITH_ERROR;
    }
    if (x->ended) leave(x);
    guard_phase(x->h, x->c, HTTP_WRITES);
    n = x->out.n - x->sent;
    if (n == 0) return MHD_CONTENT_READER_END_OF_STREAM;
    if (n > most) n = most;
    memcpy(out, x->out.data + x->sent, n);
    x->sent += n;
    return (ssize_t)n;
}

static void add_slot(struct MHD_Response *response, const http_exchange *x, uint32_t slot)
{
    char text[16];
    if (slot >= x->h->model.slots) return;
    snprintf(text, sizeof text, "%u", (unsigned)slot);
    MHD_add_response_header(response, "X-H2okv-Slot", text);
}

static enum MHD_Result stream(http_exchange *x, serve_event *first)
{
    struct MHD_Response *response;
    uint32_t slot = first->usage.slot;
    if (!take(x, first)) return out_of_memory(x);
    response = MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, 16384, read_stream, x, NULL);
    if (!response) return MHD_NO;
    add_headers(response, x, 200, "text/event-stream; charset=utf-8");
    add_slot(response, x, slot);
    return queue(x, 200, response);
}

/* ---- One object ---------------------------------------------------------------------------------------- */

static enum MHD_Result failed(http_exchange *x, serve_event *e)
{
    api_error error;
    api_error_of(e, &error);
    serve_event_free(e);
    return exchange_fail(x, &error);
}

static enum MHD_Result gather(http_exchange *x, serve_event *e)
{
    while (e && e->kind != SERVE_FAILED) {
        if (!take(x, e)) return out_of_memory(x);
        if (x->ended) return exchange_send(x, 200, "application/json", &x->out);
        e = next_event(x);
    }
    return e ? failed(x, e) : MHD_NO;
}

/* ---- Jobs ---------------------------------------------------------------------------------------------- */

static enum MHD_Result refused(http_exchange *x, enum serve_put why)
{
    api_error e;
    if (why == SERVE_STOPPING) api_fail(&e, 503, NULL, "stopping", "the server is stopping");
    else api_fail(&e, 429, NULL, "queue_full", "all slots are busy and the queue is full: try again later");
    return exchange_fail(x, &e);
}

/* The job of a request, in the queue. MHD_YES: it is there; else it was answered, or the connection has to end. */
static bool put(http_exchange *x, serve_request *r, enum MHD_Result *result)
{
    double limit = x->h->o->time_limit;
    enum serve_put how;
    x->job = serve_job_new(r, limit > 0 ? cli_seconds() + limit : 0);
    if (!x->job) {
        *result = out_of_memory(x);
        return false;
    }
    how = serve_queue_put(x->h->q, x->job);
    if (how == SERVE_QUEUED) return true;
    leave(x);
    *result = refused(x, how);
    return false;
}

enum MHD_Result exchange_run(http_exchange *x, serve_request *r)
{
    enum MHD_Result result;
    serve_event *e;
    if (!put(x, r, &result)) return result;
    x->answer = api_answer_new(serve_job_request(x->job), &x->h->model);
    if (!x->answer) return out_of_memory(x);
    e = next_event(x);
    if (!e) return MHD_NO;
    if (e->kind == SERVE_FAILED) return failed(x, e);
    return serve_job_request(x->job)->stream ? stream(x, e) : gather(x, e);
}

static enum MHD_Result show(http_exchange *x, serve_event *e)
{
    bool good = api_add_view(&x->out, &e->view);
    serve_event_free(e);
    return good ? exchange_send(x, 200, "application/json", &x->out) : out_of_memory(x);
}

enum MHD_Result exchange_look(http_exchange *x, uint32_t slot)
{
    serve_request *r = calloc(1, sizeof *r);
    enum MHD_Result result;
    serve_event *e;
    if (!r) return out_of_memory(x);
    r->kind = SERVE_LOOK;
    r->slot = slot;
    if (!put(x, r, &result)) return result;
    e = next_event(x);
    if (!e) return MHD_NO;
    if (e->kind == SERVE_VIEW) return show(x, e);
    if (e->kind == SERVE_FAILED) return failed(x, e);
    serve_event_free(e);
    return out_of_memory(x);
}

void exchange_free(http_exchange *x)
{
    api_answer_free(x->answer); /* before the job, whose request it reads */
    leave(x);
    cli_buffer_free(&x->body);
    cli_buffer_free(&x->out);
    free(x);
}
