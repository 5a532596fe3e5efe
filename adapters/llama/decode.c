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

static void add_to_batch(h2okv_llama *h, const h2okv__sequence *s, llama_token token, bool logits)
{
    int32_t i = h->batch.n_tokens++;
    h->batch.token[i] = token;
    h->batch.pos[i] = s->next_pos + i;
    h->batch.n_seq_id[i] = 1;
    h->batch.seq_id[i][0] = (llama_seq_id)s->id;
    h->batch.logits[i] = logits;
}

/* The text, and behind it the probe, if any. */
static void fill_batch(h2okv_llama *h, const h2okv__pass *pass)
{
    h->batch.n_tokens = 0;
    for (uint32_t i = 0; i < pass->n; i++) {
        add_to_batch(h, pass->sequence, pass->text[i], pass->on_logits != NULL || (pass->last && i + 1 == pass->n));
    }
    for (uint32_t i = 0; i < pass->n_probe; i++) {
        add_to_batch(h, pass->sequence, pass->probe[i], false);
    }
}

/* The pass did not come off: books and llama.cpp become as they were before it. */
static int abandon_pass(h2okv_llama *h, h2okv__sequence *s, int status)
{
    if (h->broken) {
        return status;
    }
    h2okv_error first = h->error;
    int undone = h2okv__abandon(h, s);
    if (undone == H2OKV_OK) {
        h->error = first;
    }
    return undone == H2OKV_OK ? status : undone;
}

static int observe_timed(h2okv_llama *h, h2okv__sequence *s)
{
    int64_t start = llama_time_us();
    int status = h2okv__observe_fused(h, s);
    h->pass_bookkeeping_us += (uint64_t)(llama_time_us() - start);
    return status;
}

/* llama_decode, and for how long. The tap keeps books meanwhile, for a time that is not llama.cpp's. */
static int decode_timed(h2okv_llama *h, h2okv__sequence *s)
{
    int64_t start = llama_time_us();
    h->tap_mode = H2OKV__TAP_PASS;
    int result = llama_decode(h->context, h->batch);
    llama_synchronize(h->context);
    h->tap_mode = H2OKV__TAP_OFF;
    s->engine_us += (uint64_t)(llama_time_us() - start) - h->pass_bookkeeping_us;
    return result;
}

static int run_pass(h2okv_llama *h, const h2okv__pass *pass)
{
    h2okv__sequence *s = pass->sequence;
    h->pass_sequence = s;
    h->pass_tokens = pass->n + pass->n_probe;
    h->pass_probe = pass->n_probe;
    h->pass_status = H2OKV_OK;
    h->pass_bookkeeping_us = 0;
    h->layers_attended = 0;
    s->admitted = false;
    if (h->fused) {
        h2okv__weigh_queries(h);
    }
    int result = decode_timed(h, s);
    if (h->pass_status != H2OKV_OK) {
        return h->pass_status;
    }
    if (result != 0) {
        return h2okv__llama_fail(h, H2OKV_E_ENGINE, "decode",
                                 "llama.cpp failed to decode %u tokens at position %d (%d)", h->pass_tokens,
                                 s->next_pos, result);
    }
    if (!s->admitted) {
        return h2okv__llama_fail(h, H2OKV_E_ENGINE, "decode", "llama.cpp did not show where it put the tokens");
    }
    return h->fused ? observe_timed(h, s) : H2OKV_OK;
}

/* The probe goes first: then the books are over the budget by the text alone. That is committed, so that a policy whose
 * rank fails afterwards gets the text cut off again, and leaves scores that are the probe's. */
static int drop_probe_and_evict(h2okv_llama *h, const h2okv__pass *pass)
{
    h2okv__sequence *s = pass->sequence;
    int status = h2okv__cut(h, s, s->next_pos, NULL);
    if (status != H2OKV_OK) {
        return status;
    }
    status = h2okv__evict(h, s);
    if (status != H2OKV_OK && !h->broken) {
        (void)h2okv__cut(h, s, s->next_pos - (int32_t)pass->n, NULL);
    }
    return status;
}

static int evict_timed(h2okv_llama *h, const h2okv__pass *pass)
{
    int64_t start = llama_time_us();
    int status = pass->n_probe > 0 ? drop_probe_and_evict(h, pass) : h2okv__evict(h, pass->sequence);
    h->pass_bookkeeping_us += (uint64_t)(llama_time_us() - start);
    return status;
}

int h2okv__decode_pass(h2okv_llama *h, const h2okv__pass *pass)
{
    h2okv__sequence *s = pass->sequence;
    fill_batch(h, pass);
    int status = run_pass(h, pass);
    if (status == H2OKV_OK) {
        s->next_pos += (int32_t)pass->n;
        status = evict_timed(h, pass);
        s->next_pos -= status != H2OKV_OK ? (int32_t)pass->n : 0;
    }
    s->bookkeeping_us += h->pass_bookkeeping_us;
    if (status != H2OKV_OK) {
        return abandon_pass(h, s, status);
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

int h2okv__check_handle(h2okv_llama *h, const h2okv__sequence *s)
{
    if (h->broken) {
        return h2okv__llama_fail(h, H2OKV_E_BROKEN, "handle", "an earlier call failed for good: free this handle");
    }
    return h2okv__check_engine(h, s);
}

int h2okv__check_tokens(h2okv_llama *h, const h2okv__sequence *s, const char *field, const llama_token *tokens,
                        uint32_t n)
{
    int status = h2okv__check_handle(h, s);
    if (status != H2OKV_OK) {
        return status;
    }
    if (n == 0 || n > (uint32_t)(INT32_MAX - 1 - s->next_pos)) {
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
    h2okv__sequence *s = &h->sequence[0];
    int status = h2okv__check_tokens(h, s, "tokens", tokens, n);
    for (uint32_t done = 0; done < n && status == H2OKV_OK;) {
        h2okv__pass pass = {
            .sequence = s, .text = tokens + done, .on_logits = on_logits, .user = user, .index = done,
        };
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
    h2okv__sequence *s = &h->sequence[0];
    int status = h2okv__check_handle(h, s);
    if (status != H2OKV_OK) {
        return status;
    }
    if (pos0 < 0 || pos0 > s->next_pos) {
        return h2okv__llama_fail(h, H2OKV_E_INVALID, "pos0", "pos0 is %d: it must be from 0 to the next position, %d",
                                 pos0, s->next_pos);
    }
    status = h2okv__cut(h, s, pos0, n_lost);
    s->next_pos = status == H2OKV_OK ? pos0 : s->next_pos;
    return status;
}

void h2okv_llama_clear(h2okv_llama *h)
{
    h2okv__sequence *s = &h->sequence[0];
    llama_memory_clear(llama_get_memory(h->context), true);
    h2okv_cache_clear(s->cache);
    s->next_pos = 0;
    s->engine_us = s->bookkeeping_us = 0;
}

struct llama_context *h2okv_llama_context(h2okv_llama *h)
{
    return h->context;
}

int32_t h2okv_llama_next_pos(const h2okv_llama *h)
{
    return h->sequence[0].next_pos;
}

const h2okv_cache *h2okv_llama_cache(const h2okv_llama *h)
{
    return h->sequence[0].cache;
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
    const h2okv__sequence *s = &h->sequence[0];
    *out = (h2okv_llama_stats){
        .budget = h2okv__options(s).budget,
        .ubatch = h->ubatch,
        .cells = h->cells,
        .layers = h->n_layers,
        .lanes = h->lanes,
        .isa = h->fused ? h2okv_kernels_isa(h->kernels) : NULL,
        .not_fused = h->fused ? NULL : h->not_fused,
        .engine_us = s->engine_us,
        .bookkeeping_us = s->bookkeeping_us,
    };
    h2okv_cache_get_stats(s->cache, &out->cache);
    for (uint32_t i = 0; i < h->n_layers; i++) {
        out->kv_bytes += ggml_nbytes(h->layer[i].k) + ggml_nbytes(h->layer[i].v);
    }
    out->kv_bytes_per_token = out->kv_bytes / h->cells;
}
