/* watched.c - see watched.h. Knows llama.cpp's names of nodes and its layouts by itself, not from the adapter. */
#include "watched.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_CELLS = 1024 };

static int layer_named(const char *name, const char *prefix, uint32_t layers)
{
    size_t length = strlen(prefix);
    char *end;
    if (strncmp(name, prefix, length) != 0 || name[length] == '\0') {
        return -1;
    }
    long layer = strtol(name + length, &end, 10);
    return *end == '\0' && layer >= 0 && layer < (long)layers ? (int)layer : -1;
}

static void note_cache(watched *w, const struct ggml_tensor *node)
{
    if (node->op != GGML_OP_SET_ROWS || node->view_src == NULL) {
        return;
    }
    int k = layer_named(node->view_src->name, "cache_k_l", w->shape.layers);
    int v = layer_named(node->view_src->name, "cache_v_l", w->shape.layers);
    if (k >= 0) {
        w->k[k] = node->view_src;
    }
    if (v >= 0) {
        w->v[v] = node->view_src;
    }
}

static bool watch(struct ggml_tensor *node, bool ask, void *user)
{
    watched *w = user;
    int layer = layer_named(node->name, "kq-", w->shape.layers);
    if (ask) {
        note_cache(w, node);
        return layer >= 0;
    }
    if (layer >= 0) {
        w->n_kv = (uint32_t)node->ne[0];
        w->n_tokens = (uint32_t)node->ne[1];
        assert_true(node->type == GGML_TYPE_F32 && node->ne[2] == (int64_t)w->shape.query_heads);
        assert_true(w->n_kv <= MOST_CELLS && w->n_tokens <= WATCHED_MOST_PASS);
        ggml_backend_tensor_get(node, w->logit[layer], 0, ggml_nbytes(node));
    }
    return true;
}

void watched_open(watched *w, struct llama_model *model, const watched_shape *shape)
{
    *w = (watched){.shape = *shape};
    struct llama_context_params params = synth_params(shape->cells, shape->ubatch);
    params.type_k = shape->type_k;
    params.type_v = shape->type_v;
    params.cb_eval = watch;
    params.cb_eval_user_data = w;
    w->context = synth_plain(model, params);
    w->cells = llama_n_ctx(w->context);
    for (uint32_t l = 0; l < shape->layers; l++) {
        w->logit[l] = malloc(sizeof(float) * MOST_CELLS * WATCHED_MOST_PASS * shape->query_heads);
        assert_non_null(w->logit[l]);
    }
}

void watched_close(watched *w)
{
    llama_free(w->context);
    for (uint32_t l = 0; l < w->shape.layers; l++) {
        free(w->logit[l]);
    }
}

/* Nothing was ever removed, so a token lies in the cell of its position. V is transposed: [v_dim of all heads]
 * [cells]. */
void watched_kv(const watched *w, uint32_t layer, uint32_t head, int32_t pos, unsigned char *k, unsigned char *v)
{
    const struct ggml_tensor *tk = w->k[layer], *tv = w->v[layer];
    size_t k_bytes = ggml_row_size(tk->type, w->shape.k_dim), number_bytes = ggml_type_size(tv->type);
    ggml_backend_tensor_get(tk, k, (size_t)pos * ggml_row_size(tk->type, tk->ne[0]) + head * k_bytes, k_bytes);
    for (uint32_t d = 0; d < w->shape.v_dim; d++) {
        size_t number = (size_t)head * w->shape.v_dim + d;
        ggml_backend_tensor_get(tv, v + d * number_bytes, (number * w->cells + (size_t)pos) * number_bytes,
                                number_bytes);
    }
}
