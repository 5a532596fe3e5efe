/*
 * eval.h - what the files of `h2okv eval` that use a model share.
 *
 *   eval.c  model, tokens, rows, contexts      eval_score.c  ppl, kl      eval_recall.c  documents, answers
 */
#ifndef H2OKV_CLI_LLAMA_EVAL_H
#define H2OKV_CLI_LLAMA_EVAL_H

#include "../eval.h"
#include "engine.h"

typedef struct eval_work {
    eval *eval;
    engine engine;
    cli_progress progress;
    uint64_t done, total; /* tokens over all rows */
    uint32_t longest_guide; /* recall: tokens of the longest first question */
} eval_work;

/* A context for a row; to be freed with h2okv_llama_free. An exit code; on failure an error has been printed. */
int eval_attach(eval_work *w, eval_row *row, h2okv_llama **out);

/* After a failed call on h: E_STOPPED, else an error is printed. Returns the exit code. */
int eval_failed(eval_work *w, const h2okv_llama *h, int status);

/* n more tokens are decoded. False: Ctrl-C, and eval->stopped is set. */
bool eval_advance(eval_work *w, uint32_t n);

/* The whole measurement, from the loaded model on. */
int eval_score(eval_work *w);
int eval_ask(eval_work *w);

#endif
