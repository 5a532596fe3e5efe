/*
 * state.c - a cache's books as one block of bytes, and back.
 *
 *   | envelope | kind | now | pins | grace | engine: cell, position | lanes: place, position, score | checksum |
 *     magic      options     [n_pins]        [live]                   [lanes][live]                    of all
 *     version    at create     [n_grace]                                                               before
 *     length
 *
 * Numbers are little-endian. A place is the index of a cell in the engine's order: so the lanes' books name no cell,
 * and an engine may put the tokens into other cells than before.
 *
 * Reading checks everything before it changes anything: what passes is a cache that calls could have led to, as far as
 * the books themselves can tell.
 */
#include "cache.h"

#include "base/bytes.h"
#include "base/options.h"

#include <math.h>

static const unsigned char magic[8] = {'H', '2', 'O', 'K', 'V', 'B', 'K', 'S'};

enum {
    VERSION = 1,
    HEAD_BYTES = 8 + 4 + 8                                  /* magic, version, length */
                 + 8 * 4 + 8 + 8 + H2OKV__MOST_POLICY_NAME  /* kind */
                 + 5 * 4 + 4 * 8,                           /* now */
    SUM_BYTES = 8,
    PIN_BYTES = 4 + 4,
    GRACE_BYTES = 4,
    ENGINE_BYTES = 4 + 4,
    LANE_BYTES = 4 + 4 + 8,
};

/* A block's head, and where its lists are. */
typedef struct books {
    h2okv__kind kind;
    uint32_t budget, recent, live, peak_live, n_pins;
    uint32_t n_grace; /* follows from passes and kind.grace */
    uint64_t admitted, evicted, moves, passes;
    h2okv__range pin[H2OKV_MOST_PINS];
    const unsigned char *grace, *engine, *lanes;
} books;

/* Passes that the ring of grace_first holds. */
static uint32_t count_grace(uint32_t grace, uint64_t passes)
{
    return passes < grace ? (uint32_t)passes : grace;
}

/* SIZE_MAX when there is no such block. */
static size_t block_bytes(uint32_t lanes, uint32_t live, uint32_t n_pins, uint32_t n_grace)
{
    bool overflow = false;
    size_t places = h2okv__mul(h2okv__mul(lanes, live, &overflow), LANE_BYTES, &overflow);
    size_t rest = HEAD_BYTES + SUM_BYTES + (size_t)PIN_BYTES * n_pins + (size_t)GRACE_BYTES * n_grace;
    rest += h2okv__mul(live, ENGINE_BYTES, &overflow);
    return overflow || places > SIZE_MAX - rest ? SIZE_MAX : places + rest;
}

size_t h2okv_cache_state_bytes(const h2okv_cache *c)
{
    return block_bytes(c->options.lanes, c->live, c->n_pins, count_grace(c->options.grace, c->passes));
}

/* One entry of each list. */
typedef struct engine_entry {
    uint32_t cell;
    int32_t pos;
} engine_entry;

typedef struct entry {
    uint32_t place;
    int32_t pos;
    double score;
} entry;

static int32_t grace_at(const books *b, uint32_t i)
{
    const unsigned char *at = b->grace + (size_t)GRACE_BYTES * i;
    return (int32_t)h2okv__get32(&at);
}

static engine_entry engine_at(const books *b, uint32_t k)
{
    const unsigned char *at = b->engine + (size_t)ENGINE_BYTES * k;
    engine_entry e = {.cell = h2okv__get32(&at)};
    e.pos = (int32_t)h2okv__get32(&at);
    return e;
}

static const unsigned char *lane_list(const books *b, uint32_t lane)
{
    return b->lanes + (size_t)LANE_BYTES * b->live * lane;
}

static entry entry_at(const unsigned char *list, uint32_t k)
{
    const unsigned char *at = list + (size_t)LANE_BYTES * k;
    entry e = {.place = h2okv__get32(&at)};
    e.pos = (int32_t)h2okv__get32(&at);
    e.score = h2okv__get_double(&at);
    return e;
}

/* ---- Out ---- */

static unsigned char *put_kind(unsigned char *at, const h2okv__kind *kind)
{
    const uint32_t count[] = {kind->lanes, kind->budget, kind->recent,     kind->sinks,
                              kind->pool,  kind->grace,  kind->count_self, kind->heads};
    for (size_t i = 0; i < sizeof count / sizeof count[0]; i++) {
        at = h2okv__put32(at, count[i]);
    }
    at = h2okv__put_double(at, kind->decay);
    at = h2okv__put(at, kind->seed, 8);
    memcpy(at, kind->policy, sizeof kind->policy);
    return at + sizeof kind->policy;
}

static unsigned char *put_now(unsigned char *at, const h2okv_cache *c)
{
    const uint32_t count[] = {c->options.budget, c->options.recent, c->live, c->peak_live, c->n_pins};
    const uint64_t total[] = {c->admitted, c->evicted, c->moves, c->passes};
    for (size_t i = 0; i < sizeof count / sizeof count[0]; i++) {
        at = h2okv__put32(at, count[i]);
    }
    for (size_t i = 0; i < sizeof total / sizeof total[0]; i++) {
        at = h2okv__put(at, total[i], 8);
    }
    return at;
}

static unsigned char *put_lists(unsigned char *at, const h2okv_cache *c)
{
    for (uint32_t i = 0; i < c->n_pins; i++) {
        at = h2okv__put32(at, (uint32_t)c->pin[i].first);
        at = h2okv__put32(at, (uint32_t)c->pin[i].end);
    }
    for (uint32_t i = 0; i < count_grace(c->options.grace, c->passes); i++) {
        at = h2okv__put32(at, (uint32_t)c->grace_first[i]);
    }
    for (uint32_t k = 0; k < c->live; k++) {
        uint32_t cell = c->engine_order[k];
        c->candidate[cell].index = k; /* its place, for the lanes */
        at = h2okv__put32(at, cell);
        at = h2okv__put32(at, (uint32_t)c->engine_pos[cell]);
    }
    return at;
}

static unsigned char *put_lane(unsigned char *at, const h2okv_cache *c, uint32_t index)
{
    h2okv__lane lane = h2okv__lane_of(c, index);
    for (uint32_t k = 0; k < c->live; k++) {
        uint32_t cell = lane.order[k];
        at = h2okv__put32(at, c->candidate[cell].index);
        at = h2okv__put32(at, (uint32_t)lane.pos[cell]);
        at = h2okv__put_double(at, lane.score[cell]);
    }
    return at;
}

int h2okv_cache_save(const h2okv_cache *c, void *buffer, size_t bytes, h2okv_error *error)
{
    size_t needed = h2okv_cache_state_bytes(c);
    int status = h2okv__check_between_passes(c, "cache", error);
    if (status == H2OKV_OK && (buffer == NULL || bytes < needed)) {
        return h2okv_error_set(error, H2OKV_E_INVALID, "bytes", "bytes is %zu: these books take %zu", bytes, needed);
    }
    if (status != H2OKV_OK) {
        return status;
    }
    h2okv__kind kind = h2okv__kind_of(c);
    unsigned char *at = buffer;
    memcpy(at, magic, sizeof magic);
    at = h2okv__put32(at + sizeof magic, VERSION);
    at = h2okv__put(at, needed, 8);
    at = put_kind(at, &kind);
    at = put_now(at, c);
    at = put_lists(at, c);
    for (uint32_t l = 0; l < c->options.lanes; l++) {
        at = put_lane(at, c, l);
    }
    (void)h2okv__put(at, h2okv_checksum(H2OKV_CHECKSUM_START, buffer, needed - SUM_BYTES), 8);
    return H2OKV_OK;
}

/* ---- In: checks ---- */

static int damaged(h2okv_error *error, const char *what)
{
    return h2okv_error_set(error, H2OKV_E_INVALID, "state", "the saved books are damaged: %s", what);
}

static int check_envelope(const unsigned char *block, size_t bytes, h2okv_error *error)
{
    if (block == NULL || bytes < HEAD_BYTES + SUM_BYTES || memcmp(block, magic, sizeof magic) != 0) {
        return h2okv_error_set(error, H2OKV_E_INVALID, "state", "%zu bytes that do not begin as saved books do, or end "
                               "before their head does", bytes);
    }
    const unsigned char *at = block + sizeof magic;
    uint32_t version = h2okv__get32(&at);
    if (version != VERSION) {
        return h2okv_error_set(error, H2OKV_E_INVALID, "state", "the saved books have format %u: this library (%s) "
                               "reads format %d", version, H2OKV_VERSION, VERSION);
    }
    uint64_t length = h2okv__get(&at, 8);
    if (length != bytes) {
        return h2okv_error_set(error, H2OKV_E_INVALID, "state", "the saved books are %llu bytes long, and "
                               "these are %zu", (unsigned long long)length, bytes);
    }
    const unsigned char *sum = block + bytes - SUM_BYTES;
    bool same = h2okv__get(&sum, 8) == h2okv_checksum(H2OKV_CHECKSUM_START, block, bytes - SUM_BYTES);
    return same ? H2OKV_OK : damaged(error, "their checksum is another");
}

static h2okv__kind get_kind(const unsigned char **at)
{
    h2okv__kind kind;
    uint32_t *count[] = {&kind.lanes, &kind.budget, &kind.recent,     &kind.sinks,
                         &kind.pool,  &kind.grace,  &kind.count_self, &kind.heads};
    for (size_t i = 0; i < sizeof count / sizeof count[0]; i++) {
        *count[i] = h2okv__get32(at);
    }
    kind.decay = h2okv__get_double(at);
    kind.seed = h2okv__get(at, 8);
    memcpy(kind.policy, *at, sizeof kind.policy);
    *at += sizeof kind.policy;
    return kind;
}

/* All but the lists, whose lengths are not known to be true yet. Returns where those begin. */
static const unsigned char *get_head(books *b, const unsigned char *block)
{
    const unsigned char *at = block + sizeof magic + 4 + 8;
    b->kind = get_kind(&at);
    uint32_t *count[] = {&b->budget, &b->recent, &b->live, &b->peak_live, &b->n_pins};
    uint64_t *total[] = {&b->admitted, &b->evicted, &b->moves, &b->passes};
    for (size_t i = 0; i < sizeof count / sizeof count[0]; i++) {
        *count[i] = h2okv__get32(&at);
    }
    for (size_t i = 0; i < sizeof total / sizeof total[0]; i++) {
        *total[i] = h2okv__get(&at, 8);
    }
    b->n_grace = count_grace(b->kind.grace, b->passes);
    return at;
}

/* Lengths, and what may be less here than it was there. */
static int check_sizes(const h2okv_cache *c, const books *b, size_t bytes, h2okv_error *error)
{
    uint32_t most = b->live > b->budget ? b->live : b->budget;
    if (most > c->options.cells) {
        return h2okv_error_set(error, H2OKV_E_INVALID, "cells", "cells is %u: %u tokens were saved, with a budget "
                               "of %u", c->options.cells, b->live, b->budget);
    }
    if (b->n_pins > H2OKV_MOST_PINS || block_bytes(b->kind.lanes, b->live, b->n_pins, b->n_grace) != bytes) {
        return damaged(error, "their length does not fit their counts");
    }
    bool empty = b->live == 0 || b->passes > 0;
    bool in_order = b->live <= b->peak_live && b->evicted <= b->admitted && b->live <= b->admitted - b->evicted;
    return in_order && empty ? H2OKV_OK : damaged(error, "their counts contradict each other");
}

static uint32_t get_pins(books *b, const unsigned char **at)
{
    uint32_t in_order = 0, n = b->n_pins;
    for (uint32_t i = 0; i < n; i++) {
        int32_t after = i > 0 ? b->pin[i - 1].end : -1; /* ranges do not touch */
        b->pin[i].first = (int32_t)h2okv__get32(at);
        b->pin[i].end = (int32_t)h2okv__get32(at);
        in_order += b->pin[i].first > after && b->pin[i].end > b->pin[i].first;
    }
    return in_order;
}

static int get_lists(const h2okv_cache *c, books *b, const unsigned char *at, h2okv_error *error)
{
    if (get_pins(b, &at) != b->n_pins) {
        return damaged(error, "their pins are not in order");
    }
    h2okv_options now = c->options;
    now.budget = b->budget;
    now.recent = b->recent;
    if (h2okv__check_shares(&now, h2okv__count_pinned(b->pin, b->n_pins, now.sinks), NULL) != H2OKV_OK) {
        return damaged(error, "budget, recent tokens, sinks and pins do not fit together");
    }
    b->grace = at;
    b->engine = at + (size_t)GRACE_BYTES * b->n_grace;
    b->lanes = b->engine + (size_t)ENGINE_BYTES * b->live;
    for (uint32_t i = 0; i < b->n_grace; i++) {
        if (grace_at(b, i) < 0) {
            return damaged(error, "a pass begins before position 0");
        }
    }
    return H2OKV_OK;
}

/* Are n numbers all below `end`, which is at most the number of cells, and no two of them alike? */
static bool are_distinct(const h2okv_cache *c, const void *user, uint32_t (*number)(const void *, uint32_t), uint32_t n,
                         uint32_t end)
{
    uint32_t done = 0;
    while (done < n && number(user, done) < end && c->mark[number(user, done)] == 0) {
        c->mark[number(user, done++)] = 1;
    }
    bool all = done == n;
    while (done > 0) {
        c->mark[number(user, --done)] = 0;
    }
    return all;
}

static int check_engine(const books *b, h2okv_error *error)
{
    int32_t last = -1;
    for (uint32_t k = 0; k < b->live; k++) {
        int32_t pos = engine_at(b, k).pos;
        if (pos <= last || pos == INT32_MAX) {
            return damaged(error, "the engine's positions do not rise");
        }
        last = pos;
    }
    return H2OKV_OK;
}

static uint32_t place_of(const void *list, uint32_t k)
{
    return entry_at(list, k).place;
}

static int check_lane(const h2okv_cache *c, const books *b, const unsigned char *list, h2okv_error *error)
{
    int32_t last = -1, newest = b->live > 0 ? engine_at(b, b->live - 1).pos : -1;
    if (!are_distinct(c, list, place_of, b->live, b->live)) {
        return damaged(error, "a lane names a place twice, or one that there is not");
    }
    for (uint32_t k = 0; k < b->live; k++) {
        entry e = entry_at(list, k);
        if (e.pos <= last || e.pos > newest) {
            return damaged(error, "a lane's positions do not rise up to the engine's newest");
        }
        if (!isfinite(e.score)) {
            return damaged(error, "a score is NaN or infinite");
        }
        last = e.pos;
    }
    return H2OKV_OK;
}

static int read_books(const h2okv_cache *c, books *b, const void *block, size_t bytes, h2okv_error *error)
{
    int status = check_envelope(block, bytes, error);
    if (status != H2OKV_OK) {
        return status;
    }
    const unsigned char *lists = get_head(b, block);
    h2okv__kind ours = h2okv__kind_of(c);
    status = h2okv__check_kind(&b->kind, &ours, error);
    status = status != H2OKV_OK ? status : check_sizes(c, b, bytes, error);
    status = status != H2OKV_OK ? status : get_lists(c, b, lists, error);
    status = status != H2OKV_OK ? status : check_engine(b, error);
    for (uint32_t l = 0; l < ours.lanes && status == H2OKV_OK; l++) {
        status = check_lane(c, b, lane_list(b, l), error);
    }
    return status;
}

int h2okv_cache_check_state(const h2okv_cache *c, const void *state, size_t bytes, h2okv_state_info *info,
                            uint32_t *cell, h2okv_error *error)
{
    books b;
    int status = read_books(c, &b, state, bytes, error);
    if (status == H2OKV_OK) {
        *info = (h2okv_state_info){
            .live = b.live,
            .budget = b.budget,
            .oldest = b.live > 0 ? engine_at(&b, 0).pos : H2OKV__HOLE,
            .newest = b.live > 0 ? engine_at(&b, b.live - 1).pos : H2OKV__HOLE,
        };
        for (uint32_t k = 0; k < b.live && cell != NULL; k++) {
            cell[k] = engine_at(&b, k).cell;
        }
    }
    return status;
}

/* ---- In ---- */

static uint32_t given_cell(const void *cell, uint32_t k)
{
    return ((const uint32_t *)cell)[k];
}

static uint32_t saved_cell(const void *b, uint32_t k)
{
    return engine_at(b, k).cell;
}

static int check_cells(const h2okv_cache *c, const books *b, const uint32_t *cell, h2okv_error *error)
{
    uint32_t cells = c->options.cells;
    bool good = cell != NULL ? are_distinct(c, cell, given_cell, b->live, cells)
                             : are_distinct(c, b, saved_cell, b->live, cells);
    return good ? H2OKV_OK
                : h2okv_error_set(error, H2OKV_E_INVALID, "cell",
                                  "the %s cells are not all different and below the number of cells, %u",
                                  cell != NULL ? "given" : "saved", cells);
}

static void take_lane(const h2okv_cache *c, const books *b, uint32_t index)
{
    h2okv__lane lane = h2okv__lane_of(c, index);
    const unsigned char *list = lane_list(b, index);
    for (uint32_t k = 0; k < b->live; k++) {
        entry e = entry_at(list, k);
        uint32_t cell = c->engine_order[e.place];
        lane.order[k] = cell;
        lane.pos[cell] = e.pos;
        lane.score[cell] = e.score;
    }
}

static void take_counts(h2okv_cache *c, const books *b)
{
    c->options.budget = b->budget;
    c->options.recent = b->recent;
    c->live = b->live;
    c->peak_live = b->peak_live;
    c->n_pins = b->n_pins;
    c->admitted = b->admitted;
    c->evicted = b->evicted;
    c->moves = b->moves;
    c->passes = b->passes;
    memcpy(c->pin, b->pin, b->n_pins * sizeof *b->pin);
}

int h2okv_cache_restore(h2okv_cache *c, const void *state, size_t bytes, const uint32_t *cell, h2okv_error *error)
{
    books b;
    int status = h2okv__check_between_passes(c, "cache", error);
    status = status != H2OKV_OK ? status : read_books(c, &b, state, bytes, error);
    status = status != H2OKV_OK ? status : check_cells(c, &b, cell, error);
    if (status != H2OKV_OK) {
        return status;
    }
    h2okv_cache_clear(c);
    take_counts(c, &b);
    for (uint32_t i = 0; i < b.n_grace; i++) {
        c->grace_first[i] = grace_at(&b, i);
    }
    for (uint32_t k = 0; k < b.live; k++) {
        c->engine_order[k] = cell != NULL ? cell[k] : saved_cell(&b, k);
        c->engine_pos[c->engine_order[k]] = engine_at(&b, k).pos;
    }
    for (uint32_t l = 0; l < c->options.lanes; l++) {
        take_lane(c, &b, l);
    }
    return H2OKV_OK;
}
