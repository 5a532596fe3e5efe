/* replay.h - a replay of a trace as cmd_replay.c runs it and replay_tell.c tells of it. */
#ifndef H2OKV_CLI_REPLAY_H
#define H2OKV_CLI_REPLAY_H

#include "trace.h"

#include "h2okv/h2okv.h"

#include <jansson.h>

typedef struct replay_options {
    bool check, json;
} replay_options;

typedef struct replay {
    replay_options options;
    trace_reader trace;
    uint32_t most_new, most_budget, cells; /* most_new: with probes */
    h2okv_cache *cache;
    int32_t *engine;    /* [lanes][cells], the position whose K and V lie there; -1: none */
    uint32_t *free_cell; /* [n_free] */
    uint32_t n_free;
    uint32_t *column;   /* [cells], the cell of each column */
    int32_t *pos;       /* [cells], one lane's kept positions */
    double *score;      /* [cells] */
    int32_t *came;      /* [cells], positions that came with a step */
    int32_t *went;      /* [lanes][cells], positions that a step drove out */
    uint32_t *n_went;   /* [lanes] */
    float *rows;        /* a mass as weights: [3][queries][columns] */
    json_t *difference; /* of --check, or NULL */
} replay;

/* The account: the budget, what each step brought and drove out, what is left. */
void replay_tell_header(const replay *r);
void replay_tell_step(const replay *r);
void replay_tell_end(replay *r);

/* The result as one JSON object; `code` is what it came to. Returns the exit code. */
int replay_tell_json(replay *r, int code);

#endif
