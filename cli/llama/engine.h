/*
 * engine.h - a model in a bounded KV cache, for the commands that use one.
 *
 *   engine_load    file -> model, vocabulary        engine_attach    -> context of budget + ubatch cells
 */
#ifndef H2OKV_CLI_ENGINE_H
#define H2OKV_CLI_ENGINE_H

#include "../cache_options.h"

#include "h2okv/llama.h"

/* Who wants to see what the cache does: set between engine_load and engine_attach. Any of them may be NULL. */
typedef struct engine_watch {
    void (*event)(void *user, const h2okv_event *event);              /* h2okv_options.on_event */
    void (*mass)(void *user, uint32_t lane, const double *mass);      /* h2okv_options.on_mass */
    bool (*pass)(void *user, const h2okv_cache *cache, uint32_t seen); /* a pass has ended, or the budget has changed;
                                                                         `seen` tokens have been read. False: stop */
    void (*guided)(void *user, uint32_t spread); /* guided reading begins */
    void *user;
} engine_watch;

typedef struct engine {
    const char *command;             /* for messages */
    char path[4096];                 /* of the model file */
    struct llama_model *model;
    const struct llama_vocab *vocab; /* the model's */
    h2okv_llama *h;
    engine_watch watch;
    uint32_t sequences;              /* of the context; 0: one. Set between engine_load and engine_attach, too */
} engine;

/* Loads the model: `path`, or the default one when it is NULL. Mapped, its file's pages count as memory of this process
 * besides the copies that llama.cpp makes of weights that it rearranges; read, only what is used does. Returns an exit
 * code; on failure an error has been printed, or it is CLI_STOPPED: Ctrl-C. engine_free in any case. */
int engine_load(engine *e, const char *command, const char *path, bool mapped, bool verbose);

/* Makes the context. Refuses a budget that this machine cannot hold before anything is allocated for it. */
int engine_attach(engine *e, const cache_options *options, uint32_t threads);

/* Pins what the options say. An exit code; on failure an error has been printed. */
int engine_pin(const engine *e, h2okv_llama *h, const cache_options *options);

/* What the options say of guided reading; tokens and n are the caller's. */
void engine_set_guide(h2okv_llama_guide *guide, const cache_options *options);

/* Tells the watch that a pass has ended. False: it wants no more; it says why when the work has ended. */
bool engine_passed(const engine *e);

/* K and V in f16 of one cell over all layers. */
uint64_t engine_kv_bytes_per_cell(const engine *e);

void engine_free(engine *e);

/* The text's tokens, after the vocabulary's beginning-of-text token if it wants one. *tokens is the caller's,
 * to be freed. Special tokens that the text spells out are read as plain text. */
int engine_tokenize(const engine *e, const cli_buffer *text, llama_token **tokens, uint32_t *n);

/* The same of a text that goes on: no beginning-of-text token, and there may be no tokens. */
int engine_tokenize_more(const engine *e, const char *text, size_t bytes, llama_token **tokens, uint32_t *n);

/* Adds the bytes of a token to `out`. False: out of memory. */
bool engine_piece(const engine *e, llama_token token, cli_buffer *out);

/* The same of a token that has no bytes of text, such as a beginning of text: its name. */
bool engine_special(const engine *e, llama_token token, cli_buffer *out);

/* The last error that llama.cpp logged, or "". */
const char *engine_last_log(void);

/* Below this temperature nothing but the likeliest token is left, and logits divided by it could become infinite. */
static inline bool engine_is_cold(double temperature)
{
    return temperature < 1e-6;
}

#endif
