/*
 * cells.c - a plan becomes true in llama.cpp's tensors: rows are copied between cells, then the cells that no lane
 * needs any more are freed by their (llama.cpp's own) positions.
 *
 *   lane (layer 3, head 1), move 17 -> 250:   k: | .. | 17: [h0][H1][h2] | .. | 250: [h0][..][h2] | ..
 *                                                               \___________________/
 */
#include "adapter.h"

#include <string.h>

h2okv__lane_span h2okv__span_of_lane(const h2okv_llama *h, uint32_t lane)
{
    uint32_t heads = h->layer[0].kv_heads; /* the same in every layer when lanes are heads */
    switch (h->lanes_mode) {
    case H2OKV_LANES_HEAD:
        return (h2okv__lane_span){lane / heads, lane / heads + 1, lane % heads, lane % heads + 1};
    case H2OKV_LANES_LAYER:
        return (h2okv__lane_span){lane, lane + 1, 0, h->layer[lane].kv_heads};
    default:
        return (h2okv__lane_span){0, h->n_layers, 0, UINT32_MAX};
    }
}

static bool in_host_memory(const struct ggml_tensor *tensor)
{
    return ggml_backend_buffer_is_host(tensor->buffer);
}

/* Some bytes within a tensor, copied to another place in it. */
static void copy_within(const h2okv_llama *h, struct ggml_tensor *tensor, size_t from, size_t to, size_t bytes)
{
    if (in_host_memory(tensor)) {
        memcpy((char *)tensor->data + to, (const char *)tensor->data + from, bytes);
    } else {
        ggml_backend_tensor_get(tensor, h->row_copy, from, bytes);
        ggml_backend_tensor_set(tensor, h->row_copy, to, bytes);
    }
}

/* Where a sequence's cells begin. */
static size_t stream_at(const struct ggml_tensor *tensor, const h2okv__sequence *s)
{
    return s->id * tensor->nb[2];
}

/* Each token's numbers of a head are contiguous: one copy a move. */
static void move_rows(const h2okv_llama *h, struct ggml_tensor *tensor, size_t stream, uint32_t head, uint32_t dim,
                      const h2okv_move *move, uint32_t n)
{
    size_t bytes = ggml_row_size(tensor->type, dim), at = stream + head * bytes;
    for (uint32_t i = 0; i < n; i++) {
        copy_within(h, tensor, move[i].from * tensor->nb[1] + at, move[i].to * tensor->nb[1] + at, bytes);
    }
}

/* Each number's cells are contiguous, so that row is touched once for all moves. */
static void move_in_row(char *row, size_t element, const h2okv_move *move, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        memcpy(row + move[i].to * element, row + move[i].from * element, element);
    }
}

static void move_transposed(const h2okv_llama *h, struct ggml_tensor *tensor, size_t stream, uint32_t head,
                            uint32_t dim, const h2okv_move *move, uint32_t n)
{
    size_t element = ggml_type_size(tensor->type), row_bytes = element * h->cells;
    for (uint32_t d = 0; d < dim; d++) {
        size_t offset = stream + ((size_t)head * dim + d) * row_bytes;
        if (in_host_memory(tensor)) {
            move_in_row((char *)tensor->data + offset, element, move, n);
        } else {
            ggml_backend_tensor_get(tensor, h->row_copy, offset, row_bytes);
            move_in_row(h->row_copy, element, move, n);
            ggml_backend_tensor_set(tensor, h->row_copy, offset, row_bytes);
        }
    }
}

static void move_lane(const h2okv_llama *h, const h2okv__sequence *s, uint32_t lane, const h2okv_move *move,
                      uint32_t n)
{
    h2okv__lane_span span = h2okv__span_of_lane(h, lane);
    for (uint32_t l = span.layer_first; l < span.layer_end; l++) {
        const h2okv__layer *layer = &h->layer[l];
        uint32_t end = span.head_end < layer->kv_heads ? span.head_end : layer->kv_heads;
        size_t k_at = stream_at(layer->k, s), v_at = stream_at(layer->v, s);
        for (uint32_t head = span.head_first; head < end; head++) {
            move_rows(h, layer->k, k_at, head, layer->k_dim, move, n);
            if (layer->v_transposed) {
                move_transposed(h, layer->v, v_at, head, layer->v_dim, move, n);
            } else {
                move_rows(h, layer->v, v_at, head, layer->v_dim, move, n);
            }
        }
    }
}

static void apply_moves(const h2okv_llama *h, const h2okv__sequence *s, const h2okv_plan *plan)
{
    for (uint32_t i = 0, n; i < plan->n_moves; i += n) {
        uint32_t lane = plan->moves[i].lane;
        for (n = 1; i + n < plan->n_moves && plan->moves[i + n].lane == lane; n++) {
        }
        move_lane(h, s, lane, plan->moves + i, n);
    }
}

/* The books and llama.cpp's own must name the same stretch of positions. */
/* The oldest position that a token at `pos` sees in a sliding window. */
static int32_t first_in_window(const h2okv_llama *h, int32_t pos)
{
    int32_t first = pos - (int32_t)h->window + 1;
    return first > 0 ? first : 0;
}

/* With sliding windows llama.cpp tells of their cache, where it takes the cells of what no token sees any more. */
static bool engine_agrees(const h2okv_llama *h, const h2okv__sequence *s, int32_t oldest, int32_t newest)
{
    llama_memory_t memory = llama_get_memory(h->context);
    llama_seq_id id = (llama_seq_id)s->id;
    int32_t first = llama_memory_seq_pos_min(memory, id), needed = first_in_window(h, newest + 1);
    bool whole = h->window == 0 || newest < 0 ? first == oldest
                                              : first >= oldest && first <= (needed > oldest ? needed : oldest);
    return whole && llama_memory_seq_pos_max(memory, id) == newest;
}

static int broken(h2okv_llama *h, const char *what)
{
    h->broken = true;
    return h2okv__llama_fail(h, H2OKV_E_BROKEN, "memory", "%s: was the context used past this handle?", what);
}

int h2okv__check_engine(h2okv_llama *h, const h2okv__sequence *s)
{
    uint32_t live = h2okv_cache_live(s->cache);
    bool agrees = engine_agrees(h, s, live > 0 ? s->next_pos - (int32_t)live : -1, live > 0 ? s->next_pos - 1 : -1);
    return agrees ? H2OKV_OK : broken(h, "llama.cpp's cells are not those of the cache");
}

/* Apply and commit. Freed positions are one unbroken stretch at the old or at the new end. */
static int apply(h2okv_llama *h, h2okv__sequence *s, const h2okv_plan *plan, int32_t newest_after)
{
    uint32_t n = plan->n_freed, left = h2okv_cache_live(s->cache) - n;
    llama_memory_t memory = llama_get_memory(h->context);
    if (n > 0) {
        apply_moves(h, s, plan);
        if (!llama_memory_seq_rm(memory, (llama_seq_id)s->id, plan->freed_pos[0], plan->freed_pos[n - 1] + 1)) {
            return broken(h, "llama.cpp would not free cells");
        }
    }
    int32_t oldest = left > 0 ? newest_after + 1 - (int32_t)left : -1;
    if (!engine_agrees(h, s, oldest, left > 0 ? newest_after : -1)) {
        return broken(h, "llama.cpp's cells are not those of the cache");
    }
    return h2okv_cache_commit(s->cache, plan) == H2OKV_OK ? H2OKV_OK : broken(h, "the plan went stale");
}

int h2okv__plan_eviction(h2okv_llama *h, h2okv__sequence *s)
{
    int status = h2okv_cache_plan(s->cache, &s->plan);
    if (status == H2OKV_OK) {
        return status;
    }
    return h2okv__sequence_fail(h, s, status == H2OKV_E_ORDER ? H2OKV_E_ENGINE : status, "plan", "%s",
                                status == H2OKV_E_ORDER ? "llama.cpp did not compute every layer's weights"
                                                        : h2okv_strerror(status));
}

int h2okv__apply_eviction(h2okv_llama *h, h2okv__sequence *s)
{
    return apply(h, s, s->plan, s->next_pos - 1);
}

int h2okv__evict(h2okv_llama *h, h2okv__sequence *s)
{
    int status = h2okv__plan_eviction(h, s);
    return status != H2OKV_OK ? status : h2okv__apply_eviction(h, s);
}

/* Numbers too: a NaN left in a cell would spoil sums even where it is masked. */
void h2okv__forget(h2okv_llama *h, h2okv__sequence *s)
{
    llama_memory_t memory = llama_get_memory(h->context);
    if (h->n_sequences == 1) {
        llama_memory_clear(memory, true);
        return;
    }
    llama_memory_seq_rm(memory, (llama_seq_id)s->id, -1, -1);
    for (uint32_t i = 0; i < h->n_layers; i++) {
        struct ggml_tensor *k = h->layer[i].k, *v = h->layer[i].v;
        ggml_backend_tensor_memset(k, 0, stream_at(k, s), k->nb[2]);
        ggml_backend_tensor_memset(v, 0, stream_at(v, s), v->nb[2]);
    }
}

/* A cell's K and V of all heads become 0. A NaN left there would spoil sums even where it is masked: 0 * NaN. */
static void wipe_in_layer(const h2okv_llama *h, const h2okv__sequence *s, const h2okv__layer *layer, uint32_t cell)
{
    size_t k_at = stream_at(layer->k, s), v_at = stream_at(layer->v, s);
    ggml_backend_tensor_memset(layer->k, 0, k_at + cell * layer->k->nb[1], layer->k->nb[1]);
    if (!layer->v_transposed) {
        ggml_backend_tensor_memset(layer->v, 0, v_at + cell * layer->v->nb[1], layer->v->nb[1]);
        return;
    }
    size_t element = ggml_type_size(layer->v->type);
    for (size_t row = 0; row < (size_t)layer->kv_heads * layer->v_dim; row++) {
        ggml_backend_tensor_memset(layer->v, 0, v_at + (row * h->cells + cell) * element, element);
    }
}

void h2okv__wipe_cell(const h2okv_llama *h, const h2okv__sequence *s, uint32_t cell)
{
    for (uint32_t l = 0; l < h->n_layers; l++) {
        wipe_in_layer(h, s, &h->layer[l], cell);
    }
}

int h2okv__abandon(h2okv_llama *h, h2okv__sequence *s)
{
    llama_memory_seq_rm(llama_get_memory(h->context), (llama_seq_id)s->id, s->next_pos, -1);
    bool admitted = h2okv_cache_abandon(s->cache) == H2OKV_OK;
    for (uint32_t i = 0; admitted && i < h->pass_tokens; i++) {
        h2okv__wipe_cell(h, s, s->fresh_cell[i]);
    }
    return h2okv__check_engine(h, s);
}

/* How many tokens before pos0 sliding windows would miss: what the tokens from there on did not see is gone. */
static uint32_t missing_from_window(const h2okv_llama *h, const h2okv__sequence *s, int32_t pos0)
{
    if (h->window == 0 || pos0 >= s->next_pos || h2okv_cache_live(s->cache) == 0) {
        return 0;
    }
    int32_t first = llama_memory_seq_pos_min(llama_get_memory(h->context), (llama_seq_id)s->id);
    int32_t needed = first_in_window(h, pos0);
    return first > needed ? (uint32_t)((first < pos0 ? first : pos0) - needed) : 0;
}

int h2okv__cut(h2okv_llama *h, h2okv__sequence *s, int32_t pos0, uint32_t *n_lost)
{
    const h2okv_plan *plan;
    int status = h2okv_cache_trim(s->cache, pos0, &plan);
    if (status != H2OKV_OK) {
        return h2okv__llama_fail(h, status, "pos0", "cannot cut at position %d: %s", pos0, h2okv_strerror(status));
    }
    uint32_t missing = missing_from_window(h, s, pos0), lost = plan->n_lost > missing ? plan->n_lost : missing;
    if (lost > 0 && n_lost == NULL) {
        return h2okv__llama_fail(h, H2OKV_E_UNSUPPORTED, "pos0",
                                 "a cut at position %d reaches past the %u recent tokens and would lose up to %u "
                                 "before it: cut later, or accept the loss",
                                 pos0, h2okv__options(s).recent, lost);
    }
    if (n_lost != NULL) {
        *n_lost = lost;
    }
    return apply(h, s, plan, pos0 - 1);
}

void h2okv__read_kv(const h2okv_llama *h, uint32_t seq, uint32_t layer_index, uint32_t head, uint32_t cell, void *k,
                    void *v)
{
    const h2okv__layer *layer = &h->layer[layer_index];
    size_t k_at = stream_at(layer->k, &h->sequence[seq]), v_at = stream_at(layer->v, &h->sequence[seq]);
    if (k != NULL) {
        size_t bytes = ggml_row_size(layer->k->type, layer->k_dim);
        ggml_backend_tensor_get(layer->k, k, k_at + cell * layer->k->nb[1] + head * bytes, bytes);
    }
    if (v != NULL && !layer->v_transposed) {
        size_t bytes = ggml_row_size(layer->v->type, layer->v_dim);
        ggml_backend_tensor_get(layer->v, v, v_at + cell * layer->v->nb[1] + head * bytes, bytes);
    }
    size_t element = ggml_type_size(layer->v->type);
    for (uint32_t d = 0; v != NULL && layer->v_transposed && d < layer->v_dim; d++) {
        size_t row = (size_t)head * layer->v_dim + d;
        ggml_backend_tensor_get(layer->v, (char *)v + d * element, v_at + (row * h->cells + cell) * element, element);
    }
}
