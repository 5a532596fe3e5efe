/*
 * test_batch.c - sequences that have a pass together: each gets the bits that it gets alone, whatever the others hold,
 * for every number of threads; and the memory asked for is enough (sanitizers see what lies past it).
 */
#include "problem.h"

enum { MOST_MEMBERS = 20 }; /* more than are done at once */

typedef struct rig {
    h2okv__attention a; /* of the batch: pointers are the first member's */
    h2okv_attention_batch batch;
    problem member[MOST_MEMBERS]; /* run alone, for what is right */
    uint32_t n_cells[MOST_MEMBERS], table_cells;
    unsigned char *k, *v;
    uint32_t *cell;
    float *q, *out, *mass;
} rig;

static void lay_out(rig *r)
{
    const h2okv__attention *one = &r->member[0].a;
    r->a = *one;
    r->a.mass_head_stride = r->table_cells;
    r->batch.cell_stride = r->table_cells;
    r->batch.k_stride = r->table_cells * one->k_cell_stride + 3; /* no address is aligned */
    r->batch.v_stride = r->table_cells * one->v_cell_stride + 9;
    r->batch.q_stride = one->queries * one->q_query_stride;
    r->batch.out_stride = one->queries * one->out_query_stride + 1;
    r->batch.mass_stride = (size_t)r->table_cells * one->kv_heads + 2;
    r->a.k = r->k = problem_memory(r->batch.n, r->batch.k_stride);
    r->a.v = r->v = problem_memory(r->batch.n, r->batch.v_stride);
    r->a.cell = r->cell = problem_memory(r->batch.n, r->batch.cell_stride * sizeof *r->cell);
    r->a.q = r->q = problem_memory(r->batch.n, r->batch.q_stride * sizeof *r->q);
    r->a.out = r->out = problem_memory(r->batch.n, r->batch.out_stride * sizeof *r->out);
    r->a.mass = r->mass = problem_memory(r->batch.n, r->batch.mass_stride * sizeof *r->mass);
}

static void copy_in(rig *r, uint32_t i)
{
    const problem *p = &r->member[i];
    memcpy(r->k + i * r->batch.k_stride, p->k_memory + 1, p->table_cells * p->a.k_cell_stride);
    memcpy(r->v + i * r->batch.v_stride, p->v_memory + 1, p->table_cells * p->a.v_cell_stride);
    memcpy(r->cell + i * r->batch.cell_stride, p->cell, p->a.n_cells * sizeof *p->cell);
    memcpy(r->q + i * r->batch.q_stride, p->q, r->batch.q_stride * sizeof *p->q);
}

/* Members of many lengths, neighbours of very different ones. */
static void open_rig(rig *r, const h2okv__isa *isa, uint32_t n, uint32_t queries)
{
    memset(r, 0, sizeof *r);
    r->batch.n = n;
    r->batch.n_cells = r->n_cells;
    for (uint32_t i = 0; i < n; i++) {
        h2okv__attention shape = {.kv_heads = 3, .group = 3, .queries = queries, .k_dim = 64, .v_dim = 64,
                                  .type_k = H2OKV_TYPE_F16, .type_v = H2OKV_TYPE_Q8_0};
        shape.n_cells = shape.n_fresh = queries;
        shape.n_cells += i == 4 ? 9000 : i % 3 == 0 ? 300 + 17 * i : i % 3 == 1 ? 5 * i : 0;
        problem_create(&r->member[i], &shape, 10 * n + i);
        problem_run(&r->member[i], isa, 1);
        r->n_cells[i] = shape.n_cells;
        r->table_cells = r->member[i].table_cells > r->table_cells ? r->member[i].table_cells : r->table_cells;
    }
    lay_out(r);
    for (uint32_t i = 0; i < n; i++) {
        copy_in(r, i);
    }
}

static void close_rig(rig *r)
{
    void *all[] = {r->k, r->v, r->cell, r->q, r->out, r->mass};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        free(all[i]);
    }
    for (uint32_t i = 0; i < r->batch.n; i++) {
        problem_destroy(&r->member[i]);
    }
}

static void check_member(const rig *r, uint32_t i)
{
    const problem *p = &r->member[i];
    const float *out = r->out + i * r->batch.out_stride, *mass = r->mass + i * r->batch.mass_stride;
    for (uint32_t query = 0; query < p->a.queries; query++) {
        size_t at = query * p->a.out_query_stride;
        assert_memory_equal(out + at, p->out + at, p->a.v_dim * problem_heads(p) * sizeof *out);
    }
    for (uint32_t head = 0; head < p->a.kv_heads; head++) {
        for (uint32_t c = 0; c < p->a.n_cells; c++) {
            const float *one = &mass[head * r->table_cells + p->cell[c]];
            assert_memory_equal(one, &p->mass[head * p->a.mass_head_stride + p->cell[c]], sizeof *one);
        }
    }
}

typedef struct helper {
    h2okv_kernels *kernels;
    const rig *r;
    uint32_t thread, n_threads;
    pthread_barrier_t *between;
} helper;

static void *helper_main(void *argument)
{
    const helper *t = argument;
    for (uint32_t i = 0; i < 4; i++) {
        h2okv_kernels_attend_batch(t->kernels, &t->r->a, &t->r->batch, t->thread, t->n_threads);
        (void)pthread_barrier_wait(t->between); /* as between two nodes of ggml's graph */
    }
    return NULL;
}

static void run_rig(rig *r, const h2okv__isa *isa, uint32_t n_threads)
{
    h2okv__attention largest = r->a;
    for (uint32_t i = 0; i < r->batch.n; i++) {
        largest.n_cells = r->n_cells[i] > largest.n_cells ? r->n_cells[i] : largest.n_cells;
    }
    h2okv_kernels *kernels;
    assert_int_equal(
        h2okv_kernels_create_batch(&kernels, &largest, r->batch.n, n_threads, isa->name, NULL, NULL), H2OKV_OK);
    pthread_barrier_t between;
    pthread_t handle[MOST_THREADS];
    helper t[MOST_THREADS];
    memset(r->out, 0xff, r->batch.n * r->batch.out_stride * sizeof *r->out);
    memset(r->mass, 0xff, r->batch.n * r->batch.mass_stride * sizeof *r->mass);
    assert_int_equal(pthread_barrier_init(&between, NULL, n_threads), 0);
    for (uint32_t i = n_threads; i-- > 0;) {
        t[i] = (helper){kernels, r, i, n_threads, &between};
        if (i > 0) {
            assert_int_equal(pthread_create(&handle[i], NULL, helper_main, &t[i]), 0);
        }
    }
    (void)helper_main(&t[0]);
    for (uint32_t i = 1; i < n_threads; i++) {
        pthread_join(handle[i], NULL);
    }
    (void)pthread_barrier_destroy(&between);
    h2okv_kernels_free(kernels);
}

/* One query each (done in one go), a few, and many. */
static void test_each_as_alone(void **state)
{
    (void)state;
    const struct {
        uint32_t members, queries;
    } cases[] = {{1, 1}, {2, 1}, {5, 1}, {16, 1}, {MOST_MEMBERS, 1}, {3, 2}, {2, 8}, {3, 30}};
    for (uint32_t i = 0; h2okv__isa_at(i) != NULL; i++) {
        const h2okv__isa *isa = h2okv__isa_at(i);
        for (size_t c = 0; c < sizeof cases / sizeof cases[0] && h2okv__isa_usable(isa); c++) {
            rig r;
            open_rig(&r, isa, cases[c].members, cases[c].queries);
            for (uint32_t n_threads = 1; n_threads <= MOST_THREADS; n_threads++) {
                run_rig(&r, isa, n_threads);
                for (uint32_t m = 0; m < r.batch.n; m++) {
                    check_member(&r, m);
                }
            }
            close_rig(&r);
        }
    }
}

/* No member has a mass when none is wanted; one without cells gives 0. */
static void test_without_mass_and_without_cells(void **state)
{
    (void)state;
    rig r;
    const h2okv__isa *isa = h2okv__isa_find(NULL);
    open_rig(&r, isa, 3, 1);
    r.a.mass = NULL;
    r.a.n_fresh = 0;
    r.n_cells[1] = 0;
    run_rig(&r, isa, 2);
    for (uint32_t d = 0; d < r.a.v_dim; d++) {
        assert_true(fabsf(r.out[r.batch.out_stride + d]) <= 0.0f);
        assert_memory_equal(r.out + d, r.member[0].out + d, sizeof(float));
    }
    for (size_t i = 0; i < r.batch.n * r.batch.mass_stride; i++) {
        assert_true(isnan(r.mass[i]));
    }
    close_rig(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_as_alone),
        cmocka_unit_test(test_without_mass_and_without_cells),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
