/* test_isa.c - the list of instruction sets, as the library and as its users see it. */
#include "support/check.h"

#include <string.h>

#include "h2okv/advanced.h"
#include "kernels/isa.h"

static void test_list(void **state)
{
    (void)state;
    assert_string_equal(h2okv_isa_name(0), "scalar");
    assert_true(h2okv_isa_usable("scalar"));
    uint32_t n = 0;
    for (; h2okv_isa_name(n) != NULL; n++) {
        assert_string_equal(h2okv__isa_at(n)->name, h2okv_isa_name(n));
        assert_ptr_equal(h2okv__isa_find(h2okv_isa_name(n)), h2okv__isa_at(n));
        for (uint32_t i = 0; i < n; i++) {
            assert_string_not_equal(h2okv_isa_name(i), h2okv_isa_name(n));
        }
    }
    assert_null(h2okv_isa_name(UINT32_MAX));
#if defined(__x86_64__)
    assert_int_equal(n, 4);
#elif defined(__aarch64__)
    assert_int_equal(n, 2);
    assert_true(h2okv_isa_usable("neon"));
#endif
}

static void test_unknown(void **state)
{
    (void)state;
    assert_null(h2okv__isa_find("sse9"));
    assert_null(h2okv__isa_find(""));
    assert_false(h2okv_isa_usable("sse9"));
}

/* The best is the last of the list that is usable, and what it falls back on is usable too. */
static void test_best(void **state)
{
    (void)state;
    const char *last = NULL;
    for (uint32_t i = 0; h2okv_isa_name(i) != NULL; i++) {
        last = h2okv_isa_usable(h2okv_isa_name(i)) ? h2okv_isa_name(i) : last;
    }
    assert_string_equal(h2okv_isa_best(), last);
    assert_ptr_equal(h2okv__isa_find("auto"), h2okv__isa_find(last));
    assert_ptr_equal(h2okv__isa_find(NULL), h2okv__isa_find(last));
    const h2okv__isa *few = h2okv__isa_find(last)->few;
    assert_true(few == NULL || h2okv__isa_usable(few));
}

#if defined(__x86_64__)
/* What the compiler's own test of the processor says of sets that need no permission. */
static void test_processor(void **state)
{
    (void)state;
    __builtin_cpu_init();
    assert_int_equal(h2okv_isa_usable("avx2"), __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"));
    assert_int_equal(h2okv_isa_usable("avx512"), __builtin_cpu_supports("avx512f") &&
                                                     __builtin_cpu_supports("avx512bw") &&
                                                     __builtin_cpu_supports("avx512dq") &&
                                                     __builtin_cpu_supports("avx512vl"));
}
#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_list),
        cmocka_unit_test(test_unknown),
        cmocka_unit_test(test_best),
#if defined(__x86_64__)
        cmocka_unit_test(test_processor),
#endif
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
