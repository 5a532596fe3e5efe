/* test_faults.c - inputs that kernels elsewhere have stumbled over, each with its right value, on every table. */
#include "problem.h"

/* The tables that this machine can run, one after the other. */
static const h2okv__isa *next_table(uint32_t *index)
{
    const h2okv__isa *isa = h2okv__isa_at((*index)++);
    while (isa != NULL && !h2okv__isa_usable(isa)) {
        isa = h2okv__isa_at((*index)++);
    }
    return isa;
}

#define EACH_TABLE(isa) \
    uint32_t table_index = 0; \
    for (const h2okv__isa *isa = next_table(&table_index); isa != NULL; isa = next_table(&table_index))

static h2okv__attention shape_of(uint32_t kv_heads, uint32_t group, uint32_t queries, uint32_t cells, uint32_t fresh)
{
    return (h2okv__attention){.kv_heads = kv_heads, .group = group, .queries = queries, .k_dim = 64, .v_dim = 64,
                              .type_k = H2OKV_TYPE_F32, .type_v = H2OKV_TYPE_F32, .n_cells = cells, .n_fresh = fresh};
}

static void set_all_q(problem *p, float value)
{
    for (size_t i = 0; i < p->a.queries * p->a.q_query_stride; i++) {
        p->q[i] = value;
    }
}

static void set_row(problem *p, bool is_k, uint32_t head, uint32_t i, float value)
{
    float row[H2OKV__MAX_DIM];
    for (uint32_t d = 0; d < H2OKV__MAX_DIM; d++) {
        row[d] = value;
    }
    problem_set_row(p, is_k, head, i, row);
}

/* Logits of cell i become value for a q of (1, 0, 0, ...) and scale 1. */
static void set_logit(problem *p, uint32_t head, uint32_t i, float value)
{
    float row[H2OKV__MAX_DIM] = {value};
    problem_set_row(p, true, head, i, row);
}

static void set_unit_q(problem *p)
{
    set_all_q(p, 0.0f);
    p->a.scale = 1.0f;
    for (uint32_t head = 0; head < problem_heads(p); head++) {
        for (uint32_t query = 0; query < p->a.queries; query++) {
            p->q[head * p->a.q_head_stride + query * p->a.q_query_stride] = 1.0f;
        }
    }
}

/* ---- Which query sees what ---- */

/* Equal logits: query i gives 1 / (i + 1) to each of the first i + 1, so column j gets the sum of 1 / (i + 1), i >= j. */
static void test_uniform_prompt(void **state)
{
    (void)state;
    static const uint32_t lengths[] = {4, 8, 64, 200};
    for (uint32_t n = 0; n < 4; n++) {
        h2okv__attention shape = shape_of(1, 1, lengths[n], lengths[n], lengths[n]);
        problem p;
        problem_create(&p, &shape, 1);
        set_all_q(&p, 0.0f);
        EACH_TABLE(isa) {
            problem_run(&p, isa, 1);
            double want = 0.0;
            for (uint32_t j = lengths[n]; j-- > 0;) {
                want += 1.0 / (j + 1);
                assert_true(problem_close((double)problem_mass(&p, 0, j), want, 1e-5, 0.0));
            }
        }
        if (lengths[n] == 4) {
            static const double by_hand[] = {2.083333, 1.083333, 0.583333, 0.25};
            for (uint32_t j = 0; j < 4; j++) {
                assert_true(problem_close((double)problem_mass(&p, 0, j), by_hand[j], 0.0, 1e-6));
            }
        }
        problem_destroy(&p);
    }
}

static void test_one_query_sees_all(void **state)
{
    (void)state;
    h2okv__attention shape = shape_of(1, 1, 1, 8, 1);
    problem p;
    problem_create(&p, &shape, 2);
    set_all_q(&p, 0.0f);
    EACH_TABLE(isa) {
        problem_run(&p, isa, 1);
        for (uint32_t i = 0; i < 8; i++) {
            assert_true(problem_close((double)problem_mass(&p, 0, i), 0.125, 0.0, 1e-7));
        }
    }
    problem_destroy(&p);
}

/* Four query heads on two KV heads; query head h gives all to token h: KV head 0 gets 1 1 0 0, KV head 1 0 0 1 1. */
static void test_query_heads_that_share(void **state)
{
    (void)state;
    h2okv__attention shape = shape_of(2, 2, 1, 4, 0);
    problem p;
    problem_create(&p, &shape, 3);
    set_all_q(&p, 0.0f);
    p.a.scale = 1.0f;
    for (uint32_t i = 0; i < 4; i++) {
        float row[H2OKV__MAX_DIM] = {0};
        row[i] = 1.0f;
        problem_set_row(&p, true, 0, i, row);
        problem_set_row(&p, true, 1, i, row);
        p.q[i * p.a.q_head_stride + i] = 200.0f;
    }
    EACH_TABLE(isa) {
        problem_run(&p, isa, 1);
        for (uint32_t i = 0; i < 4; i++) {
            assert_true(problem_mass(&p, 0, i) == (i < 2 ? 1.0f : 0.0f));
            assert_true(problem_mass(&p, 1, i) == (i < 2 ? 0.0f : 1.0f));
        }
    }
    problem_destroy(&p);
}

/* Sink 0 and a window of 4 at position 10: the list says so, and nothing else is seen. */
static void test_window_of_one_query(void **state)
{
    (void)state;
    static const uint32_t seen[] = {0, 7, 8, 9, 10};
    h2okv__attention shape = shape_of(1, 1, 1, 11, 0);
    problem p;
    problem_create(&p, &shape, 4);
    p.a.n_cells = 5;
    for (uint32_t i = 0; i < 5; i++) {
        p.cell[i] = seen[i];
    }
    problem_fill(&p);
    set_all_q(&p, 0.0f);
    EACH_TABLE(isa) {
        problem_run(&p, isa, 1);
        problem_check_untouched(&p);
        for (uint32_t i = 0; i < 5; i++) {
            assert_true(problem_close((double)p.mass[seen[i]], 0.2, 0.0, 1e-7));
        }
    }
    problem_destroy(&p);
}

/* 4096 weights of 1 on one cell are 4096: a half stops counting at 2048. */
static void test_many_ones(void **state)
{
    (void)state;
    h2okv__attention shape = shape_of(1, 8, 512, 1, 0);
    problem p;
    problem_create(&p, &shape, 5);
    EACH_TABLE(isa) {
        problem_run(&p, isa, 2);
        assert_true(problem_mass(&p, 0, 0) == 4096.0f);
    }
    problem_destroy(&p);
}

/* ---- NaN goes where the formula takes it, and no further ---- */

enum { NAN_IN_K, NAN_IN_V, NAN_IN_Q, INFINITE_K, INFINITE_V, FAULT_KINDS };

static float odd_nan(void) /* every payload bit set: conversions and exp must not shift it into a number */
{
    uint32_t bits = 0xffffffffu;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static void put_fault(problem *p, uint32_t kind, uint32_t head, uint32_t i, uint32_t query)
{
    if (kind == NAN_IN_Q) {
        p->q[head * p->a.q_head_stride + query * p->a.q_query_stride + 3] = odd_nan();
    } else {
        bool is_k = kind == NAN_IN_K || kind == INFINITE_K, infinite = kind == INFINITE_K || kind == INFINITE_V;
        set_row(p, is_k, head, i, infinite ? INFINITY : odd_nan());
    }
}

static void check_fault(const h2okv__attention *shape, uint32_t kind, uint32_t i)
{
    problem p;
    problem_create(&p, shape, 6 + kind);
    put_fault(&p, kind, 1, i, shape->queries / 2);
    problem_solve(&p);
    EACH_TABLE(isa) {
        for (uint32_t n_threads = 1; n_threads <= 2; n_threads++) {
            problem_run(&p, isa, n_threads);
            problem_check(&p, isa, n_threads, 2e-5, 2e-5);
        }
    }
    problem_destroy(&p);
}

static void test_not_a_number(void **state)
{
    (void)state;
    static const uint32_t queries[] = {1, 3, 8, 9, 70};
    for (uint32_t n = 0; n < 5; n++) {
        for (uint32_t type = H2OKV_TYPE_F32; type <= H2OKV_TYPE_Q8_0; type++) {
            for (uint32_t kind = 0; kind < FAULT_KINDS; kind++) {
                for (uint32_t group = 1; group <= 3; group += 2) {
                    h2okv__attention shape = shape_of(3, group, queries[n], 100 + queries[n], queries[n]);
                    shape.type_k = shape.type_v = type;
                    check_fault(&shape, kind, 100 + queries[n] / 2); /* a fresh cell: half of the queries see it */
                    check_fault(&shape, kind, 17);                   /* a cell that all see */
                }
            }
        }
    }
}

/* ---- Large logits, and rows that see nothing ---- */

static void test_large_logits(void **state)
{
    (void)state;
    static const float levels[] = {1e5f, -1e5f, 0.0f, 99999.0f};
    static const uint32_t queries[] = {1, 20};
    for (uint32_t n = 0; n < 2; n++) {
        for (uint32_t start = 0; start < 4; start++) {
            h2okv__attention shape = shape_of(1, 2, queries[n], 50, 0);
            problem p;
            problem_create(&p, &shape, 8);
            set_unit_q(&p);
            for (uint32_t i = 0; i < 50; i++) {
                set_logit(&p, 0, i, levels[i % 4 < start ? 1 : i % 4]);
            }
            problem_solve(&p);
            EACH_TABLE(isa) {
                problem_run(&p, isa, 1);
                problem_check(&p, isa, 1, 2e-5, 2e-5);
            }
            problem_destroy(&p);
        }
    }
}

static void check_nothing_seen(const problem *p)
{
    for (uint32_t query = 0; query < p->a.queries; query++) {
        for (uint32_t d = 0; d < p->a.v_dim; d++) {
            assert_true(problem_out(p, 0, query, d) == 0.0f);
        }
    }
    for (uint32_t i = 0; i < p->a.n_cells; i++) {
        assert_true(problem_mass(p, 0, i) == 0.0f);
    }
    problem_check_untouched(p);
}

static void test_nothing_seen(void **state)
{
    (void)state;
    for (uint32_t n = 1; n <= 40; n += 39) {
        for (uint32_t cells = 0; cells <= 70; cells += 70) {
            h2okv__attention shape = shape_of(1, 1, n, cells, 0);
            problem p;
            problem_create(&p, &shape, 9);
            set_all_q(&p, 1.0f);
            for (uint32_t i = 0; i < cells; i++) {
                set_row(&p, true, 0, i, -INFINITY);
            }
            EACH_TABLE(isa) {
                problem_run(&p, isa, 2);
                check_nothing_seen(&p);
                p.a.sinks = p.sinks; /* then the sink takes it all */
                problem_run(&p, isa, 2);
                check_nothing_seen(&p);
                p.a.sinks = NULL;
            }
            problem_destroy(&p);
        }
    }
}

/* Some cells at -infinity are as if they were not there. */
static void test_some_minus_infinity(void **state)
{
    (void)state;
    for (uint32_t n = 1; n <= 40; n += 39) {
        h2okv__attention shape = shape_of(1, 2, n, 200, 0);
        problem p;
        problem_create(&p, &shape, 10);
        set_all_q(&p, 1.0f);
        for (uint32_t i = 0; i < 100; i++) { /* a whole piece of the list, and more */
            set_row(&p, true, 0, i, -INFINITY);
        }
        problem_solve(&p);
        EACH_TABLE(isa) {
            problem_run(&p, isa, 1);
            problem_check(&p, isa, 1, 2e-5, 2e-5);
        }
        problem_destroy(&p);
    }
}

/* ---- What the thread had before ---- */

#if defined(__x86_64__)
/* An engine that configures AMX's tiles once a thread, as ggml does, must find its configuration again. */
static void test_tile_configuration(void **state)
{
    (void)state;
    const h2okv__isa *amx = h2okv__isa_find("amx");
    if (!h2okv__isa_usable(amx)) {
        return; /* then no table touches tiles */
    }
    unsigned char before[64] = {1}, after[64] = {0};
    for (int i = 0; i < 8; i++) {
        before[16 + 2 * i] = 32; /* bytes of a row */
        before[48 + i] = 5;      /* rows */
    }
    h2okv__attention shape = shape_of(1, 1, 20, 30, 20);
    problem p;
    problem_create(&p, &shape, 11);
    __asm__ volatile("ldtilecfg (%0)" : : "r"(before) : "memory");
    problem_run(&p, amx, 1);
    __asm__ volatile("sttilecfg (%0)" : : "r"(after) : "memory");
    __asm__ volatile("tilerelease");
    assert_memory_equal(after, before, sizeof after);
    problem_run(&p, amx, 1);
    __asm__ volatile("sttilecfg (%0)" : : "r"(after) : "memory");
    assert_int_equal(after[0], 0); /* none before, none after */
    problem_destroy(&p);
}
#endif

/* ---- What is refused ---- */

static void refuse(uint32_t *field, uint32_t value, const h2okv__attention *a, const char *word)
{
    uint32_t before = *field;
    *field = value;
    const char *why = h2okv__attention_unsupported(a);
    assert_non_null(why);
    assert_non_null(strstr(why, word));
    *field = before;
    assert_null(h2okv__attention_unsupported(a));
}

static void test_unsupported(void **state)
{
    (void)state;
    h2okv__attention a = shape_of(3, 3, 2, 10, 2);
    a.scale = 0.125f;
    refuse(&a.k_dim, 24, &a, "head size");
    refuse(&a.k_dim, 36, &a, "head size");
    refuse(&a.v_dim, 264, &a, "head size");
    refuse(&a.type_k, 4, &a, "f32");
    refuse(&a.type_v, UINT32_MAX, &a, "f32");
    a.k_dim = 40;
    refuse(&a.type_k, H2OKV_TYPE_Q8_0, &a, "q8_0");
    refuse(&a.kv_heads, 0, &a, "no heads");
    refuse(&a.group, 0, &a, "no heads");
    refuse(&a.queries, 0, &a, "no heads");
    refuse(&a.group, 0x7fffffffu, &a, "too many");
    refuse(&a.n_fresh, 1, &a, "own cells");
    refuse(&a.n_cells, 1, &a, "own cells");
    static const float bad[] = {NAN, INFINITY};
    for (uint32_t i = 0; i < 2; i++) {
        a.scale = bad[i];
        assert_non_null(h2okv__attention_unsupported(&a));
        a.scale = 0.125f;
        a.softcap = bad[i];
        assert_non_null(h2okv__attention_unsupported(&a));
        a.softcap = -1.0f;
        assert_non_null(h2okv__attention_unsupported(&a));
        a.softcap = 0.0f;
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_uniform_prompt),   cmocka_unit_test(test_one_query_sees_all),
        cmocka_unit_test(test_query_heads_that_share), cmocka_unit_test(test_window_of_one_query),
        cmocka_unit_test(test_many_ones),        cmocka_unit_test(test_not_a_number),
        cmocka_unit_test(test_large_logits),     cmocka_unit_test(test_nothing_seen),
        cmocka_unit_test(test_some_minus_infinity), cmocka_unit_test(test_unsupported),
#if defined(__x86_64__)
        cmocka_unit_test(test_tile_configuration),
#endif
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
