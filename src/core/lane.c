/*
 * lane.c - a lane's books: where each token lies, and the cells in order of position.
 *
 *   pos    |  4 | -1 |  9 |  7 |        order  | 0 | 3 | 2 |      pos[order[k]] rises strictly
 *   cell      0    1    2    3
 */
#include "cache.h"

#include <string.h>

h2okv__lane h2okv__lane_of(const h2okv_cache *cache, uint32_t lane)
{
    size_t row = (size_t)lane * cache->options.cells;
    return (h2okv__lane){lane, cache->pos + row, cache->score + row, cache->order + row};
}

/* How many tokens lie before `pos`: also the index in `order` of the token at `pos`, when there is one. */
uint32_t h2okv__lane_count_below(const h2okv__lane *lane, uint32_t live, int32_t pos)
{
    uint32_t low = 0, high = live;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (lane->pos[lane->order[middle]] < pos) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

void h2okv__lane_append(const h2okv__lane *lane, uint32_t live, uint32_t cell, int32_t pos)
{
    lane->pos[cell] = pos;
    lane->score[cell] = 0.0;
    lane->order[live] = cell;
}

void h2okv__lane_remove(const h2okv__lane *lane, uint32_t live, uint32_t cell)
{
    uint32_t k = h2okv__lane_count_below(lane, live, lane->pos[cell]);
    memmove(lane->order + k, lane->order + k + 1, (live - k - 1) * sizeof *lane->order);
    lane->pos[cell] = H2OKV__HOLE;
    lane->score[cell] = 0.0;
}

void h2okv__lane_rename(const h2okv__lane *lane, uint32_t live, uint32_t from, uint32_t to)
{
    lane->order[h2okv__lane_count_below(lane, live, lane->pos[from])] = to;
    lane->pos[to] = lane->pos[from];
    lane->score[to] = lane->score[from];
    lane->pos[from] = H2OKV__HOLE;
    lane->score[from] = 0.0;
}
