/*
 * trace_rig.h - a run without a model: a small cache, tokens with hostile texts, and the page that shows them.
 *
 * The masses are drawn so that lanes differ; `rig.kept` has the tokens that each lane holds at the end, from the cache.
 */
#ifndef TEST_TRACE_RIG_H
#define TEST_TRACE_RIG_H

#include "trace_record.h"

enum { RIG_LAYERS = 3, RIG_HEADS = 2, RIG_LANES = 6, RIG_PASS = 8, RIG_BUDGET = 12, RIG_RECENT = 4, RIG_SINKS = 2 };
enum { RIG_PROMPT = 48, RIG_NEW = 5, RIG_TOKENS = RIG_PROMPT + RIG_NEW };

/* Texts that tokens have: markup, quotes, halves of an emoji, bytes that are no UTF-8. */
extern const char *const rig_pieces[];
extern const char rig_text[]; /* what all of them together are, with U+FFFD */

typedef struct trace_rig {
    h2okv_cache *cache;
    recording record;
    char *page; /* the file */
    int32_t kept[RIG_LANES][RIG_BUDGET];
    double score[RIG_LANES][RIG_BUDGET];
} trace_rig;

void trace_rig_make(trace_rig *rig, const char *text_file);
void trace_rig_save(const trace_rig *rig, const char *path);
void trace_rig_free(trace_rig *rig);

#endif
