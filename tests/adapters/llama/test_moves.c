/*
 * test_moves.c - the bytes behind the books: after every pass each kept (lane, token) must have in its cell the K
 * and V that the engine computed for that token, whatever was moved, and every lane must be in order.
 */
#include "fixture.h"

#include "adapter.h"

#include <stdlib.h>
#include <string.h>

enum { BUDGET = 192, RECENT = 64, UBATCH = 64, DIM = 64, N = 700, KV_BYTES = 2 * DIM * 2 };

/* Bytes of a head's K and V of one cell, f16 each. */
static void read_cell(const h2okv_llama *h, uint32_t layer, uint32_t head, uint32_t cell, unsigned char *out)
{
    h2okv__read_kv(h, 0, layer, head, cell, out, out + KV_BYTES / 2);
}

/* What each (head, position) of layer 0 holds in a cache that evicts nothing. */
static unsigned char *full_layer_0(uint32_t heads)
{
    h2okv_options options = fixture_options("full", 960, 1);
    h2okv_llama *h = fixture_adapter(&options, H2OKV_LANES_HEAD, UBATCH);
    unsigned char *bytes = malloc((size_t)heads * N * KV_BYTES);
    assert_non_null(bytes);
    assert_int_equal(h2okv_llama_decode(h, fixture_token, N), H2OKV_OK);
    uint32_t cell[960];
    assert_int_equal(h2okv_cache_kept(h2okv_llama_cache(h), 0, NULL, NULL, cell), N);
    for (uint32_t head = 0; head < heads; head++) {
        for (uint32_t pos = 0; pos < N; pos++) {
            read_cell(h, 0, head, cell[pos], bytes + ((size_t)head * N + pos) * KV_BYTES);
        }
    }
    h2okv_llama_free(h);
    return bytes;
}

/* First sight of each (layer, head, position): a token's K and V never change afterwards. */
typedef struct first_sight {
    uint32_t layers, heads;
    bool *seen;
    unsigned char *bytes;
} first_sight;

static void check_lane(const h2okv_llama *h, uint32_t layer, uint32_t head, first_sight *first)
{
    int32_t pos[256];
    uint32_t cell[256], n = h2okv_cache_kept(h2okv_llama_cache(h), h2okv_llama_lane(h, layer, head), pos, NULL, cell);
    int32_t newest = h2okv_llama_next_pos(h) - 1;
    assert_true(n <= BUDGET);
    for (uint32_t k = 0; k < n; k++) {
        assert_true(k == 0 || pos[k] > pos[k - 1]);
        size_t at = ((size_t)layer * first->heads + head) * N + (size_t)pos[k];
        unsigned char now[KV_BYTES];
        read_cell(h, layer, head, cell[k], now);
        if (!first->seen[at]) {
            first->seen[at] = true;
            memcpy(first->bytes + at * KV_BYTES, now, KV_BYTES);
        } else if (memcmp(first->bytes + at * KV_BYTES, now, KV_BYTES) != 0) {
            fail_msg("layer %u head %u: position %d has other bytes in cell %u", layer, head, pos[k], cell[k]);
        }
    }
    for (uint32_t back = 0; back < RECENT && back < n; back++) {
        assert_int_equal(pos[n - 1 - back], newest - (int32_t)back);
    }
}

static void check_bounds(h2okv_llama *h)
{
    h2okv_llama_stats stats;
    h2okv_llama_get_stats(h, &stats);
    llama_memory_t memory = llama_get_memory(h2okv_llama_context(h));
    int32_t held = llama_memory_seq_pos_max(memory, 0) - llama_memory_seq_pos_min(memory, 0) + 1;
    assert_int_equal(held, stats.cache.live); /* fault 30: counted from the engine */
    assert_true(stats.cache.live <= BUDGET);
    assert_true(stats.cache.peak_live <= BUDGET + UBATCH);
    assert_true(stats.cells <= BUDGET + UBATCH);
}

/* With or without a guide, which takes up to 14 cells of each pass and gives them back. */
static void decode(h2okv_llama *h, const llama_token *tokens, uint32_t n, bool guided)
{
    h2okv_llama_guide guide;
    h2okv_llama_guide_init(&guide);
    guide.tokens = fixture_token + 1000;
    guide.n = 14;
    guide.recent = RECENT;
    assert_int_equal(guided ? h2okv_llama_decode_guided(h, tokens, n, &guide) : h2okv_llama_decode(h, tokens, n),
                     H2OKV_OK);
}

static void check_run(uint32_t lanes, const char *policy, double decay, bool guided)
{
    h2okv_options options = fixture_options(policy, BUDGET, RECENT);
    options.sinks = 4;
    options.decay = decay;
    h2okv_llama *h = fixture_adapter(&options, lanes, UBATCH);
    h2okv_llama_stats stats;
    h2okv_llama_get_stats(h, &stats);
    uint32_t layers = stats.layers, heads = h->layer[0].kv_heads;
    size_t entries = (size_t)layers * heads * N;
    first_sight first = {layers, heads, calloc(entries, sizeof(bool)), malloc(entries * KV_BYTES)};
    unsigned char *full = full_layer_0(heads);
    assert_true(first.seen != NULL && first.bytes != NULL);
    for (uint32_t done = 0, n; done < N; done += n) {
        n = done < 640 ? UBATCH - (guided ? 14 : 0) : 1; /* a prompt, then single tokens */
        n = done < 640 && n > 640 - done ? 640 - done : n;
        decode(h, fixture_token + done, n, guided && n > 1);
        check_bounds(h);
        for (uint32_t layer = 0; layer < layers; layer++) {
            for (uint32_t head = 0; head < heads; head++) {
                check_lane(h, layer, head, &first);
            }
        }
    }
    for (size_t at = 0; at < (size_t)heads * N; at++) {
        bool prompt = at % N < 640; /* single tokens are computed by other kernels: their bits may differ */
        if (prompt && first.seen[at] && memcmp(first.bytes + at * KV_BYTES, full + at * KV_BYTES, KV_BYTES) != 0) {
            fail_msg("layer 0: position %zu has other bytes than in a full cache", at % N);
        }
    }
    h2okv_llama_get_stats(h, &stats);
    assert_int_equal(stats.cache.evicted, N - BUDGET);
    assert_true(strcmp(policy, "window") == 0 || lanes == H2OKV_LANES_ALL || stats.cache.moves > 1000);
    free(full);
    free(first.seen);
    free(first.bytes);
    h2okv_llama_free(h);
}

static void test_lanes_by_head(void **state)
{
    (void)state;
    check_run(H2OKV_LANES_HEAD, "h2o", 1.0, false);
}

static void test_lanes_by_head_with_decay(void **state)
{
    (void)state;
    check_run(H2OKV_LANES_HEAD, "h2o", 0.998, false);
}

static void test_lanes_by_layer(void **state)
{
    (void)state;
    check_run(H2OKV_LANES_LAYER, "h2o", 1.0, false);
}

static void test_one_lane(void **state)
{
    (void)state;
    check_run(H2OKV_LANES_ALL, "h2o", 1.0, false);
}

static void test_random_policy(void **state)
{
    (void)state;
    check_run(H2OKV_LANES_HEAD, "random", 1.0, false);
}

static void test_sinks_and_window(void **state)
{
    (void)state;
    check_run(H2OKV_LANES_HEAD, "window", 1.0, false);
}

static void test_guided(void **state)
{
    (void)state;
    check_run(H2OKV_LANES_HEAD, "h2o", 1.0, true);
}

/* Cuts at growing distances: exact within `recent`, refused or counted further back; always in order. */
static void test_trim_at_every_distance(void **state)
{
    (void)state;
    h2okv_options options = fixture_options("h2o", BUDGET, RECENT);
    h2okv_llama *h = fixture_adapter(&options, H2OKV_LANES_HEAD, UBATCH);
    size_t entries = (size_t)30 * 3 * N;
    for (int32_t distance = 1; distance < 400; distance += distance < 70 ? 13 : 90) {
        first_sight first = {30, 3, calloc(entries, sizeof(bool)), malloc(entries * KV_BYTES)};
        h2okv_llama_clear(h);
        assert_int_equal(h2okv_llama_decode(h, fixture_token, 448), H2OKV_OK);
        for (uint32_t lane = 0; lane < 90; lane++) {
            check_lane(h, lane / 3, lane % 3, &first);
        }
        uint32_t lost = 0;
        int status = h2okv_llama_trim(h, 448 - distance, NULL);
        assert_int_equal(status, distance <= RECENT ? H2OKV_OK : H2OKV_E_UNSUPPORTED);
        if (status != H2OKV_OK) {
            assert_int_equal(h2okv_llama_next_pos(h), 448);
            assert_int_equal(h2okv_llama_trim(h, 448 - distance, &lost), H2OKV_OK);
            assert_true(lost > 0);
        }
        assert_int_equal(h2okv_llama_next_pos(h), 448 - distance);
        assert_int_equal(h2okv_cache_live(h2okv_llama_cache(h)), distance < BUDGET ? BUDGET - distance : 0);
        /* What is left has the bytes that it had, and decoding goes on from there. */
        for (uint32_t lane = 0; lane < 90; lane++) {
            int32_t pos[256];
            uint32_t cell[256], n = h2okv_cache_kept(h2okv_llama_cache(h), lane, pos, NULL, cell);
            for (uint32_t k = 0; k < n; k++) {
                unsigned char now[KV_BYTES];
                read_cell(h, lane / 3, lane % 3, cell[k], now);
                assert_memory_equal(first.bytes + ((size_t)lane * N + (size_t)pos[k]) * KV_BYTES, now, KV_BYTES);
            }
        }
        assert_int_equal(h2okv_llama_decode(h, fixture_token + 600, 100), H2OKV_OK);
        free(first.seen);
        free(first.bytes);
    }
    h2okv_llama_free(h);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lanes_by_head),   cmocka_unit_test(test_lanes_by_head_with_decay),
        cmocka_unit_test(test_lanes_by_layer),  cmocka_unit_test(test_one_lane),
        cmocka_unit_test(test_random_policy),   cmocka_unit_test(test_sinks_and_window),
        cmocka_unit_test(test_guided),          cmocka_unit_test(test_trim_at_every_distance),
    };
    int failed = 0;
    const uint32_t modes[] = {H2OKV_ATTENTION_OBSERVE, H2OKV_ATTENTION_FUSED}; /* V transposed, and not */
    for (size_t i = 0; i < 2; i++) {
        fixture_attention = modes[i];
        failed += cmocka_run_group_tests_name(i == 0 ? "observe" : "fused", tests, fixture_open, fixture_close);
    }
    return failed;
}
