/*
 * decode.c - few queries: every K and V row is read once, by one thread, for all the rows (queries x group) of its
 * head. The list of cells is cut into pieces, by its length alone:
 *
 *   pass 1, a piece:   for each head: logits -> their max over the piece -> e = exp(logit - max), sum, o = e V
 *   barrier
 *   pass 2, a part of a head's pieces:  true max and sum -> factor[row][piece] = exp(max of piece - max) / sum
 *           mass = sum over rows of factor e;  out = sum over pieces of factor o
 *
 * So 3 heads on 2 threads are as balanced as 4, and no sum depends on who did which piece. The members of a batch are
 * like more pieces: those of the first, those of the second, ...
 */
#include "kernels/attend.h"

#include <math.h>
#include <string.h>

#include "base/dtype.h"

typedef struct decode {
    const h2okv__isa *isa;
    const h2okv__attention *a;
    uint32_t rows;
    uint32_t pieces, piece_cells; /* cells of a piece: a multiple of 16 */
    size_t columns;               /* cells, padded to whole pieces */

    float *e;         /* [kv_heads][rows][columns] */
    float *max, *sum; /* [kv_heads][rows][pieces] */
    float *o;         /* [pieces][kv_heads][rows][pad(v_dim)] */

    /* this thread's */
    float *q;      /* [kv_heads][rows to a multiple of 16][pad(k_dim)] */
    void *panel;   /* of K, then of V */
    float *factor; /* [rows][pieces] */
    float *part;   /* [columns of a piece], then [rows] */
} decode;

/* ---- Shape and memory ---- */

/* Long pieces read memory in longer runs and leave less to put together; a few pieces there must be for threads to
 * share. */
enum { LEAST_PIECES = 8, SHORTEST_PIECE = 16, LONGEST_PIECE = 512 };

static uint32_t pieces_of(uint32_t n_cells, uint32_t piece_cells)
{
    return n_cells / piece_cells + (n_cells % piece_cells != 0);
}

static uint32_t cells_of_piece(uint32_t n_cells)
{
    uint32_t shared = pieces_of(n_cells, LEAST_PIECES * SHORTEST_PIECE) * SHORTEST_PIECE;
    return shared > 0 ? h2okv__min(shared, LONGEST_PIECE) : SHORTEST_PIECE;
}

/* The most pieces that a list of up to n_cells is cut into. */
static uint32_t most_pieces(uint32_t n_cells)
{
    uint32_t pieces = pieces_of(n_cells, LONGEST_PIECE);
    return pieces > LEAST_PIECES ? pieces : LEAST_PIECES;
}

static void cut(decode *d, const h2okv__attention *a)
{
    d->a = a;
    d->rows = h2okv__row_count(a);
    d->piece_cells = cells_of_piece(a->n_cells);
    d->pieces = pieces_of(a->n_cells, d->piece_cells);
    d->columns = (size_t)d->pieces * d->piece_cells;
}

/* As place, for float [a][b][c][d]. */
static size_t place4(h2okv__layout *layout, size_t a, size_t b, size_t c, size_t d)
{
    bool *overflow = &layout->overflow;
    return h2okv__place(layout, h2okv__mul(h2okv__mul(a, b, overflow), h2okv__mul(c, d, overflow), overflow),
                        sizeof(float));
}

static size_t rows_to_16(const decode *d)
{
    return ((size_t)d->rows + 15) / 16 * 16;
}

static void place_shared(decode *d, h2okv__layout *layout, char *base)
{
    const h2okv__attention *a = d->a;
    size_t v_pad = h2okv__pad(a->v_dim), most = most_pieces(a->n_cells);
    d->e = h2okv__at(base, place4(layout, a->kv_heads, d->rows, d->columns, 1));
    d->max = h2okv__at(base, place4(layout, a->kv_heads, d->rows, most, 1));
    d->sum = h2okv__at(base, place4(layout, a->kv_heads, d->rows, most, 1));
    d->o = h2okv__at(base, place4(layout, most, a->kv_heads, d->rows, v_pad));
}

/* What threads have for themselves; it serves one member of a batch after another, the longest too. */
static void place_own(decode *d, h2okv__layout *layout, char *base, uint32_t most, uint32_t thread, uint32_t n_threads)
{
    const h2okv__attention *a = d->a;
    size_t k_pad = h2okv__pad(a->k_dim), v_pad = h2okv__pad(a->v_dim);
    for (uint32_t i = 0; i < n_threads; i++) {
        float *q = h2okv__at(base, place4(layout, a->kv_heads, rows_to_16(d), k_pad, 1));
        void *panel = h2okv__at(base, place4(layout, H2OKV__PANEL, k_pad > v_pad ? k_pad : v_pad, 1, 1));
        float *factor = h2okv__at(base, place4(layout, d->rows, most, 1, 1));
        float *part = h2okv__at(base, place4(layout, 1, (size_t)d->rows + LONGEST_PIECE, 1, 1));
        if (i == thread) {
            d->q = q;
            d->panel = panel;
            d->factor = factor;
            d->part = part;
        }
    }
}

/* ---- Pass 1: a piece ---- */

static float *e_row(const decode *d, uint32_t head, uint32_t row)
{
    return d->e + ((size_t)head * d->rows + row) * d->columns;
}

static h2okv__span span_of(const decode *d, uint32_t head, uint32_t first, uint32_t n)
{
    return (h2okv__span){0, d->rows, first, n, e_row(d, head, 0) + first, d->columns};
}

static void pack_all_q(const decode *d)
{
    size_t bytes = rows_to_16(d) * h2okv__pad(d->a->k_dim) * sizeof(float);
    for (uint32_t head = 0; head < d->a->kv_heads; head++) {
        (void)h2okv__pack_q(d->isa, d->a, head, 0, d->rows, (char *)d->q + head * bytes);
    }
}

/* K or V rows of a span of the list; the rows of `next` are fetched meanwhile. */
typedef struct stage {
    h2okv__rows rows;
    const uint32_t *cell;
    uint32_t n;
} stage;

static stage stage_of(const decode *d, bool is_k, uint32_t head, uint32_t first, uint32_t n)
{
    return (stage){is_k ? h2okv__k_rows(d->a, head) : h2okv__v_rows(d->a, head), d->a->cell + first, n};
}

static void fetch_during(stage *now, const stage *next)
{
    now->rows.next_base = next->rows.base;
    now->rows.next_stride = next->rows.stride;
    now->rows.next_cell = next->cell;
    now->rows.next_n = next->n;
    now->rows.next_bytes = (uint32_t)h2okv__row_bytes(next->rows.type, next->rows.dim);
}

/* A panel's worth of a stage, from its cell c on. */
static h2okv__rows panel_rows(const stage *of, uint32_t c)
{
    h2okv__rows rows = of->rows;
    rows.next_cell += rows.next_n > c ? c : 0;
    rows.next_n -= rows.next_n > c ? c : rows.next_n;
    return rows;
}

static void logits_of_piece(const decode *d, uint32_t head, const stage *k, h2okv__span span)
{
    const float *q = d->q + head * rows_to_16(d) * h2okv__pad(d->a->k_dim);
    if (d->rows <= d->isa->few_rows) {
        d->isa->few_logits(q, d->rows, &k->rows, k->cell, k->n, span.s, span.stride);
        return;
    }
    for (uint32_t c = 0; c < span.n; c += H2OKV__PANEL) {
        uint32_t n = h2okv__min(span.n - c, H2OKV__PANEL);
        h2okv__rows rows = panel_rows(k, c);
        (void)d->isa->pack_k(&rows, k->cell + c, n, d->panel);
        d->isa->logits(q, d->rows, d->a->k_dim, d->panel, n, span.s + c, span.stride);
    }
}

static void softmax_of_piece(const decode *d, uint32_t head, uint32_t piece, h2okv__span span)
{
    for (uint32_t row = 0; row < d->rows; row++) {
        float *x = span.s + row * span.stride;
        uint32_t seen = h2okv__seen_of_span(d->a, &span, row);
        if (d->a->softcap > 0.0f) {
            d->isa->softcap(x, seen, d->a->softcap);
        }
        size_t at = ((size_t)head * d->rows + row) * d->pieces + piece;
        d->max[at] = d->isa->max(x, seen);
        d->sum[at] = d->isa->exp_sum(x, seen, h2okv__anchor(d->max[at]));
        memset(x + seen, 0, (d->piece_cells - seen) * sizeof *x);
    }
}

/* Rows that see only a part of the piece are multiplied one by one: a number in V that is not finite must not reach
 * a row by way of a weight of 0. */
static void few_values(const decode *d, const stage *v, h2okv__span span, float *o)
{
    if (h2okv__seen(d->a, 0) >= span.first + span.n) {
        d->isa->few_values(span.s, span.stride, d->rows, &v->rows, v->cell, v->n, o);
        return;
    }
    for (uint32_t row = 0; row < d->rows; row++) {
        d->isa->few_values(span.s + row * span.stride, span.stride, 1, &v->rows, v->cell,
                           h2okv__seen_of_span(d->a, &span, row), o + row * h2okv__pad(d->a->v_dim));
    }
}

static void values_of_piece(const decode *d, uint32_t head, uint32_t piece, const stage *v, h2okv__span span)
{
    size_t floats = d->rows * h2okv__pad(d->a->v_dim);
    float *o = d->o + ((size_t)piece * d->a->kv_heads + head) * floats;
    memset(o, 0, floats * sizeof *o);
    if (d->rows <= d->isa->few_rows) {
        few_values(d, v, span, o);
        return;
    }
    for (uint32_t c = 0; c < span.n; c += H2OKV__PANEL) {
        h2okv__span panel = {0, d->rows, span.first + c, h2okv__min(span.n - c, H2OKV__PANEL), span.s + c, span.stride};
        h2okv__rows rows = panel_rows(v, c);
        bool finite = d->isa->pack_v(&rows, v->cell + c, panel.n, d->panel);
        h2okv__add_values(d->isa, d->a, &panel, d->panel, finite, o);
    }
}

static uint32_t cells_of(const decode *d, uint32_t piece)
{
    return piece < d->pieces ? h2okv__min(d->a->n_cells - piece * d->piece_cells, d->piece_cells) : 0;
}

/* K of head 0, V of head 0, K of head 1, ...; then the piece that this thread does next. */
static void do_piece(const decode *d, uint32_t piece, uint32_t next_piece)
{
    uint32_t first = piece * d->piece_cells, n = cells_of(d, piece);
    for (uint32_t head = 0; head < d->a->kv_heads; head++) {
        bool last = head + 1 == d->a->kv_heads;
        stage k = stage_of(d, true, head, first, n), v = stage_of(d, false, head, first, n);
        stage next = last ? stage_of(d, true, 0, next_piece < d->pieces ? next_piece * d->piece_cells : 0,
                                     cells_of(d, next_piece))
                          : stage_of(d, true, head + 1, first, n);
        fetch_during(&k, &v);
        fetch_during(&v, &next);
        h2okv__span span = span_of(d, head, first, n);
        logits_of_piece(d, head, &k, span);
        softmax_of_piece(d, head, piece, span);
        values_of_piece(d, head, piece, &v, span);
    }
}

/* ---- Pass 2: a part of a head ---- */

/* What turns a piece's numbers into shares of the whole: exp(max of piece - max) / sum. */
static void factors_of_row(const decode *d, uint32_t head, uint32_t row)
{
    float *factor = d->factor + (size_t)row * d->pieces;
    size_t at = ((size_t)head * d->rows + row) * d->pieces;
    float sink = h2okv__sink(d->a, head, row);
    float max = d->isa->max(d->max + at, d->pieces);
    float anchor = h2okv__anchor(sink > max ? sink : max);
    float sum = expf(sink - anchor);
    memcpy(factor, d->max + at, d->pieces * sizeof *factor);
    (void)d->isa->exp_sum(factor, d->pieces, anchor);
    for (uint32_t i = 0; i < d->pieces; i++) {
        sum += factor[i] * d->sum[at + i];
    }
    for (uint32_t i = 0; i < d->pieces; i++) {
        factor[i] *= h2okv__inverse(sum);
    }
}

static void put_out(const decode *d, uint32_t head, uint32_t row)
{
    _Alignas(64) float out[H2OKV__MAX_DIM] = {0};
    size_t v_pad = h2okv__pad(d->a->v_dim), from_piece = d->a->kv_heads * d->rows * v_pad;
    const float *o = d->o + ((size_t)head * d->rows + row) * v_pad;
    d->isa->add_mass(o, from_piece, d->pieces, d->a->v_dim, d->factor + (size_t)row * d->pieces, out);
    memcpy(h2okv__out_row(d->a, head, row), out, d->a->v_dim * sizeof *out);
}

/* A row's weight on its own cell, where it does not count. */
static void clear_self(const decode *d, const h2okv__span *span)
{
    for (uint32_t row = 0; row < span->rows; row++) {
        uint32_t self = h2okv__self(d->a, row);
        if (self >= span->first && self - span->first < span->n) {
            span->s[row * span->stride + self - span->first] = 0.0f;
        }
    }
}

static void mass_of_piece(const decode *d, uint32_t head, uint32_t piece)
{
    uint32_t first = piece * d->piece_cells;
    h2okv__span span = span_of(d, head, first, h2okv__min(d->a->n_cells - first, d->piece_cells));
    float *mass = d->part, *factor = d->part + d->piece_cells;
    for (uint32_t row = 0; row < d->rows; row++) {
        factor[row] = d->factor[(size_t)row * d->pieces + piece] * h2okv__query_weight(d->a, row);
    }
    if (d->a->leave_out_self) {
        clear_self(d, &span);
    }
    memset(mass, 0, d->piece_cells * sizeof *mass);
    h2okv__add_mass(d->isa, d->a, &span, factor, mass);
    h2okv__put_mass(d->a, head, first, span.n, mass);
}

static uint32_t part_count(const decode *d)
{
    return d->a->mass == NULL || d->pieces == 0 ? 1 : h2okv__min(d->pieces, 8);
}

static void do_part(const decode *d, uint32_t head, uint32_t part)
{
    uint32_t parts = part_count(d);
    for (uint32_t row = 0; row < d->rows; row++) {
        factors_of_row(d, head, row);
    }
    for (uint32_t row = part; row < d->rows; row += parts) {
        put_out(d, head, row);
    }
    if (d->a->mass == NULL) {
        return;
    }
    uint32_t end = (uint32_t)((uint64_t)d->pieces * (part + 1) / parts);
    for (uint32_t piece = (uint32_t)((uint64_t)d->pieces * part / parts); piece < end; piece++) {
        mass_of_piece(d, head, piece);
    }
}

/* ---- The way ---- */

/* The members of a batch; one in most calls. */
typedef struct batch {
    decode d[H2OKV__TOGETHER];
    uint32_t n;
} batch;

static void place(batch *b, h2okv__layout *layout, char *base, uint32_t thread, uint32_t n_threads)
{
    decode *longest = &b->d[0];
    for (uint32_t m = 0; m < b->n; m++) {
        place_shared(&b->d[m], layout, base);
        longest = b->d[m].a->n_cells > longest->a->n_cells ? &b->d[m] : longest;
    }
    place_own(longest, layout, base, most_pieces(longest->a->n_cells), thread, n_threads);
    for (uint32_t m = 0; m < b->n; m++) {
        b->d[m].q = longest->q;
        b->d[m].panel = longest->panel;
        b->d[m].factor = longest->factor;
        b->d[m].part = longest->part;
    }
}

void h2okv__decode_place(const h2okv__attention *a, uint32_t n, uint32_t n_threads, h2okv__layout *layout)
{
    batch b = {.n = n};
    for (uint32_t m = 0; m < n; m++) {
        cut(&b.d[m], a);
    }
    place(&b, layout, NULL, 0, n_threads);
}

static uint32_t parts_of(const decode *d)
{
    return part_count(d) * d->a->kv_heads;
}

/* A thread takes pieces in rising order, so it comes to each member once. */
static void do_pieces(const batch *b, h2okv__team *team)
{
    uint32_t i = h2okv__team_take(team), first = 0;
    for (uint32_t m = 0; m < b->n; first += b->d[m++].pieces) {
        const decode *d = &b->d[m];
        if (i - first < d->pieces) {
            pack_all_q(d);
        }
        for (uint32_t next; i - first < d->pieces; i = next) {
            next = h2okv__team_take(team);
            do_piece(d, i - first, next - first);
        }
    }
}

static void do_parts(const batch *b, h2okv__team *team)
{
    uint32_t i = h2okv__team_take(team), first = 0;
    for (uint32_t m = 0; m < b->n; first += parts_of(&b->d[m++])) {
        const decode *d = &b->d[m];
        for (; i - first < parts_of(d); i = h2okv__team_take(team)) {
            do_part(d, (i - first) / part_count(d), (i - first) % part_count(d));
        }
    }
}

void h2okv__decode(const h2okv__call *call)
{
    batch b = {.n = call->n};
    h2okv__layout layout = {0};
    for (uint32_t m = 0; m < b.n; m++) {
        b.d[m].isa = call->isa->few != NULL ? call->isa->few : call->isa;
        cut(&b.d[m], &call->a[m]);
    }
    place(&b, &layout, call->scratch, call->thread, call->n_threads);
    do_pieces(&b, call->team);
    h2okv__team_wait(call->team, call->n_threads);
    do_parts(&b, call->team);
    h2okv__end_call(call);
}
