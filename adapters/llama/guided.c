/*
 * guided.c - reading with a question in mind.
 *
 *   text   | chunk | chunk | chunk | ...
 *   pass 1 | chunk   guide |            guide: positions right behind the chunk; its queries alone make the scores
 *   pass 2         | chunk   guide |    between the passes it is cut off again, and the cache goes down to its budget
 */
#include "adapter.h"

#include <string.h>

enum { AUTO_CHUNK = 192, AUTO_RECENT = 16, SPREAD = 8 };

void h2okv_llama_guide_init_sized(h2okv_llama_guide *guide, uint32_t size)
{
    h2okv_llama_guide filled = {.size = size, .chunk = H2OKV_AUTO, .recent = H2OKV_AUTO, .spread = SPREAD};
    memset(guide, 0, size);
    memcpy(guide, &filled, size < sizeof filled ? size : sizeof filled);
}

static uint32_t least(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

static bool is_open(uint32_t value)
{
    return value == 0 || value == H2OKV_AUTO;
}

static int read_guide(h2okv_llama *h, const h2okv__sequence *s, h2okv_llama_guide *out,
                      const h2okv_llama_guide *given, uint32_t n_text)
{
    h2okv_llama_guide_init(out);
    int status = h2okv__read_struct(out, (uint32_t)sizeof *out, given, "guide", &h->error);
    if (status != H2OKV_OK) {
        return status;
    }
    if (out->tokens == NULL || out->n == 0 || out->n >= h->ubatch) {
        return h2okv__llama_fail(h, H2OKV_E_INVALID, "guide",
                                 "the guide has %u tokens: it must have at least 1, and fewer than ubatch, %u",
                                 out->tokens != NULL ? out->n : 0, h->ubatch);
    }
    if (out->n > (uint32_t)(INT32_MAX - 1 - s->next_pos) - n_text) {
        return h2okv__llama_fail(h, H2OKV_E_INVALID, "n", "n is %u: text and guide must end before position %d", n_text,
                                 INT32_MAX);
    }
    uint32_t room = h->ubatch - out->n;
    out->chunk = is_open(out->chunk) ? least(AUTO_CHUNK, room) : out->chunk;
    if (out->chunk > room) {
        return h2okv__llama_fail(h, H2OKV_E_INVALID, "chunk",
                                 "chunk is %u: with a guide of %u tokens it must be at most %u, or ubatch larger",
                                 out->chunk, out->n, room);
    }
    /* The cache's own fits beside sinks and pins, so that the less of the two does. */
    out->recent = is_open(out->recent) ? least(AUTO_RECENT, h2okv__options(s).recent) : out->recent;
    return h2okv__check_tokens(h, s, "guide", out->tokens, out->n);
}

/* The next pass over what is left of the text. As long as all fits there is nothing to decide, so the guide is left
 * out, but for the last chunk: its scores are those that later tokens start from. */
static h2okv__pass next_pass(const h2okv_llama *h, h2okv__sequence *s, const h2okv_llama_guide *guide, uint32_t left)
{
    uint32_t live = h2okv_cache_live(s->cache), budget = h2okv__options(s).budget;
    uint32_t fits = least(left > guide->chunk ? left - guide->chunk : 0, budget > live ? budget - live : 0);
    h2okv__pass pass = {.sequence = s, .n = least(fits, h->ubatch)};
    if (pass.n <= guide->chunk) {
        pass.n = least(left, guide->chunk);
        pass.probe = guide->tokens;
        pass.n_probe = guide->n;
        pass.spread = guide->spread;
    }
    return pass;
}

static int read_guided(h2okv_llama *h, h2okv__sequence *s, const llama_token *tokens, uint32_t n,
                       const h2okv_llama_guide *guide)
{
    int status = H2OKV_OK;
    for (uint32_t done = 0; done < n && status == H2OKV_OK;) {
        h2okv__pass pass = next_pass(h, s, guide, n - done);
        pass.text = tokens + done;
        done += pass.n;
        pass.last = done == n;
        status = h2okv__decode_passes(h, &pass, 1);
        status = status != H2OKV_OK ? status : h2okv__report_progress(h, done, n);
    }
    return status;
}

int h2okv_llama_seq_decode_guided(h2okv_llama *h, uint32_t seq, const llama_token *tokens, uint32_t n,
                                  const h2okv_llama_guide *given)
{
    h2okv__sequence *s;
    h2okv_llama_guide guide;
    h2okv__begin_decode(h);
    int status = h2okv__find_sequence(h, seq, &s);
    status = status != H2OKV_OK ? status : h2okv__check_tokens(h, s, "tokens", tokens, n);
    status = status != H2OKV_OK ? status : read_guide(h, s, &guide, given, n);
    if (status != H2OKV_OK) {
        return status;
    }
    if (!h->needs_scores) {
        h2okv_llama_input input = {.seq = seq, .n = n, .tokens = tokens};
        return h2okv_llama_decode_batch(h, &input, 1);
    }
    h2okv_options before = h2okv__options(s);
    status = h2okv__set_budget(h, s, before.budget, guide.recent);
    if (status == H2OKV_OK) {
        status = read_guided(h, s, tokens, n, &guide);
        (void)h2okv_cache_set_budget(s->cache, before.budget, before.recent, NULL);
    }
    return status;
}

int h2okv_llama_decode_guided(h2okv_llama *h, const llama_token *tokens, uint32_t n, const h2okv_llama_guide *given)
{
    return h2okv_llama_seq_decode_guided(h, 0, tokens, n, given);
}
