/*
 * test_demonstration.c - the two examples that define the seed's mode: one lane for all heads, the new token's
 * query gives weights to the tokens before it, the new token starts at 0.
 */
#include "support/check.h"
#include "support/rng.h"
#include "support/small.h"

#include <math.h>

enum { TOKENS = 50, HEADS = 8 };

/* softmax(uniform[0,1) + 2 at positions 5 and 10) over the tokens held. */
static void random_row(float *row, const int32_t *pos, uint32_t n, rng *r)
{
    float sum = 0;
    for (uint32_t i = 0; i < n; i++) {
        row[i] = expf(rng_float(r) + (pos[i] == 5 || pos[i] == 10 ? 2.0f : 0.0f));
        sum += row[i];
    }
    for (uint32_t i = 0; i < n; i++) {
        row[i] /= sum;
    }
}

/* Columns are the tokens before the new one, by position; the new one has none. */
static void one_token(h2okv_cache *c, int32_t p, rng *r)
{
    int32_t pos[SMALL_CELLS];
    uint32_t cell[SMALL_CELLS], n = h2okv_cache_kept(c, 0, pos, NULL, cell);
    float rows[HEADS][SMALL_CELLS];
    small_admit(c, p, 1);
    if (n == 0) {
        small_idle(c, 1);
    } else {
        h2okv_weights w = { HEADS, 1, n, &rows[0][0], SMALL_CELLS, SMALL_CELLS, cell };
        for (uint32_t h = 0; h < HEADS; h++) {
            random_row(rows[h], pos, n, r);
        }
        CHECK_OK(h2okv_cache_observe(c, 0, &w));
    }
    CHECK(small_score(c, 0, p) <= 0.0 && small_score(c, 0, p) >= 0.0);
    small_evict(c);
}

static void test_fifty_tokens(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 20; seed++) {
        for (uint32_t mean = 0; mean < 2; mean++) {
            h2okv_options o = small_options(16, 8, 1);
            rng r = { seed };
            o.heads = mean ? H2OKV_HEADS_MEAN : H2OKV_HEADS_SUM;
            o.count_self = 0;
            h2okv_cache *c = small_create(&o);
            check_context("seed %u mean %u", (unsigned)seed, mean);
            for (int32_t p = 0; p < TOKENS; p++) {
                one_token(c, p, &r);
            }
            CHECK(SMALL_HOLDS(c, 0, 0, 1, 2, 3, 4, 5, 6, 10, 42, 43, 44, 45, 46, 47, 48, 49));
            h2okv_cache_free(c);
        }
    }
}

/* 3.8 0.4 2.1 0.3 0.0 at positions 0..4, built up over two passes, recent 2 and heavy 2. */
static void test_worked_example(void **state)
{
    h2okv_options o = small_options(4, 2, 1);
    (void)state;
    h2okv_cache *c = small_create(&o);
    small_admit(c, 0, 4);
    small_give(c, 0, (float[]){ 3.0f, .1f, 1.0f, 0 });
    CHECK(small_evict(c) == 0);
    small_admit(c, 4, 1);
    small_give(c, 0, (float[]){ .8f, .3f, 1.1f, .3f, 0 });
    CHECK(small_evict(c) == 1);
    CHECK(SMALL_HOLDS(c, 0, 0, 2, 3, 4));
    CHECK(fabs(small_score(c, 0, 0) - 3.8) < 1e-6 && fabs(small_score(c, 0, 2) - 2.1) < 1e-6);
    h2okv_cache_free(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fifty_tokens),
        cmocka_unit_test(test_worked_example),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
