/*
 * bench_books.c - what the books cost: observe + plan + commit of one decode step, 1,024 cells x 90 lanes with
 * three query heads a lane, as SmolLM2-135M has them; alone, and with a model as a share of its decode step in
 * observe and in fused mode.
 *
 *   bench_books [--json]
 */
#define _POSIX_C_SOURCE 200809L

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "h2okv/h2okv.h"
#ifdef H2OKV_HAVE_LLAMA
#include "h2okv/llama.h"
#endif
#include "timing.h"

enum { LANES = 90, GROUP = 3, CELLS = 1024, BUDGET = 1023, STEPS = 300 };

static void check(int status, const char *what)
{
    if (status != H2OKV_OK) {
        fprintf(stderr, "bench_books: %s: %s\n", what, h2okv_strerror(status));
        exit(6);
    }
}

/* One row of weights for all cells and heads, drawn once; which lane gets which part changes with the step. */
static float *draw_weights(size_t n)
{
    float *weights = malloc(n * sizeof *weights);
    uint64_t state = 1;
    for (size_t i = 0; weights != NULL && i < n; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        weights[i] = (float)(state >> 40) * 0x1p-24f / CELLS;
    }
    return weights;
}

/* The first BUDGET tokens one by one into a cell each, without attention. */
static void fill(h2okv_cache *cache)
{
    const h2okv_plan *plan;
    for (uint32_t i = 0; i < BUDGET; i++) {
        int32_t pos = (int32_t)i;
        check(h2okv_cache_admit(cache, &i, &pos, 1), "admit");
        for (uint32_t lane = 0; lane < LANES; lane++) {
            check(h2okv_cache_observe_mass(cache, lane, NULL), "observe");
        }
        check(h2okv_cache_plan(cache, &plan), "plan");
        check(h2okv_cache_commit(cache, plan), "commit");
    }
}

/* One token into the free cell; returns the cell that became free. */
static uint32_t step(h2okv_cache *cache, uint32_t free_cell, int32_t pos, const float *weights)
{
    const h2okv_plan *plan;
    check(h2okv_cache_admit(cache, &free_cell, &pos, 1), "admit");
    for (uint32_t lane = 0; lane < LANES; lane++) {
        h2okv_weights w = {
            .heads = GROUP,
            .queries = 1,
            .columns = CELLS,
            .data = weights + (lane + (uint32_t)pos) % LANES * (size_t)GROUP * CELLS,
            .head_stride = CELLS,
            .query_stride = CELLS,
        };
        check(h2okv_cache_observe(cache, lane, &w), "observe");
    }
    check(h2okv_cache_plan(cache, &plan), "plan");
    uint32_t freed = plan->freed_cell[0];
    check(h2okv_cache_commit(cache, plan), "commit");
    return freed;
}

static double books_alone_us(void)
{
    h2okv_options options;
    h2okv_options_init(&options);
    options.lanes = LANES;
    options.cells = CELLS;
    options.budget = BUDGET;
    h2okv_cache *cache;
    check(h2okv_cache_create(&cache, &options, NULL), "create");
    float *weights = draw_weights((size_t)LANES * GROUP * CELLS);
    check(weights != NULL ? H2OKV_OK : H2OKV_E_NOMEM, "weights");
    fill(cache);
    double times[STEPS];
    uint32_t free_cell = BUDGET;
    for (uint32_t i = 0; i < STEPS; i++) {
        double start = now_us();
        free_cell = step(cache, free_cell, (int32_t)(BUDGET + i), weights);
        times[i] = now_us() - start;
    }
    free(weights);
    h2okv_cache_free(cache);
    return median(times, STEPS);
}

typedef struct with_model {
    bool measured;
    double step_us, books_us, share; /* medians over the decode steps */
} with_model;

#ifdef H2OKV_HAVE_LLAMA
static void silent(enum ggml_log_level level, const char *text, void *user)
{
    (void)user;
    if (level == GGML_LOG_LEVEL_ERROR) {
        fputs(text, stderr);
    }
}

static void time_steps(h2okv_llama *h, with_model *out)
{
    enum { PROMPT = 1024, N = 100 };
    llama_token token[PROMPT];
    for (int i = 0; i < PROMPT; i++) {
        token[i] = 1000 + i * 7 % 5000;
    }
    check(h2okv_llama_decode(h, token, PROMPT), "prompt");
    double books[N], steps[N], share[N];
    h2okv_llama_stats before, after;
    for (int i = 0; i < N; i++) {
        h2okv_llama_get_stats(h, &before);
        check(h2okv_llama_decode(h, token + i, 1), "decode");
        h2okv_llama_get_stats(h, &after);
        books[i] = (double)(after.bookkeeping_us - before.bookkeeping_us);
        steps[i] = books[i] + (double)(after.engine_us - before.engine_us);
        share[i] = books[i] / steps[i];
    }
    *out = (with_model){true, median(steps, N), median(books, N), median(share, N)};
}

static with_model books_in_model(uint32_t attention)
{
    with_model result = {false, 0, 0, 0};
    llama_log_set(silent, NULL);
    check(h2okv_llama_load_backends(NULL), "backends");
    struct llama_model *model = llama_model_load_from_file(H2OKV_BENCH_MODEL, llama_model_default_params());
    if (model == NULL) {
        return result;
    }
    struct llama_context_params params = llama_context_default_params();
    params.n_threads = params.n_threads_batch = 2;
    h2okv_options cache;
    h2okv_options_init(&cache);
    cache.budget = 800; /* 1,024 cells */
    h2okv_llama_options options;
    h2okv_llama_options_init(&options);
    options.cache = &cache;
    options.attention = attention;
    h2okv_llama *h;
    check(h2okv_llama_create(&h, model, params, &options, NULL), "context");
    time_steps(h, &result);
    h2okv_llama_free(h);
    llama_model_free(model);
    return result;
}
#else
enum { H2OKV_ATTENTION_FUSED, H2OKV_ATTENTION_OBSERVE };
static with_model books_in_model(uint32_t attention)
{
    (void)attention;
    return (with_model){false, 0, 0, 0};
}
#endif

static void print_json(const char *name, const with_model *m)
{
    if (m->measured) {
        printf(", \"%s\": {\"step_us\": %.1f, \"books_us\": %.1f, \"share\": %.4f}", name, m->step_us, m->books_us,
               m->share);
    }
}

static void print_line(const char *name, const with_model *m, double alone)
{
    if (m->measured) {
        printf("  %-8s a step of %7.1f us: they are %4.1f %% of it; with tap and moves %6.1f us, %4.1f %%\n", name,
               m->step_us, 100.0 * alone / m->step_us, m->books_us, 100.0 * m->share);
    }
}

int main(int argc, char **argv)
{
    bool json = argc > 1 && strcmp(argv[1], "--json") == 0;
    double alone = books_alone_us();
    with_model observe = books_in_model(H2OKV_ATTENTION_OBSERVE), fused = books_in_model(H2OKV_ATTENTION_FUSED);
    if (json) {
        printf("{\"books_us\": %.1f", alone);
        print_json("observe", &observe);
        print_json("fused", &fused);
        printf("}\n");
        return 0;
    }
    printf("Books of one decode step, %d lanes x %d cells, %d heads a lane (medians)\n", LANES, CELLS, GROUP);
    printf("  observe + plan + commit alone: %.1f us. In SmolLM2-135M, 2 threads:\n", alone);
    print_line("observe", &observe, alone);
    print_line("fused", &fused, alone);
    return 0;
}
