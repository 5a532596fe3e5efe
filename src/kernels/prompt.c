/*
 * prompt.c - many queries: head by head, K and V are packed once for all threads, then tiles of rows are multiplied.
 *
 *   pack, a panel:   64 cells of K and V into the table's layout
 *   barrier
 *   slot of tiles:   S = q K^T over all cells the tile sees -> true max and sum of each row -> e = exp(S - max)
 *                    out = e V / sum;   mass of the slot += sum over rows of e / sum
 *   barrier
 *   mass, a panel:   sum over the slots, in order     (together with packing for the next head)
 *
 * A slot is a run of tiles that one thread does in order; there are at most SLOTS of them, by the shape alone. So no
 * sum depends on the threads, and memory stays at O(cells): SLOTS floats a cell, and TILE_ROWS more for each thread.
 */
#include "kernels/attend.h"

#include <math.h>
#include <string.h>

enum {
    SLOTS = 32,
    S_FLOATS = 256 * 1024, /* a tile's S should stay in a level 2 cache */
    FEWEST_ROWS = 16,
};

typedef struct prompt {
    const h2okv__isa *isa;
    const h2okv__attention *a;
    uint32_t rows, tile_rows, tiles, slots, panels;
    size_t columns;               /* cells, padded to whole panels */
    size_t s_stride;              /* no multiple of 4096 bytes, where rows would fall into the same cache lines */
    size_t k_panel_bytes, v_panel_bytes;

    char *k, *v;         /* [panels] */
    unsigned char *safe; /* [panels]: bit 0: K is finite, bit 1: V is */
    float *slot_mass;    /* [slots][columns] */

    /* this thread's */
    float *s;      /* [tile_rows][s_stride] */
    float *q, *o;  /* [TILE_ROWS][pad] */
    float *factor; /* [TILE_ROWS] */
} prompt;

/* ---- Shape and memory ---- */

static void cut(prompt *p, const h2okv__isa *isa, const h2okv__attention *a)
{
    p->isa = isa;
    p->a = a;
    p->rows = h2okv__row_count(a);
    p->panels = a->n_cells / H2OKV__PANEL + (a->n_cells % H2OKV__PANEL != 0);
    p->columns = (size_t)p->panels * H2OKV__PANEL;
    p->s_stride = p->columns + 16;
    p->tile_rows = isa->tile_rows;
    while (p->tile_rows > FEWEST_ROWS && p->tile_rows * p->s_stride > S_FLOATS) {
        p->tile_rows -= 16;
    }
    p->tiles = (p->rows + p->tile_rows - 1) / p->tile_rows;
    p->slots = h2okv__min(p->tiles, SLOTS);
    p->k_panel_bytes = h2okv__pad(a->k_dim) * H2OKV__PANEL * sizeof(float);
    p->v_panel_bytes = h2okv__pad(a->v_dim) * H2OKV__PANEL * sizeof(float);
}

/* At least tile_rows * s_stride, and never less for more cells. */
static size_t floats_of_s(const prompt *p)
{
    size_t most = (size_t)H2OKV__TILE_ROWS * p->s_stride, least = (size_t)FEWEST_ROWS * p->s_stride;
    most = most < S_FLOATS ? most : S_FLOATS;
    return most > least ? most : least;
}

static void place(prompt *p, h2okv__layout *layout, char *base, uint32_t thread, uint32_t n_threads)
{
    p->k = h2okv__at(base, h2okv__place(layout, p->panels, p->k_panel_bytes));
    p->v = h2okv__at(base, h2okv__place(layout, p->panels, p->v_panel_bytes));
    p->safe = h2okv__at(base, h2okv__place(layout, p->panels, 1));
    p->slot_mass = h2okv__at(base, h2okv__place(layout, p->columns, p->slots * sizeof(float)));
    for (uint32_t i = 0; i < n_threads; i++) {
        float *s = h2okv__at(base, h2okv__place(layout, floats_of_s(p), sizeof(float)));
        float *q = h2okv__at(base, h2okv__place(layout, H2OKV__TILE_ROWS, h2okv__pad(p->a->k_dim) * sizeof(float)));
        float *o = h2okv__at(base, h2okv__place(layout, H2OKV__TILE_ROWS, h2okv__pad(p->a->v_dim) * sizeof(float)));
        float *factor = h2okv__at(base, h2okv__place(layout, H2OKV__TILE_ROWS, sizeof(float)));
        if (i == thread) {
            p->s = s;
            p->q = q;
            p->o = o;
            p->factor = factor;
        }
    }
}

/* ---- Pack ---- */

static uint32_t cells_of_panel(const prompt *p, uint32_t panel)
{
    return h2okv__min(p->a->n_cells - panel * H2OKV__PANEL, H2OKV__PANEL);
}

static void pack_panel(const prompt *p, uint32_t head, uint32_t panel)
{
    const uint32_t *cell = p->a->cell + (size_t)panel * H2OKV__PANEL;
    uint32_t n = cells_of_panel(p, panel);
    h2okv__rows k = h2okv__k_rows(p->a, head), v = h2okv__v_rows(p->a, head);
    bool k_finite = p->isa->pack_k(&k, cell, n, p->k + panel * p->k_panel_bytes);
    bool v_finite = p->isa->pack_v(&v, cell, n, p->v + panel * p->v_panel_bytes);
    p->safe[panel] = (unsigned char)(k_finite | v_finite << 1);
}

static void sum_slots(const prompt *p, uint32_t head, uint32_t panel)
{
    float mass[H2OKV__PANEL] = {0};
    size_t first = (size_t)panel * H2OKV__PANEL;
    for (uint32_t slot = 0; slot < p->slots; slot++) {
        const float *from = p->slot_mass + slot * p->columns + first;
        for (uint32_t c = 0; c < H2OKV__PANEL; c++) {
            mass[c] += from[c];
        }
    }
    h2okv__put_mass(p->a, head, (uint32_t)first, cells_of_panel(p, panel), mass);
}

/* ---- A tile of rows ---- */

static h2okv__span span_of(const prompt *p, uint32_t row, uint32_t rows, uint32_t panel)
{
    uint32_t first = panel * H2OKV__PANEL;
    return (h2okv__span){row, rows, first, cells_of_panel(p, panel), p->s + first, p->s_stride};
}

/* Logits -> exp of them less their maximum, 0 where the row sees nothing; returns 1 / sum. */
static float softmax_row(const prompt *p, uint32_t head, uint32_t row, float *x, uint32_t width)
{
    uint32_t seen = h2okv__seen(p->a, row);
    if (p->a->softcap > 0.0f) {
        p->isa->softcap(x, seen, p->a->softcap);
    }
    float sink = h2okv__sink(p->a, head, row), max = p->isa->max(x, seen);
    float anchor = h2okv__anchor(sink > max ? sink : max);
    float sum = p->isa->exp_sum(x, seen, anchor) + expf(sink - anchor);
    memset(x + seen, 0, (width - seen) * sizeof *x);
    return h2okv__inverse(sum);
}

static void put_out(const prompt *p, uint32_t head, uint32_t row, const float *o, float inverse)
{
    float *out = h2okv__out_row(p->a, head, row);
    for (uint32_t d = 0; d < p->a->v_dim; d++) {
        out[d] = o[d] * inverse;
    }
}

static void mass_of_tile(const prompt *p, uint32_t row, uint32_t rows, uint32_t width, float *slot_mass)
{
    h2okv__span all = {row, rows, 0, width, p->s, p->s_stride};
    for (uint32_t i = 0; i < rows; i++) {
        uint32_t self = h2okv__self(p->a, row + i);
        if (p->a->leave_out_self && self < width) {
            p->s[i * p->s_stride + self] = 0.0f;
        }
        p->factor[i] *= h2okv__query_weight(p->a, row + i);
    }
    h2okv__add_mass(p->isa, p->a, &all, p->factor, slot_mass);
}

static void do_tile(const prompt *p, uint32_t head, uint32_t tile, float *slot_mass)
{
    uint32_t row = tile * p->tile_rows, rows = h2okv__min(p->rows - row, p->tile_rows);
    uint32_t width = h2okv__seen(p->a, row + rows - 1); /* no row of the tile sees more */
    uint32_t panels = (width + H2OKV__PANEL - 1) / H2OKV__PANEL;
    size_t v_pad = h2okv__pad(p->a->v_dim);

    (void)h2okv__pack_q(p->isa, p->a, head, row, rows, p->q);
    for (uint32_t i = 0; i < panels; i++) {
        h2okv__span span = span_of(p, row, rows, i);
        p->isa->logits(p->q, rows, p->a->k_dim, p->k + i * p->k_panel_bytes, span.n, span.s, span.stride);
    }
    for (uint32_t i = 0; i < rows; i++) {
        p->factor[i] = softmax_row(p, head, row + i, p->s + i * p->s_stride, panels * H2OKV__PANEL);
    }
    memset(p->o, 0, rows * v_pad * sizeof *p->o);
    for (uint32_t i = 0; i < panels; i++) {
        h2okv__span span = span_of(p, row, rows, i);
        h2okv__add_values(p->isa, p->a, &span, p->v + i * p->v_panel_bytes, p->safe[i] >> 1, p->o);
    }
    for (uint32_t i = 0; i < rows; i++) {
        put_out(p, head, row + i, p->o + i * v_pad, p->factor[i]);
    }
    if (p->a->mass != NULL) {
        mass_of_tile(p, row, rows, width, slot_mass);
    }
}

static void do_slot(const prompt *p, uint32_t head, uint32_t slot)
{
    float *mass = p->slot_mass + slot * p->columns;
    memset(mass, 0, p->columns * sizeof *mass);
    uint32_t end = (uint32_t)((uint64_t)p->tiles * (slot + 1) / p->slots);
    for (uint32_t tile = (uint32_t)((uint64_t)p->tiles * slot / p->slots); tile < end; tile++) {
        do_tile(p, head, tile, mass);
    }
}

/* ---- The way ---- */

void h2okv__prompt_place(const h2okv__isa *isa, const h2okv__attention *a, uint32_t n_threads, h2okv__layout *layout)
{
    prompt p = {0};
    cut(&p, isa, a);
    place(&p, layout, NULL, 0, n_threads);
}

static void pack_head(const prompt *p, const h2okv__call *call, uint32_t head)
{
    for (uint32_t i = h2okv__team_take(call->team); i < p->panels; i = h2okv__team_take(call->team)) {
        if (head > 0 && p->a->mass != NULL) {
            sum_slots(p, head - 1, i);
        }
        if (head < p->a->kv_heads) {
            pack_panel(p, head, i);
        }
    }
}

static bool all_finite(const prompt *p)
{
    unsigned char both = 3;
    for (uint32_t i = 0; i < p->panels; i++) {
        both &= p->safe[i];
    }
    return both == 3;
}

/* Every thread sees the same and packs anew, in the layout of the table that bears such numbers. */
static void pack_again(prompt *p, const h2okv__call *call, uint32_t head)
{
    h2okv__team_wait(call->team, call->n_threads);
    p->isa = call->isa->few;
    for (uint32_t i = h2okv__team_take(call->team); i < p->panels; i = h2okv__team_take(call->team)) {
        pack_panel(p, head, i);
    }
    h2okv__team_wait(call->team, call->n_threads);
}

static void do_head(prompt *p, const h2okv__call *call, uint32_t head)
{
    p->isa = call->isa;
    pack_head(p, call, head);
    h2okv__team_wait(call->team, call->n_threads);
    if (call->isa->few != NULL && !all_finite(p)) {
        pack_again(p, call, head);
    }
    for (uint32_t i = h2okv__team_take(call->team); i < p->slots; i = h2okv__team_take(call->team)) {
        do_slot(p, head, i);
    }
    h2okv__team_wait(call->team, call->n_threads);
}

void h2okv__prompt(const h2okv__call *call)
{
    _Alignas(64) char saved[64];
    prompt p = {0};
    h2okv__layout layout = {0};
    cut(&p, call->isa, call->a);
    place(&p, &layout, call->scratch, call->thread, call->n_threads);
    if (call->isa->begin != NULL) {
        call->isa->begin(saved);
    }
    for (uint32_t head = 0; head < call->a->kv_heads; head++) {
        do_head(&p, call, head);
    }
    if (call->isa->end != NULL) {
        call->isa->end(saved);
    }
    pack_head(&p, call, call->a->kv_heads); /* the last head's mass */
    h2okv__end_call(call);
}
