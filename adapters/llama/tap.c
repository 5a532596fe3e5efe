/*
 * tap.c - what the adapter sees of llama.cpp's graph, node by node, through cb_eval.
 *
 *   SET_ROWS into cache_k_l<i>   src[1] names the cells that the pass's tokens take (the cell map is observed,
 *                                never computed again) -> admit, once a pass
 *   SET_ROWS into cache_v_l<i>   where V lies, and whether it is transposed
 *   kq_soft_max-<i>              [cells, tokens, query heads, sequences], after it is computed -> observe
 *   FLASH_ATTN_EXT               in fused mode becomes a call of our kernels, see fused.c
 *
 * A node is told of twice: asked about before it is computed, and told after it when the answer was true. The
 * answer true costs a graph split, so it is given for softmax nodes only.
 */
#include "adapter.h"

#include <stdio.h>
#include <string.h>

int h2okv__layer_of_name(const char *name, const char *prefix)
{
    size_t length = strlen(prefix);
    int layer = -1, used = 0;
    if (strncmp(name, prefix, length) != 0 || sscanf(name + length, "%d%n", &layer, &used) != 1 ||
        name[length + (size_t)used] != '\0') {
        return -1;
    }
    return layer;
}

static int softmax_layer(const struct ggml_tensor *node)
{
    return h2okv__layer_of_name(node->name, "kq_soft_max-");
}

/* NULL: there is none, or it has no lanes. */
static h2okv__layer *layer_at(h2okv_llama *h, int index)
{
    bool there = index >= 0 && (uint32_t)index < h->n_all_layers && h->place[index] != UINT32_MAX;
    return there ? &h->layer[h->place[index]] : NULL;
}

static void note_failure(h2okv_llama *h, int status, const char *field, const char *text)
{
    if (h->pass_status == H2OKV_OK) {
        h->pass_status = h2okv__llama_fail(h, status, field, "%s", text);
    }
}

/* ---- Probe: learn where things are ---- */

/* The matrix product that a softmax goes back to, through scaling and soft-capping. */
static const struct ggml_tensor *product_behind(const struct ggml_tensor *node)
{
    while (node != NULL && node->op != GGML_OP_MUL_MAT) {
        node = node->src[0];
    }
    return node;
}

static void learn_heads(h2okv__layer *layer, const struct ggml_tensor *softmax)
{
    const struct ggml_tensor *product = product_behind(softmax->src[0]);
    if (product == NULL || layer->k == NULL || layer->v == NULL) {
        return;
    }
    const struct ggml_tensor *k_view = product->src[0]; /* [k_dim, cells, kv_heads] */
    float max_bias;
    memcpy(&max_bias, (const float *)softmax->op_params + 1, sizeof max_bias);
    layer->has_position_bias = max_bias != 0.0f;
    layer->kv_heads = (uint32_t)k_view->ne[2];
    layer->k_dim = (uint32_t)k_view->ne[0];
    layer->v_dim = (uint32_t)(layer->v->ne[0] / k_view->ne[2]);
    layer->query_heads = (uint32_t)softmax->ne[2];
    layer->seen_weights = true;
}

/* K or V of a sliding window. */
static void learn_window(h2okv_llama *h, const struct ggml_tensor *tensor, bool is_k)
{
    h->window_bytes += ggml_nbytes(tensor);
    if (is_k && h->window_buffer == NULL) {
        h->window_buffer = tensor->buffer;
    }
    h->window_scattered = h->window_scattered || (is_k && h->window_buffer != tensor->buffer);
}

static void learn_tensor(h2okv_llama *h, struct ggml_tensor *node)
{
    int k = h2okv__layer_of_name(node->view_src->name, "cache_k_l");
    int v = h2okv__layer_of_name(node->view_src->name, "cache_v_l");
    h2okv__layer *layer = layer_at(h, k);
    if (layer == NULL && layer_at(h, v) == NULL && (k >= 0 || v >= 0)) {
        learn_window(h, node->view_src, k >= 0);
        return;
    }
    if (layer != NULL) {
        layer->k = node->view_src;
        return;
    }
    layer = layer_at(h, v);
    if (layer != NULL) {
        layer->v = node->view_src;
        layer->v_transposed = node->ne[0] == 1; /* then every number is a row of its own */
    }
}

/* ---- Pass: admit and observe ---- */

/* The cells of one of the pass's sequences: its tokens are together, and its cells come after those of the sequences
 * with lower numbers. */
static void read_cells(const h2okv_llama *h, h2okv__sequence *s, uint32_t index, const struct ggml_tensor *cell_index)
{
    int64_t cell[64], first = (int64_t)s->id * h->cells;
    uint32_t n = h->pass_tokens;
    for (uint32_t done = 0; done < n;) {
        uint32_t some = n - done < 64 ? n - done : 64;
        size_t at = (size_t)index * n + done;
        ggml_backend_tensor_get(cell_index, cell, at * sizeof cell[0], some * sizeof cell[0]);
        for (uint32_t i = 0; i < some; i++) {
            s->fresh_cell[done + i] = (uint32_t)(cell[i] - first); /* one of another sequence: past every cell */
            s->fresh_pos[done + i] = s->next_pos + (int32_t)(done + i);
        }
        done += some;
    }
}

static void admit_sequence(h2okv_llama *h, h2okv__sequence *s)
{
    if (h2okv_cache_admit(s->cache, s->fresh_cell, s->fresh_pos, h->pass_tokens) != H2OKV_OK) {
        h->broken = true; /* it does not hold what the books say */
        note_failure(h, H2OKV_E_BROKEN, "cells", "llama.cpp put tokens into cells that are taken: was the context "
                     "used past this handle?");
        h->pass_admitted = false;
        return;
    }
    if (h->pass_probe > 0 && h2okv_cache_probe(s->cache, h->pass_probe, h->pass_spread) != H2OKV_OK) {
        note_failure(h, H2OKV_E_ENGINE, "guide", "the cache would not take the guide as a probe");
        return;
    }
    if (h->fused) {
        h2okv__list_live_cells(h, s);
    }
}

static void admit(h2okv_llama *h, const struct ggml_tensor *cell_index)
{
    h->pass_admitted = true;
    if (cell_index->type != GGML_TYPE_I64 ||
        ggml_nelements(cell_index) != (int64_t)h->pass_tokens * (int64_t)h->n_pass) {
        note_failure(h, H2OKV_E_ENGINE, "cells", "llama.cpp's cell indexes are not one 64-bit number a token");
        return;
    }
    for (uint32_t i = 0; i < h->n_pass && h->pass_admitted; i++) {
        read_cells(h, h->pass[i].sequence, i, cell_index);
        if (h->tap_mode == H2OKV__TAP_PASS) {
            admit_sequence(h, h->pass[i].sequence);
        }
    }
}

/* Softmax rows in host memory: where they are, or copied. */
static const float *host_weights(h2okv_llama *h, const struct ggml_tensor *softmax)
{
    if (ggml_backend_buffer_is_host(softmax->buffer)) {
        return softmax->data;
    }
    if (ggml_nbytes(softmax) > h->weights_copy_bytes) {
        return NULL;
    }
    ggml_backend_tensor_get(softmax, h->weights_copy, 0, ggml_nbytes(softmax));
    return h->weights_copy;
}

static bool rows_are_as_expected(const h2okv_llama *h, const h2okv__layer *layer, const struct ggml_tensor *softmax)
{
    return softmax->type == GGML_TYPE_F32 && softmax->nb[0] == sizeof(float) &&
           softmax->ne[0] <= (int64_t)h->cells && softmax->ne[1] == (int64_t)h->pass_tokens &&
           softmax->ne[2] == (int64_t)layer->query_heads && softmax->ne[3] == (int64_t)h->n_pass;
}

/* One sequence's rows of a layer. */
static int observe_rows(const h2okv_llama *h, h2okv__sequence *s, uint32_t index, const struct ggml_tensor *softmax,
                        const float *data)
{
    const h2okv__layer *layer = &h->layer[index];
    uint32_t lanes = h->lanes_mode == H2OKV_LANES_HEAD ? layer->kv_heads : 1;
    uint32_t heads = layer->query_heads / lanes; /* query heads that share a lane are neighbours */
    h2okv_weights w = {
        .heads = heads,
        .queries = (uint32_t)softmax->ne[1],
        .columns = (uint32_t)softmax->ne[0],
        .head_stride = softmax->nb[2] / sizeof(float),
        .query_stride = softmax->nb[1] / sizeof(float),
    };
    int status = H2OKV_OK;
    for (uint32_t i = 0; i < lanes && status == H2OKV_OK; i++) {
        w.data = data + (size_t)i * heads * w.head_stride;
        status = h2okv_cache_observe(s->cache, h2okv_llama_lane(h, index, i), &w);
    }
    return status;
}

static void note_weights(h2okv_llama *h, const h2okv__sequence *s, int status)
{
    bool nan = status == H2OKV_E_NAN;
    h->pass_status = h2okv__sequence_fail(h, s, nan ? status : H2OKV_E_ENGINE, "weights", "%s",
                                          nan ? "the model computed attention weights that are NaN or infinite"
                                              : h2okv_strerror(status));
}

static void observe(h2okv_llama *h, int index, const struct ggml_tensor *softmax)
{
    const h2okv__layer *layer = layer_at(h, index);
    if (layer == NULL || !h->pass_admitted || h->pass_status != H2OKV_OK) {
        return;
    }
    const float *data = rows_are_as_expected(h, layer, softmax) ? host_weights(h, softmax) : NULL;
    if (data == NULL) {
        note_failure(h, H2OKV_E_ENGINE, "weights",
                     "llama.cpp's attention weights have another shape than in the probe");
        return;
    }
    for (uint32_t i = 0; i < h->n_pass; i++) {
        h2okv__sequence *s = h->pass[i].sequence;
        int status = observe_rows(h, s, (uint32_t)(layer - h->layer), softmax,
                                  data + i * (softmax->nb[3] / sizeof(float)));
        if (status != H2OKV_OK) {
            note_weights(h, s, status);
            return;
        }
    }
}

/* ---- The callback ---- */

/* K of a layer with lanes is written. */
static bool takes_cells(h2okv_llama *h, const struct ggml_tensor *node)
{
    return layer_at(h, h2okv__layer_of_name(node->view_src->name, "cache_k_l")) != NULL;
}

/* Where K and V go: learnt by the probe; in a pass the first one tells which cells the tokens take. */
static void asked_rows(h2okv_llama *h, struct ggml_tensor *node)
{
    if (node->view_src == NULL) {
        return;
    }
    if (h->tap_mode == H2OKV__TAP_PROBE) {
        learn_tensor(h, node);
    } else if (!h->pass_admitted && takes_cells(h, node)) {
        admit(h, node->src[1]);
    }
}

static bool asked_softmax(h2okv_llama *h, struct ggml_tensor *node)
{
    h2okv__layer *layer = layer_at(h, softmax_layer(node));
    if (layer != NULL && h->tap_mode == H2OKV__TAP_PROBE) {
        learn_heads(layer, node);
    }
    return layer != NULL && h->tap_mode == H2OKV__TAP_PASS && h->needs_scores;
}

static void asked_flash(h2okv_llama *h, struct ggml_tensor *node)
{
    const struct ggml_tensor *k = node->src[1]->view_src;
    int index = k != NULL ? h2okv__layer_of_name(k->name, "cache_k_l") : -1;
    h2okv__layer *layer = layer_at(h, index);
    if (layer != NULL && h->tap_mode == H2OKV__TAP_PROBE) {
        h2okv__learn_flash(h, layer, node);
    }
    if (layer != NULL && h->fused) {
        /* in a probe too: llama.cpp's own ends the process on some shapes */
        h2okv__exchange(h, node, (int)(layer - h->layer));
    }
}

/* Wants to be told of every node, and then to go no further. */
static bool cancel(h2okv_llama *h, const struct ggml_tensor *node, bool ask)
{
    if (ask && node->op == GGML_OP_SET_ROWS && node->view_src != NULL && takes_cells(h, node)) {
        int64_t cell = 0;
        ggml_backend_tensor_get(node->src[1], &cell, 0, sizeof cell);
        h->cancelled_cell = (uint32_t)cell;
    }
    return ask;
}

/* Once the cells are known the next node that is told of, or the first of another part of the graph, ends it. */
static bool claim(h2okv_llama *h, struct ggml_tensor *node, bool ask)
{
    if (ask && node->op == GGML_OP_SET_ROWS) {
        asked_rows(h, node);
    }
    return ask && h->pass_admitted;
}

bool h2okv__tap(struct ggml_tensor *node, bool ask, void *user)
{
    h2okv_llama *h = user;
    bool answer = !ask; /* told: go on; asked: no need to tell */
    if (h->tap_mode == H2OKV__TAP_CANCEL) {
        return cancel(h, node, ask);
    }
    if (h->tap_mode == H2OKV__TAP_CLAIM) {
        return claim(h, node, ask);
    }
    if (h->tap_mode == H2OKV__TAP_PROBE && ask) {
        h2okv__learn_weights(h, node);
    }
    if (h->tap_mode == H2OKV__TAP_OFF || (node->op != GGML_OP_SET_ROWS && node->op != GGML_OP_SOFT_MAX &&
                                          node->op != GGML_OP_FLASH_ATTN_EXT)) {
        return answer;
    }
    int64_t start = llama_time_us();
    if (!ask) {
        observe(h, softmax_layer(node), node);
    } else if (node->op == GGML_OP_SET_ROWS) {
        asked_rows(h, node);
    } else if (node->op == GGML_OP_SOFT_MAX) {
        answer = asked_softmax(h, node);
    } else {
        asked_flash(h, node);
    }
    h->pass_bookkeeping_us += (uint64_t)(llama_time_us() - start);
    return answer;
}
