/*
 * test_fused.c - fused mode against observe mode on the real model: the same choices where the inputs are the same,
 * the same quality where roundings differ, for every cache type; and its options.
 */
#include "fixture.h"

#include <math.h>
#include <string.h>

enum { N = FIXTURE_TOKENS, BUDGET = 400, UBATCH = 112, KV_HEADS = 3 };

static h2okv_llama *make(uint32_t attention, enum ggml_type type, const char *isa)
{
    h2okv_options cache = fixture_options("h2o", BUDGET, BUDGET / 2);
    cache.sinks = 4;
    h2okv_llama_options options;
    h2okv_llama_options_init(&options);
    options.cache = &cache;
    options.ubatch = UBATCH;
    options.attention = attention;
    options.isa = isa;
    struct llama_context_params params = fixture_params();
    params.type_k = params.type_v = type;
    h2okv_llama *h = NULL;
    h2okv_error error = {0};
    if (h2okv_llama_create(&h, fixture_model, params, &options, &error) != H2OKV_OK) {
        fail_msg("create: %s", error.text);
    }
    return h;
}

/* ---- Choices ---- */

/* Scores of a lane by position; NAN for tokens that are gone. */
static void scores_by_position(const h2okv_llama *h, uint32_t lane, double out[N])
{
    int32_t pos[BUDGET];
    double score[BUDGET];
    uint32_t n = h2okv_cache_kept(h2okv_llama_cache(h), lane, pos, score, NULL);
    for (uint32_t i = 0; i < N; i++) {
        out[i] = NAN;
    }
    for (uint32_t k = 0; k < n; k++) {
        out[pos[k]] = score[k];
    }
}

/* Lowest score among the tokens that could have gone: what a token kept only by one mode must be close to. */
static double threshold(const double score[N], int32_t next_pos)
{
    double lowest = INFINITY;
    for (int32_t i = 4; i < next_pos - BUDGET / 2; i++) {
        lowest = score[i] < lowest ? score[i] : lowest;
    }
    return lowest;
}

/* Layer 0 sees the same queries and keys in both modes, so it must choose alike, but for near ties. */
static uint32_t compare_lane(const h2okv_llama *observe, const h2okv_llama *fused, uint32_t lane)
{
    static double a[N], b[N];
    uint32_t near_ties = 0;
    int32_t next = h2okv_llama_next_pos(observe);
    scores_by_position(observe, lane, a);
    scores_by_position(fused, lane, b);
    double limit_a = threshold(a, next), limit_b = threshold(b, next);
    for (int32_t i = 0; i < next; i++) {
        if (isnan(a[i]) != isnan(b[i])) {
            double kept = isnan(a[i]) ? b[i] : a[i], limit = isnan(a[i]) ? limit_b : limit_a;
            near_ties++;
            if (fabs(kept - limit) > 2e-3 * limit) {
                fail_msg("lane %u: position %d is kept by one mode only, with %g over %g", lane, i, kept, limit);
            }
        } else if (!isnan(a[i]) && fabs(a[i] - b[i]) > 2e-3 * fabs(a[i]) + 1e-6) {
            fail_msg("lane %u: position %d has score %.9g and %.9g", lane, i, a[i], b[i]);
        }
    }
    return near_ties;
}

static void test_layer_0_chooses_alike_in_both_modes(void **state)
{
    (void)state;
    h2okv_llama *observe = make(H2OKV_ATTENTION_OBSERVE, GGML_TYPE_F16, NULL);
    h2okv_llama *fused = make(H2OKV_ATTENTION_FUSED, GGML_TYPE_F16, NULL);
    uint32_t near_ties = 0;
    for (uint32_t done = 0, n; done < 1000; done += n) {
        n = done < 896 ? UBATCH : 1;
        assert_int_equal(h2okv_llama_decode(observe, fixture_token + done, n), H2OKV_OK);
        assert_int_equal(h2okv_llama_decode(fused, fixture_token + done, n), H2OKV_OK);
        for (uint32_t lane = 0; done + n > BUDGET && lane < KV_HEADS; lane++) {
            near_ties += compare_lane(observe, fused, lane);
        }
    }
    print_message("near ties: %u\n", near_ties);
    h2okv_llama_free(observe);
    h2okv_llama_free(fused);
}

/* ---- Quality ---- */

typedef struct surprise {
    double sum;
    uint32_t n;
} surprise;

/* Negative log likelihood of each next token of the text's second half. */
static void add_surprise(void *user, uint32_t index, const float *logits)
{
    surprise *s = user;
    if (index < N / 2 || index + 1 >= N) {
        return;
    }
    double max = logits[0], sum = 0.0;
    for (int i = 1; i < fixture_n_vocab; i++) {
        max = logits[i] > max ? logits[i] : max;
    }
    for (int i = 0; i < fixture_n_vocab; i++) {
        sum += exp(logits[i] - max);
    }
    s->sum -= logits[fixture_token[index + 1]] - max - log(sum);
    s->n++;
}

static double perplexity(uint32_t attention, enum ggml_type type)
{
    h2okv_llama *h = make(attention, type, NULL);
    surprise s = {0};
    assert_int_equal(h2okv_llama_decode_each(h, fixture_token, N, add_surprise, &s), H2OKV_OK);
    h2okv_llama_free(h);
    return exp(s.sum / s.n);
}

static void test_perplexity_agrees(void **state)
{
    (void)state;
    double observe = perplexity(H2OKV_ATTENTION_OBSERVE, GGML_TYPE_F16);
    double fused = perplexity(H2OKV_ATTENTION_FUSED, GGML_TYPE_F16);
    double q8_0 = perplexity(H2OKV_ATTENTION_FUSED, GGML_TYPE_Q8_0);
    print_message("perplexity: observe %.4f, fused %.4f, fused with q8_0 %.4f\n", observe, fused, q8_0);
    assert_true(fabs(fused / observe - 1.0) < 0.005);
    assert_true(fabs(q8_0 / observe - 1.0) < 0.01);
}

/* ---- Options ---- */

static void test_auto_is_fused_here(void **state)
{
    (void)state;
    h2okv_llama *h = make(H2OKV_ATTENTION_AUTO, GGML_TYPE_F16, NULL);
    h2okv_llama_stats stats;
    h2okv_llama_get_stats(h, &stats);
    assert_string_equal(stats.isa, h2okv_isa_best());
    assert_null(stats.not_fused);
    h2okv_llama_free(h);
}

static void test_isa_is_used_or_refused(void **state)
{
    (void)state;
    h2okv_llama *h = make(H2OKV_ATTENTION_FUSED, GGML_TYPE_F16, "scalar");
    h2okv_llama_stats stats;
    h2okv_llama_get_stats(h, &stats);
    assert_string_equal(stats.isa, "scalar");
    assert_int_equal(h2okv_llama_decode(h, fixture_token, 8), H2OKV_OK);
    h2okv_llama_free(h);

    h2okv_llama_options options;
    h2okv_llama_options_init(&options);
    options.isa = "z80";
    h2okv_error error = {0};
    assert_int_equal(h2okv_llama_create(&h, fixture_model, fixture_params(), &options, &error), H2OKV_E_INVALID);
    assert_null(h);
    assert_string_equal(error.field, "isa");
    assert_non_null(strstr(error.text, "z80"));
    options.attention = H2OKV_ATTENTION_OBSERVE; /* not even there does a name pass that means nothing */
    assert_int_equal(h2okv_llama_create(&h, fixture_model, fixture_params(), &options, &error), H2OKV_E_INVALID);
    assert_string_equal(error.field, "isa");

    options.attention = H2OKV_ATTENTION_AUTO; /* one that cannot run here is no reason to observe in silence */
    for (uint32_t i = 0; (options.isa = h2okv_isa_name(i)) != NULL; i++) {
        if (!h2okv_isa_usable(options.isa)) {
            assert_int_equal(h2okv_llama_create(&h, fixture_model, fixture_params(), &options, &error),
                             H2OKV_E_UNSUPPORTED);
            assert_string_equal(error.field, "isa");
        }
    }
}

static void test_unsupported_type_falls_back_or_is_refused(void **state)
{
    (void)state;
    h2okv_llama_options options;
    h2okv_llama_options_init(&options);
    struct llama_context_params params = fixture_params();
    params.type_k = GGML_TYPE_Q4_0;
    h2okv_llama *h = NULL;
    h2okv_error error = {0};
    assert_int_equal(h2okv_llama_create(&h, fixture_model, params, &options, &error), H2OKV_OK);
    h2okv_llama_stats stats;
    h2okv_llama_get_stats(h, &stats);
    assert_null(stats.isa);
    assert_non_null(strstr(stats.not_fused, "type"));
    assert_int_equal(h2okv_llama_decode(h, fixture_token, 8), H2OKV_OK);
    h2okv_llama_free(h);

    options.attention = H2OKV_ATTENTION_FUSED;
    assert_int_equal(h2okv_llama_create(&h, fixture_model, params, &options, &error), H2OKV_E_UNSUPPORTED);
    assert_string_equal(error.field, "attention");
    options.attention = 9;
    assert_int_equal(h2okv_llama_create(&h, fixture_model, params, &options, &error), H2OKV_E_INVALID);
    assert_string_equal(error.field, "attention");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_layer_0_chooses_alike_in_both_modes),
        cmocka_unit_test(test_perplexity_agrees),
        cmocka_unit_test(test_auto_is_fused_here),
        cmocka_unit_test(test_isa_is_used_or_refused),
        cmocka_unit_test(test_unsupported_type_falls_back_or_is_refused),
    };
    return cmocka_run_group_tests(tests, fixture_open, fixture_close);
}
