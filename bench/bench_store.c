/*
 * bench_store.c - what one update() with eviction costs in a store that is full: one layer, 8 heads x 64,
 * f32, batch 1, one thread, beside the same class in PyTorch; and what append() + attend() of one token costs there,
 * which computes the attention itself (one lane a head).
 *
 *   bench_store [--json]      environment PEERS=1: time PyTorch now (peers/seed_torch.py, which installs it
 *                             into the build tree when missing), else print figures recorded earlier
 */
#define _POSIX_C_SOURCE 200809L

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "h2okv/h2okv.h"
#include "timing.h"

#ifndef H2OKV_BENCH_DIR
#define H2OKV_BENCH_DIR "bench"
#endif

enum { HEADS = 8, HEAD_DIM = 64, TABLES = 4 /* of weights, taken in turn */ };

typedef struct result {
    uint32_t half, runs; /* recent and heavy; updates timed */
    double torch_us;     /* recorded: PyTorch 2.13.0 on CPU, 1 thread, on a machine like this one */
    double median_us, p10_us, p90_us;
    double attend_us; /* median */
} result;

static result results[] = {
    {8, 20000, 116.0, 0, 0, 0, 0},
    {256, 10000, 1200.0, 0, 0, 0, 0},
    {1024, 3000, 3800.0, 0, 0, 0, 0},
    {4096, 1000, 18900.0, 0, 0, 0, 0},
};

enum { N_RESULTS = sizeof results / sizeof results[0] };

static void *must(void *memory)
{
    if (memory == NULL) {
        fprintf(stderr, "bench_store: out of memory\n");
        exit(6);
    }
    return memory;
}

/* [0, 1), from a fixed seed. */
static float next_random(void)
{
    static uint64_t state = 1;
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (float)(state >> 40) * 0x1p-24f;
}

static float *random_array(size_t n)
{
    float *out = must(malloc(n * sizeof *out));
    for (size_t i = 0; i < n; i++) {
        out[i] = next_random();
    }
    return out;
}

static h2okv_store *create_store(uint32_t half, uint32_t max_pass)
{
    h2okv_store *store;
    h2okv_shape shape;
    h2okv_options options;
    h2okv_error error;
    h2okv_shape_init(&shape);
    shape.heads = HEADS;
    shape.head_dim = HEAD_DIM;
    shape.max_pass = max_pass;
    shape.lane_per_head = max_pass > 0;
    h2okv_options_init(&options);
    options.budget = 2 * half;
    options.recent = half;
    options.heads = H2OKV_HEADS_MEAN;
    if (h2okv_store_create(&store, &shape, &options, &error) != H2OKV_OK) {
        fprintf(stderr, "bench_store: %s\n", error.text);
        exit(6);
    }
    return store;
}

static void must_be_ok(const char *what, int status)
{
    if (status != H2OKV_OK) {
        fprintf(stderr, "bench_store: %s: %s\n", what, h2okv_strerror(status));
        exit(6);
    }
}

static void must_update(h2okv_store *store, const float *kv, const float *weights)
{
    must_be_ok("update", h2okv_store_update(store, 0, kv, kv + HEADS * HEAD_DIM, weights));
}

/* Weights [HEADS][size] do not sum to 1 here: the level of the numbers changes no decision. */
static void measure(result *r)
{
    uint32_t budget = 2 * r->half;
    size_t table = (size_t)HEADS * budget;
    h2okv_store *store = create_store(r->half, 0);
    float *kv = random_array(2 * HEADS * HEAD_DIM);
    float *weights = random_array(TABLES * table);
    double *us = must(malloc(r->runs * sizeof *us));

    for (uint32_t i = 0; i < budget + 100; i++) {
        must_update(store, kv, weights + i % TABLES * table);
    }
    for (uint32_t i = 0; i < r->runs; i++) {
        double start = now_us();
        must_update(store, kv, weights + i % TABLES * table);
        us[i] = now_us() - start;
    }
    r->median_us = median(us, r->runs);
    r->p10_us = us[r->runs / 10];
    r->p90_us = us[r->runs - 1 - r->runs / 10];
    free(us);
    free(weights);
    free(kv);
    h2okv_store_free(store);
}

/* q, K and V of a token: [HEADS][HEAD_DIM] each, random, from a ring of tokens. */
static void measure_attend(result *r)
{
    enum { ROW = HEADS * HEAD_DIM, RING = 64 };
    uint32_t warm = 2 * r->half + 20, runs = r->runs / 5;
    h2okv_store *store = create_store(r->half, 1);
    float *ring = random_array(3 * ROW * RING);
    double *us = must(malloc(runs * sizeof *us));
    float out[ROW];

    for (uint32_t i = 0; i < warm + runs; i++) {
        const float *q = ring + (size_t)(i % RING) * 3 * ROW;
        double start = now_us();
        must_be_ok("append", h2okv_store_append(store, 0, 1, q + ROW, q + 2 * ROW));
        must_be_ok("attend", h2okv_store_attend(store, 0, q, out));
        if (i >= warm) {
            us[i - warm] = now_us() - start;
        }
    }
    r->attend_us = median(us, runs);
    free(us);
    free(ring);
    h2okv_store_free(store);
}

/* ---- PyTorch ------------------------------------------------------------------------------------------ */

/* The script prints "half microseconds" lines. True when every size was measured. */
static int measure_torch(void)
{
    unsigned half, found = 0;
    double us;
    FILE *lines = popen("python3 '" H2OKV_BENCH_DIR "/peers/seed_torch.py' --install peers", "r");
    while (lines != NULL && fscanf(lines, "%u %lf", &half, &us) == 2) {
        for (size_t i = 0; i < N_RESULTS; i++) {
            if (results[i].half == half) {
                results[i].torch_us = us;
                found++;
            }
        }
    }
    int closed = lines != NULL ? pclose(lines) : -1;
    if (closed != 0 || found != N_RESULTS) {
        fprintf(stderr, "bench_store: PyTorch could not be timed, its figures are those recorded earlier\n");
    }
    return closed == 0 && found == N_RESULTS;
}

/* ---- Report ------------------------------------------------------------------------------------------- */

static const char work[] = "update() with eviction, 1 layer, 8 heads x 64, f32, batch 1, 1 thread";

static void print_table(const char *source)
{
    printf("store: %s\n", work);
    printf("microseconds, median of many runs; PyTorch: %s\n", source);
    printf("  recent+heavy      h2okv      10 %%      90 %%      PyTorch  times faster   append+attend\n");
    for (size_t i = 0; i < N_RESULTS; i++) {
        const result *r = &results[i];
        printf("  %6u+%-6u %9.2f  %8.2f  %8.2f %12.0f %13.0f %15.2f\n", r->half, r->half, r->median_us, r->p10_us,
               r->p90_us, r->torch_us, r->torch_us / r->median_us, r->attend_us);
    }
}

static void print_json(const char *source)
{
    printf("{\"bench\": \"store\", \"work\": \"%s\", \"torch\": \"%s\", \"rows\": [", work, source);
    for (size_t i = 0; i < N_RESULTS; i++) {
        const result *r = &results[i];
        printf("%s\n  {\"recent\": %u, \"heavy\": %u, \"runs\": %u, \"median_us\": %.3f, \"p10_us\": %.3f, "
               "\"p90_us\": %.3f, \"torch_us\": %.1f, \"times_faster\": %.1f, \"attend_us\": %.3f}",
               i > 0 ? "," : "", r->half, r->half, r->runs, r->median_us, r->p10_us, r->p90_us, r->torch_us,
               r->torch_us / r->median_us, r->attend_us);
    }
    printf("\n]}\n");
}

int main(int argc, char **argv)
{
    int json = argc == 2 && strcmp(argv[1], "--json") == 0;
    const char *peers = getenv("PEERS");
    if (argc > 1 && !json) {
        fprintf(stderr, "usage: bench_store [--json]\n");
        return 2;
    }
    for (size_t i = 0; i < N_RESULTS; i++) {
        measure(&results[i]);
        measure_attend(&results[i]);
    }
    const char *source = peers != NULL && strcmp(peers, "1") == 0 && measure_torch() ? "measured now"
                                                                                     : "recorded earlier";
    (json ? print_json : print_table)(source);
    return 0;
}
