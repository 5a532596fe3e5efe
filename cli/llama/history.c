/* history.c - see history.h. */
#include "history.h"

#include <stdlib.h>
#include <string.h>

static size_t bytes_of(const history_turn *t)
{
    return t->n_said + t->n_answer * sizeof *t->answer;
}

static void free_turn(history_turn *t)
{
    free(t->said);
    free(t->answer);
    *t = (history_turn){ 0 };
}

void history_drop_first(history *h)
{
    free_turn(&h->turn[0]);
    h->n--;
    h->dropped++;
    memmove(h->turn, h->turn + 1, h->n * sizeof *h->turn);
}

void history_add(history *h, history_turn turn)
{
    size_t bytes = 0;
    if (h->n == HISTORY_TURNS) history_drop_first(h);
    for (uint32_t i = 0; i < h->n; i++) bytes += bytes_of(&h->turn[i]);
    while (bytes > HISTORY_BYTES) {
        bytes -= bytes_of(&h->turn[0]);
        history_drop_first(h);
    }
    h->turn[h->n++] = turn;
}

history_turn *history_last(history *h)
{
    return h->n > 0 ? &h->turn[h->n - 1] : NULL;
}

void history_drop_last(history *h)
{
    if (h->n > 0) free_turn(&h->turn[--h->n]);
}

void history_clear(history *h)
{
    while (h->n > 0) history_drop_last(h);
    h->dropped = 0;
}
