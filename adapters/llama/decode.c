/*
 * decode.c - the tokens of each sequence become passes of at most ubatch tokens, as they would be without the others:
 *
 *   sequence 0   | ubatch | ubatch | 5 |        round 1: 0 alone, then 1 and 2 together; round 2: 0 and 3 ...
 *   sequence 1   | 1 |
 *   sequence 2   | 1 |
 *
 * A round has the next pass of every sequence that has tokens left; those of equal length go to llama.cpp together.
 */
#include "adapter.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* ---- Failures ---- */

int h2okv__llama_fail(h2okv_llama *h, int status, const char *field, const char *format, ...)
{
    char text[sizeof h->error.text];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    return h2okv_error_set(&h->error, status, field, "%s", text);
}

int h2okv__sequence_fail(h2okv_llama *h, const h2okv__sequence *s, int status, const char *field, const char *format,
                         ...)
{
    char text[sizeof h->error.text];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    if (h->n_sequences > 1) {
        return h2okv_error_set(&h->error, status, field, "sequence %u: %s", s->id, text);
    }
    return h2okv_error_set(&h->error, status, field, "%s", text);
}

/* ---- Checks ---- */

int h2okv__find_sequence(h2okv_llama *h, uint32_t seq, h2okv__sequence **out)
{
    *out = seq < h->n_sequences ? &h->sequence[seq] : NULL;
    if (*out != NULL) {
        return H2OKV_OK;
    }
    return h2okv__llama_fail(h, H2OKV_E_INVALID, "seq", "seq is %u: there are sequences 0 to %u", seq,
                             h->n_sequences - 1);
}

int h2okv__check_handle(h2okv_llama *h, const h2okv__sequence *s)
{
    if (h->broken) {
        return h2okv__llama_fail(h, H2OKV_E_BROKEN, "handle", "an earlier call failed for good: free this handle");
    }
    return h2okv__check_engine(h, s);
}

int h2okv__check_tokens(h2okv_llama *h, const h2okv__sequence *s, const char *field, const llama_token *tokens,
                        uint32_t n)
{
    int status = h2okv__check_handle(h, s);
    if (status != H2OKV_OK) {
        return status;
    }
    if (n == 0 || n > (uint32_t)(INT32_MAX - 1 - s->next_pos)) {
        return h2okv__sequence_fail(h, s, H2OKV_E_INVALID, "n",
                                    "n is %u: give at least one token, and end before position %d", n, INT32_MAX);
    }
    if (tokens == NULL) {
        return h2okv__sequence_fail(h, s, H2OKV_E_INVALID, field, "%s: there are none, but n is %u", field, n);
    }
    int32_t n_vocab = llama_vocab_n_tokens(llama_model_get_vocab(h->model));
    for (uint32_t i = 0; i < n; i++) {
        if (tokens[i] < 0 || tokens[i] >= n_vocab) {
            return h2okv__sequence_fail(h, s, H2OKV_E_INVALID, field,
                                        "%s: token %u is %d: the vocabulary has 0 to %d", field, i, tokens[i],
                                        n_vocab - 1);
        }
    }
    return H2OKV_OK;
}

int h2okv__report_progress(h2okv_llama *h, uint32_t done, uint32_t total)
{
    if (h->on_pass == NULL || h->on_pass(h->on_pass_user, done, total)) {
        return H2OKV_OK;
    }
    return h2okv__llama_fail(h, H2OKV_E_STOPPED, "progress", "stopped after %u of %u tokens", done, total);
}

/* ---- Rounds ---- */

void h2okv__begin_decode(h2okv_llama *h)
{
    for (uint32_t i = 0; i < h->n_sequences; i++) {
        h->sequence[i].input = NULL;
        h->sequence[i].logits_row = -1;
        h->sequence[i].has_logits = false;
    }
}

/* Every input to its sequence, and how many tokens there are; nothing has changed when one of them will not do. */
static int take_inputs(h2okv_llama *h, const h2okv_llama_input *inputs, uint32_t n_inputs, uint32_t *total)
{
    uint64_t sum = 0;
    int status = n_inputs > 0 ? H2OKV_OK
                              : h2okv__llama_fail(h, H2OKV_E_INVALID, "n_inputs", "n_inputs is 0: give one at least");
    for (uint32_t i = 0; i < n_inputs && status == H2OKV_OK; i++) {
        h2okv__sequence *s;
        status = h2okv__find_sequence(h, inputs[i].seq, &s);
        if (status == H2OKV_OK && s->input != NULL) {
            return h2okv__llama_fail(h, H2OKV_E_INVALID, "seq", "seq is %u twice: give a sequence one input",
                                     inputs[i].seq);
        }
        status = status != H2OKV_OK ? status : h2okv__check_tokens(h, s, "tokens", inputs[i].tokens, inputs[i].n);
        if (status == H2OKV_OK) {
            s->input = &inputs[i];
            s->done = 0;
            sum += inputs[i].n;
        }
    }
    *total = (uint32_t)sum;
    return status == H2OKV_OK && sum > UINT32_MAX
               ? h2okv__llama_fail(h, H2OKV_E_INVALID, "n", "the inputs have over %u tokens together", UINT32_MAX)
               : status;
}

/* The next pass of a sequence that has tokens left. */
static h2okv__pass next_pass(const h2okv_llama *h, h2okv__sequence *s)
{
    const h2okv_llama_input *input = s->input;
    uint32_t left = input->n - s->done;
    h2okv__pass pass = {
        .sequence = s, .text = input->tokens + s->done, .on_logits = input->on_logits, .user = input->user,
        .index = s->done, .n = left < h->ubatch ? left : h->ubatch,
    };
    pass.last = pass.n == left;
    return pass;
}

/* How many of the passes, from the first on, one llama_decode can do. */
static uint32_t together(const h2okv_llama *h, const h2okv__pass *pass, uint32_t n)
{
    uint32_t most = h->most_tokens / pass[0].n, count = 1;
    while (count < n && count < most && pass[count].n == pass[0].n &&
           pass[count].sequence->id == pass[0].sequence->id + count) {
        count++;
    }
    return count;
}

static int do_round(h2okv_llama *h, uint32_t *done, uint32_t total)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < h->n_sequences; i++) {
        h2okv__sequence *s = &h->sequence[i];
        if (s->input != NULL && s->done < s->input->n) {
            h->round[n++] = next_pass(h, s);
        }
    }
    int status = H2OKV_OK;
    for (uint32_t i = 0, count; i < n && status == H2OKV_OK; i += count) {
        const h2okv__pass *pass = &h->round[i];
        count = together(h, pass, n - i);
        status = h2okv__decode_passes(h, pass, count);
        for (uint32_t p = 0; p < count && status == H2OKV_OK; p++) {
            pass[p].sequence->done += pass[p].n;
            *done += pass[p].n;
        }
        status = status != H2OKV_OK ? status : h2okv__report_progress(h, *done, total);
    }
    return status;
}

int h2okv_llama_decode_batch(h2okv_llama *h, const h2okv_llama_input *inputs, uint32_t n_inputs)
{
    uint32_t total = 0, done = 0;
    h2okv__begin_decode(h);
    int status = take_inputs(h, inputs, n_inputs, &total);
    while (status == H2OKV_OK && done < total) {
        status = do_round(h, &done, total);
    }
    return status;
}

int h2okv_llama_decode(h2okv_llama *h, const llama_token *tokens, uint32_t n)
{
    return h2okv_llama_decode_each(h, tokens, n, NULL, NULL);
}

int h2okv_llama_decode_each(h2okv_llama *h, const llama_token *tokens, uint32_t n, h2okv_llama_on_logits on_logits,
                            void *user)
{
    h2okv_llama_input input = {.seq = 0, .n = n, .tokens = tokens, .on_logits = on_logits, .user = user};
    return h2okv_llama_decode_batch(h, &input, 1);
}

const float *h2okv_llama_logits(const h2okv_llama *h, uint32_t seq)
{
    if (seq >= h->n_sequences || !h->sequence[seq].has_logits) {
        return NULL;
    }
    const h2okv__sequence *s = &h->sequence[seq];
    return s->logits_row >= 0 ? llama_get_logits_ith(h->context, s->logits_row) : s->logits;
}

void h2okv_llama_set_progress(h2okv_llama *h, h2okv_llama_on_pass on_pass, void *user)
{
    h->on_pass = on_pass;
    h->on_pass_user = user;
}
