/* test_faults.c - faults that such systems have shipped, each with the values that are right; on tiny models. */
#define _POSIX_C_SOURCE 200809L /* pthread_barrier_t */
#include "plain.h"
#include "synth.h"
#include "watched.h"

#include "adapter.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { BUDGET = 24, RECENT = 8, UBATCH = 8, N = 200, LAYERS = 3, KV_HEADS = 2, LANES = LAYERS * KV_HEADS, DIM = 32 };

static struct llama_model *model;
static llama_token text[N], other_text[N];

static int open_model(void **state)
{
    if (synth_open(state) != 0) {
        return -1;
    }
    synth_text(text, N, 21);
    synth_text(other_text, N, 22);
    model = synth_model(&(synth_shape){
        .layers = LAYERS, .query_heads = 4, .kv_heads = KV_HEADS, .k_dim = DIM, .v_dim = DIM, .seed = 8,
    });
    return 0;
}

static int close_model(void **state)
{
    llama_model_free(model);
    return synth_close(state);
}

static h2okv_llama *make(uint32_t budget, uint32_t recent, uint32_t ubatch)
{
    h2okv_options cache = synth_cache_options(budget, recent);
    return synth_adapter(model, &cache, H2OKV_LANES_HEAD, ubatch);
}

typedef struct lane_books {
    int32_t pos[512];
    double score[512];
    uint32_t cell[512], n;
} lane_books;

static lane_books books(const h2okv_llama *h, uint32_t lane)
{
    lane_books b;
    b.n = h2okv_cache_kept(h2okv_llama_cache(h), lane, b.pos, b.score, b.cell);
    return b;
}

/* Same tokens; scores as near as `tolerance`. Returns in how many places the cells differ. */
static uint32_t assert_same_tokens(const h2okv_llama *a, const h2okv_llama *b, double tolerance)
{
    uint32_t other_cells = 0;
    for (uint32_t lane = 0; lane < a->lanes; lane++) {
        lane_books x = books(a, lane), y = books(b, lane);
        assert_int_equal(x.n, y.n);
        assert_memory_equal(x.pos, y.pos, x.n * sizeof *x.pos);
        for (uint32_t i = 0; i < x.n; i++) {
            assert_true(fabs(x.score[i] - y.score[i]) <= tolerance * fabs(y.score[i]));
            other_cells += x.cell[i] != y.cell[i];
        }
    }
    return other_cells;
}

static llama_token greedy(h2okv_llama *h)
{
    const float *logits = llama_get_logits_ith(h2okv_llama_context(h), -1);
    llama_token best = 0;
    for (llama_token i = 1; i < SYNTH_VOCAB; i++) {
        best = logits[i] > logits[best] ? i : best;
    }
    return best;
}

static h2okv_llama *make_f32(struct llama_model *of, const char *policy, uint32_t budget, uint32_t ubatch)
{
    h2okv_options cache = synth_cache_options(budget, RECENT);
    cache.policy = policy;
    h2okv_llama_options options;
    h2okv_llama_options_init(&options);
    options.cache = &cache;
    options.ubatch = ubatch;
    struct llama_context_params params = synth_params(0, 0);
    params.type_k = params.type_v = GGML_TYPE_F32; /* no rounding between the kernels for one token and many */
    h2okv_llama *h = NULL;
    assert_int_equal(h2okv_llama_create(&h, of, params, &options, NULL), H2OKV_OK);
    return h;
}

/* Which cells a text gets depends on how it was read; what is kept and said must not. The random policy ranks a
 * position alike for ever, so that it keeps the same tokens whether it evicts eight at a time or one; and with one
 * layer K and V are the same too. */
static void test_fault_03_holes_and_cells_do_not_matter(void **state)
{
    (void)state;
    struct llama_model *shallow = synth_model(&(synth_shape){
        .layers = 1, .query_heads = 4, .kv_heads = KV_HEADS, .k_dim = DIM, .v_dim = DIM, .seed = 7,
    });
    h2okv_llama *dense = make_f32(shallow, "random", BUDGET, UBATCH);
    h2okv_llama *holed = make_f32(shallow, "random", BUDGET, UBATCH);
    uint32_t other_cells = 0;
    assert_int_equal(h2okv_llama_decode(dense, text, 136), H2OKV_OK);
    for (uint32_t done = 0; done < 136; done++) {
        assert_int_equal(h2okv_llama_decode(holed, text + done, 1), H2OKV_OK);
    }
    for (int step = 0; step < 16; step++) {
        llama_token next = greedy(dense);
        assert_int_equal(greedy(holed), next);
        other_cells += assert_same_tokens(dense, holed, 0.0);
        assert_int_equal(h2okv_llama_decode(dense, &next, 1), H2OKV_OK);
        assert_int_equal(h2okv_llama_decode(holed, &next, 1), H2OKV_OK);
        assert_true(synth_logits_differ(h2okv_llama_context(dense), h2okv_llama_context(holed)) < 1e-5);
    }
    assert_true(other_cells > 100);
    h2okv_llama_free(dense);
    h2okv_llama_free(holed);
    llama_model_free(shallow);
}

/* Seven times the cells of the context. */
static void test_fault_25_prompt_longer_than_the_cache(void **state)
{
    (void)state;
    enum { LONG = 1800 };
    static llama_token prompt[LONG];
    synth_text(prompt, LONG, 23);
    h2okv_llama *h = make(192, 64, 64), *by_pass = make(192, 64, 64);
    h2okv_llama_stats stats;
    h2okv_llama_get_stats(h, &stats);
    assert_int_equal(stats.cells, 256);
    assert_int_equal(h2okv_llama_decode(h, prompt, LONG), H2OKV_OK);
    for (uint32_t done = 0; done < LONG; done += 64) {
        assert_int_equal(h2okv_llama_decode(by_pass, prompt + done, LONG - done < 64 ? LONG - done : 64), H2OKV_OK);
    }
    assert_true(synth_same_books(h, by_pass));
    assert_true(synth_logits_differ(h2okv_llama_context(h), h2okv_llama_context(by_pass)) <= 0.0);
    h2okv_llama_get_stats(h, &stats);
    assert_int_equal(stats.cache.live, 192);
    assert_int_equal(stats.cache.peak_live, 256);
    assert_int_equal(stats.cache.evicted, LONG - 192);
    assert_int_equal(h2okv_llama_next_pos(h), LONG);
    for (int step = 0; step < 8; step++) {
        llama_token next = greedy(h);
        assert_int_equal(h2okv_llama_decode(h, &next, 1), H2OKV_OK);
    }
    h2okv_llama_free(h);
    h2okv_llama_free(by_pass);
}

static void test_fault_27_chunks(void **state)
{
    (void)state;
    const uint32_t chunk[] = {1, 3, 8, 40};
    h2okv_llama *whole = make_f32(model, "h2o", 64, 40);
    assert_int_equal(h2okv_llama_decode(whole, text, 40), H2OKV_OK);
    for (int i = 0; i < 4; i++) {
        /* Nothing is evicted: scores are sums over the same queries. */
        h2okv_llama *h = make_f32(model, "h2o", 64, chunk[i]);
        assert_int_equal(h2okv_llama_decode(h, text, 40), H2OKV_OK);
        assert_same_tokens(h, whole, 1e-5);
        assert_true(synth_logits_differ(h2okv_llama_context(h), h2okv_llama_context(whole)) < 1e-5);
        h2okv_llama_free(h);
        h = make_f32(model, "h2o", BUDGET, chunk[i]); /* with eviction: never more than budget + chunk */
        assert_int_equal(h2okv_llama_decode(h, text, N), H2OKV_OK);
        h2okv_llama_stats stats;
        h2okv_llama_get_stats(h, &stats);
        assert_int_equal(stats.cache.peak_live, BUDGET + chunk[i]);
        assert_int_equal(stats.cache.live, BUDGET);
        h2okv_llama_free(h);
    }
    h2okv_llama_free(whole);
}

/* llama.cpp computes over 256 cells whatever the budget; 4 tokens are 4. */
static void test_fault_32_a_budget_below_the_padding(void **state)
{
    (void)state;
    h2okv_llama *h = make(4, 2, 8);
    for (uint32_t done = 0; done < N; done += 8) {
        assert_int_equal(h2okv_llama_decode(h, text + done, 8), H2OKV_OK);
        synth_assert_books_match_engine(h);
        for (uint32_t lane = 0; lane < LANES; lane++) {
            lane_books b = books(h, lane);
            assert_int_equal(b.n, 4);
            assert_int_equal(b.pos[3], done + 7);
            assert_int_equal(b.pos[2], done + 6);
        }
    }
    h2okv_llama_free(h);
}

/* Positions are true ones everywhere: the next token's, llama.cpp's, and those of the tokens kept. */
static void test_fault_39_next_position_is_the_true_one(void **state)
{
    (void)state;
    h2okv_llama *h = make(10, 4, 2);
    for (uint32_t done = 0; done < 60; done += 2) {
        assert_int_equal(h2okv_llama_next_pos(h), done);
        assert_int_equal(h2okv_llama_decode(h, text + done, 2), H2OKV_OK);
        assert_int_equal(llama_memory_seq_pos_max(llama_get_memory(h2okv_llama_context(h)), 0), done + 1);
        for (uint32_t lane = 0; lane < LANES; lane++) {
            lane_books b = books(h, lane);
            assert_int_equal(b.n, done + 2 < 10 ? done + 2 : 10);
            for (uint32_t recent = 1; recent <= 2; recent++) {
                assert_int_equal(b.pos[b.n - recent], done + 2 - recent);
            }
        }
    }
    h2okv_llama_free(h);
}

/* Heavy hitters keep the rotation of their true positions, to the bit, however long ago they were read. */
static void test_fault_41_old_keys_keep_their_rotation(void **state)
{
    (void)state;
    struct llama_model *still = synth_model(&(synth_shape){
        .layers = LAYERS, .query_heads = 4, .kv_heads = KV_HEADS, .k_dim = DIM, .v_dim = DIM, .seed = 9,
        .still = true,
    });
    h2okv_options cache = synth_cache_options(BUDGET, RECENT);
    h2okv_llama *h = synth_adapter(still, &cache, H2OKV_LANES_HEAD, UBATCH);
    watched full;
    watched_open(&full, still, &(watched_shape){LAYERS, 4, DIM, DIM, GGML_TYPE_F16, GGML_TYPE_F16, N, UBATCH});
    uint32_t old = 0;
    for (uint32_t done = 0; done < N; done += UBATCH) {
        assert_int_equal(h2okv_llama_decode(h, text + done, UBATCH), H2OKV_OK);
        plain_decode(full.context, text + done, (int32_t)done, UBATCH);
    }
    for (uint32_t lane = 0; lane < LANES; lane++) {
        lane_books b = books(h, lane);
        for (uint32_t i = 0; i < b.n; i++) {
            ggml_fp16_t k[DIM], v[DIM], right_k[DIM], right_v[DIM];
            h2okv__read_kv(h, 0, lane / KV_HEADS, lane % KV_HEADS, b.cell[i], k, v);
            watched_kv(&full, lane / KV_HEADS, lane % KV_HEADS, b.pos[i], (unsigned char *)right_k,
                       (unsigned char *)right_v);
            assert_memory_equal(k, right_k, sizeof k);
            assert_memory_equal(v, right_v, sizeof v);
            old += b.pos[i] < N / 2;
        }
    }
    assert_true(old > 20);
    watched_close(&full);
    h2okv_llama_free(h);
    llama_model_free(still);
}

typedef struct option_case {
    const char *name;
    struct llama_context_params params;
} option_case;

/* Each of llama.cpp's options that could change where things lie, on and off; those that the adapter sets itself
 * may say anything. */
static void test_fault_43_each_option_once(void **state)
{
    (void)state;
    option_case c[14];
    for (size_t i = 0; i < 14; i++) {
        c[i] = (option_case){"", synth_params(0, 0)};
    }
    c[0].name = "offload_kqv on", c[0].params.offload_kqv = true;
    c[1].name = "offload_kqv off", c[1].params.offload_kqv = false;
    c[2].name = "op_offload on", c[2].params.op_offload = true;
    c[3].name = "op_offload off", c[3].params.op_offload = false;
    c[4].name = "swa_full on", c[4].params.swa_full = true;
    c[5].name = "swa_full off", c[5].params.swa_full = false;
    c[6].name = "kv_unified on", c[6].params.kv_unified = true;
    c[7].name = "kv_unified off", c[7].params.kv_unified = false;
    c[8].name = "no_perf on", c[8].params.no_perf = true;
    c[9].name = "no_perf off", c[9].params.no_perf = false;
    c[10].name = "flash attention", c[10].params.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_ENABLED;
    c[11].name = "n_ctx", c[11].params.n_ctx = 4096;
    c[12].name = "n_batch", c[12].params.n_batch = 1, c[12].params.n_ubatch = 512;
    c[13].name = "n_seq_max", c[13].params.n_seq_max = 4;
    h2okv_llama *straight = make(BUDGET, RECENT, UBATCH);
    assert_int_equal(h2okv_llama_decode(straight, text, N), H2OKV_OK);
    for (size_t i = 0; i < 14; i++) {
        h2okv_options cache = synth_cache_options(BUDGET, RECENT);
        h2okv_llama_options options;
        h2okv_llama_options_init(&options);
        options.cache = &cache;
        options.ubatch = UBATCH;
        h2okv_llama *h = NULL;
        h2okv_error error = {0};
        int status = h2okv_llama_create(&h, model, c[i].params, &options, &error);
        status = status != H2OKV_OK ? status : h2okv_llama_decode(h, text, N);
        if (status != H2OKV_OK || !synth_same_books(h, straight) ||
            synth_logits_differ(h2okv_llama_context(h), h2okv_llama_context(straight)) > 0.0) {
            fail_msg("%s: status %d, %s", c[i].name, status, error.text);
        }
        h2okv_llama_free(h);
    }
    h2okv_llama_free(straight);
}

/* A text, another, and the first again: by clear to the bit, by a cut at 0 but for the last bits. */
static void test_fault_50_first_text_again(void **state)
{
    (void)state;
    h2okv_llama *h = make(BUDGET, RECENT, UBATCH), *first = make(BUDGET, RECENT, UBATCH);
    uint32_t lost;
    assert_int_equal(h2okv_llama_decode(first, text, 150), H2OKV_OK);
    assert_int_equal(h2okv_llama_decode(h, text, 150), H2OKV_OK);
    for (int how = 0; how < 4; how++) {
        if (how % 2 == 0) {
            h2okv_llama_clear(h);
            assert_int_equal(h2okv_llama_decode(h, other_text, 77), H2OKV_OK);
            h2okv_llama_clear(h);
            assert_int_equal(h2okv_llama_decode(h, text, 150), H2OKV_OK);
            assert_true(synth_same_books(h, first));
            assert_true(synth_logits_differ(h2okv_llama_context(h), h2okv_llama_context(first)) <= 0.0);
        } else {
            assert_int_equal(h2okv_llama_trim(h, 0, &lost), H2OKV_OK);
            assert_int_equal(h2okv_llama_decode(h, other_text, 77), H2OKV_OK);
            assert_int_equal(h2okv_llama_trim(h, 0, &lost), H2OKV_OK);
            assert_int_equal(h2okv_llama_decode(h, text, 150), H2OKV_OK);
            assert_same_tokens(h, first, 1e-4);
            assert_true(synth_logits_differ(h2okv_llama_context(h), h2okv_llama_context(first)) < 1e-3);
        }
    }
    h2okv_llama_free(h);
    h2okv_llama_free(first);
}

/* ---- Threads ---- */

typedef struct worker {
    h2okv_llama *h;
    const llama_token *text;
    pthread_barrier_t *start;
    float logits[SYNTH_VOCAB];
    int status;
} worker;

static void *work(void *user)
{
    worker *w = user;
    if (w->start != NULL) {
        pthread_barrier_wait(w->start);
    }
    for (int round = 0; round < 4 && w->status == H2OKV_OK; round++) {
        h2okv_llama_clear(w->h);
        for (uint32_t done = 0; done < N && w->status == H2OKV_OK; done += 10) {
            w->status = h2okv_llama_decode(w->h, w->text + done, 10);
        }
    }
    memcpy(w->logits, llama_get_logits_ith(h2okv_llama_context(w->h), -1), sizeof w->logits);
    return NULL;
}

/* Two contexts of one model, each in a thread of its own at the same time: as one after the other. (The core and the kernels do
 * the same under ThreadSanitizer, which knows nothing of a prebuilt llama.cpp.) */
static void test_fault_71_72_two_contexts_two_threads(void **state)
{
    (void)state;
    const llama_token *const texts[] = {text, other_text};
    worker serial[2], parallel[2];
    pthread_barrier_t start;
    pthread_t thread[2];
    assert_int_equal(pthread_barrier_init(&start, NULL, 2), 0);
    for (int i = 0; i < 2; i++) {
        serial[i] = (worker){.h = make(BUDGET, RECENT, UBATCH), .text = texts[i]};
        parallel[i] = (worker){.h = make(BUDGET, RECENT, UBATCH), .text = texts[i], .start = &start};
        work(&serial[i]);
    }
    for (int i = 0; i < 2; i++) {
        assert_int_equal(pthread_create(&thread[i], NULL, work, &parallel[i]), 0);
    }
    for (int i = 0; i < 2; i++) {
        pthread_join(thread[i], NULL);
        assert_int_equal(serial[i].status, H2OKV_OK);
        assert_int_equal(parallel[i].status, H2OKV_OK);
        assert_memory_equal(parallel[i].logits, serial[i].logits, sizeof serial[i].logits);
        assert_true(synth_same_books(parallel[i].h, serial[i].h));
        h2okv_llama_free(parallel[i].h);
        h2okv_llama_free(serial[i].h);
    }
    assert_true(memcmp(serial[0].logits, serial[1].logits, sizeof serial[0].logits) != 0);
    pthread_barrier_destroy(&start);
}

/* One choice for the whole model is one that llama.cpp can make by itself: the same tokens removed from a plain
 * context give the same logits, here with layers that do work. */
static void test_one_lane_equals_plain_with_the_same_removals(void **state)
{
    (void)state;
    static int32_t kept[N + 1];
    h2okv_options cache = synth_cache_options(BUDGET, RECENT);
    h2okv_llama *h = synth_adapter(model, &cache, H2OKV_LANES_ALL, UBATCH);
    struct llama_context *beside = synth_plain(model, synth_params(N, UBATCH));
    for (uint32_t done = 0, n; done < N; done += n) {
        n = done < 104 ? UBATCH : 1;
        assert_int_equal(h2okv_llama_decode(h, text + done, n), H2OKV_OK);
        plain_decode(beside, text + done, (int32_t)done, n);
        assert_true(synth_logits_differ(h2okv_llama_context(h), beside) < 1e-3);
        uint32_t live = h2okv_cache_kept(h2okv_llama_cache(h), 0, kept, NULL, NULL);
        for (uint32_t i = 0, pos = 0; i < live; pos = (uint32_t)kept[i] + 1, i++) {
            if (pos < (uint32_t)kept[i]) {
                llama_memory_seq_rm(llama_get_memory(beside), 0, (int32_t)pos, kept[i]);
            }
        }
    }
    llama_free(beside);
    h2okv_llama_free(h);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fault_03_holes_and_cells_do_not_matter),
        cmocka_unit_test(test_fault_25_prompt_longer_than_the_cache),
        cmocka_unit_test(test_fault_27_chunks),
        cmocka_unit_test(test_fault_32_a_budget_below_the_padding),
        cmocka_unit_test(test_fault_39_next_position_is_the_true_one),
        cmocka_unit_test(test_fault_41_old_keys_keep_their_rotation),
        cmocka_unit_test(test_fault_43_each_option_once),
        cmocka_unit_test(test_fault_50_first_text_again),
        cmocka_unit_test(test_fault_71_72_two_contexts_two_threads),
        cmocka_unit_test(test_one_lane_equals_plain_with_the_same_removals),
    };
    return cmocka_run_group_tests(tests, open_model, close_model);
}
