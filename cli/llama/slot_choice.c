/*
 * slot_choice.c - which token comes next, and how likely it was.
 *
 *   logits -> chain (top_p, temperature, chance) -> is it in the grammar? -> the token
 *                 ^---------------- the grammar's tokens alone ------------ no
 *
 * A grammar is slow on a whole vocabulary, so it is asked about one token first.
 */
#include "slots.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static bool out_of_memory(slot_refusal *why)
{
    return slot_refuse(why, 500, NULL, "out of memory for the choice of tokens");
}

static struct llama_sampler *make_chain(const serve_request *r, uint32_t seed)
{
    struct llama_sampler *chain = llama_sampler_chain_init(llama_sampler_chain_default_params());
    if (!chain) return NULL;
    if (r->top_p < 1) llama_sampler_chain_add(chain, llama_sampler_init_top_p((float)r->top_p, 1));
    llama_sampler_chain_add(chain, llama_sampler_init_temp((float)r->temperature));
    llama_sampler_chain_add(chain, llama_sampler_init_dist(r->has_seed ? r->seed : seed));
    return chain;
}

bool choice_start(slot_choice *c, const serve_request *r, uint32_t seed, const struct llama_vocab *vocab,
                  slot_refusal *why)
{
    *c = (slot_choice){ 0 };
    if (!engine_is_cold(r->temperature)) {
        c->chain = make_chain(r, seed);
        if (!c->chain) return out_of_memory(why);
    }
    if (r->grammar) {
        c->grammar = llama_sampler_init_grammar(vocab, r->grammar, "root");
        if (!c->grammar) {
            return slot_refuse(why, 400, "grammar", "grammar is not GBNF with a rule named root: %s",
                               *engine_last_log() ? engine_last_log() : "llama.cpp does not say why");
        }
    }
    if (!c->chain && !c->grammar) return true;
    c->candidate = malloc((size_t)llama_vocab_n_tokens(vocab) * sizeof *c->candidate);
    return c->candidate || out_of_memory(why);
}

void choice_end(slot_choice *c)
{
    if (c->chain) llama_sampler_free(c->chain);
    if (c->grammar) llama_sampler_free(c->grammar);
    free(c->candidate);
    *c = (slot_choice){ 0 };
}

/* ---- The choice --------------------------------------------------------------------------------------- */

static llama_token likeliest(const float *logits, int32_t n)
{
    llama_token best = 0;
    for (llama_token i = 1; i < n; i++) {
        if (logits[i] > logits[best]) best = i;
    }
    return best;
}

static llama_token_data_array all_tokens(const slot_choice *c, const float *logits, int32_t n)
{
    for (llama_token i = 0; i < n; i++) c->candidate[i] = (llama_token_data){ i, logits[i], 0 };
    return (llama_token_data_array){ c->candidate, (size_t)n, -1, false };
}

static bool allowed(const slot_choice *c, llama_token token, float logit)
{
    llama_token_data one = { token, logit, 0 };
    llama_token_data_array alone = { &one, 1, -1, false };
    llama_sampler_apply(c->grammar, &alone);
    return one.logit > -INFINITY;
}

/* The ones that the grammar took out lie at minus infinity; below 0: those are all. */
static llama_token choose_among(const slot_choice *c, llama_token_data_array *all)
{
    size_t kept = 0;
    for (size_t i = 0; i < all->size; i++) {
        if (all->data[i].logit > -INFINITY) all->data[kept++] = all->data[i];
    }
    all->size = kept;
    if (kept == 0) return -1;
    if (c->chain) {
        llama_sampler_apply(c->chain, all);
        return all->selected >= 0 ? all->data[all->selected].id : -1;
    }
    size_t best = 0;
    for (size_t i = 1; i < kept; i++) {
        if (all->data[i].logit > all->data[best].logit) best = i;
    }
    return all->data[best].id;
}

llama_token choice_make(slot_choice *c, const struct llama_vocab *vocab, const float *logits)
{
    int32_t n = llama_vocab_n_tokens(vocab);
    llama_token token = -1;
    llama_token_data_array all;
    if (!c->chain) {
        token = likeliest(logits, n);
    } else {
        all = all_tokens(c, logits, n);
        token = choose_among(c, &all);
    }
    if (c->grammar && token >= 0 && !allowed(c, token, logits[token])) {
        all = all_tokens(c, logits, n);
        llama_sampler_apply(c->grammar, &all);
        token = choose_among(c, &all);
    }
    if (c->grammar && token >= 0) llama_sampler_accept(c->grammar, token);
    return token;
}

/* ---- How likely --------------------------------------------------------------------------------------- */

/* The logarithm of the sum of exp(logits). */
static double log_of_sum(const float *logits, int32_t n)
{
    double most = logits[likeliest(logits, n)], sum = 0;
    for (int32_t i = 0; i < n; i++) sum += exp(logits[i] - most);
    return most + log(sum);
}

static bool name(const engine *e, llama_token token, double logprob, serve_logprob *out)
{
    cli_buffer piece = { 0 };
    if (!engine_special(e, token, &piece)) return false;
    *out = (serve_logprob){ piece.data, piece.n, logprob };
    return true;
}

/* The n likeliest by falling logit, into best[n]. */
static uint32_t find_top(const float *logits, int32_t n_vocab, uint32_t n, llama_token *best)
{
    uint32_t found = 0;
    for (llama_token i = 0; i < n_vocab; i++) {
        uint32_t at = found;
        while (at > 0 && logits[i] > logits[best[at - 1]]) at--;
        if (at >= n) continue;
        if (found < n) found++;
        memmove(best + at + 1, best + at, (found - 1 - at) * sizeof *best);
        best[at] = i;
    }
    return found;
}

bool choice_logprobs(const engine *e, const float *logits, llama_token token, uint32_t n, serve_token *out)
{
    llama_token best[SERVE_MOST_LOGPROBS];
    int32_t n_vocab = llama_vocab_n_tokens(e->vocab);
    uint32_t found = find_top(logits, n_vocab, n < SERVE_MOST_LOGPROBS ? n : SERVE_MOST_LOGPROBS, best);
    double sum = log_of_sum(logits, n_vocab);
    bool ok;
    *out = (serve_token){ 0 };
    ok = name(e, token, logits[token] - sum, &out->chosen);
    for (uint32_t i = 0; ok && i < found; i++) {
        ok = name(e, best[i], logits[best[i]] - sum, &out->top[out->n_top]);
        out->n_top += ok;
    }
    if (!ok) serve_token_clear(out);
    return ok;
}
