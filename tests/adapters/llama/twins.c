/* twins.c - see twins.h. */
#include "twins.h"

#include "adapter.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_TOKENS = 512, MOST_KEPT = 1024, GUIDE = 5, MOST_DIM = 256 };

static h2okv_llama *make(struct llama_model *model, const h2okv_llama_options *options, uint32_t sequences)
{
    h2okv_llama_options o = *options;
    o.sequences = sequences;
    h2okv_llama *h = NULL;
    h2okv_error error = {0};
    if (h2okv_llama_create(&h, model, synth_params(0, 0), &o, &error) != H2OKV_OK) {
        fail_msg("create: %s", error.text);
    }
    return h;
}

void twins_open(twins *t, struct llama_model *model, const h2okv_llama_options *options, uint32_t n)
{
    memset(t, 0, sizeof *t);
    t->n = n;
    t->h = make(model, options, n);
    for (uint32_t s = 0; s < n; s++) {
        t->alone[s] = make(model, options, 1);
    }
}

void twins_close(twins *t)
{
    h2okv_llama_free(t->h);
    for (uint32_t s = 0; s < t->n; s++) {
        h2okv_llama_free(t->alone[s]);
    }
}

/* ---- Doing ---- */

static int do_guided(h2okv_llama *h, uint32_t seq, const llama_token *text, uint32_t n)
{
    llama_token question[GUIDE];
    synth_text(question, GUIDE, 77);
    h2okv_llama_guide guide;
    h2okv_llama_guide_init(&guide);
    guide.tokens = question;
    guide.n = GUIDE;
    return h2okv_llama_seq_decode_guided(h, seq, text, n, &guide);
}

static int do_to(h2okv_llama *h, uint32_t seq, twins_op op, uint32_t *n_lost)
{
    llama_token text[MOST_TOKENS];
    int32_t next = h2okv_llama_seq_next_pos(h, seq), n = (int32_t)op.n;
    assert_true(op.n <= MOST_TOKENS);
    synth_text(text, op.n, op.seed);
    switch (op.kind) {
    case TWINS_DECODE:
        return h2okv_llama_decode_batch(h, &(h2okv_llama_input){.seq = seq, .n = op.n, .tokens = text}, 1);
    case TWINS_GUIDED:
        return do_guided(h, seq, text, op.n);
    case TWINS_TRIM:
        return h2okv_llama_seq_trim(h, seq, next > n ? next - n : 0, n_lost);
    case TWINS_CLEAR:
        return h2okv_llama_seq_clear(h, seq);
    case TWINS_PIN:
        return h2okv_llama_seq_pin(h, seq, next, next + n);
    default:
        return h2okv_llama_seq_set_budget(h, seq, op.n, H2OKV_AUTO);
    }
}

static void note(twins *t, uint32_t seq, twins_op op)
{
    assert_true(t->n_log[seq] < TWINS_LOG);
    t->log[seq][t->n_log[seq]++] = op;
    t->n_log[seq] = op.kind == TWINS_CLEAR ? 0 : t->n_log[seq];
}

int twins_do(twins *t, uint32_t seq, twins_op op)
{
    uint32_t lost = 0, lost_alone = 0;
    int status = do_to(t->h, seq, op, &lost);
    assert_int_equal(do_to(t->alone[seq], 0, op, &lost_alone), status);
    assert_int_equal(lost, lost_alone);
    if (status == H2OKV_OK) {
        note(t, seq, op);
    } else {
        assert_string_equal(h2okv_llama_last_error(t->h)->field, h2okv_llama_last_error(t->alone[seq])->field);
    }
    return status;
}

/* Logits of the last tokens, as a share of the largest. */
static void check_logits(twins *t, uint32_t seq)
{
    const float *a = h2okv_llama_logits(t->h, seq), *b = h2okv_llama_logits(t->alone[seq], 0);
    double size = 0.0, most = 0.0;
    assert_true(a != NULL && b != NULL);
    for (uint32_t i = SYNTH_NAN_TOKEN + 1; i < SYNTH_VOCAB; i++) {
        size = fmax(size, fabs((double)b[i]));
        most = fmax(most, fabs((double)a[i] - (double)b[i]));
    }
    t->worst_logit = fmax(t->worst_logit, most / size);
    if (!(most <= 1e-3 * size)) {
        fail_msg("sequence %u: logits differ by %g of %g", seq, most, size);
    }
}

void twins_decode(twins *t, const twins_op *op)
{
    static llama_token text[TWINS_MOST][MOST_TOKENS];
    h2okv_llama_input input[TWINS_MOST];
    uint32_t n = 0;
    for (uint32_t s = 0; s < t->n; s++) {
        if (op[s].n > 0) {
            synth_text(text[s], op[s].n, op[s].seed);
            input[n++] = (h2okv_llama_input){.seq = s, .n = op[s].n, .tokens = text[s]};
        }
    }
    int status = n > 0 ? h2okv_llama_decode_batch(t->h, input, n) : H2OKV_OK;
    if (status != H2OKV_OK) {
        fail_msg("decode_batch: %d, %s", status, h2okv_llama_last_error(t->h)->text);
    }
    for (uint32_t s = 0; s < t->n; s++) {
        if (op[s].n > 0) {
            uint32_t lost;
            assert_int_equal(do_to(t->alone[s], 0, op[s], &lost), H2OKV_OK);
            note(t, s, op[s]);
            check_logits(t, s);
        } else if (n > 0) {
            assert_null(h2okv_llama_logits(t->h, s));
        }
    }
}

void twins_copy(twins *t, uint32_t from, uint32_t to)
{
    assert_int_equal(h2okv_llama_seq_copy(t->h, from, to), H2OKV_OK);
    if (from == to) {
        return;
    }
    h2okv_llama_clear(t->alone[to]);
    memcpy(t->log[to], t->log[from], sizeof t->log[to]);
    t->n_log[to] = t->n_log[from];
    for (uint32_t i = 0; i < t->n_log[to]; i++) {
        uint32_t lost;
        assert_int_equal(do_to(t->alone[to], 0, t->log[to][i], &lost), H2OKV_OK);
    }
}

/* ---- Comparing ---- */

/* Two rows of f16: the same but for their last bits. */
static bool near_rows(const ggml_fp16_t *a, const ggml_fp16_t *b, uint32_t n)
{
    float size = 0.0f, most = 0.0f;
    for (uint32_t i = 0; i < n; i++) {
        float x = ggml_fp16_to_fp32(a[i]), y = ggml_fp16_to_fp32(b[i]);
        size = fmaxf(size, fabsf(y));
        most = fmaxf(most, isnan(x - y) ? INFINITY : fabsf(x - y));
    }
    return most <= 2e-3f * size;
}

static void check_rows(twins *t, uint32_t seq, uint32_t layer, uint32_t head, uint32_t cell, uint32_t alone_cell)
{
    ggml_fp16_t k[MOST_DIM], v[MOST_DIM], right_k[MOST_DIM], right_v[MOST_DIM];
    h2okv__read_kv(t->h, seq, layer, head, cell, k, v);
    h2okv__read_kv(t->alone[seq], 0, layer, head, alone_cell, right_k, right_v);
    if (!near_rows(k, right_k, t->h->layer[layer].k_dim) || !near_rows(v, right_v, t->h->layer[layer].v_dim)) {
        fail_msg("sequence %u, layer %u, head %u: cell %u does not hold what cell %u does alone", seq, layer, head, cell,
                 alone_cell);
    }
}

static void check_head(twins *t, uint32_t seq, uint32_t layer, uint32_t head)
{
    static int32_t pos[MOST_KEPT], alone_pos[MOST_KEPT];
    static double score[MOST_KEPT], alone_score[MOST_KEPT];
    static uint32_t cell[MOST_KEPT], alone_cell[MOST_KEPT];
    uint32_t lane = h2okv_llama_lane(t->h, layer, head);
    uint32_t n = h2okv_cache_kept(h2okv_llama_seq_cache(t->h, seq), lane, pos, score, cell);
    assert_int_equal(h2okv_cache_kept(h2okv_llama_cache(t->alone[seq]), lane, alone_pos, alone_score, alone_cell), n);
    for (uint32_t i = 0; i < n; i++) {
        if (pos[i] != alone_pos[i]) {
            fail_msg("sequence %u, lane %u keeps %d instead of %d", seq, lane, pos[i], alone_pos[i]);
        }
        double gap = fabs(score[i] - alone_score[i]) / fmax(alone_score[i], 1e-3);
        t->worst_score = fmax(t->worst_score, gap);
        if (!(gap <= 1e-3)) {
            fail_msg("sequence %u, lane %u: position %d has score %.9g instead of %.9g", seq, lane, pos[i], score[i],
                     alone_score[i]);
        }
        check_rows(t, seq, layer, head, cell[i], alone_cell[i]);
    }
}

static void check_engine(twins *t, uint32_t seq)
{
    llama_memory_t memory = llama_get_memory(h2okv_llama_context(t->h));
    int32_t oldest = llama_memory_seq_pos_min(memory, (llama_seq_id)seq);
    int32_t newest = llama_memory_seq_pos_max(memory, (llama_seq_id)seq);
    assert_int_equal(newest < 0 ? 0 : newest - oldest + 1, h2okv_cache_live(h2okv_llama_seq_cache(t->h, seq)));
    assert_true(newest < 0 || newest + 1 == h2okv_llama_seq_next_pos(t->h, seq));
}

void twins_check(twins *t)
{
    for (uint32_t s = 0; s < t->n; s++) {
        h2okv_llama_stats stats, alone;
        assert_int_equal(h2okv_llama_seq_get_stats(t->h, s, &stats), H2OKV_OK);
        h2okv_llama_get_stats(t->alone[s], &alone);
        assert_int_equal(h2okv_llama_seq_next_pos(t->h, s), h2okv_llama_next_pos(t->alone[s]));
        assert_true(stats.cache.peak_live >= alone.cache.peak_live); /* more when a pass failed and was made again */
        stats.cache.peak_live = alone.cache.peak_live;
        assert_memory_equal(&stats.cache, &alone.cache, sizeof stats.cache);
        assert_int_equal(stats.budget, alone.budget);
        check_engine(t, s);
        for (uint32_t layer = 0; layer < stats.layers; layer++) {
            for (uint32_t head = 0; head < t->h->layer[layer].kv_heads; head++) {
                check_head(t, s, layer, head);
            }
        }
    }
}
