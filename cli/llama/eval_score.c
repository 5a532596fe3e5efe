/*
 * eval_score.c - `h2okv eval ppl` and `kl`: the text goes through every context, teacher-forced, and the second half of
 * its tokens is scored.
 *
 *   ppl   row by row:   pass 1, pass 2, ...                          a context at a time
 *   kl    pass by pass: row 0 (full cache), row 1, row 2, ...        all contexts at once
 *
 * For kl only the full cache's logits of one pass are held: the others are compared with them as they come.
 */
#include "eval.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char *const command = "eval";

typedef struct full_pass { /* what the full cache said in this pass */
    float *logits, *p;     /* [ubatch][n_vocab] */
    double *sum;           /* [ubatch] */
} full_pass;

typedef struct runner { /* a row's context */
    eval_row *row;
    h2okv_llama *h;
    double nll, *kl; /* the sum; kl [tokens scored], NULL for ppl and for the full cache */
    uint32_t n, agree;
} runner;

typedef struct scoring {
    eval_work *work;
    llama_token *tokens;
    uint32_t n_tokens, first; /* first: the first token that is scored */
    uint32_t n_vocab, ubatch;
    full_pass full;
    runner *runner;           /* [n_runners] */
    uint32_t n_runners;
    uint32_t at;              /* position at which this pass begins */
    runner *now;              /* whose pass it is */
} scoring;

/* ---- One token ---------------------------------------------------------------------------------------- */

static void compare(scoring *s, uint32_t index, const float *logits, double sum)
{
    const float *full = s->full.logits + (size_t)index * s->n_vocab, *p = s->full.p + (size_t)index * s->n_vocab;
    runner *r = s->now;
    r->kl[r->n] = eval_kl(full, p, s->full.sum[index], logits, sum, s->n_vocab);
    r->agree += eval_most_likely(full, s->n_vocab) == eval_most_likely(logits, s->n_vocab);
}

static void on_logits(void *user, uint32_t index, const float *logits)
{
    scoring *s = user;
    runner *r = s->now;
    uint32_t next = s->at + index + 1; /* the token that these logits tell of */
    bool keep = s->full.p && !r->kl;
    double sum;
    if (next < s->first) return;
    sum = eval_softmax(logits, s->n_vocab, keep ? s->full.p + (size_t)index * s->n_vocab : NULL);
    if (keep) {
        memcpy(s->full.logits + (size_t)index * s->n_vocab, logits, s->n_vocab * sizeof *logits);
        s->full.sum[index] = sum;
    }
    if (r->kl) compare(s, index, logits, sum);
    r->nll += sum - (double)logits[s->tokens[next]];
    r->n++;
}

/* ---- Passes ------------------------------------------------------------------------------------------- */

/* The last token is only told of, never decoded. */
static uint32_t pass_length(const scoring *s)
{
    uint32_t left = s->n_tokens - 1 - s->at;
    return left < s->ubatch ? left : s->ubatch;
}

static int run_pass(scoring *s, runner *r)
{
    uint32_t n = pass_length(s);
    bool scored = s->at + n >= s->first;
    int status;
    s->now = r;
    status = scored ? h2okv_llama_decode_each(r->h, s->tokens + s->at, n, on_logits, s)
                    : h2okv_llama_decode(r->h, s->tokens + s->at, n);
    if (status) return eval_failed(s->work, r->h, status);
    (void)eval_advance(s->work, n);
    return CLI_OK;
}

/* Ctrl-C is heard between passes of all, so that every row has scored the same tokens. */
static int run_passes(scoring *s)
{
    int code = CLI_OK;
    for (s->at = 0; !code && !s->work->eval->stopped && s->at < s->n_tokens - 1; s->at += s->ubatch) {
        for (uint32_t i = 0; i < s->n_runners && !code; i++) code = run_pass(s, &s->runner[i]);
    }
    return code;
}

/* ---- Rows --------------------------------------------------------------------------------------------- */

static void fill_row(const runner *r)
{
    eval_row *row = r->row;
    row->n = r->n;
    if (r->n == 0) return;
    row->ppl = eval_perplexity(r->nll, r->n);
    if (!r->kl) return;
    row->kl_mean = eval_mean(r->kl, r->n);
    row->kl_p99 = eval_percentile(r->kl, r->n, 99);
    row->top1 = (double)r->agree / r->n;
}

static int start_runner(scoring *s, eval_row *row, runner *r)
{
    bool compared = s->full.p && !row->full;
    *r = (runner){ .row = row };
    if (compared) r->kl = malloc((s->n_tokens - s->first) * sizeof *r->kl);
    if (!compared || r->kl) return eval_attach(s->work, row, &r->h);
    cli_error(command, "out of memory");
    return CLI_ENGINE;
}

/* A number of rows through the text together. */
static int score_rows(scoring *s, eval_row *row, uint32_t n)
{
    eval *e = s->work->eval;
    runner *list = calloc(n, sizeof *list);
    int code = list ? CLI_OK : CLI_ENGINE;
    s->runner = list;
    s->n_runners = n;
    for (uint32_t i = 0; i < n && !code; i++) code = start_runner(s, &row[i], &list[i]);
    if (!code) code = run_passes(s);
    for (uint32_t i = 0; i < n && list; i++) {
        bool whole = list[i].n == s->n_tokens - s->first;
        if (!code && (whole || e->options->what == EVAL_KL)) fill_row(&list[i]);
        h2okv_llama_free(list[i].h);
        free(list[i].kl);
    }
    free(list);
    return code;
}

static int score_all(scoring *s)
{
    eval *e = s->work->eval;
    size_t floats = (size_t)s->ubatch * s->n_vocab;
    int code = CLI_OK;
    if (e->options->what == EVAL_PPL) {
        for (uint32_t i = 0; i < e->n_rows && !code && !e->stopped; i++) code = score_rows(s, &e->row[i], 1);
        return code;
    }
    s->full = (full_pass){ malloc(floats * 4), malloc(floats * 4), malloc(s->ubatch * sizeof(double)) };
    if (s->full.logits && s->full.p && s->full.sum) {
        code = score_rows(s, e->row, e->n_rows);
        if (!code && e->row[0].n > 0) { /* the full cache against itself */
            e->row[0].kl_mean = e->row[0].kl_p99 = 0;
            e->row[0].top1 = 1;
        }
    } else {
        cli_error(command, "out of memory: give a smaller --ubatch");
        code = CLI_ENGINE;
    }
    free(s->full.logits);
    free(s->full.p);
    free(s->full.sum);
    return code;
}

/* ---- The text ----------------------------------------------------------------------------------------- */

/* Only so much of the text is tokenized as is needed for sure. */
static int read_tokens(scoring *s)
{
    enum { BYTES_PER_TOKEN = 16, LEAST_TOKENS = 32 };
    const eval *e = s->work->eval;
    const eval_options *o = e->options;
    uint64_t most = (uint64_t)o->tokens * BYTES_PER_TOKEN;
    cli_buffer part = { .data = e->text.data, .n = e->text.n < most ? e->text.n : (size_t)most };
    uint32_t n = 0;
    int code = engine_tokenize(&s->work->engine, &part, &s->tokens, &n);
    if (code) return code;
    s->n_tokens = n < o->tokens ? n : o->tokens;
    if (o->tokens_given && n < o->tokens) {
        cli_error(command, "%s has %u tokens: --tokens %u is more", e->source, (unsigned)n, (unsigned)o->tokens);
        return CLI_INPUT;
    }
    if (n >= LEAST_TOKENS) return CLI_OK;
    cli_error(command, "%s has %u tokens: at least %d", e->source, (unsigned)n, LEAST_TOKENS);
    return CLI_INPUT;
}

int eval_score(eval_work *w)
{
    eval *e = w->eval;
    scoring s = { .work = w, .n_vocab = (uint32_t)llama_vocab_n_tokens(w->engine.vocab) };
    int code = read_tokens(&s);
    if (!code && !eval_make_rows(e, s.n_tokens, s.n_tokens)) code = CLI_USAGE;
    if (!code) {
        s.ubatch = e->ubatch;
        s.first = s.n_tokens / 2;
        w->total = (uint64_t)e->n_rows * (s.n_tokens - 1);
        cli_progress_start(&w->progress, eval_names[e->options->what], e->options->quiet);
        code = score_all(&s);
    }
    free(s.tokens);
    return code;
}
