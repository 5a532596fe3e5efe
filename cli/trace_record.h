/*
 * trace_record.h - what became of every token of a run, lane by lane, for the page that `h2okv trace` writes.
 *
 *   pass         0     1     2     ...          a pass, or a change of the budget between passes
 *   gone[lane]   token -> the pass at whose end it went, or TRACE_STAYS
 *   moments      some of the passes, at most `most_moments`: the scores of all tokens that lanes held then
 *
 * With these two the tokens that a lane held after any pass are known, so scores need no positions: at a moment each
 * lane has pass.live of them, by rising position.
 */
#ifndef H2OKV_CLI_TRACE_RECORD_H
#define H2OKV_CLI_TRACE_RECORD_H

#include "cli.h"

#include "h2okv/h2okv.h"

enum {
    TRACE_STAYS = UINT16_MAX,
    TRACE_MOST_TOKENS = 65000,       /* passes are counted in 16 bits */
    TRACE_MOST_PLACES = 8 * 1000000, /* lanes x tokens: a page of some 32 MB */
};

typedef struct trace_pass {
    uint32_t seen;           /* tokens read so far */
    uint32_t live;           /* tokens that each lane holds after the pass */
    uint32_t budget, recent; /* in that pass */
} trace_pass;

typedef struct trace_moment {
    uint32_t pass;
    float *score; /* [lanes][live of that pass] */
} trace_moment;

typedef struct recording {
    uint32_t lanes, n_prompt, most_tokens;
    uint16_t *gone;   /* [lanes][most_tokens] */
    float *last;      /* [lanes][most_tokens], the score with which it went; 0: it stays */
    trace_pass *pass; /* [n_passes] */
    uint32_t n_passes, pass_room;
    trace_moment *moment; /* [n_moments], at most most_moments */
    uint32_t n_moments, most_moments;
    uint32_t prompt_step, new_step; /* tokens from one moment to the next */
    bool failed;      /* out of memory: the recording is of no use */
} recording;

/* n_new: the most tokens that come after the prompt. False: out of memory. recording_free in any case. */
bool recording_start(recording *r, uint32_t lanes, uint32_t n_prompt, uint32_t n_new, uint32_t budget);

/* An h2okv_options.on_event; `user` is the recording. */
void recording_event(void *user, const h2okv_event *event);

/* After each pass and each change of the budget: `seen` tokens have been read. */
void recording_pass(recording *r, const h2okv_cache *cache, uint32_t seen);

/* At the end, so that there are scores of the last pass. */
void recording_end(recording *r, const h2okv_cache *cache);

void recording_free(recording *r);

static inline uint32_t recording_tokens(const recording *r)
{
    return r->n_passes > 0 ? r->pass[r->n_passes - 1].seen : 0;
}

/* ---- trace_page.c ------------------------------------------------------------------------------------- */

typedef struct trace_about {
    const char *model, *text_file, *policy; /* any bytes */
    uint32_t layers, heads;                 /* of lanes: layers * heads of them, heads within a layer */
    uint32_t cells, sinks, pool, guide;     /* guide: tokens that the prompt was read for */
    double decay;
    const int32_t (*pin)[2];                /* [n_pins], positions first..end-1 */
    uint32_t n_pins;
    bool stopped;                           /* by Ctrl-C */
    const char *bytes;                      /* of all tokens' texts, one after the other */
    const uint32_t *length;                 /* [tokens], bytes of each */
} trace_about;

/* The page. False: out of memory; errors of the stream are for the caller to find. */
bool trace_page_write(FILE *out, const recording *r, const trace_about *about);

#endif
