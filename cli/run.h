/* run.h - the options of `h2okv run`, and the text that it reads. */
#ifndef H2OKV_CLI_RUN_H
#define H2OKV_CLI_RUN_H

#include "cli.h"

#define RUN_AUTO UINT32_MAX /* not given */
#define RUN_LEAST_BUDGET 16
#define RUN_MOST_PINS 16
#define RUN_MOST_GUIDE 4096

typedef struct run_options {
    const char *model;               /* NULL: the default model */
    const char *file, *prompt;
    bool from_stdin;
    uint32_t n_new;
    bool ignore_eos;

    uint32_t budget, recent, sinks;
    const char *policy;
    double decay;                    /* below 0: not given; it, recent, sinks and pool are filled in by run_check */
    uint32_t pool, grace;
    const char *pins_text, *guide_text, *guide_words; /* NULL: not given */
    uint32_t prompt_budget;          /* room while the prompt is read; 0: the budget */
    uint32_t guide_chunk;            /* tokens of text in a guided pass; RUN_AUTO: the adapter's choice */
    uint32_t guide;                  /* last tokens of the prompt that it is read for; RUN_AUTO: its last paragraph */
    struct { uint32_t first, end; } pin[RUN_MOST_PINS]; /* positions first..end-1; filled in by run_check */
    uint32_t n_pins;
    uint32_t lanes;                  /* enum h2okv_llama_lanes */
    uint32_t ubatch;                 /* RUN_AUTO: the adapter's choice */
    uint32_t attention;              /* enum h2okv_llama_attention */
    const char *isa;                 /* NULL: the best here */
    uint32_t kv_type;                /* enum run_kv_type */

    double temp;                     /* 0: the most likely token */
    uint32_t top_k;
    double top_p, min_p;
    uint32_t seed;

    uint32_t threads;
    bool mmap;                       /* map the model file instead of reading it */
    bool json, quiet, verbose, print_config;
} run_options;

enum run_kv_type { RUN_KV_F16, RUN_KV_Q8_0 };

/* By enum h2okv_llama_lanes, h2okv_llama_attention and run_kv_type; each ends with NULL. */
extern const char *const run_lane_names[], *const run_attention_names[], *const run_kv_type_names[];

void run_defaults(run_options *o);

/* Checks what the options say together and fills in what was not given. False: an error has been printed. */
bool run_check(run_options *o);

/* The prompt as it was given: an exit code, and on CLI_OK valid UTF-8 that is not empty. */
int run_read_prompt(const run_options *o, cli_buffer *text);

#ifdef H2OKV_HAVE_LLAMA
int run_model(const run_options *o, const cli_buffer *prompt); /* llama/run.c; returns the exit code */
#endif

#endif
