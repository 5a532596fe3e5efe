/*
 * eval.h - what the files of `h2okv eval` share.
 *
 *   cmd_eval.c   options, the command      eval_grid.c    lists -> rows        eval_hash.c  SHA-256 of the model
 *   eval_math.c  KL, perplexity            eval_keys.c    documents with keys, and whether an answer is right
 *   eval_table.c for people                eval_files.c   JSON, CSV            eval_svg.c   a chart
 *   llama/       eval.c (model, tokens), eval_score.c (ppl, kl), eval_recall.c
 *
 *   row    one policy at one budget; the first is the full cache, which the others are compared with
 */
#ifndef H2OKV_CLI_EVAL_H
#define H2OKV_CLI_EVAL_H

#include "cache_options.h"

#define EVAL_AUTO UINT32_MAX /* not given */

enum {
    EVAL_MOST = 16, /* policies, budgets, depths */
    EVAL_MOST_ROWS = EVAL_MOST * EVAL_MOST * EVAL_MOST + 1,
    EVAL_MOST_QUESTIONS = 32,
    EVAL_HASH_LENGTH = 64,
};

enum eval_what { EVAL_PPL, EVAL_KL, EVAL_RECALL };
extern const char *const eval_names[]; /* by enum eval_what, then NULL */

typedef struct eval_amount {
    double value; /* a whole number, or 0..100 */
    bool percent;
} eval_amount;

typedef struct eval_options {
    const char *model, *file; /* NULL: the default model, the licences of this system */
    const char *policies_text, *budgets_text, *recent_text, *depths_text, *guides_text;
    const char *csv, *svg;
    uint32_t tokens, keys, questions;
    uint32_t threads;
    cache_options cache; /* what goes for all rows: not policy, budget, recent and guide */
    bool json, quiet, verbose;

    enum eval_what what; /* from here on filled in by cmd_eval.c */
    bool tokens_given;
    const char *policy[EVAL_MOST]; /* without those that keep everything: they would be the first row again */
    eval_amount budget[EVAL_MOST], recent;
    bool recent_given;
    double depth[EVAL_MOST]; /* 0..100 */
    uint32_t guide[EVAL_MOST]; /* last tokens of the question that the document is read for; 0: none, CACHE_AUTO: all */
    uint32_t n_policies, n_budgets, n_depths, n_guides;
} eval_options;

typedef struct eval_row {
    cache_options cache; /* with the policy's choices filled in */
    double percent;      /* of the text, as --budget gave it; below 0: it gave a number */
    bool full;           /* the first row; recent and sinks mean nothing */
    char attention[12], isa[32]; /* that were used; isa "": none */

    uint32_t n;                        /* tokens scored or keys asked for; 0: not measured */
    double ppl, kl_mean, kl_p99, top1; /* NAN: not measured */
    uint32_t right, n_first, right_first;
    uint32_t depth_n[EVAL_MOST], depth_right[EVAL_MOST];
} eval_row;

typedef struct eval {
    const eval_options *options;
    cli_buffer text;
    char source[256]; /* of the text */
    char model[4096], hash[EVAL_HASH_LENGTH + 1];
    uint32_t tokens;  /* of the text (ppl, kl) or of a document and its first question at most (recall) */
    uint32_t ubatch;
    eval_row row[EVAL_MOST_ROWS];
    uint32_t n_rows;
    bool stopped; /* by Ctrl-C */
} eval;

/* ---- eval_grid.c -------------------------------------------------------------------------------------- */

/* Parses the lists and checks what the options say together. False: an error has been printed. */
bool eval_check(eval_options *o);

/* Percent round down, so that a row never holds more than was asked for. */
uint32_t eval_amount_of(eval_amount a, uint32_t whole);

/* The rows for a text of `tokens` tokens; the full cache holds `full` of them. False: an error has been printed. */
bool eval_make_rows(eval *e, uint32_t tokens, uint32_t full);

/* ---- eval_math.c -------------------------------------------------------------------------------------- */

/* p[i] = exp(logits[i]) / sum over exp(logits); returns the logarithm of that sum. p may be NULL. */
double eval_softmax(const float *logits, uint32_t n, float *p);

/* KL(P || Q) in nats, at least 0; P is given by its logits, probabilities and logarithm of the sum as eval_softmax
 * makes them, Q by its logits and that logarithm. Exactly 0 when the logits are the same. */
double eval_kl(const float *p_logits, const float *p, double p_sum, const float *q_logits, double q_sum, uint32_t n);

uint32_t eval_most_likely(const float *logits, uint32_t n); /* of equal ones the first */
double eval_perplexity(double sum_of_nll, uint32_t n);      /* exp of the mean */
double eval_mean(const double *values, uint32_t n);
double eval_percentile(double *values, uint32_t n, double percent); /* by nearest rank; sorts the values */

/* ---- eval_keys.c -------------------------------------------------------------------------------------- */

typedef struct eval_key {
    const char *name;
    uint32_t number; /* 10000..99999 */
    uint32_t depth;  /* index in options->depth */
} eval_key;

/* A text in pieces, which end where a sentence does; piece i is the bytes from start[i] to start[i + 1]. */
typedef struct eval_pieces {
    const cli_buffer *text;
    size_t *start;
    uint32_t n;
} eval_pieces;
bool eval_cut(eval_pieces *p, const cli_buffer *text); /* false: out of memory. free(p->start) */

/* The keys of document number `document`, in the order in which they are asked for; and the piece it begins with. */
void eval_draw(const eval_options *o, uint32_t document, const eval_pieces *p, eval_key *key, uint32_t *first_piece);
uint32_t eval_keys_in(const eval_options *o, uint32_t document);
uint32_t eval_documents(const eval_options *o);

/* n pieces from `first` on, after the last the first again, with each key's sentence at its depth. */
bool eval_write_document(cli_buffer *out, const eval_options *o, const eval_pieces *p, uint32_t first, uint32_t n,
                         const eval_key *key, uint32_t n_keys);
bool eval_write_question(cli_buffer *out, const eval_key *key, bool first);

/* An answer is right when its first digits are the number, no more and no fewer. */
bool eval_answer_ended(const char *answer); /* nothing that comes can change it */
bool eval_answer_right(const char *answer, uint32_t number);

/* ---- eval_hash.c -------------------------------------------------------------------------------------- */

/* SHA-256 of the file in hexadecimal, by the system's sha256sum or shasum; "" when it has neither. */
void eval_hash_file(const char *path, char hash[EVAL_HASH_LENGTH + 1]);

/* ---- What comes of it --------------------------------------------------------------------------------- */

const char *eval_row_name(const eval_row *row, char *out, size_t size); /* the policy, and whether it is guided */
double eval_ratio(const eval *e, const eval_row *row);  /* perplexity over the full cache's; NAN: not measured */
double eval_recall(const eval_row *row);                /* share of the keys; NAN: not measured */
double eval_recall_first(const eval_row *row);          /* of the first questions on a document */
double eval_recall_later(const eval_row *row);          /* of the others */

void eval_print(FILE *out, const eval *e);

/* False: an error has been printed. */
bool eval_print_json(FILE *out, const eval *e);
bool eval_write_csv(const char *path, const eval *e);
bool eval_write_svg(const char *path, const eval *e);

#ifdef H2OKV_HAVE_LLAMA
int eval_measure(eval *e); /* llama/eval.c; returns the exit code, CLI_OK also when Ctrl-C ended it (e->stopped) */
#endif

#endif
