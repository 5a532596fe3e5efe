/*
 * 02_owned_store.c - a first look at the owned store: six tokens go in, four may stay.
 *
 * Each token brings a key and a value, and says how much attention its query paid to the tokens before it.
 * The store keeps the two newest tokens and, of the others, the two that drew the most: the heavy hitters.
 */
#include <h2okv/h2okv.h>
#include <stdio.h>

enum { HEADS = 1, HEAD_DIM = 2, RECENT = 2, HEAVY = 2, TOKENS = 6 };

static const char *const words[TOKENS] = {"Ada", "was", "born", "in", "London", "."};

/* What a token's query pays the i-th word: names draw more than the rest. A model would compute this. */
static float attention(int32_t word)
{
    return word == 0 ? 0.6f : word == 4 ? 0.3f : 0.05f;
}

static void show(const h2okv_store *store)
{
    int32_t positions[RECENT + HEAVY];
    double scores[RECENT + HEAVY];
    float keys[HEADS * (RECENT + HEAVY) * HEAD_DIM];
    uint32_t size = h2okv_store_size(store, 0);
    h2okv_store_positions(store, 0, 0, positions);
    h2okv_store_scores(store, 0, 0, scores);
    h2okv_store_keys(store, 0, 0, keys);
    printf("%u tokens:", size);
    for (uint32_t i = 0; i < size; i++) {
        printf("  %s (score %.2f, key %g)", words[positions[i]], scores[i], (double)keys[i * HEAD_DIM]);
    }
    printf("\n");
}

int main(void)
{
    h2okv_store *store;
    h2okv_shape shape;
    h2okv_options options;
    h2okv_error error;

    h2okv_shape_init(&shape);
    shape.heads = HEADS;
    shape.head_dim = HEAD_DIM;
    h2okv_options_init(&options);
    options.budget = RECENT + HEAVY;
    options.recent = RECENT;
    if (h2okv_store_create(&store, &shape, &options, &error) != H2OKV_OK) {
        fprintf(stderr, "%s\n", error.text);
        return 1;
    }
    for (int32_t token = 0; token < TOKENS; token++) {
        const float key[HEAD_DIM] = {(float)token, 0.0f}, value[HEAD_DIM] = {1.0f, 2.0f};
        int32_t positions[RECENT + HEAVY];
        float weights[RECENT + HEAVY]; /* one for each token that is still there, by rising position */
        uint32_t size = h2okv_store_size(store, 0);
        h2okv_store_positions(store, 0, 0, positions);
        for (uint32_t i = 0; i < size; i++) {
            weights[i] = attention(positions[i]);
        }
        int status = h2okv_store_update(store, 0, key, value, weights);
        if (status != H2OKV_OK) {
            fprintf(stderr, "update: %s\n", h2okv_strerror(status));
            h2okv_store_free(store);
            return 1;
        }
        show(store);
    }
    h2okv_store_free(store);
    return 0;
}
