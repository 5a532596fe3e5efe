/*
 * talk.h - a conversation in a bounded cache: what is said is read, an answer is written, and turns are taken back.
 *
 *   positions  | system prompt, pinned | turn | turn | ...... | end of answer, message, opening | answer |
 *              0                       n_system               turn.start                        turn.reply
 *
 * Invariant between two calls: every token up to next_pos is in the cache or was evicted from it, and the last one is
 * the last of an answer, or of the system prompt.
 */
#ifndef H2OKV_CLI_TALK_H
#define H2OKV_CLI_TALK_H

#include "../chat.h"
#include "generate.h"
#include "history.h"
#include "template.h"

typedef struct talk_totals {
    uint64_t turns;          /* answered, those that were taken back too */
    uint64_t read, written;  /* tokens, without those that were read again */
    uint64_t timed;          /* written ones after the first of each answer */
    double read_s, write_s;
} talk_totals;

typedef struct talk {
    const chat_options *options;
    run_options turn_options;     /* of a turn: without pins, and with the budget of now */
    engine *engine;
    const chat_template *template;
    const char *system;
    chat_template loaded_template; /* of a conversation from a file, with loaded_system: the two above then */
    char *loaded_system;
    history history;
    talk_totals totals;
    struct llama_sampler *sampler;
    llama_token *written;         /* room for an answer */
    uint32_t trained;             /* the context that the model was trained for */
    uint32_t n_system;            /* tokens of the system prompt */
    llama_token *system_tokens;
    int (*put)(void *user, const char *text, size_t n); /* takes an answer's whole characters; an exit code */
    void *put_user;
    bool warned;                  /* of passing the trained context */
} talk;

/* What came of a call. */
typedef struct talk_answer {
    uint32_t n_prompt, n_new;
    enum stop stopped;
    bool taken_back;              /* Ctrl-C while the message was read: it is as if it had not been said */
} talk_answer;

/* Exit codes; on failure an error has been printed. CLI_USAGE: nothing has changed, and the talk can go on; the others
 * end it. CLI_STOPPED: Ctrl-C. Notes about losses go to stderr. */
int talk_start(talk *t, const chat_options *o, engine *e, const chat_template *template, const char *system);
int talk_say(talk *t, template_text said, talk_answer *out);
int talk_regen(talk *t, talk_answer *out);
int talk_undo(talk *t);
int talk_clear(talk *t);
int talk_budget(talk *t, uint32_t budget);
void talk_free(talk *t);

/* talk_save.c: the conversation in a file, with its turns, system prompt and template, whole or not at all; and back
 * in place of this one. CLI_INPUT: the file cannot be written or read, or is no conversation; as with CLI_USAGE
 * nothing has changed. */
int talk_save(talk *t, const char *path);
int talk_load(talk *t, const char *path);

/* talk_back.c: the conversation as it was before position pos0. `open`: that is the token before the last turn's
 * answer, which is to be written anew; else the start of a turn that is no longer in the history. CLI_STOPPED: Ctrl-C,
 * and the history holds what could be read again. */
int talk_cut(talk *t, int32_t pos0, bool open);

/* When the last eighth of the trained context has begun: from its beginning again, with the last turns that fit the
 * budget, unless options->past_context. Codes as talk_cut's. */
int talk_renew(talk *t);

/* talk.c, for talk_back.c and talk_save.c. */
void talk_take_budget(talk *t); /* the cache's of now */
int talk_reset(talk *t); /* forgets all and reads the system prompt */
int talk_decode(talk *t, const llama_token *tokens, uint32_t n);
bool talk_is_first(const talk *t); /* nothing but the system prompt has been read */

/* A first message may take over a token of the system prompt's end: then that one is cut off, to be read anew with the
 * message. *skip: how many of the message's tokens are there already. */
int talk_join_system(talk *t, const llama_token *tokens, uint32_t n, uint32_t *skip);

#endif
