/*
 * serve.h - what the two halves of `h2okv serve` share: HTTP on one side, the model on the other.
 *
 *   connection threads (http.c, request.c, answer.c)          one engine thread (../llama/serve.c)
 *     body -> serve_request -> serve_job --- serve_queue ---> a slot: one sequence of the context
 *     client <---- JSON or SSE <------- events of the job <--- all busy slots decoded in one batch
 *
 * A job belongs to both sides, and the one that lets go last frees it. The connection's side only reads events and
 * says `serve_job_leave`; the engine's side only adds events, ends with one SERVE_DONE or SERVE_FAILED, and looks at
 * serve_job_left between passes. Everything in a request is checked by request.c; nothing here knows llama.cpp.
 */
#ifndef H2OKV_CLI_SERVE_H
#define H2OKV_CLI_SERVE_H

#include "../cache_options.h"
#include "../cli.h"

/* ---- a request ---------------------------------------------------------------------------------------- */

enum serve_kind {
    SERVE_CHAT,       /* messages, through the model's chat template */
    SERVE_COMPLETION, /* one prompt */
    SERVE_LOOK,       /* what a slot's cache holds: answered by a SERVE_VIEW, between two passes */
};

typedef struct serve_message {
    char *role, *content; /* UTF-8, ending in \0 */
    size_t content_bytes;
} serve_message;

enum { SERVE_MOST_STOPS = 16, SERVE_MOST_LOGPROBS = 20, SERVE_MOST_PINS = 16 };

/* As the client meant it: what it left out has its default. */
typedef struct serve_request {
    enum serve_kind kind;
    serve_message *messages;       /* SERVE_CHAT: [n_messages] */
    size_t n_messages;
    char *prompt;                  /* SERVE_COMPLETION */
    size_t prompt_bytes;
    uint32_t max_tokens;           /* 0: until the end of the trained context */
    double temperature, top_p;     /* temperature 0: the likeliest token */
    uint32_t seed;
    bool has_seed;
    char *stops[SERVE_MOST_STOPS]; /* none is empty; they are no part of the answer */
    size_t n_stops;
    int logprobs;                  /* how many of the likeliest tokens to name with each; -1: no logprobs at all */
    char *grammar;                 /* GBNF, or NULL; response_format json_object comes as one */
    bool stream, stream_usage;
    uint32_t budget;               /* of this request; 0: the server's */
    bool guide;                    /* read the prompt with its last message in mind */
    bool pin_system;               /* chat: the leading system messages are pinned */
    struct { int32_t first, end; } pins[SERVE_MOST_PINS];
    size_t n_pins;
    bool reuse_lossy;              /* go on from a slot's conversation also where tokens of it were evicted */
    uint32_t slot;                 /* SERVE_LOOK */
} serve_request;

void serve_request_free(serve_request *r); /* with all that it points to; all of it from malloc. NULL is allowed */

/* ---- events ------------------------------------------------------------------------------------------- */

typedef struct serve_logprob {
    char *bytes;     /* the token's, maybe not whole characters */
    size_t n_bytes;
    double logprob;  /* of the model's own distribution, before temperature and top_p */
} serve_logprob;

/* A token that was chosen, with the likeliest ones, the chosen one first. */
typedef struct serve_token {
    serve_logprob chosen;
    serve_logprob top[SERVE_MOST_LOGPROBS];
    size_t n_top;
} serve_token;

void serve_token_clear(serve_token *t); /* frees what it points to */

enum serve_finish { SERVE_STOP, SERVE_LENGTH }; /* an end token or a stop string; max_tokens or the context's end */

typedef struct serve_usage {
    uint32_t prompt, completion, evicted; /* tokens; evicted: from all lanes, in this request's time */
    uint32_t reused;                      /* of the prompt, from the slot's conversation before */
    bool lossy;                           /* what was reused had lost tokens */
    uint32_t slot;                        /* where the conversation is */
    double prompt_s, decode_s;
} serve_usage;

/* A token of a slot's conversation, and what became of it. */
typedef struct serve_view_token {
    char *bytes;
    size_t n_bytes;
    float kept;  /* share of lanes that hold it: 0 evicted, 1 in all */
    float score; /* its mean score over the lanes that hold it, as a share of the largest one; 0..1 */
    enum { SERVE_RECENT, SERVE_HEAVY, SERVE_PINNED, SERVE_SINK, SERVE_EVICTED } state;
} serve_view_token;

typedef struct serve_view {
    serve_view_token *tokens; /* [n], position by position */
    size_t n;
    uint32_t slot, budget, recent, cells; /* cells: the most that any lane uses now */
    bool busy;
    double tokens_per_s;                  /* of the last answer, up to now */
} serve_view;

enum serve_event_kind { SERVE_TEXT, SERVE_VIEW, SERVE_DONE, SERVE_FAILED };

/* What the engine tells a connection. It owns what it points to. */
typedef struct serve_event {
    struct serve_event *next;
    enum serve_event_kind kind;
    char *text;                 /* SERVE_TEXT: whole characters of UTF-8, at least one; never a part of a stop string.
                                   SERVE_FAILED: what is wrong and what to do */
    size_t bytes;
    serve_token *tokens;        /* SERVE_TEXT with logprobs: [n_tokens] that the text is made of */
    size_t n_tokens;
    serve_view view;            /* SERVE_VIEW */
    enum serve_finish finish;   /* SERVE_DONE */
    serve_usage usage;          /* SERVE_DONE */
    int status;                 /* SERVE_FAILED: HTTP's: 400 the request cannot be, 503 stopping, 504 its time is over,
                                   500 the engine failed */
    const char *param;          /* SERVE_FAILED: the field's name, or NULL */
} serve_event;

serve_event *serve_event_new(enum serve_event_kind kind); /* NULL: out of memory */
void serve_event_free(serve_event *e);

/* ---- a job: one request on its way (job.c) ------------------------------------------------------------ */

typedef struct serve_job serve_job;

/* Takes over the request in any case. NULL: out of memory. The caller holds the connection's side. deadline: seconds
 * of cli_seconds' clock; 0: none. */
serve_job *serve_job_new(serve_request *request, double deadline);
const serve_request *serve_job_request(const serve_job *job);
double serve_job_deadline(const serve_job *job);

/* The connection's side. Waits at most `seconds` for an event; NULL: none came. The event is the caller's. After the
 * last one (SERVE_DONE, SERVE_FAILED) no more come, and NULL comes at once. */
serve_event *serve_job_wait(serve_job *job, double seconds);
void serve_job_leave(serve_job *job); /* the client is gone, or has all; the job must not be touched afterwards */

/* The engine's side. Adding takes over the event, which may be NULL (out of memory: the job then fails with 500). What
 * comes after the last event is thrown away, and so is what nobody reads; a job that is let go without an end fails
 * with 500. */
void serve_job_tell(serve_job *job, serve_event *e);
bool serve_job_left(serve_job *job);       /* nobody reads its events any more */
void serve_job_let_go(serve_job *job);     /* after its last event; must not be touched afterwards */

/* ---- the queue (queue.c) ------------------------------------------------------------------------------ */

typedef struct serve_queue serve_queue;

serve_queue *serve_queue_new(size_t most); /* jobs that wait, looks not counted; NULL: out of memory */
void serve_queue_free(serve_queue *q);     /* fails the jobs in it with 503 */

enum serve_put { SERVE_QUEUED, SERVE_FULL, SERVE_STOPPING };
/* The engine's side of the job is the queue's then, in any case: a job that is refused is let go. */
enum serve_put serve_queue_put(serve_queue *q, serve_job *job);

/* The engine's thread: the first job that nobody has left, looks first; NULL: none came within `seconds`, or only
 * looks were asked for and there are none. Jobs past their deadline are failed with 504 on the way. */
serve_job *serve_queue_take(serve_queue *q, double seconds, bool only_looks);
void serve_queue_stop(serve_queue *q);     /* puts are refused from now on; those that wait are still taken */
bool serve_queue_stopping(serve_queue *q);
size_t serve_queue_length(serve_queue *q); /* jobs that wait and that nobody has left, looks not counted */

/* ---- what the engine counts, for /metrics and /health (stats.c) --------------------------------------- */

enum { SERVE_MOST_SLOTS = 64 };

typedef struct serve_slot_stats {
    bool busy;
    uint32_t budget, cells; /* cells: in use now, the most of any lane */
    int32_t next_pos;
} serve_slot_stats;

typedef struct serve_numbers {
    uint64_t requests, failed, left;            /* taken by the engine: all, ended by SERVE_FAILED, by a client gone */
    uint64_t prompt_tokens, new_tokens, reused_tokens, evictions; /* evictions: of (lane, token) */
    double prompt_s, decode_s;                  /* of the engine, summed up over batches */
    uint32_t n_slots;
    serve_slot_stats slots[SERVE_MOST_SLOTS];
} serve_numbers;

typedef struct serve_stats serve_stats; /* a lock and the numbers */
serve_stats *serve_stats_new(uint32_t n_slots);
void serve_stats_free(serve_stats *s);
void serve_stats_set(serve_stats *s, const serve_numbers *n); /* the engine's thread, after a pass */
void serve_stats_get(serve_stats *s, serve_numbers *out);

/* ---- options and the two halves ----------------------------------------------------------------------- */

typedef struct serve_options {
    const char *model;           /* file, or NULL: the default one */
    const char *host;            /* default 127.0.0.1 */
    uint16_t port;               /* default 8080; 0: any free one, printed */
    uint32_t slots, queue;       /* defaults 4 and 64 */
    uint32_t threads;
    uint32_t most_tokens;        /* --max-tokens: of an answer that names none */
    double time_limit;           /* seconds a request may take; 0: none */
    size_t most_body;            /* bytes */
    uint32_t connections;        /* most at once */
    const char *api_key;         /* or NULL; from --api-key-file or H2OKV_API_KEY, so that it is in no process list */
    const char *template;        /* as chat's --template */
    cache_options cache;
    bool mapped, verbose;
} serve_options;

/* What HTTP tells of the model. Valid as long as the engine. */
typedef struct serve_model {
    const char *name;            /* the file's name without its end, as /v1/models lists it */
    int64_t created;             /* when the server began; seconds since 1970 */
    uint32_t trained;            /* context that it was trained for; tokens */
    uint32_t slots, budget, room; /* room: the largest budget that a request may ask for */
    const char *policy, *isa;
    bool chat;                   /* it has a chat template */
} serve_model;

/* http.c. Serves until http_stop; connections' jobs go into `q`. An exit code; on failure an error has been printed. */
typedef struct serve_http serve_http;
int http_start(serve_http **out, const serve_options *o, const serve_model *model, serve_queue *q, serve_stats *s);
uint16_t http_port(const serve_http *h);
void http_stop(serve_http *h); /* takes no new connection, waits for those that there are, and frees; NULL is allowed */

#ifdef H2OKV_HAVE_LLAMA
/* llama/serve.c: loads the model, starts HTTP, runs the slots on this thread until SIGTERM or Ctrl-C, drains, and
 * returns the exit code. */
int serve_model_run(const serve_options *o);
#endif

#endif
