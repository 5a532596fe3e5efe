/*
 * select.c - the one selector behind every policy: protect, break ties, pick.
 *
 *   order[]  | sinks | open to ranks, some in grace or pinned .. | recent |     by rising position
 *
 * Tokens go in the order of (guard, rank, position), lowest first: of equal ranks the older goes, so the choice
 * depends on nothing but the tokens themselves (Zhang et al. 2023, algorithm 1, with ties made definite). The n lowest
 * are gathered in a heap whose root is the one that would stay first.
 *
 * With pooling the rank is that of the best neighbour. A token's own is never above it, so one that reaches the root's
 * rank stays without a look around, and so do all of its neighbours.
 */
#include "cache.h"

/* What goes last when a deep cut has to take guarded tokens: what nobody can give back, sinks and pinned ones. */
enum guard { GUARD_NONE = 0, GUARD_GRACE = 1, GUARD_RECENT = 2, GUARD_ALWAYS = 3 };

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

static uint32_t count_pinned_in(const h2okv_cache *c, const h2okv__lane *lane, stretch s)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < c->n_pins; i++) {
        uint32_t first = h2okv__lane_count_below(lane, s.end, c->pin[i].first);
        uint32_t end = h2okv__lane_count_below(lane, s.end, c->pin[i].end);
        first = first > s.first ? first : s.first;
        count += end > first ? end - first : 0;
    }
    return count;
}

/* One lane's choice while it is made. */
typedef struct choice {
    const double *rank;  /* by cell */
    uint32_t n_among, n; /* tokens in order[0..n_among), of which n go */
    stretch open;
    int32_t graced_from;
    uint32_t held;   /* candidates so far */
    bool settled;    /* n are held, and the root has no guard: */
    double bar;      /* its rank, from which on a token stays */
    uint32_t keeper; /* the last token met that reaches the bar by itself, or UINT32_MAX */
} choice;

/* Do the a-th and the b-th token share their ranks? */
static bool are_neighbours(const h2okv_cache *c, const h2okv__lane *lane, uint32_t a, uint32_t b)
{
    int64_t apart = (int64_t)lane->pos[lane->order[a]] - lane->pos[lane->order[b]];
    return (apart < 0 ? -apart : apart) <= (int64_t)c->options.pool;
}

static bool kept_by_neighbour(const h2okv_cache *c, const h2okv__lane *lane, const choice *ch, uint32_t k)
{
    return ch->settled && ch->keeper != UINT32_MAX && are_neighbours(c, lane, ch->keeper, k);
}

/* The best rank within `pool` positions of the k-th token. A later neighbour that reaches the bar ends the search. */
static double pooled_rank(const h2okv_cache *c, const h2okv__lane *lane, choice *ch, uint32_t k)
{
    double best = ch->rank[lane->order[k]];
    for (uint32_t i = k + 1; i < ch->n_among && are_neighbours(c, lane, k, i); i++) {
        double other = ch->rank[lane->order[i]];
        best = other > best ? other : best;
        if (ch->settled && other >= ch->bar) {
            ch->keeper = i;
            return best;
        }
    }
    for (uint32_t i = k; i > 0 && are_neighbours(c, lane, i - 1, k); i--) {
        double other = ch->rank[lane->order[i - 1]];
        best = other > best ? other : best;
    }
    return best;
}

static uint32_t guard_of(const h2okv_cache *c, const choice *ch, uint32_t k, int32_t pos)
{
    if (pos < (int64_t)c->options.sinks || h2okv__is_pinned(c, pos)) {
        return GUARD_ALWAYS;
    }
    if (k >= ch->open.end) {
        return GUARD_RECENT;
    }
    return pos >= ch->graced_from ? GUARD_GRACE : GUARD_NONE;
}

/* Into the heap, if it goes before the root. */
static void consider(h2okv_cache *c, choice *ch, h2okv__candidate item)
{
    if (ch->held < ch->n) {
        sift_up(c->candidate, ch->held++, item);
    } else if (goes_before(&item, &c->candidate[0])) {
        sift_down(c->candidate, ch->n, 0, item);
    }
    ch->settled = ch->held == ch->n && c->candidate[0].guard == GUARD_NONE;
    ch->bar = c->candidate[0].rank;
}

static int choose_among(h2okv_cache *c, const h2okv__lane *lane, choice *ch, stretch looked_at)
{
    for (uint32_t k = looked_at.first; k < looked_at.end; k++) {
        uint32_t cell = lane->order[k];
        double own = ch->rank[cell];
        /* Of equal ranks the older goes, and this one is newer than the root. */
        if (ch->settled && own >= ch->bar) {
            ch->keeper = k;
            continue; /* stays, whatever its guard and neighbours: nearly every token takes this way */
        }
        if (own != own) {
            return H2OKV_E_NAN;
        }
        if (kept_by_neighbour(c, lane, ch, k)) {
            continue;
        }
        uint32_t guard = guard_of(c, ch, k, lane->pos[cell]);
        consider(c, ch, (h2okv__candidate){pooled_rank(c, lane, ch, k), guard, k});
    }
    return H2OKV_OK;
}

int h2okv__select(h2okv_cache *c, const h2okv__lane *lane, uint32_t n_among, uint32_t n)
{
    if (n == 0) {
        return H2OKV_OK;
    }
    h2okv_lane_view view;
    (void)h2okv_cache_lane(c, lane->index, &view);
    choice ch = {
        .rank = c->policy.rank(&view, c->rank),
        .n_among = n_among,
        .n = n,
        .open = open_stretch(c, lane, n_among),
        .graced_from = grace_floor(c),
        .keeper = UINT32_MAX,
    };
    /* A trim may have to give up more than is open; then guarded tokens go too, after all others. */
    uint32_t pinned = count_pinned_in(c, lane, ch.open);
    bool enough = n <= ch.open.end - ch.open.first - pinned;
    return choose_among(c, lane, &ch, enough ? ch.open : (stretch){0, n_among});
}
