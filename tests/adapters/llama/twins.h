/*
 * twins.h - several sequences in one context, and beside it each of them alone in a context of its own: what is done to
 * a sequence is done to its twin, and the two must be alike.
 */
#ifndef H2OKV_TEST_LLAMA_TWINS_H
#define H2OKV_TEST_LLAMA_TWINS_H

#include "synth.h"

enum { TWINS_MOST = 6, TWINS_LOG = 600 };

/* Something done to one sequence. */
typedef struct twins_op {
    enum twins_kind {
        TWINS_DECODE, /* n tokens */
        TWINS_GUIDED, /* n tokens, with a guide */
        TWINS_TRIM,   /* the last n tokens */
        TWINS_CLEAR,
        TWINS_PIN,    /* the n tokens to come */
        TWINS_BUDGET, /* n */
    } kind;
    uint32_t n;
    uint64_t seed; /* of the tokens */
} twins_op;

typedef struct twins {
    uint32_t n;
    h2okv_llama *h;                /* n sequences */
    h2okv_llama *alone[TWINS_MOST]; /* one each */
    twins_op log[TWINS_MOST][TWINS_LOG]; /* of each since it was empty */
    uint32_t n_log[TWINS_MOST];
    double worst_logit, worst_score; /* relative, so far */
} twins;

/* `options` but for sequences, which are n and 1. K and V are f16. */
void twins_open(twins *t, struct llama_model *model, const h2okv_llama_options *options, uint32_t n);
void twins_close(twins *t);

/* To a sequence and to its twin; they must agree on the status, which is returned. */
int twins_do(twins *t, uint32_t seq, twins_op op);

/* Decodes of several sequences: in one batch, and each twin alone. n 0: no part in it. */
void twins_decode(twins *t, const twins_op *op);

/* A sequence becomes a copy of another; its twin does all again that the other's did. */
void twins_copy(twins *t, uint32_t from, uint32_t to);

/* Every sequence: positions kept in every lane, exactly; scores, K and V nearly; and llama.cpp's own view. */
void twins_check(twins *t);

#endif
