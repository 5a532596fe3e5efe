/*
 * job.c - one request on its way: two threads hold it, and whoever lets go last frees it.
 *
 *   engine: tell -> first -> event -> ... -> last -> wait: connection
 *
 * Once DONE or FAILED was told, `ended` is set and what is told after it is thrown away; an engine that lets go of a
 * job without an end has failed, and the connection hears it. `spare` is made beforehand, so that this can be said also
 * when memory is out. What the connection did not fetch goes with the job.
 */
#include "lock.h"
#include "serve.h"

#include <stdlib.h>
#include <string.h>

struct serve_job {
    serve_request *request; /* this and the next: never changed */
    double deadline;
    serve_lock lock;        /* of all below */
    serve_event *first, *last, *spare;
    bool ended, left, let_go;
};

/* ---- Events ------------------------------------------------------------------------------------------- */

serve_event *serve_event_new(enum serve_event_kind kind)
{
    serve_event *e = calloc(1, sizeof *e);
    if (e) e->kind = kind;
    return e;
}

void serve_token_clear(serve_token *t)
{
    free(t->chosen.bytes);
    for (size_t i = 0; i < t->n_top; i++) free(t->top[i].bytes);
    *t = (serve_token){ 0 };
}

void serve_event_free(serve_event *e)
{
    if (!e) return;
    for (size_t i = 0; i < e->view.n; i++) free(e->view.tokens[i].bytes);
    free(e->view.tokens);
    for (size_t i = 0; i < e->n_tokens; i++) serve_token_clear(&e->tokens[i]);
    free(e->tokens);
    free(e->text);
    free(e);
}

/* ---- The job ------------------------------------------------------------------------------------------ */

static void free_job(serve_job *job)
{
    while (job->first) {
        serve_event *next = job->first->next;
        serve_event_free(job->first);
        job->first = next;
    }
    serve_event_free(job->spare);
    serve_request_free(job->request);
    serve_lock_destroy(&job->lock);
    free(job);
}

static serve_event *failure(void)
{
    serve_event *e = serve_event_new(SERVE_FAILED);
    if (!e) return NULL;
    e->status = 500;
    e->text = strdup("the engine failed, or has no memory left: try again later");
    if (e->text) e->bytes = strlen(e->text);
    return e;
}

serve_job *serve_job_new(serve_request *request, double deadline)
{
    serve_job *job = calloc(1, sizeof *job);
    if (job && serve_lock_init(&job->lock)) {
        job->request = request;
        job->deadline = deadline;
        job->spare = failure();
        if (job->spare && job->spare->text) return job;
        free_job(job);
        return NULL;
    }
    free(job);
    serve_request_free(request);
    return NULL;
}

const serve_request *serve_job_request(const serve_job *job)
{
    return job->request;
}

double serve_job_deadline(const serve_job *job)
{
    return job->deadline;
}

/* ---- The connection's side ---------------------------------------------------------------------------- */

serve_event *serve_job_wait(serve_job *job, double seconds)
{
    double until = cli_seconds() + seconds;
    serve_event *e;
    serve_lock_take(&job->lock);
    while (!job->first && !job->ended && serve_lock_wait(&job->lock, until)) {}
    e = job->first;
    if (e) {
        job->first = e->next;
        if (!job->first) job->last = NULL;
        e->next = NULL;
    }
    serve_lock_give(&job->lock);
    return e;
}

void serve_job_leave(serve_job *job)
{
    bool alone;
    serve_lock_take(&job->lock);
    job->left = true;
    alone = job->let_go;
    serve_lock_give(&job->lock);
    if (alone) free_job(job);
}

/* ---- The engine's side -------------------------------------------------------------------------------- */

/* Under the lock. */
static void append(serve_job *job, serve_event *e)
{
    e->next = NULL;
    if (job->last) job->last->next = e;
    else job->first = e;
    job->last = e;
    job->ended = e->kind == SERVE_DONE || e->kind == SERVE_FAILED;
    serve_lock_wake(&job->lock);
}

static void fail(serve_job *job)
{
    serve_event *e = job->spare;
    job->spare = NULL;
    append(job, e);
}

void serve_job_tell(serve_job *job, serve_event *e)
{
    bool used = true;
    serve_lock_take(&job->lock);
    if (job->ended || job->left) used = false;
    else if (e) append(job, e);
    else fail(job);
    serve_lock_give(&job->lock);
    if (!used) serve_event_free(e);
}

bool serve_job_left(serve_job *job)
{
    bool left;
    serve_lock_take(&job->lock);
    left = job->left;
    serve_lock_give(&job->lock);
    return left;
}

void serve_job_let_go(serve_job *job)
{
    bool alone;
    serve_lock_take(&job->lock);
    if (!job->ended && !job->left) fail(job);
    job->let_go = true;
    alone = job->left;
    serve_lock_give(&job->lock);
    if (alone) free_job(job);
}
