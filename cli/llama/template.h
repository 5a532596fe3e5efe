/*
 * template.h - a chat template as the text around what a user says.
 *
 *   first   | before: system prompt, user's opening | what the user says | behind: end, answer's opening |
 *   next    | before: the answer's end, ...         | what the user says | behind                        |
 *
 * So a turn is put into tokens without the turns before it: llama.cpp's templates put nothing behind an answer that
 * depends on them. tests/cli/test_chat_template.c holds all of them to that.
 */
#ifndef H2OKV_CLI_TEMPLATE_H
#define H2OKV_CLI_TEMPLATE_H

#include "engine.h"

typedef struct template_frame {
    char *before, *behind;
} template_frame;

typedef struct chat_template {
    template_frame first, next;
} chat_template;

/* From the text of a template, or a name that llama.cpp knows. `system` is "" when there is none. An exit code; on
 * failure an error has been printed: the template is unknown (llama.cpp does not run templates, it knows some), or has
 * no place for a system prompt. template_free in any case. */
int template_make(const char *command, const char *text, const char *system, chat_template *out);
void template_free(chat_template *t);

/* The text of the template to use: --template's, or else the model's own; to be freed. */
int template_find(const engine *e, const char *name_or_file, char **text);

/* Names that llama.cpp knows, one a line. */
void template_list(FILE *out);

/* Tokens that a turn adds. Special tokens that the user's text spells out are read as plain text. *n_behind: how many
 * of the last ones stand for frame->behind. At the start of a conversation there is a beginning-of-text token if the
 * vocabulary wants one. *tokens is the caller's. */
typedef struct template_text {
    const char *text;
    size_t n;
} template_text;
int template_tokens(const engine *e, const template_frame *frame, template_text said, bool start, llama_token **tokens,
                    uint32_t *n, uint32_t *n_behind);

/* Tokens of a whole conversation and an opened answer behind it. *n_system: how many of the first ones stand for the
 * system messages that it begins with, *n_last: how many of the last ones come with the last message. `text`: as
 * template_find gives it. CLI_MODEL: llama.cpp does not know the template, or it has no place for one of the messages;
 * CLI_ENGINE: out of memory. Nothing has been printed. *tokens is the caller's. */
typedef struct template_talk {
    const llama_chat_message *message; /* what is said is read as plain text */
    size_t n;
} template_talk;
int template_conversation(const engine *e, const char *text, template_talk talk, llama_token **tokens, uint32_t *n,
                          uint32_t *n_system, uint32_t *n_last);

/* How many tokens of a first turn stand for frame->before, whatever the user says. */
int template_fixed(const engine *e, const template_frame *frame, llama_token **tokens, uint32_t *n);

#endif
