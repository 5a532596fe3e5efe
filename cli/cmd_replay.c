/*
 * cmd_replay.c - `h2okv replay`: recorded attention through the cache, told or checked.
 *
 *   trace_next -> admit -> observe (each lane) -> plan -> the engine below applies it -> commit -> replay_tell.c
 *
 * The engine is a table of positions, [lane][cell]; after each step it has to agree with the cache's books.
 */
#include "replay.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char *const command = "replay";

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
        const trace_step *s = &r->trace.step;
        if (s->n_new + s->n_probe > r->most_new) r->most_new = s->n_new + s->n_probe;
        if (r->trace.budget > r->most_budget) r->most_budget = r->trace.budget;
    }
    if (more < 0) return trace_failed(r);
    if (r->trace.steps == 0) {
        cli_error(command, "%s: no step after the header", path);
        return CLI_INPUT;
    }
    return trace_rewind(&r->trace) ? CLI_OK : trace_failed(r);
}

/* A probe that goes again is no token of the text. */
static void on_event(void *user, const h2okv_event *event)
{
    replay *r = user;
    if (event->kind != H2OKV_EVENT_EVICT) return;
    r->went[(size_t)event->lane * r->cells + r->n_went[event->lane]++] = event->pos;
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
    o.policy = h->policy;
    o.pool = h->pool;
    o.seed = h->seed;
    o.cells = r->most_budget + r->most_new;
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
    r->went = malloc(all * sizeof *r->went);
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
    for (uint32_t i = 0; i < r->trace.header.n_pins; i++) {
        const int32_t *pin = r->trace.header.pin[i];
        if (h2okv_cache_pin(r->cache, pin[0], pin[1], &error)) {
            cli_error(command, "%s: the header's pins are refused: %s", r->trace.path, error.text);
            return CLI_INPUT;
        }
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

/* What changes before a step: see docs/trace-format.md. */
static int change(replay *r)
{
    const trace_step *s = &r->trace.step;
    h2okv_options now;
    h2okv_error error;
    if (s->budget == TRACE_SAME && s->recent == TRACE_SAME) return CLI_OK;
    h2okv_cache_get_options(r->cache, &now);
    if (h2okv_cache_set_budget(r->cache, r->trace.budget, s->recent == TRACE_SAME ? now.recent : s->recent, &error)) {
        cli_error(command, "%s:%" PRIu64 ": refused: %s", r->trace.path, r->trace.line, error.text);
        return CLI_INPUT;
    }
    return CLI_OK;
}

static int admit(replay *r)
{
    const trace_step *s = &r->trace.step;
    uint32_t lanes = r->trace.header.lanes, n = s->n_new + s->n_probe, *cell = r->free_cell + r->n_free - n;
    int32_t first = (int32_t)(r->trace.tokens - s->n_new);
    int status;
    for (uint32_t i = 0; i < n / 2; i++) { /* the lowest cell for the first token */
        uint32_t t = cell[i];
        cell[i] = cell[n - 1 - i];
        cell[n - 1 - i] = t;
    }
    for (uint32_t i = 0; i < n; i++) r->came[i] = first + (int32_t)i;
    status = h2okv_cache_admit(r->cache, cell, r->came, n);
    if (status) return engine_failed(r, "admit", status);
    for (uint32_t lane = 0; lane < lanes; lane++) {
        for (uint32_t i = 0; i < n; i++) r->engine[(size_t)lane * r->cells + cell[i]] = r->came[i];
    }
    r->n_free -= n;
    status = s->n_probe > 0 ? h2okv_cache_probe(r->cache, s->n_probe, s->spread) : H2OKV_OK;
    return status ? engine_failed(r, "probe", status) : CLI_OK;
}

/* A mass is double and weights are float: three floats add up to it exactly. They are the newest query's, which has
 * weight 1 whatever the decay and the probe, in three heads; all other rows are 0. */
enum { MASS_HEADS = 3 };

static bool clear_rows(replay *r)
{
    const trace_step *s = &r->trace.step;
    size_t n = (size_t)MASS_HEADS * (s->n_new + s->n_probe) * s->columns;
    free(r->rows);
    r->rows = calloc(n, sizeof *r->rows);
    return r->rows || cli_error(command, "out of memory for a step of %zu weights", n);
}

static h2okv_weights mass_weights(replay *r, uint32_t lane)
{
    const trace_step *s = &r->trace.step;
    uint32_t queries = s->n_new + s->n_probe;
    size_t per_head = (size_t)queries * s->columns;
    const double *mass = s->mass + (size_t)lane * s->columns;
    for (uint32_t c = 0; c < s->columns; c++) {
        double left = mass[c];
        for (uint32_t h = 0; h < MASS_HEADS; h++) {
            float part = (float)left;
            r->rows[h * per_head + (queries - 1) * (size_t)s->columns + c] = part;
            left -= (double)part;
        }
    }
    return (h2okv_weights){ MASS_HEADS, queries, s->columns, r->rows, per_head, s->columns, r->column };
}

/* The trace's columns go by position; each lane says in which cell that position lies. */
static int observe(replay *r)
{
    const trace_step *s = &r->trace.step;
    const trace_header *h = &r->trace.header;
    size_t per_head = (size_t)s->n_new * s->columns;
    if (h->mass && s->has_weights && !clear_rows(r)) return CLI_ENGINE;
    for (uint32_t lane = 0; lane < h->lanes; lane++) {
        h2okv_weights w = { h->group, s->n_new, s->columns, NULL, per_head, s->columns, r->column };
        int status;
        h2okv_cache_kept(r->cache, lane, NULL, NULL, r->column);
        if (s->has_weights && h->mass) {
            w = mass_weights(r, lane);
            status = h2okv_cache_observe(r->cache, lane, &w);
        } else if (s->has_weights) {
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

static int drop_probe(replay *r)
{
    const h2okv_plan *plan;
    int status = h2okv_cache_trim(r->cache, (int32_t)r->trace.tokens, &plan);
    if (status) return engine_failed(r, "trim", status);
    apply(r, plan);
    status = h2okv_cache_commit(r->cache, plan);
    return status ? engine_failed(r, "commit", status) : CLI_OK;
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
    uint32_t n = r->trace.step.n_new + r->trace.step.n_probe;
    if (n > r->most_new || n > r->n_free || r->trace.budget > r->most_budget) {
        cli_error(command, "%s:%" PRIu64 ": the file changed while it was read", r->trace.path,
                  r->trace.line);
        return CLI_INPUT;
    }
    code = change(r);
    if (!code && n > 0) code = admit(r);
    if (!code && n > 0) code = observe(r);
    if (!code && r->trace.step.n_probe > 0) code = drop_probe(r);
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

/* ---- The command -------------------------------------------------------------------------------------- */

static int replay_steps(replay *r)
{
    bool account = !r->options.check && !r->options.json;
    int more, code = CLI_OK;
    if (account) replay_tell_header(r);
    while (!code && (more = trace_next(&r->trace)) != 0) {
        code = more < 0 ? trace_failed(r) : one_step(r);
        if (!code && account) replay_tell_step(r);
        if (!code && r->options.check) code = check_step(r);
    }
    if (!code && account) replay_tell_end(r);
    return code;
}

static int replay_file(replay *r, const char *path)
{
    int code = look_through(r, path);
    if (!code) code = make_cache(r);
    if (!code) code = replay_steps(r);
    if (r->options.json && (code == CLI_OK || code == CLI_CHECK)) return replay_tell_json(r, code);
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
    free(r->rows);
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
