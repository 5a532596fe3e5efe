/*
 * bench_kernels.c - the attention kernels alone: each instruction set, decode and prompt, beside what the machine's
 * memory can do. Shapes are SmolLM2's: 3 KV heads, 9 query heads, 64 numbers a head, K and V f16.
 *
 *   bench_kernels [--json] [--threads N] [--isa NAME] [--type f32|f16|bf16|q8_0] [--runs N] [--layers N]
 *
 * All are measured in turn, `runs` times over; figures are medians. A run goes through as many layers as hold 24 MB,
 * because a model's layers push each other out of the caches (--layers 1: what is left when they do not). Copy
 * bandwidth: all threads copy, bytes read + written.
 */
#if defined(__linux__)
#define _GNU_SOURCE /* sched_setaffinity */
#else
#define _POSIX_C_SOURCE 200809L
#endif

#include <pthread.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/dtype.h"
#include "kernels/attention.h"
#include "timing.h"

enum { KV_HEADS = 3, GROUP = 3, DIM = 64, PROMPT = 224, MOST_THREADS = 64, MOST_RUNS = 999, MOST_ROWS = 64 };
enum { MODEL_BYTES = 24 << 20, COPY_BYTES = 64 << 20, MODEL_LAYERS = 30 };

typedef struct row {
    const h2okv__isa *isa; /* NULL: a copy, or a read, of memory */
    const char *what;
    uint32_t queries, cells;
    double us[MOST_RUNS]; /* of one layer */
    double median, p10, p90;
} row;

typedef struct job { /* what the threads do next */
    const h2okv__isa *isa;
    h2okv__attention a;
    uint32_t layers;
    size_t k_layer, v_layer; /* bytes from layer to layer */
    bool copy, read, stop;
} job;

static struct {
    h2okv__team team, between;
    uint32_t n_threads;
    void *scratch;
    char *memory; /* [2 * COPY_BYTES * n_threads]: K and V of the layers, or what is copied */
    size_t bytes;
    job next;
    volatile uint64_t sink; /* so that reads are not left out */
} rig;

static void *must(void *memory)
{
    if (memory == NULL) {
        fprintf(stderr, "bench_kernels: out of memory\n");
        exit(6);
    }
    return memory;
}

/* ---- Threads ---- */

static void copy_part(uint32_t thread)
{
    size_t part = COPY_BYTES / rig.n_threads;
    memcpy(rig.memory + thread * part, rig.memory + COPY_BYTES + thread * part, part);
}

static void read_part(uint32_t thread)
{
    size_t part = COPY_BYTES / rig.n_threads;
    const char *from = rig.memory + thread * part;
    uint64_t sum[8] = {0};
    for (size_t i = 0; i + sizeof sum <= part; i += sizeof sum) {
        uint64_t line[8];
        memcpy(line, from + i, sizeof line);
        for (int j = 0; j < 8; j++) {
            sum[j] += line[j];
        }
    }
    for (int j = 0; j < 8; j++) {
        rig.sink += sum[j];
    }
}

static void do_job(uint32_t thread)
{
    job *j = &rig.next;
    if (j->copy) {
        copy_part(thread);
    } else if (j->read) {
        read_part(thread);
    } else {
        h2okv__attention a = j->a;
        for (uint32_t layer = 0; layer < j->layers; layer++) {
            h2okv__attend(j->isa, &a, &rig.team, rig.scratch, thread, rig.n_threads);
            h2okv__team_wait(&rig.between, rig.n_threads);
            a.k = (const char *)a.k + j->k_layer;
            a.v = (const char *)a.v + j->v_layer;
        }
    }
    h2okv__team_wait(&rig.between, rig.n_threads);
}

/* A thread to a processor: two on one, as happens beside other programs, measure the scheduler. */
static void stay(uint32_t thread)
{
#if defined(__linux__)
    cpu_set_t one;
    long n = sysconf(_SC_NPROCESSORS_ONLN);
    CPU_ZERO(&one);
    CPU_SET(thread % (uint32_t)(n > 0 ? n : 1), &one);
    (void)sched_setaffinity(0, sizeof one, &one);
#else
    (void)thread;
#endif
}

static void *worker(void *argument)
{
    uint32_t thread = (uint32_t)(size_t)argument;
    stay(thread);
    for (;;) {
        h2okv__team_wait(&rig.between, rig.n_threads); /* until there is a job */
        if (rig.next.stop) {
            return NULL;
        }
        do_job(thread);
    }
}

static double timed(const job *what)
{
    rig.next = *what;
    double start = now_us();
    h2okv__team_wait(&rig.between, rig.n_threads);
    do_job(0);
    return (now_us() - start) / (what->layers > 0 ? what->layers : 1);
}

/* ---- What is measured ---- */

static struct {
    float *q, *out, *mass;
    uint32_t *cell;
} buffer;

static uint32_t wished_layers;

static size_t layer_bytes(uint32_t type, uint32_t cells)
{
    return (size_t)cells * KV_HEADS * h2okv__row_bytes(type, DIM);
}

static job job_of(const row *r, uint32_t type)
{
    job j = {.isa = r->isa, .copy = strcmp(r->what, "copy") == 0, .read = strcmp(r->what, "read") == 0};
    if (r->isa == NULL) {
        return j;
    }
    size_t row_bytes = h2okv__row_bytes(type, DIM);
    j.a = (h2okv__attention){.kv_heads = KV_HEADS, .group = GROUP, .queries = r->queries, .k_dim = DIM, .v_dim = DIM,
                             .type_k = type, .type_v = type, .cell = buffer.cell, .n_cells = r->cells,
                             .n_fresh = r->queries, .q = buffer.q, .out = buffer.out, .mass = buffer.mass,
                             .scale = 0.125f, .mass_head_stride = r->cells};
    j.a.k_cell_stride = j.a.v_cell_stride = KV_HEADS * row_bytes;
    j.a.k_head_stride = j.a.v_head_stride = row_bytes;
    j.a.q_head_stride = j.a.out_head_stride = DIM;
    j.a.q_query_stride = j.a.out_query_stride = DIM * KV_HEADS * GROUP;
    j.k_layer = j.v_layer = 2 * layer_bytes(type, r->cells); /* K and V in turn */
    j.layers = (uint32_t)(MODEL_BYTES / j.k_layer);
    j.layers = j.layers == 0 ? 1 : j.layers > MODEL_LAYERS ? MODEL_LAYERS : j.layers;
    if (wished_layers > 0) { /* past what the memory holds, the first ones again */
        j.k_layer = wished_layers <= j.layers ? j.k_layer : 0;
        j.v_layer = j.k_layer;
        j.layers = wished_layers;
    }
    j.a.k = rig.memory;
    j.a.v = rig.memory + layer_bytes(type, r->cells);
    return j;
}

static void fill_memory(uint32_t type)
{
    float numbers[DIM];
    uint64_t state = 1;
    size_t row_bytes = h2okv__row_bytes(type, DIM);
    for (size_t at = 0; at + row_bytes <= rig.bytes; at += row_bytes) {
        for (uint32_t d = 0; d < DIM; d++) {
            state = state * 6364136223846793005u + 1442695040888963407u;
            numbers[d] = (float)(state >> 40) * 0x1p-23f - 1.0f;
        }
        h2okv__row_encode(type, numbers, rig.memory + at, DIM);
    }
}

static void set_up(uint32_t type, const row *rows, uint32_t n_rows)
{
    static pthread_t handle[MOST_THREADS];
    uint32_t most_cells = 0;
    size_t scratch = 0;
    for (uint32_t i = 0; i < n_rows; i++) {
        most_cells = rows[i].cells > most_cells ? rows[i].cells : most_cells;
    }
    rig.bytes = 2 * (size_t)COPY_BYTES;
    if (rig.bytes < 2 * layer_bytes(type, most_cells)) {
        rig.bytes = 2 * layer_bytes(type, most_cells);
    }
    rig.memory = must(aligned_alloc(64, rig.bytes));
    fill_memory(type);
    buffer.q = must(calloc((size_t)PROMPT * KV_HEADS * GROUP * DIM, sizeof(float)));
    buffer.out = must(calloc((size_t)PROMPT * KV_HEADS * GROUP * DIM, sizeof(float)));
    buffer.mass = must(calloc((size_t)most_cells * KV_HEADS, sizeof(float)));
    buffer.cell = must(calloc(most_cells, sizeof(uint32_t)));
    for (uint32_t i = 0; i < most_cells; i++) {
        buffer.cell[i] = i;
    }
    for (uint32_t i = 0; i < PROMPT * KV_HEADS * GROUP * DIM; i++) {
        buffer.q[i] = (float)(i * 2654435761u % 2001) * 0.001f - 1.0f;
    }
    for (uint32_t i = 0; i < n_rows; i++) {
        if (rows[i].isa != NULL) {
            job j = job_of(&rows[i], type);
            size_t bytes = h2okv__attention_scratch_bytes(rows[i].isa, &j.a, 1, rig.n_threads);
            scratch = bytes > scratch ? bytes : scratch;
        }
    }
    rig.scratch = must(aligned_alloc(64, (scratch + 63) / 64 * 64));
    memset(rig.scratch, 0, scratch);
    stay(0);
    for (size_t i = 1; i < rig.n_threads; i++) {
        if (pthread_create(&handle[i], NULL, worker, (void *)i) != 0) {
            fprintf(stderr, "bench_kernels: no more threads\n");
            exit(6);
        }
    }
}

static void measure(row *rows, uint32_t n_rows, uint32_t runs, uint32_t type)
{
    for (uint32_t run = 0; run < runs + 1; run++) { /* the first one warms up */
        for (uint32_t i = 0; i < n_rows; i++) {
            job j = job_of(&rows[i], type);
            if (j.isa != NULL && rows[i].queries == 1) {
                (void)timed(&j); /* so that no line profits from what the one before it has read */
            }
            rows[i].us[run > 0 ? run - 1 : 0] = timed(&j);
        }
    }
    for (uint32_t i = 0; i < n_rows; i++) {
        rows[i].median = median(rows[i].us, runs);
        rows[i].p10 = rows[i].us[runs / 10];
        rows[i].p90 = rows[i].us[runs - 1 - runs / 10];
    }
}

/* ---- Report ---- */

typedef struct figures {
    double gb_s, share, gmac_s, token_ms; /* token_ms: attention of one token in a model of 30 layers */
} figures;

static double seen_pairs(const row *r) /* of queries and cells */
{
    return (double)r->queries * r->cells - (double)r->queries * (r->queries - 1) / 2.0;
}

static figures figures_of(const row *r, double copy_gb_s, uint32_t type)
{
    figures f = {0};
    if (r->isa == NULL) {
        f.gb_s = (r->what[0] == 'c' ? 2.0 : 1.0) * COPY_BYTES / r->median * 1e-3;
        f.share = f.gb_s / copy_gb_s;
        return f;
    }
    f.gb_s = 2.0 * (double)layer_bytes(type, r->cells) / r->median * 1e-3;
    f.share = f.gb_s / copy_gb_s;
    f.gmac_s = seen_pairs(r) * KV_HEADS * GROUP * 2.0 * DIM / r->median * 1e-3;
    f.token_ms = r->median * MODEL_LAYERS / r->queries * 1e-3;
    return f;
}

static void print_table(const row *rows, uint32_t n_rows, uint32_t type, const char *load)
{
    double copy = figures_of(&rows[0], 1.0, type).gb_s;
    printf("threads %u, load %s\n", rig.n_threads, load);
    printf("%-8s %-7s %6s  %10s %21s %7s %6s %8s %9s\n", "isa", "what", "cells", "us a layer", "(10% .. 90%)", "GB/s",
           "share", "GMAC/s", "ms/token");
    for (uint32_t i = 0; i < n_rows; i++) {
        const row *r = &rows[i];
        figures f = figures_of(r, copy, type);
        printf("%-8s %-7s %6u  %10.1f (%8.1f .. %8.1f) %7.1f %6.2f %8.1f %9.4f\n", r->isa != NULL ? r->isa->name : "-",
               r->what, r->cells, r->median, r->p10, r->p90, f.gb_s, f.share, f.gmac_s, f.token_ms);
    }
}

static void print_json(const row *rows, uint32_t n_rows, uint32_t type, const char *load)
{
    double copy = figures_of(&rows[0], 1.0, type).gb_s;
    printf("{\"threads\": %u, \"load\": \"%s\", \"rows\": [", rig.n_threads, load);
    for (uint32_t i = 0; i < n_rows; i++) {
        const row *r = &rows[i];
        figures f = figures_of(r, copy, type);
        printf("%s\n  {\"isa\": \"%s\", \"what\": \"%s\", \"queries\": %u, \"cells\": %u, "
               "\"us\": %.2f, \"us_p10\": %.2f, \"us_p90\": %.2f, \"gb_s\": %.2f, "
               "\"share_of_copy\": %.3f, \"gmac_s\": %.1f, \"token_ms\": %.4f}",
               i > 0 ? "," : "", r->isa != NULL ? r->isa->name : "", r->what, r->queries, r->cells, r->median, r->p10,
               r->p90, f.gb_s, f.share, f.gmac_s, f.token_ms);
    }
    printf("\n]}\n");
}

/* ---- Options ---- */

typedef struct options {
    const char *isa;
    uint32_t type, runs;
    bool json;
} options;

static uint32_t list_rows(row *rows, const options *o)
{
    static const uint32_t decode[] = {1024, 4096, 8192, 16384, 65536}, prompt[] = {1024, 4096};
    uint32_t n = 0;
    rows[n++] = (row){.what = "copy"};
    rows[n++] = (row){.what = "read"};
    for (uint32_t i = 0; h2okv__isa_at(i) != NULL; i++) {
        const h2okv__isa *isa = h2okv__isa_at(i);
        if (o->isa != NULL ? strcmp(isa->name, o->isa) != 0 : i == 0 || !h2okv__isa_usable(isa)) {
            continue; /* the scalar table is the specification and takes its time: only when asked for */
        }
        for (uint32_t c = 0; c < 5 && isa->few == NULL; c++) {
            rows[n++] = (row){.isa = isa, .what = "decode", .queries = 1, .cells = decode[c]};
        }
        for (uint32_t c = 0; c < 2; c++) {
            rows[n++] = (row){.isa = isa, .what = "prompt", .queries = PROMPT, .cells = prompt[c]};
        }
    }
    return n;
}

static const char *load_now(void)
{
    static char text[64] = "unknown";
    FILE *file = fopen("/proc/loadavg", "r");
    if (file != NULL) {
        if (fgets(text, sizeof text, file) != NULL) {
            text[strcspn(text, "\n")] = '\0';
        }
        fclose(file);
    }
    return text;
}

static uint32_t type_of_name(const char *name)
{
    static const char *const names[] = {"f32", "f16", "bf16", "q8_0"};
    for (uint32_t i = 0; i < 4; i++) {
        if (strcmp(name, names[i]) == 0) {
            return i;
        }
    }
    return UINT32_MAX;
}

static void usage(void)
{
    fprintf(stderr, "usage: bench_kernels [--json] [--threads 1..64] [--isa NAME] [--type f32|f16|bf16|q8_0] "
                    "[--runs 1..999] [--layers N]\n");
    exit(2);
}

static options read_options(int argc, char **argv)
{
    options o = {.type = H2OKV_TYPE_F16, .runs = 21};
    rig.n_threads = 2;
    for (int i = 1; i < argc; i++) {
        const char *value = i + 1 < argc ? argv[i + 1] : "";
        if (strcmp(argv[i], "--json") == 0) {
            o.json = true;
            continue;
        }
        if (strcmp(argv[i], "--threads") == 0) {
            rig.n_threads = (uint32_t)strtoul(value, NULL, 10);
        } else if (strcmp(argv[i], "--runs") == 0) {
            o.runs = (uint32_t)strtoul(value, NULL, 10);
        } else if (strcmp(argv[i], "--layers") == 0) {
            wished_layers = (uint32_t)strtoul(value, NULL, 10);
        } else if (strcmp(argv[i], "--type") == 0) {
            o.type = type_of_name(value);
        } else if (strcmp(argv[i], "--isa") == 0) {
            o.isa = value;
        } else {
            usage();
        }
        i++;
    }
    if (rig.n_threads < 1 || rig.n_threads > MOST_THREADS || o.runs < 1 || o.runs > MOST_RUNS || o.type == UINT32_MAX ||
        (o.isa != NULL && (h2okv__isa_find(o.isa) == NULL || !h2okv__isa_usable(h2okv__isa_find(o.isa))))) {
        usage();
    }
    return o;
}

int main(int argc, char **argv)
{
    static row rows[MOST_ROWS];
    options o = read_options(argc, argv);
    uint32_t n = list_rows(rows, &o);
    set_up(o.type, rows, n);
    char load[64];
    snprintf(load, sizeof load, "%s", load_now());
    measure(rows, n, o.runs, o.type);
    (o.json ? print_json : print_table)(rows, n, o.type, load);
    rig.next.stop = true;
    h2okv__team_wait(&rig.between, rig.n_threads);
    return 0;
}
