/*
 * attach.c - make a llama_context of room + ubatch cells, learn its layout by a probe pass, and set up the books.
 *
 *   options -> context -> probe pass -> lanes -> cache
 *
 * Nothing is assumed of llama.cpp that the probe does not show; what it shows and is not supported is an error.
 */
#include "adapter.h"

#include <stdlib.h>
#include <string.h>

static int make_context(h2okv_llama *h, struct llama_context_params params, h2okv_error *error)
{
    if (params.cb_eval != NULL) {
        return h2okv_error_set(error, H2OKV_E_INVALID, "cb_eval",
                               "cb_eval is set: the adapter needs it, leave it NULL");
    }
    params.n_ctx = h->cells * h->n_sequences;
    params.n_batch = params.n_ubatch = h->most_tokens;
    params.n_seq_max = h->n_sequences;
    params.kv_unified = false; /* each sequence has cells of its own */
    params.swa_full = h->window > 0; /* as many cells for sliding windows, so that a pass always fits */
    /* Flash attention never writes its weights to memory; its nodes are exchanged, or it must be off. */
    params.flash_attn_type = h->fused ? LLAMA_FLASH_ATTN_TYPE_ENABLED : LLAMA_FLASH_ATTN_TYPE_DISABLED;
    params.cb_eval = h2okv__tap;
    params.cb_eval_user_data = h;
    h->context = llama_init_from_model(h->model, params);
    if (h->context == NULL) {
        return h2okv_error_set(error, H2OKV_E_ENGINE, "context",
                               "llama.cpp could not make a context of %u cells: not enough memory, or a cache type "
                               "that it cannot use without flash attention",
                               h->cells * h->n_sequences);
    }
    h->cells = llama_n_ctx_seq(h->context);
    h->batch = llama_batch_init((int32_t)h->most_tokens, 0, 1);
    return h->batch.token != NULL ? H2OKV_OK : h2okv_error_set(error, H2OKV_E_NOMEM, "ubatch", "out of memory");
}

/* Decode one token, looking; then forget it. */
static int probe(h2okv_llama *h, h2okv_error *error)
{
    llama_token token = 0;
    h->weights_sum = 0;
    h->tap_mode = H2OKV__TAP_PROBE;
    int result = llama_decode(h->context, llama_batch_get_one(&token, 1));
    llama_synchronize(h->context);
    h->tap_mode = H2OKV__TAP_OFF;
    llama_memory_clear(llama_get_memory(h->context), true);
    if (result != 0) {
        return h2okv_error_set(error, H2OKV_E_ENGINE, "probe", "llama.cpp failed to decode one token (%d)", result);
    }
    return H2OKV_OK;
}

static bool layout_is_known(const h2okv_llama *h, const h2okv__layer *l)
{
    bool sizes_fit = l->kv_heads > 0 && l->query_heads % l->kv_heads == 0 && l->v_dim > 0 &&
                     l->k->ne[0] == (int64_t)l->k_dim * l->kv_heads && l->k->ne[1] == (int64_t)h->cells &&
                     l->v->ne[0] == (int64_t)l->v_dim * l->kv_heads && l->v->ne[1] == (int64_t)h->cells &&
                     l->k->ne[2] == (int64_t)h->n_sequences && l->v->ne[2] == (int64_t)h->n_sequences;
    return sizes_fit && l->k_dim % ggml_blck_size(l->k->type) == 0 &&
           l->v_dim % (l->v_transposed ? 1 : ggml_blck_size(l->v->type)) == 0;
}

/* What would be the same in the other mode, so that it need not be tried. */
static int check_layer_for_good(h2okv_llama *h, uint32_t i, h2okv_error *error)
{
    const h2okv__layer *l = &h->layer[i];
    h->refused = true;
    if (l->has_position_bias) {
        return h2okv_error_set(error, H2OKV_E_UNSUPPORTED, "model",
                               "layer %u adds a bias by distance (ALiBi), which moved tokens would get wrong", i);
    }
    if (h->lanes_mode == H2OKV_LANES_HEAD && l->kv_heads != h->layer[0].kv_heads) {
        return h2okv_error_set(error, H2OKV_E_UNSUPPORTED, "lanes",
                               "layer %u has %u KV heads and layer 0 has %u: use one lane a layer", i, l->kv_heads,
                               h->layer[0].kv_heads);
    }
    h->refused = false;
    return H2OKV_OK;
}

static int check_layer(h2okv_llama *h, uint32_t i, h2okv_error *error)
{
    const h2okv__layer *l = &h->layer[i];
    if (l->k == NULL || l->v == NULL || !l->seen_weights) {
        return h2okv_error_set(error, H2OKV_E_UNSUPPORTED, "model", "layer %u does not keep K and V and compute "
                               "attention weights as llama.cpp's plain attention does", i);
    }
    int status = check_layer_for_good(h, i, error);
    if (status != H2OKV_OK) {
        return status;
    }
    if (!layout_is_known(h, l)) {
        return h2okv_error_set(error, H2OKV_E_UNSUPPORTED, "model", "layer %u's K and V are laid out in a way that "
                               "is not known", i);
    }
    if (h->lanes_mode != H2OKV_LANES_ALL && h->fused && l->kv_heads != h->layer[0].kv_heads) {
        h->not_fused = "its layers have different numbers of KV heads";
    }
    if (h->fused && h->mean_heads && l->query_heads != h->layer[0].query_heads) {
        h->not_fused = "its layers have different numbers of query heads, of which a mean is wanted";
    }
    return H2OKV_OK;
}

/* A pass's largest softmax, and the largest row that a move touches; see struct h2okv_llama. */
static int make_host_copies(h2okv_llama *h, h2okv_error *error)
{
    size_t weights = 0, row = 0;
    for (uint32_t i = 0; i < h->n_layers; i++) {
        const h2okv__layer *l = &h->layer[i];
        size_t layer_weights = sizeof(float) * h->cells * h->most_tokens * l->query_heads;
        if (ggml_backend_buffer_is_host(l->k->buffer) && ggml_backend_buffer_is_host(l->v->buffer)) {
            continue;
        }
        weights = layer_weights > weights ? layer_weights : weights;
        size_t k_row = ggml_row_size(l->k->type, l->k_dim);
        size_t v_row = ggml_type_size(l->v->type) * (l->v_transposed ? h->cells : l->v_dim);
        row = k_row > row ? k_row : row;
        row = v_row > row ? v_row : row;
    }
    h->weights_copy = weights > 0 ? malloc(weights) : NULL;
    h->row_copy = row > 0 ? malloc(row) : NULL;
    h->weights_copy_bytes = weights;
    bool made = (weights == 0 || h->weights_copy != NULL) && (row == 0 || h->row_copy != NULL);
    return made ? H2OKV_OK : h2okv_error_set(error, H2OKV_E_NOMEM, "ubatch", "out of memory");
}

static uint32_t all_kv_heads(const h2okv_llama *h)
{
    uint32_t heads = 0;
    for (uint32_t i = 0; i < h->n_layers; i++) {
        heads += h->layer[i].kv_heads;
    }
    return heads;
}

static void on_event(void *user, const h2okv_event *event)
{
    const h2okv__sequence *s = user;
    h2okv_event counted = *event;
    counted.lane += s->first_lane;
    s->caller.on_event(s->caller.event_user, &counted);
}

static void on_mass(void *user, uint32_t lane, const double *mass)
{
    const h2okv__sequence *s = user;
    s->caller.on_mass(s->caller.mass_user, s->first_lane + lane, mass);
}

/* The caller's callbacks get lanes counted over all sequences. */
static void relay_callbacks(h2okv_options *options, h2okv__sequence *s, uint32_t first_lane)
{
    s->caller = *options;
    s->first_lane = first_lane;
    options->on_event = options->on_event != NULL ? on_event : NULL;
    options->on_mass = options->on_mass != NULL ? on_mass : NULL;
    options->event_user = options->mass_user = s;
}

/* Fused mode observes each KV head by itself, observe mode each layer. */
static int make_books(h2okv_llama *h, h2okv_options *options, h2okv_error *error)
{
    switch (h->lanes_mode) {
    case H2OKV_LANES_HEAD:
        h->lanes = h->n_layers * h->layer[0].kv_heads;
        break;
    case H2OKV_LANES_LAYER:
        h->lanes = h->n_layers;
        options->parts = h->fused ? h->layer[0].kv_heads : 1;
        break;
    default:
        h->lanes = 1;
        options->parts = h->fused ? all_kv_heads(h) : h->n_layers;
    }
    options->lanes = h->lanes;
    options->cells = h->cells;
    int status = H2OKV_OK;
    for (uint32_t i = 0; i < h->n_sequences && status == H2OKV_OK; i++) {
        h2okv_options own = *options;
        relay_callbacks(&own, &h->sequence[i], i * h->lanes);
        status = h2okv_cache_create(&h->sequence[i].cache, &own, error);
    }
    h->decay = status == H2OKV_OK ? h2okv__options(&h->sequence[0]).decay : 1.0;
    return status;
}

static int policy_needs_scores(const h2okv_options *options)
{
    const h2okv_policy *policy =
        options->custom_policy != NULL ? options->custom_policy : h2okv_policy_find(options->policy);
    return policy != NULL && (policy->flags & H2OKV_POLICY_NEEDS_SCORES) != 0;
}

static uint32_t most_threads(const struct llama_context_params *params)
{
    int32_t most = params->n_threads > params->n_threads_batch ? params->n_threads : params->n_threads_batch;
    return most > 0 ? (uint32_t)most : 1;
}

static bool allocate_sequences(h2okv_llama *h, uint32_t n)
{
    size_t n_vocab = (size_t)llama_vocab_n_tokens(llama_model_get_vocab(h->model));
    h->sequence = calloc(n, sizeof *h->sequence);
    h->n_sequences = h->sequence != NULL ? n : 0;
    h->round = calloc(n, sizeof *h->round);
    bool made = h->sequence != NULL && h->round != NULL;
    for (uint32_t i = 0; i < h->n_sequences; i++) {
        h2okv__sequence *s = &h->sequence[i];
        s->id = i;
        s->fresh_cell = calloc(h->ubatch, sizeof *s->fresh_cell);
        s->fresh_pos = calloc(h->ubatch, sizeof *s->fresh_pos);
        s->logits = n > 1 ? malloc(n_vocab * sizeof *s->logits) : NULL;
        s->logits_row = -1;
        made = made && s->fresh_cell != NULL && s->fresh_pos != NULL && (n == 1 || s->logits != NULL);
    }
    return made;
}

static bool allocate_layers(h2okv_llama *h)
{
    h->n_all_layers = (uint32_t)llama_model_n_layer(h->model);
    h->place = calloc(h->n_all_layers, sizeof *h->place);
    for (uint32_t i = 0; i < h->n_all_layers && h->place != NULL; i++) {
        h->place[i] = h2okv__is_window_layer(h->model, i) ? UINT32_MAX : h->n_layers++;
    }
    h->window = h->n_layers < h->n_all_layers ? (uint32_t)llama_model_n_swa(h->model) : 0;
    h->layer = calloc(h->n_layers, sizeof *h->layer);
    return h->place != NULL && h->layer != NULL;
}

static h2okv_llama *allocate(struct llama_model *model, const struct llama_context_params *params,
                             const h2okv_llama_options *o, const h2okv_options *cache)
{
    h2okv_llama *h = calloc(1, sizeof *h);
    if (h == NULL) {
        return NULL;
    }
    h->model = model;
    h->lanes_mode = o->lanes;
    h->ubatch = o->ubatch;
    h->room = o->room;
    h->cells = h->wanted_cells = cache->cells;
    h->needs_scores = policy_needs_scores(cache);
    h->count_self = cache->count_self != 0;
    h->mean_heads = cache->heads == H2OKV_HEADS_MEAN;
    h->max_threads = most_threads(params);
    memcpy(h->rope, (const double[H2OKV__N_ROPE]){params->rope_scaling_type, (double)params->rope_freq_base,
           (double)params->rope_freq_scale, (double)params->yarn_ext_factor, (double)params->yarn_attn_factor,
           (double)params->yarn_beta_fast, (double)params->yarn_beta_slow, params->yarn_orig_ctx}, sizeof h->rope);
    h->most_tokens = o->ubatch > o->sequences ? o->ubatch : o->sequences;
    if (!allocate_layers(h) || !allocate_sequences(h, o->sequences)) {
        h2okv_llama_free(h);
        return NULL;
    }
    return h;
}

/* llama.cpp keeps full attention and sliding windows in two caches: it is seen where they lie. */
static int check_windows(const h2okv_llama *h, h2okv_error *error)
{
    bool as_expected = !h->window_scattered;
    for (uint32_t i = 0; i < h->n_layers; i++) {
        as_expected = as_expected && h->layer[i].k->buffer == h->layer[0].k->buffer &&
                      h->layer[i].k->buffer != h->window_buffer;
    }
    if (h->window == 0 || as_expected) {
        return H2OKV_OK;
    }
    return h2okv_error_set(error, H2OKV_E_UNSUPPORTED, "model", "its layers with full attention and with sliding "
                           "windows are not those that are expected, or not all in host memory");
}

static int make_and_probe(h2okv_llama *h, struct llama_context_params params, bool fused, h2okv_error *error)
{
    h->fused = fused;
    int status = make_context(h, params, error);
    status = status != H2OKV_OK ? status : probe(h, error);
    for (uint32_t i = 0; i < h->n_layers && status == H2OKV_OK; i++) {
        status = check_layer(h, i, error);
    }
    return status != H2OKV_OK ? status : check_windows(h, error);
}

/* As if nothing had been made and probed, but for why. */
static void unmake(h2okv_llama *h)
{
    h2okv__free_fused(h);
    if (h->batch.token != NULL) {
        llama_batch_free(h->batch);
    }
    if (h->context != NULL) {
        llama_free(h->context);
    }
    memset(&h->batch, 0, sizeof h->batch);
    memset(h->layer, 0, h->n_layers * sizeof *h->layer);
    h->window_bytes = 0;
    h->window_buffer = NULL;
    h->window_scattered = false;
    h->context = NULL;
    h->cells = h->wanted_cells;
}

static int attach_fused(h2okv_llama *h, struct llama_context_params params, const char *isa, h2okv_error *error)
{
    if (!h2okv__make_pattern(h)) {
        return h2okv_error_set(error, H2OKV_E_NOMEM, "attention", "out of memory");
    }
    int status = H2OKV_OK;
    if (h2okv__k_and_v_differ(h->model)) {
        h->not_fused = "a head's K and V have different sizes";
    } else {
        status = make_and_probe(h, params, true, error);
    }
    if (status == H2OKV_OK && h->not_fused != NULL) {
        status = h2okv_error_set(error, H2OKV_E_UNSUPPORTED, "attention", "fused attention is not possible here: %s",
                                 h->not_fused);
    }
    return status != H2OKV_OK ? status : h2okv__make_fused(h, isa, error);
}

/* Fused where it can be; else, when that is left to us, observe. */
static int attach(h2okv_llama *h, struct llama_context_params params, const h2okv_llama_options *o,
                  h2okv_options *cache, h2okv_error *error)
{
    int status = H2OKV_E_UNSUPPORTED;
    if (o->attention != H2OKV_ATTENTION_OBSERVE) {
        status = attach_fused(h, params, o->isa, error);
    }
    if (status == H2OKV_E_UNSUPPORTED && o->attention != H2OKV_ATTENTION_FUSED && !h->refused) {
        unmake(h);
        status = make_and_probe(h, params, false, error);
    }
    status = status != H2OKV_OK ? status : make_host_copies(h, error);
    return status != H2OKV_OK ? status : make_books(h, cache, error);
}

int h2okv_llama_create(h2okv_llama **out, struct llama_model *model, struct llama_context_params params,
                       const h2okv_llama_options *options, h2okv_error *error)
{
    *out = NULL;
    h2okv_llama_options o;
    h2okv_options cache;
    int status = h2okv__llama_options_read(&o, &cache, options, error);
    status = status != H2OKV_OK ? status : h2okv_llama_check_model(model, error);
    if (status != H2OKV_OK) {
        return status;
    }
    status = h2okv__check_window(model, cache.budget, error);
    if (status != H2OKV_OK) {
        return status;
    }
    h2okv_llama *h = allocate(model, &params, &o, &cache);
    if (h == NULL) {
        return h2okv_error_set(error, H2OKV_E_NOMEM, "ubatch", "out of memory");
    }
    status = attach(h, params, &o, &cache, error);
    if (status != H2OKV_OK) {
        h2okv_llama_free(h);
        return status;
    }
    for (uint32_t i = 0; i < h->n_sequences; i++) {
        (void)h2okv_llama_seq_clear(h, i);
    }
    *out = h;
    return H2OKV_OK;
}

void h2okv_llama_free(h2okv_llama *h)
{
    if (h == NULL) {
        return;
    }
    h2okv__free_fused(h);
    for (uint32_t i = 0; i < h->n_sequences; i++) {
        h2okv_cache_free(h->sequence[i].cache);
        free(h->sequence[i].logits);
        free(h->sequence[i].fresh_pos);
        free(h->sequence[i].fresh_cell);
    }
    if (h->batch.token != NULL) {
        llama_batch_free(h->batch);
    }
    if (h->context != NULL) {
        llama_free(h->context);
    }
    free(h->row_copy);
    free(h->weights_copy);
    free(h->round);
    free(h->sequence);
    free(h->place);
    free(h->layer);
    free(h);
}
