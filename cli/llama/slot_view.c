/*
 * slot_view.c - what a slot's cache holds, token by token, for the page and for whoever asks.
 *
 *   held:    | t0 | t1 | t2 | ..... |          position by position
 *   lanes:     90   12   0            kept: the share of lanes that hold it; score: the mean over those
 */
#include "slots.h"

#include "h2okv/advanced.h"

#include <stdlib.h>

typedef struct sums {
    uint32_t *lanes; /* [n] that hold the token */
    double *score;   /* [n] sum over them */
    uint32_t n, n_lanes, live;
    double most;     /* the largest mean */
} sums;

static bool sum_up(const h2okv_cache *cache, sums *x)
{
    h2okv_lane_view lane;
    x->lanes = calloc(x->n + 1, sizeof *x->lanes);
    x->score = calloc(x->n + 1, sizeof *x->score);
    if (!x->lanes || !x->score) return false;
    for (; h2okv_cache_lane(cache, x->n_lanes, &lane) == H2OKV_OK; x->n_lanes++) {
        x->live = lane.live > x->live ? lane.live : x->live;
        for (uint32_t i = 0; i < lane.live; i++) {
            uint32_t cell = lane.order[i], pos = (uint32_t)lane.pos[cell];
            if (pos >= x->n) continue;
            x->lanes[pos]++;
            x->score[pos] += lane.score[cell];
        }
    }
    for (uint32_t i = 0; i < x->n; i++) {
        if (x->lanes[i] > 0) x->score[i] /= x->lanes[i];
        if (x->score[i] > x->most) x->most = x->score[i];
    }
    return true;
}

static bool is_pinned(const slot *t, uint32_t pos)
{
    for (uint32_t i = 0; i < t->n_pins; i++) {
        if ((int32_t)pos >= t->pin[i].first && (int32_t)pos < t->pin[i].end) return true;
    }
    return false;
}

static void describe(const slot *t, const h2okv_options *o, const sums *x, uint32_t pos, serve_view_token *out)
{
    out->kept = x->n_lanes > 0 ? (float)x->lanes[pos] / (float)x->n_lanes : 0;
    out->score = x->most > 0 ? (float)(x->score[pos] / x->most) : 0;
    if (x->lanes[pos] == 0) {
        out->state = SERVE_EVICTED;
    } else if (is_pinned(t, pos)) {
        out->state = SERVE_PINNED;
    } else if (pos < o->sinks) {
        out->state = SERVE_SINK;
    } else {
        out->state = pos + o->recent >= x->n ? SERVE_RECENT : SERVE_HEAVY;
    }
}

static bool fill(const slots *s, const slot *t, const sums *x, serve_view *view)
{
    h2okv_options o;
    h2okv_cache_get_options(h2okv_llama_seq_cache(s->engine->h, t->seq), &o);
    view->tokens = calloc(x->n + 1, sizeof *view->tokens);
    view->slot = t->seq;
    view->budget = o.budget;
    view->recent = o.recent;
    view->cells = x->live;
    view->busy = t->state != SLOT_FREE;
    view->tokens_per_s = t->speed;
    for (uint32_t i = 0; view->tokens && i < x->n; i++) {
        cli_buffer piece = { 0 };
        if (!engine_special(s->engine, t->held[i], &piece)) return false;
        view->tokens[i].bytes = piece.data;
        view->tokens[i].n_bytes = piece.n;
        view->n++;
        describe(t, &o, x, i, &view->tokens[i]);
    }
    return view->tokens != NULL;
}

serve_event *slot_look(const slots *s, uint32_t index)
{
    const slot *t = &s->slot[index];
    sums x = { .n = t->n_held };
    serve_event *e = serve_event_new(SERVE_VIEW);
    bool ok = e && sum_up(h2okv_llama_seq_cache(s->engine->h, t->seq), &x) && fill(s, t, &x, &e->view);
    free(x.lanes);
    free(x.score);
    if (ok) return e;
    serve_event_free(e);
    return NULL;
}
