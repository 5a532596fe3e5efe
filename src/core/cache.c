/* cache.c - a cache's life: its one block of memory, admitting tokens, and reading what it holds. */
#include "cache.h"

#include "base/options.h"

#include <string.h>

/* Offsets of the arrays in the cache's block; see memory.h. */
typedef struct parts {
    h2okv__layout layout;
    size_t engine_pos, engine_order, grace_first, pos, score, score_before, order, observed, mass, rank, candidate,
        mark, move, freed_pos;
} parts;

static parts place_parts(const h2okv_options *o)
{
    parts p = {{0, false}, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0};
    h2okv__layout *layout = &p.layout;
    size_t cells = o->cells;
    size_t all = h2okv__mul(o->lanes, cells, &layout->overflow);
    h2okv__place(layout, 1, sizeof(h2okv_cache));
    p.engine_pos = h2okv__place(layout, cells, sizeof(int32_t));
    p.engine_order = h2okv__place(layout, cells, sizeof(uint32_t));
    p.grace_first = h2okv__place(layout, o->grace, sizeof(int32_t));
    p.pos = h2okv__place(layout, all, sizeof(int32_t));
    p.score = h2okv__place(layout, all, sizeof(double));
    p.score_before = h2okv__place(layout, all, sizeof(double));
    p.order = h2okv__place(layout, all, sizeof(uint32_t));
    p.observed = h2okv__place(layout, o->lanes, sizeof(uint32_t));
    p.mass = h2okv__place(layout, cells, sizeof(double));
    p.rank = h2okv__place(layout, cells, sizeof(double));
    p.candidate = h2okv__place(layout, cells, sizeof(h2okv__candidate));
    p.mark = h2okv__place(layout, cells, sizeof(uint8_t));
    /* A lane moves a token out of a freed cell into a kept one, so at most half of the cells are targets. */
    p.move = h2okv__place(layout, h2okv__mul(o->lanes, cells / 2, &layout->overflow), sizeof(h2okv_move));
    p.freed_pos = h2okv__place(layout, cells, sizeof(int32_t));
    return p;
}

int h2okv_cache_bytes(const h2okv_options *options, size_t *bytes)
{
    h2okv_options read;
    int status = h2okv__options_read(&read, options, NULL);
    if (status != H2OKV_OK) {
        return status;
    }
    parts p = place_parts(&read);
    if (p.layout.overflow) {
        return H2OKV_E_NOMEM;
    }
    *bytes = h2okv__alloc_bytes(p.layout.bytes);
    return H2OKV_OK;
}

static void point_to_parts(h2okv_cache *c, const parts *p)
{
    unsigned char *block = (unsigned char *)c;
    c->engine_pos = (int32_t *)(void *)(block + p->engine_pos);
    c->engine_order = (uint32_t *)(void *)(block + p->engine_order);
    c->grace_first = (int32_t *)(void *)(block + p->grace_first);
    c->pos = (int32_t *)(void *)(block + p->pos);
    c->score = (double *)(void *)(block + p->score);
    c->score_before = (double *)(void *)(block + p->score_before);
    c->order = (uint32_t *)(void *)(block + p->order);
    c->observed = (uint32_t *)(void *)(block + p->observed);
    c->mass = (double *)(void *)(block + p->mass);
    c->rank = (double *)(void *)(block + p->rank);
    c->candidate = (h2okv__candidate *)(void *)(block + p->candidate);
    c->mark = block + p->mark;
    c->move = (h2okv_move *)(void *)(block + p->move);
    c->freed_pos = (int32_t *)(void *)(block + p->freed_pos);
}

int h2okv_cache_create(h2okv_cache **out, const h2okv_options *options, h2okv_error *error)
{
    *out = NULL;
    h2okv_options read;
    int status = h2okv__options_read(&read, options, error);
    if (status != H2OKV_OK) {
        return status;
    }
    parts p = place_parts(&read);
    h2okv_cache *c = p.layout.overflow ? NULL : h2okv__alloc(read.allocator, p.layout.bytes);
    if (c == NULL) {
        return h2okv_error_set(error, H2OKV_E_NOMEM, "cells",
                           "no memory for the books of %u lanes x %u cells: use a smaller budget", read.lanes,
                           read.cells);
    }
    point_to_parts(c, &p);
    c->options = read;
    c->first_budget = read.budget;
    c->first_recent = read.recent;
    (void)h2okv__policy_read(&c->policy, read.custom_policy, NULL); /* it was good a moment ago */
    c->options.custom_policy = &c->policy;
    c->has_allocator = read.allocator != NULL;
    if (c->has_allocator) {
        c->allocator = *read.allocator;
    }
    c->bytes = p.layout.bytes;
    h2okv_cache_clear(c);
    *out = c;
    return H2OKV_OK;
}

void h2okv_cache_free(h2okv_cache *c)
{
    if (c != NULL) {
        h2okv_allocator allocator = c->allocator; /* it lies in the block that goes */
        h2okv__release(c->has_allocator ? &allocator : NULL, c, c->bytes);
    }
}

void h2okv_cache_clear(h2okv_cache *c)
{
    size_t cells = c->options.cells, all = cells * c->options.lanes;
    for (size_t i = 0; i < cells; i++) {
        c->engine_pos[i] = H2OKV__HOLE;
    }
    for (size_t i = 0; i < all; i++) {
        c->pos[i] = H2OKV__HOLE;
        c->score[i] = 0.0;
    }
    memset(c->observed, 0, c->options.lanes * sizeof *c->observed);
    c->options.budget = c->first_budget;
    c->options.recent = c->first_recent;
    c->n_pins = 0;
    c->live = c->peak_live = c->n_fresh = c->n_observed = c->n_probe = 0;
    c->pass_first = H2OKV__HOLE;
    c->admitted = c->evicted = c->moves = c->passes = 0;
    c->epoch++;
}

static int32_t newest_pos(const h2okv_cache *c)
{
    return c->live > 0 ? c->engine_pos[c->engine_order[c->live - 1]] : -1;
}

int32_t h2okv__pass_first(const h2okv_cache *c)
{
    return c->pass_first != H2OKV__HOLE ? c->pass_first : newest_pos(c) + 1;
}

/* The new tokens' cells and positions, or why not. `mark` finds a cell that is named twice. */
static int check_admit(h2okv_cache *c, const uint32_t *cell, const int32_t *pos, uint32_t n)
{
    int32_t last = newest_pos(c);
    int status = H2OKV_OK;
    uint32_t checked = 0;
    while (checked < n && status == H2OKV_OK) {
        uint32_t at = cell[checked];
        if (at >= c->options.cells || c->engine_pos[at] >= 0 || c->mark[at] != 0 || pos[checked] <= last ||
            pos[checked] == INT32_MAX) {
            status = H2OKV_E_INVALID;
        } else {
            c->mark[at] = 1;
            last = pos[checked++];
        }
    }
    while (checked > 0) {
        c->mark[cell[--checked]] = 0;
    }
    return status;
}

int h2okv_cache_admit(h2okv_cache *c, const uint32_t *cell, const int32_t *pos, uint32_t n)
{
    bool unobserved = c->n_fresh > 0 && c->n_observed < c->options.lanes;
    if (n == 0 || (unobserved && (c->policy.flags & H2OKV_POLICY_NEEDS_SCORES) != 0)) {
        return H2OKV_E_ORDER;
    }
    if (n > c->options.cells - c->live) {
        return H2OKV_E_FULL;
    }
    int status = check_admit(c, cell, pos, n);
    if (status != H2OKV_OK) {
        return status;
    }
    for (uint32_t i = 0; i < n; i++) {
        c->engine_pos[cell[i]] = pos[i];
        c->engine_order[c->live + i] = cell[i];
    }
    for (uint32_t l = 0; l < c->options.lanes; l++) {
        h2okv__lane lane = h2okv__lane_of(c, l);
        for (uint32_t i = 0; i < n; i++) {
            h2okv__lane_append(&lane, c->live + i, cell[i], pos[i]);
        }
    }
    memset(c->observed, 0, c->options.lanes * sizeof *c->observed);
    c->live += n;
    c->peak_live = c->live > c->peak_live ? c->live : c->peak_live;
    c->n_fresh = n;
    c->n_observed = c->n_probe = 0;
    c->pass_first = c->pass_first == H2OKV__HOLE ? pos[0] : c->pass_first;
    c->admitted += n;
    c->epoch++;
    return H2OKV_OK;
}

/* The newest n tokens are the same in every lane, and last in its order. */
static void take_back_fresh(const h2okv_cache *c, uint32_t lane_index)
{
    h2okv__lane lane = h2okv__lane_of(c, lane_index);
    if (c->observed[lane_index] > 0) {
        memcpy(lane.score, c->score_before + (size_t)lane_index * c->options.cells,
               c->options.cells * sizeof *lane.score);
    }
    for (uint32_t i = c->live - c->n_fresh; i < c->live; i++) {
        lane.pos[lane.order[i]] = H2OKV__HOLE;
    }
}

int h2okv_cache_abandon(h2okv_cache *c)
{
    if (c->n_fresh == 0) {
        return H2OKV_E_ORDER;
    }
    for (uint32_t l = 0; l < c->options.lanes; l++) {
        take_back_fresh(c, l);
    }
    int32_t first = c->engine_pos[c->engine_order[c->live - c->n_fresh]];
    for (uint32_t i = c->live - c->n_fresh; i < c->live; i++) {
        c->engine_pos[c->engine_order[i]] = H2OKV__HOLE;
    }
    c->pass_first = c->pass_first == first ? H2OKV__HOLE : c->pass_first;
    c->live -= c->n_fresh;
    c->admitted -= c->n_fresh;
    c->n_fresh = c->n_observed = c->n_probe = 0;
    memset(c->observed, 0, c->options.lanes * sizeof *c->observed);
    c->epoch++;
    return H2OKV_OK;
}

void h2okv_cache_get_options(const h2okv_cache *c, h2okv_options *out)
{
    *out = c->options;
}

uint32_t h2okv_cache_live(const h2okv_cache *c)
{
    return c->live;
}

uint32_t h2okv_cache_whole(const h2okv_cache *c)
{
    uint32_t whole = c->live;
    for (uint32_t l = 0; l < c->options.lanes && whole > 0; l++) {
        h2okv__lane lane = h2okv__lane_of(c, l);
        uint32_t n = 0;
        while (n < whole && lane.pos[lane.order[n]] == (int32_t)n) {
            n++;
        }
        whole = n;
    }
    return whole;
}

void h2okv_cache_get_stats(const h2okv_cache *c, h2okv_cache_stats *out)
{
    *out = (h2okv_cache_stats){
        .live = c->live,
        .peak_live = c->peak_live,
        .newest = newest_pos(c),
        .admitted = c->admitted,
        .evicted = c->evicted,
        .moves = c->moves,
        .passes = c->passes,
    };
}

int h2okv_cache_lane(const h2okv_cache *c, uint32_t lane, h2okv_lane_view *out)
{
    if (lane >= c->options.lanes) {
        return H2OKV_E_INVALID;
    }
    h2okv__lane l = h2okv__lane_of(c, lane);
    *out = (h2okv_lane_view){
        .lane = lane,
        .cells = c->options.cells,
        .live = c->live,
        .pos = l.pos,
        .score = l.score,
        .order = l.order,
        .seed = c->options.seed,
    };
    return H2OKV_OK;
}

uint32_t h2okv_cache_kept(const h2okv_cache *c, uint32_t lane, int32_t *pos, double *score, uint32_t *cell)
{
    h2okv_lane_view view;
    if (h2okv_cache_lane(c, lane, &view) != H2OKV_OK) {
        return 0;
    }
    for (uint32_t k = 0; k < view.live; k++) {
        uint32_t at = view.order[k];
        if (pos != NULL) {
            pos[k] = view.pos[at];
        }
        if (score != NULL) {
            score[k] = view.score[at];
        }
        if (cell != NULL) {
            cell[k] = at;
        }
    }
    return view.live;
}

uint32_t h2okv_cache_engine_cells(const h2okv_cache *c, int32_t *pos, uint32_t *cell)
{
    for (uint32_t k = 0; k < c->live; k++) {
        uint32_t at = c->engine_order[k];
        if (pos != NULL) {
            pos[k] = c->engine_pos[at];
        }
        if (cell != NULL) {
            cell[k] = at;
        }
    }
    return c->live;
}
