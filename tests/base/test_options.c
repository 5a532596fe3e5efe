/*
 * test_options.c - defaults, and for every field a bad value: refused by name, with the value in the text, by
 * check, bytes and create alike. The size field: older callers get defaults, newer ones are read if they can be.
 */
#include "support/check.h"

#include "h2okv/advanced.h"
#include "support/memory.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static h2okv_options good(void)
{
    h2okv_options o;
    h2okv_options_init(&o);
    o.cells = 20;
    o.budget = 16;
    return o;
}

static void test_defaults(void **state)
{
    h2okv_options o;
    (void)state;
    memset(&o, 0xff, sizeof o);
    h2okv_options_init(&o);
    CHECK(o.size == sizeof o && o.lanes == 1 && o.cells == 0 && o.budget == 0 && o.recent == H2OKV_AUTO);
    CHECK(o.sinks == H2OKV_AUTO && o.pool == H2OKV_AUTO && o.grace == 0 && o.count_self == 1 && o.heads == H2OKV_HEADS_SUM && o.parts == 1);
    CHECK(o.decay >= 0.0 && o.decay <= 0.0 && o.seed == 0 && strcmp(o.policy, "h2o") == 0);
    CHECK(!o.custom_policy && !o.allocator && !o.on_event && !o.event_user && !o.on_mass && !o.mass_user);
}

/* One field set to one bad value. */
typedef struct bad_case {
    const char *field; /* that the error must name */
    const char *value; /* that its text must hold */
    size_t offset;
    enum { U32, F64, TEXT } type;
    double number;
    const char *text;
} bad_case;

#define BAD_U32(name, n, shown) { #name, shown, offsetof(h2okv_options, name), U32, n, NULL }
#define BAD_F64(name, x, shown) { #name, shown, offsetof(h2okv_options, name), F64, x, NULL }
#define BAD_TEXT(name, t, shown) { #name, shown, offsetof(h2okv_options, name), TEXT, 0, t }

static const bad_case bad_cases[] = {
    BAD_U32(lanes, 0, "0"),
    BAD_U32(cells, 0, "0"),
    BAD_U32(cells, 4294967295.0, "4294967295"),
    BAD_U32(cells, 2147483648.0, "2147483648"),
    BAD_U32(budget, 0, "0"),
    BAD_U32(budget, 21, "21"),
    BAD_U32(budget, 4294967295.0, "4294967295"),
    BAD_U32(recent, 17, "17"),
    BAD_U32(recent, 4294967294.0, "4294967294"),
    BAD_U32(sinks, 9, "9"), /* recent is 8 of 16 by default */
    BAD_U32(sinks, 4294967294.0, "4294967294"),
    BAD_U32(grace, 65537, "65537"),
    BAD_U32(count_self, 2, "2"),
    BAD_U32(heads, 2, "2"),
    BAD_U32(parts, 0, "0"),
    BAD_F64(decay, -0.5, "-0.5"),
    BAD_F64(decay, 1.5, "1.5"),
    BAD_F64(decay, NAN, "nan"),
    BAD_F64(decay, INFINITY, "inf"),
    BAD_TEXT(policy, "h2o ", "h2o "),
    BAD_TEXT(policy, "", "\"\""),
    BAD_TEXT(policy, NULL, "null"),
};

static void set_field(h2okv_options *o, const bad_case *c)
{
    unsigned char *field = (unsigned char *)o + c->offset;
    uint32_t number = (uint32_t)(c->type == U32 ? c->number : 0);
    switch (c->type) {
    case U32:
        memcpy(field, &number, sizeof number);
        break;
    case F64:
        memcpy(field, &c->number, sizeof c->number);
        break;
    default:
        memcpy(field, &c->text, sizeof c->text);
    }
}

static void check_refused(const h2okv_options *o, const char *field, const char *value)
{
    h2okv_error error = { 0 };
    h2okv_cache *cache = (h2okv_cache *)(void *)&error; /* must become NULL */
    size_t bytes = 77;
    CHECK_STATUS(h2okv_options_check(o, &error), H2OKV_E_INVALID);
    CHECK(error.status == H2OKV_E_INVALID && strcmp(error.field, field) == 0);
    CHECK(strstr(error.text, field) != NULL || strcmp(field, "size") == 0);
    CHECK(strstr(error.text, value) != NULL);
    CHECK_STATUS(h2okv_options_check(o, NULL), H2OKV_E_INVALID);
    CHECK_STATUS(h2okv_cache_bytes(o, &bytes), H2OKV_E_INVALID);
    CHECK(bytes == 77);
    memset(&error, 0, sizeof error);
    CHECK_STATUS(h2okv_cache_create(&cache, o, &error), H2OKV_E_INVALID);
    CHECK(cache == NULL && strcmp(error.field, field) == 0);
}

static void test_each_bad_value_is_named(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof bad_cases / sizeof bad_cases[0]; i++) {
        h2okv_options o = good();
        check_context("field %s, value %s", bad_cases[i].field, bad_cases[i].value);
        set_field(&o, &bad_cases[i]);
        check_refused(&o, bad_cases[i].field, bad_cases[i].value);
    }
}

static void test_bad_hooks_are_named(void **state)
{
    test_memory memory;
    h2okv_options o = good();
    h2okv_policy policy = *h2okv_policy_find("h2o");
    (void)state;
    check_context("hooks");
    test_memory_init(&memory, 0);
    o.allocator = &memory.hook;
    memory.hook.free = NULL;
    check_refused(&o, "allocator", "allocator");
    test_memory_init(&memory, 0);
    memory.hook.alloc = NULL;
    check_refused(&o, "allocator", "allocator");
    o = good();
    o.custom_policy = &policy;
    policy.rank = NULL;
    check_refused(&o, "custom_policy", "no rank");
    policy = *h2okv_policy_find("h2o");
    policy.size = 31;
    check_refused(&o, "custom_policy", "31");
}

static void test_null_options(void **state)
{
    (void)state;
    check_context("no options");
    check_refused(NULL, "size", "missing");
}

/* Limits that are right. */
static void test_limits_are_accepted(void **state)
{
    h2okv_options o = good();
    (void)state;
    o.budget = o.cells;
    CHECK_OK(h2okv_options_check(&o, NULL));
    o.recent = o.budget;
    CHECK_OK(h2okv_options_check(&o, NULL));
    o.recent = 4;
    o.sinks = o.budget - 4;
    CHECK_OK(h2okv_options_check(&o, NULL));
    o.recent = 0; /* the newest still takes a place */
    o.sinks = o.budget - 1;
    CHECK_OK(h2okv_options_check(&o, NULL));
    o.sinks = o.budget;
    check_refused(&o, "sinks", "20");
    o = good();
    o.budget = 1; /* recent becomes 0 of 1 */
    CHECK_OK(h2okv_options_check(&o, NULL));
    o.decay = 1e-300;
    CHECK_OK(h2okv_options_check(&o, NULL));
}

/* A caller who knows only the fields up to `sinks`; junk behind must not be read. */
static void test_smaller_size_gets_defaults(void **state)
{
    h2okv_options o = good(), whole = good();
    size_t bytes_old, bytes_whole;
    const uint32_t known = offsetof(h2okv_options, grace);
    unsigned char *exact = malloc(known);
    (void)state;
    memset((unsigned char *)&o + known, 0xee, sizeof o - known);
    o.size = known;
    CHECK_OK(h2okv_options_check(&o, NULL));
    CHECK_OK(h2okv_cache_bytes(&o, &bytes_old));
    CHECK_OK(h2okv_cache_bytes(&whole, &bytes_whole));
    CHECK(bytes_old == bytes_whole);
    CHECK(exact != NULL);
    memcpy(exact, &o, known); /* nothing lies behind: a sanitizer sees any look */
    CHECK_OK(h2okv_options_check((const h2okv_options *)(const void *)exact, NULL));
    free(exact);
}

typedef struct newer_options {
    h2okv_options known;
    uint64_t unknown[3];
} newer_options;

static void test_larger_size_only_with_zeros(void **state)
{
    newer_options o = { good(), { 0, 0, 0 } };
    (void)state;
    check_context("newer caller");
    o.known.size = sizeof o;
    CHECK_OK(h2okv_options_check(&o.known, NULL));
    o.unknown[2] = (uint64_t)1 << 56;
    check_refused(&o.known, "size", "144");
    o.known.size = sizeof o - 8; /* the one that is not zero lies beyond */
    CHECK_OK(h2okv_options_check(&o.known, NULL));
}

static void test_size_zero_or_tiny(void **state)
{
    h2okv_options o = good();
    (void)state;
    check_context("size 0");
    o.size = 0;
    check_refused(&o, "size", "0");
    o.size = 3;
    check_refused(&o, "size", "3");
}

static void test_init_sized_writes_no_further(void **state)
{
    newer_options o;
    unsigned char *small = malloc(12);
    uint32_t first[2];
    (void)state;
    CHECK(small != NULL);
    h2okv_options_init_sized((h2okv_options *)(void *)small, 12); /* a sanitizer sees a write past it */
    memcpy(first, small, sizeof first);
    CHECK(first[0] == 12 && first[1] == 1); /* size, lanes */
    free(small);
    memset(&o, 0xff, sizeof o);
    h2okv_options_init_sized(&o.known, sizeof o);
    CHECK(o.known.size == sizeof o && o.known.lanes == 1 && o.unknown[0] == 0 && o.unknown[2] == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_defaults),
        cmocka_unit_test(test_each_bad_value_is_named),
        cmocka_unit_test(test_bad_hooks_are_named),
        cmocka_unit_test(test_null_options),
        cmocka_unit_test(test_limits_are_accepted),
        cmocka_unit_test(test_smaller_size_gets_defaults),
        cmocka_unit_test(test_larger_size_only_with_zeros),
        cmocka_unit_test(test_size_zero_or_tiny),
        cmocka_unit_test(test_init_sized_writes_no_further),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
