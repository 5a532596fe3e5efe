/*
 * history.h - the last turns of a conversation, for /regen and /undo: bounded, as the cache is.
 *
 *   turn[]   | oldest kept | ... | last |     at most HISTORY_TURNS, and HISTORY_BYTES before the last one
 */
#ifndef H2OKV_CLI_HISTORY_H
#define H2OKV_CLI_HISTORY_H

#include "engine.h"

enum { HISTORY_TURNS = 16, HISTORY_BYTES = 1 << 20 };

typedef struct history_turn {
    char *said; /* the user's message */
    size_t n_said;
    llama_token *answer;
    uint32_t n_answer;
    int32_t start;    /* position of the turn's first token, which ends the answer before it */
    int32_t reply;    /* and of the answer's first token */
    llama_token last; /* the token before the answer: its logits begin the answer */
} history_turn;

typedef struct history {
    history_turn turn[HISTORY_TURNS];
    uint32_t n;
    uint64_t dropped; /* turns that are no longer kept */
} history;

/* Takes over what the turn points to; the oldest turns may go. */
void history_add(history *h, history_turn turn);
history_turn *history_last(history *h); /* NULL: there is none */
void history_drop_first(history *h);
void history_drop_last(history *h);
void history_clear(history *h);

#endif
