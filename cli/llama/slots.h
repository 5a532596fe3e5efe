/*
 * slots.h - the conversations of `h2okv serve`: each slot is a sequence of one context, and answers one job at a time.
 *
 *   free ---- a job from the queue ----> reading ---- its prompt is in the cache ----> writing ---- its end ----> free
 *
 *   a round:  jobs taken | who left is dropped | one chunk of one prompt | a token of every slot that writes, one batch
 *
 *   serve.c    begin and end        slots.c        rounds                slot_prompt.c  request -> tokens, pins, reuse
 *   slot_choice.c  logits -> token  slot_text.c    tokens -> text        slot_view.c    what a cache holds
 *
 * Invariant between two rounds: held[0..n_held-1] are the tokens that the slot's sequence has decoded, position by
 * position; a slot with a job is reading or writing, and one that writes has told its `next` token, which is not
 * decoded yet.
 */
#ifndef H2OKV_CLI_SLOTS_H
#define H2OKV_CLI_SLOTS_H

#include "../serve/serve.h"
#include "engine.h"
#include "template.h"

enum slot_state { SLOT_FREE, SLOT_READING, SLOT_WRITING };

/* What a token choice needs. */
typedef struct slot_choice {
    struct llama_sampler *chain, *grammar; /* NULL: the likeliest token; no grammar */
    llama_token_data *candidate;           /* [n_vocab] */
} slot_choice;

/* Text on its way out: what may still become a stop string is held back. */
typedef struct slot_text {
    cli_utf8 characters;
    cli_buffer held;
    serve_token *token; /* with logprobs: chosen and not told yet */
    size_t *token_end;  /* how many bytes of `held` each of them ends at */
    size_t n_tokens, tokens_room;
} slot_text;

/* What a request comes to. */
typedef struct slot_prompt {
    llama_token *tokens;
    uint32_t n, n_document; /* the document is read with the rest in mind; n_document 0: all is read as it comes */
    cache_range pin[SERVE_MOST_PINS + 1];
    uint32_t n_pins, budget, recent;
} slot_prompt;

typedef struct slot {
    uint32_t seq;
    enum slot_state state;
    serve_job *job;
    const serve_request *request;

    llama_token *held;
    uint32_t n_held, held_room;
    cache_range pin[SERVE_MOST_PINS + 1]; /* in effect, with the budget */
    uint32_t n_pins, budget;
    uint64_t used;       /* when it was last given a job; for the choice of a slot */

    slot_prompt prompt;
    uint32_t at;         /* tokens of the prompt that are in the cache */
    uint32_t most_new, n_new;
    llama_token next;
    slot_choice choice;
    slot_text text;
    serve_usage usage;
    uint64_t evicted_before, evicted_counted; /* tokens a lane: as the job was taken; as s->numbers has them */
    double began, first, newest; /* seconds: the job was taken, its first and its newest token chosen */
    double speed;                /* of the last answer; tokens a second */
} slot;

typedef struct slots {
    engine *engine;
    const serve_options *options;
    serve_queue *queue;
    char *template;  /* text of the chat template; NULL: the model has none */
    uint32_t room, ubatch, trained, recent; /* the largest budget; passes; the trained context; the server's recent */
    bool keeps_all, uses_scores;
    slot slot[SERVE_MOST_SLOTS];
    uint32_t n;
    uint64_t chunks; /* of prompts, read so far */
    uint64_t jobs;   /* taken so far */
    serve_numbers numbers;
    bool broken;     /* the context cannot be used any more */
} slots;

/* Takes over the template. slots_free fails the jobs that are left, with this status and text. */
void slots_start(slots *s, engine *e, const serve_options *o, serve_queue *q, char *template);
void slots_free(slots *s, int status, const char *why);

/* One round. With nothing to do it waits for a job, `seconds` at most. */
void slots_round(slots *s, double seconds);
bool slots_busy(const slots *s);

/* ---- slot_prompt.c ------------------------------------------------------------------------------------ */

/* What is wrong with a request; text is NULL when nothing is. */
typedef struct slot_refusal {
    int status;
    const char *param;
    char text[320];
} slot_refusal;

bool slot_refuse(slot_refusal *r, int status, const char *param, const char *format, ...)
    __attribute__((format(printf, 4, 5))); /* returns false */

/* False: it is refused. free(out->tokens) in any case. */
bool slot_make_prompt(const slots *s, const serve_request *r, slot_prompt *out, slot_refusal *why);

/* How many of the prompt's first tokens the slot's sequence holds, so that they need not be read: only as long as none
 * was evicted, unless the request takes the loss. Fewer than all. */
uint32_t slot_reusable(const slots *s, const slot *t, const slot_prompt *p, bool lossy);

/* The sequence as it has to be before token `reuse` of the prompt is read: cut or empty, budget and pins set.
 * *reuse: what could be kept after all. False: the prompt is refused, and the sequence is empty. */
bool slot_prepare(slots *s, slot *t, uint32_t *reuse, bool *lossy, slot_refusal *why);

void slot_forget(slots *s, slot *t); /* empties the sequence */

/* ---- slot_choice.c ------------------------------------------------------------------------------------ */

/* `seed` is for a request that has none. False: out of memory, or the grammar is refused. */
bool choice_start(slot_choice *c, const serve_request *r, uint32_t seed, const struct llama_vocab *vocab,
                  slot_refusal *why);
void choice_end(slot_choice *c);

/* The next token, which the grammar then has seen; below 0: the grammar allows none. */
llama_token choice_make(slot_choice *c, const struct llama_vocab *vocab, const float *logits);

/* Its logarithm of probability and the n likeliest tokens'. False: out of memory; nothing to free. */
bool choice_logprobs(const engine *e, const float *logits, llama_token token, uint32_t n, serve_token *out);

/* ---- slot_text.c -------------------------------------------------------------------------------------- */

/* Takes a token's text. *stopped: a stop string is complete, and all before it has been told. False: out of memory.
 * `token`: taken over, or NULL. */
bool text_take(slot *t, const engine *e, llama_token id, serve_token *token, bool *stopped);
bool text_flush(slot *t); /* the end: nothing is held back any more */
void text_end(slot_text *x);

/* ---- slot_view.c -------------------------------------------------------------------------------------- */

serve_event *slot_look(const slots *s, uint32_t index); /* NULL: out of memory */

#endif
