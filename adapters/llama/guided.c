/*
 * guided.c - reading with a question in mind, and what a caller changes between decodes: the budget, and pins.
 *
 *   text   | chunk | chunk | chunk | ...
 *   pass 1 | chunk   guide |            guide: positions right behind the chunk; its queries alone make the scores
 *   pass 2         | chunk   guide |    between the passes it is cut off again, and the cache goes down to its budget
 */
#include "adapter.h"

#include <string.h>

void h2okv_llama_guide_init_sized(h2okv_llama_guide *guide, uint32_t size)
{
    h2okv_llama_guide filled = {.size = size, .chunk = H2OKV_AUTO, .recent = H2OKV_AUTO, .pool = H2OKV_AUTO};
    memset(guide, 0, size);
    memcpy(guide, &filled, size < sizeof filled ? size : sizeof filled);
}

enum { AUTO_CHUNK = 64, AUTO_RECENT = 32, AUTO_POOL = 8 };

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
    out->pool = out->pool == H2OKV_AUTO ? AUTO_POOL : out->pool;
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
        status = h2okv__decode_pass(h, &pass);
        status = status != H2OKV_OK ? status : h2okv__report_progress(h, done, n);
    }
    return status;
}

static int set_budget(h2okv_llama *h, h2okv__sequence *s, uint32_t budget, uint32_t recent)
{
    h2okv_error error;
    int status = h2okv_cache_set_budget(s->cache, budget, recent, &error);
    return status == H2OKV_OK ? status : h2okv__llama_fail(h, status, error.field, "%s", error.text);
}

int h2okv_llama_decode_guided(h2okv_llama *h, const llama_token *tokens, uint32_t n, const h2okv_llama_guide *given)
{
    h2okv__sequence *s = &h->sequence[0];
    h2okv_llama_guide guide;
    int status = h2okv__check_tokens(h, s, "tokens", tokens, n);
    status = status != H2OKV_OK ? status : read_guide(h, s, &guide, given, n);
    if (status == H2OKV_OK && !h->needs_scores) {
        return h2okv_llama_decode(h, tokens, n);
    }
    h2okv_options before = h2okv__options(s);
    status = status != H2OKV_OK ? status : set_budget(h, s, before.budget, guide.recent);
    if (status == H2OKV_OK) {
        h2okv_cache_set_pool(s->cache, guide.pool);
        status = read_guided(h, s, tokens, n, &guide);
        h2okv_cache_set_pool(s->cache, before.pool);
        if (status == H2OKV_OK) {
            (void)h2okv_cache_spread(s->cache, guide.pool);
        }
        (void)h2okv_cache_set_budget(s->cache, before.budget, before.recent, NULL);
    }
    return status;
}

int h2okv_llama_set_budget(h2okv_llama *h, uint32_t budget, uint32_t recent)
{
    h2okv__sequence *s = &h->sequence[0];
    int status = h2okv__check_handle(h, s);
    if (status == H2OKV_OK && budget > h->room) {
        return h2okv__llama_fail(h, H2OKV_E_INVALID, "budget",
                                 "budget is %u: there is room for %u, or give options.room more", budget, h->room);
    }
    h2okv_options before = h2okv__options(s);
    status = status != H2OKV_OK ? status : set_budget(h, s, budget, recent);
    if (status != H2OKV_OK) {
        return status;
    }
    status = h2okv__options(s).recent > 0
                 ? h2okv__evict(h, s)
                 : h2okv__llama_fail(h, H2OKV_E_INVALID, "recent",
                                     "recent is 0: llama.cpp needs the newest token, so keep at least one");
    if (status != H2OKV_OK) {
        (void)h2okv_cache_set_budget(s->cache, before.budget, before.recent, NULL);
    }
    return status;
}

int h2okv_llama_pin(h2okv_llama *h, int32_t first, int32_t end)
{
    h2okv__sequence *s = &h->sequence[0];
    int status = h2okv__check_handle(h, s);
    h2okv_error error;
    if (status == H2OKV_OK && h2okv_cache_pin(s->cache, first, end, &error) != H2OKV_OK) {
        return h2okv__llama_fail(h, error.status, error.field, "%s", error.text);
    }
    return status;
}
