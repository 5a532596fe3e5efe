/*
 * view.c - what a slot's cache holds, for /live: columns, so that thousands of tokens stay short.
 *
 *   {"slot", "busy", "budget", "recent", "cells", "tokens_per_s", "text": [...], "kept": [...], "score": [...],
 *    "state": "rhpse..."}
 *
 * "state" has a letter a token. A character that is spread over tokens stands whole in the last one's text.
 */
#include "api.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char letters[] = { [SERVE_RECENT] = 'r', [SERVE_HEAVY] = 'h', [SERVE_PINNED] = 'p', [SERVE_SINK] = 's',
                                [SERVE_EVICTED] = 'e' };

static json_t *texts_of(const serve_view *v)
{
    json_t *list = json_array();
    cli_utf8 u = { { 0 }, 0 };
    bool good = list != NULL;
    for (size_t i = 0; good && i < v->n; i++) {
        char *text = malloc(CLI_UTF8_ROOM(v->tokens[i].n_bytes));
        size_t n = text ? cli_utf8_take(&u, v->tokens[i].bytes, v->tokens[i].n_bytes, text) : 0;
        good = text && !json_array_append_new(list, json_stringn(text, n));
        free(text);
    }
    if (good) return list;
    json_decref(list);
    return NULL;
}

/* In thousandths, rounded, so that each is short. */
static json_t *numbers_of(const serve_view *v, bool kept)
{
    json_t *list = json_array();
    bool good = list != NULL;
    for (size_t i = 0; good && i < v->n; i++) {
        float x = kept ? v->tokens[i].kept : v->tokens[i].score;
        if (!(x >= 0 && x <= 1)) x = x > 1 ? 1 : 0;
        good = !json_array_append_new(list, json_real(round((double)x * 1000) / 1000));
    }
    if (good) return list;
    json_decref(list);
    return NULL;
}

static json_t *states_of(const serve_view *v)
{
    char *text = malloc(v->n + 1);
    json_t *json;
    if (!text) return NULL;
    for (size_t i = 0; i < v->n; i++) text[i] = letters[v->tokens[i].state];
    json = json_stringn(text, v->n);
    free(text);
    return json;
}

bool api_add_view(cli_buffer *out, const serve_view *v)
{
    double speed = isfinite(v->tokens_per_s) ? v->tokens_per_s : 0;
    json_t *json = json_pack("{sIsbsIsIsIsfsosososo}", "slot", (json_int_t)v->slot, "busy", (int)v->busy, "budget",
                             (json_int_t)v->budget, "recent", (json_int_t)v->recent, "cells", (json_int_t)v->cells,
                             "tokens_per_s", speed, "text", texts_of(v), "kept", numbers_of(v, true), "score",
                             numbers_of(v, false), "state", states_of(v));
    char *text = json ? json_dumps(json, JSON_COMPACT | JSON_REAL_PRECISION(6)) : NULL;
    bool done = text && cli_buffer_add(out, text, strlen(text)) && cli_buffer_add(out, "\n", 1);
    free(text);
    json_decref(json);
    return done;
}
