/*
 * bench_kernels.c - the decode kernel alone, against what this machine's memory can do.
 *
 *   copy, 1,024 cells, 4,096, ..., copy, 1,024, ...      all in turn, many times over; figures are medians
 *
 * A timing goes through as many layers as a model of 30 has, or as make up 64 MiB, because in a model the
 * layers push each other out of the processor's caches. What is copied has the same size.
 */
#include "bench.h"

#include "h2okv/attention.h"

#include <inttypes.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

static const char *const command = "bench";
static const uint32_t cells_of_row[BENCH_KERNEL_CELLS] = { 1024, 4096, 8192, 16384, 65536 };

enum { KV_HEADS = 3, GROUP = 3, DIM = 64, LAYERS = 30, MOST_RUNS = 64, SPINS = 4000 };
enum { LARGEST_CELLS = 65536, MEMORY = 64 << 20 };
enum { ROW_BYTES = 2 * DIM, CELL_BYTES = KV_HEADS * ROW_BYTES }; /* of K or V, f16 */

typedef struct job { /* what the threads do next */
    h2okv_attention attention;
    uint32_t layers;
    size_t layer_bytes; /* K and V */
    enum { COPY, ATTEND, STOP } what;
} job;

typedef struct rig {
    uint32_t n_threads;
    h2okv_kernels *kernels;
    char *memory, *other; /* [MEMORY] each */
    float *q, *out, *mass;
    uint32_t *cell;
    job next;
    atomic_uint arrived, turn;
} rig;

typedef struct worker {
    rig *r;
    uint32_t thread;
    pthread_t handle;
} worker;

/* ---- Threads ------------------------------------------------------------------------------------------ */

/* Until all threads are here. */
static void meet(rig *r)
{
    unsigned turn = atomic_load(&r->turn);
    if (atomic_fetch_add(&r->arrived, 1) + 1 == r->n_threads) {
        atomic_store(&r->arrived, 0);
        atomic_fetch_add(&r->turn, 1);
        return;
    }
    for (unsigned spins = 0; atomic_load(&r->turn) == turn; spins++) {
        if (spins > SPINS) sched_yield();
    }
}

static void work(rig *r, uint32_t thread)
{
    h2okv_attention a = r->next.attention;
    size_t part = MEMORY / r->n_threads;
    if (r->next.what == COPY) memcpy(r->other + thread * part, r->memory + thread * part, part);
    for (uint32_t layer = 0; r->next.what == ATTEND && layer < r->next.layers; layer++) {
        h2okv_kernels_attend(r->kernels, &a, thread, r->n_threads);
        meet(r);
        a.k = (const char *)a.k + r->next.layer_bytes;
        a.v = (const char *)a.v + r->next.layer_bytes;
    }
    meet(r);
}

static void *be_worker(void *argument)
{
    worker *w = argument;
    for (;;) {
        meet(w->r); /* until there is a job */
        if (w->r->next.what == STOP) return NULL;
        work(w->r, w->thread);
    }
}

static double timed(rig *r, const job *next)
{
    double start;
    r->next = *next;
    start = cli_seconds();
    meet(r);
    work(r, 0);
    return cli_seconds() - start;
}

/* ---- What is computed --------------------------------------------------------------------------------- */

static h2okv_attention attention_over(const rig *r, uint32_t cells)
{
    return (h2okv_attention){
        .kv_heads = KV_HEADS, .group = GROUP, .queries = 1, .k_dim = DIM, .v_dim = DIM,
        .type_k = H2OKV_TYPE_F16, .type_v = H2OKV_TYPE_F16,
        .k = r->memory, .v = r->memory ? r->memory + (size_t)cells * CELL_BYTES : NULL,
        .k_cell_stride = CELL_BYTES, .k_head_stride = ROW_BYTES,
        .v_cell_stride = CELL_BYTES, .v_head_stride = ROW_BYTES,
        .cell = r->cell, .n_cells = cells, .n_fresh = 1,
        .q = r->q, .out = r->out,
        .q_head_stride = DIM, .q_query_stride = (size_t)DIM * KV_HEADS * GROUP,
        .out_head_stride = DIM, .out_query_stride = (size_t)DIM * KV_HEADS * GROUP,
        .scale = 0.125f, .mass = r->mass, .mass_head_stride = LARGEST_CELLS,
    };
}

static job job_over(const rig *r, uint32_t cells)
{
    size_t layer = 2 * (size_t)cells * CELL_BYTES, fit = MEMORY / layer;
    job j = { .what = ATTEND, .attention = attention_over(r, cells), .layer_bytes = layer };
    j.layers = fit < LAYERS ? (uint32_t)fit : LAYERS;
    return j;
}

/* Halves from 0.5 to 1, either sign. */
static void fill(char *memory, size_t bytes)
{
    uint32_t state = 1;
    for (size_t i = 0; i + 2 <= bytes; i += 2) {
        uint16_t half;
        state = state * 1664525u + 1013904223u;
        half = (uint16_t)((state >> 16 & 0x8000u) | 0x3800u | (state >> 20 & 0x3ffu));
        memcpy(memory + i, &half, sizeof half);
    }
}

static int prepare(rig *r, const bench_options *o)
{
    h2okv_attention largest = attention_over(r, LARGEST_CELLS);
    size_t query = (size_t)DIM * KV_HEADS * GROUP;
    h2okv_error error;
    r->n_threads = o->threads;
    r->memory = malloc(MEMORY);
    r->other = malloc(MEMORY);
    r->q = calloc(query, sizeof *r->q);
    r->out = calloc(query, sizeof *r->out);
    r->mass = calloc((size_t)KV_HEADS * LARGEST_CELLS, sizeof *r->mass);
    r->cell = calloc(LARGEST_CELLS, sizeof *r->cell);
    if (!r->memory || !r->other || !r->q || !r->out || !r->mass || !r->cell) {
        cli_error(command, "out of memory for the kernels");
        return CLI_ENGINE;
    }
    fill(r->memory, MEMORY);
    memset(r->other, 0, MEMORY);
    for (uint32_t i = 0; i < LARGEST_CELLS; i++) r->cell[i] = i;
    for (size_t i = 0; i < query; i++) r->q[i] = (float)(i * 2654435761u % 2001) * 0.001f - 1.0f;
    if (!h2okv_kernels_create(&r->kernels, &largest, o->threads, o->isa, NULL, &error)) return CLI_OK;
    cli_error(command, "%s", error.text);
    return CLI_ENGINE;
}

static void release(rig *r)
{
    h2okv_kernels_free(r->kernels);
    free(r->memory);
    free(r->other);
    free(r->q);
    free(r->out);
    free(r->mass);
    free(r->cell);
}

/* ---- Timing ------------------------------------------------------------------------------------------- */

static void measure(rig *r, uint32_t runs, bench_kernels *k)
{
    static double us[BENCH_KERNEL_CELLS][MOST_RUNS], copies[MOST_RUNS];
    job copy = { .what = COPY };
    snprintf(k->isa, sizeof k->isa, "%s", h2okv_kernels_isa(r->kernels));
    k->n = BENCH_KERNEL_CELLS;
    for (uint32_t run = 0; run < runs + 1; run++) { /* the first one warms up */
        uint32_t at = run > 0 ? run - 1 : 0;
        copies[at] = 2.0 * MEMORY * 1e-9 / timed(r, &copy);
        for (uint32_t i = 0; i < k->n; i++) {
            job j = job_over(r, cells_of_row[i]);
            (void)timed(r, &j); /* so that no row profits from what the one before it has read */
            us[i][at] = timed(r, &j) * 1e6 / j.layers;
            k->row[i].layers = j.layers;
        }
    }
    k->copy_gb_s = bench_spread_of(copies, runs);
    for (uint32_t i = 0; i < k->n; i++) {
        k->row[i].cells = cells_of_row[i];
        k->row[i].us = bench_spread_of(us[i], runs);
        k->row[i].gb_s = 2.0 * cells_of_row[i] * CELL_BYTES * 1e-3 / k->row[i].us.median;
        k->row[i].share = k->row[i].gb_s / k->copy_gb_s.median;
    }
}

static int start_workers(rig *r, worker *w)
{
    for (uint32_t i = 1; i < r->n_threads; i++) {
        w[i] = (worker){ .r = r, .thread = i };
        if (!pthread_create(&w[i].handle, NULL, be_worker, &w[i])) continue;
        cli_error(command, "the system gives only %" PRIu32 " of %" PRIu32 " threads", i, r->n_threads);
        return CLI_ENGINE; /* this process is a child and ends now, and its threads with it */
    }
    return CLI_OK;
}

static void stop_workers(rig *r, worker *w)
{
    r->next.what = STOP;
    meet(r);
    for (uint32_t i = 1; i < r->n_threads; i++) pthread_join(w[i].handle, NULL);
}

int bench_run_kernels(const bench_options *o, bench_kernels *out)
{
    static rig r;
    worker *w = calloc(o->threads, sizeof *w);
    int code = w ? prepare(&r, o) : CLI_ENGINE;
    if (!code && (code = start_workers(&r, w)) != CLI_OK) return code;
    if (!code) {
        measure(&r, o->kernel_runs < MOST_RUNS ? o->kernel_runs : MOST_RUNS, out);
        stop_workers(&r, w);
    }
    release(&r);
    free(w);
    return code;
}
