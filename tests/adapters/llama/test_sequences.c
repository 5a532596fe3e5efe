/*
 * test_sequences.c - several sequences in one context: each is what it would be alone, whatever the others do.
 */
#include "twins.h"

#include "support/rng.h"

#include <string.h>

enum { BUDGET = 40, RECENT = 12, UBATCH = 16, ROOM = 56 };

static struct llama_model *model;
static uint32_t attention; /* enum h2okv_llama_attention of this round */

static int open_model(void **state)
{
    if (synth_open(state) != 0) {
        return -1;
    }
    model = synth_model(&(synth_shape){
        .layers = 3, .query_heads = 4, .kv_heads = 2, .k_dim = 32, .v_dim = 32, .seed = 5, .spread = 0.5f,
        .nan_tensor = "token_embd.weight",
    });
    return 0;
}

static int close_model(void **state)
{
    llama_model_free(model);
    return synth_close(state);
}

static h2okv_llama_options options_of(const h2okv_options *cache, uint32_t lanes)
{
    h2okv_llama_options o;
    h2okv_llama_options_init(&o);
    o.cache = cache;
    o.lanes = lanes;
    o.ubatch = UBATCH;
    o.room = ROOM;
    o.attention = attention;
    return o;
}

/* ---- Anything in any order ---- */

static uint32_t some_length(rng *r)
{
    uint32_t kind = rng_below(r, 8);
    return kind < 4 ? 1 : kind < 6 ? rng_range(r, 2, UBATCH) : kind == 6 ? UBATCH : rng_range(r, 1, 5 * UBATCH);
}

static void decode_some(twins *t, rng *r)
{
    twins_op op[TWINS_MOST] = {0};
    uint32_t who = rng_range(r, 1, (1u << t->n) - 1), alike = rng_below(r, 2) == 0 ? some_length(r) : 0;
    for (uint32_t s = 0; s < t->n; s++) {
        uint32_t n = alike > 0 ? alike : some_length(r);
        op[s] = (twins_op){TWINS_DECODE, (who >> s & 1) != 0 ? n : 0, rng_next(r)};
    }
    twins_decode(t, op);
}

static void do_something(twins *t, rng *r)
{
    uint32_t seq = rng_below(r, t->n);
    switch (rng_below(r, 13)) {
    case 0:
        (void)twins_do(t, seq, (twins_op){TWINS_TRIM, rng_range(r, 1, RECENT), 0});
        break;
    case 1:
        (void)twins_do(t, seq, (twins_op){TWINS_TRIM, rng_range(r, 1, 2 * BUDGET), 0});
        break;
    case 2:
        (void)twins_do(t, seq, (twins_op){TWINS_CLEAR, 0, 0});
        break;
    case 3:
        (void)twins_do(t, seq, (twins_op){TWINS_PIN, rng_range(r, 1, 6), 0}); /* now and then too many: refused */
        break;
    case 4:
        (void)twins_do(t, seq, (twins_op){TWINS_BUDGET, rng_range(r, 30, ROOM), 0});
        break;
    case 5:
        (void)twins_do(t, seq, (twins_op){TWINS_GUIDED, rng_range(r, 1, 3 * UBATCH), rng_next(r)});
        break;
    case 6:
        twins_copy(t, seq, rng_below(r, t->n));
        break;
    default:
        decode_some(t, r);
    }
}

static void check_any_order(uint32_t lanes, uint32_t n, double decay, uint64_t seed)
{
    static twins t;
    h2okv_options cache = synth_cache_options(BUDGET, RECENT);
    cache.decay = decay;
    cache.sinks = 2;
    h2okv_llama_options options = options_of(&cache, lanes);
    twins_open(&t, model, &options, n);
    rng r = {seed};
    for (uint32_t step = 0; step < 150; step++) {
        do_something(&t, &r);
        twins_check(&t);
    }
    print_message("%u sequences, lanes %u: logits off by %g, scores by %g\n", n, lanes, t.worst_logit, t.worst_score);
    twins_close(&t);
}

static void test_any_order_lanes_by_head(void **state)
{
    (void)state;
    check_any_order(H2OKV_LANES_HEAD, 2, 1.0, 1);
    check_any_order(H2OKV_LANES_HEAD, 5, 0.99, 2);
}

static void test_any_order_lanes_by_layer(void **state)
{
    (void)state;
    check_any_order(H2OKV_LANES_LAYER, 3, 0.99, 3);
}

static void test_any_order_one_lane(void **state)
{
    (void)state;
    check_any_order(H2OKV_LANES_ALL, 4, 1.0, 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_any_order_lanes_by_head),
        cmocka_unit_test(test_any_order_lanes_by_layer),
        cmocka_unit_test(test_any_order_one_lane),
    };
    int failed = 0;
    const uint32_t modes[] = {H2OKV_ATTENTION_OBSERVE, H2OKV_ATTENTION_FUSED};
    for (size_t i = 0; i < 2; i++) {
        attention = modes[i];
        failed += cmocka_run_group_tests_name(i == 0 ? "observe" : "fused", tests, open_model, close_model);
    }
    return failed;
}
