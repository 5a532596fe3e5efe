/*
 * guard.c - the connections that there are, and a thread that closes those that take too long.
 *
 *   WAITS --request is whole--> SERVES --first bytes--> WRITES --taken--> SERVES ... --end of the answer--> WAITS
 *
 * A client that sends a byte now and then, or that reads none, holds a thread; so what is limited is the time in which
 * a request comes whole, and in which the client takes what it was sent, not the time between two bytes. Time in which
 * the engine works is not limited here.
 *
 * There are SPARE more connections than --connections: past that number the one that has waited longest is closed, so
 * that idle ones keep nobody out, and when none is idle the new one hears that there are too many.
 */
#include "http.h"

#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#define TICK 0.1 /* s */

/* Under the lock. The thread of the connection hears it from its next read or write. */
static void cut(http_connection *c)
{
    shutdown(c->fd, SHUT_RDWR);
}

static bool too_long(const serve_http *h, const http_connection *c, double now)
{
    switch (c->phase) {
    case HTTP_WAITS: return h->stopping || now - c->since > h->limits.request;
    case HTTP_WRITES: return now - c->since > h->limits.write;
    case HTTP_SERVES: break;
    }
    return false;
}

static void *watch(void *user)
{
    serve_http *h = user;
    serve_lock_take(&h->lock);
    while (!h->ended) {
        double now = cli_seconds();
        for (http_connection *c = h->first; c; c = c->next) {
            if (too_long(h, c, now)) cut(c);
        }
        while (!h->ended && serve_lock_wait(&h->lock, now + TICK)) {}
    }
    serve_lock_give(&h->lock);
    return NULL;
}

bool guard_start(serve_http *h)
{
    h->guarded = pthread_create(&h->guard, NULL, watch, h) == 0;
    return h->guarded;
}

void guard_end(serve_http *h)
{
    if (!h->guarded) return;
    serve_lock_take(&h->lock);
    h->ended = true;
    serve_lock_wake(&h->lock);
    serve_lock_give(&h->lock);
    pthread_join(h->guard, NULL);
    h->guarded = false;
}

/* ---- Connections --------------------------------------------------------------------------------------- */

/* Under the lock. */
static void cut_longest_waiting(serve_http *h, const http_connection *but)
{
    http_connection *longest = NULL;
    for (http_connection *c = h->first; c; c = c->next) {
        if (c != but && c->phase == HTTP_WAITS && (!longest || c->since < longest->since)) longest = c;
    }
    if (longest) cut(longest);
}

bool guard_crowded(serve_http *h)
{
    uint32_t busy = 0;
    serve_lock_take(&h->lock);
    for (http_connection *c = h->first; c; c = c->next) busy += c->phase != HTTP_WAITS;
    serve_lock_give(&h->lock);
    return busy >= h->o->connections;
}

http_connection *guard_add(serve_http *h, int fd)
{
    http_connection *c = calloc(1, sizeof *c);
    if (c) c->fd = dup(fd);
    if (!c || c->fd < 0) {
        free(c);
        return NULL;
    }
    c->since = cli_seconds();
    serve_lock_take(&h->lock);
    c->next = h->first;
    c->at = &h->first;
    if (c->next) c->next->at = &c->next;
    h->first = c;
    h->counts.connections++;
    if (h->counts.connections > h->o->connections) cut_longest_waiting(h, c);
    serve_lock_give(&h->lock);
    return c;
}

void guard_remove(serve_http *h, http_connection *c)
{
    serve_lock_take(&h->lock);
    *c->at = c->next;
    if (c->next) c->next->at = c->at;
    h->counts.connections--;
    serve_lock_wake(&h->lock);
    serve_lock_give(&h->lock);
    close(c->fd);
    free(c);
}

void guard_phase(serve_http *h, http_connection *c, enum http_phase phase)
{
    serve_lock_take(&h->lock);
    c->phase = phase;
    c->since = cli_seconds();
    if (h->stopping && phase == HTTP_WAITS) cut(c);
    serve_lock_give(&h->lock);
}

/* ---- The end ------------------------------------------------------------------------------------------- */

void guard_wait_for_all(serve_http *h, double seconds)
{
    double until = cli_seconds() + seconds;
    serve_lock_take(&h->lock);
    h->stopping = true;
    for (http_connection *c = h->first; c; c = c->next) {
        if (c->phase == HTTP_WAITS) cut(c);
    }
    while (h->first && serve_lock_wait(&h->lock, until)) {}
    serve_lock_give(&h->lock);
}
