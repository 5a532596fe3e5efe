/*
 * eval_recall.c - `h2okv eval recall`: documents with keys in them go through a row's context, and the keys are asked
 * for, one after the other, in the same session.
 *
 *   documents -> tokens, once for all rows
 *   each row:  each document:  clear -> prompt = document + question 1 -> answer -> question 2 -> answer ...
 */
#include "eval.h"

#include <inttypes.h>
#include <stdlib.h>

static const char *const command = "eval";
enum { MOST_ANSWER = 12, MOST_QUESTION = 64 };

typedef struct question {
    eval_key key;
    llama_token *tokens; /* of the first one: the document and the question */
    uint32_t n;
    uint32_t n_asking;   /* of these the last ones, the question itself */
} question;

typedef struct document {
    question question[EVAL_MOST_QUESTIONS];
    uint32_t n;
} document;

typedef struct asking {
    eval_work *work;
    eval_pieces pieces;
    document *document;
    uint32_t n_documents;
    h2okv_llama *h; /* of the row that is asked */
    eval_row *row;
    cli_buffer answer;
} asking;

/* ---- Documents ---------------------------------------------------------------------------------------- */

static int no_memory(void)
{
    cli_error(command, "out of memory");
    return CLI_ENGINE;
}

static int tokenize_more(const engine *e, const cli_buffer *text, question *q)
{
    return engine_tokenize_more(e, text->data, text->n, &q->tokens, &q->n);
}

/* The document of so many pieces and its first question, as tokens into its first question. */
static int try_prompt(asking *a, document *d, uint32_t first, uint32_t pieces)
{
    eval_key key[EVAL_MOST_QUESTIONS];
    cli_buffer text = { 0 };
    question *q = &d->question[0];
    int code = CLI_OK;
    free(q->tokens);
    q->tokens = NULL;
    for (uint32_t i = 0; i < d->n; i++) key[i] = d->question[i].key;
    if (!eval_write_document(&text, a->work->eval->options, &a->pieces, first, pieces, key, d->n) ||
        !eval_write_question(&text, &key[0], true)) {
        code = no_memory();
    }
    if (!code) code = engine_tokenize(&a->work->engine, &text, &q->tokens, &q->n);
    cli_buffer_free(&text);
    return code;
}

/* The most pieces with which the prompt keeps within --tokens. */
static int fit_prompt(asking *a, document *d, uint32_t first)
{
    uint32_t most = a->work->eval->options->tokens, low = 0, high = 1;
    int code = try_prompt(a, d, first, 0);
    if (!code && d->question[0].n > most) {
        cli_error(command, "--tokens %" PRIu32 " is too few: the keys alone take %" PRIu32, most, d->question[0].n);
        return CLI_USAGE;
    }
    for (; !code; high *= 2) {
        code = try_prompt(a, d, first, high);
        if (d->question[0].n > most) break;
        low = high;
    }
    while (!code && high - low > 1) {
        uint32_t middle = low + (high - low) / 2;
        code = try_prompt(a, d, first, middle);
        if (d->question[0].n > most) {
            high = middle;
        } else {
            low = middle;
        }
    }
    return code ? code : try_prompt(a, d, first, low);
}

/* How many of the first prompt's tokens ask. */
static int count_asking(asking *a, question *q)
{
    cli_buffer text = { 0 };
    question alone = { 0 };
    int code = eval_write_question(&text, &q->key, true) ? tokenize_more(&a->work->engine, &text, &alone) : no_memory();
    q->n_asking = alone.n < q->n ? alone.n : q->n;
    if (q->n_asking > a->work->longest_guide) a->work->longest_guide = q->n_asking;
    free(alone.tokens);
    cli_buffer_free(&text);
    return code;
}

static int make_document(asking *a, uint32_t number)
{
    const eval_options *o = a->work->eval->options;
    document *d = &a->document[number];
    eval_key key[EVAL_MOST_QUESTIONS];
    uint32_t first;
    int code;
    d->n = eval_keys_in(o, number);
    eval_draw(o, number, &a->pieces, key, &first);
    for (uint32_t i = 0; i < d->n; i++) d->question[i].key = key[i];
    code = fit_prompt(a, d, first);
    if (!code) code = count_asking(a, &d->question[0]);
    for (uint32_t i = 1; i < d->n && !code; i++) {
        cli_buffer text = { 0 };
        code = eval_write_question(&text, &key[i], false) ? tokenize_more(&a->work->engine, &text, &d->question[i])
                                                          : no_memory();
        cli_buffer_free(&text);
    }
    return code;
}

static int make_documents(asking *a)
{
    const eval *e = a->work->eval;
    int code = CLI_OK;
    a->n_documents = eval_documents(e->options);
    a->document = calloc(a->n_documents, sizeof *a->document);
    if (!a->document || !eval_cut(&a->pieces, &e->text)) return no_memory();
    for (uint32_t i = 0; i < a->n_documents && !code; i++) code = make_document(a, i);
    return code;
}

static void free_documents(asking *a)
{
    for (uint32_t i = 0; i < a->n_documents && a->document; i++) {
        for (uint32_t k = 0; k < a->document[i].n; k++) free(a->document[i].question[k].tokens);
    }
    free(a->document);
    free(a->pieces.start);
}

/* Tokens that the longest session holds. */
static uint32_t longest_session(const asking *a)
{
    uint32_t most = 0;
    for (uint32_t i = 0; i < a->n_documents; i++) {
        const document *d = &a->document[i];
        uint32_t n = d->n * MOST_ANSWER;
        for (uint32_t k = 0; k < d->n; k++) n += d->question[k].n;
        most = n > most ? n : most;
    }
    return most;
}

/* Tokens of prompts, over all rows: what the progress counts. */
static uint64_t all_tokens(const asking *a)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < a->n_documents; i++) {
        for (uint32_t k = 0; k < a->document[i].n; k++) sum += a->document[i].question[k].n;
    }
    return sum * a->work->eval->n_rows;
}

/* ---- Questions ---------------------------------------------------------------------------------------- */

static bool on_pass(void *user, uint32_t done, uint32_t total)
{
    eval_work *w = user;
    cli_progress_show(&w->progress, w->done + done, w->total);
    (void)total;
    return eval_advance(w, 0);
}

static int set_budget(asking *a, uint32_t budget, uint32_t recent)
{
    return a->row->cache.prompt_budget > 0 ? h2okv_llama_set_budget(a->h, budget, recent) : H2OKV_OK;
}

/* The document with room of its own, and with the question in mind; then the question. */
static int read_document(asking *a, const question *q)
{
    const cache_options *o = &a->row->cache;
    uint32_t wanted = o->guide < q->n_asking ? o->guide : q->n_asking;
    uint32_t before = q->n - (wanted > 0 ? wanted : q->n_asking);
    h2okv_llama_guide guide;
    int status = set_budget(a, o->prompt_budget, H2OKV_AUTO);
    h2okv_llama_guide_init(&guide);
    engine_set_guide(&guide, o);
    guide.tokens = q->tokens + q->n - wanted;
    guide.n = wanted;
    if (o->guide_chunk == CACHE_AUTO) guide.chunk = o->ubatch;
    if (guide.recent > o->recent) guide.recent = o->recent;
    if (!status && before > 0 && wanted > 0) status = h2okv_llama_decode_guided(a->h, q->tokens, before, &guide);
    if (!status && before > 0 && wanted == 0) status = h2okv_llama_decode(a->h, q->tokens, before);
    if (!status) status = set_budget(a, o->budget, o->recent);
    return status ? status : h2okv_llama_decode(a->h, q->tokens + before, q->n - before);
}

static int read_question(asking *a, const question *q)
{
    bool apart = a->row->cache.guide > 0 || a->row->cache.prompt_budget > 0;
    int status;
    h2okv_llama_set_progress(a->h, on_pass, a->work);
    status = apart && q->n_asking > 0 ? read_document(a, q) : h2okv_llama_decode(a->h, q->tokens, q->n);
    h2okv_llama_set_progress(a->h, NULL, NULL);
    if (status) return eval_failed(a->work, a->h, status);
    (void)eval_advance(a->work, q->n);
    return CLI_OK;
}

/* The most likely token each time, until nothing can change the verdict. The last one is not looked at again. */
static int read_answer(asking *a)
{
    const engine *e = &a->work->engine;
    uint32_t n_vocab = (uint32_t)llama_vocab_n_tokens(e->vocab);
    a->answer.n = 0;
    for (uint32_t i = 0; i < MOST_ANSWER; i++) {
        const float *logits = llama_get_logits_ith(h2okv_llama_context(a->h), -1);
        llama_token token = (llama_token)eval_most_likely(logits, n_vocab);
        int status;
        if (llama_vocab_is_eog(e->vocab, token)) break;
        if (!engine_piece(e, token, &a->answer)) return no_memory();
        if (eval_answer_ended(a->answer.data)) break;
        status = h2okv_llama_decode(a->h, &token, 1);
        if (status) return eval_failed(a->work, a->h, status);
    }
    return CLI_OK;
}

static void keep_verdict(asking *a, const question *q, bool first)
{
    eval_row *row = a->row;
    bool right = a->answer.n > 0 && eval_answer_right(a->answer.data, q->key.number);
    row->n++;
    row->right += right;
    row->n_first += first;
    row->right_first += first && right;
    row->depth_n[q->key.depth]++;
    row->depth_right[q->key.depth] += right;
}

static int ask_document(asking *a, const document *d)
{
    int code;
    h2okv_llama_clear(a->h);
    code = engine_pin(&a->work->engine, a->h, &a->row->cache); /* clear forgets them */
    for (uint32_t i = 0; i < d->n && !code; i++) {
        code = read_question(a, &d->question[i]);
        if (code || a->work->eval->stopped) break;
        code = read_answer(a);
        if (!code) keep_verdict(a, &d->question[i], i == 0);
    }
    return code;
}

static int ask_row(asking *a, eval_row *row)
{
    int code = eval_attach(a->work, row, &a->h);
    a->row = row;
    for (uint32_t i = 0; i < a->n_documents && !code && !a->work->eval->stopped; i++) {
        code = ask_document(a, &a->document[i]);
    }
    h2okv_llama_free(a->h);
    a->h = NULL;
    return code;
}

int eval_ask(eval_work *w)
{
    eval *e = w->eval;
    asking a = { .work = w };
    int code = make_documents(&a);
    if (!code && !eval_make_rows(e, e->options->tokens, longest_session(&a))) code = CLI_USAGE;
    if (!code) {
        w->total = all_tokens(&a);
        cli_progress_start(&w->progress, "recall", e->options->quiet);
    }
    for (uint32_t i = 0; i < e->n_rows && !code && !e->stopped; i++) code = ask_row(&a, &e->row[i]);
    free_documents(&a);
    cli_buffer_free(&a.answer);
    return code;
}
