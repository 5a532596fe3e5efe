/* rig.c - see rig.h. */
#include "support/rig.h"

#include "support/check.h"
#include "support/snapshot.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define JUNK_WEIGHT 1e6f /* in columns that are holes: must not count */

rig_options rig_defaults(uint64_t seed)
{
    return (rig_options){
        .seed = seed, .lanes = 2, .cells = 24, .budget = 12, .recent = 6, .group = 1, .count_self = 1,
        .heads = H2OKV_HEADS_SUM,
        .parts = 1, .decay = 1.0, .policy = "h2o",
    };
}

static enum oracle_policy oracle_policy_of(const rig_options *o)
{
    static const struct {
        const char *name;
        enum oracle_policy policy;
    } known[] = {
        { "h2o", ORACLE_H2O },         { "h2o-paper", ORACLE_H2O }, { "default", ORACLE_H2O }, { "snapkv", ORACLE_H2O },
        { "window", ORACLE_WINDOW },   { "streaming", ORACLE_WINDOW }, { "full", ORACLE_FULL },
        { "tova", ORACLE_NEWEST },     { "lifetime", ORACLE_LIFETIME },
    };
    for (size_t i = 0; o->custom == NULL && i < sizeof known / sizeof known[0]; i++) {
        if (strcmp(o->policy, known[i].name) == 0) {
            return known[i].policy;
        }
    }
    return ORACLE_GIVEN;
}

/* Policies that the oracle does not know: it takes the library's ranks, and tests the selector with them. */
static double rank_of_policy(void *user, uint32_t lane, int32_t pos, double score)
{
    rig *r = user;
    const h2okv_policy *policy = r->options.custom ? r->options.custom : h2okv_policy_find(r->options.policy);
    double scratch[ENGINE_MAX_CELLS];
    h2okv_lane_view view;
    (void)score;
    CHECK_OK(h2okv_cache_lane(r->cache, lane, &view));
    for (uint32_t c = 0; c < view.cells; c++) {
        if (view.pos[c] == pos) {
            return policy->rank(&view, scratch)[c];
        }
    }
    CHECK(0 && "the oracle holds a token that the cache does not");
    return 0.0;
}

static void set_options(rig *r)
{
    const rig_options *o = &r->options;
    h2okv_options_init(&r->created);
    r->created.lanes = o->lanes;
    r->created.cells = o->cells;
    r->created.budget = o->budget;
    r->created.recent = o->recent;
    r->created.sinks = o->sinks;
    r->created.grace = o->grace;
    r->created.pool = o->pool;
    r->created.count_self = o->count_self;
    r->created.heads = o->heads;
    r->created.parts = o->parts;
    r->created.decay = o->decay;
    r->created.policy = o->policy;
    r->created.custom_policy = o->custom;
    r->created.seed = o->seed;
    r->created.on_event = o->on_event;
    r->created.event_user = o->event_user;
}

static void start_oracle(rig *r)
{
    const rig_options *o = &r->options;
    oracle_init(&r->oracle, &(oracle_options){
        .lanes = o->lanes, .budget = o->budget, .recent = o->recent, .sinks = o->sinks, .grace = o->grace,
        .pool = o->pool,
        .count_self = (int)o->count_self, .mean = o->heads == H2OKV_HEADS_MEAN, .decay = o->decay,
        .policy = oracle_policy_of(o), .rank = rank_of_policy, .user = r });
}

rig *rig_create(const rig_options *options)
{
    rig *r = calloc(1, sizeof *r);
    CHECK(r != NULL);
    r->options = *options;
    set_options(r);
    CHECK_OK(h2okv_cache_create(&r->cache, &r->created, NULL));
    rig_restart(r);
    return r;
}

void rig_restart(rig *r)
{
    r->rng.state = r->options.seed;
    r->next_pos = 0;
    r->admitted = r->evicted = r->passes = 0;
    start_oracle(r);
    engine_init(&r->engine, r->options.lanes, r->options.cells, r->options.seed + 1);
}

rig *rig_twin(const rig *r)
{
    rig *twin = malloc(sizeof *twin);
    CHECK(twin != NULL);
    memcpy(twin, r, sizeof *twin);
    twin->oracle.options.user = twin;
    twin->cache = NULL;
    CHECK_OK(h2okv_cache_create(&twin->cache, &twin->created, NULL));
    return twin;
}

void rig_free(rig *r)
{
    h2okv_cache_free(r->cache);
    free(r);
}

void rig_choose(rig *r, uint32_t n)
{
    engine try = r->engine;
    r->fresh = n;
    for (uint32_t i = 0; i < n; i++) {
        if (r->options.gaps && rng_below(&r->rng, 8) == 0) {
            r->next_pos += 1 + (int32_t)rng_below(&r->rng, 3);
        }
        r->cell[i] = engine_find(&try, r->options.scatter);
        r->pos[i] = r->next_pos++;
        CHECK_RIGHT(engine_put(&try, &r->cell[i], &r->pos[i], 1));
    }
    r->engine.order = try.order;
}

void rig_admit_chosen(rig *r)
{
    CHECK(r->next_pos <= RIG_POSITIONS && r->fresh <= RIG_QUERIES);
    CHECK_RIGHT(engine_put(&r->engine, r->cell, r->pos, r->fresh));
    CHECK_OK(h2okv_cache_admit(r->cache, r->cell, r->pos, r->fresh));
    oracle_admit(&r->oracle, r->pos, r->fresh);
    r->admitted += r->fresh;
}

void rig_admit(rig *r, uint32_t n)
{
    rig_choose(r, n);
    rig_admit_chosen(r);
}

/* A softmax-like row over the tokens that the query may see: the lane's own, up to the query's position. */
static void fill_row(rig *r, float *row, uint32_t lane, int32_t query_pos)
{
    const oracle_lane *l = &r->oracle.lane[lane];
    float sum = 0.0f;
    memset(row, 0, RIG_POSITIONS * sizeof *row);
    for (uint32_t i = 0; i < l->count && l->token[i].pos <= query_pos; i++) {
        float u = rng_float(&r->rng);
        row[l->token[i].pos] = r->options.coarse ? floorf(u * 5.0f) / 16.0f : u * u * u * u + 1e-3f;
        sum += row[l->token[i].pos];
    }
    for (uint32_t p = 0; !r->options.coarse && p < RIG_POSITIONS; p++) {
        row[p] /= sum;
    }
}

/* Columns: all cells in order, cells up to the last one in use, the cells in use in a random order, or all of
 * them in a random order. */
static void choose_columns(rig *r, h2okv_weights *w)
{
    uint32_t n = 0, way = rng_below(&r->rng, 4), last = 0;
    for (uint32_t c = 0; c < r->engine.cells; c++) {
        if (r->engine.pos[c] != -1) {
            last = c;
        }
        if (way != 2 || r->engine.pos[c] != -1) {
            r->column[n++] = c;
        }
    }
    for (uint32_t i = n; way >= 2 && i > 1; i--) {
        uint32_t k = rng_below(&r->rng, i), swap = r->column[k];
        r->column[k] = r->column[i - 1];
        r->column[i - 1] = swap;
    }
    w->columns = way == 1 ? last + 1 : n;
    w->cell_of_column = way >= 2 ? r->column : NULL;
}

static void choose_strides(rig *r, h2okv_weights *w)
{
    size_t row = w->columns + rng_below(&r->rng, 4);
    if (rng_below(&r->rng, 2)) {
        w->query_stride = row;
        w->head_stride = row * w->queries + rng_below(&r->rng, 4);
    } else {
        w->head_stride = row;
        w->query_stride = row * w->heads;
    }
}

h2okv_weights rig_weights(rig *r, uint32_t lane)
{
    h2okv_weights w = { .heads = r->options.group, .queries = r->fresh, .data = r->data };
    choose_columns(r, &w);
    choose_strides(r, &w);
    for (uint32_t h = 0; h < w.heads; h++) {
        for (uint32_t q = 0; q < w.queries; q++) {
            float *row = &r->data[h * w.head_stride + q * w.query_stride];
            fill_row(r, r->weight[h][q], lane, r->pos[q]);
            for (uint32_t i = 0; i < w.columns; i++) {
                uint32_t cell = r->column[i];
                row[i] = r->engine.pos[cell] == -1 ? JUNK_WEIGHT : r->weight[h][q][r->engine.kv[lane][cell]];
            }
        }
    }
    return w;
}

static double weight_at(void *user, uint32_t head, uint32_t query, int32_t pos)
{
    rig *r = user;
    return (double)r->weight[head][query][pos];
}

void rig_observe(rig *r, uint32_t lane)
{
    h2okv_weights w = rig_weights(r, lane);
    CHECK_OK(h2okv_cache_observe(r->cache, lane, &w));
    oracle_observe(&r->oracle, lane, w.heads, weight_at, r);
}

void rig_observe_all(rig *r)
{
    uint32_t first = rng_below(&r->rng, r->options.lanes);
    for (uint32_t i = 0; i < r->options.lanes * r->options.parts; i++) {
        rig_observe(r, (first + i) % r->options.lanes);
    }
}

static int keeps_all(const rig *r)
{
    return r->oracle.options.policy == ORACLE_FULL;
}

void rig_commit(rig *r, const h2okv_plan *plan, int trim)
{
    CHECK_RIGHT(engine_apply(&r->engine, plan, trim));
    CHECK_OK(h2okv_cache_commit(r->cache, plan));
    r->evicted += trim ? 0 : plan->n_freed;
    r->passes++;
}

void rig_evict(rig *r)
{
    const h2okv_plan *plan = NULL;
    CHECK_OK(h2okv_cache_plan(r->cache, &plan));
    CHECK(plan->n_freed == oracle_evict(&r->oracle));
    rig_commit(r, plan, 0);
    CHECK_RIGHT(rig_check(r));
    CHECK(keeps_all(r) || h2okv_cache_live(r->cache) <= r->oracle.options.budget);
}

void rig_trim(rig *r, int32_t pos0)
{
    const h2okv_plan *plan = NULL;
    CHECK_OK(h2okv_cache_trim(r->cache, pos0, &plan));
    CHECK(plan->n_lost == oracle_trim(&r->oracle, pos0));
    rig_commit(r, plan, 1);
    CHECK_RIGHT(rig_check(r));
    r->next_pos = pos0 < r->next_pos ? pos0 : r->next_pos;
}

void rig_pin(rig *r, int32_t first, int32_t end)
{
    CHECK_OK(h2okv_cache_pin(r->cache, first, end, NULL));
    oracle_pin(&r->oracle, first, end);
}

void rig_set_budget(rig *r, uint32_t budget, uint32_t recent)
{
    CHECK_OK(h2okv_cache_set_budget(r->cache, budget, recent, NULL));
    r->oracle.options.budget = budget;
    r->oracle.options.recent = recent;
}

void rig_probe_pass(rig *r, uint32_t n, uint32_t probe)
{
    rig_admit(r, n + probe);
    uint32_t spread = (n + 2 * probe) % 5 == 4 ? UINT32_MAX : (n + 2 * probe) % 5;
    CHECK_OK(h2okv_cache_probe(r->cache, probe, spread));
    oracle_probe(&r->oracle, probe);
    rig_observe_all(r);
    oracle_spread(&r->oracle, spread);
    CHECK_RIGHT(rig_check(r));
    rig_trim(r, r->pos[n]);
    rig_evict(r);
}

void rig_pass(rig *r, uint32_t n)
{
    rig_admit(r, n);
    rig_observe_all(r);
    rig_evict(r);
}

static const char *check_lane(const rig *r, uint32_t lane)
{
    const oracle_lane *expected = &r->oracle.lane[lane];
    int32_t pos[ENGINE_MAX_CELLS];
    double score[ENGINE_MAX_CELLS];
    if (h2okv_cache_kept(r->cache, lane, pos, score, NULL) != expected->count) {
        return "lane and oracle hold different numbers of tokens";
    }
    for (uint32_t i = 0; i < expected->count; i++) {
        if (pos[i] != expected->token[i].pos) {
            return "lane and oracle hold different tokens";
        }
        if (!check_close(score[i], expected->token[i].score)) {
            return "lane and oracle differ in a score";
        }
    }
    return NULL;
}

const char *rig_check(const rig *r)
{
    const char *wrong = engine_check(&r->engine, r->cache);
    h2okv_cache_stats stats;
    h2okv_cache_get_stats(r->cache, &stats);
    if (stats.admitted != r->admitted || stats.evicted != r->evicted || stats.passes != r->passes) {
        return "stats count wrong";
    }
    for (uint32_t l = 0; !wrong && l < r->options.lanes; l++) {
        wrong = check_lane(r, l);
    }
    return wrong;
}

const char *rig_differ(const rig *a, const rig *b)
{
    snapshot mine = snapshot_take(a->cache, a->options.lanes);
    int same = snapshot_same(&mine, b->cache, b->options.lanes);
    snapshot_free(&mine);
    if (!same) {
        return "the caches differ";
    }
    int engines = memcmp(a->engine.kv, b->engine.kv, sizeof a->engine.kv) == 0 &&
                  memcmp(a->engine.pos, b->engine.pos, sizeof a->engine.pos) == 0 &&
                  a->engine.n_moves == b->engine.n_moves;
    return engines ? NULL : "the engines differ";
}

rig *rig_with_a_past(uint64_t seed)
{
    static const char *const policies[] = { "h2o", "default", "snapkv", "lifetime", "streaming", "random", "full" };
    rig_options o = rig_defaults(seed);
    o.policy = policies[seed % 7];
    o.cells = strcmp(o.policy, "full") == 0 ? 480 : o.cells;
    o.lanes = 1 + (uint32_t)(seed % RIG_LANES);
    o.recent = 2 + (uint32_t)(seed % 4);
    o.sinks = (uint32_t)(seed % 3);
    o.grace = (uint32_t)(seed % 4);
    o.decay = seed % 2 ? 1.0 : 0.97;
    o.scatter = seed % 3 != 0;
    o.group = 1 + (uint32_t)(seed % 2);
    rig *r = rig_create(&o);
    rig_pin(r, 2, 4);
    for (uint32_t i = 0; i < 10; i++) {
        rig_pass(r, 1 + (i + (uint32_t)seed) % 7);
    }
    /* The oracle ranks by lifetime as if the tail had never been, the library with it: no lossy trim there. */
    rig_trim(r, r->next_pos - 1 - (int32_t)(strcmp(o.policy, "lifetime") == 0 ? 0 : seed % 5));
    rig_pin(r, r->next_pos + 1, r->next_pos + 3);
    rig_probe_pass(r, 3, 2);
    rig_set_budget(r, o.budget + 1, o.recent + 1);
    rig_pass(r, 4);
    return r;
}
