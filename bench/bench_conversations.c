/*
 * bench_conversations.c - several conversations at 4k tokens each, decoded together: h2okv with a budget beside plain
 * llama.cpp with full caches, in one process and in turns; and how many conversations of 8k tokens fit into 1 GiB.
 *
 *   all      one context of 8 sequences; one is read, the others are copies
 *   rounds   N = 1, 2, 4, 8:  full, new, h2okv:  a block of steps, each one token of each of N conversations
 *   new      plain llama.cpp with conversations that have just begun: what is left when attention costs nothing
 *
 *   bench_conversations [--json] [THREADS]
 */
#define _POSIX_C_SOURCE 200809L

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "h2okv/llama.h"
#include "timing.h"

enum { MOST = 8, CONTEXT = 4096, BUDGET = 800, ROUNDS = 7, STEPS = 8, LONG_CONTEXT = 8192 };
enum { COUNTS = 4, GROWTH = ROUNDS * STEPS * COUNTS };
static const uint32_t counts[COUNTS] = {1, 2, 4, 8};
static const double GIB = 1024.0 * 1024 * 1024;

/* llama.cpp without h2okv. */
typedef struct plain {
    struct llama_context *context;
    int32_t next[MOST]; /* position of each sequence's next token */
} plain;

typedef struct rig {
    struct llama_model *model;
    int32_t n_vocab, threads;
    plain full, new;
    struct llama_batch batch;
    h2okv_llama *h;
} rig;

/* ---- Small things ---- */

static void check(bool ok, const char *what)
{
    if (!ok) {
        fprintf(stderr, "bench_conversations: %s failed\n", what);
        exit(6);
    }
}

static void silent(enum ggml_log_level level, const char *text, void *user)
{
    (void)user;
    if (level == GGML_LOG_LEVEL_ERROR) {
        fputs(text, stderr);
    }
}

static llama_token token_at(uint32_t i)
{
    return 1000 + (llama_token)(i * 7919 % 20011);
}

static llama_token most_likely(const float *logits, int32_t n)
{
    llama_token best = 0;
    for (llama_token i = 1; i < n; i++) {
        best = logits[i] > logits[best] ? i : best;
    }
    return best;
}

/* ---- Contexts ---- */

static struct llama_context_params context_params(const rig *r)
{
    struct llama_context_params params = llama_context_default_params();
    params.n_threads = params.n_threads_batch = r->threads;
    params.no_perf = true;
    return params;
}

/* A cache of its own for each sequence, as llama.cpp's server has them, and flash attention. */
static struct llama_context *open_plain(const rig *r, uint32_t cells)
{
    struct llama_context_params params = context_params(r);
    params.n_seq_max = MOST;
    params.n_ctx = MOST * cells;
    params.kv_unified = false;
    params.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_ENABLED;
    struct llama_context *context = llama_init_from_model(r->model, params);
    check(context != NULL, "making llama.cpp's context");
    return context;
}

static h2okv_llama *open_h2okv(const rig *r, uint32_t sequences)
{
    h2okv_options cache;
    h2okv_options_init(&cache);
    cache.budget = BUDGET;
    h2okv_llama_options options;
    h2okv_llama_options_init(&options);
    options.cache = &cache;
    options.sequences = sequences;
    h2okv_llama *h = NULL;
    h2okv_error error;
    if (h2okv_llama_create(&h, r->model, context_params(r), &options, &error) != H2OKV_OK) {
        fprintf(stderr, "bench_conversations: %s\n", error.text);
        exit(6);
    }
    return h;
}

static void add(struct llama_batch *batch, llama_token token, int32_t pos, llama_seq_id seq, bool logits)
{
    int32_t i = batch->n_tokens++;
    batch->token[i] = token;
    batch->pos[i] = pos;
    batch->n_seq_id[i] = 1;
    batch->seq_id[i][0] = seq;
    batch->logits[i] = logits;
}

static void fill_plain(rig *r, plain *p, int32_t tokens)
{
    for (int32_t done = 0; done < tokens;) {
        r->batch.n_tokens = 0;
        for (int32_t i = 0; i < 512 && done < tokens; i++, done++) {
            add(&r->batch, token_at((uint32_t)done), done, 0, done + 1 == tokens);
        }
        check(llama_decode(p->context, r->batch) == 0, "llama.cpp's prompt");
    }
    for (int32_t i = 0; i < MOST; i++) {
        p->next[i] = tokens;
        if (i > 0) {
            llama_memory_seq_cp(llama_get_memory(p->context), 0, i, -1, -1);
        }
    }
}

static void fill_h2okv(rig *r)
{
    llama_token *tokens = malloc(CONTEXT * sizeof *tokens);
    check(tokens != NULL, "memory");
    for (uint32_t i = 0; i < CONTEXT; i++) {
        tokens[i] = token_at(i);
    }
    check(h2okv_llama_decode(r->h, tokens, CONTEXT) == H2OKV_OK, "h2okv's prompt");
    for (uint32_t i = 1; i < MOST; i++) {
        check(h2okv_llama_seq_copy(r->h, 0, i) == H2OKV_OK, "h2okv's copy");
    }
    free(tokens);
}

/* ---- Steps: one token of each of the first n conversations, and the next one chosen ---- */

static void step_plain(rig *r, plain *p, uint32_t n)
{
    r->batch.n_tokens = 0;
    for (uint32_t i = 0; i < n; i++) {
        add(&r->batch, token_at((uint32_t)p->next[i] + i), p->next[i], (llama_seq_id)i, true);
        p->next[i]++;
    }
    check(llama_decode(p->context, r->batch) == 0, "llama.cpp's step");
    for (uint32_t i = 0; i < n; i++) {
        check(most_likely(llama_get_logits_ith(p->context, (int32_t)i), r->n_vocab) >= 0, "choosing");
    }
}

static void step_full(rig *r, uint32_t n)
{
    step_plain(r, &r->full, n);
}

static void step_new(rig *r, uint32_t n)
{
    step_plain(r, &r->new, n);
}

static void step_h2okv(rig *r, uint32_t n)
{
    llama_token token[MOST];
    h2okv_llama_input input[MOST] = {{0}};
    for (uint32_t i = 0; i < n; i++) {
        token[i] = token_at((uint32_t)h2okv_llama_seq_next_pos(r->h, i) + i);
        input[i] = (h2okv_llama_input){.seq = i, .n = 1, .tokens = &token[i]};
    }
    check(h2okv_llama_decode_batch(r->h, input, n) == H2OKV_OK, "h2okv's step");
    for (uint32_t i = 0; i < n; i++) {
        check(most_likely(h2okv_llama_logits(r->h, i), r->n_vocab) >= 0, "choosing");
    }
}

/* Seconds of a step, the median of a block. */
static double block(rig *r, void (*step)(rig *, uint32_t), uint32_t n)
{
    double took[STEPS];
    for (uint32_t i = 0; i < STEPS; i++) {
        double start = now_seconds();
        step(r, n);
        took[i] = now_seconds() - start;
    }
    return median(took, STEPS);
}

enum { FULL, NEW, OURS, SYSTEMS };

typedef struct figures {
    double tok_s[COUNTS][SYSTEMS]; /* over all conversations; medians of the rounds */
} figures;

static figures measure(rig *r)
{
    static void (*const step[SYSTEMS])(rig *, uint32_t) = {step_full, step_new, step_h2okv};
    double tok_s[COUNTS][SYSTEMS][ROUNDS];
    figures f;
    for (uint32_t s = 0; s < SYSTEMS; s++) {
        step[s](r, MOST); /* warm */
    }
    for (uint32_t round = 0; round < ROUNDS; round++) {
        for (uint32_t c = 0; c < COUNTS; c++) {
            for (uint32_t s = 0; s < SYSTEMS; s++) {
                tok_s[c][s][round] = counts[c] / block(r, step[s], counts[c]);
            }
        }
    }
    for (uint32_t c = 0; c < COUNTS; c++) {
        for (uint32_t s = 0; s < SYSTEMS; s++) {
            f.tok_s[c][s] = median(tok_s[c][s], ROUNDS);
        }
    }
    return f;
}

/* ---- Memory ---- */

typedef struct room {
    uint64_t plain_bytes, our_bytes; /* K and V of one conversation of 8k tokens */
    uint32_t plain, ours;            /* how many fit into 1 GiB */
    uint64_t made_bytes;             /* K and V of a context with as many of ours: what it really takes */
} room;

static room count_room(const rig *r)
{
    h2okv_llama_stats stats;
    h2okv_llama_get_stats(r->h, &stats);
    room m = {.plain_bytes = stats.kv_bytes_per_token * LONG_CONTEXT, .our_bytes = stats.kv_bytes / MOST};
    m.plain = (uint32_t)(GIB / (double)m.plain_bytes);
    m.ours = (uint32_t)(GIB / (double)m.our_bytes);
    h2okv_llama *many = open_h2okv(r, m.ours);
    h2okv_llama_get_stats(many, &stats);
    m.made_bytes = stats.kv_bytes;
    h2okv_llama_free(many);
    return m;
}

/* ---- What came of it ---- */

static void print_json(const figures *f, const room *m, int32_t threads)
{
    printf("{\"threads\": %d, \"context\": %d, \"budget\": %d, \"rows\": [", threads, CONTEXT, BUDGET);
    for (uint32_t c = 0; c < COUNTS; c++) {
        const double *x = f->tok_s[c];
        printf("%s{\"conversations\": %u, \"full_tok_s\": %.2f, \"new_tok_s\": %.2f, \"h2okv_tok_s\": %.2f}",
               c ? ", " : "", counts[c], x[FULL], x[NEW], x[OURS]);
    }
    printf("], \"context_in_gib\": %d, \"full_in_gib\": %u, \"h2okv_in_gib\": %u, \"h2okv_bytes\": %llu}\n",
           LONG_CONTEXT, m->plain, m->ours, (unsigned long long)m->made_bytes);
}

static void print_text(const figures *f, const room *m, int32_t threads)
{
    printf("conversations at %d tokens each, decoded together; tok/s over all of them, %d threads; budget %d\n"
           "  %13s %14s %14s %8s %7s %7s\n", CONTEXT, threads, BUDGET, "conversations", "llama.cpp full",
           "llama.cpp new", "h2okv", "/ full", "/ new");
    for (uint32_t c = 0; c < COUNTS; c++) {
        const double *x = f->tok_s[c];
        printf("  %13u %14.1f %14.1f %8.1f %7.2f %7.2f\n", counts[c], x[FULL], x[NEW], x[OURS], x[OURS] / x[FULL],
               x[OURS] / x[NEW]);
    }
    printf("new: conversations that have just begun, so that attention costs nothing\n"
           "conversations of %d tokens in 1 GiB of K and V: %u with full caches, %u with h2okv (they take %.0f MiB)\n",
           LONG_CONTEXT, m->plain, m->ours, (double)m->made_bytes / (1 << 20));
}

int main(int argc, char **argv)
{
    bool json = argc > 1 && strcmp(argv[1], "--json") == 0;
    const char *threads = argc > 1 + json ? argv[1 + json] : "2";
    rig r = {.threads = atoi(threads)};
    check(r.threads > 0, "reading the number of threads");
    llama_log_set(silent, NULL);
    check(h2okv_llama_load_backends(NULL) == H2OKV_OK, "loading llama.cpp's backends");
    r.model = llama_model_load_from_file(H2OKV_BENCH_MODEL, llama_model_default_params());
    check(r.model != NULL, "loading the model");
    r.n_vocab = llama_vocab_n_tokens(llama_model_get_vocab(r.model));
    r.batch = llama_batch_init(512, 0, 1);
    r.full.context = open_plain(&r, CONTEXT + GROWTH);
    r.new.context = open_plain(&r, 256 + GROWTH);
    r.h = open_h2okv(&r, MOST);
    fill_plain(&r, &r.full, CONTEXT);
    fill_plain(&r, &r.new, 1);
    fill_h2okv(&r);
    figures f = measure(&r);
    room m = count_room(&r);
    (json ? print_json : print_text)(&f, &m, r.threads);
    h2okv_llama_free(r.h);
    llama_batch_free(r.batch);
    llama_free(r.new.context);
    llama_free(r.full.context);
    llama_model_free(r.model);
    return 0;
}
