/*
 * talk_back.c - turns taken back.
 *
 *   cut within the recent tokens                exact
 *   further back                                older ones are lost as well: it is said, and done
 *   past what the cache holds, or so far that   the last turns are read again
 *   the system prompt would not be whole
 *
 * and, when positions come to the end of what the model was trained for, the last turns read again from the beginning.
 */
#include "talk.h"

#include <inttypes.h>
#include <stdlib.h>

static void note(const talk *t, const char *before, uint64_t n, const char *behind)
{
    char number[32];
    if (t->options->run.quiet) return;
    fprintf(stderr, "%s(%s%s%s)%s\n", cli_style(stderr, CLI_DIM), before, cli_thousands(number, n), behind,
            cli_style(stderr, CLI_PLAIN));
}

static int failed(const talk *t)
{
    cli_error("chat", "%s", h2okv_llama_last_error(t->engine->h)->text);
    return CLI_ENGINE;
}

/* ---- Reading again ------------------------------------------------------------------------------------ */

static bool on_pass(void *user, uint32_t done, uint32_t total)
{
    (void)user;
    (void)done;
    (void)total;
    return !cli_interrupted();
}

/* `open`: up to the token before the answer, which is to be written anew. */
static int read_turn(talk *t, history_turn *turn, bool open)
{
    bool first = talk_is_first(t);
    llama_token *tokens = NULL;
    uint32_t n, n_behind, skip = 0;
    int code = template_tokens(t->engine, first ? &t->template->first : &t->template->next,
                               (template_text){ turn->said, turn->n_said }, first, &tokens, &n, &n_behind);
    if (!code && first) code = talk_join_system(t, tokens, n, &skip);
    turn->start = h2okv_llama_next_pos(t->engine->h);
    turn->reply = turn->start + (int32_t)(n - skip);
    if (!code) turn->last = tokens[n - 1];
    if (!code) code = talk_decode(t, tokens + skip, n - skip - open);
    if (!code && !open) code = talk_decode(t, turn->answer, turn->n_answer);
    free(tokens);
    return code;
}

/* Ctrl-C came while turn i was read. */
static int give_up_from(talk *t, uint32_t i)
{
    int32_t start = t->history.turn[i].start;
    h2okv_llama_stats stats;
    uint32_t lost;
    while (t->history.n > i) history_drop_last(&t->history);
    if (h2okv_llama_trim(t->engine->h, start, &lost)) return failed(t);
    h2okv_llama_get_stats(t->engine->h, &stats);
    if (stats.cache.live >= t->n_system && stats.cache.live > 0) return CLI_STOPPED;
    note(t, "", t->history.n, " turns that were read again are lost");
    cli_take_interrupt();
    return talk_clear(t);
}

/* The last turns that the budget holds, and of the trained context half; the last one in any case where `one` says so.
 * They are counted as they are in the cache. */
static void keep_what_fits(talk *t, bool one)
{
    uint32_t most = t->turn_options.cache.budget;
    int32_t next = h2okv_llama_next_pos(t->engine->h);
    if (most > t->trained / 2) most = t->trained / 2;
    while (t->history.n > one && (uint32_t)(next - t->history.turn[0].start) + t->n_system > most) {
        history_drop_first(&t->history);
    }
}

static int read_again(talk *t, bool open)
{
    int code;
    h2okv_llama_set_progress(t->engine->h, NULL, NULL);
    code = talk_reset(t);
    h2okv_llama_set_progress(t->engine->h, on_pass, NULL);
    for (uint32_t i = 0; !code && i < t->history.n; i++) {
        code = read_turn(t, &t->history.turn[i], open && i == t->history.n - 1);
        if (code == CLI_STOPPED) code = give_up_from(t, i);
    }
    h2okv_llama_set_progress(t->engine->h, NULL, NULL);
    return code;
}

int talk_renew(talk *t)
{
    uint32_t next = (uint32_t)h2okv_llama_next_pos(t->engine->h);
    if (t->options->past_context || talk_is_first(t) || next <= t->trained - t->trained / 8) return CLI_OK;
    keep_what_fits(t, false);
    note(t, "the context that the model was trained for ends: going on from the last ", t->history.n, " turns");
    return read_again(t, false);
}

/* ---- The cut ------------------------------------------------------------------------------------------ */

/* A cut takes off what was pinned behind it. */
static int pin_again(talk *t, int32_t pos0)
{
    const cache_options *o = &t->options->run.cache;
    for (uint32_t i = 0; i < o->n_pins; i++) {
        int32_t first = o->pin[i].first > pos0 ? o->pin[i].first : pos0;
        if (first < o->pin[i].end && h2okv_llama_pin(t->engine->h, first, o->pin[i].end)) return failed(t);
    }
    return CLI_OK;
}

int talk_cut(talk *t, int32_t pos0, bool open)
{
    h2okv_llama_stats stats;
    uint32_t lost = 0;
    int status = h2okv_llama_trim(t->engine->h, pos0, NULL);
    bool exact = status != H2OKV_E_UNSUPPORTED;
    if (!exact) status = h2okv_llama_trim(t->engine->h, pos0, &lost);
    if (status) return failed(t);
    h2okv_llama_get_stats(t->engine->h, &stats);
    if (stats.cache.live == 0 || stats.cache.live < t->n_system) {
        keep_what_fits(t, true);
        note(t, "reading the last ", t->history.n, " turns again: what came before them is lost");
        return read_again(t, open);
    }
    if (!exact) note(t, "that reached past the recent tokens: up to ", lost, " older ones are lost with it");
    return pin_again(t, pos0);
}
