/*
 * trace_write.h - records a run as a trace of masses (docs/trace-format.md, version 2) that `h2okv replay` can replay.
 *
 *   mass (each lane, in parts) -> pass -> one line
 *
 * Told in this order for every pass; budget and recent are read from the cache, and how long a probe was follows from
 * how many tokens a lane had when its mass came.
 */
#ifndef H2OKV_CLI_TRACE_WRITE_H
#define H2OKV_CLI_TRACE_WRITE_H

#include "cache_options.h"

#include "h2okv/h2okv.h"

typedef struct trace_writer {
    cli_saving file;
    h2okv_options options;        /* the cache's, at the start */
    uint32_t budget, recent;      /* as the file has them so far */
    uint32_t seen, live;          /* tokens read and held after the last pass */
    uint32_t columns;             /* tokens that lanes had when the pass's masses came; 0: none came */
    uint32_t spread;              /* of the probes of a guided reading */
    double *mass;                 /* [lanes][cells], by rising position */
    bool *has_mass;               /* [lanes] */
    int32_t *pos;                 /* [cells] */
    double *score;                /* [cells] */
    uint64_t steps;
} trace_writer;

/* Opens the file. Then, when there is a cache, the header; from then on the others may be called. False: an error has
 * been printed. trace_writer_drop in any case, or trace_writer_keep, which makes the file appear. */
bool trace_writer_open(trace_writer *w, const char *command, const char *path);
bool trace_writer_begin(trace_writer *w, const h2okv_cache *cache, const cache_options *options, const char *model);
bool trace_writer_keep(trace_writer *w);
void trace_writer_drop(trace_writer *w);

void trace_writer_mass(trace_writer *w, const h2okv_cache *cache, uint32_t lane, const double *mass);
/* False: the file cannot be written; trace_writer_keep then says why, and removes it. */
bool trace_writer_pass(trace_writer *w, const h2okv_cache *cache, uint32_t seen);
void trace_writer_guided(trace_writer *w, uint32_t spread);

#endif
