/*
 * 01_llama.c - a text of any length through llama.cpp in 768 cells: what changes in a program that calls
 * llama_decode is the two calls marked with *.
 *
 *   example_01_llama model.gguf file.txt [threads]
 */
#include <h2okv/llama.h>

#include <stdio.h>
#include <stdlib.h>

static void only_errors(enum ggml_log_level level, const char *text, void *user)
{
    (void)user;
    if (level == GGML_LOG_LEVEL_ERROR) {
        fputs(text, stderr);
    }
}

static int32_t read_tokens(const struct llama_vocab *vocab, const char *path, llama_token *out, int32_t max)
{
    static char text[1 << 20];
    FILE *file = fopen(path, "rb");
    size_t bytes = file != NULL ? fread(text, 1, sizeof text, file) : 0;
    if (file != NULL) {
        fclose(file);
    }
    return llama_tokenize(vocab, text, (int32_t)bytes, out, max, true, false);
}

static void print_piece(const struct llama_vocab *vocab, llama_token token)
{
    char piece[64];
    int32_t n = llama_token_to_piece(vocab, token, piece, sizeof piece, 0, false);
    fwrite(piece, 1, n > 0 ? (size_t)n : 0, stdout);
}

int main(int argc, char **argv)
{
    static llama_token token[1 << 20];
    llama_log_set(only_errors, NULL);
    h2okv_llama_load_backends(NULL);
    struct llama_model *model =
        argc >= 3 ? llama_model_load_from_file(argv[1], llama_model_default_params()) : NULL;
    if (model == NULL) {
        fprintf(stderr, "usage: example_01_llama model.gguf file.txt [threads]\n");
        return 2;
    }
    const struct llama_vocab *vocab = llama_model_get_vocab(model);
    int32_t n = read_tokens(vocab, argv[2], token, 1 << 20);

    struct llama_context_params params = llama_context_default_params();
    params.n_threads = params.n_threads_batch = argc > 3 ? atoi(argv[3]) : 2; /* at most as many as there are cores */
    h2okv_llama_options options;
    h2okv_llama_options_init(&options);
    h2okv_llama *h;
    h2okv_error error;
    if (n <= 0 || h2okv_llama_create(&h, model, params, &options, &error) != H2OKV_OK) { /* * */
        fprintf(stderr, "%s\n", n <= 0 ? "no text" : error.text);
        return 1;
    }
    struct llama_sampler *greedy = llama_sampler_init_greedy();
    int status = h2okv_llama_decode(h, token, (uint32_t)n); /* * */
    for (int i = 0; i < 32 && status == H2OKV_OK; i++) {
        llama_token next = llama_sampler_sample(greedy, h2okv_llama_context(h), -1);
        print_piece(vocab, next);
        status = h2okv_llama_decode(h, &next, 1);
    }
    h2okv_llama_stats stats;
    h2okv_llama_get_stats(h, &stats);
    printf("\n%d tokens read, %u cells used at most, %.1f MiB of K and V\n", n, stats.cache.peak_live,
           (double)stats.kv_bytes / 1048576.0);
    llama_sampler_free(greedy);
    h2okv_llama_free(h);
    llama_model_free(model);
    return status == H2OKV_OK ? 0 : 1;
}
