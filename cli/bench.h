/*
 * bench.h - what the files of `h2okv bench` share.
 *
 *   cmd_bench.c      options -> plan           bench_rounds.c   plan -> samples, each from a child of its own
 *   bench_machine.c  where it is measured      llama/bench.c    what a child does with the model
 *   bench_kernels.c  the kernel alone          bench_ratios.c   medians, and the ratios between systems
 *   bench_report.c   for people                bench_files.c    JSON, CSV            bench_svg.c  a chart
 *
 *   point    one system at one context     samples   what its children measured, at most one a round
 */
#ifndef H2OKV_CLI_BENCH_H
#define H2OKV_CLI_BENCH_H

#include "cli.h"

#define BENCH_AUTO UINT32_MAX /* not given */

enum {
    BENCH_MOST_CONTEXTS = 16,
    BENCH_MOST_ROUNDS = 99,
    BENCH_MOST_NEW = 1024,
    BENCH_KERNEL_CELLS = 5,
    BENCH_ISA_LENGTH = 32,
};

enum bench_system {
    BENCH_LLAMA_FA, /* plain llama.cpp, flash attention */
    BENCH_LLAMA,    /* plain llama.cpp without it */
    BENCH_OBSERVE,
    BENCH_FUSED,
    BENCH_FUSED_Q8,
    BENCH_FUSED_ALL, /* a budget as large as the context, at one context */
    BENCH_SYSTEMS,
};
extern const char *const bench_system_names[BENCH_SYSTEMS + 1];  /* as --systems has them, then NULL */
extern const char *const bench_system_labels[BENCH_SYSTEMS]; /* for people */

/* How the model's file is loaded. */
enum bench_load {
    BENCH_LOAD_OWN,  /* by h2okv read, by llama.cpp mapped: each as it does by itself */
    BENCH_LOAD_READ, /* by all */
    BENCH_LOAD_MMAP,
};
extern const char *const bench_load_names[]; /* as --load has them, then NULL */

typedef struct bench_options {
    const char *model, *file;
    const char *contexts_text, *long_text, *systems_text;
    const char *isa, *csv, *svg;
    uint32_t threads, budget, ubatch, repeat, n_new;
    double minutes;
    uint32_t load; /* enum bench_load */
    bool json, quick, quiet, verbose;

    bool wanted[BENCH_SYSTEMS]; /* from here on filled in by cmd_bench.c */
    uint32_t contexts[BENCH_MOST_CONTEXTS], n_contexts;
    uint32_t long_contexts[BENCH_MOST_CONTEXTS], n_long;
    uint32_t kernel_runs;
} bench_options;

typedef struct bench_sample { /* written by a child, read by its parent */
    double prompt_s;          /* until the logits of the prompt's last token are there */
    double first_token_s;     /* and the most likely token is chosen */
    double token_s;           /* median time of one token at the context's end, choosing included */
    uint64_t kv_bytes, peak_bytes;
    uint32_t prompt_tokens, cells, ubatch;
    char isa[BENCH_ISA_LENGTH]; /* of the kernels; "" without */
} bench_sample;

typedef struct bench_point {
    enum bench_system system;
    uint32_t context;
    uint32_t n; /* samples */
    bench_sample sample[BENCH_MOST_ROUNDS];
    double seconds; /* that the last sample took, all in all; 0: none yet */
} bench_point;

typedef struct bench_spread {
    double median, least, most;
} bench_spread;

typedef struct bench_kernels {
    char isa[BENCH_ISA_LENGTH]; /* "": not measured */
    uint32_t n;                 /* rows */
    bench_spread copy_gb_s;     /* bytes read + written */
    struct {
        uint32_t cells, layers;
        bench_spread us;    /* a layer */
        double gb_s, share; /* K and V bytes of a layer over the median; that over the median of the copies */
    } row[BENCH_KERNEL_CELLS];
} bench_kernels;

typedef struct bench_machine {
    char cpu[128];
    uint32_t processors;
    double load[3]; /* before; below 0: unknown */
    char engine[64]; /* llama.cpp's and ggml's versions */
} bench_machine;

typedef struct bench {
    const bench_options *options;
    cli_buffer text;
    char source[256]; /* of the text */
    bench_machine machine;
    bench_point *point;
    uint32_t n_points;
    bench_kernels kernels;
    double seconds; /* all in all */
    bool stopped;   /* by Ctrl-C */
} bench;

/* ---- Measuring ---------------------------------------------------------------------------------------- */

void bench_look_at_machine(bench_machine *m);

/* Points by context, then system: the order of a round. False: out of memory. */
bool bench_plan(bench *b);

/* Rounds over all points, then the kernels; b->stopped when Ctrl-C ended it. An exit code; on failure an
 * error has been printed, and what was measured before stands. */
int bench_measure(bench *b);

/* In a child: one sample of `point`, and the kernels. Exit codes, an error has been printed. */
int bench_run_point(const bench *b, const bench_point *point, bench_sample *out);
int bench_run_kernels(const bench_options *o, bench_kernels *out);

/* ---- What comes of it --------------------------------------------------------------------------------- */

bench_spread bench_spread_of(double *values, uint32_t n); /* sorts them */
bench_spread bench_prompt_speed(const bench_point *p);    /* tok/s */
bench_spread bench_first_token(const bench_point *p);     /* s */
bench_spread bench_decode_speed(const bench_point *p);    /* tok/s */
bench_spread bench_peak(const bench_point *p);            /* bytes */

typedef struct bench_ratio {
    const char *key;
    char text[160]; /* "decode at 8k, fused / llama.cpp flash attention" */
    double value;
} bench_ratio;
enum { BENCH_MOST_RATIOS = 8 };
uint32_t bench_ratios(const bench *b, bench_ratio *out); /* those that were measured */

char *bench_context_name(char *out, uint32_t context); /* 8192 as "8k"; at least 16 bytes. Returns out. */

void bench_print(FILE *out, const bench *b);

/* False: an error has been printed. */
bool bench_print_json(FILE *out, const bench *b);
bool bench_write_csv(const char *path, const bench *b);
bool bench_write_svg(const char *path, const bench *b);

#endif
