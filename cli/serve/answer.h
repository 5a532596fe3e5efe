/* answer.h - what answer.c and logprobs.c share. */
#ifndef H2OKV_CLI_SERVE_ANSWER_H
#define H2OKV_CLI_SERVE_ANSWER_H

#include "api.h"

#include <jansson.h>

/* The tokens of an event in the shape of a chat ({"content": [...]}) or of a completion ({"tokens": [...], ...}). NULL:
 * out of memory. `offset`: characters of the answer before them; moved on past them. */
json_t *logprobs_new(enum serve_kind kind, size_t *offset, const serve_event *e, int most);

/* Adds the second one's tokens to the first one's. False: out of memory. */
bool logprobs_join(json_t *all, json_t *more);

#endif
