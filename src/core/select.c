/*
 * select.c - the one selector behind every policy: protect, break ties, pick.
 *
 *   order[]  | sinks | open to ranks, some in grace ............ | recent |     by rising position
 *
 * Tokens go in the order of (guard, rank, position), lowest first: of equal ranks the older goes, so the choice
 * depends on nothing but the tokens themselves (Zhang et al. 2023, algorithm 1, with ties made definite).
 * The n lowest are gathered in a heap whose root is the one that would stay first.
 */
#include "cache.h"

enum guard { GUARD_NONE = 0, GUARD_GRACE = 1, GUARD_ALWAYS = 2 };

/* Does `a` go before `b`? Indexes differ, so this is a strict total order. */
static bool goes_before(const h2okv__candidate *a, const h2okv__candidate *b)
{
    if (a->guard != b->guard) {
        return a->guard < b->guard;
    }
    if (a->rank < b->rank || a->rank > b->rank) {
        return a->rank < b->rank;
    }
    return a->index < b->index;
}

static void sift_down(h2okv__candidate *heap, uint32_t n, uint32_t hole, h2okv__candidate item)
{
    uint32_t child;
    while ((child = 2 * hole + 1) < n) {
        if (child + 1 < n && goes_before(&heap[child], &heap[child + 1])) {
            child++;
        }
        if (!goes_before(&item, &heap[child])) {
            break;
        }
        heap[hole] = heap[child];
        hole = child;
    }
    heap[hole] = item;
}

static void sift_up(h2okv__candidate *heap, uint32_t hole, h2okv__candidate item)
{
    while (hole > 0 && goes_before(&heap[(hole - 1) / 2], &item)) {
        heap[hole] = heap[(hole - 1) / 2];
        hole = (hole - 1) / 2;
    }
    heap[hole] = item;
}

/* Positions from here on are in grace. */
static int32_t grace_floor(const h2okv_cache *c)
{
    uint32_t grace = c->options.grace;
    if (grace == 0) {
        return INT32_MAX;
    }
    if (grace == 1) {
        return h2okv__pass_first(c);
    }
    /* The last `grace` passes are this one and grace - 1 in the ring. */
    return c->passes + 1 < grace ? 0 : c->grace_first[(c->passes + 1) % grace];
}

/* The stretch of `order` that is not always kept. */
typedef struct stretch {
    uint32_t first, end;
} stretch;

static stretch open_stretch(const h2okv_cache *c, const h2okv__lane *lane, uint32_t n_among)
{
    uint32_t recent = c->options.recent > 0 ? c->options.recent : 1;
    int32_t sinks = c->options.sinks > INT32_MAX ? INT32_MAX : (int32_t)c->options.sinks;
    uint32_t end = n_among > recent ? n_among - recent : 0;
    uint32_t first = h2okv__lane_count_below(lane, n_among, sinks);
    return (stretch){first < end ? first : end, end};
}

int h2okv__select(h2okv_cache *c, const h2okv__lane *lane, uint32_t n_among, uint32_t n)
{
    if (n == 0) {
        return H2OKV_OK;
    }
    h2okv_lane_view view;
    (void)h2okv_cache_lane(c, lane->index, &view);
    const double *rank = c->policy.rank(&view, c->rank);
    int32_t graced_from = grace_floor(c);
    stretch open = open_stretch(c, lane, n_among);
    /* A trim may have to give up more than is open; then guarded tokens go too, after all others. */
    stretch looked_at = n <= open.end - open.first ? open : (stretch){0, n_among};

    uint32_t held = 0;
    for (uint32_t k = looked_at.first; k < looked_at.end; k++) {
        uint32_t cell = lane->order[k];
        if (held == n && c->candidate[0].guard == GUARD_NONE && rank[cell] > c->candidate[0].rank) {
            continue; /* stays, whatever its guard: nearly every token takes this way */
        }
        h2okv__candidate item = {rank[cell], GUARD_NONE, k};
        if (k < open.first || k >= open.end) {
            item.guard = GUARD_ALWAYS;
        } else if (lane->pos[cell] >= graced_from) {
            item.guard = GUARD_GRACE;
        }
        if (item.rank != item.rank) {
            return H2OKV_E_NAN;
        }
        if (held < n) {
            sift_up(c->candidate, held++, item);
        } else if (goes_before(&item, &c->candidate[0])) {
            sift_down(c->candidate, n, 0, item);
        }
    }
    return H2OKV_OK;
}
