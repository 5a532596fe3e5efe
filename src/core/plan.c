/*
 * plan.c - from victims to moves and freed cells, and the commit that makes them true.
 *
 * Every lane chooses its own victims, but a cell is free only when no lane needs it. So the cells to free are the
 * same for all (F, the oldest engine positions), and a lane copies each token that it keeps out of F into the cell
 * of one of its victims outside F:
 *
 *   cells      | F: freed      | the rest              |
 *   lane       | a   v   b     | .   v   .   v   .     |     v: victims, as many as F has cells
 *   after      | -   -   -     | .   a   .   b   .     |     moves: a and b into the victims' cells
 *
 * No target is a source, since sources lie in F and targets do not: any order of moves is safe.
 */
#include "cache.h"

#include <string.h>

enum mark { MARK_FREED = 1, MARK_VICTIM = 2 };

/* Cells engine_order[first..first + n) are to be freed. */
typedef struct freed_run {
    uint32_t first, n;
} freed_run;

static void mark_cells(h2okv_cache *c, freed_run freed, uint8_t value)
{
    for (uint32_t i = 0; i < freed.n; i++) {
        c->mark[c->engine_order[freed.first + i]] = value;
    }
}

/* The victims' cells: those the selector chose, then everything from order[n_among] on (a trim's tail). */
static uint32_t victim_cell(const h2okv_cache *c, const h2okv__lane *lane, uint32_t n_chosen, uint32_t n_among,
                            uint32_t i)
{
    return lane->order[i < n_chosen ? c->candidate[i].index : n_among + (i - n_chosen)];
}

/* Pair the tokens that the lane keeps out of F with its victims outside F. */
static void plan_moves(h2okv_cache *c, const h2okv__lane *lane, freed_run freed, uint32_t n_among)
{
    uint32_t n_chosen = freed.n - (c->live - n_among);
    for (uint32_t i = 0; i < freed.n; i++) {
        c->mark[victim_cell(c, lane, n_chosen, n_among, i)] |= MARK_VICTIM;
    }
    uint32_t source = 0;
    for (uint32_t i = 0; i < freed.n; i++) {
        uint32_t to = victim_cell(c, lane, n_chosen, n_among, i);
        if (c->mark[to] & MARK_FREED) {
            continue; /* goes where it lies; still marked a victim, so it is no source */
        }
        c->mark[to] = 0;
        while (c->mark[c->engine_order[freed.first + source]] & MARK_VICTIM) {
            source++;
        }
        c->move[c->plan.n_moves++] = (h2okv_move){lane->index, c->engine_order[freed.first + source++], to};
    }
    mark_cells(c, freed, MARK_FREED);
}

static int plan_lane(h2okv_cache *c, uint32_t index, freed_run freed, int32_t cut)
{
    h2okv__lane lane = h2okv__lane_of(c, index);
    uint32_t n_among = h2okv__lane_count_below(&lane, c->live, cut);
    uint32_t n_chosen = freed.n - (c->live - n_among);
    int status = h2okv__select(c, &lane, n_among, n_chosen);
    if (status == H2OKV_OK) {
        plan_moves(c, &lane, freed, n_among);
        c->plan.n_lost = n_chosen > c->plan.n_lost ? n_chosen : c->plan.n_lost;
    }
    return status;
}

/* Plan to free a run of cells, dropping in every lane first what lies at `cut` and above. */
static int plan_freeing(h2okv_cache *c, freed_run freed, int32_t cut, uint32_t kind)
{
    c->plan = (h2okv_plan){.moves = c->move, .freed_pos = c->freed_pos, .epoch = ++c->epoch};
    c->plan_kind = kind;
    c->plan_cut = cut;
    mark_cells(c, freed, MARK_FREED);
    int status = H2OKV_OK;
    for (uint32_t l = 0; l < c->options.lanes && status == H2OKV_OK && freed.n > 0; l++) {
        status = plan_lane(c, l, freed, cut);
    }
    mark_cells(c, freed, 0);
    if (status != H2OKV_OK) {
        c->epoch++; /* nobody may commit the half */
        return status;
    }
    c->plan.n_freed = freed.n;
    c->plan.freed_cell = c->engine_order + freed.first;
    for (uint32_t i = 0; i < freed.n; i++) {
        c->freed_pos[i] = c->engine_pos[c->plan.freed_cell[i]];
    }
    return H2OKV_OK;
}

int h2okv_cache_plan(h2okv_cache *c, const h2okv_plan **out)
{
    bool unobserved = c->n_fresh > 0 && c->n_observed < c->options.lanes;
    if (unobserved && (c->policy.flags & H2OKV_POLICY_NEEDS_SCORES) != 0) {
        return H2OKV_E_ORDER;
    }
    bool over = c->live > c->options.budget && (c->policy.flags & H2OKV_POLICY_KEEPS_ALL) == 0;
    freed_run oldest = {0, over ? c->live - c->options.budget : 0};
    int status = plan_freeing(c, oldest, INT32_MAX, H2OKV_EVENT_EVICT);
    if (status == H2OKV_OK) {
        c->plan.n_lost = 0;
        *out = &c->plan;
    }
    return status;
}

int h2okv_cache_trim(h2okv_cache *c, int32_t pos0, const h2okv_plan **out)
{
    if (pos0 < 0) {
        return H2OKV_E_INVALID;
    }
    uint32_t kept = c->live;
    while (kept > 0 && c->engine_pos[c->engine_order[kept - 1]] >= pos0) {
        kept--;
    }
    freed_run newest = {kept, c->live - kept};
    int status = plan_freeing(c, newest, pos0, H2OKV_EVENT_TRIM);
    if (status == H2OKV_OK) {
        *out = &c->plan;
    }
    return status;
}

static void tell_event(const h2okv_cache *c, const h2okv__lane *lane, uint32_t cell)
{
    if (c->options.on_event != NULL) {
        h2okv_event event = {
            .kind = c->plan_kind,
            .lane = lane->index,
            .cell = cell,
            .pos = lane->pos[cell],
            .score = lane->score[cell],
            .pass = c->passes,
        };
        c->options.on_event(c->options.event_user, &event);
    }
}

/* Victims are the targets of moves, and the freed cells that are no source. */
static void commit_lane(h2okv_cache *c, uint32_t index, const h2okv_move *move, uint32_t n_moves)
{
    h2okv__lane lane = h2okv__lane_of(c, index);
    uint32_t live = c->live;
    for (uint32_t i = 0; i < n_moves; i++) {
        c->mark[move[i].from] = MARK_FREED;
        tell_event(c, &lane, move[i].to);
        h2okv__lane_remove(&lane, live--, move[i].to);
    }
    for (uint32_t i = 0; i < c->plan.n_freed; i++) {
        uint32_t cell = c->plan.freed_cell[i];
        if (c->mark[cell] == 0) {
            tell_event(c, &lane, cell);
            h2okv__lane_remove(&lane, live--, cell);
        }
    }
    for (uint32_t i = 0; i < n_moves; i++) {
        c->mark[move[i].from] = 0;
        h2okv__lane_rename(&lane, live, move[i].from, move[i].to);
    }
}

static void free_cells(h2okv_cache *c)
{
    uint32_t n = c->plan.n_freed;
    for (uint32_t i = 0; i < n; i++) {
        c->engine_pos[c->plan.freed_cell[i]] = H2OKV__HOLE;
    }
    c->live -= n;
    if (n > 0 && c->plan.freed_cell == c->engine_order) { /* the oldest: close the gap */
        memmove(c->engine_order, c->engine_order + n, c->live * sizeof *c->engine_order);
    }
}

/* Remember where this pass began, or where the next will; a trim takes later beginnings back. */
static void note_pass_first(h2okv_cache *c)
{
    uint32_t grace = c->options.grace;
    if (grace > 0) {
        c->grace_first[c->passes % grace] = h2okv__pass_first(c);
    }
    for (uint32_t i = 0; i < grace; i++) {
        c->grace_first[i] = c->grace_first[i] < c->plan_cut ? c->grace_first[i] : c->plan_cut;
    }
}

/* A probe is no text: positions from its first on are still to come, and stay pinned. */
static bool is_probe_start(const h2okv_cache *c, int32_t pos)
{
    return c->n_probe > 0 && pos == c->engine_pos[c->engine_order[c->live - c->n_probe]];
}

static void end_pass(h2okv_cache *c)
{
    note_pass_first(c);
    c->pass_first = H2OKV__HOLE;
    c->n_fresh = c->n_observed = c->n_probe = 0;
    c->passes++;
    c->epoch++;
}

int h2okv_cache_commit(h2okv_cache *c, const h2okv_plan *plan)
{
    if (plan != &c->plan || plan->epoch != c->epoch) {
        return H2OKV_E_STALE;
    }
    const h2okv_move *move = c->plan.moves, *end = move + c->plan.n_moves;
    for (uint32_t l = 0; l < c->options.lanes; l++) {
        uint32_t n = 0;
        while (move + n < end && move[n].lane == l) {
            n++;
        }
        commit_lane(c, l, move, n);
        move += n;
    }
    c->moves += c->plan.n_moves;
    c->evicted += c->plan_kind == H2OKV_EVENT_EVICT ? c->plan.n_freed : 0;
    bool drops_probe = is_probe_start(c, c->plan_cut);
    free_cells(c);
    if (!drops_probe) {
        h2okv__cut_pins(c, c->plan_cut);
    }
    end_pass(c);
    return H2OKV_OK;
}
