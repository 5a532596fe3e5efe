/*
 * chat.h - what the parts of `h2okv chat` share.
 *
 *   cmd_chat.c       options                          chat_lines.c   lines -> messages
 *   chat_commands.c  messages -> requests             chat_edit.c    a line from a terminal
 *   llama/chat.c     requests -> llama/talk.c, the conversation in the cache
 */
#ifndef H2OKV_CLI_CHAT_H
#define H2OKV_CLI_CHAT_H

#include "run.h"

enum { CHAT_MOST_BYTES = 1 << 26 }; /* of a message */

typedef struct chat_options {
    run_options run;
    const char *system, *system_file; /* as given, or NULL */
    bool past_context;                /* go on past the context that the model was trained for */
    const char *template;             /* a name that llama.cpp knows, or a file; NULL: the model's own */
    uint32_t recent;                  /* as given, or CACHE_AUTO: run.cache.recent is filled in */
} chat_options;

#ifdef H2OKV_HAVE_LLAMA
/* llama/chat.c: the whole conversation; returns the exit code. `system` is empty when there is no system prompt. */
int chat_model(const chat_options *o, const cli_buffer *system);
void chat_list_templates(void); /* on stdout */
#endif

/* ---- chat_lines.c ------------------------------------------------------------------------------------- */


enum chat_read {
    CHAT_MESSAGE, /* there is one */
    CHAT_END,     /* of the input */
    CHAT_STOP,    /* Ctrl-C at an empty prompt, twice; or SIGTERM */
    CHAT_BAD,     /* an error has been printed, and the message is dropped */
    CHAT_DROPPED, /* Ctrl-C in a message: chat_read_message goes on with the next one */
};

typedef struct chat_editor chat_editor; /* chat_edit.c */

/* Where messages come from. A line is a message; one that ends in \ goes on in the next, and one that is """ begins a
 * message of many lines, up to the next """. */
typedef struct chat_lines {
    chat_editor *editor; /* NULL: standard input is read as it is */
    cli_buffer input;    /* read and, up to `at`, handed out */
    size_t at;
    uint64_t number;     /* lines handed out */
    cli_buffer message;
} chat_lines;

enum chat_read chat_read_message(chat_lines *l);
void chat_lines_free(chat_lines *l);

/* ---- chat_edit.c -------------------------------------------------------------------------------------- */

#ifdef H2OKV_HAVE_LLAMA
/* NULL: standard input or output is no terminal. Changes the locale of characters. */
chat_editor *chat_editor_open(void);
void chat_editor_close(chat_editor *e); /* NULL is allowed */

/* A line in UTF-8, which may hold pasted ends of lines; valid until the next call. `more`: it goes on with a
 * message. */
enum chat_read chat_edit_line(chat_editor *e, bool more, const char **line, size_t *n);
#endif

/* ---- chat_commands.c ---------------------------------------------------------------------------------- */

enum chat_verb {
    CHAT_SAY,
    CHAT_HELP,
    CHAT_REGEN,
    CHAT_UNDO,
    CHAT_CLEAR,
    CHAT_STATS,
    CHAT_BUDGET,
    CHAT_SAVE,
    CHAT_LOAD,
    CHAT_QUIT,
};

typedef struct chat_request {
    enum chat_verb verb;
    const char *text; /* what is said, in the message, of n bytes; or the command's argument */
    size_t n;
    uint32_t budget;  /* of CHAT_BUDGET */
} chat_request;

/* A message of one line that starts with / is a command; with // it is said with one / less. Blank lines around what is
 * said are left out; nothing may be left. False: an error has been printed. */
bool chat_parse(const cli_buffer *message, chat_request *out);
void chat_print_commands(FILE *out);

#endif
