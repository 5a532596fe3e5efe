/*
 * trace.h - reads recorded attention, a line at a time (docs/trace-format.md).
 *
 *   line 1        header      {"format": "h2okv-trace", "version": 1, "mode": ..., "heads": ..., ...}
 *   line 2...     one step    {"new": n, "weights": ..., "kept": ..., "scores": ...}
 *
 * or, in version 2, masses instead of weights.
 *
 * The reader follows how many tokens each lane holds, so that it can say what a step's lengths have to be.
 */
#ifndef H2OKV_CLI_TRACE_H
#define H2OKV_CLI_TRACE_H

#include "cli.h"

enum { TRACE_MOST_PINS = 16, TRACE_POLICY_ROOM = 64 };
#define TRACE_SAME UINT32_MAX

typedef struct trace_header {
    bool mass;        /* version 2 */
    bool shared;      /* one lane for all heads; else a lane for each group of heads */
    uint32_t heads;   /* query heads */
    uint32_t group;   /* query heads that share a lane; all of them in shared mode */
    uint32_t lanes;   /* heads / group */
    uint32_t recent, heavy, sinks, grace;
    bool count_self;
    double decay;
    char policy[TRACE_POLICY_ROOM]; /* "h2o" in version 1, as pool, seed and pins are 0 */
    uint32_t pool, seed, n_pins;
    int32_t pin[TRACE_MOST_PINS][2]; /* positions first..end-1 */
} trace_header;

typedef struct trace_step {
    uint32_t n_new;
    uint32_t n_probe;  /* tokens behind them whose attention alone counts, and which then go again */
    uint32_t spread;   /* with a probe: how far what it gives goes */
    uint32_t budget, recent; /* from this step on; TRACE_SAME: as before */
    uint32_t columns;  /* tokens held before the step + new ones + probe */
    bool has_weights;  /* or masses; else no cell received attention */
    double *mass;      /* [lanes][columns] */
    float *weights;    /* [heads][n_new][columns]; in shared mode 0 for the new tokens */
    uint32_t n_kept;   /* what a lane holds after the step */
    bool has_kept, has_scores;
    int32_t *kept;     /* [lanes][n_kept] */
    double *scores;    /* [lanes][n_kept] */
} trace_step;

typedef struct trace_reader {
    FILE *file;
    const char *path;
    bool need_expected; /* a step without kept or scores is an error */
    uint64_t line;      /* number of the line read last, from 1 */
    uint64_t steps;
    uint64_t tokens;    /* seen so far = position of the next one */
    uint32_t live;      /* tokens a lane holds */
    uint32_t budget;    /* of the step read last */
    trace_header header;
    trace_step step;
    int exit_code;      /* for the failure that `error` tells */
    char error[512];

    char *text; /* the line */
    size_t text_room;
    size_t weights_room, mass_room, kept_room; /* in elements */
} trace_reader;

/* Opens the file and reads the header. On false r->error and r->exit_code say why. trace_close in any
 * case. */
bool trace_open(trace_reader *r, const char *path, bool need_expected);

/* Reads a step into r->step: 1 when there is one, 0 at the end of the file, -1 on an error. */
int trace_next(trace_reader *r);

/* Back to the first step. */
bool trace_rewind(trace_reader *r);

void trace_close(trace_reader *r);

#endif
