/*
 * cmd_replay.c - `h2okv replay`: recorded attention through the cache, told or checked.
 *
 *   trace_next -> admit -> observe (each lane) -> plan -> the engine below applies it -> commit -> told
 *
 * The engine is a table of positions, [lane][cell]; after each step it has to agree with the cache's books.
 */
#include "trace.h"

#include "h2okv/h2okv.h"

#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char *const command = "replay";

typedef struct replay_options {
    bool check, json;
} replay_options;

typedef struct replay {
    replay_options options;
    trace_reader trace;
    uint32_t most_new, cells;
    h2okv_cache *cache;
    int32_t *engine;    /* [lanes][cells], the position whose K and V lie there; -1: none */
    uint32_t *free_cell; /* [n_free] */
    uint32_t n_free;
    uint32_t *column;   /* [cells], the cell of each column */
    int32_t *pos;       /* [cells], one lane's kept positions */
    double *score;      /* [cells] */
    int32_t *came;      /* [cells], positions that came with a step */
    int32_t *went;      /* [lanes][most_new], positions that a step drove out */
    uint32_t *n_went;   /* [lanes] */
    json_t *difference; /* of --check, or NULL */
} replay;

/* ---- Set-up ------------------------------------------------------------------------------------------- */

static int trace_failed(const replay *r)
{
    cli_error(command, "%s", r->trace.error);
    return r->trace.exit_code;
}

/* The whole file once: every line is read and judged before anything is printed, and the largest step
 * says how many cells the cache needs. */
static int look_through(replay *r, const char *path)
{
    int more;
    if (!trace_open(&r->trace, path, r->options.check)) return trace_failed(r);
    while ((more = trace_next(&r->trace)) == 1) {
        if (r->trace.step.n_new > r->most_new) r->most_new = r->trace.step.n_new;
    }
    if (more < 0) return trace_failed(r);
    if (r->trace.steps == 0) {
        cli_error(command, "%s: no step after the header", path);
        return CLI_INPUT;
    }
    return trace_rewind(&r->trace) ? CLI_OK : trace_failed(r);
}

/* A lane gives up at most as many tokens as came. */
static void on_event(void *user, const h2okv_event *event)
{
    replay *r = user;
    r->went[(size_t)event->lane * r->most_new + r->n_went[event->lane]++] = event->pos;
}

static h2okv_options cache_options(replay *r)
{
    const trace_header *h = &r->trace.header;
    h2okv_options o;
    h2okv_options_init(&o);
    o.lanes = h->lanes;
    o.budget = h->recent + h->heavy;
    o.recent = h->recent;
    o.sinks = h->sinks;
    o.grace = h->grace;
    o.decay = h->decay;
    o.count_self = h->count_self;
    o.heads = h->shared ? H2OKV_HEADS_MEAN : H2OKV_HEADS_SUM;
    o.cells = o.budget + r->most_new;
    o.on_event = on_event;
    o.event_user = r;
    return o;
}

static int no_memory(uint64_t bytes)
{
    char text[32];
    cli_error(command, "out of memory: this trace's budget and lanes need %s", cli_bytes(text, bytes));
    return CLI_ENGINE;
}

static int make_engine(replay *r)
{
    size_t cells = r->cells, lanes = r->trace.header.lanes, all = cells * lanes;
    r->engine = malloc(all * sizeof *r->engine);
    r->free_cell = malloc(cells * sizeof *r->free_cell);
    r->column = malloc(cells * sizeof *r->column);
    r->pos = malloc(cells * sizeof *r->pos);
    r->score = malloc(cells * sizeof *r->score);
    r->came = malloc(cells * sizeof *r->came);
    r->went = malloc(lanes * r->most_new * sizeof *r->went);
    r->n_went = malloc(lanes * sizeof *r->n_went);
    if (!r->engine || !r->free_cell || !r->column || !r->pos || !r->score || !r->came || !r->went ||
        !r->n_went) {
        return no_memory(all * sizeof *r->engine);
    }
    for (size_t i = 0; i < all; i++) r->engine[i] = -1;
    for (uint32_t i = 0; i < r->cells; i++) r->free_cell[i] = r->cells - 1 - i; /* the last goes first */
    r->n_free = r->cells;
    return CLI_OK;
}

static int make_cache(replay *r)
{
    h2okv_options o = cache_options(r);
    h2okv_error error;
    size_t bytes = 0;
    uint64_t memory = cli_physical_memory();
    int status = h2okv_cache_bytes(&o, &bytes);
    if (status == H2OKV_E_NOMEM || (status == H2OKV_OK && memory && bytes > memory)) return no_memory(bytes);
    if (h2okv_cache_create(&r->cache, &o, &error)) {
        cli_error(command, "%s: the header's options are refused: %s", r->trace.path, error.text);
        return error.status == H2OKV_E_NOMEM ? CLI_ENGINE : CLI_INPUT;
    }
    r->cells = o.cells;
    return make_engine(r);
}

/* ---- One step ----------------------------------------------------------------------------------------- */

static int engine_failed(const replay *r, const char *call, int status)
{
    cli_error(command, "%s:%" PRIu64 ": %s: %s", r->trace.path, r->trace.line, call, h2okv_strerror(status));
    return CLI_ENGINE;
}

static int admit(replay *r)
{
    const trace_step *s = &r->trace.step;
    uint32_t lanes = r->trace.header.lanes, *cell = r->free_cell + r->n_free - s->n_new;
    int32_t first = (int32_t)(r->trace.tokens - s->n_new);
    int status;
    for (uint32_t i = 0; i < s->n_new / 2; i++) { /* the lowest cell for the first token */
        uint32_t t = cell[i];
        cell[i] = cell[s->n_new - 1 - i];
        cell[s->n_new - 1 - i] = t;
    }
    for (uint32_t i = 0; i < s->n_new; i++) r->came[i] = first + (int32_t)i;
    status = h2okv_cache_admit(r->cache, cell, r->came, s->n_new);
    if (status) return engine_failed(r, "admit", status);
    for (uint32_t lane = 0; lane < lanes; lane++) {
        for (uint32_t i = 0; i < s->n_new; i++) r->engine[(size_t)lane * r->cells + cell[i]] = r->came[i];
    }
    r->n_free -= s->n_new;
    return CLI_OK;
}

/* The trace's columns go by position; each lane says in which cell that position lies. */
static int observe(replay *r)
{
    const trace_step *s = &r->trace.step;
    const trace_header *h = &r->trace.header;
    size_t per_head = (size_t)s->n_new * s->columns;
    for (uint32_t lane = 0; lane < h->lanes; lane++) {
        h2okv_weights w = { h->group, s->n_new, s->columns, NULL, per_head, s->columns, r->column };
        int status;
        h2okv_cache_kept(r->cache, lane, NULL, NULL, r->column);
        if (s->has_weights) {
            w.data = s->weights + (size_t)lane * h->group * per_head;
            status = h2okv_cache_observe(r->cache, lane, &w);
        } else {
            status = h2okv_cache_observe_mass(r->cache, lane, NULL);
        }
        if (status) return engine_failed(r, "observe", status);
    }
    return CLI_OK;
}

static void apply(replay *r, const h2okv_plan *plan)
{
    for (uint32_t i = 0; i < plan->n_moves; i++) {
        int32_t *lane = r->engine + (size_t)plan->moves[i].lane * r->cells;
        lane[plan->moves[i].to] = lane[plan->moves[i].from];
    }
    for (uint32_t i = plan->n_freed; i-- > 0;) {
        uint32_t cell = plan->freed_cell[i];
        for (size_t lane = 0; lane < r->trace.header.lanes; lane++) r->engine[lane * r->cells + cell] = -1;
        r->free_cell[r->n_free++] = cell;
    }
}

static int evict(replay *r)
{
    const h2okv_plan *plan;
    int status = h2okv_cache_plan(r->cache, &plan);
    if (status) return engine_failed(r, "plan", status);
    apply(r, plan);
    memset(r->n_went, 0, r->trace.header.lanes * sizeof *r->n_went);
    status = h2okv_cache_commit(r->cache, plan);
    return status ? engine_failed(r, "commit", status) : CLI_OK;
}

/* What the cache says lies in a cell is what the engine, moving as told, has there. */
static int agree(replay *r)
{
    for (uint32_t lane = 0; lane < r->trace.header.lanes; lane++) {
        uint32_t n = h2okv_cache_kept(r->cache, lane, r->pos, NULL, r->column);
        for (uint32_t i = 0; i < n; i++) {
            if (r->engine[(size_t)lane * r->cells + r->column[i]] != r->pos[i]) {
                cli_error(command,
                          "%s:%" PRIu64 ": lane %" PRIu32 ": position %" PRId32 " is not in cell %" PRIu32,
                          r->trace.path, r->trace.line, lane, r->pos[i], r->column[i]);
                return CLI_ENGINE;
            }
        }
    }
    return CLI_OK;
}

static int one_step(replay *r)
{
    int code;
    if (r->trace.step.n_new > r->most_new || r->trace.step.n_new > r->n_free) {
        cli_error(command, "%s:%" PRIu64 ": the file changed while it was read", r->trace.path,
                  r->trace.line);
        return CLI_INPUT;
    }
    code = admit(r);
    if (!code) code = observe(r);
    if (!code) code = evict(r);
    if (!code) code = agree(r);
    return code;
}

/* ---- --check ------------------------------------------------------------------------------------------ */

/* 1e-4 of the right value; scores below 1e-5 cannot be told apart so finely and have 1e-9 beside that. */
static bool same_score(double want, double got)
{
    return fabs(want - got) <= 1e-4 * fabs(want) + 1e-9;
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

static int differ(replay *r, uint32_t lane, const char *field, const char *want, const char *got)
{
    cli_error(command, "%s:%" PRIu64 ": step %" PRIu64 ", lane %" PRIu32 ", %s: expected %s, got %s",
              r->trace.path, r->trace.line, r->trace.steps, lane, field, want, got);
    r->difference = json_pack("{s:I, s:I, s:I, s:s, s:s, s:s}", "line", (json_int_t)r->trace.line, "step",
                              (json_int_t)r->trace.steps, "lane", (json_int_t)lane, "field", field,
                              "expected", want, "got", got);
    return CLI_CHECK;
}

static int check_lane(replay *r, uint32_t lane)
{
    const trace_step *s = &r->trace.step;
    const int32_t *kept = s->kept + (size_t)lane * s->n_kept;
    const double *scores = s->scores + (size_t)lane * s->n_kept;
    uint32_t n = h2okv_cache_kept(r->cache, lane, r->pos, r->score, NULL);
    char want[160], got[160], field[64];
    if (n != s->n_kept || memcmp(kept, r->pos, n * sizeof *kept) != 0) {
        return differ(r, lane, "kept", cli_ranges(want, sizeof want, kept, s->n_kept),
                      cli_ranges(got, sizeof got, r->pos, n));
    }
    for (uint32_t i = 0; i < n; i++) {
        if (same_score(scores[i], r->score[i])) continue;
        snprintf(field, sizeof field, "scores[%" PRIu32 "] (position %" PRId32 ")", i, r->pos[i]);
        snprintf(want, sizeof want, "%.9g", scores[i]);
        snprintf(got, sizeof got, "%.9g", r->score[i]);
        return differ(r, lane, field, want, got);
    }
    return CLI_OK;
}

static int check_step(replay *r)
{
    int code = CLI_OK;
    for (uint32_t lane = 0; lane < r->trace.header.lanes && !code; lane++) code = check_lane(r, lane);
    return code;
}

/* ---- The account -------------------------------------------------------------------------------------- */

static void tell_header(const replay *r)
{
    const trace_header *h = &r->trace.header;
    printf("%s\n%" PRIu32 " head%s in %" PRIu32 " lane%s, budget %" PRIu32 " = %" PRIu32 " recent + %" PRIu32
           " heavy",
           r->trace.path, h->heads, h->heads == 1 ? "" : "s", h->lanes, h->lanes == 1 ? "" : "s",
           h->recent + h->heavy, h->recent, h->heavy);
    if (h->sinks) printf(" (%" PRIu32 " of them sinks)", h->sinks);
    if (h->grace) printf(", grace %" PRIu32, h->grace);
    if (h->decay < 1) printf(", decay %g", h->decay);
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
        int32_t *went = r->went + (size_t)lane * r->most_new;
        if (lane) used += (size_t)snprintf(out + used, size - used, " | ");
        qsort(went, r->n_went[lane], sizeof *went, by_position);
        used += strlen(cli_ranges(out + used, size - used, went, r->n_went[lane]));
    }
}

static void tell_step(const replay *r)
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

static void tell_end(replay *r)
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
                     r->trace.path, "mode", r->trace.header.shared ? "shared" : "per-head", "lanes",
                     (json_int_t)r->trace.header.lanes, "budget",
                     (json_int_t)(r->trace.header.recent + r->trace.header.heavy), "recent",
                     (json_int_t)r->trace.header.recent, "steps", (json_int_t)r->trace.steps, "tokens",
                     (json_int_t)stats.admitted, "live", (json_int_t)stats.live, "peak_live",
                     (json_int_t)stats.peak_live, "evicted", (json_int_t)stats.evicted, "moves",
                     (json_int_t)stats.moves, "check",
                     !r->options.check ? NULL : code ? "failed" : "passed", "difference", r->difference,
                     "kept", kept, "scores", scores);
}

static int tell_json(replay *r, int code)
{
    json_t *object = result(r, code);
    r->difference = NULL; /* the object owns it */
    if (!object || json_dumpf(object, stdout, JSON_COMPACT | JSON_REAL_PRECISION(17))) {
        cli_error(command, "out of memory for the JSON result");
        code = CLI_ENGINE;
    }
    json_decref(object);
    putchar('\n');
    return code;
}

/* ---- The command -------------------------------------------------------------------------------------- */

static int replay_steps(replay *r)
{
    bool account = !r->options.check && !r->options.json;
    int more, code = CLI_OK;
    if (account) tell_header(r);
    while (!code && (more = trace_next(&r->trace)) != 0) {
        code = more < 0 ? trace_failed(r) : one_step(r);
        if (!code && account) tell_step(r);
        if (!code && r->options.check) code = check_step(r);
    }
    if (!code && account) tell_end(r);
    return code;
}

static int replay_file(replay *r, const char *path)
{
    int code = look_through(r, path);
    if (!code) code = make_cache(r);
    if (!code) code = replay_steps(r);
    if (r->options.json && (code == CLI_OK || code == CLI_CHECK)) return tell_json(r, code);
    if (r->options.check && !code) {
        printf("%s: %" PRIu64 " steps, %" PRIu32 " lane%s: every kept set and score is as recorded\n", path,
               r->trace.steps, r->trace.header.lanes, r->trace.header.lanes == 1 ? "" : "s");
    }
    return code;
}

static void release(replay *r)
{
    trace_close(&r->trace);
    h2okv_cache_free(r->cache);
    free(r->engine);
    free(r->free_cell);
    free(r->column);
    free(r->pos);
    free(r->score);
    free(r->came);
    free(r->went);
    free(r->n_went);
    json_decref(r->difference);
}

static int cmd_replay(int argc, char **argv)
{
    replay r = { 0 };
    int first, code;
    if (!cli_parse(&cli_replay, argc, argv, &r.options, &first, &code)) return code;
    if (argc - first != 1) {
        if (argc == first) cli_error(command, "no FILE given; 'h2okv replay --help' shows how");
        else cli_error(command, "one FILE at a time, and '%s' is a second one", argv[first + 1]);
        return CLI_USAGE;
    }
    code = replay_file(&r, argv[first]);
    release(&r);
    return code;
}

static const cli_option options[] = {
    { CLI_FLAG, 0, "check", offsetof(replay_options, check), 0, 0, NULL, NULL,
      "compare every step with the recorded kept sets\n"
      "(exactly) and scores (to 1e-4 of the value); exit 1\n"
      "at the first difference, naming step and field" },
    { CLI_FLAG, 0, "json", offsetof(replay_options, json), 0, 0, NULL, NULL,
      "the result as one JSON object" },
};

const cli_command cli_replay = {
    .name = "replay",
    .summary = "replay recorded attention: what is kept, step by step",
    .usage = "FILE.jsonl [--check] [--json]",
    .about = "Replays recorded attention weights through the cache and tells, step by step,\n"
             "which tokens came and which went. FILE has a header line and then a line a\n"
             "step; h2okv-replay(1) describes them.",
    .options = options,
    .n_options = sizeof options / sizeof options[0],
    .example = "h2okv replay tests/vectors/seed_demo.jsonl --check",
    .run = cmd_replay,
};
