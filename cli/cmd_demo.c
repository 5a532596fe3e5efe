/*
 * cmd_demo.c - `h2okv demo`: what the cache does, on numbers small enough to follow by eye.
 *
 *   1 worked example   2 fifty tokens   3 from recent to heavy and out   4 the same tokens, other policies
 *
 * Every statement it prints is checked first; one that does not hold is marked WRONG and the exit code is 1.
 */
#include "cli.h"

#include "h2okv/h2okv.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

enum { TOKENS = 50, HEADS = 8, HEAD_DIM = 64, BUDGET = 16, RECENT = 8, SINKS = 4, MOST_KEPT = 64 };

static int wrong; /* statements that did not hold */

/* ---- Telling ------------------------------------------------------------------------------------------ */

static void title(const char *format, ...) __attribute__((format(printf, 1, 2)));
static void title(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    fputs(cli_style(stdout, CLI_BOLD), stdout);
    vprintf(format, arguments);
    printf("%s\n", cli_style(stdout, CLI_PLAIN));
    va_end(arguments);
}

static void state(bool holds, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void state(bool holds, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    printf("  %s%s%s ", cli_style(stdout, holds ? CLI_GREEN : CLI_RED), holds ? "ok   " : "WRONG",
           cli_style(stdout, CLI_PLAIN));
    vprintf(format, arguments);
    putchar('\n');
    va_end(arguments);
    if (!holds) wrong++;
}

/* A library call that these inputs cannot make fail. */
static bool call(const char *name, int status)
{
    if (status) cli_error("demo", "%s: %s", name, h2okv_strerror(status));
    return status == H2OKV_OK;
}

static bool kept_are(const int32_t *pos, size_t n, const char *ranges)
{
    char text[128];
    return strcmp(cli_ranges(text, sizeof text, pos, n), ranges) == 0;
}

static bool holds(const int32_t *pos, size_t n, int32_t token)
{
    for (size_t i = 0; i < n; i++) {
        if (pos[i] == token) return true;
    }
    return false;
}

/* ---- 1: the worked example ---------------------------------------------------------------------------- */

static bool example_cache(h2okv_cache **cache, const float *mass, int32_t n, uint32_t budget, uint32_t recent)
{
    uint32_t cell[8];
    int32_t pos[8];
    h2okv_error error;
    h2okv_options o;
    h2okv_options_init(&o);
    o.cells = (uint32_t)n;
    o.budget = budget;
    o.recent = recent;
    for (int32_t i = 0; i < n; i++) cell[i] = (uint32_t)(pos[i] = i);
    if (h2okv_cache_create(cache, &o, &error)) return cli_error("demo", "%s", error.text);
    return call("admit", h2okv_cache_admit(*cache, cell, pos, (uint32_t)n)) &&
           call("observe", h2okv_cache_observe_mass(*cache, 0, mass));
}

static void print_example(const int32_t *kept, uint32_t n_kept, const double *score, int32_t n,
                          int32_t recent)
{
    cli_token row[8];
    for (int32_t i = 0; i < n; i++) {
        enum cli_group group = !holds(kept, n_kept, i) ? CLI_GONE : i >= n - recent ? CLI_RECENT : CLI_HEAVY;
        row[i] = (cli_token){ i, score[i], group, NULL };
    }
    cli_print_tokens(stdout, row, (size_t)n, 40);
}

static bool worked_example(void)
{
    static const float mass[] = { 3.8f, 0.4f, 2.1f, 0.3f, 0.0f };
    const h2okv_plan *plan;
    h2okv_cache *cache = NULL;
    int32_t pos[5];
    double score[5];
    uint32_t n;
    bool ok;
    title("1. Five tokens, room for four: 2 recent and 2 heavy hitters");
    ok = example_cache(&cache, mass, 5, 4, 2);
    if (ok) {
        h2okv_cache_kept(cache, 0, NULL, score, NULL);
        ok = call("plan", h2okv_cache_plan(cache, &plan)) && call("commit", h2okv_cache_commit(cache, plan));
    }
    if (ok) {
        n = h2okv_cache_kept(cache, 0, pos, NULL, NULL);
        print_example(pos, n, score, 5, 2);
        state(kept_are(pos, n, "0, 2..4"),
              "the two newest stay; of the others 0 and 2 score highest; 1 goes");
    }
    h2okv_cache_free(cache);
    return ok;
}

/* ---- The fifty tokens --------------------------------------------------------------------------------- */

/* A number in [0, 1) for a place in the demonstration (the splitmix64 mixer of Steele, Lea and Flood,
 * 2014). A function of the place alone, so that every policy sees the same tokens. */
static double uniform(uint64_t what, uint64_t step, uint64_t head, uint64_t token)
{
    uint64_t z = (((what * 64 + step) * 64 + head) * 64 + token + 1) * 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return (double)((z ^ (z >> 31)) >> 11) * 0x1p-53;
}

/* What the query of `step` gives to each of n tokens: softmax(uniform + 2 at tokens 5 and 10). */
static void attention(int step, int head, const int32_t *pos, size_t n, float *row)
{
    double e[MOST_KEPT], sum = 0;
    for (size_t i = 0; i < n; i++) {
        double logit = uniform(1, (uint64_t)step, (uint64_t)head, (uint64_t)pos[i]);
        e[i] = exp(logit + (pos[i] == 5 || pos[i] == 10 ? 2.0 : 0.0));
        sum += e[i];
    }
    for (size_t i = 0; i < n; i++) row[i] = (float)(e[i] / sum);
}

static void key_and_value(int step, float *key, float *value)
{
    for (uint64_t h = 0; h < HEADS; h++) {
        for (uint64_t d = 0; d < HEAD_DIM; d++) {
            key[h * HEAD_DIM + d] = (float)uniform(2, (uint64_t)step, h, d);
            value[h * HEAD_DIM + d] = (float)uniform(3, (uint64_t)step, h, d);
        }
    }
}

typedef struct run {
    h2okv_store *store;
    uint32_t n, largest; /* tokens held, and held at most after a step */
    int32_t pos[MOST_KEPT];
    double score[MOST_KEPT];
} run;

static bool read_run(run *r)
{
    r->n = h2okv_store_size(r->store, 0);
    if (r->n > r->largest) r->largest = r->n;
    return call("positions", h2okv_store_positions(r->store, 0, 0, r->pos)) &&
           call("scores", h2okv_store_scores(r->store, 0, 0, r->score));
}

static bool fifty_step(run *r, int step)
{
    float key[HEADS * HEAD_DIM], value[HEADS * HEAD_DIM], weights[HEADS * MOST_KEPT];
    key_and_value(step, key, value);
    for (int h = 0; h < HEADS; h++) attention(step, h, r->pos, r->n, weights + (size_t)h * r->n);
    return call("update", h2okv_store_update(r->store, 0, key, value, r->n ? weights : NULL)) && read_run(r);
}

static bool run_fifty(run *r, const char *policy, uint32_t sinks)
{
    h2okv_error error;
    h2okv_options o;
    h2okv_shape shape;
    bool ok = true;
    *r = (run){ 0 };
    h2okv_options_init(&o);
    h2okv_shape_init(&shape);
    o.budget = BUDGET;
    o.recent = RECENT;
    o.sinks = sinks;
    o.policy = policy;
    o.heads = H2OKV_HEADS_MEAN;
    o.cells = 0;
    shape.heads = HEADS;
    shape.head_dim = HEAD_DIM;
    if (h2okv_store_create(&r->store, &shape, &o, &error)) return cli_error("demo", "%s", error.text);
    for (int step = 0; step < TOKENS && ok; step++) ok = fifty_step(r, step);
    return ok;
}

/* Whether the store gives back, for each kept token, the key and value it came with. */
static bool rows_intact(const run *r)
{
    static float keys[HEADS * MOST_KEPT * HEAD_DIM], values[HEADS * MOST_KEPT * HEAD_DIM];
    float key[HEADS * HEAD_DIM], value[HEADS * HEAD_DIM];
    if (h2okv_store_keys(r->store, 0, 0, keys) || h2okv_store_values(r->store, 0, 0, values)) return false;
    for (uint32_t i = 0; i < r->n; i++) {
        key_and_value(r->pos[i], key, value);
        for (size_t h = 0; h < HEADS; h++) {
            size_t at = (h * r->n + i) * HEAD_DIM, bytes = HEAD_DIM * sizeof(float);
            if (memcmp(keys + at, key + h * HEAD_DIM, bytes) ||
                memcmp(values + at, value + h * HEAD_DIM, bytes)) {
                return false;
            }
        }
    }
    return true;
}

/* ---- 2: fifty tokens ---------------------------------------------------------------------------------- */

static void print_run(const run *r)
{
    cli_token row[MOST_KEPT];
    for (uint32_t i = 0; i < r->n; i++) {
        bool attended = r->pos[i] == 5 || r->pos[i] == 10;
        row[i] = (cli_token){ r->pos[i], r->score[i], i + RECENT >= r->n ? CLI_RECENT : CLI_HEAVY,
                              attended ? "attended to" : NULL };
    }
    cli_print_tokens(stdout, row, r->n, 40);
}

static void fifty_tokens(const run *h2o)
{
    title("\n2. Fifty tokens, room for 16: 8 recent and 8 heavy hitters");
    printf("  Random attention (8 heads of 64) that favours tokens 5 and 10. A score adds up\n"
           "  the heads' mean attention; the first tokens had all of it to themselves.\n\n");
    print_run(h2o);
    state(kept_are(h2o->pos, h2o->n, "0..6, 10, 42..49"),
          "kept {0..6, 10} as heavy hitters and {42..49} as recent");
    state(h2o->largest == BUDGET, "never more than %d tokens after a step", BUDGET);
    state(rows_intact(h2o), "each kept token has the key and the value it came with");
}

/* ---- 3: from recent to heavy, and out ----------------------------------------------------------------- */

enum { SCRIPT_STEPS = 16, SCRIPT_RECENT = 3, SCRIPT_BUDGET = 6, FORMER = 1, FIRST_NEW = 4 };

/* Which token each step's query looks at with 0.9 of its attention; it spreads the rest evenly. */
static const int32_t looks_at[SCRIPT_STEPS] = { -1, 0, 1, 1, 3, 4, 4, 4, 7, 8, 8, 8, 8, 12, 12, 12 };

typedef struct script {
    run run;
    int32_t gone;
    double gone_score;
    int became_heavy; /* the step in which token FIRST_NEW left the recent ones and stayed */
    int led;          /* the last step in which FORMER had the highest score */
    int evicted;      /* the step in which it went */
} script;

static void on_gone(void *user, const h2okv_event *event)
{
    script *s = user;
    s->gone = event->pos;
    s->gone_score = event->score;
}

static bool script_step(script *s, int step)
{
    float weights[MOST_KEPT], row[1] = { 0 };
    run *r = &s->run;
    for (uint32_t i = 0; i < r->n; i++) {
        weights[i] = r->n == 1 ? 1.0f : r->pos[i] == looks_at[step] ? 0.9f : 0.1f / (float)(r->n - 1);
    }
    s->gone = -1;
    return call("update", h2okv_store_update(r->store, 0, row, row, r->n ? weights : NULL)) && read_run(r);
}

static bool start_script(script *s)
{
    h2okv_error error;
    h2okv_options o;
    h2okv_shape shape;
    *s = (script){ .became_heavy = -1, .led = -1, .evicted = -1 };
    h2okv_options_init(&o);
    h2okv_shape_init(&shape);
    o.budget = SCRIPT_BUDGET;
    o.recent = SCRIPT_RECENT;
    o.cells = 0;
    o.on_event = on_gone;
    o.event_user = s;
    shape.heads = shape.head_dim = 1;
    return h2okv_store_create(&s->run.store, &shape, &o, &error) == H2OKV_OK ||
           cli_error("demo", "%s", error.text);
}

static double score_of(const run *r, int32_t token)
{
    for (uint32_t i = 0; i < r->n; i++) {
        if (r->pos[i] == token) return r->score[i];
    }
    return -1;
}

static bool leads(const run *r, int32_t token)
{
    for (uint32_t i = 0; i < r->n; i++) {
        if (r->score[i] > score_of(r, token)) return false;
    }
    return score_of(r, token) >= 0;
}

static void note_script(script *s, int step)
{
    int32_t recent_from = step + 1 - SCRIPT_RECENT;
    if (leads(&s->run, FORMER)) s->led = step;
    if (s->became_heavy < 0 && FIRST_NEW == recent_from - 1 && score_of(&s->run, FIRST_NEW) >= 0) {
        s->became_heavy = step;
    }
    if (s->gone == FORMER) s->evicted = step;
}

static void print_script_step(const script *s, int step)
{
    const run *r = &s->run;
    char heavy[64] = "", recent[32], gone[48] = "";
    uint32_t n_heavy = r->n > SCRIPT_RECENT ? r->n - SCRIPT_RECENT : 0;
    for (uint32_t i = 0, used = 0; i < n_heavy; i++) {
        used += (uint32_t)snprintf(heavy + used, sizeof heavy - used, "%s%" PRId32 " (%.2f)", i ? "  " : "",
                                   r->pos[i], r->score[i]);
    }
    if (s->gone >= 0) snprintf(gone, sizeof gone, "%" PRId32 " (%.2f)", s->gone, s->gone_score);
    printf("  %4d %8" PRId32 "   %-32s %s%-8s%s  %s\n", step, looks_at[step], heavy,
           cli_style(stdout, CLI_CYAN),
           cli_ranges(recent, sizeof recent, r->pos + n_heavy, r->n - n_heavy), cli_style(stdout, CLI_PLAIN),
           gone);
}

static bool between_groups(void)
{
    script s;
    bool ok = start_script(&s);
    title("\n3. From recent to heavy hitter, and out: room for 3 recent and 3 heavy");
    printf("  step looks at   heavy (score)                    recent    gone\n");
    for (int step = 0; step < SCRIPT_STEPS && ok; step++) {
        ok = script_step(&s, step);
        if (ok) note_script(&s, step);
        if (ok && step >= 4) print_script_step(&s, step);
    }
    if (ok) {
        state(s.became_heavy == FIRST_NEW + SCRIPT_RECENT,
              "token %d, attended to while recent, stays as a heavy hitter from step %d", FIRST_NEW,
              s.became_heavy);
        state(s.led >= 4 && s.evicted > s.led,
              "token %d led until step %d; overtaken by 4, 8 and 12 it goes in step %d", FORMER, s.led,
              s.evicted);
        state(kept_are(s.run.pos, s.run.n, "4, 8, 12..15"), "at the end the heavy hitters are 4, 8 and 12");
    }
    h2okv_store_free(s.run.store);
    return ok;
}

/* ---- 4: the same tokens, other policies --------------------------------------------------------------- */

/* Of the attention that the last query would give to all fifty tokens, the part that falls on kept ones. */
static double attention_kept(const run *r)
{
    int32_t all[TOKENS];
    float row[TOKENS];
    double sum = 0;
    for (int32_t i = 0; i < TOKENS; i++) all[i] = i;
    for (int h = 0; h < HEADS; h++) {
        attention(TOKENS, h, all, TOKENS, row);
        for (uint32_t i = 0; i < r->n; i++) sum += (double)row[r->pos[i]];
    }
    return sum / HEADS;
}

static void print_strip(const char *name, const run *r, uint32_t sinks, bool h2o)
{
    char strip[TOKENS + 1];
    memset(strip, '.', TOKENS);
    strip[TOKENS] = '\0';
    for (uint32_t i = 0; i < r->n; i++) {
        bool window = !h2o || i + RECENT >= r->n;
        uint32_t at = (uint32_t)r->pos[i];
        if (at >= TOKENS) continue; /* never: but a compiler that looks through the calls sees no reason why */
        strip[at] = at < sinks ? 'S' : window ? 'r' : 'H';
    }
    printf("  %-13s %s  %3.0f %%\n", name, strip, 100 * attention_kept(r));
}

static void compare(const run *h2o, const run *sinks, const run *window)
{
    title("\n4. The same fifty tokens in the same room under other policies");
    printf("  %-13s 0         10        20        30        40        attention kept\n", "");
    print_strip("h2o", h2o, 0, true);
    print_strip("sinks+window", sinks, SINKS, false);
    print_strip("window", window, 0, false);
    printf("  (H heavy hitter, r recent, S sink, . gone)\n");
    state(kept_are(window->pos, window->n, "34..49"), "a window keeps the newest 16 and loses 5 and 10");
    state(kept_are(sinks->pos, sinks->n, "0..3, 38..49"), "4 sinks and a window of 12 lose them too");
    state(holds(h2o->pos, h2o->n, 5) && holds(h2o->pos, h2o->n, 10),
          "H2O still has both: it saw them attended to");
    state(attention_kept(h2o) > attention_kept(sinks) && attention_kept(h2o) > attention_kept(window),
          "so it keeps the most of what the next token will look at");
}

/* ---- The command -------------------------------------------------------------------------------------- */

static bool tell(run *h2o, run *sinks, run *window)
{
    if (!worked_example() || !run_fifty(h2o, "h2o", 0)) return false;
    fifty_tokens(h2o);
    if (!between_groups()) return false;
    if (!run_fifty(sinks, "window", SINKS) || !run_fifty(window, "window", 0)) return false;
    compare(h2o, sinks, window);
    return true;
}

static int cmd_demo(int argc, char **argv)
{
    run h2o = { 0 }, sinks = { 0 }, window = { 0 };
    int first, code;
    bool told;
    if (!cli_parse(&cli_demo, argc, argv, NULL, &first, &code)) return code;
    if (first < argc) {
        cli_error("demo", "takes no argument, and '%s' is one", argv[first]);
        return CLI_USAGE;
    }
    wrong = 0;
    told = tell(&h2o, &sinks, &window);
    h2okv_store_free(h2o.store);
    h2okv_store_free(sinks.store);
    h2okv_store_free(window.store);
    if (!told) return CLI_ENGINE;
    if (wrong) cli_error("demo", "%d result%s not as stated", wrong, wrong == 1 ? " is" : "s are");
    return wrong ? CLI_CHECK : CLI_OK;
}

const cli_command cli_demo = {
    .name = "demo",
    .summary = "what is kept and why, on small numbers, each statement checked",
    .usage = "",
    .about = "Shows on small numbers what the cache keeps and why: a worked example, fifty\n"
             "tokens through the store, tokens that become heavy hitters or lose that place,\n"
             "and what other policies lose. Each statement is checked; exit 1 if one is wrong.",
    .example = "h2okv demo",
    .run = cmd_demo,
};
