/*
 * http.h - what the files with sockets and threads share.
 *
 *   http.c     the daemon: listening, bodies, the end        guard.c    connections, and those that take too long
 *   route.c    method, path, key, type -> what answers       exchange.c a job's events -> the response
 *
 * libmicrohttpd gives each connection a thread, and that thread may wait: for an event, or for the client. `lock` is of
 * the connections and the counts; the rest of a server never changes, and an exchange belongs to its connection's
 * thread.
 */
#ifndef H2OKV_CLI_SERVE_HTTP_H
#define H2OKV_CLI_SERVE_HTTP_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE 1 /* POLLRDHUP */
#endif

#include "api.h"
#include "lock.h"

#include <microhttpd.h>

/* Seconds; tests have shorter ones. */
typedef struct http_limits {
    double request; /* for a request to come whole, from the connection's start or the answer before */
    double write;   /* for the client to take what is sent */
    double late;    /* past a job's deadline until the engine counts as stuck */
    double stop;    /* for open answers, when the server ends */
} http_limits;

int http_start_within(serve_http **out, const serve_options *o, const serve_model *model, serve_queue *q,
                      serve_stats *s, const http_limits *limits);

enum http_phase {
    HTTP_WAITS,  /* for a request */
    HTTP_SERVES, /* a thread of ours is at work, or waits for the engine */
    HTTP_WRITES, /* libmicrohttpd sends */
};

typedef struct http_connection {
    struct http_connection *next, **at; /* at: what points here */
    int fd;                             /* of our own, so that it cannot become another file's */
    enum http_phase phase;
    double since;
} http_connection;

struct serve_http {
    struct MHD_Daemon *daemon;
    const serve_options *o;
    serve_model model;
    char *name;           /* of the model: text in any case */
    api_rules rules;
    serve_queue *q;
    serve_stats *stats;
    http_limits limits;
    uint16_t port;
    bool guarded, loopback;
    pthread_t guard;
    serve_lock lock;      /* of all below */
    http_connection *first;
    bool stopping, ended; /* stopping: connections without a request are closed; ended: the guard goes */
    api_counts counts;
};

/* One request and its answer. */
typedef struct http_exchange {
    serve_http *h;
    http_connection *c;
    struct MHD_Connection *mhd;
    unsigned route;          /* in api_route_names */
    const char *rest;        /* of the path, behind the route's */
    api_error early;         /* status 0: none. Known before the body came */
    cli_buffer body;
    size_t taken;            /* bytes of the body so far */
    bool whole;              /* the request is here; it is answered */

    serve_job *job;
    api_answer *answer;
    cli_buffer out;          /* of a stream: what the client has not got, from `sent` on */
    size_t sent;
    bool ended;              /* the last event was taken */
} http_exchange;

/* ---- guard.c ------------------------------------------------------------------------------------------ */

bool guard_start(serve_http *h);
void guard_end(serve_http *h);
http_connection *guard_add(serve_http *h, int fd); /* NULL: no memory, or no file left */
bool guard_crowded(serve_http *h);                   /* as many requests at once as there may be connections */
void guard_remove(serve_http *h, http_connection *c);
void guard_phase(serve_http *h, http_connection *c, enum http_phase phase);
void guard_wait_for_all(serve_http *h, double seconds); /* for their end; those without a request end at once */

/* ---- route.c ------------------------------------------------------------------------------------------ */

/* Finds what answers, and what is wrong already, before the body comes. */
void route_find(http_exchange *x, const char *path, const char *method);
enum MHD_Result route_answer(http_exchange *x); /* once the body is there */
const char *route_methods(unsigned route);      /* as in the header Allow */

/* ---- exchange.c --------------------------------------------------------------------------------------- */

enum MHD_Result exchange_send(http_exchange *x, int status, const char *type, cli_buffer *body); /* takes it over */
enum MHD_Result exchange_fail(http_exchange *x, const api_error *e);
enum MHD_Result exchange_run(http_exchange *x, serve_request *r); /* takes over the request */
enum MHD_Result exchange_look(http_exchange *x, uint32_t slot);
void exchange_free(http_exchange *x);

#endif
