/* talk.c - see talk.h. */
#include "talk.h"

#include "h2okv/advanced.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static int failed(const talk *t, int status)
{
    if (status == H2OKV_E_STOPPED) return CLI_STOPPED;
    cli_error("chat", "at position %" PRId32 ": %s", h2okv_llama_next_pos(t->engine->h),
              h2okv_llama_last_error(t->engine->h)->text);
    return CLI_ENGINE;
}

static int out_of_memory(void)
{
    cli_error("chat", "out of memory for the conversation");
    return CLI_ENGINE;
}

int talk_decode(talk *t, const llama_token *tokens, uint32_t n)
{
    int status = n > 0 ? h2okv_llama_decode(t->engine->h, tokens, n) : H2OKV_OK;
    return status ? failed(t, status) : CLI_OK;
}

/* ---- The beginning ------------------------------------------------------------------------------------ */

/* What a system prompt leaves to the conversation, in numbers, before the cache says it in its own words. */
static int check_system(const talk *t)
{
    const cache_options *o = &t->turn_options.cache;
    uint32_t first = t->n_system > o->sinks ? t->n_system : o->sinks;
    if ((uint64_t)first + o->recent <= o->budget) return CLI_OK;
    cli_error("chat", "the system prompt has %" PRIu32 " tokens, which are always kept; with the %" PRIu32
              " recent ones that is more than --budget %" PRIu32 ": shorten it, or give a --budget of %" PRIu64
              " or a smaller --recent", t->n_system, o->recent, o->budget, (uint64_t)first + o->recent);
    return CLI_USAGE;
}

static int pin(talk *t)
{
    h2okv_llama *h = t->engine->h;
    if (t->n_system > 0 && h2okv_llama_pin(h, 0, (int32_t)t->n_system)) {
        cli_error("chat", "the system prompt of %" PRIu32 " tokens: %s", t->n_system, h2okv_llama_last_error(h)->text);
        return CLI_USAGE;
    }
    return engine_pin(t->engine, h, &t->options->run.cache);
}

static int set_budget(talk *t)
{
    const cache_options *o = &t->turn_options.cache;
    int status = h2okv_llama_set_budget(t->engine->h, o->budget, o->recent);
    return status ? failed(t, status) : CLI_OK;
}

int talk_reset(talk *t)
{
    int code;
    h2okv_llama_clear(t->engine->h);
    code = set_budget(t);
    if (!code) code = pin(t);
    return code ? code : talk_decode(t, t->system_tokens, t->n_system);
}

bool talk_is_first(const talk *t)
{
    return (uint32_t)h2okv_llama_next_pos(t->engine->h) <= t->n_system;
}

int talk_start(talk *t, const chat_options *o, engine *e, const chat_template *template, const char *system)
{
    int code = CLI_OK;
    *t = (talk){ .options = o, .turn_options = o->run, .engine = e, .template = template, .system = system };
    t->turn_options.cache.n_pins = 0; /* they are set once */
    t->trained = llama_model_n_ctx_train(e->model) > 0 ? (uint32_t)llama_model_n_ctx_train(e->model) : INT32_MAX;
    t->sampler = generation_sampler(&o->run, e->vocab);
    t->written = malloc((size_t)o->run.n_new * sizeof *t->written);
    if (!t->sampler || !t->written) return out_of_memory();
    if (*system) code = template_fixed(e, &template->first, &t->system_tokens, &t->n_system);
    if (!code && *system) code = check_system(t);
    return code ? code : talk_reset(t);
}

void talk_free(talk *t)
{
    if (t->sampler) llama_sampler_free(t->sampler);
    history_clear(&t->history);
    template_free(&t->loaded_template);
    free(t->loaded_system);
    free(t->written);
    free(t->system_tokens);
    *t = (talk){ 0 };
}

/* ---- An answer ---------------------------------------------------------------------------------------- */

/* What was written and not decoded: the last token, at the end of -n or of the user's patience. */
static int catch_up(talk *t, const history_turn *turn, const generation *g)
{
    uint32_t decoded = (uint32_t)(h2okv_llama_next_pos(t->engine->h) - turn->reply);
    return talk_decode(t, t->written + decoded, g->n_new - decoded);
}

static int keep_answer(talk *t, history_turn *turn, const generation *g)
{
    free(turn->answer);
    turn->n_answer = 0;
    turn->answer = malloc((size_t)(g->n_new ? g->n_new : 1) * sizeof *turn->answer);
    if (!turn->answer) return out_of_memory();
    memcpy(turn->answer, t->written, g->n_new * sizeof *turn->answer);
    turn->n_answer = g->n_new;
    return catch_up(t, turn, g);
}

static void count(talk *t, const generation *g)
{
    t->warned = g->warned;
    t->totals.read_s += g->prompt_s;
    t->totals.written += g->n_new;
    t->totals.write_s += g->decode_s;
    t->totals.timed += g->n_new > 1 ? g->n_new - 1 : 0;
}

/* Reads the prompt and writes the answer to turn->said. Tokens of the prompt that are behind the message: n_behind. */
static int answer(talk *t, const llama_token *prompt, uint32_t n, uint32_t n_behind, history_turn *turn,
                  talk_answer *out)
{
    cli_buffer text = { .data = turn->said, .n = turn->n_said };
    generation g = { .options = &t->turn_options, .engine = t->engine, .sampler = t->sampler, .prompt = prompt,
                     .n_prompt = n, .n_behind = n_behind, .written = t->written, .first_token_s = -1, .put = t->put,
                     .put_user = t->put_user, .warned = t->warned };
    int32_t before = h2okv_llama_next_pos(t->engine->h);
    int code = generation_read_prompt(&g, &text);
    out->taken_back = g.stopped == STOP_INTERRUPT;
    turn->reply = h2okv_llama_next_pos(t->engine->h);
    t->totals.read += (uint64_t)(turn->reply - before);
    turn->last = prompt[n - 1];
    if (!code && !out->taken_back) code = generation_write(&g);
    count(t, &g);
    out->n_prompt = n;
    out->n_new = g.n_new;
    out->stopped = g.stopped;
    if (!code && !out->taken_back) code = keep_answer(t, turn, &g);
    g.sampler = NULL; /* it goes on */
    generation_free(&g);
    return code;
}

/* The policy "full" gives up nothing, so all before position `reply` and an answer have to have their place. Shortens
 * the answer where that helps. */
static int make_room(talk *t, uint64_t reply)
{
    run_options *o = &t->turn_options;
    const h2okv_policy *policy = h2okv_policy_find(o->cache.policy);
    o->n_new = t->options->run.n_new;
    if (!policy || !(policy->flags & H2OKV_POLICY_KEEPS_ALL)) return CLI_OK;
    if (reply >= o->cache.budget) {
        cli_error("chat", "--policy %s keeps every token, and this message needs a budget of %" PRIu64
                  ": /undo or /clear makes room, or start with a larger --budget", o->cache.policy, reply + 1);
        return CLI_USAGE;
    }
    if (o->n_new > o->cache.budget - reply) o->n_new = (uint32_t)(o->cache.budget - reply);
    return CLI_OK;
}

int talk_join_system(talk *t, const llama_token *tokens, uint32_t n, uint32_t *skip)
{
    int status = H2OKV_OK;
    for (*skip = 0; *skip < t->n_system && *skip < n && tokens[*skip] == t->system_tokens[*skip];) ++*skip;
    if (*skip < t->n_system) status = h2okv_llama_trim(t->engine->h, (int32_t)*skip, NULL);
    return status ? failed(t, status) : CLI_OK;
}

/* A message that came to nothing. */
static int take_back(talk *t, bool first, int32_t start)
{
    cli_take_interrupt();
    return first ? talk_reset(t) : talk_cut(t, start, false);
}

static int say(talk *t, history_turn *turn, const llama_token *tokens, uint32_t n, uint32_t n_behind, talk_answer *out)
{
    bool first = talk_is_first(t);
    uint32_t skip = 0;
    int code = make_room(t, (first ? 0 : (uint64_t)h2okv_llama_next_pos(t->engine->h)) + n);
    if (!code && first) code = talk_join_system(t, tokens, n, &skip);
    if (code) return code;
    turn->start = h2okv_llama_next_pos(t->engine->h);
    code = answer(t, tokens + skip, n - skip, n_behind, turn, out);
    if (code == CLI_USAGE) return take_back(t, first, turn->start) ? CLI_ENGINE : CLI_USAGE;
    return !code && out->taken_back ? take_back(t, first, turn->start) : code;
}

static int say_tokens(talk *t, history_turn *turn, talk_answer *out)
{
    bool first = talk_is_first(t);
    template_text said = { turn->said, turn->n_said };
    llama_token *tokens = NULL;
    uint32_t n, n_behind;
    int code = template_tokens(t->engine, first ? &t->template->first : &t->template->next, said, first, &tokens, &n,
                               &n_behind);
    if (!code) code = say(t, turn, tokens, n, n_behind, out);
    free(tokens);
    return code;
}

int talk_say(talk *t, template_text said, talk_answer *out)
{
    history_turn turn = { .said = malloc(said.n + 1), .n_said = said.n };
    int code = turn.said ? talk_renew(t) : out_of_memory();
    *out = (talk_answer){ 0 };
    if (!code) {
        memcpy(turn.said, said.text, said.n);
        turn.said[said.n] = '\0';
        code = say_tokens(t, &turn, out);
    }
    if (!code && !out->taken_back) {
        history_add(&t->history, turn);
        t->totals.turns++;
        return CLI_OK;
    }
    free(turn.said);
    free(turn.answer);
    return code;
}

/* ---- Back --------------------------------------------------------------------------------------------- */

static int nothing(const talk *t, const char *what)
{
    if (t->history.dropped > 0) {
        cli_error("chat", "%s: turns before the last %d are no longer kept; /clear forgets them all", what,
                  HISTORY_TURNS);
    } else {
        cli_error("chat", "%s: nothing has been said yet", what);
    }
    return CLI_USAGE;
}

int talk_regen(talk *t, talk_answer *out)
{
    history_turn *turn = history_last(&t->history);
    llama_token last;
    int32_t reply;
    int code;
    *out = (talk_answer){ 0 };
    if (!turn) return nothing(t, "/regen");
    code = make_room(t, (uint64_t)turn->reply);
    if (!code) code = talk_cut(t, turn->reply - 1, true);
    turn = history_last(&t->history);
    if (code || !turn) return code;
    last = turn->last;
    reply = turn->reply;
    code = answer(t, &last, 1, 0, turn, out);
    turn->reply = reply;
    if (code || !out->taken_back) return code;
    out->taken_back = false; /* there is no answer, but the message stays */
    turn->n_answer = 0;
    return h2okv_llama_next_pos(t->engine->h) < reply ? talk_decode(t, &last, 1) : CLI_OK;
}

int talk_undo(talk *t)
{
    history_turn *turn = history_last(&t->history);
    int32_t start;
    if (!turn) return nothing(t, "/undo");
    start = turn->start;
    history_drop_last(&t->history);
    return (uint32_t)start <= t->n_system ? talk_reset(t) : talk_cut(t, start, false);
}

int talk_clear(talk *t)
{
    history_clear(&t->history);
    return talk_reset(t);
}

/* ---- The budget --------------------------------------------------------------------------------------- */

void talk_take_budget(talk *t)
{
    cache_options *o = &t->turn_options.cache;
    h2okv_options now;
    h2okv_cache_get_options(h2okv_llama_cache(t->engine->h), &now);
    o->budget = now.budget;
    o->recent = now.recent > 0 ? now.recent : 1;
}

int talk_budget(talk *t, uint32_t budget)
{
    const cache_options *began = &t->options->run.cache;
    uint32_t room = began->prompt_budget > began->budget ? began->prompt_budget : began->budget;
    uint32_t recent = t->options->recent == CACHE_AUTO || t->options->recent > budget ? H2OKV_AUTO : t->options->recent;
    if (budget > room) {
        cli_error("chat", "/budget %" PRIu32 ": the cache has room for %" PRIu32 "; start with --prompt-budget %" PRIu32
                  " to have more", budget, room, budget);
        return CLI_USAGE;
    }
    if (h2okv_llama_set_budget(t->engine->h, budget, recent)) {
        cli_error("chat", "/budget %" PRIu32 ": %s", budget, h2okv_llama_last_error(t->engine->h)->text);
        return CLI_USAGE;
    }
    talk_take_budget(t);
    return CLI_OK;
}
