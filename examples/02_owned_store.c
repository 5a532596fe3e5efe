/*
 * 02_owned_store.c - an engine's decoder loop on the owned store: 28 words are read, 8 may stay.
 *
 * The toy model has one layer and one head. Number 0 of a word's key says how much it is worth looking at, and each
 * query asks for that. A value holds a 1 at its word's own number, so that attention's output shows where it looked.
 * A prompt of ten words comes first, in one pass; then word by word, as when a model writes.
 */
#include <h2okv/h2okv.h>
#include <stdio.h>

enum { HEAD_DIM = 32, WORDS = 28, PROMPT = 10, RECENT = 4, HEAVY = 4, BUDGET = RECENT + HEAVY };

static const char *const words[WORDS] = {
    "The", "countess", "Lovelace", "met", "Babbage", "at", "a", "party", "when", "she", "was", "seventeen", ".", "He",
    "had", "drawn", "an", "Engine", "of", "brass", "and", "she", "saw", "what", "it", "might", "one", "day"};

/* What a layer computes for n words, the first of them at pos: [n][HEAD_DIM] each, zero before. */
static void project(int32_t pos, uint32_t n, float *q, float *k, float *v)
{
    for (uint32_t i = 0; i < n; i++, pos++) {
        int is_name = pos > 0 && words[pos][0] >= 'A' && words[pos][0] <= 'Z';
        q[i * HEAD_DIM] = 4.0f;
        k[i * HEAD_DIM] = is_name ? 3.0f : 0.0f;
        v[i * HEAD_DIM + (uint32_t)pos] = 1.0f;
    }
}

/* One pass through the layer; after it the store is within its budget again. */
static int pass(h2okv_store *store, uint32_t n, float *out)
{
    float q[PROMPT * HEAD_DIM] = {0}, k[PROMPT * HEAD_DIM] = {0}, v[PROMPT * HEAD_DIM] = {0};
    project(h2okv_store_next_pos(store, 0), n, q, k, v);
    int status = h2okv_store_append(store, 0, n, k, v);
    return status != H2OKV_OK ? status : h2okv_store_attend(store, 0, q, out);
}

static void show(const h2okv_store *store, const float *out)
{
    uint32_t size = h2okv_store_size(store, 0), most = 0;
    int32_t pos[BUDGET];
    double score[BUDGET];
    h2okv_store_positions(store, 0, 0, pos);
    h2okv_store_scores(store, 0, 0, score);
    for (uint32_t i = 1; i < WORDS; i++) {
        most = out[i] > out[most] ? i : most;
    }
    printf("%9s looks most at %-8s %2.0f %%   kept, with scores: ", words[pos[size - 1]], words[most],
           100.0 * (double)out[most]);
    for (uint32_t i = 0; i < size; i++) {
        printf("%s%s %.1f", i == 0 ? "" : i + RECENT == size ? " | " : ", ", words[pos[i]], score[i]);
    }
    printf("\n");
}

int main(void)
{
    h2okv_store *store;
    h2okv_shape shape;
    h2okv_options options;
    h2okv_error error;
    float out[PROMPT * HEAD_DIM]; /* of a pass: [n][HEAD_DIM] */

    h2okv_shape_init(&shape);
    shape.heads = 1;
    shape.head_dim = HEAD_DIM;
    shape.max_pass = PROMPT;
    h2okv_options_init(&options);
    options.budget = BUDGET;
    options.recent = RECENT;
    options.decay = 0.9; /* what drew attention long ago only makes room */
    int status = h2okv_store_create(&store, &shape, &options, &error);
    for (uint32_t seen = 0, n = PROMPT; status == H2OKV_OK && seen < WORDS; seen += n, n = 1) {
        status = pass(store, n, out);
        if (status == H2OKV_OK) show(store, out + (n - 1) * HEAD_DIM);
    }
    if (status != H2OKV_OK) fprintf(stderr, "%s\n", store == NULL ? error.text : h2okv_strerror(status));
    h2okv_store_free(store);
    return status != H2OKV_OK;
}
