/* test_status.c - status numbers and their texts, the fatal band, h2okv_error_set, the version. */
#include "support/check.h"

#include "h2okv/advanced.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

static void test_each_status_has_its_text(void **state)
{
    (void)state;
#define EXPECT_TEXT(name, value, text)              \
    CHECK(H2OKV_##name == (value));                 \
    CHECK(strcmp(h2okv_strerror(value), text) == 0);
    H2OKV_STATUS_MAP(EXPECT_TEXT)
#undef EXPECT_TEXT
}

static void test_texts_differ(void **state)
{
    static const int all[] = {
#define LIST(name, value, text) value,
        H2OKV_STATUS_MAP(LIST)
#undef LIST
    };
    (void)state;
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        for (size_t k = 0; k < i; k++) {
            CHECK(strcmp(h2okv_strerror(all[i]), h2okv_strerror(all[k])) != 0);
        }
    }
}

static void test_unknown_status_has_a_text(void **state)
{
    static const int unknown[] = { 1, -10, -99, -101, INT_MAX, INT_MIN };
    (void)state;
    for (size_t i = 0; i < sizeof unknown / sizeof unknown[0]; i++) {
        CHECK(h2okv_strerror(unknown[i]) != NULL && strlen(h2okv_strerror(unknown[i])) > 0);
    }
}

static void test_fatal_band(void **state)
{
    (void)state;
    CHECK(!H2OKV_IS_FATAL(H2OKV_OK) && !H2OKV_IS_FATAL(H2OKV_E_STOPPED) && !H2OKV_IS_FATAL(-99));
    CHECK(H2OKV_IS_FATAL(H2OKV_E_BROKEN) && H2OKV_IS_FATAL(-101));
}

static void test_error_set_fills_and_cuts(void **state)
{
    h2okv_error e;
    char longer[400];
    (void)state;
    memset(longer, 'x', sizeof longer);
    longer[sizeof longer - 1] = 0;
    CHECK_STATUS(h2okv_error_set(&e, H2OKV_E_ENGINE, "head_dim", "head_dim is %d", 7), H2OKV_E_ENGINE);
    CHECK(e.status == H2OKV_E_ENGINE && strcmp(e.field, "head_dim") == 0 && strcmp(e.text, "head_dim is 7") == 0);
    CHECK_STATUS(h2okv_error_set(&e, H2OKV_E_INVALID, longer, "%s", longer), H2OKV_E_INVALID);
    CHECK(strlen(e.field) == sizeof e.field - 1 && strlen(e.text) == sizeof e.text - 1);
    CHECK_STATUS(h2okv_error_set(NULL, H2OKV_E_FULL, "", "nobody asks"), H2OKV_E_FULL);
}

static void test_version_is_the_headers(void **state)
{
    char numbers[32];
    (void)state;
    snprintf(numbers, sizeof numbers, "%d.%d.%d", H2OKV_VERSION_MAJOR, H2OKV_VERSION_MINOR, H2OKV_VERSION_PATCH);
    CHECK(strcmp(h2okv_version(), H2OKV_VERSION) == 0 && strcmp(H2OKV_VERSION, numbers) == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_status_has_its_text),
        cmocka_unit_test(test_texts_differ),
        cmocka_unit_test(test_unknown_status_has_a_text),
        cmocka_unit_test(test_fatal_band),
        cmocka_unit_test(test_error_set_fills_and_cuts),
        cmocka_unit_test(test_version_is_the_headers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
