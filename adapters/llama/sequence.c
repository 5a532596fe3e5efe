/* sequence.c - what a caller asks of one sequence between decodes: cut, clear, budget, pins; and what it can tell.
 * The functions that name no sequence mean sequence 0. */
#include "adapter.h"

/* ---- Cut and clear ---- */

int h2okv_llama_seq_trim(h2okv_llama *h, uint32_t seq, int32_t pos0, uint32_t *n_lost)
{
    h2okv__sequence *s;
    int status = h2okv__find_sequence(h, seq, &s);
    status = status != H2OKV_OK ? status : h2okv__check_handle(h, s);
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

int h2okv_llama_trim(h2okv_llama *h, int32_t pos0, uint32_t *n_lost)
{
    return h2okv_llama_seq_trim(h, 0, pos0, n_lost);
}

int h2okv_llama_seq_clear(h2okv_llama *h, uint32_t seq)
{
    h2okv__sequence *s;
    int status = h2okv__find_sequence(h, seq, &s);
    if (status != H2OKV_OK) {
        return status;
    }
    h2okv__forget(h, s);
    h2okv_cache_clear(s->cache);
    s->next_pos = 0;
    s->engine_us = s->bookkeeping_us = 0;
    return H2OKV_OK;
}

void h2okv_llama_clear(h2okv_llama *h)
{
    (void)h2okv_llama_seq_clear(h, 0);
}

/* ---- Budget and pins ---- */

int h2okv__set_budget(h2okv_llama *h, h2okv__sequence *s, uint32_t budget, uint32_t recent)
{
    h2okv_error error;
    int status = h2okv_cache_set_budget(s->cache, budget, recent, &error);
    return status == H2OKV_OK ? status : h2okv__llama_fail(h, status, error.field, "%s", error.text);
}

int h2okv_llama_seq_set_budget(h2okv_llama *h, uint32_t seq, uint32_t budget, uint32_t recent)
{
    h2okv__sequence *s;
    int status = h2okv__find_sequence(h, seq, &s);
    status = status != H2OKV_OK ? status : h2okv__check_handle(h, s);
    if (status == H2OKV_OK && budget > h->room) {
        return h2okv__llama_fail(h, H2OKV_E_INVALID, "budget",
                                 "budget is %u: there is room for %u, or give options.room more", budget, h->room);
    }
    status = status != H2OKV_OK ? status : h2okv__check_window(h->model, budget, &h->error);
    if (status != H2OKV_OK) {
        return status;
    }
    h2okv_options before = h2okv__options(s);
    status = h2okv__set_budget(h, s, budget, recent);
    if (status != H2OKV_OK) {
        return status;
    }
    status = h2okv__options(s).recent > 0
                 ? h2okv__evict(h, s)
                 : h2okv__llama_fail(h, H2OKV_E_INVALID, "recent",
                                     "recent is 0: llama.cpp needs the newest token, so keep at least one");
    if (status != H2OKV_OK) {
        (void)h2okv_cache_set_budget(s->cache, before.budget, before.recent, NULL);
    }
    return status;
}

int h2okv_llama_set_budget(h2okv_llama *h, uint32_t budget, uint32_t recent)
{
    return h2okv_llama_seq_set_budget(h, 0, budget, recent);
}

int h2okv_llama_seq_pin(h2okv_llama *h, uint32_t seq, int32_t first, int32_t end)
{
    h2okv__sequence *s;
    int status = h2okv__find_sequence(h, seq, &s);
    status = status != H2OKV_OK ? status : h2okv__check_handle(h, s);
    h2okv_error error;
    if (status == H2OKV_OK && h2okv_cache_pin(s->cache, first, end, &error) != H2OKV_OK) {
        return h2okv__llama_fail(h, error.status, error.field, "%s", error.text);
    }
    return status;
}

int h2okv_llama_pin(h2okv_llama *h, int32_t first, int32_t end)
{
    return h2okv_llama_seq_pin(h, 0, first, end);
}

/* ---- To read ---- */

int32_t h2okv_llama_seq_next_pos(const h2okv_llama *h, uint32_t seq)
{
    return seq < h->n_sequences ? h->sequence[seq].next_pos : -1;
}

int32_t h2okv_llama_next_pos(const h2okv_llama *h)
{
    return h->sequence[0].next_pos;
}

const h2okv_cache *h2okv_llama_seq_cache(const h2okv_llama *h, uint32_t seq)
{
    return seq < h->n_sequences ? h->sequence[seq].cache : NULL;
}

const h2okv_cache *h2okv_llama_cache(const h2okv_llama *h)
{
    return h->sequence[0].cache;
}

struct llama_context *h2okv_llama_context(h2okv_llama *h)
{
    return h->context;
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

int h2okv_llama_seq_get_stats(const h2okv_llama *h, uint32_t seq, h2okv_llama_stats *out)
{
    if (seq >= h->n_sequences) {
        return H2OKV_E_INVALID;
    }
    const h2okv__sequence *s = &h->sequence[seq];
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
    out->kv_bytes_per_token = out->kv_bytes / h->cells / h->n_sequences;
    out->kv_bytes_window = h->window_bytes;
    out->kv_bytes += h->window_bytes;
    return H2OKV_OK;
}

void h2okv_llama_get_stats(const h2okv_llama *h, h2okv_llama_stats *out)
{
    (void)h2okv_llama_seq_get_stats(h, 0, out);
}
