/*
 * test_memory.c - all memory at create, its size known before; each allocation that can fail does once; sizes
 * that overflow; freeing with the size that was asked for.
 */
#include "support/check.h"

#include "base/memory.h"
#include "support/memory.h"
#include "support/rig.h"

#include <string.h>

static h2okv_options options_with(const h2okv_allocator *allocator)
{
    h2okv_options o;
    h2okv_options_init(&o);
    o.lanes = 3;
    o.cells = 40;
    o.budget = 30;
    o.grace = 2;
    o.allocator = allocator;
    return o;
}

static void test_bytes_is_what_create_takes(void **state)
{
    static const uint32_t shapes[][3] = { { 1, 1, 0 }, { 1, 2, 1 }, { 3, 40, 2 }, { 90, 1024, 3 }, { 7, 129, 9 } };
    (void)state;
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        test_memory memory;
        h2okv_cache *cache;
        size_t bytes = 0;
        test_memory_init(&memory, 0);
        h2okv_options o = options_with(&memory.hook);
        o.lanes = shapes[i][0];
        o.cells = shapes[i][1];
        o.budget = o.cells;
        o.grace = shapes[i][2];
        check_context("lanes %u cells %u", o.lanes, o.cells);
        CHECK_OK(h2okv_cache_bytes(&o, &bytes));
        CHECK(memory.calls == 0);
        CHECK_OK(h2okv_cache_create(&cache, &o, NULL));
        CHECK(memory.bytes == bytes);
        h2okv_cache_free(cache);
        CHECK(memory.held == 0 && memory.wrong_frees == 0);
    }
}

static void test_each_failing_allocation(void **state)
{
    uint32_t n = 0;
    (void)state;
    for (uint32_t fail_at = 1; fail_at <= n + 1; fail_at++) {
        test_memory memory;
        h2okv_error error = { 0 };
        h2okv_cache *cache = (h2okv_cache *)(void *)&memory;
        test_memory_init(&memory, fail_at);
        h2okv_options o = options_with(&memory.hook);
        check_context("allocation %u fails", fail_at);
        if (h2okv_cache_create(&cache, &o, &error) == H2OKV_OK) {
            h2okv_cache_free(cache);
            CHECK(fail_at > 1 && memory.held == 0);
            return;
        }
        CHECK(error.status == H2OKV_E_NOMEM && cache == NULL && memory.held == 0 && memory.wrong_frees == 0);
        CHECK(strstr(error.text, "40") != NULL && strlen(error.field) > 0);
        n = memory.calls;
    }
    CHECK(0 && "create never succeeded");
}

/* A pass, a trim, a clear and refused calls: none may allocate. */
static void test_no_memory_after_create(void **state)
{
    test_memory memory;
    h2okv_cache *cache;
    const h2okv_plan *plan;
    (void)state;
    test_memory_init(&memory, 0);
    h2okv_options o = options_with(&memory.hook);
    CHECK_OK(h2okv_cache_create(&cache, &o, NULL));
    uint32_t calls = memory.calls, held = memory.held;
    for (int32_t p = 0; p < 40; p++) {
        uint32_t cell = (uint32_t)p;
        CHECK_OK(h2okv_cache_admit(cache, &cell, &p, 1));
        for (uint32_t l = 0; l < o.lanes; l++) {
            CHECK_OK(h2okv_cache_observe_mass(cache, l, NULL));
        }
    }
    CHECK_OK(h2okv_cache_plan(cache, &plan));
    CHECK_OK(h2okv_cache_commit(cache, plan));
    CHECK_OK(h2okv_cache_trim(cache, 20, &plan));
    CHECK_OK(h2okv_cache_commit(cache, plan));
    h2okv_cache_clear(cache);
    CHECK(memory.calls == calls && memory.held == held && memory.wrong_frees == 0);
    h2okv_cache_free(cache);
    CHECK(memory.held == 0 && memory.wrong_frees == 0);
    h2okv_cache_free(NULL);
}

/* The allocator struct is copied: the caller's may go. */
static void test_allocator_is_copied(void **state)
{
    test_memory memory;
    h2okv_allocator passing;
    h2okv_cache *cache;
    (void)state;
    test_memory_init(&memory, 0);
    passing = memory.hook;
    h2okv_options o = options_with(&passing);
    CHECK_OK(h2okv_cache_create(&cache, &o, NULL));
    memset(&passing, 0, sizeof passing);
    memset(&o, 0, sizeof o);
    h2okv_cache_free(cache);
    CHECK(memory.held == 0 && memory.wrong_frees == 0);
}

/* Refuses what is too large, so that no test asks the machine for terabytes. */
static void *modest(void *user, size_t bytes)
{
    *(size_t *)user = bytes;
    return NULL;
}

static void no_free(void *user, void *memory, size_t bytes)
{
    (void)user;
    (void)memory;
    (void)bytes;
}

static void test_sizes_that_overflow(void **state)
{
    static const uint32_t shapes[][3] = {
        { UINT32_MAX, INT32_MAX, 0 }, { UINT32_MAX, UINT32_MAX, 0 }, { 1u << 31, 1u << 30, 0 },
        { 1u << 20, 1u << 30, 0 },    { UINT32_MAX, 1, UINT32_MAX }, { 1, INT32_MAX, UINT32_MAX },
    };
    (void)state;
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        size_t asked = 0, bytes = 0;
        h2okv_allocator hook = { modest, no_free, &asked };
        h2okv_options o = options_with(&hook);
        h2okv_cache *cache = (h2okv_cache *)(void *)&asked;
        o.lanes = shapes[i][0];
        o.cells = shapes[i][1];
        o.grace = shapes[i][2];
        o.budget = 1;
        o.recent = 1;
        check_context("lanes %u cells %u grace %u", o.lanes, o.cells, o.grace);
        int told = h2okv_cache_bytes(&o, &bytes), made = h2okv_cache_create(&cache, &o, NULL);
        CHECK(made == H2OKV_E_NOMEM || made == H2OKV_E_INVALID);
        CHECK(cache == NULL);
        CHECK(told == made || (told == H2OKV_OK && asked == bytes && bytes / o.lanes / 16 >= o.cells));
    }
}

/* ---- base/memory.h ------------------------------------------------------------------------------------- */

static void test_checked_product(void **state)
{
    bool overflow = false;
    (void)state;
    CHECK(h2okv__mul(0, SIZE_MAX, &overflow) == 0 && h2okv__mul(SIZE_MAX, 1, &overflow) == SIZE_MAX && !overflow);
    CHECK(h2okv__mul(SIZE_MAX / 3, 3, &overflow) == SIZE_MAX / 3 * 3 && !overflow);
    CHECK(h2okv__mul(SIZE_MAX / 2 + 1, 2, &overflow) == 0 && overflow);
    CHECK(h2okv__mul(2, 3, &overflow) == 6 && overflow); /* never cleared */
}

static void test_layout_keeps_parts_apart(void **state)
{
    h2okv__layout layout = { 0 };
    size_t a = h2okv__place(&layout, 3, 7), b = h2okv__place(&layout, 0, 8), c = h2okv__place(&layout, 64, 1);
    size_t d = h2okv__place(&layout, 1, 8);
    (void)state;
    CHECK(a % 64 == 0 && b % 64 == 0 && c % 64 == 0 && d % 64 == 0);
    CHECK(a + 21 <= b && b <= c && c + 64 <= d && d + 8 <= layout.bytes && !layout.overflow);
    (void)h2okv__place(&layout, SIZE_MAX / 8, 8);
    CHECK(layout.overflow);
    (void)h2okv__place(&layout, 1, 1);
    CHECK(layout.overflow);
}

/* An allocator that is aligned as badly as malloc may be. */
static unsigned char arena[1024];
static size_t arena_shift, arena_freed;

static void *from_arena(void *user, size_t bytes)
{
    (void)user;
    return bytes <= sizeof arena - 128 ? arena + arena_shift : NULL;
}

static void to_arena(void *user, void *memory, size_t bytes)
{
    (void)user;
    arena_freed = (unsigned char *)memory == arena + arena_shift ? bytes : 0;
}

static void test_alloc_aligns_and_clears(void **state)
{
    h2okv_allocator hook = { from_arena, to_arena, NULL };
    (void)state;
    for (arena_shift = 0; arena_shift < 128; arena_shift++) {
        memset(arena, 0xcc, sizeof arena);
        unsigned char *p = h2okv__alloc(&hook, 100);
        CHECK(p != NULL && (uintptr_t)p % 64 == 0 && p >= arena + arena_shift);
        CHECK(p + 100 <= arena + arena_shift + h2okv__alloc_bytes(100));
        for (size_t i = 0; i < 100; i++) {
            CHECK(p[i] == 0);
        }
        h2okv__release(&hook, p, 100);
        CHECK(arena_freed == h2okv__alloc_bytes(100));
    }
    h2okv__release(&hook, NULL, 100);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bytes_is_what_create_takes),
        cmocka_unit_test(test_each_failing_allocation),
        cmocka_unit_test(test_no_memory_after_create),
        cmocka_unit_test(test_allocator_is_copied),
        cmocka_unit_test(test_sizes_that_overflow),
        cmocka_unit_test(test_checked_product),
        cmocka_unit_test(test_layout_keeps_parts_apart),
        cmocka_unit_test(test_alloc_aligns_and_clears),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
