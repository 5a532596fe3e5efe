/*
 * test_refuse.c - models whose memory is not a plain KV cache are refused, with a text that says why; and a model
 * that can be used still can be, in the same process.
 */
#include "synth.h"

#include <stdio.h>
#include <string.h>

typedef struct refused {
    const char *architecture;
    const char *why; /* a part of the text */
    uint32_t layers, heads, dim, embd;
    synth_key keys[12];
} refused;

#define SSM                                                                               \
    {"ssm.conv_kernel", SYNTH_U32, 4, {0}}, {"ssm.inner_size", SYNTH_U32, 128, {0}},      \
    {"ssm.state_size", SYNTH_U32, 16, {0}}, {"ssm.time_step_rank", SYNTH_U32, 4, {0}}
#define MLA                                                                                        \
    {"attention.q_lora_rank", SYNTH_U32, 32, {0}}, {"attention.kv_lora_rank", SYNTH_U32, 32, {0}}, \
    {"rope.dimension_count", SYNTH_U32, 16, {0}}

static const refused models[] = {
    {"mamba", "recurrent", 2, 0, 0, 64, {SSM}},
    {"rwkv7", "recurrent", 2, 0, 0, 64,
     {{"wkv.head_size", SYNTH_U32, 16, {0}}, {"attention.decay_lora_rank", SYNTH_U32, 8, {0}},
      {"attention.iclr_lora_rank", SYNTH_U32, 8, {0}},
      {"attention.value_residual_mix_lora_rank", SYNTH_U32, 8, {0}},
      {"attention.gate_lora_rank", SYNTH_U32, 8, {0}}, {"token_shift_count", SYNTH_U32, 2, {0}}}},
    {"jamba", "hybrid", 2, 4, 16, 64,
     {SSM, {"attention.head_count_kv", SYNTH_U32_PER_LAYER, 0, {4, 0}}}},
    {"deepseek2", "latent", 2, 4, 32, 64,
     {MLA, {"leading_dense_block_count", SYNTH_U32, 2, {0}}, {"attention.key_length_mla", SYNTH_U32, 32, {0}},
      {"attention.value_length_mla", SYNTH_U32, 16, {0}}, {"expert_feed_forward_length", SYNTH_U32, 32, {0}},
      {"expert_shared_count", SYNTH_U32, 1, {0}}}},
    {"minicpm3", "latent", 2, 4, 32, 64, {MLA}},
    {"bert", "encoder", 2, 4, 16, 64,
     {{"attention.causal", SYNTH_BOOL, 0, {0}}, {"pooling_type", SYNTH_U32, 1, {0}},
      {"tokenizer.ggml.token_type_count", SYNTH_U32, 2, {0}}}},
    {"t5", "encoder", 2, 4, 16, 64, {{"attention.relative_buckets_count", SYNTH_U32, 8, {0}}}},
    {"dream", "diffusion", 2, 4, 16, 64, {{0}}},
    {"llama", "encoder", 2, 4, 16, 64, {{"attention.causal", SYNTH_BOOL, 0, {0}}}},
    {"gemma2", "sliding-window", 2, 4, 16, 64, {{0}}},
    {"gemma3", "sliding-window", 2, 4, 16, 64, {{"attention.sliding_window", SYNTH_U32, 64, {0}}}},
    {"bloom", "ALiBi", 2, 4, 16, 64, {{0}}},
    {"mpt", "ALiBi", 2, 4, 16, 64, {{"attention.max_alibi_bias", SYNTH_F32, 8, {0}}}},
    {"deepseek2", "plain attention", 2, 4, 32, 64, /* says nothing of its latents */
     {{"attention.key_length", SYNTH_U32, 48, {0}}, {"attention.head_count_kv", SYNTH_U32, 1, {0}},
      {"attention.q_lora_rank", SYNTH_U32, 32, {0}}, {"attention.kv_lora_rank", SYNTH_HIDDEN_U32, 32, {0}},
      {"attention.key_length_mla", SYNTH_HIDDEN_U32, 32, {0}},
      {"attention.value_length_mla", SYNTH_HIDDEN_U32, 16, {0}},
      {"rope.dimension_count", SYNTH_U32, 16, {0}}, {"leading_dense_block_count", SYNTH_U32, 2, {0}},
      {"expert_feed_forward_length", SYNTH_U32, 32, {0}}, {"expert_shared_count", SYNTH_U32, 1, {0}}}},
};

static struct llama_model *model_of(const refused *r)
{
    return synth_model(&(synth_shape){
        .architecture = r->architecture, .layers = r->layers, .query_heads = r->heads, .kv_heads = r->heads,
        .k_dim = r->dim, .v_dim = r->dim, .embd = r->embd, .seed = 2, .keys = r->keys,
    });
}

static void assert_refused(const refused *r, struct llama_model *model)
{
    h2okv_llama *h = (h2okv_llama *)(uintptr_t)1;
    h2okv_llama_options options;
    h2okv_llama_options_init(&options);
    h2okv_error error = {0};
    int status = h2okv_llama_create(&h, model, synth_params(0, 0), &options, &error);
    if (status != H2OKV_E_UNSUPPORTED || strstr(error.text, r->why) == NULL) {
        fail_msg("%s: status %d, \"%s\"", r->architecture, status, error.text);
    }
    assert_int_equal(error.status, H2OKV_E_UNSUPPORTED);
    assert_string_equal(error.field, "model");
    assert_null(h);
}

static void assert_a_plain_model_works(void)
{
    llama_token text[40];
    struct llama_model *model = synth_model(&(synth_shape){
        .layers = 2, .query_heads = 4, .kv_heads = 2, .k_dim = 32, .v_dim = 32, .seed = 1,
    });
    h2okv_error error = {.text = "untouched"};
    assert_int_equal(h2okv_llama_check_model(model, &error), H2OKV_OK);
    assert_string_equal(error.text, "untouched");
    h2okv_options cache = synth_cache_options(16, 8);
    h2okv_llama *h = synth_adapter(model, &cache, H2OKV_LANES_HEAD, 8);
    synth_text(text, 40, 9);
    assert_int_equal(h2okv_llama_decode(h, text, 40), H2OKV_OK);
    synth_assert_books_match_engine(h);
    assert_int_equal(h2okv_cache_live(h2okv_llama_cache(h)), 16);
    h2okv_llama_free(h);
    llama_model_free(model);
}

/* Among them those of which a part cannot be removed, or is said to be removed and is not. */
static void test_fault_54_models_that_are_refused(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof models / sizeof models[0]; i++) {
        struct llama_model *model = model_of(&models[i]);
        assert_refused(&models[i], model);
        h2okv_error error = {0};
        bool told_by_probe = strcmp(models[i].why, "ALiBi") == 0 || strcmp(models[i].why, "plain attention") == 0;
        int status = h2okv_llama_check_model(model, &error);
        assert_int_equal(status, told_by_probe ? H2OKV_OK : H2OKV_E_UNSUPPORTED);
        assert_int_equal(h2okv_llama_check_model(model, NULL), status);
        if (status != H2OKV_OK) {
            assert_non_null(strstr(error.text, models[i].why));
            assert_non_null(strstr(error.text, models[i].architecture)); /* names the model */
        }
        llama_model_free(model);
        assert_a_plain_model_works();
    }
}

/* Megabytes of this process that are in memory; 0 where the system does not say. */
static double resident_mb(void)
{
    unsigned long all = 0, resident = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (file == NULL) {
        return 0.0;
    }
    int n = fscanf(file, "%lu %lu", &all, &resident);
    fclose(file);
    return n == 2 ? (double)resident * 4096.0 / 1e6 : 0.0;
}

/* A model refused only after its context was made, many times: a context that stayed would be seen. */
static void test_refusals_do_not_leak(void **state)
{
    (void)state;
    const refused *bloom = NULL;
    for (size_t i = 0; i < sizeof models / sizeof models[0]; i++) {
        bloom = strcmp(models[i].architecture, "bloom") == 0 ? &models[i] : bloom;
    }
    struct llama_model *model = model_of(bloom);
    double before = 0.0;
    for (int i = 0; i < 60; i++) {
        assert_refused(bloom, model);
        before = i == 9 ? resident_mb() : before;
    }
    assert_true(resident_mb() - before < 5.0);
    llama_model_free(model);
}

static bool count(void *user)
{
    ++*(uint32_t *)user;
    return false;
}

/* What the first probe finds and no mode can do is final: with attention auto no more is computed than for fused. */
static void assert_probed_once(struct llama_model *model)
{
    uint32_t calls[3] = {0};
    for (uint32_t mode = H2OKV_ATTENTION_AUTO; mode <= H2OKV_ATTENTION_OBSERVE; mode++) {
        struct llama_context_params params = synth_params(0, 0);
        params.abort_callback = count;
        params.abort_callback_data = &calls[mode];
        h2okv_llama_options options;
        h2okv_llama_options_init(&options);
        options.attention = mode;
        h2okv_llama *h;
        assert_int_equal(h2okv_llama_create(&h, model, params, &options, NULL), H2OKV_E_UNSUPPORTED);
    }
    assert_true(calls[H2OKV_ATTENTION_FUSED] > 0 && calls[H2OKV_ATTENTION_OBSERVE] > 0);
    assert_int_equal(calls[H2OKV_ATTENTION_AUTO], calls[H2OKV_ATTENTION_FUSED]);
}

static void test_a_probe_is_not_repeated_in_vain(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof models / sizeof models[0]; i++) {
        if (strcmp(models[i].why, "ALiBi") == 0) {
            struct llama_model *model = model_of(&models[i]);
            assert_probed_once(model);
            llama_model_free(model);
        }
    }
}

/* A model with soft-capped logits or a norm on its queries has plain attention, and is taken. */
static void test_relatives_that_are_taken(void **state)
{
    (void)state;
    const refused taken[] = {
        {"qwen3", "", 2, 4, 32, 64, {{0}}},
        {"qwen2", "", 2, 4, 16, 64, {{0}}},
        {"gemma", "", 2, 4, 32, 64, {{0}}},
        {"mpt", "", 2, 4, 16, 64, {{0}}}, /* without a bias */
    };
    for (size_t i = 0; i < sizeof taken / sizeof taken[0]; i++) {
        llama_token text[64];
        struct llama_model *model = model_of(&taken[i]);
        h2okv_options cache = synth_cache_options(16, 8);
        h2okv_llama *h = synth_adapter(model, &cache, H2OKV_LANES_HEAD, 8);
        synth_text(text, 64, 4);
        assert_int_equal(h2okv_llama_decode(h, text, 64), H2OKV_OK);
        synth_assert_books_match_engine(h);
        h2okv_llama_free(h);
        llama_model_free(model);
    }
}

/* Layers with different numbers of KV heads: a choice by head is refused, one a layer is made. */
static void test_layers_that_differ(void **state)
{
    (void)state;
    llama_token text[64];
    synth_key keys[] = {{"attention.head_count_kv", SYNTH_U32_PER_LAYER, 0, {4, 2, 1}}, {NULL, SYNTH_U32, 0, {0}}};
    struct llama_model *model = synth_model(&(synth_shape){
        .architecture = "deci", .layers = 3, .query_heads = 4, .kv_heads = 4, .k_dim = 32, .v_dim = 32, .seed = 2,
        .keys = keys,
    });
    h2okv_options cache = synth_cache_options(16, 8);
    h2okv_llama_options options;
    h2okv_llama_options_init(&options);
    options.cache = &cache;
    options.ubatch = 8;
    h2okv_llama *h = NULL;
    h2okv_error error = {0};
    assert_int_equal(h2okv_llama_create(&h, model, synth_params(0, 0), &options, &error), H2OKV_E_UNSUPPORTED);
    assert_string_equal(error.field, "lanes");
    assert_null(h);
    assert_probed_once(model);
    synth_text(text, 64, 4);
    for (uint32_t lanes = H2OKV_LANES_LAYER; lanes <= H2OKV_LANES_ALL; lanes++) {
        h = synth_adapter(model, &cache, lanes, 8);
        assert_int_equal(h2okv_llama_decode(h, text, 64), H2OKV_OK);
        synth_assert_books_match_engine(h);
        h2okv_llama_free(h);
    }
    llama_model_free(model);
}

/* A mean has to divide by each layer's own number of query heads; the kernels are told one weight for all. */
static void test_query_heads_that_differ(void **state)
{
    (void)state;
    synth_key keys[] = {{"attention.head_count", SYNTH_U32_PER_LAYER, 0, {4, 2, 4}},
                        {"attention.head_count_kv", SYNTH_U32_PER_LAYER, 0, {2, 2, 2}},
                        {NULL, SYNTH_U32, 0, {0}}};
    struct llama_model *model = synth_model(&(synth_shape){
        .architecture = "deci", .layers = 3, .query_heads = 4, .kv_heads = 2, .k_dim = 32, .v_dim = 32, .seed = 2,
        .keys = keys,
    });
    h2okv_options cache = synth_cache_options(16, 8);
    h2okv_llama_options options;
    h2okv_llama_options_init(&options);
    options.cache = &cache;
    options.ubatch = 8;
    for (uint32_t heads = H2OKV_HEADS_SUM; heads <= H2OKV_HEADS_MEAN; heads++) {
        cache.heads = heads;
        h2okv_llama *h = NULL;
        h2okv_llama_stats stats;
        assert_int_equal(h2okv_llama_create(&h, model, synth_params(0, 0), &options, NULL), H2OKV_OK);
        h2okv_llama_get_stats(h, &stats);
        assert_int_equal(stats.isa != NULL, heads == H2OKV_HEADS_SUM);
        assert_true(heads == H2OKV_HEADS_SUM || strstr(stats.not_fused, "query heads") != NULL);
        h2okv_llama_free(h);
    }
    llama_model_free(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fault_54_models_that_are_refused),
        cmocka_unit_test(test_refusals_do_not_leak),
        cmocka_unit_test(test_a_probe_is_not_repeated_in_vain),
        cmocka_unit_test(test_relatives_that_are_taken),
        cmocka_unit_test(test_layers_that_differ),
        cmocka_unit_test(test_query_heads_that_differ),
    };
    return cmocka_run_group_tests(tests, synth_open, synth_close);
}
