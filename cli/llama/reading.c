/*
 * reading.c - how `h2okv run` reads its prompt.
 *
 *   pins -> room for the prompt -> the document, with its question in mind -> down to the budget -> the question
 *
 *   prompt  | document ......................... | question |     question: what --guide says, or nothing
 *           | guided passes                      | plain    |
 */
#include "generate.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_AUTO_GUIDE = 64 };

/* ---- The guide ---------------------------------------------------------------------------------------- */

/* The last tokens of the prompt that ask. */
static int count_asking(const generation *g, const cli_buffer *text, uint32_t *n)
{
    const char *paragraph = cli_last_paragraph(text->data, text->n);
    llama_token *tokens = NULL;
    int code = engine_tokenize_more(g->engine, paragraph, (size_t)(text->data + text->n - paragraph), &tokens, n);
    *n += g->n_behind;
    if (*n > MOST_AUTO_GUIDE) *n = MOST_AUTO_GUIDE;
    free(tokens);
    return code;
}

/* Tokens of the guide, in memory of the caller's; and how many of the prompt's last tokens it is. */
static int make_guide(const generation *g, const cli_buffer *text, h2okv_llama_guide *guide, llama_token **own,
                      uint32_t *asking)
{
    const cache_options *o = &g->options->cache;
    const char *words = g->options->guide_text;
    h2okv_llama_stats stats;
    int code = CLI_OK;
    h2okv_llama_get_stats(g->engine->h, &stats);
    *own = NULL;
    *asking = 0;
    h2okv_llama_guide_init(guide);
    engine_set_guide(guide, o);
    if (words) {
        code = engine_tokenize_more(g->engine, words, strlen(words), own, &guide->n);
        guide->tokens = *own;
        return code;
    }
    *asking = o->guide;
    if (o->guide == CACHE_AUTO) code = g->n_prompt > o->budget ? count_asking(g, text, asking) : (*asking = 0, CLI_OK);
    if (o->guide == CACHE_AUTO && *asking > stats.ubatch / 2) *asking = stats.ubatch / 2;
    if (*asking >= g->n_prompt) *asking = 0; /* there is nothing before it */
    guide->tokens = g->prompt + g->n_prompt - *asking;
    guide->n = *asking;
    return code;
}

/* ---- Passes ------------------------------------------------------------------------------------------- */

static int set_budget(generation *g, uint32_t budget, uint32_t recent)
{
    int status;
    if (g->options->cache.prompt_budget == 0) return CLI_OK;
    status = h2okv_llama_set_budget(g->engine->h, budget, recent);
    return status ? generation_failed(g, status) : generation_passed(g);
}

static int decode_guided(const engine *e, const llama_token *tokens, uint32_t n, const h2okv_llama_guide *guide)
{
    const engine_watch *watch = &e->watch;
    if (watch->guided) watch->guided(watch->user, guide->spread);
    return h2okv_llama_decode_guided(e->h, tokens, n, guide);
}

static int decode(generation *g, const llama_token *tokens, uint32_t n, const h2okv_llama_guide *guide)
{
    int status = cli_interrupted() ? H2OKV_E_STOPPED : H2OKV_OK;
    if (status) return generation_failed(g, status);
    if (n > 0 && guide) status = decode_guided(g->engine, tokens, n, guide);
    if (n > 0 && !guide) status = h2okv_llama_decode(g->engine->h, tokens, n);
    g->n_read += n;
    return status ? generation_failed(g, status) : CLI_OK;
}

int reading_decode(generation *g, const cli_buffer *text)
{
    const cache_options *o = &g->options->cache;
    h2okv_llama_guide guide;
    llama_token *own;
    uint32_t asking;
    int code = make_guide(g, text, &guide, &own, &asking);
    if (!code) code = engine_pin(g->engine, g->engine->h, o);
    if (!code) code = set_budget(g, o->prompt_budget, H2OKV_AUTO);
    if (!code) code = decode(g, g->prompt, g->n_prompt - asking, guide.n > 0 ? &guide : NULL);
    if (!code && g->stopped != STOP_INTERRUPT) code = set_budget(g, o->budget, o->recent);
    if (!code && g->stopped != STOP_INTERRUPT) code = decode(g, g->prompt + g->n_prompt - asking, asking, NULL);
    g->n_guide = guide.n;
    free(own);
    return code;
}
