/*
 * cli.h - what the commands of the program share.
 *
 *   main.c     finds the command              options.c  a table of options: parsing, --help, nearest names
 *   term.c     terminal, colours, progress    table.c    bars, ranges of positions, tables of kept tokens
 *   utf8.c     whole characters               buffer.c   bytes that grow
 *   text.c     texts from files                 signals.c  Ctrl-C
 *   isa.c      instruction sets                 floor.c    budgets that are too small
 *   save.c     files, whole or not at all
 *   cache_options.c  the options of a cache
 *   cmd_*.c    one file a command             llama/     what needs llama.cpp
 *
 * Results go to stdout; errors, warnings and progress go to stderr.
 */
#ifndef H2OKV_CLI_H
#define H2OKV_CLI_H

#ifndef _DEFAULT_SOURCE
#define _DEFAULT_SOURCE 1 /* getline, sysconf's memory size, sigaction: include this header first */
#endif

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* Exit codes; docs and man pages list them. */
enum cli_exit {
    CLI_OK = 0,
    CLI_CHECK = 1,     /* a check failed: demo, replay --check */
    CLI_USAGE = 2,     /* bad option or value */
    CLI_MISSING = 3,   /* this build lacks something */
    CLI_INPUT = 4,     /* an input file is missing, unreadable or not what it should be */
    CLI_MODEL = 5,     /* the model is refused or cannot be loaded */
    CLI_ENGINE = 6,    /* the engine, memory or output failed */
    CLI_STOPPED = 130, /* Ctrl-C */
};

/* ---- options.c ---------------------------------------------------------------------------------------- */

typedef enum cli_kind {
    CLI_HEADING, /* a line of --help; only `help` is used */
    CLI_FLAG,    /* bool */
    CLI_TEXT,    /* const char * into argv */
    CLI_TEXTS,   /* cli_texts: the option may be given again */
    CLI_COUNT,   /* uint32_t in [min, max] */
    CLI_REAL,    /* double in [min, max] */
    CLI_NAME,    /* uint32_t, the index in `names` */
} cli_kind;

enum { CLI_MOST_TEXTS = 16 };
typedef struct cli_texts {
    const char *text[CLI_MOST_TEXTS]; /* into argv */
    uint32_t n;
} cli_texts;

typedef struct cli_option {
    cli_kind kind;
    char letter;              /* 'n' for -n, 0 for none */
    const char *name;         /* "budget" for --budget */
    size_t offset;            /* of the field that it sets, in the command's own struct */
    double min, max;          /* COUNT, REAL */
    const char *const *names; /* NAME, ends with NULL */
    const char *value;        /* what --help calls the value */
    const char *help;         /* may hold newlines */
} cli_option;

typedef struct cli_command {
    const char *name;
    const char *summary;       /* a line for the list of commands */
    const char *usage;         /* what follows "h2okv NAME"; may hold newlines */
    const char *about;         /* a paragraph */
    const cli_option *options; /* --help is there by itself */
    size_t n_options;
    const char *example;
    int (*run)(int argc, char **argv); /* argv[0] is the command's name */
} cli_command;

extern const cli_command cli_bench, cli_chat, cli_demo, cli_eval, cli_replay, cli_run, cli_serve,
    cli_trace;

/* Sets the fields of `out` from argv. Returns false when the command has to end with *exit_code: help was
 * asked for, or there was an error and it has been reported. *first is the first argument after the
 * options. */
bool cli_parse(const cli_command *command, int argc, char **argv, void *out, int *first, int *exit_code);

void cli_help(FILE *out, const cli_command *command);

/* Prints "h2okv COMMAND: message"; always returns false, so that a check can return it. */
bool cli_error(const char *command, const char *format, ...) __attribute__((format(printf, 2, 3)));
void cli_warn(const char *command, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Whole numbers in [min, max] and finite reals in [min, max]; on failure an error naming option, value and
 * range has been printed. */
bool cli_parse_count(const char *command, const char *option, const char *text, uint32_t min, uint32_t max,
                     uint32_t *out);
bool cli_parse_real(const char *command, const char *option, const char *text, double min, double max,
                    double *out);

/* The index of `text` in `names`, which ends with NULL; on failure an error with the nearest name, or with
 * all of them, has been printed. */
bool cli_parse_name(const char *command, const char *option, const char *text, const char *const *names,
                    uint32_t *out);

/* The name that `word` most likely stands for, or NULL when none is near. */
const char *cli_nearest(const char *word, const char *const *names, size_t n);

/* ---- term.c ------------------------------------------------------------------------------------------- */

enum cli_style { CLI_PLAIN, CLI_BOLD, CLI_DIM, CLI_GREEN, CLI_YELLOW, CLI_RED, CLI_CYAN, CLI_STYLES };

bool cli_is_terminal(FILE *stream);
int cli_width(FILE *stream);                                   /* columns; 80 when it is no terminal */
const char *cli_style(FILE *stream, enum cli_style style);     /* "" unless a terminal, and NO_COLOR unset */
double cli_seconds(void);                                      /* monotonic */
uint64_t cli_physical_memory(void);                            /* bytes; 0 when unknown */
uint64_t cli_peak_memory(void);                                /* bytes this process held at most */
uint32_t cli_cpus(void);                                       /* that this process may run on */

/* A line on stderr that redraws itself; silent unless stderr is a terminal. */
typedef struct cli_progress {
    const char *label; /* NULL: silent */
    double start, drawn;
} cli_progress;
void cli_progress_start(cli_progress *p, const char *label, bool quiet);
void cli_progress_show(cli_progress *p, uint64_t done, uint64_t total);
void cli_progress_end(cli_progress *p); /* wipes the line; may be called again */
/* The line itself, at most `width` columns; `size` bytes of `out`. */
void cli_progress_text(char *out, size_t size, int width, const char *label, uint64_t done, uint64_t total,
                       double elapsed);

/* ---- signals.c ---------------------------------------------------------------------------------------- */

/* From now on the first Ctrl-C or SIGTERM makes cli_interrupted true, and a second one ends the process. What the
 * caller of this program had ignored, as nohup and `&` in scripts do, stays ignored. */
void cli_catch_signals(void);
bool cli_interrupted(void);
bool cli_signal_ignored(int number);

/* A signal that ends the process removes this file before; NULL: none. One at a time. */
void cli_remove_when_killed(const char *path);

/* From now on Ctrl-C may come often: each time it makes cli_interrupted true, until it is taken. cli_terminated:
 * SIGTERM came, or either before this call; then cli_interrupted stays true. cli_take_resize: the terminal may have
 * changed. */
void cli_go_on_after_interrupts(void);
bool cli_take_interrupt(void);
bool cli_terminated(void);
bool cli_take_resize(void);

/* Waits until `fd` has bytes, or its end. False: one of the signals above has come, and is not taken yet. */
bool cli_wait_for_input(int fd);

/* ---- floor.c ------------------------------------------------------------------------------------------ */

/* The least budget that is advised for a policy and a text of so many tokens; and a warning when a budget is less and
 * does not hold the whole text. */
uint32_t cli_floor(const char *policy, uint32_t text);
void cli_warn_floor(const char *command, const char *policy, uint32_t budget, uint32_t text);

/* ---- isa.c -------------------------------------------------------------------------------------------- */

/* Whether the kernels can use this instruction set here; on failure an error has been printed. */
bool cli_check_isa(const char *command, const char *isa);
void cli_list_isas(void); /* on stdout */

/* ---- utf8.c ------------------------------------------------------------------------------------------- */

#define CLI_REPLACEMENT "\xef\xbf\xbd" /* U+FFFD */

/* Bytes come in any pieces, whole characters go out. */
typedef struct cli_utf8 {
    unsigned char held[4]; /* the start of a character */
    unsigned n_held;
} cli_utf8;

/* Takes n bytes and writes whole characters; what can never become one is written as U+FFFD. `out` has room
 * for CLI_UTF8_ROOM(n) bytes. Returns the bytes written. A character cut off at the end stays held. */
#define CLI_UTF8_ROOM(n) (3 * ((size_t)(n) + 3) + 4)
size_t cli_utf8_take(cli_utf8 *u, const char *bytes, size_t n, char *out);

/* Takes out the control characters but ends of lines and tabs, as a terminal would obey them. Whole characters come and
 * go. Returns the bytes that are left. */
size_t cli_utf8_tame(char *text, size_t n);

/* SIZE_MAX when all n bytes are valid UTF-8 without NUL, else the offset of the first that is not. */
size_t cli_utf8_bad(const char *bytes, size_t n);

/* ---- buffer.c ----------------------------------------------------------------------------------------- */

typedef struct cli_buffer {
    char *data; /* NUL-terminated when not NULL; the NUL does not count */
    size_t n, room;
} cli_buffer;
bool cli_buffer_reserve(cli_buffer *b, size_t more); /* false: out of memory, nothing changed */
bool cli_buffer_add(cli_buffer *b, const char *bytes, size_t n);
void cli_buffer_free(cli_buffer *b);

/* ---- text.c ------------------------------------------------------------------------------------------- */

/* Exit codes; on failure an error has been printed. What is read is added to `text`. A check drops the byte order mark
 * that some editors put at a text's start: it is no part of the text, and a model would see a token. */
int cli_read_stream(const char *command, FILE *file, const char *name, cli_buffer *text); /* not checked yet */
int cli_check_text(const char *command, const char *name, cli_buffer *text); /* UTF-8 without NUL, not empty */
int cli_read_text(const char *command, const char *path, cli_buffer *text);        /* a file, checked */
int cli_read_licences(const char *command, cli_buffer *text); /* a long text that Debian systems have */

/* Where the last paragraph begins: behind the last empty line that has text after it. */
const char *cli_last_paragraph(const char *text, size_t n);

/* ---- save.c ------------------------------------------------------------------------------------------- */

/* A file that appears at `path` whole or not at all. Write to `file`, then keep or drop it; all zero: nothing to drop.
 * False: an error has been printed, and nothing is left to drop. One file at a time. */
typedef struct cli_saving {
    const char *command, *path;
    FILE *file;
    char *temporary;
    int error; /* errno of the first write that is known to have failed; 0: none is */
} cli_saving;
bool cli_save_open(cli_saving *s, const char *command, const char *path);
/* Has all that was written since the caller set errno to 0 got there? If not, cli_save_keep fails and says why. */
bool cli_save_check(cli_saving *s);
bool cli_save_keep(cli_saving *s);
void cli_save_drop(cli_saving *s);

/* A file that an option names; path may be NULL. */
typedef struct cli_path {
    const char *option, *path;
    bool written; /* else it is read */
} cli_path;
/* Is every file that would be written another one than the rest? Under whatever names; if not, says so. */
bool cli_check_paths(const char *command, const cli_path *list, size_t n);
/* So that nothing is measured that cannot be kept; makes an empty file. If not, says why. */
bool cli_may_write(const char *command, const char *path);
/* A rename would put a plain file in the place of a device. If there is something else than a file, says so. */
bool cli_may_replace(const char *command, const char *path);

/* ---- table.c ------------------------------------------------------------------------------------------ */

enum cli_group { CLI_HEAVY, CLI_SINK, CLI_RECENT, CLI_GONE };

typedef struct cli_token {
    int32_t pos;
    double score;
    enum cli_group group;
    const char *note; /* or NULL */
} cli_token;

const char *cli_group_name(enum cli_group group);

/* `value` of `most` as up to `width` marks, then a NUL; a value above 0 gets one at least. */
void cli_bar(char *out, int width, double value, double most);

/* Rising positions as "0..6, 10, 42..49", cut with "..." to fit `size` bytes. Returns out. */
char *cli_ranges(char *out, size_t size, const int32_t *pos, size_t n);

/* One row a token: position, score, bar, group, note. */
void cli_print_tokens(FILE *out, const cli_token *tokens, size_t n, int bar_width);

/* 12345 as "12,345"; the text lives in `out`, at least 32 bytes. Returns out. */
char *cli_thousands(char *out, uint64_t value);

/* Bytes as "13.5 MiB" into `out`, at least 32 bytes. Returns out. */
char *cli_bytes(char *out, uint64_t bytes);

#endif
