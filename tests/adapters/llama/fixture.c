/* fixture.c - see fixture.h. */
#include "fixture.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct llama_model *fixture_model;
llama_token fixture_token[FIXTURE_TOKENS];
int fixture_n_vocab;
uint32_t fixture_attention = H2OKV_ATTENTION_OBSERVE;

static void only_errors(enum ggml_log_level level, const char *text, void *user)
{
    (void)user;
    if (level == GGML_LOG_LEVEL_ERROR) {
        fputs(text, stderr);
    }
}

static int read_text(char *out, size_t size)
{
    FILE *file = fopen("/usr/share/common-licenses/GPL-3", "rb");
    if (file == NULL) {
        return -1;
    }
    size_t n = fread(out, 1, size, file);
    fclose(file);
    return (int)n;
}

int fixture_open(void **state)
{
    (void)state;
    static char text[24000];
    static llama_token all[16000];
    llama_log_set(only_errors, NULL);
    int bytes = read_text(text, sizeof text);
    if (bytes <= 0 || h2okv_llama_load_backends(NULL) != H2OKV_OK) {
        return -1;
    }
    fixture_model = llama_model_load_from_file(H2OKV_TEST_MODEL, llama_model_default_params());
    if (fixture_model == NULL) {
        return -1;
    }
    const struct llama_vocab *vocab = llama_model_get_vocab(fixture_model);
    fixture_n_vocab = llama_vocab_n_tokens(vocab);
    if (llama_tokenize(vocab, text, bytes, all, 16000, true, false) < FIXTURE_TOKENS) {
        return -1;
    }
    memcpy(fixture_token, all, sizeof fixture_token);
    return 0;
}

int fixture_close(void **state)
{
    (void)state;
    llama_model_free(fixture_model);
    llama_backend_free();
    return 0;
}

struct llama_context_params fixture_params(void)
{
    struct llama_context_params params = llama_context_default_params();
    params.n_threads = params.n_threads_batch = 1; /* ggml threads that spin crawl beside other programs */
    return params;
}

h2okv_options fixture_options(const char *policy, uint32_t budget, uint32_t recent)
{
    h2okv_options options;
    h2okv_options_init(&options);
    options.sinks = 0; /* the oracle knows no presets */
    options.decay = 1.0;
    options.policy = policy;
    options.budget = budget;
    options.recent = recent;
    return options;
}

h2okv_llama *fixture_adapter(const h2okv_options *cache, uint32_t lanes, uint32_t ubatch)
{
    h2okv_llama_options options;
    h2okv_llama_options_init(&options);
    options.cache = cache;
    options.lanes = lanes;
    options.ubatch = ubatch;
    options.attention = fixture_attention;
    h2okv_llama *h = NULL;
    h2okv_error error = {0};
    if (h2okv_llama_create(&h, fixture_model, fixture_params(), &options, &error) != H2OKV_OK) {
        fail_msg("create: %s", error.text);
    }
    return h;
}

struct llama_context *fixture_plain(uint32_t cells, uint32_t ubatch)
{
    struct llama_context_params params = fixture_params();
    params.n_ctx = cells;
    params.n_batch = params.n_ubatch = ubatch;
    params.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_DISABLED;
    struct llama_context *context = llama_init_from_model(fixture_model, params);
    assert_non_null(context);
    return context;
}

void fixture_assert_same_logits(struct llama_context *a, struct llama_context *b, const char *where, int32_t at)
{
    const float *x = llama_get_logits_ith(a, -1), *y = llama_get_logits_ith(b, -1);
    if (memcmp(x, y, (size_t)fixture_n_vocab * sizeof *x) != 0) {
        fail_msg("%s: logits differ after position %d", where, at);
    }
}
