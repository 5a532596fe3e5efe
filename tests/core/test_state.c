/*
 * test_state.c - books saved and restored: the same tokens, scores and plans ever after, in the same cells or in
 * others; and blocks that are cut or changed anywhere are refused.
 */
#include "support/block.h"
#include "support/check.h"
#include "support/rig.h"
#include "support/small.h"
#include "support/snapshot.h"

#include <stdlib.h>
#include <string.h>

enum { SEEDS = 42 };

static void use(h2okv_cache *cache, uint32_t lanes)
{
    small_admit(cache, 7, 9);
    small_idle(cache, lanes);
    small_evict(cache);
    CHECK_OK(h2okv_cache_pin(cache, 11, 13, NULL));
}

static void test_goes_on_as_if_never_saved(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        rig *r = rig_with_a_past(seed), *twin = rig_twin(r);
        block b = block_save(r->cache), again;
        check_context("seed %u, policy %s", (unsigned)seed, r->options.policy);
        use(twin->cache, r->options.lanes);
        CHECK_OK(h2okv_cache_restore(twin->cache, b.data, b.bytes, NULL, NULL));
        CHECK_RIGHT(rig_differ(r, twin));
        CHECK_RIGHT(rig_check(twin));
        again = block_save(twin->cache);
        CHECK(again.bytes == b.bytes && memcmp(again.data, b.data, b.bytes) == 0);
        for (uint32_t i = 0; i < 200; i++) {
            uint32_t n = 1 + (i % 5 == 0);
            check_context("seed %u, policy %s, pass %u", (unsigned)seed, r->options.policy, i);
            rig_pass(r, n);
            rig_pass(twin, n);
            CHECK_RIGHT(rig_differ(r, twin));
        }
        free(again.data);
        free(b.data);
        rig_free(twin);
        rig_free(r);
    }
}

/* What lay in the i-th cell in use, by rising position, goes into any free place of an engine that was emptied. */
static void scatter_engine(engine *e, uint32_t *to, rng *random)
{
    engine before = *e;
    uint32_t n = 0;
    engine_init(e, before.lanes, before.cells, 5);
    e->peak = before.peak;
    e->n_moves = before.n_moves;
    for (int32_t pos = 0; pos < RIG_POSITIONS; pos++) {
        for (uint32_t c = 0; c < before.cells; c++) {
            if (before.pos[c] == pos) {
                uint32_t cell = rng_below(random, e->cells);
                while (e->pos[cell] != -1) {
                    cell = (cell + 1) % e->cells;
                }
                e->pos[cell] = pos;
                for (uint32_t l = 0; l < e->lanes; l++) {
                    e->kv[l][cell] = before.kv[l][c];
                }
                e->used++;
                to[n++] = cell;
            }
        }
    }
}

/* Into an engine that has put the tokens elsewhere, with more cells than before or just as many. */
static void test_other_cells(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        rig *r = rig_with_a_past(seed), *twin = rig_twin(r);
        rng random = { seed };
        uint32_t cell[ENGINE_MAX_CELLS], now[ENGINE_MAX_CELLS], then[ENGINE_MAX_CELLS], n = h2okv_cache_live(r->cache);
        int32_t pos[ENGINE_MAX_CELLS], engine_pos[ENGINE_MAX_CELLS];
        h2okv_state_info info;
        block b = block_save(r->cache);
        h2okv_cache_free(twin->cache);
        twin->created.cells += seed % 2 ? 7 : 0;
        twin->engine.cells = twin->created.cells;
        memcpy(&twin->options.cells, &twin->created.cells, sizeof twin->options.cells);
        twin->cache = small_create(&twin->created);
        for (uint32_t c = r->options.cells; c < twin->engine.cells; c++) {
            twin->engine.pos[c] = -1;
        }
        scatter_engine(&twin->engine, cell, &random);
        check_context("seed %u, policy %s", (unsigned)seed, r->options.policy);
        CHECK_OK(h2okv_cache_check_state(twin->cache, b.data, b.bytes, &info, now, NULL));
        CHECK(info.live == n && info.budget == r->oracle.options.budget && h2okv_cache_live(twin->cache) == 0);
        CHECK(h2okv_cache_engine_cells(r->cache, pos, NULL) == n);
        CHECK(info.oldest == pos[0] && info.newest == pos[n - 1]);
        CHECK(h2okv_cache_engine_cells(r->cache, NULL, then) == n && memcmp(now, then, n * sizeof *now) == 0);
        CHECK_OK(h2okv_cache_restore(twin->cache, b.data, b.bytes, cell, NULL));
        CHECK_RIGHT(rig_check(twin));
        CHECK(h2okv_cache_engine_cells(twin->cache, engine_pos, now) == n);
        CHECK(memcmp(pos, engine_pos, n * sizeof *pos) == 0 && memcmp(now, cell, n * sizeof *now) == 0);
        for (uint32_t i = 0; i < 60; i++) {
            rig_pass(twin, 1 + i % 4);
        }
        free(b.data);
        rig_free(twin);
        rig_free(r);
    }
}

static void test_cut_or_changed_anywhere(void **state)
{
    (void)state;
    rig *r = rig_with_a_past(8);
    block b = block_save(r->cache);
    uint32_t lanes = r->options.lanes;
    CHECK(b.bytes > 800);
    for (size_t cut = 0; cut < b.bytes; cut++) {
        unsigned char *part = malloc(cut + 1); /* malloc(0) may be NULL, which is refused for itself */
        CHECK(part != NULL);
        memcpy(part, b.data, cut);
        check_context("cut at %zu of %zu", cut, b.bytes);
        block_refused(r->cache, lanes, part, cut, "state", "");
        free(part);
    }
    unsigned char *longer = calloc(b.bytes + 1, 1);
    CHECK(longer != NULL);
    memcpy(longer, b.data, b.bytes);
    block_refused(r->cache, lanes, longer, b.bytes + 1, "state", "bytes long");
    free(longer);
    block_refused(r->cache, lanes, NULL, b.bytes, "state", "");
    for (size_t at = 0; at < b.bytes; at++) {
        for (unsigned change = 1; change < 256; change++) {
            b.data[at] ^= (unsigned char)change;
            if (h2okv_cache_restore(r->cache, b.data, b.bytes, NULL, NULL) != H2OKV_E_INVALID) {
                check_context("byte %zu changed by %u", at, change);
                CHECK(0 && "taken");
            }
            b.data[at] ^= (unsigned char)change;
        }
    }
    CHECK_RIGHT(rig_check(r));
    CHECK_OK(h2okv_cache_restore(r->cache, b.data, b.bytes, NULL, NULL));
    free(b.data);
    rig_free(r);
}

static void test_cells_that_cannot_be(void **state)
{
    (void)state;
    h2okv_cache *c = block_cache();
    h2okv_options o;
    h2okv_error error;
    block b = block_save(c);
    h2okv_cache_get_options(c, &o);
    snapshot before = snapshot_take(c, 2);
    CHECK_STATUS(h2okv_cache_restore(c, b.data, b.bytes, (uint32_t[]){ 1, 2, 3, 10 }, &error), H2OKV_E_INVALID);
    CHECK(strcmp(error.field, "cell") == 0 && strstr(error.text, "the given cells are not all different") != NULL);
    CHECK_STATUS(h2okv_cache_restore(c, b.data, b.bytes, (uint32_t[]){ 1, 2, 3, 1 }, NULL), H2OKV_E_INVALID);
    CHECK(snapshot_same(&before, c, 2));
    CHECK_OK(h2okv_cache_restore(c, b.data, b.bytes, (uint32_t[]){ 9, 0, 3, 1 }, NULL));
    CHECK(SMALL_HOLDS(c, 0, 0, 1, 3, 7));
    snapshot_free(&before);
    o.cells = 4; /* cell 4 and 5 are not there */
    o.policy = "h2o";
    o.custom_policy = NULL;
    h2okv_cache *few = small_create(&o);
    CHECK_STATUS(h2okv_cache_restore(few, b.data, b.bytes, NULL, &error), H2OKV_E_INVALID);
    CHECK(strcmp(error.field, "cell") == 0 && strstr(error.text, "the saved cells") != NULL);
    CHECK_OK(h2okv_cache_restore(few, b.data, b.bytes, (uint32_t[]){ 3, 0, 2, 1 }, NULL));
    CHECK(SMALL_HOLDS(few, 1, 0, 2, 3, 7));
    h2okv_cache_free(few);
    free(b.data);
    h2okv_cache_free(c);
}

static void test_only_between_passes(void **state)
{
    (void)state;
    h2okv_options o = small_options(4, 2, 4);
    h2okv_cache *c = small_create(&o);
    h2okv_error error;
    unsigned char room[1024];
    small_admit(c, 0, 2);
    small_idle(c, 1);
    small_evict(c);
    block b = block_save(c);
    small_admit(c, 2, 2);
    snapshot before = snapshot_take(c, 1);
    CHECK_STATUS(h2okv_cache_save(c, room, sizeof room, &error), H2OKV_E_ORDER);
    CHECK(strstr(error.text, "middle of a pass") != NULL);
    CHECK_STATUS(h2okv_cache_restore(c, b.data, b.bytes, NULL, &error), H2OKV_E_ORDER);
    CHECK(strstr(error.text, "middle of a pass") != NULL && snapshot_same(&before, c, 1));
    snapshot_free(&before);
    small_idle(c, 1);
    small_evict(c);
    memset(room, 0xA5, sizeof room);
    size_t needed = h2okv_cache_state_bytes(c);
    CHECK_STATUS(h2okv_cache_save(c, room, needed - 1, &error), H2OKV_E_INVALID);
    CHECK(strcmp(error.field, "bytes") == 0 && room[0] == 0xA5);
    CHECK_STATUS(h2okv_cache_save(c, NULL, needed, NULL), H2OKV_E_INVALID);
    CHECK_OK(h2okv_cache_save(c, room, sizeof room, NULL));
    uint64_t sum = h2okv_checksum(H2OKV_CHECKSUM_START, room, needed - 8);
    CHECK(room[needed] == 0xA5 && room[needed - 1] == (unsigned char)(sum >> 56));
    free(b.data);
    h2okv_cache_free(c);
}

/* Plans of before are stale, and clear() goes back to the options of create. */
static void test_what_a_restore_ends(void **state)
{
    (void)state;
    h2okv_options o = small_options(6, 2, 4), now;
    h2okv_cache *c = small_create(&o);
    const h2okv_plan *plan;
    CHECK_OK(h2okv_cache_set_budget(c, 4, 1, NULL));
    block b = block_save(c);
    CHECK_OK(h2okv_cache_set_budget(c, 5, 2, NULL));
    CHECK_OK(h2okv_cache_plan(c, &plan));
    CHECK_OK(h2okv_cache_restore(c, b.data, b.bytes, NULL, NULL));
    CHECK_STATUS(h2okv_cache_commit(c, plan), H2OKV_E_STALE);
    h2okv_cache_get_options(c, &now);
    CHECK(now.budget == 4 && now.recent == 1);
    h2okv_cache_clear(c);
    h2okv_cache_get_options(c, &now);
    CHECK(now.budget == 6 && now.recent == 2);
    free(b.data);
    h2okv_cache_free(c);
}

/* The format is the same everywhere and for good: the checksum stands for every byte. */
static void test_known_bytes(void **state)
{
    (void)state;
    CHECK(h2okv_checksum(H2OKV_CHECKSUM_START, "", 0) == 0xCBF29CE484222325u);
    CHECK(h2okv_checksum(H2OKV_CHECKSUM_START, "a", 1) == 0xAF63DC4C8601EC8Cu);
    CHECK(h2okv_checksum(H2OKV_CHECKSUM_START, "foobar", 6) == 0x85944171F73967E8u);
    CHECK(h2okv_checksum(h2okv_checksum(H2OKV_CHECKSUM_START, "foo", 3), "bar", 3) == 0x85944171F73967E8u);
    h2okv_cache *c = block_cache();
    block b = block_save(c);
    static const unsigned char head[] = { 'H', '2', 'O', 'K', 'V', 'B', 'K', 'S', 1, 0, 0, 0, 120, 1, 0, 0, 0, 0, 0, 0,
                                          2, 0, 0, 0, 4, 0, 0, 0, 1, 0, 0, 0 };
    CHECK(b.bytes == BLOCK_BYTES && memcmp(b.data, head, sizeof head) == 0);
    CHECK(strcmp((const char *)b.data + AT_POLICY, "h2o") == 0);
    CHECK(h2okv_checksum(H2OKV_CHECKSUM_START, b.data, BLOCK_BYTES - 8) == 0x6A3BEE5076F1F9BBu);
    free(b.data);
    h2okv_cache_free(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_goes_on_as_if_never_saved),
        cmocka_unit_test(test_other_cells),
        cmocka_unit_test(test_cut_or_changed_anywhere),
        cmocka_unit_test(test_cells_that_cannot_be),
        cmocka_unit_test(test_only_between_passes),
        cmocka_unit_test(test_what_a_restore_ends),
        cmocka_unit_test(test_known_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
