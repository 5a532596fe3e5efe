/* model.c - finding ggml's backends, and refusing models whose memory is not a plain KV cache of every token. */
#define _GNU_SOURCE /* dladdr */
#include "adapter.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Directory of the file that libllama was loaded from. */
static bool directory_of_libllama(char *out, size_t size)
{
    Dl_info info;
    void *address;
    void (*function)(void) = llama_backend_init;
    memcpy(&address, &function, sizeof address); /* ISO C has no cast from function to object pointer */
    if (dladdr(address, &info) == 0 || info.dli_fname == NULL) {
        return false;
    }
    int length = snprintf(out, size, "%s", info.dli_fname);
    char *slash = strrchr(out, '/');
    if (length < 0 || (size_t)length >= size || slash == NULL) {
        return false;
    }
    *slash = '\0';
    return true;
}

static bool has_cpu_backend(void)
{
    return ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_CPU) != NULL;
}

int h2okv_llama_load_backends(const char *directory)
{
    char beside[4096];
    if (directory == NULL && has_cpu_backend()) {
        return H2OKV_OK; /* linked in, or loaded before */
    }
    if (directory == NULL && directory_of_libllama(beside, sizeof beside)) {
        directory = beside;
    }
    if (directory != NULL) {
        ggml_backend_load_all_from_path(directory);
    }
    if (!has_cpu_backend()) {
        ggml_backend_load_all();
    }
    return has_cpu_backend() ? H2OKV_OK : H2OKV_E_ENGINE;
}

/* The value of "<architecture>.<suffix>" in the model's metadata; false when there is none. */
static bool metadata(const struct llama_model *model, const char *suffix, char *out, size_t size)
{
    char architecture[96], key[192];
    if (llama_model_meta_val_str(model, "general.architecture", architecture, sizeof architecture) < 0) {
        return false;
    }
    snprintf(key, sizeof key, "%s.%s", architecture, suffix);
    return llama_model_meta_val_str(model, key, out, size) >= 0;
}

static bool has_metadata_of(const struct llama_model *model, const char *architecture)
{
    char found[96];
    return llama_model_meta_val_str(model, "general.architecture", found, sizeof found) >= 0 &&
           strcmp(found, architecture) == 0;
}

static bool has_metadata(const struct llama_model *model, const char *suffix, const char *value)
{
    char found[96];
    return metadata(model, suffix, found, sizeof found) && (value == NULL || strcmp(found, value) == 0);
}

/* llama.cpp ends the process on some such models when flash attention is asked for, so it is not asked for. */
bool h2okv__k_and_v_differ(const struct llama_model *model)
{
    char k[96], v[96];
    return metadata(model, "attention.key_length", k, sizeof k) &&
           metadata(model, "attention.value_length", v, sizeof v) && strcmp(k, v) != 0;
}

/* Of so many layers in a row the last one has full attention, the others sliding windows; 0: not known. */
static uint32_t window_period(const struct llama_model *model)
{
    char period[96];
    if (!has_metadata_of(model, "gemma3")) {
        return 0;
    }
    return metadata(model, "attention.sliding_window_pattern", period, sizeof period) ? (uint32_t)atoi(period) : 6;
}

bool h2okv__is_window_layer(const struct llama_model *model, uint32_t layer)
{
    uint32_t period = llama_model_n_swa(model) > 0 ? window_period(model) : 0;
    return period > 0 && layer % period < period - 1;
}

static bool all_are_windows(const struct llama_model *model)
{
    uint32_t n = (uint32_t)llama_model_n_layer(model), windows = 0;
    for (uint32_t i = 0; i < n; i++) {
        windows += h2okv__is_window_layer(model, i);
    }
    return windows == n;
}

/* Why the model is refused, or NULL. */
static const char *refusal(const struct llama_model *model)
{
    if (llama_model_is_recurrent(model)) {
        return "it is recurrent: it has a state, not a KV cache";
    }
    if (llama_model_is_hybrid(model)) {
        return "it is hybrid: some layers have a recurrent state, not a KV cache";
    }
    if (llama_model_is_diffusion(model)) {
        return "it is a diffusion model: it does not decode token by token";
    }
    if (llama_model_has_encoder(model) || !llama_model_has_decoder(model) ||
        has_metadata(model, "attention.causal", "false")) {
        return "it is an encoder: it does not decode token by token";
    }
    if (has_metadata(model, "attention.kv_lora_rank", NULL) || has_metadata(model, "attention.key_length_mla", NULL)) {
        return "it uses multi-head latent attention (MLA), whose cache has no K and V by head";
    }
    if (llama_model_n_swa(model) > 0 && window_period(model) < 2) {
        return "it uses sliding-window attention, which is tested with Gemma 3 only";
    }
    if (all_are_windows(model)) {
        return "it uses sliding-window attention in all layers: none of them grows";
    }
    return NULL;
}

int h2okv_llama_check_model(const struct llama_model *model, h2okv_error *error)
{
    const char *why = refusal(model);
    if (why == NULL) {
        return H2OKV_OK;
    }
    char description[96];
    llama_model_desc(model, description, sizeof description);
    return h2okv_error_set(error, H2OKV_E_UNSUPPORTED, "model", "this model (%s) cannot be used: %s", description,
                           why);
}

int h2okv__check_window(const struct llama_model *model, uint32_t budget, h2okv_error *error)
{
    int32_t window = llama_model_n_swa(model);
    if (window <= 0 || budget >= (uint32_t)window) {
        return H2OKV_OK;
    }
    return h2okv_error_set(error, H2OKV_E_INVALID, "budget", "budget is %u: this model's sliding-window layers see %d "
                           "tokens, so it must be at least that", budget, window);
}
