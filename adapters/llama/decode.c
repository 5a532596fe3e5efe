/* decode.c - tokens in, passes of at most ubatch tokens, eviction after each; and what a handle can tell. */
#include "adapter.h"

#include <stdarg.h>
#include <stdio.h>

int h2okv__llama_fail(h2okv_llama *h, int status, const char *field, const char *format, ...)
{
    char text[sizeof h->error.text];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    return h2okv_error_set(&h->error, status, field, "%s", text);
}

static void add_to_batch(h2okv_llama *h, llama_token token, bool logits)
{
    int32_t i = h->batch.n_tokens++;
    h->batch.token[i] = token;
    h->batch.pos[i] = h->next_pos + i;
    h->batch.n_seq_id[i] = 1;
    h->batch.seq_id[i][0] = 0;
    h->batch.logits[i] = logits;
}

/* The text, and behind it the probe, if any. */
static void fill_batch(h2okv_llama *h, const h2okv__pass *pass)
{
    h->batch.n_tokens = 0;
    for (uint32_t i = 0; i < pass->n; i++) {
        add_to_batch(h, pass->text[i], pass->on_logits != NULL || (pass->last && i + 1 == pass->n));
    }
    for (uint32_t i = 0; i < pass->n_probe; i++) {
        add_to_batch(h, pass->probe[i], false);
    }
}

/* The pass did not come off: books and llama.cpp become as they were before it. */
static int abandon_pass(h2okv_llama *h, int status)
{
    if (h->broken) {
        return status;
    }
    h2okv_error first = h->error;
    int undone = h2okv__abandon(h);
    if (undone == H2OKV_OK) {
        h->error = first;
    }
    return undone == H2OKV_OK ? status : undone;
}

static int observe_timed(h2okv_llama *h)
{
    int64_t start = llama_time_us();
    int status = h2okv__observe_fused(h);
    h->bookkeeping_us += (uint64_t)(llama_time_us() - start);
    return status;
}

static int run_pass(h2okv_llama *h, const h2okv__pass *pass)
{
    uint32_t n = pass->n + pass->n_probe;
    uint64_t before = h->bookkeeping_us;
    int64_t start = llama_time_us();
    h->pass_tokens = n;
    h->pass_probe = pass->n_probe;
    h->pass_admitted = false;
    h->pass_status = H2OKV_OK;
    h->layers_attended = 0;
    h->tap_mode = H2OKV__TAP_PASS;
    int result = llama_decode(h->context, h->batch);
    llama_synchronize(h->context);
    h->tap_mode = H2OKV__TAP_OFF;
    h->engine_us += (uint64_t)(llama_time_us() - start) - (h->bookkeeping_us - before);
    if (h->pass_status != H2OKV_OK) {
        return h->pass_status;
    }
    if (result != 0) {
        return h2okv__llama_fail(h, H2OKV_E_ENGINE, "decode",
                                 "llama.cpp failed to decode %u tokens at position %d (%d)", n, h->next_pos, result);
    }
    if (!h->pass_admitted) {
        return h2okv__llama_fail(h, H2OKV_E_ENGINE, "decode", "llama.cpp did not show where it put the tokens");
    }
    return h->fused ? observe_timed(h) : H2OKV_OK;
}

/* The probe goes first: then the books are over the budget by the text alone. That is committed, so that a policy whose
 * rank fails afterwards gets the text cut off again, and leaves scores that are the probe's. */
static int drop_probe_and_evict(h2okv_llama *h, const h2okv__pass *pass)
{
    int status = h2okv__cut(h, h->next_pos, NULL);
    if (status != H2OKV_OK) {
        return status;
    }
    status = h2okv__evict(h);
    if (status != H2OKV_OK && !h->broken) {
        (void)h2okv__cut(h, h->next_pos - (int32_t)pass->n, NULL);
    }
    return status;
}

static int evict_timed(h2okv_llama *h, const h2okv__pass *pass)
{
    int64_t start = llama_time_us();
    int status = pass->n_probe > 0 ? drop_probe_and_evict(h, pass) : h2okv__evict(h);
    h->bookkeeping_us += (uint64_t)(llama_time_us() - start);
    return status;
}

int h2okv__decode_pass(h2okv_llama *h, const h2okv__pass *pass)
{
    fill_batch(h, pass);
    int status = run_pass(h, pass);
    if (status != H2OKV_OK) {
        return abandon_pass(h, status);
    }
    h->next_pos += (int32_t)pass->n;
    status = evict_timed(h, pass);
    if (status != H2OKV_OK) {
        h->next_pos -= (int32_t)pass->n;
        return abandon_pass(h, status);
    }
    for (uint32_t i = 0; pass->on_logits != NULL && i < pass->n; i++) {
        pass->on_logits(pass->user, pass->index + i, llama_get_logits_ith(h->context, (int32_t)i));
    }
    return H2OKV_OK;
}

int h2okv__report_progress(h2okv_llama *h, uint32_t done, uint32_t total)
{
    if (h->on_pass == NULL || h->on_pass(h->on_pass_user, done, total)) {
        return H2OKV_OK;
    }
    return h2okv__llama_fail(h, H2OKV_E_STOPPED, "progress", "stopped after %u of %u tokens", done, total);
}

int h2okv__check_handle(h2okv_llama *h)
{
    if (h->broken) {
        return h2okv__llama_fail(h, H2OKV_E_BROKEN, "handle", "an earlier call failed for good: free this handle");
    }
    return h2okv__check_engine(h);
}

int h2okv__check_tokens(h2okv_llama *h, const char *field, const llama_token *tokens, uint32_t n)
{
    int status = h2okv__check_handle(h);
    if (status != H2OKV_OK) {
        return status;
    }
    if (n == 0 || n > (uint32_t)(INT32_MAX - 1 - h->next_pos)) {
        return h2okv__llama_fail(h, H2OKV_E_INVALID, "n",
                                 "n is %u: give at least one token, and end before position %d", n, INT32_MAX);
    }
    int32_t n_vocab = llama_vocab_n_tokens(llama_model_get_vocab(h->model));
    for (uint32_t i = 0; i < n; i++) {
        if (tokens[i] < 0 || tokens[i] >= n_vocab) {
            return h2okv__llama_fail(h, H2OKV_E_INVALID, field, "%s: token %u is %d: the vocabulary has 0 to %d",
                                     field, i, tokens[i], n_vocab - 1);
        }
    }
    return H2OKV_OK;
}

static int decode(h2okv_llama *h, const llama_token *tokens, uint32_t n, h2okv_llama_on_logits on_logits, void *user)
{
    int status = h2okv__check_tokens(h, "tokens", tokens, n);
    for (uint32_t done = 0; done < n && status == H2OKV_OK;) {
        h2okv__pass pass = {.text = tokens + done, .on_logits = on_logits, .user = user, .index = done};
        pass.n = n - done < h->ubatch ? n - done : h->ubatch;
        done += pass.n;
        pass.last = done == n;
        status = h2okv__decode_pass(h, &pass);
        status = status != H2OKV_OK ? status : h2okv__report_progress(h, done, n);
    }
    return status;
}

int h2okv_llama_decode(h2okv_llama *h, const llama_token *tokens, uint32_t n)
{
    return decode(h, tokens, n, NULL, NULL);
}

int h2okv_llama_decode_each(h2okv_llama *h, const llama_token *tokens, uint32_t n, h2okv_llama_on_logits on_logits,
                            void *user)
{
    return decode(h, tokens, n, on_logits, user);
}

void h2okv_llama_set_progress(h2okv_llama *h, h2okv_llama_on_pass on_pass, void *user)
{
    h->on_pass = on_pass;
    h->on_pass_user = user;
}

int h2okv_llama_trim(h2okv_llama *h, int32_t pos0, uint32_t *n_lost)
{
    int status = h2okv__check_handle(h);
    if (status != H2OKV_OK) {
        return status;
    }
    if (pos0 < 0 || pos0 > h->next_pos) {
        return h2okv__llama_fail(h, H2OKV_E_INVALID, "pos0", "pos0 is %d: it must be from 0 to the next position, %d",
                                 pos0, h->next_pos);
    }
    status = h2okv__cut(h, pos0, n_lost);
    h->next_pos = status == H2OKV_OK ? pos0 : h->next_pos;
    return status;
}

void h2okv_llama_clear(h2okv_llama *h)
{
    llama_memory_clear(llama_get_memory(h->context), true);
    h2okv_cache_clear(h->cache);
    h->next_pos = 0;
    h->engine_us = h->bookkeeping_us = 0;
}

struct llama_context *h2okv_llama_context(h2okv_llama *h)
{
    return h->context;
}

int32_t h2okv_llama_next_pos(const h2okv_llama *h)
{
    return h->next_pos;
}

const h2okv_cache *h2okv_llama_cache(const h2okv_llama *h)
{
    return h->cache;
}

const h2okv_error *h2okv_llama_last_error(const h2okv_llama *h)
{
    return &h->error;
}

uint32_t h2okv_llama_lane(const h2okv_llama *h, uint32_t layer, uint32_t head)
{
    switch (h->lanes_mode) {
    case H2OKV_LANES_HEAD:
        return layer * h->layer[0].kv_heads + head;
    case H2OKV_LANES_LAYER:
        return layer;
    default:
        return 0;
    }
}

void h2okv_llama_get_stats(const h2okv_llama *h, h2okv_llama_stats *out)
{
    *out = (h2okv_llama_stats){
        .budget = h2okv__options(h).budget,
        .ubatch = h->ubatch,
        .cells = h->cells,
        .layers = h->n_layers,
        .lanes = h->lanes,
        .isa = h->fused ? h2okv_kernels_isa(h->kernels) : NULL,
        .not_fused = h->fused ? NULL : h->not_fused,
        .engine_us = h->engine_us,
        .bookkeeping_us = h->bookkeeping_us,
    };
    h2okv_cache_get_stats(h->cache, &out->cache);
    for (uint32_t i = 0; i < h->n_layers; i++) {
        out->kv_bytes += ggml_nbytes(h->layer[i].k) + ggml_nbytes(h->layer[i].v);
    }
    out->kv_bytes_per_token = out->kv_bytes / h->cells;
}
