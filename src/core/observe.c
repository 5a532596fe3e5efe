/*
 * observe.c - attention weights become mass, and mass becomes score.
 *
 *   weights [heads][queries][columns]  --sum over heads and queries-->  mass [columns]  --add-->  score [cells]
 *
 * All sums are double and their order is fixed (query by query from the newest, head by head), so the same
 * weights give the same bits on every machine: this file is compiled without contraction of a*b+c.
 */
#include "cache.h"

#include <string.h>

/* Below this a decayed score is 0, so that idle tokens become equal and no number is subnormal. */
static const double smallest_score = 1e-30;

/* Which column holds the cell's weights; `columns` when none does. */
static uint32_t column_of_cell(const h2okv_weights *w, uint32_t cell)
{
    if (w->cell_of_column == NULL) {
        return cell < w->columns ? cell : w->columns;
    }
    uint32_t i = 0;
    while (i < w->columns && w->cell_of_column[i] != cell) {
        i++;
    }
    return i;
}

/* Rows of up to four heads at once, so that mass is read and written once for them; the sums' order is as for one
 * row after the other. `factor` 1 leaves every bit as it is. */
static void add_rows(double *restrict mass, const float *row, size_t stride, uint32_t rows, uint32_t columns,
                     double factor)
{
    const float *restrict a = row;
    const float *restrict b = row + (rows > 1 ? stride : 0);
    const float *restrict c = row + (rows > 2 ? 2 * stride : 0);
    const float *restrict d = row + (rows > 3 ? 3 * stride : 0);
    switch (rows) {
    case 1:
        for (uint32_t i = 0; i < columns; i++) {
            mass[i] += (double)a[i] * factor;
        }
        break;
    case 2:
        for (uint32_t i = 0; i < columns; i++) {
            mass[i] = mass[i] + (double)a[i] * factor + (double)b[i] * factor;
        }
        break;
    case 3:
        for (uint32_t i = 0; i < columns; i++) {
            mass[i] = mass[i] + (double)a[i] * factor + (double)b[i] * factor + (double)c[i] * factor;
        }
        break;
    default:
        for (uint32_t i = 0; i < columns; i++) {
            mass[i] = mass[i] + (double)a[i] * factor + (double)b[i] * factor + (double)c[i] * factor +
                      (double)d[i] * factor;
        }
    }
}

/* One query's rows of all heads; its weight on itself is left out when it does not count. */
static void add_query(const h2okv_cache *c, const h2okv_weights *w, uint32_t query, double factor)
{
    uint32_t own_cell = c->engine_order[c->live - c->n_fresh + query];
    uint32_t own = c->options.count_self ? w->columns : column_of_cell(w, own_cell);
    double without_self = own < w->columns ? c->mass[own] : 0.0;
    for (uint32_t h = 0; h < w->heads; h += 4) {
        const float *row = w->data + h * w->head_stride + query * w->query_stride;
        add_rows(c->mass, row, w->head_stride, w->heads - h < 4 ? w->heads - h : 4, w->columns, factor);
    }
    if (own < w->columns) {
        c->mass[own] = without_self;
    }
}

static void sum_weights(const h2okv_cache *c, const h2okv_weights *w)
{
    memset(c->mass, 0, w->columns * sizeof *c->mass);
    double factor = 1.0;
    uint32_t counting = c->n_probe > 0 ? c->n_probe : w->queries;
    for (uint32_t back = 0; back < counting; back++) {
        add_query(c, w, w->queries - 1 - back, factor);
        factor *= c->n_probe > 0 ? 1.0 : c->options.decay;
    }
    if (c->options.heads == H2OKV_HEADS_MEAN && w->heads > 1) {
        for (uint32_t i = 0; i < w->columns; i++) {
            c->mass[i] /= w->heads;
        }
    }
}

/* All exponent bits set: infinity or NaN. Integers, because the compiler may reorder and widen these. */
static uint64_t not_finite(double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    return (bits & 0x7FF0000000000000u) == 0x7FF0000000000000u;
}

/* Holes are looked up in engine_pos: it is one row for all lanes, and so it stays in the processor's cache. */
static bool all_finite(const h2okv_cache *c, const uint32_t *cell_of_column, uint32_t n)
{
    uint64_t bad = 0;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t cell = cell_of_column != NULL ? cell_of_column[i] : i;
        bad |= not_finite(c->mass[i]) & (uint64_t)(c->engine_pos[cell] >= 0);
    }
    return bad == 0;
}

static void decay_scores(const h2okv_cache *c, double *score)
{
    double factor = 1.0;
    for (uint32_t i = 0; i < c->n_fresh; i++) {
        factor *= c->options.decay;
    }
    for (uint32_t i = 0; i < c->options.cells; i++) {
        double decayed = score[i] * factor;
        score[i] = decayed < smallest_score && decayed > -smallest_score ? 0.0 : decayed;
    }
}

static void add_mass(const h2okv_cache *c, double *restrict score, const uint32_t *cell_of_column, uint32_t n)
{
    if (cell_of_column == NULL) {
        for (uint32_t i = 0; i < n; i++) {
            score[i] = c->engine_pos[i] >= 0 ? score[i] + c->mass[i] : 0.0;
        }
        return;
    }
    for (uint32_t i = 0; i < n; i++) {
        uint32_t cell = cell_of_column[i];
        score[cell] = c->engine_pos[cell] >= 0 ? score[cell] + c->mass[i] : 0.0;
    }
}

/* First part of a pass: keep the scores for h2okv_cache_abandon, and let them decay, or make room for a probe's. */
static double *open_lane(h2okv_cache *c, uint32_t lane)
{
    double *score = h2okv__lane_of(c, lane).score;
    if (c->observed[lane] == 0) {
        memcpy(c->score_before + (size_t)lane * c->options.cells, score, c->options.cells * sizeof *score);
        if (c->n_probe > 0) {
            memset(score, 0, c->options.cells * sizeof *score);
        } else if (c->options.decay < 1.0) {
            decay_scores(c, score);
        }
    }
    return score;
}

static void close_lane(h2okv_cache *c, uint32_t lane)
{
    c->observed[lane]++;
    if (c->observed[lane] == c->options.parts) {
        c->n_observed++;
        if (c->n_probe > 0 && c->spread > 0) {
            h2okv__spread(c, lane);
        }
    }
    c->epoch++;
}

static int check_observable(const h2okv_cache *c, uint32_t lane)
{
    if (lane >= c->options.lanes) {
        return H2OKV_E_INVALID;
    }
    return c->n_fresh == 0 || c->observed[lane] == c->options.parts ? H2OKV_E_ORDER : H2OKV_OK;
}

static bool columns_reach_all_tokens(const h2okv_cache *c, uint32_t columns)
{
    for (uint32_t i = columns; i < c->options.cells; i++) {
        if (c->engine_pos[i] >= 0) {
            return false;
        }
    }
    return true;
}

static int check_weights(const h2okv_cache *c, const h2okv_weights *w)
{
    bool shaped = w != NULL && w->data != NULL && w->heads > 0 && w->queries == c->n_fresh &&
                  w->columns <= c->options.cells;
    if (!shaped) {
        return H2OKV_E_INVALID;
    }
    if (w->cell_of_column == NULL) {
        return columns_reach_all_tokens(c, w->columns) ? H2OKV_OK : H2OKV_E_INVALID;
    }
    for (uint32_t i = 0; i < w->columns; i++) {
        if (w->cell_of_column[i] >= c->options.cells) {
            return H2OKV_E_INVALID;
        }
    }
    return H2OKV_OK;
}

/* The mass by cell, in scratch memory that no observe uses. */
static void tell_mass(const h2okv_cache *c, uint32_t lane, const uint32_t *cell_of_column, uint32_t n)
{
    memset(c->rank, 0, c->options.cells * sizeof *c->rank);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t cell = cell_of_column != NULL ? cell_of_column[i] : i;
        c->rank[cell] = c->engine_pos[cell] >= 0 ? c->mass[i] : 0.0;
    }
    c->options.on_mass(c->options.mass_user, lane, c->rank);
}

static void tell_floats(const h2okv_cache *c, uint32_t lane, const float *mass)
{
    for (uint32_t i = 0; i < c->options.cells; i++) {
        c->rank[i] = mass != NULL && c->engine_pos[i] >= 0 ? (double)mass[i] : 0.0;
    }
    c->options.on_mass(c->options.mass_user, lane, c->rank);
}

int h2okv_cache_observe(h2okv_cache *c, uint32_t lane, const h2okv_weights *w)
{
    int status = check_observable(c, lane);
    status = status != H2OKV_OK ? status : check_weights(c, w);
    if (status != H2OKV_OK) {
        return status;
    }
    sum_weights(c, w);
    if (!all_finite(c, w->cell_of_column, w->columns)) {
        return H2OKV_E_NAN;
    }
    if (c->options.on_mass != NULL) {
        tell_mass(c, lane, w->cell_of_column, w->columns);
    }
    add_mass(c, open_lane(c, lane), w->cell_of_column, w->columns);
    close_lane(c, lane);
    return H2OKV_OK;
}

/* As all_finite and add_mass, straight from a kernel's floats. */
static bool all_finite_floats(const h2okv_cache *c, const float *mass)
{
    uint32_t bad = 0;
    for (uint32_t i = 0; i < c->options.cells; i++) {
        uint32_t bits;
        memcpy(&bits, &mass[i], sizeof bits);
        bad |= (uint32_t)((bits & 0x7F800000u) == 0x7F800000u) & (uint32_t)(c->engine_pos[i] >= 0);
    }
    return bad == 0;
}

static void add_floats(const h2okv_cache *c, double *restrict score, const float *restrict mass)
{
    for (uint32_t i = 0; i < c->options.cells; i++) {
        score[i] = c->engine_pos[i] >= 0 ? score[i] + (double)mass[i] : 0.0;
    }
}

int h2okv_cache_observe_mass(h2okv_cache *c, uint32_t lane, const float *mass)
{
    int status = check_observable(c, lane);
    if (status != H2OKV_OK) {
        return status;
    }
    if (mass != NULL && !all_finite_floats(c, mass)) {
        return H2OKV_E_NAN;
    }
    if (c->options.on_mass != NULL) {
        tell_floats(c, lane, mass);
    }
    double *score = open_lane(c, lane);
    if (mass != NULL) {
        add_floats(c, score, mass);
    }
    close_lane(c, lane);
    return H2OKV_OK;
}

int h2okv_cache_probe(h2okv_cache *c, uint32_t n, uint32_t spread)
{
    uint32_t begun = 0;
    for (uint32_t l = 0; l < c->options.lanes; l++) {
        begun |= c->observed[l];
    }
    if (c->n_fresh == 0 || begun != 0) {
        return H2OKV_E_ORDER;
    }
    if (n == 0 || n > c->n_fresh) {
        return H2OKV_E_INVALID;
    }
    c->n_probe = n;
    c->spread = spread;
    c->epoch++;
    return H2OKV_OK;
}
