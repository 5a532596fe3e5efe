/*
 * setup.c - how a store comes to be: its shape and options checked, its memory laid out, created and freed.
 */
#include "store/store.h"

#include <math.h>
#include <string.h>

#include "base/memory.h"
#include "base/options.h"
#include "base/dtype.h"

/* Where the parts of the store's block lie, in bytes from its start. */
typedef struct offsets {
    h2okv__layout layout;
    size_t store, part, next_pos, n_appended, free_cell, kv;
    size_t cell, pos, query_weight, mass, scratch; /* of attend */
    size_t k_bytes, v_bytes; /* of one part's K and V, each rounded up to the alignment */
} offsets;

typedef struct recipe {
    h2okv_shape shape;
    h2okv_options options;
    const h2okv__isa *isa;      /* NULL: no append and attend */
    h2okv__attention attention; /* the largest */
    offsets at;
    size_t bytes; /* all that create asks of the allocator */
} recipe;

static const h2okv_shape default_shape = {
    .size = (uint32_t)sizeof(h2okv_shape),
    .batch = 1,
    .layers = 1,
    .group = 1,
    .threads = 1,
};

void h2okv_shape_init_sized(h2okv_shape *shape, uint32_t size)
{
    h2okv_shape filled = default_shape;
    filled.size = size;
    memset(shape, 0, size);
    memcpy(shape, &filled, size < sizeof filled ? size : sizeof filled);
}

/* ---- Checks ------------------------------------------------------------------------------------------- */

static int check_type(const char *field, uint32_t type, uint32_t head_dim, h2okv_error *error)
{
    if (type > H2OKV_TYPE_Q8_0) {
        return h2okv_error_set(error, H2OKV_E_INVALID, field, "%s is %u: it must be one of enum h2okv_type",
                               field, type);
    }
    if (h2okv__row_bytes(type, head_dim) == 0) {
        return h2okv_error_set(error, H2OKV_E_INVALID, "head_dim",
                               "head_dim is %u: %s q8_0 needs a multiple of 32 (or choose f16)", head_dim,
                               field);
    }
    return H2OKV_OK;
}

static int check_shape(const h2okv_shape *s, h2okv_error *error)
{
    const struct {
        const char *field;
        uint32_t value;
    } counts[] = {{"batch", s->batch}, {"layers", s->layers}, {"heads", s->heads}, {"group", s->group},
                  {"head_dim", s->head_dim}, {"threads", s->threads}};

    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
        if (counts[i].value == 0 || counts[i].value > INT32_MAX) {
            return h2okv_error_set(error, H2OKV_E_INVALID, counts[i].field,
                                   "%s is %u: it must be from 1 to 2147483647", counts[i].field,
                                   counts[i].value);
        }
    }
    if ((uint64_t)s->heads * s->group > INT32_MAX) {
        return h2okv_error_set(error, H2OKV_E_INVALID, "group",
                               "group is %u: heads (%u) * group is over 2147483647", s->group, s->heads);
    }
    if (s->lane_per_head > 1) {
        return h2okv_error_set(error, H2OKV_E_INVALID, "lane_per_head",
                               "lane_per_head is %u: it must be 0 or 1", s->lane_per_head);
    }
    int status = check_type("type_k", s->type_k, s->head_dim, error);
    return status != H2OKV_OK ? status : check_type("type_v", s->type_v, s->head_dim, error);
}

static int read_shape(h2okv_shape *out, const h2okv_shape *given, h2okv_error *error)
{
    *out = default_shape;
    if (given == NULL || given->size < sizeof given->size) {
        return h2okv_error_set(error, H2OKV_E_INVALID, "size",
                               "shape is missing or has size 0: call h2okv_shape_init first");
    }
    if (!h2okv__read_sized(out, sizeof *out, given, given->size)) {
        return h2okv_error_set(error, H2OKV_E_INVALID, "size",
                               "shape of %u bytes uses a field that this library (%s) does not have",
                               given->size, H2OKV_VERSION);
    }
    out->size = (uint32_t)sizeof *out;
    return check_shape(out, error);
}

/* Tokens of the largest pass, by update() or append(). */
static uint32_t largest_pass(const h2okv_shape *shape)
{
    return shape->max_pass > 0 ? shape->max_pass : 1;
}

static int check_cells(const h2okv_options *o, const h2okv_shape *shape, h2okv_error *error)
{
    bool evicts = (o->custom_policy->flags & H2OKV_POLICY_KEEPS_ALL) == 0;
    uint32_t kept = evicts ? o->budget : 0;
    if (o->cells - kept < largest_pass(shape)) {
        return h2okv_error_set(error, H2OKV_E_INVALID, "cells",
                               "cells is %u: a pass needs %u more than the %u that are kept (0 sets that)", o->cells,
                               largest_pass(shape), kept);
    }
    return H2OKV_OK;
}

/* The caller's options for each part's cache: cells and lanes filled in. */
static int read_options(h2okv_options *out, const h2okv_options *given, const h2okv_shape *shape,
                        h2okv_error *error)
{
    h2okv_options filled;
    h2okv_options_init(&filled);
    if (given == NULL || given->size < sizeof given->size ||
        !h2okv__read_sized(&filled, sizeof filled, given, given->size)) {
        return h2okv__options_read(out, given, error);
    }
    filled.size = (uint32_t)sizeof filled;
    if (filled.lanes != 1) {
        return h2okv_error_set(error, H2OKV_E_INVALID, "lanes",
                               "lanes is %u: leave it at 1, lane_per_head of the shape sets it",
                               filled.lanes);
    }
    if (filled.parts != 1) {
        return h2okv_error_set(error, H2OKV_E_INVALID, "parts", "parts is %u: leave it at 1 for a store",
                               filled.parts);
    }
    if (filled.budget >= INT32_MAX) {
        return h2okv_error_set(error, H2OKV_E_INVALID, "budget", "budget is %u: it must be below 2147483647",
                               filled.budget);
    }
    if (filled.cells == 0) { /* a sum past 2^32 is refused, as too many cells */
        uint32_t pass = largest_pass(shape), room = UINT32_MAX - filled.budget;
        filled.cells = filled.budget + (pass < room ? pass : room);
    }
    int status = h2okv__options_read(out, &filled, error);
    out->lanes = shape->lane_per_head ? shape->heads : 1;
    return status != H2OKV_OK ? status : check_cells(out, shape, error);
}

/* ---- Attention ---------------------------------------------------------------------------------------- */

static h2okv__attention largest_attention(const h2okv_shape *s, const h2okv_options *o)
{
    size_t row_k = h2okv__row_bytes(s->type_k, s->head_dim), row_v = h2okv__row_bytes(s->type_v, s->head_dim);
    size_t token = (size_t)s->heads * s->group * s->head_dim;
    return (h2okv__attention){
        .kv_heads = s->heads,
        .group = s->group,
        .queries = s->max_pass,
        .k_dim = s->head_dim,
        .v_dim = s->head_dim,
        .type_k = s->type_k,
        .type_v = s->type_v,
        .k_cell_stride = row_k,
        .k_head_stride = o->cells * row_k,
        .v_cell_stride = row_v,
        .v_head_stride = o->cells * row_v,
        .n_cells = o->cells,
        .n_fresh = s->max_pass,
        .q_head_stride = s->head_dim,
        .q_query_stride = token,
        .out_head_stride = s->head_dim,
        .out_query_stride = token,
        .scale = s->scale != 0.0f ? s->scale : 1.0f / sqrtf((float)s->head_dim),
        .softcap = s->softcap,
        .mass_head_stride = o->cells,
        .leave_out_self = o->count_self == 0,
    };
}

static int read_attention(recipe *r, h2okv_error *error)
{
    const h2okv_shape *s = &r->shape;
    r->isa = NULL;
    if (s->max_pass == 0) {
        return H2OKV_OK;
    }
    r->attention = largest_attention(s, &r->options);
    const char *why = h2okv__attention_unsupported(&r->attention);
    if (why != NULL) {
        return h2okv_error_set(error, H2OKV_E_UNSUPPORTED, "max_pass",
                               "max_pass is %u, but attention is not possible: %s (0: only update)", s->max_pass, why);
    }
    r->isa = h2okv__isa_find(s->isa);
    if (r->isa == NULL) {
        return h2okv_error_set(error, H2OKV_E_INVALID, "isa", "isa is \"%s\": this build has none of that name",
                               s->isa);
    }
    if (!h2okv__isa_usable(r->isa)) {
        return h2okv_error_set(error, H2OKV_E_UNSUPPORTED, "isa",
                               "isa is \"%s\": this processor, or its operating system, cannot run it", s->isa);
    }
    return H2OKV_OK;
}

/* ---- Memory ------------------------------------------------------------------------------------------- */

static size_t rounded_rows(size_t rows, size_t row_bytes, bool *overflow)
{
    h2okv__layout alone = {0, false};
    h2okv__place(&alone, rows, row_bytes);
    *overflow |= alone.overflow;
    return alone.bytes;
}

static void lay_out_attend(offsets *at, const recipe *r)
{
    const h2okv_shape *s = &r->shape;
    h2okv__layout *layout = &at->layout;
    size_t rows = h2okv__mul(h2okv__mul(s->batch, s->heads, &layout->overflow), r->options.cells, &layout->overflow);
    size_t scratch = h2okv__attention_scratch_bytes(r->isa, &r->attention, 1, s->threads);

    at->cell = h2okv__place(layout, s->max_pass, sizeof(uint32_t));
    at->pos = h2okv__place(layout, s->max_pass, sizeof(int32_t));
    at->query_weight = h2okv__place(layout, s->max_pass, sizeof(float));
    at->mass = h2okv__place(layout, rows, sizeof(float));
    at->scratch = h2okv__place(layout, scratch, 1);
    layout->overflow |= scratch == 0;
}

static offsets lay_out(const recipe *r)
{
    const h2okv_shape *s = &r->shape;
    const h2okv_options *o = &r->options;
    offsets at = {.layout = {0, false}};
    bool *overflow = &at.layout.overflow;
    size_t parts = h2okv__mul(s->batch, s->layers, overflow);
    size_t rows = h2okv__mul(s->heads, o->cells, overflow);

    at.k_bytes = rounded_rows(rows, h2okv__row_bytes(s->type_k, s->head_dim), overflow);
    at.v_bytes = rounded_rows(rows, h2okv__row_bytes(s->type_v, s->head_dim), overflow);
    at.store = h2okv__place(&at.layout, 1, sizeof(h2okv_store));
    at.part = h2okv__place(&at.layout, parts, sizeof(h2okv__part));
    at.next_pos = h2okv__place(&at.layout, s->layers, sizeof(int32_t));
    at.n_appended = h2okv__place(&at.layout, s->layers, sizeof(uint32_t));
    at.free_cell = h2okv__place(&at.layout, h2okv__mul(parts, o->cells, overflow), sizeof(uint32_t));
    at.kv = *overflow ? 0 : h2okv__place(&at.layout, parts, at.k_bytes + at.v_bytes);
    if (r->isa != NULL) {
        lay_out_attend(&at, r);
    }
    return at;
}

static int read_recipe(recipe *r, const h2okv_shape *shape, const h2okv_options *options, h2okv_error *error)
{
    size_t cache_bytes = 0;
    int status = read_shape(&r->shape, shape, error);
    status = status != H2OKV_OK ? status : read_options(&r->options, options, &r->shape, error);
    status = status != H2OKV_OK ? status : read_attention(r, error);
    if (status != H2OKV_OK) {
        return status;
    }
    r->at = lay_out(r);
    status = h2okv_cache_bytes(&r->options, &cache_bytes);

    bool overflow = r->at.layout.overflow || status != H2OKV_OK;
    size_t parts = h2okv__mul(r->shape.batch, r->shape.layers, &overflow);
    size_t caches = h2okv__mul(parts, cache_bytes, &overflow);
    if (overflow || caches > SIZE_MAX / 2) {
        return h2okv_error_set(error, H2OKV_E_NOMEM, "",
                               "the store is larger than memory can be: use a smaller budget");
    }
    r->bytes = h2okv__alloc_bytes(r->at.layout.bytes) + caches;
    return H2OKV_OK;
}

int h2okv_store_bytes(const h2okv_shape *shape, const h2okv_options *options, size_t *bytes)
{
    recipe r;
    int status = bytes != NULL ? read_recipe(&r, shape, options, NULL) : H2OKV_E_INVALID;
    if (status == H2OKV_OK) {
        *bytes = r.bytes;
    }
    return status;
}

/* ---- Create and free ---------------------------------------------------------------------------------- */

static h2okv_store *place_store(unsigned char *block, const recipe *r)
{
    h2okv_store *store = (h2okv_store *)(void *)(block + r->at.store);
    store->shape = r->shape;
    store->options = r->options;
    if (r->options.allocator != NULL) {
        store->allocator = *r->options.allocator;
        store->options.allocator = &store->allocator;
    }
    store->bytes = r->at.layout.bytes;
    store->row_k = h2okv__row_bytes(r->shape.type_k, r->shape.head_dim);
    store->row_v = h2okv__row_bytes(r->shape.type_v, r->shape.head_dim);
    store->lanes = r->options.lanes;
    store->policy_flags = r->options.custom_policy->flags;
    store->part = (h2okv__part *)(void *)(block + r->at.part);
    store->next_pos = (int32_t *)(void *)(block + r->at.next_pos);
    store->n_appended = (uint32_t *)(void *)(block + r->at.n_appended);
    store->shape.isa = NULL; /* the caller's; not needed any more */
    return store;
}

static void place_attend(h2okv__attend_state *attend, unsigned char *block, const recipe *r)
{
    double weight = 1.0;
    attend->isa = r->isa;
    attend->call = r->attention;
    attend->cell = (uint32_t *)(void *)(block + r->at.cell);
    attend->pos = (int32_t *)(void *)(block + r->at.pos);
    attend->query_weight = (float *)(void *)(block + r->at.query_weight);
    attend->mass = (float *)(void *)(block + r->at.mass);
    attend->scratch = block + r->at.scratch;
    for (uint32_t i = r->shape.max_pass; i-- > 0;) { /* as h2okv_cache_observe has it */
        attend->query_weight[i] = (float)weight;
        weight *= r->options.decay;
    }
}

static void place_parts(h2okv_store *store, unsigned char *block, const recipe *r)
{
    uint32_t *free_cell = (uint32_t *)(void *)(block + r->at.free_cell);
    for (size_t i = 0; i < h2okv__n_parts(store); i++) {
        h2okv__part *part = &store->part[i];
        part->store = store;
        part->first_lane = (uint32_t)i * store->lanes;
        part->free_cell = free_cell + i * store->options.cells;
        part->k = block + r->at.kv + i * (r->at.k_bytes + r->at.v_bytes);
        part->v = part->k + r->at.k_bytes;
        h2okv__part_reset(part);
    }
}

/* A cache knows only its own lanes: an event of the store says which of all lanes it was. */
static void forward_event(void *user, const h2okv_event *event)
{
    const h2okv__part *part = user;
    h2okv_event own = *event;
    own.lane += part->first_lane;
    part->store->options.on_event(part->store->options.event_user, &own);
}

static int create_caches(h2okv_store *store, h2okv_error *error)
{
    h2okv_options options = store->options;
    int status = H2OKV_OK;
    if (options.on_event != NULL) {
        options.on_event = forward_event;
    }
    for (size_t i = 0; status == H2OKV_OK && i < h2okv__n_parts(store); i++) {
        options.event_user = &store->part[i];
        status = h2okv_cache_create(&store->part[i].cache, &options, error);
    }
    store->options.policy = NULL; /* the caller's; not needed any more */
    store->options.custom_policy = NULL;
    return status;
}

int h2okv_store_create(h2okv_store **out, const h2okv_shape *shape, const h2okv_options *options,
                       h2okv_error *error)
{
    recipe r;
    if (out == NULL) {
        return h2okv_error_set(error, H2OKV_E_INVALID, "out", "out is NULL: give the address of a pointer");
    }
    *out = NULL;
    int status = read_recipe(&r, shape, options, error);
    if (status != H2OKV_OK) {
        return status;
    }
    unsigned char *block = h2okv__alloc(r.options.allocator, r.at.layout.bytes);
    if (block == NULL) {
        return h2okv_error_set(error, H2OKV_E_NOMEM, "", "out of memory: the store needs %zu bytes", r.bytes);
    }
    h2okv_store *store = place_store(block, &r);
    place_parts(store, block, &r);
    if (r.isa != NULL) {
        place_attend(&store->attend, block, &r);
    }
    status = create_caches(store, error);
    if (status != H2OKV_OK) {
        h2okv_store_free(store);
        return status;
    }
    *out = store;
    return H2OKV_OK;
}

void h2okv_store_free(h2okv_store *store)
{
    if (store == NULL) {
        return;
    }
    for (size_t i = 0; i < h2okv__n_parts(store); i++) {
        h2okv_cache_free(store->part[i].cache);
    }
    h2okv_allocator allocator = store->allocator; /* it lies in the block that goes */
    h2okv__release(store->options.allocator != NULL ? &allocator : NULL, store, store->bytes);
}
