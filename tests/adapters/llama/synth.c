/*
 * synth.c - see synth.h. llama.cpp itself says which tensors it wants, one error at a time:
 *
 *   load -> "tensor 'x' not found" -> give it an x of one number -> load -> "wrong shape; expected 64, 97" -> ...
 */
#include "synth.h"

#include "support/rng.h"

#include <gguf.h>

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Metadata ---- */

static const char *architecture_of(const synth_shape *shape)
{
    return shape->architecture != NULL ? shape->architecture : "llama";
}

static void set_key(struct gguf_context *meta, const synth_shape *shape, const synth_key *key)
{
    char name[128];
    bool whole = strncmp(key->suffix, "tokenizer.", 10) == 0;
    snprintf(name, sizeof name, "%s%s%s", whole ? "" : architecture_of(shape), whole ? "" : ".", key->suffix);
    uint32_t per_layer[SYNTH_MAX_LAYERS] = {0};
    switch (key->kind) {
    case SYNTH_U32:
        gguf_set_val_u32(meta, name, (uint32_t)key->value);
        break;
    case SYNTH_F32:
        gguf_set_val_f32(meta, name, (float)key->value);
        break;
    case SYNTH_BOOL:
        gguf_set_val_bool(meta, name, key->value > 0.0);
        break;
    case SYNTH_U32_PER_LAYER:
        memcpy(per_layer, key->per_layer, sizeof key->per_layer);
        gguf_set_arr_data(meta, name, GGUF_TYPE_UINT32, per_layer, shape->layers);
        break;
    case SYNTH_HIDDEN_U32:
        break; /* see overrides */
    }
}

enum { MOST_OVERRIDES = 4 };

/* Keys that the loader finds although the metadata has them not; ends with an empty one. */
static void overrides(struct llama_model_kv_override *out, const synth_shape *shape)
{
    memset(out, 0, (MOST_OVERRIDES + 1) * sizeof *out);
    uint32_t n = 0;
    for (const synth_key *key = shape->keys; key != NULL && key->suffix != NULL && n < MOST_OVERRIDES; key++) {
        if (key->kind == SYNTH_HIDDEN_U32) {
            out[n].tag = LLAMA_KV_OVERRIDE_TYPE_INT;
            snprintf(out[n].key, sizeof out[n].key, "%s.%s", architecture_of(shape), key->suffix);
            out[n++].val_i64 = (int64_t)key->value;
        }
    }
}

static uint32_t embd_of(const synth_shape *shape)
{
    return shape->embd > 0 ? shape->embd : 64;
}

static struct gguf_context *metadata(const synth_shape *shape)
{
    struct gguf_context *meta = gguf_init_empty();
    const synth_key common[] = {
        {"vocab_size", SYNTH_U32, SYNTH_VOCAB, {0}},
        {"context_length", SYNTH_U32, 4096, {0}},
        {"embedding_length", SYNTH_U32, embd_of(shape), {0}},
        {"block_count", SYNTH_U32, shape->layers, {0}},
        {"feed_forward_length", SYNTH_U32, SYNTH_FF, {0}},
        {"attention.head_count", SYNTH_U32, shape->query_heads, {0}},
        {"attention.head_count_kv", SYNTH_U32, shape->kv_heads, {0}},
        {"attention.key_length", SYNTH_U32, shape->k_dim, {0}},
        {"attention.value_length", SYNTH_U32, shape->v_dim, {0}},
        {"attention.layer_norm_epsilon", SYNTH_F32, 1e-5, {0}},
        {"attention.layer_norm_rms_epsilon", SYNTH_F32, 1e-5, {0}},
    };
    gguf_set_val_str(meta, "general.architecture", architecture_of(shape));
    gguf_set_val_str(meta, "tokenizer.ggml.model", "no_vocab");
    for (size_t i = 0; i < sizeof common / sizeof common[0]; i++) {
        set_key(meta, shape, &common[i]);
    }
    for (const synth_key *key = shape->keys; key != NULL && key->suffix != NULL; key++) {
        set_key(meta, shape, key);
    }
    return meta;
}

/* ---- Weights ---- */

static float normal(rng *r)
{
    float sum = -6.0f;
    for (int i = 0; i < 12; i++) {
        sum += rng_float(r);
    }
    return sum;
}

static bool named(const struct ggml_tensor *t, const char *part)
{
    return strstr(t->name, part) != NULL;
}

/* Standard deviation of a tensor's numbers; 0 with *centre for one that is constant. */
static float deviation_of(const synth_shape *shape, const struct ggml_tensor *t, float *centre)
{
    float spread = shape->spread > 0.0f ? shape->spread : 1.5f, per_input = 1.0f / sqrtf((float)t->ne[0]);
    bool neutral_factor = named(t, "norm") || named(t, "rope_f") || named(t, "scale") || named(t, "ffn_act");
    *centre = neutral_factor && !named(t, "bias") ? 1.0f : 0.0f;
    if (neutral_factor || named(t, "bias")) {
        return 0.0f;
    }
    if (shape->still && (named(t, "attn_output") || named(t, "ffn_down"))) {
        return 0.0f;
    }
    if (named(t, "token_embd")) {
        return 1.0f;
    }
    /* A head's q.k / sqrt(dim) then deviates by `spread`. */
    return named(t, "attn_q.") || named(t, "attn_k.") ? per_input * sqrtf(spread) : per_input;
}

static uint64_t seed_of(const synth_shape *shape, const char *name)
{
    uint64_t hash = 0xcbf29ce484222325u ^ shape->seed; /* FNV-1a */
    for (; *name != '\0'; name++) {
        hash = (hash ^ (unsigned char)*name) * 0x100000001b3u;
    }
    return hash;
}

static void fill(const synth_shape *shape, const struct ggml_tensor *t)
{
    size_t n = (size_t)ggml_nelements(t);
    float centre, deviation = deviation_of(shape, t, &centre), *value = t->data;
    rng r = {seed_of(shape, t->name)};
    for (size_t i = 0; i < n; i++) {
        value[i] = centre + (deviation > 0.0f ? deviation * normal(&r) : 0.0f);
    }
    if (shape->nan_tensor != NULL && strcmp(t->name, shape->nan_tensor) == 0) {
        value[0] = NAN;
    }
}

/* ---- Loading ---- */

enum { MOST_TENSORS = 256, DATA_BYTES = 8 << 20 };

typedef struct wish_list {
    uint32_t n;
    struct wish {
        char name[GGML_MAX_NAME];
        int64_t ne[4];
    } wish[MOST_TENSORS];
} wish_list;

static char last_complaint[1024]; /* of llama.cpp */

static void listen(enum ggml_log_level level, const char *text, void *user)
{
    (void)user;
    if (level == GGML_LOG_LEVEL_ERROR && strstr(text, "error loading model") != NULL) {
        snprintf(last_complaint, sizeof last_complaint, "%s", text);
    }
}

static struct wish *wish_of(wish_list *list, const char *name)
{
    for (uint32_t i = 0; i < list->n; i++) {
        if (strcmp(list->wish[i].name, name) == 0) {
            return &list->wish[i];
        }
    }
    return NULL;
}

static void add_wish(wish_list *list, const char *name)
{
    if (list->n == MOST_TENSORS) {
        abort();
    }
    struct wish *added = &list->wish[list->n++];
    *added = (struct wish){.ne = {1, 1, 1, 1}};
    snprintf(added->name, sizeof added->name, "%s", name);
}

/* "     64,     97, got ..." */
static void read_shape(struct wish *wish, const char *text)
{
    for (int d = 0, used = 0; d < 4 && sscanf(text, "%" SCNd64 "%n", &wish->ne[d], &used) == 1; d++) {
        text += used;
        text += *text == ',';
    }
}

/* Learn from llama.cpp's complaint; false when it cannot be helped. */
static bool learn(wish_list *list)
{
    static const char expected[] = "has wrong shape; expected ";
    char name[GGML_MAX_NAME];
    const char *quoted = strstr(last_complaint, "tensor '"), *shape = strstr(last_complaint, expected);
    if (quoted == NULL || sscanf(quoted, "tensor '%63[^']'", name) != 1) {
        return false;
    }
    struct wish *known = wish_of(list, name);
    if (known == NULL) {
        add_wish(list, name);
        return true;
    }
    if (shape != NULL) {
        read_shape(known, shape + strlen(expected));
    }
    return shape != NULL;
}

static void add_tensors(struct gguf_context *meta, struct ggml_context *memory, const synth_shape *shape,
                        const wish_list *list)
{
    for (uint32_t i = 0; i < list->n; i++) {
        struct ggml_tensor *t = ggml_new_tensor(memory, GGML_TYPE_F32, 4, list->wish[i].ne);
        ggml_set_name(t, list->wish[i].name);
        fill(shape, t);
        gguf_add_tensor(meta, t);
    }
}

static struct llama_model *load(const synth_shape *shape, const wish_list *list)
{
    struct llama_model_params params = llama_model_default_params();
    struct llama_model_kv_override hidden[MOST_OVERRIDES + 1];
    overrides(hidden, shape);
    params.kv_overrides = hidden;
    params.load_mode = LLAMA_LOAD_MODE_NONE;
    struct gguf_context *meta = metadata(shape);
    struct ggml_context *memory = ggml_init((struct ggml_init_params){.mem_size = DATA_BYTES});
    FILE *file = tmpfile();
    if (memory == NULL || file == NULL) {
        abort();
    }
    add_tensors(meta, memory, shape, list);
    struct llama_model *model = NULL;
    if (gguf_write_to_file_ptr(meta, file, false)) {
        rewind(file);
        model = llama_model_load_from_file_ptr(file, params);
    }
    fclose(file);
    ggml_free(memory);
    gguf_free(meta);
    return model;
}

struct llama_model *synth_try(const synth_shape *shape)
{
    wish_list *list = calloc(1, sizeof *list);
    if (list == NULL) {
        abort();
    }
    struct llama_model *model;
    do {
        last_complaint[0] = '\0';
        model = load(shape, list);
    } while (model == NULL && learn(list));
    free(list);
    return model;
}

struct llama_model *synth_model(const synth_shape *shape)
{
    struct llama_model *model = synth_try(shape);
    if (model == NULL) {
        fail_msg("llama.cpp refused a synthetic %s: %s", architecture_of(shape), last_complaint);
    }
    return model;
}

/* ---- What every test needs ---- */

struct llama_model *synth_nan_model(float spread)
{
    return synth_model(&(synth_shape){
        .layers = 3, .query_heads = 4, .kv_heads = 2, .k_dim = 32, .v_dim = 32, .seed = 5, .spread = spread,
        .nan_tensor = "token_embd.weight",
    });
}

int synth_open(void **state)
{
    (void)state;
    llama_log_set(listen, NULL);
    return h2okv_llama_load_backends(NULL) == H2OKV_OK ? 0 : -1;
}

int synth_close(void **state)
{
    (void)state;
    llama_backend_free();
    return 0;
}

void synth_text(llama_token *out, uint32_t n, uint64_t seed)
{
    rng r = {seed};
    for (uint32_t i = 0; i < n; i++) {
        out[i] = (llama_token)rng_range(&r, SYNTH_NAN_TOKEN + 1, SYNTH_VOCAB - 1);
    }
}

struct llama_context_params synth_params(uint32_t cells, uint32_t ubatch)
{
    struct llama_context_params params = llama_context_default_params();
    params.n_threads = params.n_threads_batch = 1; /* ggml threads that spin crawl beside other programs */
    params.n_ctx = cells;
    params.n_batch = params.n_ubatch = ubatch;
    params.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_DISABLED;
    return params;
}

struct llama_context *synth_plain(struct llama_model *model, struct llama_context_params params)
{
    struct llama_context *context = llama_init_from_model(model, params);
    assert_non_null(context);
    return context;
}

h2okv_options synth_cache_options(uint32_t budget, uint32_t recent)
{
    h2okv_options options;
    h2okv_options_init(&options);
    options.sinks = 0; /* the oracle knows no presets */
    options.decay = 1.0;
    options.budget = budget;
    options.recent = recent;
    return options;
}

h2okv_llama *synth_adapter(struct llama_model *model, const h2okv_options *cache, uint32_t lanes, uint32_t ubatch)
{
    h2okv_llama_options options;
    h2okv_llama_options_init(&options);
    options.cache = cache;
    options.lanes = lanes;
    options.ubatch = ubatch;
    h2okv_llama *h = NULL;
    h2okv_error error = {0};
    if (h2okv_llama_create(&h, model, synth_params(0, 0), &options, &error) != H2OKV_OK) {
        fail_msg("create: %s", error.text);
    }
    return h;
}

double synth_logits_differ(struct llama_context *a, struct llama_context *b)
{
    const float *x = llama_get_logits_ith(a, -1), *y = llama_get_logits_ith(b, -1);
    double most = 0.0, size = 0.0;
    for (uint32_t i = SYNTH_NAN_TOKEN + 1; i < SYNTH_VOCAB; i++) {
        double gap = fabs((double)x[i] - (double)y[i]);
        most = gap > most || isnan(gap) ? gap : most;
        size = fabs((double)x[i]) > size ? fabs((double)x[i]) : size;
    }
    return isnan(most) || size <= 0.0 ? 1.0 : most / size;
}

bool synth_same_books(const h2okv_llama *a, const h2okv_llama *b)
{
    enum { MOST = 4096 };
    static int32_t pos_a[MOST], pos_b[MOST];
    static double score_a[MOST], score_b[MOST];
    h2okv_llama_stats stats;
    h2okv_llama_get_stats(a, &stats);
    for (uint32_t lane = 0; lane < stats.lanes; lane++) {
        uint32_t n = h2okv_cache_kept(h2okv_llama_cache(a), lane, pos_a, score_a, NULL);
        if (h2okv_cache_kept(h2okv_llama_cache(b), lane, pos_b, score_b, NULL) != n ||
            memcmp(pos_a, pos_b, n * sizeof *pos_a) != 0 || memcmp(score_a, score_b, n * sizeof *score_a) != 0) {
            return false;
        }
    }
    return true;
}

void synth_assert_books_match_engine(h2okv_llama *h)
{
    llama_memory_t memory = llama_get_memory(h2okv_llama_context(h));
    int32_t oldest = llama_memory_seq_pos_min(memory, 0), newest = llama_memory_seq_pos_max(memory, 0);
    uint32_t live = h2okv_cache_live(h2okv_llama_cache(h));
    assert_int_equal(newest, h2okv_llama_next_pos(h) - 1);
    assert_int_equal(newest < 0 ? 0 : newest - oldest + 1, live);
}

void synth_assert_failed(const h2okv_llama *h, int status, int expected, const char *field, const char *part)
{
    const h2okv_error *error = h2okv_llama_last_error(h);
    if (status != expected || error->status != expected || strcmp(error->field, field) != 0 ||
        strstr(error->text, part) == NULL) {
        fail_msg("status %d (%d expected), field \"%s\", text \"%s\"", status, expected, error->field, error->text);
    }
}

uint32_t synth_recent(const h2okv_llama *h)
{
    h2okv_options options;
    h2okv_cache_get_options(h2okv_llama_cache(h), &options);
    return options.recent;
}

bool synth_keeps(const h2okv_llama *h, uint32_t lane, int32_t wanted)
{
    int32_t pos[256];
    uint32_t n = h2okv_cache_kept(h2okv_llama_cache(h), lane, pos, NULL, NULL), i = 0;
    while (i < n && pos[i] != wanted) {
        i++;
    }
    return i < n;
}

bool synth_abort_at(void *aborter)
{
    synth_aborter *a = aborter;
    return ++a->calls == a->at;
}
