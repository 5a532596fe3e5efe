/* options.c - a caller's options, read, completed and checked before llama.cpp is asked for anything. */
#include "adapter.h"

#include <string.h>

enum { CELLS_STEP = 256, LEAST_AUTO_UBATCH = 128 }; /* llama.cpp computes attention over whole steps */

void h2okv_llama_options_init_sized(h2okv_llama_options *options, uint32_t size)
{
    h2okv_llama_options filled = {.size = size, .lanes = H2OKV_LANES_HEAD, .ubatch = H2OKV_AUTO, .sequences = 1};
    memset(options, 0, size);
    memcpy(options, &filled, size < sizeof filled ? size : sizeof filled);
}

int h2okv__read_struct(void *known, uint32_t known_size, const void *given, const char *field, h2okv_error *error)
{
    uint32_t size = 0;
    if (given != NULL) {
        memcpy(&size, given, sizeof size);
    }
    if (size < sizeof size) {
        return h2okv_error_set(error, H2OKV_E_INVALID, field,
                               "options are missing or have size %u: call their _init function first", size);
    }
    const unsigned char *bytes = given;
    for (uint32_t i = known_size; i < size; i++) {
        if (bytes[i] != 0) {
            return h2okv_error_set(error, H2OKV_E_INVALID, field,
                                   "options of %u bytes use a field that this library (%s) does not have", size,
                                   H2OKV_VERSION);
        }
    }
    memcpy(known, given, size < known_size ? size : known_size);
    memcpy(known, &known_size, sizeof known_size);
    return H2OKV_OK;
}

static int read_structs(h2okv_llama_options *out, h2okv_options *cache, const h2okv_llama_options *given,
                        h2okv_error *error)
{
    h2okv_llama_options_init(out);
    h2okv_options_init(cache);
    cache->budget = 512;
    int status = h2okv__read_struct(out, (uint32_t)sizeof *out, given, "size", error);
    bool has_cache = status == H2OKV_OK && out->cache != NULL;
    return has_cache ? h2okv__read_struct(cache, (uint32_t)sizeof *cache, out->cache, "cache", error) : status;
}

static int check_names(const h2okv_llama_options *o, const h2okv_options *cache, h2okv_error *error)
{
    if (o->lanes > H2OKV_LANES_ALL) {
        return h2okv_error_set(error, H2OKV_E_INVALID, "lanes", "lanes is %u: use one of enum h2okv_llama_lanes",
                               o->lanes);
    }
    if (o->attention > H2OKV_ATTENTION_OBSERVE) {
        return h2okv_error_set(error, H2OKV_E_INVALID, "attention",
                               "attention is %u: use one of enum h2okv_llama_attention", o->attention);
    }
    if (cache->lanes != 1 || cache->cells != 0 || cache->parts != 1) {
        return h2okv_error_set(error, H2OKV_E_INVALID, "cache",
                               "lanes, cells and parts of the cache options are the adapter's: leave them unset");
    }
    return H2OKV_OK;
}

/* Least ubatch from 128 up that makes room + ubatch a multiple of the step. */
static uint32_t auto_ubatch(uint32_t room)
{
    uint32_t cells = (room + LEAST_AUTO_UBATCH + CELLS_STEP - 1) / CELLS_STEP * CELLS_STEP;
    return cells - room;
}

static int check_sequences(h2okv_llama_options *o, uint32_t cells, h2okv_error *error)
{
    uint32_t most = (uint32_t)llama_max_parallel_sequences();
    o->sequences = o->sequences == 0 ? 1 : o->sequences;
    if (o->sequences > most) {
        return h2okv_error_set(error, H2OKV_E_INVALID, "sequences", "sequences is %u: llama.cpp has at most %u",
                               o->sequences, most);
    }
    if (o->sequences > 1 && cells > INT32_MAX / 2 / o->sequences) {
        return h2okv_error_set(error, H2OKV_E_INVALID, "sequences",
                               "sequences is %u: of %u cells each, together over %d", o->sequences, cells,
                               INT32_MAX / 2);
    }
    return H2OKV_OK;
}

static int check_sizes(h2okv_llama_options *o, h2okv_options *cache, h2okv_error *error)
{
    if (cache->budget == 0 || cache->budget > INT32_MAX / 2) {
        return h2okv_error_set(error, H2OKV_E_INVALID, "budget", "budget is %u: it must be from 1 to %d",
                               cache->budget, INT32_MAX / 2);
    }
    o->room = o->room == 0 ? cache->budget : o->room;
    if (o->room < cache->budget || o->room > INT32_MAX / 2) {
        return h2okv_error_set(error, H2OKV_E_INVALID, "room", "room is %u: it must be from the budget, %u, to %d",
                               o->room, cache->budget, INT32_MAX / 2);
    }
    o->ubatch = o->ubatch == H2OKV_AUTO ? auto_ubatch(o->room) : o->ubatch;
    if (o->ubatch == 0 || o->ubatch > INT32_MAX / 2) {
        return h2okv_error_set(error, H2OKV_E_INVALID, "ubatch", "ubatch is %u: it must be from 1 to %d", o->ubatch,
                               INT32_MAX / 2);
    }
    cache->cells = o->room + o->ubatch;
    return check_sequences(o, cache->cells, error);
}

/* The cache's own demands, with the number of cells that there will be at least; and one more of ours. */
static int check_cache(const h2okv_options *cache, h2okv_error *error)
{
    h2okv_options resolved;
    int status = h2okv_options_resolve(cache, &resolved, error);
    if (status == H2OKV_OK && resolved.recent == 0) {
        return h2okv_error_set(error, H2OKV_E_INVALID, "recent",
                               "recent is 0: llama.cpp needs the newest token, so keep at least one");
    }
    return status;
}

/* Asked of the kernels themselves, whatever mode it will be: that one was wanted must not pass in silence. */
static int check_isa(const char *isa, h2okv_error *error)
{
    h2okv_attention smallest = {.kv_heads = 1, .group = 1, .queries = 1, .k_dim = 32, .v_dim = 32, .n_cells = 1};
    h2okv_kernels *kernels = NULL;
    int status = isa != NULL ? h2okv_kernels_create(&kernels, &smallest, 1, isa, NULL, error) : H2OKV_OK;
    h2okv_kernels_free(kernels);
    return status;
}

int h2okv__llama_options_read(h2okv_llama_options *out, h2okv_options *cache, const h2okv_llama_options *given,
                              h2okv_error *error)
{
    int status = read_structs(out, cache, given, error);
    status = status != H2OKV_OK ? status : check_names(out, cache, error);
    status = status != H2OKV_OK ? status : check_sizes(out, cache, error);
    status = status != H2OKV_OK ? status : check_cache(cache, error);
    return status != H2OKV_OK ? status : check_isa(out->isa, error);
}
