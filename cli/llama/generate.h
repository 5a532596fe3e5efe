/*
 * generate.h - the prompt through the model, then new tokens one by one.
 *
 *   tokens -> passes (progress, Ctrl-C) -> sample -> piece -> whole characters -> stdout or text -> next pass
 */
#ifndef H2OKV_CLI_GENERATE_H
#define H2OKV_CLI_GENERATE_H

#include "../run.h"
#include "engine.h"

enum stop { STOP_LIMIT, STOP_EOS, STOP_INTERRUPT };

typedef struct generation {
    const run_options *options;
    engine *engine;
    struct llama_sampler *sampler;
    const llama_token *prompt;
    uint32_t n_prompt;
    uint32_t n_behind;    /* its last tokens that are no text: a chat template's */
    uint32_t n_read;      /* of its tokens, by earlier calls */
    uint32_t n_guide;     /* tokens that it was read for; 0: none */

    llama_token *written; /* where to put new tokens, [options->n_new]; NULL: nowhere */
    uint32_t n_new;       /* tokens generated, without the end token */
    enum stop stopped;
    double start;         /* when the first pass began; seconds */
    double prompt_s;      /* for the prompt's passes */
    double first_token_s; /* from `start` until the first token was chosen; below 0: none was */
    double decode_s;      /* from then on until the last token was chosen */

    int (*put)(void *user, const char *text, size_t n); /* takes whole characters, returns an exit code; NULL: they
                                                           go to stdout */
    void *put_user;
    cli_utf8 characters;
    cli_buffer piece;     /* a token's bytes */
    cli_buffer text;      /* all whole characters, for --json */
    cli_progress progress;
    bool warned;          /* of passing the trained context */
    bool refused;         /* by engine_passed */
} generation;

/* Both return an exit code: CLI_OK also when Ctrl-C ended it (g->stopped), else an error has been printed, or the
 * engine's watch wants no more. */
int generation_read_prompt(generation *g, const cli_buffer *text); /* the prompt's text */
int generation_write(generation *g);

/* A chain of samplers as the options want it; NULL: out of memory. */
struct llama_sampler *generation_sampler(const run_options *o, const struct llama_vocab *vocab);

bool generation_start(generation *g, const run_options *options, engine *e, const llama_token *prompt,
                      uint32_t n);
void generation_free(generation *g);

/* run.c: loads the model, makes tokens of the text and checks and warns what they say together; *tokens is the
 * caller's, with room for options->n_new more. An exit code. engine_free and free in any case. */
int run_load(const run_options *o, engine *e, const cli_buffer *text, llama_token **tokens, uint32_t *n);

/* Tells the engine's watch; and what a failed decode comes to. An exit code, as above. */
int generation_passed(generation *g);
int generation_failed(generation *g, int status);

/* reading.c: the prompt through the model. */
int reading_decode(generation *g, const cli_buffer *text);

#endif
