/*
 * test_errors.c - wrong options and arguments, memory that fails, and a decode that its caller stops: what fails
 * must say what is at fault and leave the handle as it was.
 */
#include "synth.h"

#include "support/memory.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { BUDGET = 24, RECENT = 8, UBATCH = 8, N = 160 };

static struct llama_model *model;
static llama_token text[N];

static int open_model(void **state)
{
    if (synth_open(state) != 0) {
        return -1;
    }
    synth_text(text, N, 12);
    model = synth_model(&(synth_shape){
        .layers = 3, .query_heads = 4, .kv_heads = 2, .k_dim = 32, .v_dim = 32, .seed = 5,
    });
    return 0;
}

static int close_model(void **state)
{
    llama_model_free(model);
    return synth_close(state);
}

static h2okv_llama *make(void)
{
    h2okv_options cache = synth_cache_options(BUDGET, RECENT);
    return synth_adapter(model, &cache, H2OKV_LANES_HEAD, UBATCH);
}

/* ---- Options ---- */

typedef struct wrong_options {
    h2okv_llama_options options;
    uint64_t newer_option; /* fields that this library does not have */
    h2okv_options cache;
    uint64_t newer_cache_option;
    struct llama_context_params params;
} wrong_options;

static bool never(struct ggml_tensor *node, bool ask, void *user)
{
    (void)node;
    (void)ask;
    (void)user;
    return false;
}

static void spoil(wrong_options *w, int what)
{
    switch (what) {
    case 0: w->cache.recent = 0; break;
    case 1: w->cache.budget = 1, w->cache.recent = H2OKV_AUTO; break;
    case 2: w->cache.sinks = BUDGET - RECENT + 1; break;
    case 3: w->cache.recent = BUDGET + 1; break;
    case 4: w->cache.budget = 0; break;
    case 5: w->cache.budget = UINT32_MAX; break;
    case 6: w->options.ubatch = 0; break;
    case 7: w->options.ubatch = UINT32_MAX - 1; break;
    case 8: w->options.lanes = 7; break;
    case 9: w->cache.lanes = 2; break;
    case 10: w->cache.cells = 64; break;
    case 11: w->cache.parts = 3; break;
    case 12: w->params.cb_eval = never; break;
    case 13: w->cache.policy = "h2"; break;
    case 14: w->options.size = 0; break;
    case 15: w->options.size = sizeof w->options + 8, w->newer_option = 1; break;
    case 16: w->cache.size = sizeof w->cache + 8, w->newer_cache_option = 1; break;
    case 17: w->cache.decay = 1.5; break;
    case 18: w->cache.decay = (double)NAN; break;
    case 19: w->cache.heads = 9; break;
    default: w->cache.size = 0;
    }
}

static void test_options_are_refused_by_name(void **state)
{
    (void)state;
    const char *const field[] = {"recent", "recent", "sinks", "recent", "budget", "budget", "ubatch", "ubatch",
                                 "lanes",  "cache",  "cache", "cache",  "cb_eval", "policy", "size",  "size",
                                 "cache",  "decay",  "decay", "heads",  "cache"};
    for (int i = 0; i < (int)(sizeof field / sizeof field[0]); i++) {
        wrong_options w = {.cache = synth_cache_options(BUDGET, RECENT), .params = synth_params(0, 0)};
        h2okv_llama_options_init(&w.options);
        w.options.cache = &w.cache;
        w.options.ubatch = UBATCH;
        spoil(&w, i);
        h2okv_llama *h = (h2okv_llama *)(uintptr_t)1;
        h2okv_error error = {0};
        int status = h2okv_llama_create(&h, model, w.params, &w.options, &error);
        if (status != H2OKV_E_INVALID || strcmp(error.field, field[i]) != 0 || strlen(error.text) < 10) {
            fail_msg("case %d: status %d, field \"%s\" for \"%s\": %s", i, status, error.field, field[i], error.text);
        }
        assert_null(h);
        assert_int_equal(h2okv_llama_create(&h, model, w.params, &w.options, NULL), H2OKV_E_INVALID);
    }
    h2okv_llama *h = (h2okv_llama *)(uintptr_t)1;
    assert_int_equal(h2okv_llama_create(&h, model, synth_params(0, 0), NULL, NULL), H2OKV_E_INVALID);
    assert_null(h);
}

/* A program that was built with a newer header and leaves what is new alone. */
static void test_longer_options_that_are_not_used(void **state)
{
    (void)state;
    wrong_options w = {.cache = synth_cache_options(BUDGET, RECENT), .params = synth_params(0, 0)};
    h2okv_llama_options_init(&w.options);
    w.options.cache = &w.cache;
    w.options.size = sizeof w.options + 8;
    w.cache.size = sizeof w.cache + 8;
    h2okv_llama *h = NULL;
    assert_int_equal(h2okv_llama_create(&h, model, w.params, &w.options, NULL), H2OKV_OK);
    assert_int_equal(h2okv_llama_decode(h, text, N), H2OKV_OK);
    assert_int_equal(h2okv_cache_live(h2okv_llama_cache(h)), BUDGET);
    h2okv_llama_free(h);
}

/* Defaults alone make a handle: budget 512, and a ubatch that fills llama.cpp's step. */
static void test_defaults(void **state)
{
    (void)state;
    h2okv_llama_options options;
    h2okv_llama_options_init(&options);
    h2okv_llama *h = NULL;
    h2okv_llama_stats stats;
    assert_int_equal(h2okv_llama_create(&h, model, synth_params(0, 0), &options, NULL), H2OKV_OK);
    h2okv_llama_get_stats(h, &stats);
    assert_int_equal(stats.budget, 512);
    assert_int_equal(stats.ubatch, 256);
    assert_int_equal(stats.cells, 768);
    assert_string_equal(h2okv_llama_last_error(h)->text, "");
    h2okv_llama_free(h);
    h2okv_llama_free(NULL);
}

static void test_allocator_fails_and_balances(void **state)
{
    (void)state;
    for (uint32_t fail_at = 1;; fail_at++) {
        test_memory memory;
        test_memory_init(&memory, fail_at);
        h2okv_options cache = synth_cache_options(BUDGET, RECENT);
        cache.allocator = &memory.hook;
        h2okv_llama_options options;
        h2okv_llama_options_init(&options);
        options.cache = &cache;
        h2okv_llama *h = (h2okv_llama *)(uintptr_t)1;
        h2okv_error error = {0};
        int status = h2okv_llama_create(&h, model, synth_params(0, 0), &options, &error);
        bool failed = memory.calls >= fail_at;
        assert_int_equal(status, failed ? H2OKV_E_NOMEM : H2OKV_OK);
        assert_true(failed == (h == NULL));
        if (!failed) {
            assert_int_equal(h2okv_llama_decode(h, text, N), H2OKV_OK);
            h2okv_llama_free(h);
        }
        assert_int_equal(memory.held, 0);
        assert_int_equal(memory.wrong_frees, 0);
        if (!failed) {
            assert_true(fail_at > 1);
            return;
        }
    }
}

/* llama.cpp needs flash attention for a quantised V, and observe mode needs its absence. */
static void test_quantised_v_is_refused_by_observe_mode(void **state)
{
    (void)state;
    struct llama_context_params params = synth_params(0, 0);
    params.type_v = GGML_TYPE_Q8_0;
    h2okv_llama_options options;
    h2okv_llama_options_init(&options);
    options.attention = H2OKV_ATTENTION_OBSERVE;
    h2okv_llama *h = (h2okv_llama *)(uintptr_t)1;
    h2okv_error error = {0};
    assert_int_equal(h2okv_llama_create(&h, model, params, &options, &error), H2OKV_E_ENGINE);
    assert_null(h);
    assert_string_equal(error.field, "context");
    assert_non_null(strstr(error.text, "cache type"));
    assert_non_null(strstr(error.text, "flash attention"));
}

/* ---- Arguments ---- */

static void test_decode_arguments(void **state)
{
    (void)state;
    h2okv_llama *h = make(), *other = make();
    llama_token wrong[10];
    memcpy(wrong, text, sizeof wrong);
    assert_int_equal(h2okv_llama_decode(h, text, 40), H2OKV_OK);
    synth_assert_failed(h, h2okv_llama_decode(h, text, 0), H2OKV_E_INVALID, "n", "n is 0");
    synth_assert_failed(h, h2okv_llama_decode(h, text, UINT32_MAX), H2OKV_E_INVALID, "n", "4294967295");
    synth_assert_failed(h, h2okv_llama_decode(h, text, (uint32_t)INT32_MAX - 40), H2OKV_E_INVALID, "n", "end before");
    wrong[9] = -1;
    synth_assert_failed(h, h2okv_llama_decode(h, wrong, 10), H2OKV_E_INVALID, "tokens", "token 9 is -1");
    wrong[9] = SYNTH_VOCAB;
    synth_assert_failed(h, h2okv_llama_decode(h, wrong, 10), H2OKV_E_INVALID, "tokens", "token 9 is 97");
    assert_int_equal(h2okv_llama_next_pos(h), 40);
    wrong[9] = SYNTH_VOCAB - 1;
    assert_int_equal(h2okv_llama_decode(h, wrong, 10), H2OKV_OK);
    assert_int_equal(h2okv_llama_decode(other, text, 40), H2OKV_OK);
    assert_int_equal(h2okv_llama_decode(other, wrong, 10), H2OKV_OK);
    assert_true(synth_same_books(h, other));
    h2okv_llama_free(h);
    h2okv_llama_free(other);
}

static void test_trim_bounds(void **state)
{
    (void)state;
    h2okv_llama *h = make(), *other = make();
    uint32_t lost = 77;
    assert_int_equal(h2okv_llama_trim(h, 0, NULL), H2OKV_OK);
    synth_assert_failed(h, h2okv_llama_trim(h, 1, NULL), H2OKV_E_INVALID, "pos0", "pos0 is 1");
    assert_int_equal(h2okv_llama_decode(h, text, 60), H2OKV_OK);
    assert_int_equal(h2okv_llama_decode(other, text, 60), H2OKV_OK);
    synth_assert_failed(h, h2okv_llama_trim(h, -1, &lost), H2OKV_E_INVALID, "pos0", "pos0 is -1");
    synth_assert_failed(h, h2okv_llama_trim(h, 61, &lost), H2OKV_E_INVALID, "pos0", "pos0 is 61");
    synth_assert_failed(h, h2okv_llama_trim(h, INT32_MAX, &lost), H2OKV_E_INVALID, "pos0", "2147483647");
    synth_assert_failed(h, h2okv_llama_trim(h, 60 - RECENT - 1, NULL), H2OKV_E_UNSUPPORTED, "pos0", "8 recent");
    assert_int_equal(h2okv_llama_trim(h, 60, &lost), H2OKV_OK);
    assert_int_equal(lost, 0);
    assert_true(synth_same_books(h, other));
    assert_int_equal(h2okv_llama_trim(h, 60 - RECENT, NULL), H2OKV_OK);
    synth_assert_books_match_engine(h);
    assert_int_equal(h2okv_llama_trim(h, 0, &lost), H2OKV_OK);
    assert_int_equal(h2okv_llama_next_pos(h), 0);
    synth_assert_books_match_engine(h);
    assert_int_equal(h2okv_llama_decode(h, text, 60), H2OKV_OK);
    synth_assert_books_match_engine(h);
    assert_true(synth_logits_differ(h2okv_llama_context(h), h2okv_llama_context(other)) < 1e-4);
    h2okv_llama_free(h);
    h2okv_llama_free(other);
}

/* ---- Stops ---- */

typedef struct progress {
    uint32_t stop_at, calls, last, total;
} progress;

static bool on_pass(void *user, uint32_t done, uint32_t total)
{
    progress *p = user;
    assert_true(done > p->last && done - p->last <= UBATCH && done <= total);
    p->calls++;
    p->last = done;
    p->total = total;
    return done < p->stop_at;
}

static void test_progress_stops_and_goes_on(void **state)
{
    (void)state;
    h2okv_llama *straight = make();
    progress p = {.stop_at = UINT32_MAX};
    h2okv_llama_set_progress(straight, on_pass, &p);
    assert_int_equal(h2okv_llama_decode(straight, text, N - 3), H2OKV_OK);
    assert_int_equal(p.calls, N / UBATCH);
    assert_true(p.last == N - 3 && p.total == N - 3);
    for (uint32_t stop = 1; stop < N - 3; stop += 37) {
        h2okv_llama *h = make();
        p = (progress){.stop_at = stop};
        h2okv_llama_set_progress(h, on_pass, &p);
        synth_assert_failed(h, h2okv_llama_decode(h, text, N - 3), H2OKV_E_STOPPED, "progress", "stopped after");
        uint32_t done = (stop + UBATCH - 1) / UBATCH * UBATCH;
        assert_int_equal(h2okv_llama_next_pos(h), done);
        synth_assert_books_match_engine(h);
        h2okv_llama_set_progress(h, NULL, NULL);
        assert_int_equal(h2okv_llama_decode(h, text + done, N - 3 - done), H2OKV_OK);
        assert_true(synth_same_books(h, straight));
        assert_true(synth_logits_differ(h2okv_llama_context(h), h2okv_llama_context(straight)) <= 0.0);
        h2okv_llama_free(h);
    }
    h2okv_llama_free(straight);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_options_are_refused_by_name),
        cmocka_unit_test(test_longer_options_that_are_not_used),
        cmocka_unit_test(test_defaults),
        cmocka_unit_test(test_allocator_fails_and_balances),
        cmocka_unit_test(test_quantised_v_is_refused_by_observe_mode),
        cmocka_unit_test(test_decode_arguments),
        cmocka_unit_test(test_trim_bounds),
        cmocka_unit_test(test_progress_stops_and_goes_on),
    };
    return cmocka_run_group_tests(tests, open_model, close_model);
}
