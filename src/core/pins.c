/*
 * pins.c - what a caller changes between passes: budget, pooling, and ranges of positions that are always kept.
 *
 *   pin[]   |first end|   |first   end|        rising, with a gap between any two; at most H2OKV_MOST_PINS
 *
 * Invariant: sinks + pinned positions that are no sinks + recent <= budget, so that a plan never has to give up a
 * token that is guarded always.
 */
#include "cache.h"

#include "base/options.h"

#include <string.h>

bool h2okv__is_pinned(const h2okv_cache *c, int32_t pos)
{
    for (uint32_t i = 0; i < c->n_pins; i++) {
        if (pos < c->pin[i].end) {
            return pos >= c->pin[i].first;
        }
    }
    return false;
}

void h2okv__cut_pins(h2okv_cache *c, int32_t pos0)
{
    while (c->n_pins > 0 && c->pin[c->n_pins - 1].first >= pos0) {
        c->n_pins--;
    }
    if (c->n_pins > 0 && c->pin[c->n_pins - 1].end > pos0) {
        c->pin[c->n_pins - 1].end = pos0;
    }
}

/* Pinned positions that are no sinks. */
uint32_t h2okv__count_pinned(const h2okv__range *pin, uint32_t n, uint32_t sinks)
{
    uint32_t count = 0;
    int64_t floor = sinks;
    for (uint32_t i = 0; i < n; i++) {
        int64_t first = pin[i].first > floor ? pin[i].first : floor;
        count += pin[i].end > first ? (uint32_t)(pin[i].end - first) : 0;
    }
    return count;
}

/* `out` gets the ranges with one more, room for H2OKV_MOST_PINS + 1; returns how many they are. */
static uint32_t merge(const h2okv_cache *c, h2okv__range more, h2okv__range *out)
{
    uint32_t n = 0, i = 0;
    for (; i < c->n_pins && c->pin[i].end < more.first; i++) {
        out[n++] = c->pin[i];
    }
    for (; i < c->n_pins && c->pin[i].first <= more.end; i++) {
        more.first = c->pin[i].first < more.first ? c->pin[i].first : more.first;
        more.end = c->pin[i].end > more.end ? c->pin[i].end : more.end;
    }
    out[n++] = more;
    for (; i < c->n_pins; i++) {
        out[n++] = c->pin[i];
    }
    return n;
}

/* Those positions of the range that have come already are in every lane. */
static bool all_held(const h2okv_cache *c, h2okv__range range)
{
    h2okv_cache_stats stats;
    h2okv_cache_get_stats(c, &stats);
    int32_t end = range.end <= stats.newest ? range.end : stats.newest + 1;
    for (uint32_t l = 0; l < c->options.lanes && range.first < end; l++) {
        h2okv__lane lane = h2okv__lane_of(c, l);
        uint32_t first = h2okv__lane_count_below(&lane, c->live, range.first);
        if (h2okv__lane_count_below(&lane, c->live, end) - first != (uint32_t)(end - range.first)) {
            return false;
        }
    }
    return true;
}

int h2okv_cache_pin(h2okv_cache *c, int32_t first, int32_t end, h2okv_error *error)
{
    if (first < 0 || end <= first) {
        return h2okv_error_set(error, H2OKV_E_INVALID, "pin",
                               "pin is %d:%d: the first position must be from 0 and before the end", first, end);
    }
    h2okv__range merged[H2OKV_MOST_PINS + 1];
    uint32_t n = merge(c, (h2okv__range){first, end}, merged);
    if (n > H2OKV_MOST_PINS) {
        return h2okv_error_set(error, H2OKV_E_INVALID, "pin",
                               "pin %d:%d would be one range more than the %d there may be", first, end,
                               H2OKV_MOST_PINS);
    }
    if (!all_held(c, (h2okv__range){first, end})) {
        return h2okv_error_set(error, H2OKV_E_INVALID, "pin",
                               "pin is %d:%d: not all of these tokens are held any more; pin them before they can go",
                               first, end);
    }
    int status = h2okv__check_shares(&c->options, h2okv__count_pinned(merged, n, c->options.sinks), error);
    if (status == H2OKV_OK) {
        memcpy(c->pin, merged, n * sizeof *merged);
        c->n_pins = n;
        c->epoch++;
    }
    return status;
}

int h2okv_cache_set_budget(h2okv_cache *c, uint32_t budget, uint32_t recent, h2okv_error *error)
{
    if (c->n_fresh > 0) {
        return h2okv_error_set(error, H2OKV_E_ORDER, "budget",
                               "the budget can change between passes only: commit first");
    }
    if (budget == 0 || budget > c->options.cells) {
        return h2okv_error_set(error, H2OKV_E_INVALID, "budget",
                               "budget is %u: it must be from 1 to the number of cells, %u", budget, c->options.cells);
    }
    h2okv_options wanted = c->options;
    wanted.budget = budget;
    wanted.recent = recent == H2OKV_AUTO ? h2okv__recent_of(&c->policy, budget) : recent;
    int status = h2okv__check_shares(&wanted, h2okv__count_pinned(c->pin, c->n_pins, wanted.sinks), error);
    if (status == H2OKV_OK) {
        c->options.budget = budget;
        c->options.recent = wanted.recent;
        c->epoch++;
    }
    return status;
}
