/*
 * fused.c - fused mode: each of llama.cpp's flash attention nodes becomes a custom node that calls our kernels.
 *
 *   asked about FLASH_ATTN_EXT(q, k, v, mask, sinks)  ->  CUSTOM(q, k, v, mask, sinks) { attend_op, the handle }
 *   computed by llama.cpp's threads                   ->  attend_op(node, thread, n_threads) -> kernels -> out, mass
 *   after the pass                                    ->  mass of every lane -> observe
 *
 * The graph is not split and nothing of it is read back; the kernels sum the mass on the way. A node may be met
 * again when llama.cpp reuses a graph: it is then a custom node already, and its scale and softcap lie where the
 * exchange put them, behind the custom node's own parameters.
 *
 * With several sequences in a pass they are the outermost dimension of q, k, v and the result, and a batch of the
 * kernels.
 *
 * The mask is not read: which cells a token sees is known from the books (all live cells, and of its own pass those
 * up to itself), so empty cells are not even looked at.
 */
#include "adapter.h"

#include <stdlib.h>
#include <string.h>

/* At the end of op_params; ggml's own part of a custom node's is at its start. */
typedef struct node_extra {
    float scale, softcap;
    int32_t layer;
} node_extra;

enum { EXTRA_AT = GGML_MAX_OP_PARAMS - (int)sizeof(node_extra) };

static node_extra extra_of(const struct ggml_tensor *node)
{
    node_extra extra;
    memcpy(&extra, (const char *)node->op_params + EXTRA_AT, sizeof extra);
    return extra;
}

static int type_of(enum ggml_type type)
{
    switch (type) {
    case GGML_TYPE_F32:
        return H2OKV_TYPE_F32;
    case GGML_TYPE_F16:
        return H2OKV_TYPE_F16;
    case GGML_TYPE_BF16:
        return H2OKV_TYPE_BF16;
    case GGML_TYPE_Q8_0:
        return H2OKV_TYPE_Q8_0;
    default:
        return -1;
    }
}

/* What is the same for every call of a layer, and what its node says. q is [k_dim, tokens, query heads, sequences], k
 * and v are [dim, cells, kv heads, sequences], the node [v_dim, query heads, tokens, sequences]; see llama.cpp's
 * build_attn_mha. The pointers are the first sequence's. */
static h2okv_attention describe(const h2okv_llama *h, const struct ggml_tensor *node, node_extra extra)
{
    const struct ggml_tensor *q = node->src[0], *k = node->src[1], *v = node->src[2], *sinks = node->src[4];
    return (h2okv_attention){
        .kv_heads = (uint32_t)k->ne[2],
        .group = (uint32_t)(q->ne[2] / k->ne[2]),
        .queries = (uint32_t)q->ne[1],
        .k_dim = (uint32_t)k->ne[0],
        .v_dim = (uint32_t)v->ne[0],
        .type_k = (uint32_t)type_of(k->type),
        .type_v = (uint32_t)type_of(v->type),
        .k = k->data,
        .v = v->data,
        .k_cell_stride = k->nb[1],
        .k_head_stride = k->nb[2],
        .v_cell_stride = v->nb[1],
        .v_head_stride = v->nb[2],
        .q = q->data,
        .out = node->data,
        .q_head_stride = q->nb[2] / sizeof(float),
        .q_query_stride = q->nb[1] / sizeof(float),
        .out_head_stride = node->nb[1] / sizeof(float),
        .out_query_stride = node->nb[2] / sizeof(float),
        .scale = extra.scale,
        .softcap = extra.softcap,
        .sinks = sinks != NULL ? sinks->data : NULL,
        .n_fresh = h->pass_tokens,
        .mass_head_stride = h->cells,
        .query_weight = h->query_weight,
        .leave_out_self = !h->count_self,
    };
}

/* As many tokens and sequences as the pass has, and the right ones. */
static bool is_of_pass(const h2okv_llama *h, const struct ggml_tensor *node, int32_t layer)
{
    const struct ggml_tensor *q = node->src[0], *k = node->src[1], *cache = h->layer[layer].k;
    size_t at = h->pass[0].sequence->id * cache->nb[2];
    return q->ne[1] == (int64_t)h->pass_tokens && q->ne[3] == (int64_t)h->n_pass && k->ne[3] == (int64_t)h->n_pass &&
           (const char *)k->data == (const char *)cache->data + at;
}

static size_t floats(size_t bytes)
{
    return bytes / sizeof(float);
}

static void attend(const h2okv_llama *h, const struct ggml_tensor *node, node_extra extra, uint32_t thread, uint32_t n)
{
    uint32_t first = h->pass[0].sequence->id;
    h2okv_attention attention = describe(h, node, extra);
    size_t layer_at = (size_t)extra.layer * h->mass_layer_stride, stride = h->n_layers * h->mass_layer_stride;
    attention.cell = h->live_cell + (size_t)first * h->cells;
    attention.n_cells = h->n_live_cells[first];
    attention.mass = h->needs_scores ? h->mass + first * stride + layer_at : NULL;
    if (h->n_pass == 1) {
        h2okv_kernels_attend(h->kernels, &attention, thread, n);
        return;
    }
    h2okv_attention_batch batch = {
        .n = h->n_pass,
        .n_cells = h->n_live_cells + first,
        .cell_stride = h->cells,
        .k_stride = node->src[1]->nb[3],
        .v_stride = node->src[2]->nb[3],
        .q_stride = floats(node->src[0]->nb[3]),
        .out_stride = floats(node->nb[3]),
        .mass_stride = stride,
    };
    h2okv_kernels_attend_batch(h->kernels, &attention, &batch, thread, n);
}

/* llama.cpp calls this on each of its threads. */
static void attend_op(struct ggml_tensor *node, int thread, int n_threads, void *user)
{
    h2okv_llama *h = user;
    uint32_t n = (uint32_t)n_threads < h->max_threads ? (uint32_t)n_threads : h->max_threads;
    if ((uint32_t)thread >= n) {
        return; /* more threads than there is scratch memory for */
    }
    node_extra extra = extra_of(node);
    if (h->tap_mode != H2OKV__TAP_PASS || !is_of_pass(h, node, extra.layer)) {
        return; /* a probe; or somebody decodes past the handle, and the next call will say so */
    }
    attend(h, node, extra, (uint32_t)thread, n);
    if (thread == 0) {
        h->layers_attended++;
    }
}

/* A custom node of our own, made once, from which op and op_params are copied: ggml does not say how they look. */
bool h2okv__make_pattern(h2okv_llama *h)
{
    struct ggml_init_params params = {.mem_size = 2 * ggml_tensor_overhead(), .no_alloc = true};
    struct ggml_context *context = ggml_init(params);
    if (context == NULL) {
        return false;
    }
    struct ggml_tensor *some = ggml_new_tensor_1d(context, GGML_TYPE_F32, 1);
    struct ggml_tensor *custom = ggml_custom_inplace(context, some, NULL, 0, attend_op, GGML_N_TASKS_MAX, h);
    memcpy(h->custom_params, custom->op_params, sizeof h->custom_params);
    ggml_free(context);
    return true;
}

void h2okv__exchange(h2okv_llama *h, struct ggml_tensor *node, int layer)
{
    node_extra extra = {.layer = layer};
    memcpy(&extra.scale, (const float *)node->op_params + 0, sizeof extra.scale);
    memcpy(&extra.softcap, (const float *)node->op_params + 2, sizeof extra.softcap);
    node->op = GGML_OP_CUSTOM;
    memcpy(node->op_params, h->custom_params, sizeof h->custom_params);
    memcpy((char *)node->op_params + EXTRA_AT, &extra, sizeof extra);
}

static bool on_host(const struct ggml_tensor *tensor)
{
    const struct ggml_tensor *owner = tensor->view_src != NULL ? tensor->view_src : tensor;
    return owner->buffer == NULL || ggml_backend_buffer_is_host(owner->buffer);
}

/* Why a flash attention node cannot be exchanged, or NULL. */
static const char *refusal(h2okv_llama *h, const struct ggml_tensor *node)
{
    const struct ggml_tensor *q = node->src[0], *k = node->src[1], *v = node->src[2];
    if (!on_host(node) || !on_host(q) || !on_host(k) || !on_host(v)) {
        return "a layer is not in host memory";
    }
    if (q->type != GGML_TYPE_F32 || q->nb[0] != sizeof(float) || node->type != GGML_TYPE_F32 || k->ne[3] != 1) {
        return "a layer's queries are not laid out as expected";
    }
    if (type_of(k->type) < 0 || type_of(v->type) < 0) {
        return "the cache has a type that the kernels do not read";
    }
    h2okv_attention attention = describe(h, node, (node_extra){.scale = 1.0f});
    return h2okv_attention_unsupported(&attention);
}

void h2okv__learn_flash(h2okv_llama *h, h2okv__layer *layer, const struct ggml_tensor *node)
{
    const struct ggml_tensor *q = node->src[0], *k = node->src[1], *v = node->src[2];
    float max_bias;
    memcpy(&max_bias, (const float *)node->op_params + 1, sizeof max_bias);
    layer->has_position_bias = max_bias != 0.0f;
    layer->kv_heads = (uint32_t)k->ne[2];
    layer->query_heads = (uint32_t)q->ne[2];
    layer->k_dim = (uint32_t)k->ne[0];
    layer->v_dim = (uint32_t)v->ne[0];
    layer->seen_weights = true;
    h->not_fused = h->not_fused != NULL ? h->not_fused : refusal(h, node);
}

/* The largest call there will be, of any layer. */
static h2okv_attention largest_call(const h2okv_llama *h)
{
    h2okv_attention largest = {.n_cells = h->cells, .n_fresh = h->ubatch, .queries = h->ubatch};
    for (uint32_t i = 0; i < h->n_layers; i++) {
        const h2okv__layer *l = &h->layer[i];
        uint32_t group = l->query_heads / l->kv_heads;
        largest.kv_heads = l->kv_heads > largest.kv_heads ? l->kv_heads : largest.kv_heads;
        largest.group = group > largest.group ? group : largest.group;
        largest.k_dim = l->k_dim > largest.k_dim ? l->k_dim : largest.k_dim;
        largest.v_dim = l->v_dim > largest.v_dim ? l->v_dim : largest.v_dim;
    }
    return largest;
}

int h2okv__make_fused(h2okv_llama *h, const char *isa, h2okv_error *error)
{
    h2okv_attention largest = largest_call(h);
    int status =
        h2okv_kernels_create_batch(&h->kernels, &largest, h->n_sequences, h->max_threads, isa, NULL, error);
    if (status != H2OKV_OK) {
        return status;
    }
    h->mass_layer_stride = (size_t)largest.kv_heads * h->cells;
    h->query_weight_memory = calloc(h->ubatch, sizeof *h->query_weight_memory);
    h->mass = calloc(h->mass_layer_stride * h->n_layers * h->n_sequences, sizeof *h->mass);
    h->live_cell = calloc((size_t)h->n_sequences * h->cells, sizeof *h->live_cell);
    h->n_live_cells = calloc(h->n_sequences, sizeof *h->n_live_cells);
    bool made =
        h->query_weight_memory != NULL && h->mass != NULL && h->live_cell != NULL && h->n_live_cells != NULL;
    return made ? H2OKV_OK : h2okv_error_set(error, H2OKV_E_NOMEM, "attention", "out of memory");
}

/* By age when scores decay; with a probe, its queries alone count, and all the same. */
void h2okv__weigh_queries(h2okv_llama *h)
{
    uint32_t sharing = h->layer[0].query_heads / (h->lanes_mode == H2OKV_LANES_HEAD ? h->layer[0].kv_heads : 1);
    uint32_t counting = h->pass_probe > 0 ? h->pass_probe : h->pass_tokens;
    double weight = h->mean_heads ? 1.0 / sharing : 1.0;
    bool alike = h->pass_probe == 0 && h->decay >= 1.0 && !h->mean_heads;
    h->query_weight = alike ? NULL : h->query_weight_memory;
    for (uint32_t back = 0; back < h->pass_tokens && !alike; back++) {
        h->query_weight_memory[h->pass_tokens - 1 - back] = back < counting ? (float)weight : 0.0f;
        weight *= h->pass_probe > 0 ? 1.0 : h->decay;
    }
}

/* In order of position, the pass's own last: the order that sums over cells have. So what is computed depends on the
 * tokens alone, not on the cells that llama.cpp chose for them, and a session that is restored into others goes on with
 * the same bits. The first lane's order serves all. */
void h2okv__list_live_cells(h2okv_llama *h, const h2okv__sequence *s)
{
    h2okv_lane_view lane;
    (void)h2okv_cache_lane(s->cache, 0, &lane);
    memcpy(h->live_cell + (size_t)s->id * h->cells, lane.order, lane.live * sizeof *lane.order);
    h->n_live_cells[s->id] = lane.live;
}

int h2okv__observe_fused(h2okv_llama *h, h2okv__sequence *s)
{
    if (h->layers_attended != h->n_layers) {
        return h2okv__llama_fail(h, H2OKV_E_ENGINE, "attention", "llama.cpp asked us for %u of %u layers' attention",
                                 h->layers_attended, h->n_layers);
    }
    const float *all = h->mass + (size_t)s->id * h->n_layers * h->mass_layer_stride;
    for (uint32_t l = 0; l < h->n_layers && h->needs_scores; l++) {
        for (uint32_t head = 0; head < h->layer[l].kv_heads; head++) {
            const float *mass = all + l * h->mass_layer_stride + (size_t)head * h->cells;
            int status = h2okv_cache_observe_mass(s->cache, h2okv_llama_lane(h, l, head), mass);
            if (status != H2OKV_OK) {
                return h2okv__sequence_fail(h, s, status == H2OKV_E_NAN ? status : H2OKV_E_ENGINE, "weights",
                                            "layer %u, KV head %u: %s", l, head, h2okv_strerror(status));
            }
        }
    }
    return H2OKV_OK;
}

void h2okv__free_fused(h2okv_llama *h)
{
    h2okv_kernels_free(h->kernels);
    free(h->query_weight_memory);
    free(h->n_live_cells);
    free(h->live_cell);
    free(h->mass);
    h->kernels = NULL;
    h->query_weight_memory = NULL;
    h->n_live_cells = h->live_cell = NULL;
    h->mass = NULL;
}
