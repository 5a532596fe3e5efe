/*
 * 03_guided.c - a long text read with a question in mind, so that its answer is still there at the end though most of
 * the text is not. What differs from 01_llama.c is the call marked with *.
 *
 *   example_03_guided model.gguf file.txt "What the text should go on with" [threads]
 */
#include <h2okv/llama.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

int main(int argc, char **argv)
{
    static llama_token token[1 << 20], question[64];
    llama_log_set(only_errors, NULL);
    h2okv_llama_load_backends(NULL);
    struct llama_model *model = argc >= 4 ? llama_model_load_from_file(argv[1], llama_model_default_params()) : NULL;
    if (model == NULL) {
        fprintf(stderr, "usage: example_03_guided model.gguf file.txt \"question\" [threads]\n");
        return 2;
    }
    const struct llama_vocab *vocab = llama_model_get_vocab(model);
    int32_t n = read_tokens(vocab, argv[2], token, 1 << 20);
    int32_t asks = llama_tokenize(vocab, argv[3], (int32_t)strlen(argv[3]), question, 64, false, false);

    struct llama_context_params params = llama_context_default_params();
    params.n_threads = params.n_threads_batch = argc > 4 ? atoi(argv[4]) : 2; /* at most as many as there are cores */
    h2okv_options cache;
    h2okv_options_init(&cache);
    cache.budget = 256;
    h2okv_llama_options options;
    h2okv_llama_options_init(&options);
    options.cache = &cache;
    h2okv_llama *h;
    h2okv_error error;
    if (n <= 0 || asks <= 0 || h2okv_llama_create(&h, model, params, &options, &error) != H2OKV_OK) {
        fprintf(stderr, "%s\n", n <= 0 ? "no text" : asks <= 0 ? "no question, or a long one" : error.text);
        return 1;
    }
    h2okv_llama_guide guide;
    h2okv_llama_guide_init(&guide);
    guide.tokens = question;
    guide.n = (uint32_t)asks;
    struct llama_sampler *greedy = llama_sampler_init_greedy();
    int status = h2okv_llama_decode_guided(h, token, (uint32_t)n, &guide); /* * */
    status = status != H2OKV_OK ? status : h2okv_llama_decode(h, question, (uint32_t)asks);
    for (int i = 0; i < 12 && status == H2OKV_OK; i++) {
        char piece[64];
        llama_token next = llama_sampler_sample(greedy, h2okv_llama_context(h), -1);
        int32_t bytes = llama_token_to_piece(vocab, next, piece, sizeof piece, 0, false);
        fwrite(piece, 1, bytes > 0 ? (size_t)bytes : 0, stdout);
        status = h2okv_llama_decode(h, &next, 1);
    }
    printf("\n%d tokens read, %u kept\n", n, cache.budget);
    llama_sampler_free(greedy);
    h2okv_llama_free(h);
    llama_model_free(model);
    return status == H2OKV_OK ? 0 : 1;
}
