/* stats.c - what the engine counts: written by its thread after a pass, read whole by any other. */
#include "lock.h"
#include "serve.h"

#include <stdlib.h>

struct serve_stats {
    serve_lock lock;
    serve_numbers numbers;
};

serve_stats *serve_stats_new(uint32_t n_slots)
{
    serve_stats *s = calloc(1, sizeof *s);
    if (!s || !serve_lock_init(&s->lock)) {
        free(s);
        return NULL;
    }
    s->numbers.n_slots = n_slots < SERVE_MOST_SLOTS ? n_slots : SERVE_MOST_SLOTS;
    return s;
}

void serve_stats_free(serve_stats *s)
{
    if (!s) return;
    serve_lock_destroy(&s->lock);
    free(s);
}

void serve_stats_set(serve_stats *s, const serve_numbers *n)
{
    serve_lock_take(&s->lock);
    s->numbers = *n;
    serve_lock_give(&s->lock);
}

void serve_stats_get(serve_stats *s, serve_numbers *out)
{
    serve_lock_take(&s->lock);
    *out = s->numbers;
    serve_lock_give(&s->lock);
}
