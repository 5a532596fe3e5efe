/* engine.c - see engine.h. */
#include "support/engine.h"

#include "h2okv/advanced.h"

#include <string.h>

#define MUST(condition, text) \
    do {                      \
        if (!(condition)) {   \
            return text;      \
        }                     \
    } while (0)

void engine_init(engine *e, uint32_t lanes, uint32_t cells, uint64_t seed)
{
    memset(e, 0, sizeof *e);
    e->lanes = lanes;
    e->cells = cells;
    e->order.state = seed;
    for (uint32_t c = 0; c < cells; c++) {
        e->pos[c] = -1;
        for (uint32_t l = 0; l < lanes; l++) {
            e->kv[l][c] = ENGINE_JUNK;
        }
    }
}

const char *engine_put(engine *e, const uint32_t *cell, const int32_t *pos, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        MUST(cell[i] < e->cells && e->pos[cell[i]] == -1, "test puts a token into a cell that is not free");
        e->pos[cell[i]] = pos[i];
        for (uint32_t l = 0; l < e->lanes; l++) {
            e->kv[l][cell[i]] = pos[i];
        }
        e->used++;
    }
    e->peak = e->used > e->peak ? e->used : e->peak;
    return NULL;
}

uint32_t engine_find(engine *e, int scatter)
{
    uint32_t start = scatter ? rng_below(&e->order, e->cells) : 0;
    for (uint32_t i = 0; i < e->cells; i++) {
        uint32_t cell = (start + i) % e->cells;
        if (e->pos[cell] == -1) {
            return cell;
        }
    }
    return UINT32_MAX;
}

static int is_freed(const h2okv_plan *plan, uint32_t cell)
{
    for (uint32_t i = 0; i < plan->n_freed; i++) {
        if (plan->freed_cell[i] == cell) {
            return 1;
        }
    }
    return 0;
}

static const char *check_move(const engine *e, const h2okv_plan *plan, uint32_t i)
{
    const h2okv_move *m = &plan->moves[i];
    MUST(m->lane < e->lanes && m->from < e->cells && m->to < e->cells, "move outside the table");
    MUST(i == 0 || plan->moves[i - 1].lane <= m->lane, "moves not by rising lane");
    MUST(e->pos[m->from] != -1 && e->pos[m->to] != -1, "move from or to a free cell");
    MUST(is_freed(plan, m->from), "move out of a cell that is not freed");
    MUST(!is_freed(plan, m->to), "move into a cell that is freed");
    for (uint32_t k = 0; k < plan->n_moves; k++) {
        const h2okv_move *other = &plan->moves[k];
        if (other->lane != m->lane) {
            continue;
        }
        MUST(other->from != m->to, "a `to` is a `from`");
        MUST(k == i || (other->to != m->to && other->from != m->from), "two moves from or to one cell");
    }
    return NULL;
}

/* Evicting frees the oldest positions and never the newest; trim frees the newest ones. */
static const char *check_freed(const engine *e, const h2okv_plan *plan, int trim)
{
    MUST(plan->n_freed <= e->used, "more cells freed than used");
    for (uint32_t i = 0; i < plan->n_freed; i++) {
        uint32_t cell = plan->freed_cell[i];
        MUST(cell < e->cells && e->pos[cell] != -1, "freed cell is not in use");
        MUST(e->pos[cell] == plan->freed_pos[i], "freed_pos is not where the engine put the token");
        for (uint32_t k = 0; k < i; k++) {
            MUST(plan->freed_cell[k] != cell, "cell freed twice");
        }
        for (uint32_t c = 0; c < e->cells; c++) {
            if (e->pos[c] != -1 && !is_freed(plan, c)) {
                MUST(trim ? e->pos[c] < e->pos[cell] : e->pos[c] > e->pos[cell],
                     trim ? "trim freed an older position than one that stays"
                          : "freed a newer position than one that stays");
            }
        }
    }
    MUST(trim || plan->n_freed == 0 || plan->n_freed < e->used, "newest token freed");
    MUST(trim || plan->n_lost == 0, "n_lost in a plan that is no trim");
    return NULL;
}

/* From a random place on, wrapped around: "in a lane any order is safe". */
static void do_moves(engine *e, const h2okv_plan *plan)
{
    uint32_t start = plan->n_moves ? rng_below(&e->order, plan->n_moves) : 0;
    for (uint32_t i = 0; i < plan->n_moves; i++) {
        const h2okv_move *m = &plan->moves[(start + i) % plan->n_moves];
        if (!e->skip_moves) {
            e->kv[m->lane][m->to] = e->kv[m->lane][m->from];
        }
        e->n_moves++;
    }
}

const char *engine_apply(engine *e, const h2okv_plan *plan, int trim)
{
    const char *wrong = check_freed(e, plan, trim);
    for (uint32_t i = 0; !wrong && i < plan->n_moves; i++) {
        wrong = check_move(e, plan, i);
    }
    MUST(!wrong, wrong);
    do_moves(e, plan);
    for (uint32_t i = 0; i < plan->n_freed; i++) {
        e->pos[plan->freed_cell[i]] = -1;
        for (uint32_t l = 0; l < e->lanes; l++) {
            e->kv[l][plan->freed_cell[i]] = ENGINE_JUNK;
        }
    }
    e->used -= plan->n_freed;
    return NULL;
}

static const char *check_view(const engine *e, const h2okv_lane_view *view, uint32_t lane)
{
    uint32_t held = 0;
    MUST(view->lane == lane && view->cells == e->cells && view->live == e->used, "view's numbers");
    for (uint32_t c = 0; c < e->cells; c++) {
        MUST((view->pos[c] == -1) == (e->pos[c] == -1), "hole in the lane, not in the engine, or the other way");
        held += view->pos[c] != -1;
        MUST(view->pos[c] != -1 || (view->score[c] >= 0.0 && view->score[c] <= 0.0), "hole with a score");
        MUST(view->pos[c] == -1 || e->kv[lane][c] == view->pos[c], "cell holds another token's K and V");
    }
    MUST(held == view->live, "tokens in cells are not `live`");
    for (uint32_t i = 0; i < view->live; i++) {
        MUST(view->order[i] < e->cells && view->pos[view->order[i]] != -1, "order names a hole");
        MUST(i == 0 || view->pos[view->order[i - 1]] < view->pos[view->order[i]], "order not by position");
    }
    return NULL;
}

static const char *check_kept(const h2okv_cache *cache, const h2okv_lane_view *view)
{
    int32_t pos[ENGINE_MAX_CELLS];
    double score[ENGINE_MAX_CELLS];
    uint32_t cell[ENGINE_MAX_CELLS];
    MUST(h2okv_cache_kept(cache, view->lane, NULL, NULL, NULL) == view->live, "kept counts without arrays");
    MUST(h2okv_cache_kept(cache, view->lane, pos, score, cell) == view->live, "kept is not `live`");
    for (uint32_t i = 0; i < view->live; i++) {
        MUST(cell[i] == view->order[i] && pos[i] == view->pos[cell[i]], "kept and view differ");
        MUST(memcmp(&score[i], &view->score[cell[i]], sizeof score[i]) == 0, "kept and view differ in score");
    }
    return NULL;
}

static int32_t newest(const engine *e)
{
    int32_t pos = -1;
    for (uint32_t c = 0; c < e->cells; c++) {
        pos = e->pos[c] > pos ? e->pos[c] : pos;
    }
    return pos;
}

const char *engine_check(const engine *e, const h2okv_cache *cache)
{
    h2okv_cache_stats stats;
    h2okv_cache_get_stats(cache, &stats);
    MUST(stats.live == e->used && h2okv_cache_live(cache) == e->used, "live is not what the engine holds");
    MUST(stats.peak_live == e->peak, "peak_live is not what the engine counted");
    MUST(stats.moves == e->n_moves, "stats.moves is not what the engine counted");
    MUST(stats.newest == newest(e), "stats.newest is not the engine's newest");
    for (uint32_t l = 0; l < e->lanes; l++) {
        h2okv_lane_view view;
        const char *wrong;
        MUST(h2okv_cache_lane(cache, l, &view) == H2OKV_OK, "lane view refused");
        wrong = check_view(e, &view, l);
        wrong = wrong ? wrong : check_kept(cache, &view);
        MUST(!wrong, wrong);
    }
    return NULL;
}
