/*
 * bench.c - what a child of `h2okv bench` does: one system, one context, one sample.
 *
 *   load -> tokens -> context -> warm up -> the prompt, timed -> new tokens at the context's end, each timed
 *
 * The tokens decoded are the text's own next ones, so that every system computes the same; the most likely
 * token is looked for each time, as a program that goes on writing has to.
 */
#include "../bench.h"
#include "engine.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static const char *const command = "bench";
enum { BYTES_PER_TOKEN = 8, WARM_UP = 32 };

typedef struct rig {
    engine e;
    struct llama_context *plain; /* of the systems without h2okv */
    struct llama_context *context;
    llama_token *tokens;         /* [point's context] */
} rig;

/* ---- Tokens ------------------------------------------------------------------------------------------- */

/* Only so much of the text is read as is needed for sure, because a tokenizer's memory counts too; when it is
 * too short it is repeated. */
static int make_tokens(rig *r, const cli_buffer *text, uint32_t wanted)
{
    uint64_t most = (uint64_t)wanted * BYTES_PER_TOKEN;
    cli_buffer part = { .data = text->data, .n = text->n < most ? text->n : (size_t)most };
    uint32_t n = 0, unique;
    llama_token *tokens = NULL;
    int code = engine_tokenize(&r->e, &part, &tokens, &n);
    if (!code) r->tokens = malloc((size_t)wanted * sizeof *tokens);
    if (!code && !r->tokens) code = CLI_ENGINE;
    unique = n < wanted ? n : wanted;
    if (!code) memcpy(r->tokens, tokens, unique * sizeof *tokens);
    for (uint32_t i = unique; !code && i < wanted; i++) r->tokens[i] = r->tokens[i - unique + (unique > 1)];
    free(tokens);
    return code;
}

/* ---- Contexts ----------------------------------------------------------------------------------------- */

/* llama.cpp as it is by default, but for the threads and for flash attention. */
static int attach_plain(rig *r, const bench_options *o, const bench_point *p)
{
    struct llama_context_params params = llama_context_default_params();
    params.n_ctx = p->context;
    params.n_threads = params.n_threads_batch = (int32_t)o->threads;
    params.no_perf = true;
    params.flash_attn_type =
        p->system == BENCH_LLAMA_FA ? LLAMA_FLASH_ATTN_TYPE_ENABLED : LLAMA_FLASH_ATTN_TYPE_DISABLED;
    r->plain = r->context = llama_init_from_model(r->e.model, params);
    if (r->plain) return CLI_OK;
    cli_error(command, "llama.cpp cannot make a context of %" PRIu32 " cells: %s", p->context,
              engine_last_log());
    return CLI_ENGINE;
}

static int attach_h2okv(rig *r, const bench_options *o, const bench_point *p)
{
    cache_options cache;
    int code;
    cache_defaults(&cache);
    cache.policy = "h2o";
    cache.budget = p->system == BENCH_FUSED_ALL ? p->context : o->budget;
    cache.ubatch = o->ubatch == BENCH_AUTO ? CACHE_AUTO : o->ubatch;
    cache.attention = p->system == BENCH_OBSERVE ? H2OKV_ATTENTION_OBSERVE : H2OKV_ATTENTION_FUSED;
    cache.isa = p->system == BENCH_OBSERVE ? NULL : o->isa;
    cache.kv_type = p->system == BENCH_FUSED_Q8 ? CACHE_KV_Q8_0 : CACHE_KV_F16;
    code = engine_attach(&r->e, &cache, o->threads);
    if (!code) r->context = h2okv_llama_context(r->e.h);
    return code;
}

static void forget(const rig *r)
{
    if (r->e.h) {
        h2okv_llama_clear(r->e.h);
    } else {
        llama_memory_clear(llama_get_memory(r->plain), false);
    }
}

/* ---- Passes ------------------------------------------------------------------------------------------- */

static int decode_plain(const rig *r, llama_token *tokens, uint32_t n)
{
    uint32_t most = llama_n_batch(r->plain);
    for (uint32_t i = 0; i < n; i += most) {
        uint32_t part = n - i < most ? n - i : most;
        int result = llama_decode(r->plain, llama_batch_get_one(tokens + i, (int32_t)part));
        if (!result) continue;
        cli_error(command, "llama.cpp failed to decode (%d)", result);
        return CLI_ENGINE;
    }
    return CLI_OK;
}

static int decode(const rig *r, llama_token *tokens, uint32_t n)
{
    if (!r->e.h) return decode_plain(r, tokens, n);
    if (!h2okv_llama_decode(r->e.h, tokens, n)) return CLI_OK;
    cli_error(command, "%s", h2okv_llama_last_error(r->e.h)->text);
    return CLI_ENGINE;
}

/* The most likely token; also waits until the logits are there. */
static int32_t choose(const rig *r)
{
    const float *logits = llama_get_logits_ith(r->context, -1);
    int32_t n = llama_vocab_n_tokens(r->e.vocab), best = 0;
    for (int32_t i = 1; i < n; i++) best = logits[i] > logits[best] ? i : best;
    return best;
}

static int warm_up(const rig *r, uint32_t n_prompt)
{
    int code = decode(r, r->tokens, n_prompt < WARM_UP ? n_prompt : WARM_UP);
    if (!code) code = decode(r, r->tokens, 1);
    if (!code) (void)choose(r);
    forget(r);
    return code;
}

static int read_prompt(const rig *r, bench_sample *s)
{
    double start = cli_seconds();
    int code = decode(r, r->tokens, s->prompt_tokens);
    if (code) return code;
    llama_synchronize(r->context);
    s->prompt_s = cli_seconds() - start;
    (void)choose(r);
    s->first_token_s = cli_seconds() - start;
    return CLI_OK;
}

static int write_tokens(const rig *r, uint32_t n_new, bench_sample *s)
{
    double took[BENCH_MOST_NEW];
    int code = CLI_OK;
    for (uint32_t i = 0; i < n_new && !code; i++) {
        double start = cli_seconds();
        code = decode(r, r->tokens + s->prompt_tokens + i, 1);
        if (!code) (void)choose(r);
        took[i] = cli_seconds() - start;
    }
    s->token_s = bench_spread_of(took, n_new).median;
    return code;
}

/* ---- A sample ----------------------------------------------------------------------------------------- */

static void fill_in(const rig *r, bench_sample *s)
{
    h2okv_llama_stats stats;
    s->peak_bytes = cli_peak_memory();
    if (!r->e.h) {
        s->cells = llama_n_ctx(r->plain);
        s->ubatch = llama_n_ubatch(r->plain);
        s->kv_bytes = engine_kv_bytes_per_cell(&r->e) * s->cells;
        return;
    }
    h2okv_llama_get_stats(r->e.h, &stats);
    s->cells = stats.cells;
    s->ubatch = stats.ubatch;
    s->kv_bytes = stats.kv_bytes;
    snprintf(s->isa, sizeof s->isa, "%s", stats.isa ? stats.isa : "");
}

int bench_run_point(const bench *b, const bench_point *p, bench_sample *s)
{
    const bench_options *o = b->options;
    bool plain = p->system == BENCH_LLAMA_FA || p->system == BENCH_LLAMA;
    rig r = { 0 };
    bool mapped = o->load == BENCH_LOAD_OWN ? plain : o->load == BENCH_LOAD_MMAP;
    int code = engine_load(&r.e, command, o->model, mapped, o->verbose);
    *s = (bench_sample){ .prompt_tokens = p->context - o->n_new };
    if (!code) code = make_tokens(&r, &b->text, p->context);
    if (!code) code = plain ? attach_plain(&r, o, p) : attach_h2okv(&r, o, p);
    if (!code) code = warm_up(&r, s->prompt_tokens);
    if (!code) code = read_prompt(&r, s);
    if (!code) code = write_tokens(&r, o->n_new, s);
    if (!code) fill_in(&r, s);
    free(r.tokens);
    if (r.plain) llama_free(r.plain);
    engine_free(&r.e);
    return code;
}
