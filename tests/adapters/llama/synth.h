/*
 * synth.h - tiny random models made in memory, for shapes that no small real model has, and for hostile ones.
 *
 * A model is an architecture's name, a few sizes and further metadata; llama.cpp says which tensors it wants and
 * gets random ones, the same for the same seed on every machine. There is no vocabulary: tokens are numbers.
 */
#ifndef H2OKV_TEST_LLAMA_SYNTH_H
#define H2OKV_TEST_LLAMA_SYNTH_H

#include "h2okv/advanced.h"
#include "h2okv/llama.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

/* One number of metadata, "<architecture>.<suffix>"; a suffix that starts with "tokenizer." is the whole name. */
typedef struct synth_key {
    const char *suffix;
    enum synth_kind {
        SYNTH_U32 = 1,
        SYNTH_F32,
        SYNTH_BOOL,
        SYNTH_U32_PER_LAYER,
        SYNTH_HIDDEN_U32, /* given to the loader, but not part of the model's metadata */
    } kind;
    double value;
    uint32_t per_layer[4]; /* SYNTH_U32_PER_LAYER: of the first layers; 0 beyond */
} synth_key;

typedef struct synth_shape {
    const char *architecture; /* NULL: "llama" */
    uint32_t layers, query_heads, kv_heads;
    uint32_t k_dim, v_dim; /* of a head */
    uint32_t embd;         /* default 64 */
    float spread;          /* standard deviation of attention's logits, about; default 1.5 */
    bool still;            /* layers add nothing to what they get, so that every layer's queries and keys depend on
                              the token and its position only, whatever was evicted */
    const char *nan_tensor; /* this tensor gets a NaN as its first number */
    uint64_t seed;
    const synth_key *keys; /* up to one without a suffix; NULL: none */
} synth_shape;

enum { SYNTH_VOCAB = 97, SYNTH_FF = 32, SYNTH_MAX_LAYERS = 8 };
enum { SYNTH_NAN_TOKEN = 0 }; /* the token that a NaN at the head of "token_embd.weight" belongs to */

/* NULL when llama.cpp refuses it. The caller frees it by llama_model_free. */
struct llama_model *synth_try(const synth_shape *shape);
/* The same, but a refusal fails the test. */
struct llama_model *synth_model(const synth_shape *shape);

/* Three layers, two KV heads of four query heads; SYNTH_NAN_TOKEN holds a NaN. */
struct llama_model *synth_nan_model(float spread);

/* cmocka group set-up and tear-down; llama.cpp is silent from then on. */
int synth_open(void **state);
int synth_close(void **state);

/* n random tokens, never SYNTH_NAN_TOKEN. */
void synth_text(llama_token *out, uint32_t n, uint64_t seed);

/* One thread, no flash attention, `cells` cells. */
struct llama_context_params synth_params(uint32_t cells, uint32_t ubatch);
struct llama_context *synth_plain(struct llama_model *model, struct llama_context_params params);

h2okv_options synth_cache_options(uint32_t budget, uint32_t recent);
h2okv_llama *synth_adapter(struct llama_model *model, const h2okv_options *cache, uint32_t lanes, uint32_t ubatch);

/* Largest difference of the last token's logits, as a share of the largest logit; NaN counts as 1. The logit of
 * SYNTH_NAN_TOKEN is left out: embeddings are the output's weights too. */
double synth_logits_differ(struct llama_context *a, struct llama_context *b);
/* Every lane: same tokens, and scores to the last bit. */
bool synth_same_books(const h2okv_llama *a, const h2okv_llama *b);
/* llama.cpp holds as many tokens as the books, up to the position before the next. */
void synth_assert_books_match_engine(h2okv_llama *h);
/* A call's status is as expected, and the error that it left names the field and has the part in its text. */
void synth_assert_failed(const h2okv_llama *h, int status, int expected, const char *field, const char *part);
/* `recent` in effect. */
uint32_t synth_recent(const h2okv_llama *h);
/* Does the lane, of at most 256 tokens, hold the one at this position? */
bool synth_keeps(const h2okv_llama *h, uint32_t lane, int32_t wanted);

/* ggml's abort callback: breaks off at the call number `at`; 0: counts only. */
typedef struct synth_aborter {
    uint32_t calls, at;
} synth_aborter;
bool synth_abort_at(void *aborter);

#endif
