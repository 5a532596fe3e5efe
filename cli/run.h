/* run.h - the options of `h2okv run`, which `h2okv trace` shares, and the text that it reads. */
#ifndef H2OKV_CLI_RUN_H
#define H2OKV_CLI_RUN_H

#include "cache_options.h"

#define RUN_AUTO UINT32_MAX /* not given */

typedef struct run_options {
    const char *command;             /* "run", or "trace", which is a run that is recorded: for messages */
    const char *model;               /* NULL: the default model */
    const char *file, *prompt;
    bool from_stdin;
    uint32_t n_new;
    bool ignore_eos;

    cache_options cache;             /* with the policy's choices filled in by run_check */
    const char *guide_how, *guide_text; /* as given, or NULL. The text guides in place of the prompt's last tokens */

    double temp;                     /* 0: the most likely token */
    uint32_t top_k;
    double top_p, min_p;

    uint32_t threads;
    bool mmap;                       /* map the model file instead of reading it */
    const char *trace;               /* where to record it; NULL: nowhere */
    bool json, quiet, verbose, print_config;
} run_options;

void run_defaults(run_options *o, const char *command);

/* Checks what the options say together and fills in what was not given. False: an error has been printed. The second
 * one leaves out where the text comes from. */
bool run_check(run_options *o);
bool run_check_settings(run_options *o);

/* The prompt as it was given: an exit code, and on CLI_OK valid UTF-8 that is not empty. */
int run_read_prompt(const run_options *o, cli_buffer *text);

/* Takes "-" among the arguments from `first` on as standard input. False: an error has been printed. */
bool run_take_arguments(run_options *o, int argc, char **argv, int first);

#ifdef H2OKV_HAVE_LLAMA
int run_model(const run_options *o, const cli_buffer *prompt); /* llama/run.c; returns the exit code */
#endif

/* Rows of a table of options; `at` is where a command's own struct holds its run_options. */
#define RUN_FIELD(at, name) ((at) + offsetof(run_options, name))
#define RUN_TEXT_ROWS(at)                                                                                             \
    { CLI_TEXT, 'f', "file", RUN_FIELD(at, file), 0, 0, NULL, "FILE",                                                 \
      "text to go on from; - alone is standard input" },                                                              \
    { CLI_TEXT, 'p', "prompt", RUN_FIELD(at, prompt), 0, 0, NULL, "TEXT", "the same, as an argument" },               \
    { CLI_COUNT, 'n', "new", RUN_FIELD(at, n_new), 0, CACHE_MOST_TOKENS, NULL, "N",                                   \
      "most new tokens (128); 0 reads the text only" },                                                               \
    { CLI_FLAG, 0, "ignore-eos", RUN_FIELD(at, ignore_eos), 0, 0, NULL, NULL, "never choose an end token" }
#define RUN_MODEL_ROWS(at)                                                                                            \
    { CLI_HEADING, 0, NULL, 0, 0, 0, NULL, NULL, "Model" },                                                           \
    { CLI_TEXT, 'm', "model", RUN_FIELD(at, model), 0, 0, NULL, "GGUF",                                               \
      "model file (the one that `make model` fetches)" },                                                             \
    { CLI_COUNT, 't', "threads", RUN_FIELD(at, threads), 1, 1024, NULL, "N",                                          \
      "threads (as many as there are processors)" },                                                                  \
    { CLI_FLAG, 0, "mmap", RUN_FIELD(at, mmap), 0, 0, NULL, NULL,                                                     \
      "map the model file instead of reading it: other\nprograms share it, but memory grows by it where\n"            \
      "llama.cpp rearranges the weights" }
#define RUN_CACHE_ROWS(at)                                                                                            \
    RUN_KEEP_ROWS(at),                                                                                                \
    { CLI_TEXT, 0, "guide", RUN_FIELD(at, guide_how), 0, 0, NULL, "HOW",                                              \
      "read the prompt with its end in mind, so that what\nit asks for is kept: auto (its last paragraph, when\n"     \
      "it is longer than the budget), the last N tokens,\nor off (auto)" },                                           \
    { CLI_TEXT, 0, "guide-text", RUN_FIELD(at, guide_text), 0, 0, NULL, "TEXT",                                       \
      "read all of it with this text in mind" },                                                                      \
    RUN_PASS_ROWS(at)
#define RUN_KEEP_ROWS(at)                                                                                             \
    { CLI_HEADING, 0, NULL, 0, 0, 0, NULL, NULL, "Cache" },                                                           \
    { CLI_COUNT, 0, "budget", RUN_FIELD(at, cache.budget), CACHE_LEAST_BUDGET, CACHE_MOST_TOKENS, NULL, "N",          \
      "tokens kept (512)" },                                                                                          \
    { CLI_COUNT, 0, "recent", RUN_FIELD(at, cache.recent), 0, CACHE_MOST_TOKENS, NULL, "N",                           \
      "of these the newest (the policy's: mostly half)" },                                                            \
    { CLI_TEXT, 0, "policy", RUN_FIELD(at, cache.policy), 0, 0, NULL, "NAME",                                         \
      "default, h2o (heavy hitters), h2o-paper, snapkv,\ntova, lifetime, streaming, window, random, full" }
#define RUN_PASS_ROWS(at)                                                                                             \
    { CLI_COUNT, 0, "ubatch", RUN_FIELD(at, cache.ubatch), 1, CACHE_MOST_TOKENS, NULL, "N",                           \
      "most tokens in a pass (the least from 128 up\nthat makes budget + N a multiple of 256)" },                     \
    CACHE_ROWS(RUN_FIELD(at, cache))
#define RUN_CHOICE_ROWS(at)                                                                                           \
    { CLI_HEADING, 0, NULL, 0, 0, 0, NULL, NULL, "Choosing tokens" },                                                 \
    { CLI_REAL, 0, "temp", RUN_FIELD(at, temp), 0, 100, NULL, "X", "temperature (0: always the most likely token)" }, \
    RUN_AMONG_ROWS(at)
#define RUN_AMONG_ROWS(at)                                                                                            \
    { CLI_COUNT, 0, "top-k", RUN_FIELD(at, top_k), 0, INT32_MAX, NULL, "N", "among the N most likely (40; 0: all)" }, \
    { CLI_REAL, 0, "top-p", RUN_FIELD(at, top_p), 0, 1, NULL, "X", "among those that make up X (0.95)" },             \
    { CLI_REAL, 0, "min-p", RUN_FIELD(at, min_p), 0, 1, NULL, "X", "at least X as likely as the most likely (0.05)" }

#endif
