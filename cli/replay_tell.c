/* replay_tell.c - what `h2okv replay` says: an account of each step for people, or the result as JSON. */
#include "replay.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* ---- The account -------------------------------------------------------------------------------------- */

void replay_tell_header(const replay *r)
{
    const trace_header *h = &r->trace.header;
    printf("%s\n", r->trace.path);
    if (h->mass) printf("policy %s in ", h->policy);
    else printf("%" PRIu32 " head%s in ", h->heads, h->heads == 1 ? "" : "s");
    printf("%" PRIu32 " lane%s, budget %" PRIu32 " = %" PRIu32 " recent + %" PRIu32 " heavy", h->lanes,
           h->lanes == 1 ? "" : "s", h->recent + h->heavy, h->recent, h->heavy);
    if (h->sinks) printf(" (%" PRIu32 " of them sinks)", h->sinks);
    if (h->grace) printf(", grace %" PRIu32, h->grace);
    if (h->decay < 1) printf(", decay %g", h->decay);
    if (h->pool) printf(", pool %" PRIu32, h->pool);
    printf("\n\n  step  came          live  went%s\n", h->lanes > 1 ? " (lane 0 | lane 1 | ...)" : "");
}

static int by_position(const void *a, const void *b)
{
    int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
    return (x > y) - (x < y);
}

/* "7 | 7 | 8", what each lane gave up; "" when nothing went. */
static void put_went(const replay *r, char *out, size_t size)
{
    size_t used = 0;
    out[0] = '\0';
    for (uint32_t lane = 0; lane < r->trace.header.lanes && r->n_went[0] && used + 10 < size; lane++) {
        int32_t *went = r->went + (size_t)lane * r->cells;
        if (lane) used += (size_t)snprintf(out + used, size - used, " | ");
        qsort(went, r->n_went[lane], sizeof *went, by_position);
        used += strlen(cli_ranges(out + used, size - used, went, r->n_went[lane]));
    }
}

void replay_tell_step(const replay *r)
{
    char came[32], went[256];
    int room = cli_width(stdout) - 28;
    put_went(r, went, room > 10 && room < (int)sizeof went ? (size_t)room : sizeof went);
    cli_ranges(came, sizeof came, r->came, r->trace.step.n_new);
    printf("%6" PRIu64 "  %-12s %5" PRIu32 "  %s\n", r->trace.steps, came, h2okv_cache_live(r->cache), went);
}

/* What a lane holds, with bars; of a long one the highest scores are what matters, so only ranges for it. */
static void tell_lane(replay *r, uint32_t lane)
{
    enum { MOST_ROWS = 40 };
    const trace_header *h = &r->trace.header;
    uint32_t n = h2okv_cache_kept(r->cache, lane, r->pos, r->score, NULL);
    cli_token tokens[MOST_ROWS];
    char kept[1024];
    printf("\nlane %" PRIu32 " keeps {%s}\n", lane, cli_ranges(kept, sizeof kept, r->pos, n));
    if (n > MOST_ROWS) return;
    for (uint32_t i = 0; i < n; i++) {
        bool recent = n - i <= h->recent, sink = r->pos[i] < (int32_t)h->sinks;
        tokens[i] = (cli_token){ r->pos[i], r->score[i], recent ? CLI_RECENT : sink ? CLI_SINK : CLI_HEAVY,
                                 NULL };
    }
    cli_print_tokens(stdout, tokens, n, 40);
}

void replay_tell_end(replay *r)
{
    h2okv_cache_stats stats;
    char tokens[32], evicted[32];
    for (uint32_t lane = 0; lane < r->trace.header.lanes; lane++) tell_lane(r, lane);
    h2okv_cache_get_stats(r->cache, &stats);
    printf("\n%s tokens in %" PRIu64 " steps; each lane holds %" PRIu32 ", held at most %" PRIu32
           " and gave up %s\n",
           cli_thousands(tokens, stats.admitted), r->trace.steps, stats.live, stats.peak_live,
           cli_thousands(evicted, stats.evicted));
}

static json_t *list_of_positions(const int32_t *pos, size_t n)
{
    json_t *list = json_array();
    for (size_t i = 0; i < n; i++) json_array_append_new(list, json_integer(pos[i]));
    return list;
}

static json_t *list_of_scores(const double *score, size_t n)
{
    json_t *list = json_array();
    for (size_t i = 0; i < n; i++) json_array_append_new(list, json_real(score[i]));
    return list;
}

static const char *mode_name(const trace_header *h)
{
    return h->shared ? "shared" : h->mass ? "mass" : "per-head";
}

static json_t *result(replay *r, int code)
{
    h2okv_cache_stats stats;
    json_t *kept = json_array(), *scores = json_array();
    for (uint32_t lane = 0; lane < r->trace.header.lanes; lane++) {
        uint32_t n = h2okv_cache_kept(r->cache, lane, r->pos, r->score, NULL);
        json_array_append_new(kept, list_of_positions(r->pos, n));
        json_array_append_new(scores, list_of_scores(r->score, n));
    }
    h2okv_cache_get_stats(r->cache, &stats);
    return json_pack("{s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:s?, s:o*, s:o, s:o}", "file",
                     r->trace.path, "mode", mode_name(&r->trace.header), "lanes",
                     (json_int_t)r->trace.header.lanes, "budget",
                     (json_int_t)(r->trace.header.recent + r->trace.header.heavy), "recent",
                     (json_int_t)r->trace.header.recent, "steps", (json_int_t)r->trace.steps, "tokens",
                     (json_int_t)stats.admitted, "live", (json_int_t)stats.live, "peak_live",
                     (json_int_t)stats.peak_live, "evicted", (json_int_t)stats.evicted, "moves",
                     (json_int_t)stats.moves, "check",
                     !r->options.check ? NULL : code ? "failed" : "passed", "difference", r->difference,
                     "kept", kept, "scores", scores);
}

int replay_tell_json(replay *r, int code)
{
    json_t *object = result(r, code);
    r->difference = NULL; /* the object owns it */
    if (!object || json_dumpf(object, stdout, JSON_COMPACT | JSON_REAL_PRECISION(17))) {
        cli_error("replay", "out of memory for the JSON result");
        code = CLI_ENGINE;
    }
    json_decref(object);
    putchar('\n');
    return code;
}
