/*
 * 04_sequences.c - a text is read once, then several beginnings of what might follow it go on side by side, each in a
 * sequence of its own, decoded together (*).
 *
 *   example_04_sequences model.gguf file.txt threads "To sum up," "The author wants" ...
 */
#include <h2okv/llama.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 8, NEW = 12 };

static void only_errors(enum ggml_log_level level, const char *text, void *user)
{
    (void)user;
    if (level == GGML_LOG_LEVEL_ERROR) {
        fputs(text, stderr);
    }
}

static llama_token most_likely(const float *logits, int32_t n)
{
    llama_token best = 0;
    for (llama_token i = 1; i < n; i++) {
        best = logits[i] > logits[best] ? i : best;
    }
    return best;
}

int main(int argc, char **argv)
{
    static char text[1 << 20];
    static llama_token token[1 << 20], begin[MOST][64], said[MOST][NEW];
    llama_log_set(only_errors, NULL);
    h2okv_llama_load_backends(NULL);
    FILE *file = argc >= 5 && argc - 4 <= MOST ? fopen(argv[2], "rb") : NULL;
    struct llama_model *model = file != NULL ? llama_model_load_from_file(argv[1], llama_model_default_params()) : NULL;
    if (model == NULL) {
        fprintf(stderr, "usage: example_04_sequences model.gguf file.txt threads \"beginning\" ... (up to %d)\n", MOST);
        return 2;
    }
    const struct llama_vocab *vocab = llama_model_get_vocab(model);
    int32_t bytes = (int32_t)fread(text, 1, sizeof text, file), n_vocab = llama_vocab_n_tokens(vocab);
    int32_t n = llama_tokenize(vocab, text, bytes, token, 1 << 20, true, false);
    fclose(file);

    struct llama_context_params params = llama_context_default_params();
    params.n_threads = params.n_threads_batch = atoi(argv[3]); /* at most as many as there are cores */
    h2okv_llama_options options;
    h2okv_llama_options_init(&options);
    options.sequences = (uint32_t)argc - 4; /* * */
    h2okv_llama *h;
    h2okv_error error;
    int status = h2okv_llama_create(&h, model, params, &options, &error);
    status = status != H2OKV_OK ? status : h2okv_llama_decode(h, token, (uint32_t)n); /* into sequence 0 */
    h2okv_llama_input input[MOST];
    for (uint32_t s = 0; s < options.sequences && status == H2OKV_OK; s++) {
        status = h2okv_llama_seq_copy(h, 0, s); /* * */
        n = llama_tokenize(vocab, argv[4 + s], (int32_t)strlen(argv[4 + s]), begin[s], 64, false, false);
        input[s] = (h2okv_llama_input){.seq = s, .n = n > 0 ? (uint32_t)n : 0, .tokens = begin[s]};
    }
    for (uint32_t i = 0; i < NEW && status == H2OKV_OK; i++) {
        status = h2okv_llama_decode_batch(h, input, options.sequences); /* * */
        for (uint32_t s = 0; s < options.sequences && status == H2OKV_OK; s++) {
            said[s][i] = most_likely(h2okv_llama_logits(h, s), n_vocab); /* * */
            input[s] = (h2okv_llama_input){.seq = s, .n = 1, .tokens = &said[s][i]};
        }
    }
    for (uint32_t s = 0; s < options.sequences && status == H2OKV_OK; s++) {
        int32_t length = llama_detokenize(vocab, said[s], NEW, text, sizeof text, false, false);
        printf("%u: %s%.*s\n", s, argv[4 + s], (int)length, text);
    }
    fputs(status == H2OKV_OK ? "" : h != NULL ? h2okv_llama_last_error(h)->text : error.text, stderr);
    h2okv_llama_free(h);
    llama_model_free(model);
    return status != H2OKV_OK;
}
