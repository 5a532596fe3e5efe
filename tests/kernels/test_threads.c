/* test_threads.c - the same bits whatever the number of threads and whoever is faster; the barrier; the memory. */
#include "problem.h"

static const struct {
    uint32_t kv_heads, group, queries, cells, k_dim;
} shapes[] = {
    {3, 3, 1, 1024, 64}, {3, 3, 1, 100, 64},   {1, 1, 1, 8200, 32},  {2, 4, 8, 300, 128},
    {3, 3, 7, 65, 40},   {3, 3, 64, 400, 64},  {1, 8, 100, 257, 72}, {8, 1, 33, 90, 32},
};

enum { SHAPES = sizeof shapes / sizeof shapes[0] };

typedef struct bits {
    float *out, *mass;
    size_t out_bytes, mass_bytes;
} bits;

static bits bits_of(const problem *p)
{
    bits b = {.out_bytes = p->a.queries * p->a.out_query_stride * sizeof(float),
              .mass_bytes = (size_t)p->a.kv_heads * p->table_cells * sizeof(float)};
    b.out = problem_memory(b.out_bytes, 1);
    b.mass = problem_memory(b.mass_bytes, 1);
    memcpy(b.out, p->out, b.out_bytes);
    memcpy(b.mass, p->mass, b.mass_bytes);
    return b;
}

static void check_same_bits(const h2okv__isa *isa, uint32_t index)
{
    h2okv__attention shape = {.kv_heads = shapes[index].kv_heads, .group = shapes[index].group,
                              .queries = shapes[index].queries, .k_dim = shapes[index].k_dim, .v_dim = 64,
                              .type_k = H2OKV_TYPE_F16, .type_v = H2OKV_TYPE_Q8_0, .n_cells = shapes[index].cells,
                              .n_fresh = shapes[index].queries};
    problem p;
    problem_create(&p, &shape, index);
    p.a.query_weight = p.query_weight;
    problem_run(&p, isa, 1);
    bits one = bits_of(&p);
    for (uint32_t n_threads = 1; n_threads <= MOST_THREADS; n_threads++) {
        problem_run_times(&p, isa, n_threads, 6); /* one call after another on one team */
        assert_memory_equal(p.out, one.out, one.out_bytes);
        assert_memory_equal(p.mass, one.mass, one.mass_bytes);
    }
    free(one.out);
    free(one.mass);
    problem_destroy(&p);
}

static void test_same_bits(void **state)
{
    (void)state;
    for (uint32_t i = 0; h2okv__isa_at(i) != NULL; i++) {
        for (uint32_t s = 0; s < SHAPES && h2okv__isa_usable(h2okv__isa_at(i)); s++) {
            check_same_bits(h2okv__isa_at(i), s);
        }
    }
}

/* A NaN makes the amx table start a head over: all threads have to agree on that. */
static void test_same_bits_with_nan(void **state)
{
    (void)state;
    h2okv__attention shape = {.kv_heads = 3, .group = 3, .queries = 40, .k_dim = 64, .v_dim = 64,
                              .type_k = H2OKV_TYPE_F32, .type_v = H2OKV_TYPE_F16, .n_cells = 300, .n_fresh = 40};
    float row[H2OKV__MAX_DIM] = {NAN};
    for (uint32_t i = 0; h2okv__isa_at(i) != NULL; i++) {
        if (h2okv__isa_usable(h2okv__isa_at(i))) {
            problem p;
            problem_create(&p, &shape, 3);
            problem_set_row(&p, true, 1, 280, row);
            problem_solve(&p);
            for (uint32_t n_threads = 1; n_threads <= 3; n_threads++) {
                problem_run_times(&p, h2okv__isa_at(i), n_threads, 3);
                problem_check(&p, h2okv__isa_at(i), n_threads, 2e-5, 2e-5);
            }
            problem_destroy(&p);
        }
    }
}

/* ---- The barrier ---- */

enum { ROUNDS = 300 };

typedef struct barrier_test {
    h2okv__team *team;
    uint32_t n_threads, thread;
    uint32_t *done; /* [n_threads], plain memory: the barrier alone orders it */
    bool wrong;
} barrier_test;

static void *barrier_main(void *argument)
{
    barrier_test *t = argument;
    for (uint32_t round = 1; round <= ROUNDS; round++) {
        t->done[t->thread] = round;
        h2okv__team_wait(t->team, t->n_threads);
        for (uint32_t i = 0; i < t->n_threads; i++) {
            t->wrong |= t->done[i] != round;
        }
        h2okv__team_wait(t->team, t->n_threads);
    }
    return NULL;
}

static void test_barrier(void **state)
{
    (void)state;
    for (uint32_t n = 1; n <= MOST_THREADS; n++) { /* more threads than many machines have processors */
        h2okv__team team = {0};
        uint32_t done[MOST_THREADS] = {0};
        barrier_test t[MOST_THREADS];
        pthread_t handle[MOST_THREADS];
        for (uint32_t i = 0; i < n; i++) {
            t[i] = (barrier_test){&team, n, i, done, false};
            if (i > 0) {
                assert_int_equal(pthread_create(&handle[i], NULL, barrier_main, &t[i]), 0);
            }
        }
        (void)barrier_main(&t[0]);
        for (uint32_t i = 1; i < n; i++) {
            pthread_join(handle[i], NULL);
        }
        for (uint32_t i = 0; i < n; i++) {
            assert_false(t[i].wrong);
        }
    }
}

/* ---- Memory ---- */

/* What is enough for a shape is enough for every smaller one: problem_run gives exactly that much, and sanitizers see
 * what lies past it. */
static void test_scratch_never_shrinks(void **state)
{
    (void)state;
    for (uint32_t i = 0; h2okv__isa_at(i) != NULL; i++) {
        for (uint32_t queries = 1; queries <= 300; queries += queries < 20 ? 1 : 56) {
            size_t before = 0;
            for (uint32_t cells = queries; cells < 40000; cells += 1 + cells / 7) {
                h2okv__attention shape = {.kv_heads = 3, .group = 3, .queries = queries, .k_dim = 64, .v_dim = 64,
                                          .n_cells = cells, .n_fresh = queries};
                size_t bytes = h2okv__attention_scratch_bytes(h2okv__isa_at(i), &shape, 1, 2);
                assert_true(bytes >= before);
                before = bytes;
                shape.queries = shape.n_fresh = queries + 1;
                assert_true(h2okv__attention_scratch_bytes(h2okv__isa_at(i), &shape, 1, 2) >= bytes);
            }
        }
    }
}

static void test_scratch_is_linear_in_cells(void **state)
{
    (void)state;
    h2okv__attention shape = {.kv_heads = 3, .group = 3, .queries = 512, .k_dim = 64, .v_dim = 64, .n_fresh = 512};
    shape.n_cells = 100000;
    size_t some = h2okv__attention_scratch_bytes(h2okv__isa_at(0), &shape, 1, 2);
    shape.n_cells = 200000;
    assert_true(h2okv__attention_scratch_bytes(h2okv__isa_at(0), &shape, 1, 2) < 2 * some + 100000);
    assert_true(some < 100000 * 1000);
    shape.n_cells = UINT32_MAX;
    shape.queries = shape.n_fresh = UINT32_MAX;
    shape.group = UINT32_MAX;
    (void)h2okv__attention_scratch_bytes(h2okv__isa_at(0), &shape, 1, UINT32_MAX >> 16); /* whatever: no trap */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same_bits),
        cmocka_unit_test(test_same_bits_with_nan),
        cmocka_unit_test(test_barrier),
        cmocka_unit_test(test_scratch_never_shrinks),
        cmocka_unit_test(test_scratch_is_linear_in_cells),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
