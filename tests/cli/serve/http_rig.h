/*
 * http_rig.h - a server on 127.0.0.1 with an engine that plays scripts, and clients that speak bytes.
 *
 *   http_rig *r = rig_start((rig_setup){ 0 });
 *   reply a = ask(r, "POST", "/v1/completions", "{\"prompt\":\"words 3\"}");
 *
 * The prompt, or the last message, tells the engine what to do:
 *   words N [MS]   N words, MS milliseconds between two, and an end      fail S         an error with status S at once
 *   late S         a word, then an error with status S                   never          nothing, until the client leaves
 *   letgo          the job is dropped without an end                     broken         text that is half a character
 *   flood          words of 64 KiB until the client leaves               letters        characters of 2 to 4 bytes
 */
#ifndef TEST_HTTP_RIG_H
#define TEST_HTTP_RIG_H

#include "serve/http.h"

#include "support/check.h"

typedef struct http_rig http_rig;

typedef struct rig_setup {
    const char *key, *host; /* host: 127.0.0.1 */
    uint32_t queue, slots, connections; /* 0: 4, 2, 64 */
    size_t most_body;       /* 0: 65536 */
    double time_limit;
    http_limits limits;     /* 0: 20 s each */
    bool no_template;
} rig_setup;

typedef struct rig_seen { /* by the engine */
    unsigned taken, left;
} rig_seen;

http_rig *rig_start(rig_setup setup);
void rig_stop(http_rig *r);  /* drains, stops and frees */
void rig_stop_http(http_rig *r); /* only HTTP: what http_stop does while the engine is stuck; rig_stop goes on */
rig_seen rig_look(http_rig *r);
unsigned rig_port(const http_rig *r);
serve_queue *rig_queue(const http_rig *r);
void rig_wait_for_left(http_rig *r, unsigned n);  /* until n jobs were left: fails after 10 s */
void rig_wait_for_taken(http_rig *r, unsigned n); /* the same */
bool rig_alive(http_rig *r); /* /health says ok */

/* ---- Clients ------------------------------------------------------------------------------------------- */

typedef struct reply {
    int status;       /* 0: the connection ended without one */
    char *head, *body;
    size_t n_body;
    bool cut;         /* the connection ended in it */
} reply;

int dial(const http_rig *r);
void say(int fd, const char *bytes);
void say_bytes(int fd, const char *bytes, size_t n); /* a closed connection is no failure */
reply hear(int fd);         /* one answer; waits 10 s at most */
bool hung_up(int fd);       /* the server closes within 10 s, whatever it says before */
char *hear_some(int fd);    /* what there is next; the caller frees it */
void reply_free(reply *a);
const char *reply_header(const reply *a, const char *name); /* NULL: it is not there; static */

reply ask(http_rig *r, const char *method, const char *path, const char *body); /* a connection of its own */
reply ask_with(http_rig *r, const char *method, const char *path, const char *headers, const char *body);
void post(int fd, const char *path, const char *body); /* only sends */

void expect_reply(reply a, int status, const char *text); /* and frees it */

#endif
