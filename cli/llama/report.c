/* report.c - see report.h. h2okv-run(1) documents the JSON keys. */
#include "report.h"

#include <inttypes.h>
#include <jansson.h>
#include <string.h>

static const char *stop_name(enum stop stopped)
{
    return stopped == STOP_EOS ? "eos" : stopped == STOP_INTERRUPT ? "interrupt" : "limit";
}

/* Tokens that went through the model; 0 when Ctrl-C came before there was one. */
static uint32_t positions_of(const generation *g)
{
    return g->engine->h ? (uint32_t)h2okv_llama_next_pos(g->engine->h) : 0;
}

/* Prompt tokens that went through the model; fewer than there are after Ctrl-C. */
static uint32_t prompt_done(const generation *g)
{
    uint32_t decoded = positions_of(g);
    return decoded < g->n_prompt ? decoded : g->n_prompt;
}

static double prompt_speed(const generation *g)
{
    return g->prompt_s > 0 ? prompt_done(g) / g->prompt_s : 0;
}

/* Tokens after the first, which the prompt's last pass gave. 0: there were none. */
static double decode_speed(const generation *g)
{
    return g->n_new > 1 && g->decode_s > 0 ? (g->n_new - 1) / g->decode_s : 0;
}

static h2okv_llama_stats stats_of(const engine *e, const run_options *o)
{
    h2okv_llama_stats stats = { .budget = o->cache.budget };
    if (e->h) h2okv_llama_get_stats(e->h, &stats);
    return stats;
}

/* ---- The settings ------------------------------------------------------------------------------------- */

void report_config(FILE *out, const run_options *o, const engine *e)
{
    h2okv_llama_stats s = stats_of(e, o);
    fprintf(out, "model       %s\n", e->path);
    fprintf(out, "policy      %s\n", o->cache.policy);
    fprintf(out, "budget      %" PRIu32 "\nrecent      %" PRIu32 "\nsink        %" PRIu32 "\n", s.budget,
            o->cache.recent, o->cache.sinks);
    fprintf(out, "decay       %g\npool        %" PRIu32 "\ngrace       %" PRIu32 "\n", o->cache.decay, o->cache.pool,
            o->cache.grace);
    fprintf(out, "lanes       %s (%" PRIu32 ")\n", cache_lane_names[o->cache.lanes], s.lanes);
    fprintf(out, "ubatch      %" PRIu32 "\ncells       %" PRIu32 "\n", s.ubatch, s.cells);
    fprintf(out, "kv-type     %s\n", cache_kv_type_names[o->cache.kv_type]);
    fprintf(out, "attention   %s%s%s%s\n", s.isa ? "fused" : "observe", s.not_fused ? " (" : "",
            s.not_fused ? s.not_fused : "", s.not_fused ? ")" : "");
    if (s.isa) fprintf(out, "isa         %s\n", s.isa);
    fprintf(out, "threads     %" PRIu32 "\nnew         %" PRIu32 "\n", o->threads, o->n_new);
    fprintf(out, "ignore-eos  %s\n", o->ignore_eos ? "yes" : "no");
    fprintf(out, "temp        %g\n", o->temp);
    if (o->temp > 0) {
        fprintf(out, "top-k       %" PRIu32 "\ntop-p       %g\nmin-p       %g\n", o->top_k, o->top_p,
                o->min_p);
    }
    fprintf(out, "seed        %" PRIu32 "\n", o->cache.seed);
}

/* ---- For people --------------------------------------------------------------------------------------- */

/* "350" or, where that would be coarse, "3.5". */
char *report_speed(char *out, double speed)
{
    snprintf(out, 32, speed < 10 ? "%.1f" : "%.0f", speed);
    return out;
}

static void put_prompt_line(FILE *out, const generation *g)
{
    char all[32], done[48] = "", speed[32];
    uint32_t n = prompt_done(g);
    if (n < g->n_prompt) snprintf(done, sizeof done, " (%s read)", cli_thousands(speed, n));
    fprintf(out, "  prompt   %s token%s%s in %.2f s, %s tok/s\n", cli_thousands(all, g->n_prompt),
            g->n_prompt == 1 ? "" : "s", done, g->prompt_s, report_speed(speed, prompt_speed(g)));
}

static void put_new_line(FILE *out, const generation *g)
{
    static const char *const why[] = { "-n reached", "end of text", "interrupted" };
    char all[32], speed[32];
    fprintf(out, "  new      %s token%s", cli_thousands(all, g->n_new), g->n_new == 1 ? "" : "s");
    if (decode_speed(g) > 0) {
        fprintf(out, " in %.2f s, %s tok/s", g->decode_s, report_speed(speed, decode_speed(g)));
    }
    if (g->first_token_s >= 0) fprintf(out, "; the first after %.2f s", g->first_token_s);
    fprintf(out, " (%s)\n", why[g->stopped]);
}

static uint64_t full_bytes(const h2okv_llama_stats *s, uint64_t positions)
{
    return s->kv_bytes_per_token * positions + s->kv_bytes_window;
}

void report_policy(FILE *out, const run_options *o, const engine *e)
{
    h2okv_llama_stats s = stats_of(e, o);
    char budget[32];
    fprintf(out, "%s%s%s, budget %s = %" PRIu32 " recent + %" PRIu32 " heavy (%" PRIu32 " sinks)\n",
            cli_style(out, CLI_BOLD), o->cache.policy, cli_style(out, CLI_PLAIN), cli_thousands(budget, s.budget),
            o->cache.recent, s.budget - o->cache.recent, o->cache.sinks);
}

void report_cache(FILE *out, const engine *e, uint64_t positions)
{
    h2okv_llama_stats s;
    char a[32], b[32], c[32], d[32];
    h2okv_llama_get_stats(e->h, &s);
    fprintf(out, "  cells    %s live, %s at most, of %s; %s tokens evicted (%" PRIu32 " lanes)\n",
            cli_thousands(a, s.cache.live), cli_thousands(b, s.cache.peak_live), cli_thousands(c, s.cells),
            cli_thousands(d, s.cache.evicted), s.lanes);
    fprintf(out, "  KV       %s; a full cache would need %s\n", cli_bytes(a, s.kv_bytes),
            cli_bytes(b, full_bytes(&s, positions)));
    fprintf(out, "  process  %s at most\n", cli_bytes(a, cli_peak_memory()));
}

void report_text(FILE *out, const generation *g)
{
    if (!g->engine->h) {
        fputs("interrupted while the model was loaded\n", out);
        return;
    }
    report_policy(out, g->options, g->engine);
    put_prompt_line(out, g);
    put_new_line(out, g);
    report_cache(out, g->engine, positions_of(g));
}

/* ---- JSON --------------------------------------------------------------------------------------------- */

bool report_set(json_t *object, const char *key, json_t *value)
{
    return json_object_set_new(object, key, value) == 0;
}

static json_t *real_or_null(double value, bool known)
{
    return known ? json_real(value) : json_null();
}

static bool set_run(json_t *j, const generation *g)
{
    return report_set(j, "prompt_tokens", json_integer(g->n_prompt)) &&
           report_set(j, "generated_tokens", json_integer(g->n_new)) &&
           report_set(j, "prompt_tok_s", real_or_null(prompt_speed(g), g->prompt_s > 0)) &&
           report_set(j, "decode_tok_s", real_or_null(decode_speed(g), decode_speed(g) > 0)) &&
           report_set(j, "ttft_s", real_or_null(g->first_token_s, g->first_token_s >= 0)) &&
           report_set(j, "text", json_stringn(g->text.data ? g->text.data : "", g->text.n)) &&
           report_set(j, "stopped", json_string(stop_name(g->stopped))) &&
           report_set(j, "guide_tokens", json_integer(g->n_guide));
}

static bool set_counts(json_t *j, const h2okv_llama_stats *s, uint64_t positions)
{
    return report_set(j, "kv_bytes", json_integer((json_int_t)s->kv_bytes)) &&
           report_set(j, "kv_bytes_full", json_integer((json_int_t)full_bytes(s, positions))) &&
           report_set(j, "peak_live", json_integer(s->cache.peak_live)) &&
           report_set(j, "budget", json_integer(s->budget)) &&
           report_set(j, "evicted", json_integer((json_int_t)s->cache.evicted)) &&
           report_set(j, "positions", json_integer((json_int_t)positions)) &&
           report_set(j, "live", json_integer(s->cache.live)) && report_set(j, "cells", json_integer(s->cells)) &&
           report_set(j, "ubatch", json_integer(s->ubatch)) && report_set(j, "lanes", json_integer(s->lanes)) &&
           report_set(j, "moves", json_integer((json_int_t)s->cache.moves)) &&
           report_set(j, "engine_s", json_real((double)s->engine_us * 1e-6)) &&
           report_set(j, "bookkeeping_s", json_real((double)s->bookkeeping_us * 1e-6));
}

bool report_set_cache(json_t *j, const run_options *o, const engine *e, uint64_t positions)
{
    h2okv_llama_stats s = stats_of(e, o);
    return set_counts(j, &s, positions) && report_set(j, "policy", json_string(o->cache.policy)) &&
           report_set(j, "recent", json_integer(o->cache.recent)) &&
           report_set(j, "sinks", json_integer(o->cache.sinks)) && report_set(j, "decay", json_real(o->cache.decay)) &&
           report_set(j, "pool", json_integer(o->cache.pool)) &&
           report_set(j, "attention", e->h ? json_string(s.isa ? "fused" : "observe") : json_null()) &&
           report_set(j, "isa", s.isa ? json_string(s.isa) : json_null()) &&
           report_set(j, "kv_type", json_string(cache_kv_type_names[o->cache.kv_type])) &&
           report_set(j, "peak_rss_bytes", json_integer((json_int_t)cli_peak_memory())) &&
           report_set(j, "model", json_string(e->path)) && report_set(j, "version", json_string(h2okv_version()));
}

bool report_json(FILE *out, const generation *g)
{
    json_t *j = json_object();
    bool ok = j && set_run(j, g) && report_set_cache(j, g->options, g->engine, positions_of(g));
    if (!ok) cli_error("run", "out of memory for the JSON report");
    if (ok && (json_dumpf(j, out, JSON_INDENT(2) | JSON_REAL_PRECISION(6)) || fputc('\n', out) == EOF)) {
        ok = cli_error("run", "cannot write the JSON report");
    }
    json_decref(j);
    return ok;
}
