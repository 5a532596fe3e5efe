/*
 * slot_text.c - an answer's tokens become text for the client: whole characters, and nothing of a stop string.
 *
 *   pieces -> whole characters -> | certain ....... | may become a stop string |
 *                                   told              held
 *
 * With logprobs a token is told with the text that it ends in.
 */
#include "slots.h"

#include <stdlib.h>
#include <string.h>

/* Where the first stop string begins; n: there is none. */
static size_t first_stop(const serve_request *r, const cli_buffer *held)
{
    size_t first = held->n;
    for (size_t i = 0; i < r->n_stops; i++) {
        const char *at = held->n > 0 ? strstr(held->data, r->stops[i]) : NULL;
        if (at && (size_t)(at - held->data) < first) first = (size_t)(at - held->data);
    }
    return first;
}

/* Where the end begins that a stop string may begin with. */
static size_t certain(const serve_request *r, const cli_buffer *held)
{
    for (size_t at = 0; at < held->n; at++) {
        for (size_t i = 0; i < r->n_stops; i++) {
            if (strncmp(held->data + at, r->stops[i], held->n - at) == 0) return at;
        }
    }
    return held->n;
}

/* Moves the tokens that end within the first n bytes into the event. */
static bool give_tokens(slot_text *x, size_t n, serve_event *e)
{
    size_t count = 0;
    while (count < x->n_tokens && x->token_end[count] <= n) count++;
    if (count == 0) return true;
    e->tokens = malloc(count * sizeof *e->tokens);
    if (!e->tokens) return false;
    memcpy(e->tokens, x->token, count * sizeof *e->tokens);
    e->n_tokens = count;
    x->n_tokens -= count;
    memmove(x->token, x->token + count, x->n_tokens * sizeof *x->token);
    memmove(x->token_end, x->token_end + count, x->n_tokens * sizeof *x->token_end);
    return true;
}

/* The first n bytes to the client. */
static bool tell(slot *t, size_t n)
{
    slot_text *x = &t->text;
    serve_event *e = n > 0 ? serve_event_new(SERVE_TEXT) : NULL;
    if (n == 0) return true;
    if (e) e->text = malloc(n + 1);
    if (!e || !e->text || !give_tokens(x, n, e)) {
        serve_event_free(e);
        return false;
    }
    memcpy(e->text, x->held.data, n);
    e->text[n] = '\0';
    e->bytes = n;
    e->usage.slot = t->seq;
    x->held.n -= n;
    memmove(x->held.data, x->held.data + n, x->held.n + 1);
    for (size_t i = 0; i < x->n_tokens; i++) x->token_end[i] -= n;
    serve_job_tell(t->job, e);
    return true;
}

static bool make_room(slot_text *x)
{
    if (x->n_tokens == x->tokens_room) {
        size_t room = x->tokens_room ? 2 * x->tokens_room : 16;
        serve_token *tokens = realloc(x->token, room * sizeof *tokens);
        size_t *ends = tokens ? realloc(x->token_end, room * sizeof *ends) : NULL;
        if (tokens) x->token = tokens;
        if (!ends) return false;
        x->token_end = ends;
        x->tokens_room = room;
    }
    return true;
}

static bool keep_token(slot_text *x, serve_token *token)
{
    if (!make_room(x)) return false;
    x->token[x->n_tokens] = *token;
    x->token_end[x->n_tokens++] = x->held.n;
    return true;
}

static bool add_piece(slot_text *x, const engine *e, llama_token id)
{
    cli_buffer piece = { 0 };
    bool ok = engine_piece(e, id, &piece) && cli_buffer_reserve(&x->held, CLI_UTF8_ROOM(piece.n));
    if (ok) {
        x->held.n += cli_utf8_take(&x->characters, piece.data, piece.n, x->held.data + x->held.n);
        x->held.data[x->held.n] = '\0';
    }
    cli_buffer_free(&piece);
    return ok;
}

bool text_take(slot *t, const engine *e, llama_token id, serve_token *token, bool *stopped)
{
    slot_text *x = &t->text;
    size_t stop;
    if (!add_piece(x, e, id) || (token && !keep_token(x, token))) {
        if (token) serve_token_clear(token);
        return false;
    }
    stop = first_stop(t->request, &x->held);
    *stopped = stop < x->held.n;
    if (!*stopped) return tell(t, certain(t->request, &x->held));
    if (!tell(t, stop)) return false;
    x->held.n = 0; /* the stop string, and what its last token says beyond it */
    return true;
}

bool text_flush(slot *t)
{
    return tell(t, t->text.held.n);
}

void text_end(slot_text *x)
{
    for (size_t i = 0; i < x->n_tokens; i++) serve_token_clear(&x->token[i]);
    free(x->token);
    free(x->token_end);
    cli_buffer_free(&x->held);
    *x = (slot_text){ 0 };
}
