/*
 * test_budgets.c - budgets that change between decodes, and pins, on a tiny model.
 */
#include "synth.h"

#include <string.h>

enum { BUDGET = 48, RECENT = 16, UBATCH = 24, CHUNK = 10, GUIDE = 5, N = 200, LANES = 6 };

static struct llama_model *model;
static llama_token text[N], question[GUIDE];

static int open_model(void **state)
{
    if (synth_open(state) != 0) {
        return -1;
    }
    synth_text(text, N, 31);
    synth_text(question, GUIDE, 32);
    model = synth_model(&(synth_shape){
        .layers = 3, .query_heads = 4, .kv_heads = 2, .k_dim = 32, .v_dim = 32, .seed = 9,
    });
    return 0;
}

static int close_model(void **state)
{
    llama_model_free(model);
    return synth_close(state);
}

static int create(h2okv_llama **out, uint32_t room, uint32_t ubatch, h2okv_error *error)
{
    h2okv_options cache = synth_cache_options(BUDGET, RECENT);
    h2okv_llama_options options;
    h2okv_llama_options_init(&options);
    options.cache = &cache;
    options.ubatch = ubatch;
    options.room = room;
    return h2okv_llama_create(out, model, synth_params(0, 0), &options, error);
}

static h2okv_llama *make(uint32_t room)
{
    h2okv_llama *h = NULL;
    assert_int_equal(create(&h, room, UBATCH, NULL), H2OKV_OK);
    return h;
}

static h2okv_llama_guide make_guide(void)
{
    h2okv_llama_guide guide;
    h2okv_llama_guide_init(&guide);
    guide.tokens = question;
    guide.n = GUIDE;
    guide.chunk = CHUNK;
    return guide;
}

/* Cells are the larger of the two and a pass. */
static void test_room(void **state)
{
    (void)state;
    h2okv_llama *h = (h2okv_llama *)(uintptr_t)1;
    h2okv_error error = {0};
    assert_int_equal(create(&h, BUDGET - 1, UBATCH, &error), H2OKV_E_INVALID);
    assert_null(h);
    assert_string_equal(error.field, "room");
    assert_non_null(strstr(error.text, "room is 47"));
    assert_int_equal(create(&h, UINT32_MAX, UBATCH, &error), H2OKV_E_INVALID);
    assert_string_equal(error.field, "room");
    h2okv_llama_stats stats;
    assert_int_equal(create(&h, 300, H2OKV_AUTO, &error), H2OKV_OK);
    h2okv_llama_get_stats(h, &stats);
    assert_true(stats.budget == BUDGET && stats.ubatch == 212 && stats.cells == 512);
    h2okv_llama_free(h);
    h = make(300);
    h2okv_llama_get_stats(h, &stats);
    assert_true(stats.cells >= 300 + UBATCH);
    h2okv_llama_free(h);
}

static void test_budgets_go_up_and_down(void **state)
{
    (void)state;
    h2okv_llama *h = make(120);
    h2okv_llama_stats stats;
    h2okv_llama_get_stats(h, &stats);
    assert_true(stats.cells >= 120 + UBATCH);
    assert_int_equal(h2okv_llama_set_budget(h, 120, 30), H2OKV_OK);
    assert_int_equal(h2okv_llama_decode(h, text, N - 10), H2OKV_OK);
    assert_int_equal(h2okv_cache_live(h2okv_llama_cache(h)), 120);
    synth_assert_failed(h, h2okv_llama_set_budget(h, 121, 30), H2OKV_E_INVALID, "budget", "room for 120");
    synth_assert_failed(h, h2okv_llama_set_budget(h, 0, 30), H2OKV_E_INVALID, "budget", "budget is 0");
    synth_assert_failed(h, h2okv_llama_set_budget(h, 40, 41), H2OKV_E_INVALID, "recent", "recent is 41");
    synth_assert_failed(h, h2okv_llama_set_budget(h, 40, 0), H2OKV_E_INVALID, "recent", "recent is 0");
    synth_assert_failed(h, h2okv_llama_set_budget(h, 1, H2OKV_AUTO), H2OKV_E_INVALID, "recent", "recent is 0");
    assert_int_equal(h2okv_cache_live(h2okv_llama_cache(h)), 120);
    assert_int_equal(synth_recent(h), 30);
    assert_int_equal(h2okv_llama_set_budget(h, 40, H2OKV_AUTO), H2OKV_OK); /* at once */
    h2okv_llama_get_stats(h, &stats);
    assert_true(stats.budget == 40 && stats.cache.live == 40 && synth_recent(h) == 20);
    synth_assert_books_match_engine(h);
    assert_int_equal(h2okv_llama_decode(h, text + N - 10, 10), H2OKV_OK);
    assert_int_equal(h2okv_cache_live(h2okv_llama_cache(h)), 40);
    h2okv_llama_clear(h); /* the options' own again */
    h2okv_llama_get_stats(h, &stats);
    assert_true(stats.budget == BUDGET && synth_recent(h) == RECENT);
    h2okv_llama_free(h);
}

static void test_pins_stay(void **state)
{
    (void)state;
    h2okv_llama *h = make(0);
    h2okv_llama_guide guide = make_guide();
    assert_int_equal(h2okv_llama_decode(h, text, 20), H2OKV_OK);
    assert_int_equal(h2okv_llama_pin(h, 7, 12), H2OKV_OK);
    assert_int_equal(h2okv_llama_pin(h, 60, 64), H2OKV_OK);
    synth_assert_failed(h, h2okv_llama_pin(h, 5, 5), H2OKV_E_INVALID, "pin", "pin is 5:5");
    synth_assert_failed(h, h2okv_llama_pin(h, 100, 200), H2OKV_E_INVALID, "pin", "over the budget");
    synth_assert_failed(h, h2okv_llama_set_budget(h, 20, 12), H2OKV_E_INVALID, "pin", "pinned");
    guide.recent = 40;
    synth_assert_failed(h, h2okv_llama_decode_guided(h, text + 20, 90, &guide), H2OKV_E_INVALID, "pin", "pinned");
    guide.recent = H2OKV_AUTO;
    assert_int_equal(h2okv_llama_decode_guided(h, text + 20, 90, &guide), H2OKV_OK);
    assert_int_equal(h2okv_llama_decode(h, text + 110, 90), H2OKV_OK);
    for (uint32_t lane = 0; lane < LANES; lane++) {
        for (int32_t pos = 7; pos < 64; pos = pos == 11 ? 60 : pos + 1) {
            assert_true(synth_keeps(h, lane, pos));
        }
    }
    synth_assert_failed(h, h2okv_llama_pin(h, 12, 40), H2OKV_E_INVALID, "pin", "not all of these tokens are held");
    h2okv_llama_free(h);
}

/* A context that somebody else decoded with is no place to change anything. */
static void test_a_used_context_is_noticed(void **state)
{
    (void)state;
    h2okv_llama_guide guide = make_guide();
    for (int i = 0; i < 3; i++) {
        h2okv_llama *h = make(0);
        assert_int_equal(h2okv_llama_decode(h, text, 20), H2OKV_OK);
        llama_memory_seq_rm(llama_get_memory(h2okv_llama_context(h)), 0, 19, -1);
        int status = i == 0   ? h2okv_llama_decode_guided(h, text, 10, &guide)
                     : i == 1 ? h2okv_llama_set_budget(h, 20, 8)
                              : h2okv_llama_pin(h, 2, 4);
        synth_assert_failed(h, status, H2OKV_E_BROKEN, "memory", "past this handle");
        h2okv_llama_free(h);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_room),
        cmocka_unit_test(test_budgets_go_up_and_down),
        cmocka_unit_test(test_pins_stay),
        cmocka_unit_test(test_a_used_context_is_noticed),
    };
    return cmocka_run_group_tests(tests, open_model, close_model);
}
