/*
 * test_state_forged.c - books that are as they should be but for one thing, or for a few random ones, with a checksum
 * that is right: they are refused, or make a cache that works.
 */
#include "support/block.h"
#include "support/check.h"
#include "support/engine.h"
#include "support/small.h"

#include <stdlib.h>
#include <string.h>

static const char *const unfit = "do not fit together";
static const char *const contradict = "counts contradict";
static const char *const a_place = "names a place twice";
static const char *const a_position = "positions do not rise up to";
static const char *const a_score = "score is NaN or infinite";

static void test_forged(void **state)
{
    (void)state;
    static const struct {
        size_t at;
        unsigned bytes;
        uint64_t value;
        const char *field, *text;
    } forged[] = {
        { 0, 1, 'h', "state", "do not begin as saved books do" },
        { AT_VERSION, 4, 2, "state", "have format 2" },
        { AT_LENGTH, 8, BLOCK_BYTES + 1, "state", "bytes long, and these are" },
        { AT_POLICY, 1, 'H', "policy", "policy is \"H2o\" where" },
        { AT_BUDGET, 4, 11, "cells", "cells is 10: 4 tokens were saved, with a budget of 11" },
        { AT_BUDGET, 4, 0, "state", unfit },
        { AT_BUDGET, 4, 2, "state", unfit }, /* two pinned and the newest */
        { AT_RECENT, 4, 3, "state", unfit },
        { AT_LIVE, 4, 11, "cells", "cells is 10: 11 tokens" },
        { AT_LIVE, 4, 3, "state", "length does not fit" },
        { AT_N_PINS, 4, 17, "state", "length does not fit" },
        { AT_N_PINS, 4, 1, "state", "length does not fit" },
        { AT_PEAK, 4, 3, "state", contradict },
        { AT_ADMITTED, 8, 7, "state", contradict },
        { AT_EVICTED, 8, 5, "state", contradict },
        { AT_EVICTED, 8, UINT64_MAX, "state", contradict },
        { AT_PASSES, 8, 1, "state", "length does not fit" }, /* of grace */
        { AT_PIN, 4, UINT32_MAX, "state", "pins are not in order" },
        { AT_PIN, 4, 1, "state", "pins are not in order" }, /* 1:1 is empty */
        { AT_PIN + 8, 4, 1, "state", "pins are not in order" }, /* 0:1 and 1:4 touch */
        { AT_PIN + 12, 4, 3, "state", "pins are not in order" },
        { AT_PIN + 12, 4, 9, "state", unfit },
        { AT_GRACE, 4, UINT32_MAX, "state", "begins before position 0" },
        { AT_GRACE + 4, 4, 0x80000000, "state", "begins before position 0" },
        { AT_ENGINE + 4, 4, UINT32_MAX, "state", "engine's positions do not rise" },
        { AT_ENGINE + 4, 4, 5, "state", "engine's positions do not rise" },
        { AT_ENGINE + 3 * 8 + 4, 4, INT32_MAX, "state", "engine's positions do not rise" },
        { AT_ENGINE, 4, 10, "cell", "the saved cells are not all different and below the number of cells, 10" },
        { AT_ENGINE, 4, 5, "cell", "not all different" },
        { AT_LANE, 4, 4, "state", a_place },
        { AT_LANE, 4, 3, "state", a_place },
        { AT_LANE + 4 * 16, 4, UINT32_MAX, "state", a_place },
        { AT_LANE + 4, 4, UINT32_MAX, "state", a_position },
        { AT_LANE + 4, 4, 3, "state", a_position },
        { AT_LANE + 3 * 16 + 4, 4, 8, "state", a_position }, /* the engine's newest is 7 */
        { AT_LANE + 8, 8, 0x7FF0000000000000, "state", a_score },
        { AT_LANE + 7 * 16 + 8, 8, 0x7FF8000000000000, "state", a_score },
        { AT_LANE + 7 * 16 + 8, 8, 0xFFF0000000000000, "state", a_score },
    };
    h2okv_cache *c = block_cache();
    block b = block_save(c);
    CHECK(b.bytes == BLOCK_BYTES);
    for (size_t i = 0; i < sizeof forged / sizeof forged[0]; i++) {
        unsigned char copy[BLOCK_BYTES];
        memcpy(copy, b.data, b.bytes);
        block_put(b.data + forged[i].at, forged[i].value, forged[i].bytes);
        block_sign(&b);
        check_context("forged %zu", i);
        block_refused(c, 2, b.data, b.bytes, forged[i].field, forged[i].text);
        memcpy(b.data, copy, b.bytes);
    }
    free(b.data);
    h2okv_cache_free(c);
}

/* One pin more than there may be, in a block of the right length. */
static void test_too_many_pins(void **state)
{
    (void)state;
    enum { MORE = (H2OKV_MOST_PINS - 1) * 8 };
    h2okv_cache *c = block_cache();
    block good = block_save(c), b = { calloc(BLOCK_BYTES + MORE, 1), BLOCK_BYTES + MORE };
    CHECK(b.data != NULL);
    memcpy(b.data, good.data, AT_PIN);
    memcpy(b.data + AT_GRACE + MORE, good.data + AT_GRACE, BLOCK_BYTES - AT_GRACE);
    block_put(b.data + AT_LENGTH, b.bytes, 8);
    block_put(b.data + AT_N_PINS, H2OKV_MOST_PINS + 1, 4);
    for (uint32_t i = 0; i <= H2OKV_MOST_PINS; i++) {
        block_put(b.data + AT_PIN + i * 8, 2 * i, 4);
        block_put(b.data + AT_PIN + i * 8 + 4, 2 * i + 1, 4);
    }
    block_sign(&b);
    block_refused(c, 2, b.data, b.bytes, "state", "length does not fit");
    free(b.data);
    free(good.data);
    h2okv_cache_free(c);
}

/* Without tokens there is nothing to point at, and without passes there are no tokens. */
static void test_empty(void **state)
{
    (void)state;
    h2okv_options o = small_options(6, 2, 9);
    h2okv_cache *c = small_create(&o), *used = small_create(&o);
    block b = block_save(c), forged;
    small_admit(used, 7, 9);
    small_idle(used, 1);
    small_evict(used);
    h2okv_state_info info;
    CHECK_OK(h2okv_cache_check_state(used, b.data, b.bytes, &info, NULL, NULL));
    CHECK(info.live == 0 && info.budget == 6 && info.oldest == -1 && info.newest == -1);
    CHECK_OK(h2okv_cache_restore(used, b.data, b.bytes, NULL, NULL));
    CHECK(h2okv_cache_live(used) == 0);
    small_admit(used, 0, 8);
    small_idle(used, 1);
    CHECK(small_evict(used) == 2);
    forged = block_save(used);
    block_put(forged.data + AT_PASSES, 0, 8);
    block_sign(&forged);
    block_refused(used, 1, forged.data, forged.bytes, "state", contradict);
    free(forged.data);
    free(b.data);
    h2okv_cache_free(used);
    h2okv_cache_free(c);
}

/* What the engine would hold: K and V are where the books say. */
static void follow(engine *e, const h2okv_cache *cache, const h2okv_options *o)
{
    engine_init(e, o->lanes, o->cells, 1);
    for (uint32_t l = 0; l < o->lanes; l++) {
        h2okv_lane_view view;
        CHECK_OK(h2okv_cache_lane(cache, l, &view));
        for (uint32_t c = 0; c < o->cells; c++) {
            e->kv[l][c] = view.pos[c];
        }
    }
    uint32_t cell[ENGINE_MAX_CELLS];
    int32_t pos[ENGINE_MAX_CELLS];
    h2okv_cache_stats stats;
    h2okv_cache_get_stats(cache, &stats);
    e->used = h2okv_cache_engine_cells(cache, pos, cell);
    e->peak = stats.peak_live;
    e->n_moves = (uint32_t)stats.moves;
    for (uint32_t k = 0; k < e->used; k++) {
        e->pos[cell[k]] = pos[k];
    }
}

static void live_on(h2okv_cache *c, const h2okv_options *o)
{
    engine e;
    h2okv_cache_stats stats;
    follow(&e, c, o);
    CHECK_RIGHT(engine_check(&e, c));
    for (uint32_t i = 0; i < 6; i++) {
        h2okv_cache_get_stats(c, &stats);
        uint32_t cell = engine_find(&e, 1);
        int32_t pos = stats.newest + 1;
        const h2okv_plan *plan;
        if (cell == UINT32_MAX || pos == INT32_MAX) {
            return; /* full, or at the end of all positions: admit says so */
        }
        CHECK_RIGHT(engine_put(&e, &cell, &pos, 1));
        CHECK_OK(h2okv_cache_admit(c, &cell, &pos, 1));
        small_idle(c, o->lanes);
        CHECK_OK(i == 3 ? h2okv_cache_trim(c, pos / 2, &plan) : h2okv_cache_plan(c, &plan));
        CHECK_RIGHT(engine_apply(&e, plan, i == 3));
        CHECK_OK(h2okv_cache_commit(c, plan));
        CHECK_RIGHT(engine_check(&e, c));
    }
}

/* Up to four bytes changed at random, and signed: refused, or a cache that keeps every rule from then on. */
static void test_forged_at_random(void **state)
{
    (void)state;
    uint32_t taken = 0;
    rng random = { 9 };
    h2okv_cache *c = block_cache();
    h2okv_options o;
    h2okv_cache_get_options(c, &o);
    block good = block_save(c), b = { malloc(BLOCK_BYTES), BLOCK_BYTES };
    CHECK(b.data != NULL);
    for (uint32_t i = 0; i < 40000; i++) {
        memcpy(b.data, good.data, BLOCK_BYTES);
        for (uint32_t k = rng_range(&random, 1, 4); k > 0; k--) {
            size_t at = rng_range(&random, AT_BUDGET, BLOCK_BYTES - 9);
            at = at >= AT_MOVES && at < AT_PASSES ? AT_PASSES : at; /* the engine here counts moves in 32 bits */
            b.data[at] = (unsigned char)rng_below(&random, i % 3 ? 12 : 256);
        }
        block_sign(&b);
        check_context("round %u", i);
        if (h2okv_cache_restore(c, b.data, BLOCK_BYTES, NULL, NULL) == H2OKV_OK) {
            taken++;
            live_on(c, &o);
        }
    }
    CHECK(taken > 1000); /* such as scores and counters */
    free(b.data);
    free(good.data);
    h2okv_cache_free(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_forged),
        cmocka_unit_test(test_too_many_pins),
        cmocka_unit_test(test_empty),
        cmocka_unit_test(test_forged_at_random),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
