/*
 * watched.h - plain llama.cpp with a cache that holds the whole text, and a look at what it computes: every
 * query on every token before the softmax, and the K and V of every token.
 */
#ifndef H2OKV_TEST_LLAMA_WATCHED_H
#define H2OKV_TEST_LLAMA_WATCHED_H

#include "synth.h"

enum { WATCHED_MOST_PASS = 64 };

typedef struct watched_shape {
    uint32_t layers, query_heads, k_dim, v_dim;
    enum ggml_type type_k, type_v;
    uint32_t cells, ubatch;
} watched_shape;

/* Its address is llama.cpp's from open to close. */
typedef struct watched {
    watched_shape shape;
    struct llama_context *context;
    uint32_t cells;
    uint32_t n_kv, n_tokens;        /* of the last pass */
    float *logit[SYNTH_MAX_LAYERS]; /* [query_heads][n_tokens][n_kv]; a token's column is its position */
    struct ggml_tensor *k[SYNTH_MAX_LAYERS], *v[SYNTH_MAX_LAYERS];
} watched;

void watched_open(watched *w, struct llama_model *model, const watched_shape *shape);
void watched_close(watched *w);

/* One head's K ([k_dim]) and V ([v_dim]) of the token at `pos`, in the cache's own types. */
void watched_kv(const watched *w, uint32_t layer, uint32_t head, int32_t pos, unsigned char *k, unsigned char *v);

#endif
