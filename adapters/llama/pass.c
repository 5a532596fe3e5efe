/*
 * pass.c - one llama_decode: a pass of one sequence, or of several neighbours with equally many tokens each, so that
 * llama.cpp computes it as one graph (its split_equal takes rising numbers without a gap, and as many tokens of each).
 *
 *   batch   | sequence 2: a b c | sequence 3: d e f |      positions from each one's next_pos on
 *   then    observe all -> plan all -> apply all           until the last plan is made nothing has happened
 */
#include "adapter.h"

#include <string.h>

void h2okv__add_to_batch(h2okv_llama *h, const h2okv__sequence *s, llama_token token, int32_t pos, bool logits)
{
    int32_t i = h->batch.n_tokens++;
    h->batch.token[i] = token;
    h->batch.pos[i] = pos;
    h->batch.n_seq_id[i] = 1;
    h->batch.seq_id[i][0] = (llama_seq_id)s->id;
    h->batch.logits[i] = logits;
}

/* The text, and behind it the probe, if any. */
static void fill_part(h2okv_llama *h, const h2okv__pass *pass)
{
    int32_t pos = pass->sequence->next_pos;
    for (uint32_t i = 0; i < pass->n; i++) {
        bool logits = pass->on_logits != NULL || (pass->last && i + 1 == pass->n);
        h2okv__add_to_batch(h, pass->sequence, pass->text[i], pos++, logits);
    }
    for (uint32_t i = 0; i < pass->n_probe; i++) {
        h2okv__add_to_batch(h, pass->sequence, pass->probe[i], pos++, false);
    }
}

size_t h2okv__logits_bytes(const h2okv_llama *h)
{
    return (size_t)llama_vocab_n_tokens(llama_model_get_vocab(h->model)) * sizeof(float);
}

void h2okv__save_logits(h2okv_llama *h)
{
    for (uint32_t i = 0; i < h->n_sequences; i++) {
        h2okv__sequence *s = &h->sequence[i];
        if (s->logits_row >= 0 && s->logits != NULL) {
            memcpy(s->logits, llama_get_logits_ith(h->context, s->logits_row), h2okv__logits_bytes(h));
        }
        s->logits_row = -1;
    }
}

static void begin(h2okv_llama *h, const h2okv__pass *pass, uint32_t n)
{
    h2okv__save_logits(h);
    h->pass = pass;
    h->n_pass = n;
    h->pass_tokens = pass[0].n + pass[0].n_probe;
    h->pass_probe = pass[0].n_probe;
    h->pass_spread = pass[0].spread;
    h->pass_admitted = false;
    h->pass_status = H2OKV_OK;
    h->pass_bookkeeping_us = 0;
    h->layers_attended = 0;
    h->batch.n_tokens = 0;
    for (uint32_t i = 0; i < n; i++) {
        fill_part(h, &pass[i]);
    }
    if (h->fused) {
        h2okv__weigh_queries(h);
    }
}

/* llama_decode, and for how long. The tap keeps books meanwhile, for a time that is not llama.cpp's. */
static int decode_timed(h2okv_llama *h)
{
    int64_t start = llama_time_us();
    h->tap_mode = H2OKV__TAP_PASS;
    int result = llama_decode(h->context, h->batch);
    llama_synchronize(h->context);
    h->tap_mode = H2OKV__TAP_OFF;
    for (uint32_t i = 0; i < h->n_pass; i++) {
        h->pass[i].sequence->engine_us += (uint64_t)(llama_time_us() - start) - h->pass_bookkeeping_us;
    }
    return result;
}

static int observe_timed(h2okv_llama *h)
{
    int64_t start = llama_time_us();
    int status = H2OKV_OK;
    for (uint32_t i = 0; i < h->n_pass && status == H2OKV_OK; i++) {
        status = h2okv__observe_fused(h, h->pass[i].sequence);
    }
    h->pass_bookkeeping_us += (uint64_t)(llama_time_us() - start);
    return status;
}

static int run(h2okv_llama *h)
{
    int result = decode_timed(h);
    if (h->pass_status != H2OKV_OK) {
        return h->pass_status;
    }
    if (result != 0) {
        return h2okv__sequence_fail(h, h->pass[0].sequence, H2OKV_E_ENGINE, "decode",
                                    "llama.cpp failed to decode %u tokens at position %d (%d)", h->pass_tokens,
                                    h->pass[0].sequence->next_pos, result);
    }
    if (!h->pass_admitted) {
        return h2okv__llama_fail(h, H2OKV_E_ENGINE, "decode", "llama.cpp did not show where it put the tokens");
    }
    return h->fused ? observe_timed(h) : H2OKV_OK;
}

/* The probe goes first: then the books are over the budget by the text alone. That is committed, so that a policy whose
 * rank fails afterwards gets the text cut off again, and leaves scores that are the probe's. */
static int drop_probe_and_evict(h2okv_llama *h)
{
    h2okv__sequence *s = h->pass->sequence;
    int32_t n = (int32_t)h->pass->n;
    s->next_pos += n;
    int status = h2okv__cut(h, s, s->next_pos, NULL);
    if (status == H2OKV_OK) {
        status = h2okv__evict(h, s);
        if (status != H2OKV_OK && !h->broken) {
            (void)h2okv__cut(h, s, s->next_pos - n, NULL);
        }
    }
    s->next_pos -= status != H2OKV_OK ? n : 0;
    return status;
}

/* Plans may fail, and then no sequence has changed. */
static int evict_all(h2okv_llama *h)
{
    int status = H2OKV_OK;
    for (uint32_t i = 0; i < h->n_pass && status == H2OKV_OK; i++) {
        status = h2okv__plan_eviction(h, h->pass[i].sequence);
    }
    for (uint32_t i = 0; i < h->n_pass && status == H2OKV_OK; i++) {
        h->pass[i].sequence->next_pos += (int32_t)h->pass[i].n;
        status = h2okv__apply_eviction(h, h->pass[i].sequence);
    }
    return status;
}

static int evict_timed(h2okv_llama *h)
{
    int64_t start = llama_time_us();
    int status = h->pass_probe > 0 ? drop_probe_and_evict(h) : evict_all(h);
    h->pass_bookkeeping_us += (uint64_t)(llama_time_us() - start);
    return status;
}

/* The pass did not come off: books and llama.cpp become as they were before it. */
static int abandon(h2okv_llama *h, int status)
{
    h2okv_error first = h->error;
    for (uint32_t i = 0; i < h->n_pass && !h->broken; i++) {
        (void)h2okv__abandon(h, h->pass[i].sequence);
    }
    if (h->broken) {
        return h->error.status;
    }
    h->error = first;
    return status;
}

/* Rows of the context's logits are those of the batch. */
static void give_logits(h2okv_llama *h)
{
    for (uint32_t i = 0, row = 0; i < h->n_pass; i++, row += h->pass_tokens) {
        const h2okv__pass *pass = &h->pass[i];
        for (uint32_t t = 0; pass->on_logits != NULL && t < pass->n; t++) {
            pass->on_logits(pass->user, pass->index + t, llama_get_logits_ith(h->context, (int32_t)(row + t)));
        }
        if (pass->last) {
            pass->sequence->logits_row = (int32_t)(row + pass->n - 1);
            pass->sequence->has_logits = true;
        }
    }
}

int h2okv__decode_passes(h2okv_llama *h, const h2okv__pass *pass, uint32_t n)
{
    begin(h, pass, n);
    int status = run(h);
    status = status != H2OKV_OK ? status : evict_timed(h);
    for (uint32_t i = 0; i < n; i++) {
        pass[i].sequence->bookkeeping_us += h->pass_bookkeeping_us;
    }
    if (status != H2OKV_OK) {
        return abandon(h, status);
    }
    give_logits(h);
    return H2OKV_OK;
}
