/* generate.c - see generate.h. */
#include "generate.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- The sampler -------------------------------------------------------------------------------------- */

/* End tokens get a bias of minus infinity, so that no sampler can choose one. */
static struct llama_sampler *without_end_tokens(const struct llama_vocab *vocab)
{
    int32_t n_vocab = llama_vocab_n_tokens(vocab), n = 0;
    llama_logit_bias *bias = malloc((size_t)n_vocab * sizeof *bias);
    struct llama_sampler *sampler;
    if (!bias) return NULL;
    for (llama_token token = 0; token < n_vocab; token++) {
        if (llama_vocab_is_eog(vocab, token)) bias[n++] = (llama_logit_bias){ token, -INFINITY };
    }
    sampler = llama_sampler_init_logit_bias(n_vocab, n, bias);
    free(bias);
    return sampler;
}

/* llama.cpp's samplers in its usual order. */
struct llama_sampler *generation_sampler(const run_options *o, const struct llama_vocab *vocab)
{
    struct llama_sampler *chain = llama_sampler_chain_init(llama_sampler_chain_default_params());
    struct llama_sampler *bias = o->ignore_eos && chain ? without_end_tokens(vocab) : NULL;
    if (!chain || (o->ignore_eos && !bias)) return chain ? (llama_sampler_free(chain), NULL) : NULL;
    if (bias) llama_sampler_chain_add(chain, bias);
    if (engine_is_cold(o->temp)) {
        llama_sampler_chain_add(chain, llama_sampler_init_greedy());
        return chain;
    }
    llama_sampler_chain_add(chain, llama_sampler_init_top_k((int32_t)o->top_k));
    llama_sampler_chain_add(chain, llama_sampler_init_top_p((float)o->top_p, 1));
    llama_sampler_chain_add(chain, llama_sampler_init_min_p((float)o->min_p, 1));
    llama_sampler_chain_add(chain, llama_sampler_init_temp((float)o->temp));
    llama_sampler_chain_add(chain, llama_sampler_init_dist(o->cache.seed));
    return chain;
}

bool generation_start(generation *g, const run_options *options, engine *e, const llama_token *prompt,
                      uint32_t n)
{
    *g = (generation){ .options = options, .engine = e, .prompt = prompt, .n_prompt = n };
    g->first_token_s = -1;
    g->sampler = generation_sampler(options, e->vocab);
    return g->sampler || cli_error(g->options->command, "out of memory for the sampler");
}

void generation_free(generation *g)
{
    if (g->sampler) llama_sampler_free(g->sampler);
    cli_buffer_free(&g->piece);
    cli_buffer_free(&g->text);
}

/* ---- Passes ------------------------------------------------------------------------------------------- */

int generation_passed(generation *g)
{
    g->refused = !engine_passed(g->engine);
    return g->refused ? CLI_ENGINE : CLI_OK;
}

int generation_failed(generation *g, int status)
{
    if (g->refused) return CLI_ENGINE;
    if (status == H2OKV_E_STOPPED) {
        g->stopped = STOP_INTERRUPT;
        return CLI_OK;
    }
    cli_progress_end(&g->progress);
    cli_error(g->options->command, "at position %" PRId32 ": %s", h2okv_llama_next_pos(g->engine->h),
              h2okv_llama_last_error(g->engine->h)->text);
    return status == H2OKV_E_INVALID ? CLI_USAGE : CLI_ENGINE;
}

static bool on_pass(void *user, uint32_t done, uint32_t total)
{
    generation *g = user;
    (void)total; /* of this call */
    cli_progress_show(&g->progress, g->n_read + done, g->n_prompt);
    return generation_passed(g) == CLI_OK && !cli_interrupted();
}

static void warn_past_trained(generation *g, uint32_t position)
{
    int32_t trained = llama_model_n_ctx_train(g->engine->model);
    char last[32], most[32];
    if (g->warned || g->options->quiet || trained <= 0 || position <= (uint32_t)trained) return;
    g->warned = true;
    cli_progress_end(&g->progress);
    cli_warn(g->options->command,
             "%s tokens run past the %s that the model was trained for; what it writes may suffer",
             cli_thousands(last, position), cli_thousands(most, (uint64_t)trained));
}

static int decode(generation *g, const llama_token *tokens, uint32_t n)
{
    int status = cli_interrupted() ? H2OKV_E_STOPPED : h2okv_llama_decode(g->engine->h, tokens, n);
    return status ? generation_failed(g, status) : generation_passed(g);
}

int generation_read_prompt(generation *g, const cli_buffer *text)
{
    int code;
    warn_past_trained(g, g->n_prompt);
    h2okv_llama_set_progress(g->engine->h, on_pass, g);
    cli_progress_start(&g->progress, "prompt", g->options->quiet);
    g->start = cli_seconds();
    code = reading_decode(g, text);
    g->prompt_s = cli_seconds() - g->start;
    cli_progress_end(&g->progress);
    h2okv_llama_set_progress(g->engine->h, NULL, NULL);
    return code;
}

/* ---- Text --------------------------------------------------------------------------------------------- */

static int put_text(generation *g, const char *text, size_t n)
{
    if (g->put) return g->put(g->put_user, text, n);
    if (g->options->json) {
        if (cli_buffer_add(&g->text, text, n)) return CLI_OK;
        cli_error(g->options->command, "out of memory for the text");
        return CLI_ENGINE;
    }
    if (fwrite(text, 1, n, stdout) == n && fflush(stdout) == 0) return CLI_OK;
    cli_progress_end(&g->progress);
    cli_error(g->options->command, "cannot write to standard output: %s", strerror(errno));
    return CLI_ENGINE;
}

static int put_token(generation *g, llama_token token)
{
    char *whole;
    int code = CLI_ENGINE;
    g->piece.n = 0;
    whole = engine_piece(g->engine, token, &g->piece) ? malloc(CLI_UTF8_ROOM(g->piece.n)) : NULL;
    if (whole) {
        code = put_text(g, whole, cli_utf8_take(&g->characters, g->piece.data, g->piece.n, whole));
    } else {
        cli_error(g->options->command, "out of memory for a token's text");
    }
    free(whole);
    return code;
}

/* ---- New tokens --------------------------------------------------------------------------------------- */

/* The next token; below 0 when the text ends here, and g->stopped says why. */
static llama_token next_token(generation *g)
{
    llama_token token;
    double now;
    if (cli_interrupted()) g->stopped = STOP_INTERRUPT;
    if (g->stopped == STOP_INTERRUPT || g->n_new == g->options->n_new) return -1;
    token = llama_sampler_sample(g->sampler, h2okv_llama_context(g->engine->h), -1);
    now = cli_seconds() - g->start;
    if (llama_vocab_is_eog(g->engine->vocab, token)) {
        g->stopped = STOP_EOS;
        return -1;
    }
    if (g->written) g->written[g->n_new] = token;
    if (g->n_new++ == 0) g->first_token_s = now;
    g->decode_s = now - g->first_token_s;
    return token;
}

static int write_tokens(generation *g)
{
    int code = CLI_OK;
    llama_token token;
    while (!code && g->stopped != STOP_INTERRUPT && (token = next_token(g)) >= 0) {
        code = put_token(g, token);
        cli_progress_show(&g->progress, g->n_new, g->options->n_new);
        if (!code && g->n_new < g->options->n_new) { /* the last one is not looked at again */
            warn_past_trained(g, (uint32_t)h2okv_llama_next_pos(g->engine->h) + 1);
            code = decode(g, &token, 1);
        }
    }
    return code;
}

int generation_write(generation *g)
{
    bool text_on_terminal = !g->options->json && cli_is_terminal(stdout);
    int code;
    cli_progress_start(&g->progress, "new", g->options->quiet || text_on_terminal);
    code = write_tokens(g);
    cli_progress_end(&g->progress);
    if (!code && text_on_terminal && !g->put && g->n_new > 0) code = put_text(g, "\n", 1);
    return code;
}
