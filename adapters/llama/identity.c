/*
 * identity.c - which model a session belongs to, as one number.
 *
 *   sum of   name, sizes, metadata of the file, vocabulary, the norms' weights, samples of the token embedding
 *
 * llama.cpp gives no access to a model's tensors, but the probe pass shows those that its graph reads. Norms are in
 * every layer and small, and they and the token embedding are held by every backend as the file has them, while
 * matrices may be packed in another way on each machine. Two models that agree in all of this are taken for one: an
 * adapter merged into the matrices alone, in a file with the same metadata, goes unnoticed.
 */
#include "adapter.h"

#include <string.h>

static uint64_t hash_text(uint64_t sum, const char *text)
{
    return h2okv_checksum(sum, text, strlen(text) + 1); /* with the end, so that "ab" "c" is not "a" "bc" */
}

static uint64_t hash_number(uint64_t sum, uint64_t value)
{
    unsigned char bytes[8];
    for (unsigned i = 0; i < sizeof bytes; i++) {
        bytes[i] = (unsigned char)(value >> (8 * i));
    }
    return h2okv_checksum(sum, bytes, sizeof bytes);
}

static bool ends_in(const char *name, const char *end)
{
    size_t length = strlen(name), tail = strlen(end);
    return length > tail && strcmp(name + length - tail, end) == 0;
}

enum { PIECE = 1024, MOST_PIECES = 64 };

/* Pieces from all over it, of which a small one is made up. */
static uint64_t hash_tensor(const struct ggml_tensor *tensor)
{
    uint64_t sum = hash_text(H2OKV_CHECKSUM_START, tensor->name);
    unsigned char piece[PIECE];
    size_t bytes = ggml_nbytes(tensor), all = (bytes + PIECE - 1) / PIECE, n = all < MOST_PIECES ? all : MOST_PIECES;
    for (size_t i = 0; i < n; i++) {
        size_t at = all * i / n * PIECE, some = bytes - at < PIECE ? bytes - at : PIECE;
        ggml_backend_tensor_get(tensor, piece, at, some);
        sum = h2okv_checksum(sum, piece, some);
    }
    return sum;
}

/* Added up, so that the graph's order makes no difference. */
void h2okv__learn_weights(h2okv_llama *h, const struct ggml_tensor *node)
{
    for (int i = 0; i < GGML_MAX_SRC && node->src[i] != NULL; i++) {
        const struct ggml_tensor *weight = node->src[i];
        bool norm = weight->type == GGML_TYPE_F32 && ggml_nelements(weight) == weight->ne[0] &&
                    ends_in(weight->name, "norm.weight");
        bool embedding = node->op == GGML_OP_GET_ROWS && strcmp(weight->name, "token_embd.weight") == 0;
        if (weight->op == GGML_OP_NONE && (norm || embedding)) {
            h->weights_sum += hash_tensor(weight);
        }
    }
}

/* llama.cpp lists the entries in no order. */
static uint64_t hash_metadata(const struct llama_model *model)
{
    uint64_t all = 0;
    char text[8192];
    for (int32_t i = 0; i < llama_model_meta_count(model); i++) {
        uint64_t sum = H2OKV_CHECKSUM_START;
        if (llama_model_meta_key_by_index(model, i, text, sizeof text) >= 0) {
            sum = hash_text(sum, text);
        }
        if (llama_model_meta_val_str_by_index(model, i, text, sizeof text) >= 0) {
            sum = hash_text(sum, text);
        }
        all += sum;
    }
    return all;
}

static uint64_t hash_vocabulary(const struct llama_model *model)
{
    const struct llama_vocab *vocab = llama_model_get_vocab(model);
    bool has_texts = llama_vocab_type(vocab) != LLAMA_VOCAB_TYPE_NONE; /* else asking for one ends the process */
    uint64_t sum = hash_number(H2OKV_CHECKSUM_START, (uint64_t)llama_vocab_n_tokens(vocab));
    for (llama_token t = 0; has_texts && t < llama_vocab_n_tokens(vocab); t++) {
        const char *text = llama_vocab_get_text(vocab, t);
        sum = hash_text(sum, text != NULL ? text : "");
    }
    return sum;
}

uint64_t h2okv__model_identity(const h2okv_llama *h)
{
    char description[128];
    llama_model_desc(h->model, description, sizeof description);
    uint64_t sum = hash_text(H2OKV_CHECKSUM_START, description);
    sum = hash_number(sum, llama_model_n_params(h->model));
    sum = hash_number(sum, llama_model_size(h->model));
    sum = hash_number(sum, hash_metadata(h->model));
    sum = hash_number(sum, hash_vocabulary(h->model));
    return hash_number(sum, h->weights_sum);
}
