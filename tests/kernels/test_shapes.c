/* test_shapes.c - every table against the naive answer: types, head sizes, groups, queries, cells, threads, options. */
#include "problem.h"

enum { MOST_WORK = 1200000 }; /* multiplications of one case, so that the whole takes seconds */

#ifdef NDEBUG
enum { EVERY = 1 };
#else
enum { EVERY = 3 }; /* unoptimised, under sanitizers: every third case */
#endif

static const uint32_t dims[] = {32, 40, 64, 72, 96, 128, 256};
static const uint32_t groups[][2] = {{3, 3}, {8, 1}, {8, 4}, {1, 1}}; /* KV heads, query heads for each */
static const uint32_t queries[] = {1, 2, 3, 7, 8, 9, 64, 65, 224};
static const uint32_t cells[] = {1, 2, 15, 16, 17, 63, 64, 65, 100, 257, 1024};

#define COUNT(array) ((uint32_t)(sizeof(array) / sizeof(array)[0]))

static uint32_t type_for(uint32_t wish, uint32_t dim)
{
    return wish == H2OKV_TYPE_Q8_0 && dim % 32 != 0 ? H2OKV_TYPE_F16 : wish;
}

/* What the naive answer and a table may differ by, when logits are within some +-5 or, `sharp`, +-70: outputs as a part
 * of the largest V, masses as a part of themselves. Products and sums are f32's; amx splits its numbers into 16 bits. */
static double out_error(const h2okv__isa *isa, bool sharp)
{
    return (isa->few != NULL ? 2e-5 : 2e-6) * (sharp ? 15.0 : 1.0);
}

static double mass_error(const h2okv__isa *isa, bool sharp)
{
    return (isa->few != NULL ? 5e-5 : 5e-6) * (sharp ? 15.0 : 1.0);
}

static void check_all_tables(problem *p, uint32_t n_threads)
{
    assert_null(h2okv__attention_unsupported(&p->a));
    problem_solve(p);
    for (uint32_t i = 0; h2okv__isa_at(i) != NULL; i++) {
        const h2okv__isa *isa = h2okv__isa_at(i);
        if (h2okv__isa_usable(isa)) {
            problem_run(p, isa, n_threads);
            problem_check(p, isa, n_threads, out_error(isa, false), mass_error(isa, false));
            problem_check_untouched(p);
        }
    }
}

/* Options go through all 32 combinations as cases go by. */
static void set_options(problem *p, uint32_t number)
{
    p->a.softcap = number & 1 ? 3.0f : 0.0f;
    p->a.sinks = number & 2 ? p->sinks : NULL;
    p->a.query_weight = number & 4 ? p->query_weight : NULL;
    p->a.leave_out_self = number & 8;
    p->a.mass = (number & 31) == 16 ? NULL : p->mass;
}

static uint32_t checked;

static void one_case(uint32_t k_dim, uint32_t v_dim, const uint32_t *heads, uint32_t n_queries, uint32_t n_cells)
{
    uint32_t number = checked * 7 + k_dim; /* so that options, types and threads meet in many ways */
    h2okv__attention shape = {
        .kv_heads = heads[0],
        .group = heads[1],
        .queries = n_queries,
        .k_dim = k_dim,
        .v_dim = v_dim,
        .type_k = type_for(number % 4, k_dim),
        .type_v = type_for(number / 4 % 4, v_dim),
        .n_cells = n_cells,
        .n_fresh = number % 5 == 0 || n_cells < n_queries ? 0 : n_queries,
    };
    problem p;
    problem_create(&p, &shape, number);
    set_options(&p, checked * 5);
    check_all_tables(&p, 1 + checked % 3);
    problem_destroy(&p);
    checked++;
}

static void test_all_shapes(void **state)
{
    (void)state;
    uint32_t listed = 0;
    for (uint32_t d = 0; d < COUNT(dims); d++) {
        for (uint32_t g = 0; g < COUNT(groups); g++) {
            for (uint32_t n = 0; n < COUNT(queries); n++) {
                for (uint32_t c = 0; c < COUNT(cells); c++) {
                    uint64_t work = (uint64_t)dims[d] * groups[g][0] * groups[g][1] * queries[n] * cells[c];
                    if (work <= MOST_WORK && listed++ % EVERY == 0) {
                        one_case(dims[d], dims[(d + n + c) % COUNT(dims)], groups[g], queries[n], cells[c]);
                    }
                }
            }
        }
    }
    assert_true(checked > 1500 / EVERY);
}

/* SmolLM2's prompt chunk: 800 kept and 224 new; and 64 queries at 1,100 cells with heads of 128. */
static void test_prompt_chunks(void **state)
{
    (void)state;
    for (uint32_t type = 0; type < 4; type++) {
        h2okv__attention shape = {.kv_heads = 3, .group = 3, .queries = 224, .k_dim = 64, .v_dim = 64,
                                  .type_k = type, .type_v = 3 - type, .n_cells = 1024, .n_fresh = 224};
        problem p;
        problem_create(&p, &shape, type);
        check_all_tables(&p, 1 + type % 3);
        problem_destroy(&p);
    }
}

/* Long lists: every length of a decode piece, and a tile of fewer rows. */
static void test_long_lists(void **state)
{
    (void)state;
    static const uint32_t lengths[] = {4096, 4097, 9000, 32769, 70001};
    for (uint32_t i = 0; i < COUNT(lengths); i++) {
        for (uint32_t n = 1; n <= 9; n += 8) {
            h2okv__attention shape = {.kv_heads = 1, .group = 2, .queries = n, .k_dim = 32, .v_dim = 40,
                                      .type_k = H2OKV_TYPE_Q8_0, .type_v = H2OKV_TYPE_F16,
                                      .n_cells = lengths[i], .n_fresh = n};
            problem p;
            problem_create(&p, &shape, i);
            check_all_tables(&p, 2);
            problem_destroy(&p);
        }
    }
}

/* Logits of +-70: their error is a mass's relative error. One row more than a tile of 16, and less than that. */
static void test_sharp_weights(void **state)
{
    (void)state;
    for (uint32_t n = 9; n <= 40; n += 31) {
        for (uint32_t type = H2OKV_TYPE_F32; type <= H2OKV_TYPE_F16; type++) {
            h2okv__attention shape = {.kv_heads = 2, .group = 1, .queries = n, .k_dim = 64, .v_dim = 64,
                                      .type_k = type, .type_v = type, .n_cells = 200, .n_fresh = n};
            problem p;
            problem_create(&p, &shape, 12 + type);
            for (size_t i = 0; i < n * p.a.q_query_stride; i++) {
                p.q[i] *= 16.0f;
            }
            problem_solve(&p);
            for (uint32_t i = 0; h2okv__isa_at(i) != NULL; i++) {
                const h2okv__isa *isa = h2okv__isa_at(i);
                if (h2okv__isa_usable(isa)) {
                    problem_run(&p, isa, 1);
                    problem_check(&p, isa, 1, out_error(isa, true), mass_error(isa, true));
                }
            }
            problem_destroy(&p);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_shapes),
        cmocka_unit_test(test_prompt_chunks),
        cmocka_unit_test(test_long_lists),
        cmocka_unit_test(test_sharp_weights),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
