/*
 * problem.h - one call of the kernels: random K, V and q in memory as awkward as allowed (odd addresses, gaps between
 * rows, cells in no order, poison in what must not be read), the naive answer in double, and the comparison.
 */
#ifndef H2OKV_TEST_PROBLEM_H
#define H2OKV_TEST_PROBLEM_H

#define _POSIX_C_SOURCE 200809L /* pthread_barrier_t */

#include "support/check.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/dtype.h"
#include "kernels/attention.h"

enum { MOST_THREADS = 4 };

typedef struct problem {
    h2okv__attention a;
    uint32_t table_cells;     /* cells of the table that the list picks from */
    uint32_t k_bytes, v_bytes; /* of a row */
    uint64_t random;
    unsigned char *k_memory, *v_memory;
    double *k, *v; /* [kv_heads][n_cells][dim], as the types hold them */
    float *q, *out, *mass, *sinks, *query_weight;
    uint32_t *cell;
    double *want_out;  /* [heads][queries][v_dim] */
    double *want_mass; /* [kv_heads][n_cells] */
} problem;

static inline double problem_uniform(problem *p) /* [-1, 1) */
{
    p->random = p->random * 6364136223846793005u + 1442695040888963407u;
    return (double)(p->random >> 11) * 0x1p-52 - 1.0;
}

static inline void *problem_memory(size_t count, size_t bytes)
{
    void *memory = calloc(count + 1, bytes);
    assert_non_null(memory);
    return memory;
}

/* ---- Making one ---- */

static inline uint32_t problem_heads(const problem *p)
{
    return p->a.kv_heads * p->a.group;
}

static inline unsigned char *problem_row(unsigned char *memory, const problem *p, bool is_k, uint32_t head, uint32_t i)
{
    const h2okv__attention *a = &p->a;
    size_t stride = is_k ? a->k_cell_stride : a->v_cell_stride;
    size_t head_stride = is_k ? a->k_head_stride : a->v_head_stride;
    return memory + 1 + a->cell[i] * stride + head * head_stride; /* + 1: no address is aligned */
}

/* Put a row of numbers where the kernel reads it, and what the type made of it where the oracle does. */
static inline void problem_set_row(problem *p, bool is_k, uint32_t head, uint32_t i, const float *numbers)
{
    const h2okv__attention *a = &p->a;
    uint32_t dim = is_k ? a->k_dim : a->v_dim, type = is_k ? a->type_k : a->type_v;
    double *exact = (is_k ? p->k : p->v) + ((size_t)head * a->n_cells + i) * dim;
    unsigned char *row = problem_row(is_k ? p->k_memory : p->v_memory, p, is_k, head, i);
    float back[H2OKV__MAX_DIM];
    h2okv__row_encode(type, numbers, row, dim);
    h2okv__row_decode(type, row, back, dim);
    for (uint32_t d = 0; d < dim; d++) {
        exact[d] = (double)back[d];
    }
}

static inline void problem_fill(problem *p)
{
    float row[H2OKV__MAX_DIM];
    for (uint32_t head = 0; head < p->a.kv_heads; head++) {
        for (uint32_t i = 0; i < p->a.n_cells; i++) {
            for (int is_k = 0; is_k < 2; is_k++) {
                for (uint32_t d = 0; d < H2OKV__MAX_DIM; d++) {
                    row[d] = (float)(problem_uniform(p) * (is_k ? 2.0 : 1.0));
                }
                problem_set_row(p, is_k, head, i, row);
            }
        }
    }
}

/* A shuffled choice of n_cells out of table_cells. */
static inline void problem_choose_cells(problem *p)
{
    uint32_t *all = problem_memory(p->table_cells, sizeof *all);
    for (uint32_t i = 0; i < p->table_cells; i++) {
        all[i] = i;
    }
    for (uint32_t i = 0; i < p->a.n_cells; i++) {
        uint32_t j = i + (uint32_t)((problem_uniform(p) + 1.0) * 0.5 * (p->table_cells - i));
        uint32_t other = all[j];
        all[j] = all[i];
        p->cell[i] = all[i] = other;
    }
    free(all);
}

/* `shape` gives the counts, dims, types and n_fresh; holes are a third of the table. */
static inline void problem_create(problem *p, const h2okv__attention *shape, uint64_t seed)
{
    memset(p, 0, sizeof *p);
    p->a = *shape;
    h2okv__attention *a = &p->a;
    p->random = seed * 977 + 1;
    p->table_cells = a->n_cells + a->n_cells / 2 + 1;
    p->k_bytes = (uint32_t)h2okv__row_bytes(a->type_k, a->k_dim);
    p->v_bytes = (uint32_t)h2okv__row_bytes(a->type_v, a->v_dim);
    a->k_head_stride = p->k_bytes + 3;
    a->v_head_stride = p->v_bytes + 1;
    a->k_cell_stride = a->kv_heads * a->k_head_stride + 5;
    a->v_cell_stride = a->kv_heads * a->v_head_stride + 7;
    size_t k_bytes = p->table_cells * a->k_cell_stride, v_bytes = p->table_cells * a->v_cell_stride;
    p->k_memory = problem_memory(k_bytes + 1, 1);
    p->v_memory = problem_memory(v_bytes + 1, 1);
    memset(p->k_memory, 0xff, k_bytes + 1); /* NaN in every type; in holes and gaps it must not be read */
    memset(p->v_memory, 0xff, v_bytes + 1);
    a->k = p->k_memory + 1;
    a->v = p->v_memory + 1;
    p->k = problem_memory((size_t)a->kv_heads * a->n_cells * a->k_dim, sizeof(double));
    p->v = problem_memory((size_t)a->kv_heads * a->n_cells * a->v_dim, sizeof(double));

    a->q_query_stride = (size_t)a->k_dim * problem_heads(p) + 3; /* token by token, as ggml has it */
    a->q_head_stride = a->k_dim;
    a->out_query_stride = (size_t)a->v_dim * problem_heads(p) + 1;
    a->out_head_stride = a->v_dim;
    p->q = problem_memory(a->queries * a->q_query_stride, sizeof(float));
    p->out = problem_memory(a->queries * a->out_query_stride, sizeof(float));
    a->mass_head_stride = p->table_cells;
    p->mass = problem_memory((size_t)a->kv_heads * p->table_cells, sizeof(float));
    p->cell = problem_memory(a->n_cells, sizeof(uint32_t));
    p->sinks = problem_memory(problem_heads(p), sizeof(float));
    p->query_weight = problem_memory(a->queries, sizeof(float));
    p->want_out = problem_memory((size_t)problem_heads(p) * a->queries * a->v_dim, sizeof(double));
    p->want_mass = problem_memory((size_t)a->kv_heads * a->n_cells, sizeof(double));
    a->q = p->q;
    a->out = p->out;
    a->mass = p->mass;
    a->cell = p->cell;
    for (size_t i = 0; i < a->queries * a->q_query_stride; i++) {
        p->q[i] = (float)(problem_uniform(p) * 2.0);
    }
    for (uint32_t i = 0; i < problem_heads(p); i++) {
        p->sinks[i] = (float)(problem_uniform(p) * 3.0);
    }
    for (uint32_t i = 0; i < a->queries; i++) {
        p->query_weight[i] = (float)pow(0.98, a->queries - 1 - i);
    }
    a->scale = (float)(1.0 / sqrt(a->k_dim));
    problem_choose_cells(p);
    problem_fill(p);
}

static inline void problem_destroy(problem *p)
{
    void *all[] = {p->k_memory, p->v_memory,     p->k,    p->v,        p->q,        p->out, p->mass,
                   p->sinks,    p->query_weight, p->cell, p->want_out, p->want_mass};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        free(all[i]);
    }
}

/* ---- The naive answer ---- */

static inline double problem_logit(const problem *p, uint32_t head, uint32_t query, uint32_t i)
{
    const h2okv__attention *a = &p->a;
    const float *q = p->q + head * a->q_head_stride + query * a->q_query_stride;
    const double *k = p->k + ((size_t)(head / a->group) * a->n_cells + i) * a->k_dim;
    double sum = 0.0;
    for (uint32_t d = 0; d < a->k_dim; d++) {
        sum += (double)q[d] * k[d];
    }
    sum *= (double)a->scale;
    return a->softcap > 0.0f ? (double)a->softcap * tanh(sum / (double)a->softcap) : sum;
}

static inline void problem_solve_row(problem *p, uint32_t head, uint32_t query, double *weight)
{
    const h2okv__attention *a = &p->a;
    uint32_t seen = a->n_fresh == 0 ? a->n_cells : a->n_cells - a->n_fresh + query + 1;
    double most = a->sinks != NULL ? (double)a->sinks[head] : -INFINITY, sum = 0.0;
    for (uint32_t i = 0; i < seen; i++) {
        weight[i] = problem_logit(p, head, query, i);
        most = weight[i] > most ? weight[i] : most;
    }
    sum = a->sinks != NULL ? exp((double)a->sinks[head] - most) : 0.0;
    for (uint32_t i = 0; i < seen; i++) {
        weight[i] = most == -INFINITY && weight[i] == -INFINITY ? 0.0 : exp(weight[i] - most);
        sum += weight[i];
    }
    double *out = p->want_out + ((size_t)head * a->queries + query) * a->v_dim;
    double *mass = p->want_mass + (size_t)(head / a->group) * a->n_cells;
    for (uint32_t i = 0; i < seen; i++) {
        double share = sum == 0.0 ? 0.0 : weight[i] / sum;
        const double *v = p->v + ((size_t)(head / a->group) * a->n_cells + i) * a->v_dim;
        for (uint32_t d = 0; d < a->v_dim; d++) {
            out[d] += share * v[d];
        }
        if (!(a->leave_out_self && a->n_fresh != 0 && i == seen - 1)) {
            mass[i] += share * (a->query_weight != NULL ? (double)a->query_weight[query] : 1.0);
        }
    }
}

static inline void problem_solve(problem *p)
{
    const h2okv__attention *a = &p->a;
    double *weight = problem_memory(a->n_cells, sizeof *weight);
    memset(p->want_out, 0, (size_t)problem_heads(p) * a->queries * a->v_dim * sizeof(double));
    memset(p->want_mass, 0, (size_t)a->kv_heads * a->n_cells * sizeof(double));
    for (uint32_t head = 0; head < problem_heads(p); head++) {
        for (uint32_t query = 0; query < a->queries; query++) {
            problem_solve_row(p, head, query, weight);
        }
    }
    free(weight);
}

/* ---- Running the kernels ---- */

typedef struct problem_thread {
    const h2okv__isa *isa;
    const problem *p;
    h2okv__team *team;
    void *scratch;
    uint32_t thread, n_threads, times;
    pthread_barrier_t *between;
} problem_thread;

/* NaN in the stack that the next call will use. */
__attribute__((noinline)) static void problem_poison_stack(void)
{
    volatile uint32_t below[48 * 1024];
    for (size_t i = 0; i < sizeof below / sizeof below[0]; i++) {
        below[i] = 0x7fc07fc0u;
    }
}

static inline void *problem_thread_main(void *argument)
{
    const problem_thread *t = argument;
    problem_poison_stack();
    for (uint32_t i = 0; i < t->times; i++) {
        h2okv__attend(t->isa, &t->p->a, t->team, t->scratch, t->thread, t->n_threads);
        (void)pthread_barrier_wait(t->between); /* as between two nodes of ggml's graph */
    }
    return NULL;
}

static const float problem_untouched = -12345.0f;

/* On n_threads threads, `times` calls one after the other with the same team and scratch of exactly the size asked
 * for. out and mass are filled with a mark before. */
static inline void problem_run_times(problem *p, const h2okv__isa *isa, uint32_t n_threads, uint32_t times)
{
    size_t bytes = h2okv__attention_scratch_bytes(isa, &p->a, 1, n_threads);
    assert_true(bytes > 0);
    void *scratch = aligned_alloc(64, (bytes + 63) / 64 * 64);
    assert_non_null(scratch);
    memset(scratch, 0xff, bytes); /* NaN: nothing may depend on it */
    for (size_t i = 0; i < p->a.queries * p->a.out_query_stride; i++) {
        p->out[i] = problem_untouched;
    }
    for (size_t i = 0; i < (size_t)p->a.kv_heads * p->table_cells; i++) {
        p->mass[i] = problem_untouched;
    }
    h2okv__team team = {0};
    pthread_barrier_t between;
    pthread_barrier_init(&between, NULL, n_threads);
    pthread_t handle[MOST_THREADS];
    problem_thread t[MOST_THREADS];
    for (uint32_t i = 0; i < n_threads; i++) {
        t[i] = (problem_thread){isa, p, &team, scratch, i, n_threads, times, &between};
        if (i > 0) {
            assert_int_equal(pthread_create(&handle[i], NULL, problem_thread_main, &t[i]), 0);
        }
    }
    (void)problem_thread_main(&t[0]);
    for (uint32_t i = 1; i < n_threads; i++) {
        pthread_join(handle[i], NULL);
    }
    pthread_barrier_destroy(&between);
    free(scratch);
}

static inline void problem_run(problem *p, const h2okv__isa *isa, uint32_t n_threads)
{
    problem_run_times(p, isa, n_threads, 1);
}

/* ---- Comparing ---- */

static inline float problem_out(const problem *p, uint32_t head, uint32_t query, uint32_t d)
{
    return p->out[head * p->a.out_head_stride + query * p->a.out_query_stride + d];
}

static inline float problem_mass(const problem *p, uint32_t kv_head, uint32_t i)
{
    return p->mass[kv_head * p->a.mass_head_stride + p->a.cell[i]];
}

static inline bool problem_close(double got, double want, double relative, double absolute)
{
    if (!isfinite(want)) {
        return isnan(want) ? isnan(got) : isinf(got) && (got > 0.0) == (want > 0.0);
    }
    return fabs(got - want) <= relative * fabs(want) + absolute;
}

static inline void problem_describe(const problem *p, const h2okv__isa *isa, uint32_t n_threads)
{
    const h2okv__attention *a = &p->a;
    print_message("%s: heads %ux%u queries %u cells %u fresh %u dims %u %u types %u %u threads %u%s%s%s%s%s\n",
                  isa->name, a->kv_heads, a->group, a->queries, a->n_cells, a->n_fresh, a->k_dim, a->v_dim,
                  a->type_k, a->type_v, n_threads, a->softcap > 0.0f ? " softcap" : "", a->sinks ? " sinks" : "",
                  a->query_weight ? " weights" : "", a->leave_out_self ? " no self" : "", a->mass ? "" : " no mass");
}

/* V is within 1, so an output is off by `out_error` of that; a mass by `mass_error` of itself and a little more. */
static inline void problem_check(const problem *p, const h2okv__isa *isa, uint32_t n_threads, double out_error,
                                 double mass_error)
{
    const h2okv__attention *a = &p->a;
    for (uint32_t head = 0; head < problem_heads(p); head++) {
        for (uint32_t query = 0; query < a->queries; query++) {
            for (uint32_t d = 0; d < a->v_dim; d++) {
                double want = p->want_out[((size_t)head * a->queries + query) * a->v_dim + d];
                double got = (double)problem_out(p, head, query, d);
                if (!problem_close(got, want, 0.0, out_error)) {
                    problem_describe(p, isa, n_threads);
                    fail_msg("head %u query %u out[%u] is %.9g, should be %.9g", head, query, d, got, want);
                }
            }
        }
    }
    for (uint32_t head = 0; head < a->kv_heads && a->mass != NULL; head++) {
        for (uint32_t i = 0; i < a->n_cells; i++) {
            double want = p->want_mass[(size_t)head * a->n_cells + i], got = (double)problem_mass(p, head, i);
            if (!problem_close(got, want, mass_error, 1e-9)) {
                problem_describe(p, isa, n_threads);
                fail_msg("KV head %u mass[%u] is %.9g, should be %.9g", head, i, got, want);
            }
        }
    }
}

/* Nothing but the listed cells' mass and the rows of out was written. */
static inline void problem_check_untouched(const problem *p)
{
    const h2okv__attention *a = &p->a;
    uint32_t touched = 0;
    for (size_t i = 0; i < (size_t)a->kv_heads * p->table_cells; i++) {
        touched += memcmp(&p->mass[i], &problem_untouched, sizeof(float)) != 0;
    }
    assert_int_equal(touched, a->mass != NULL ? a->kv_heads * a->n_cells : 0);
    for (uint32_t query = 0; query + 1 < a->queries; query++) {
        assert_true(p->out[(query + 1) * a->out_query_stride - 1] == problem_untouched);
    }
}

#endif
