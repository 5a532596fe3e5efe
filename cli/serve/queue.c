/*
 * queue.c - requests that wait for a slot, and the views that are asked for.
 *
 *   connections: put -> jobs:  first -> ... -> last   (at most `most` that somebody waits for)   -> take: engine
 *                       looks: first -> ... -> last   (as many as there are connections)
 *
 * A job in here belongs to the queue on the engine's side. Those that were left, or whose time is over, go at the next
 * put or take, so that they hold no place.
 */
#include "lock.h"
#include "serve.h"

#include <stdlib.h>
#include <string.h>

typedef struct entry {
    struct entry *next;
    serve_job *job;
} entry;

typedef struct list {
    entry *first, **end; /* end: where the next one is hung */
    size_t n;
} list;

struct serve_queue {
    size_t most; /* never changed */
    serve_lock lock;
    list jobs, looks;
    bool stopping;
};

static void unlink_entry(list *l, entry **at)
{
    entry *gone = *at;
    *at = gone->next;
    if (l->end == &gone->next) l->end = at;
    l->n--;
    free(gone);
}

static void fail_job(serve_job *job, int status, const char *text)
{
    serve_event *e = serve_event_new(SERVE_FAILED);
    if (e) {
        e->status = status;
        e->text = strdup(text);
        e->bytes = e->text ? strlen(e->text) : 0;
    }
    serve_job_tell(job, e);
    serve_job_let_go(job);
}

/* Under the lock: those that nobody waits for, and those whose time is over. */
static void sweep(list *l)
{
    double now = cli_seconds();
    for (entry **at = &l->first; *at;) {
        serve_job *job = (*at)->job;
        double deadline = serve_job_deadline(job);
        bool left = serve_job_left(job), late = deadline > 0 && now >= deadline;
        if (!left && !late) {
            at = &(*at)->next;
            continue;
        }
        unlink_entry(l, at);
        if (left) serve_job_let_go(job);
        else fail_job(job, 504, "the time limit passed before the request's turn came");
    }
}

/* ---- Making and ending -------------------------------------------------------------------------------- */

serve_queue *serve_queue_new(size_t most)
{
    serve_queue *q = calloc(1, sizeof *q);
    if (!q || !serve_lock_init(&q->lock)) {
        free(q);
        return NULL;
    }
    q->most = most;
    q->jobs.end = &q->jobs.first;
    q->looks.end = &q->looks.first;
    return q;
}

static void fail_all(list *l)
{
    while (l->first) {
        serve_job *job = l->first->job;
        unlink_entry(l, &l->first);
        fail_job(job, 503, "the server is stopping");
    }
}

void serve_queue_free(serve_queue *q)
{
    if (!q) return;
    fail_all(&q->jobs);
    fail_all(&q->looks);
    serve_lock_destroy(&q->lock);
    free(q);
}

/* ---- The connections' side ---------------------------------------------------------------------------- */

static enum serve_put put(serve_queue *q, list *l, entry *e)
{
    if (q->stopping) return SERVE_STOPPING;
    if (l == &q->jobs && l->n >= q->most) sweep(l);
    if (l == &q->jobs && l->n >= q->most) return SERVE_FULL;
    *l->end = e;
    l->end = &e->next;
    l->n++;
    serve_lock_wake(&q->lock);
    return SERVE_QUEUED;
}

enum serve_put serve_queue_put(serve_queue *q, serve_job *job)
{
    list *l = serve_job_request(job)->kind == SERVE_LOOK ? &q->looks : &q->jobs;
    enum serve_put result = SERVE_FULL;
    entry *e = calloc(1, sizeof *e);
    if (e) {
        e->job = job;
        serve_lock_take(&q->lock);
        result = put(q, l, e);
        serve_lock_give(&q->lock);
    }
    if (result == SERVE_QUEUED) return result;
    free(e);
    serve_job_let_go(job);
    return result;
}

size_t serve_queue_length(serve_queue *q)
{
    size_t n;
    serve_lock_take(&q->lock);
    sweep(&q->jobs);
    n = q->jobs.n;
    serve_lock_give(&q->lock);
    return n;
}

/* ---- The engine's side -------------------------------------------------------------------------------- */

/* Under the lock. */
static serve_job *first_of(list *l)
{
    serve_job *job;
    sweep(l);
    if (!l->first) return NULL;
    job = l->first->job;
    unlink_entry(l, &l->first);
    return job;
}

static serve_job *take(serve_queue *q, bool only_looks)
{
    serve_job *job = first_of(&q->looks);
    if (only_looks) sweep(&q->jobs);
    else if (!job) job = first_of(&q->jobs);
    return job;
}

serve_job *serve_queue_take(serve_queue *q, double seconds, bool only_looks)
{
    double until = cli_seconds() + seconds;
    serve_job *job;
    serve_lock_take(&q->lock);
    while (!(job = take(q, only_looks)) && !q->stopping && !only_looks && serve_lock_wait(&q->lock, until)) {}
    serve_lock_give(&q->lock);
    return job;
}

void serve_queue_stop(serve_queue *q)
{
    serve_lock_take(&q->lock);
    q->stopping = true;
    serve_lock_wake(&q->lock);
    serve_lock_give(&q->lock);
}

bool serve_queue_stopping(serve_queue *q)
{
    bool stopping;
    serve_lock_take(&q->lock);
    stopping = q->stopping;
    serve_lock_give(&q->lock);
    return stopping;
}
