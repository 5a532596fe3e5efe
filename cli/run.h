/* run.h - the options of `h2okv run`, and the text that it reads. */
#ifndef H2OKV_CLI_RUN_H
#define H2OKV_CLI_RUN_H

#include "cache_options.h"

#define RUN_AUTO UINT32_MAX /* not given */

typedef struct run_options {
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
    bool json, quiet, verbose, print_config;
} run_options;

void run_defaults(run_options *o);

/* Checks what the options say together and fills in what was not given. False: an error has been printed. */
bool run_check(run_options *o);

/* The prompt as it was given: an exit code, and on CLI_OK valid UTF-8 that is not empty. */
int run_read_prompt(const run_options *o, cli_buffer *text);

#ifdef H2OKV_HAVE_LLAMA
int run_model(const run_options *o, const cli_buffer *prompt); /* llama/run.c; returns the exit code */
#endif

#endif
