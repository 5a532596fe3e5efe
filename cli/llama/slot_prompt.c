/*
 * slot_prompt.c - a request becomes tokens, and a slot's cache what it has to be before they are read.
 *
 *   prompt   | leading system messages | ... | document ... | the last message, the answer's opening |
 *              pinned                          read with the rest in mind, when it is longer than the budget
 *
 *   cache    | reused: what prompt and conversation have in common | read |
 *
 * Reuse is exact up to the first token that some lane has evicted: up to there every token is still in every lane.
 */
#include "slots.h"

#include "h2okv/advanced.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_GUIDE = 64 };

bool slot_refuse(slot_refusal *r, int status, const char *param, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(r->text, sizeof r->text, format, arguments);
    va_end(arguments);
    r->status = status;
    r->param = param;
    return false;
}

static bool out_of_memory(slot_refusal *why)
{
    return slot_refuse(why, 500, NULL, "out of memory for the prompt");
}

static const char *field_of(const serve_request *r)
{
    return r->kind == SERVE_CHAT ? "messages" : "prompt";
}

/* ---- Tokens ------------------------------------------------------------------------------------------- */

static bool refuse_template(const slots *s, slot_refusal *why)
{
    const char *text = s->template
        ? "the model's chat template has no place for one of these messages: try without the system message, with "
          "roles that take turns, or start the server with another --template"
        : "the model has no chat template: use /v1/completions, or start the server with --template";
    return slot_refuse(why, 400, "messages", "%s", text);
}

static bool read_chat(const slots *s, const serve_request *r, slot_prompt *out, uint32_t *n_system, uint32_t *n_last,
                      slot_refusal *why)
{
    llama_chat_message *message = calloc(r->n_messages, sizeof *message);
    int code;
    if (!message) return out_of_memory(why);
    for (size_t i = 0; i < r->n_messages; i++) {
        message[i] = (llama_chat_message){ r->messages[i].role, r->messages[i].content };
    }
    code = s->template ? template_conversation(s->engine, s->template, (template_talk){ message, r->n_messages },
                                               &out->tokens, &out->n, n_system, n_last)
                       : CLI_MODEL;
    free(message);
    return !code || (code == CLI_MODEL ? refuse_template(s, why) : out_of_memory(why));
}

static bool read_completion(const slots *s, const serve_request *r, slot_prompt *out, uint32_t *n_last,
                            slot_refusal *why)
{
    cli_buffer text = { .data = r->prompt, .n = r->prompt_bytes };
    const char *paragraph = cli_last_paragraph(r->prompt, r->prompt_bytes);
    llama_token *last = NULL;
    if (engine_tokenize(s->engine, &text, &out->tokens, &out->n)) {
        return slot_refuse(why, 400, "prompt", "the prompt has no tokens: give it some text");
    }
    if (engine_tokenize_more(s->engine, paragraph, (size_t)(r->prompt + r->prompt_bytes - paragraph), &last, n_last)) {
        return out_of_memory(why);
    }
    free(last);
    return true;
}

/* ---- Budget, pins, guide ------------------------------------------------------------------------------ */

static bool set_budget(const slots *s, const serve_request *r, slot_prompt *out, slot_refusal *why)
{
    const cache_options *o = &s->options->cache;
    out->budget = r->budget > 0 ? r->budget : o->budget;
    out->recent = out->budget == o->budget ? s->recent : H2OKV_AUTO;
    if (out->budget <= s->room && out->budget >= CACHE_LEAST_BUDGET) return true;
    return slot_refuse(why, 400, "budget", "budget is %" PRIu32 ": the server has room for %d to %" PRIu32
                       "; it is started with --prompt-budget for more", out->budget, CACHE_LEAST_BUDGET, s->room);
}

static bool check_length(const slots *s, const serve_request *r, const slot_prompt *p, slot_refusal *why)
{
    if (p->n == 0) return slot_refuse(why, 400, field_of(r), "there are no tokens in it: give it some text");
    if (p->n >= s->trained) {
        return slot_refuse(why, 400, field_of(r), "%" PRIu32 " tokens are too many: the model was trained for %" PRIu32
                           ", the answer included", p->n, s->trained);
    }
    if (s->keeps_all && p->n >= p->budget) {
        return slot_refuse(why, 400, field_of(r), "%" PRIu32 " tokens are too many: the server keeps every token, and "
                           "its budget is %" PRIu32 ", the answer included", p->n, p->budget);
    }
    return true;
}

static void set_pins(const serve_request *r, slot_prompt *out, uint32_t n_system)
{
    if (r->pin_system && n_system > 0) out->pin[out->n_pins++] = (cache_range){ 0, (int32_t)n_system };
    for (size_t i = 0; i < r->n_pins; i++) out->pin[out->n_pins++] = (cache_range){ r->pins[i].first, r->pins[i].end };
}

/* What is read with the last message in mind: all before it. */
static void set_document(const slots *s, const serve_request *r, slot_prompt *out, uint32_t n_last)
{
    uint32_t asking = n_last < MOST_GUIDE ? n_last : MOST_GUIDE;
    if (!r->guide || !s->uses_scores || out->n <= out->budget) return;
    if (asking > s->ubatch / 2) asking = s->ubatch / 2;
    if (asking > 0 && asking < out->n) out->n_document = out->n - asking;
}

bool slot_make_prompt(const slots *s, const serve_request *r, slot_prompt *out, slot_refusal *why)
{
    uint32_t n_system = 0, n_last = 0;
    *out = (slot_prompt){ 0 };
    if (!(r->kind == SERVE_CHAT ? read_chat(s, r, out, &n_system, &n_last, why)
                                : read_completion(s, r, out, &n_last, why)) ||
        !set_budget(s, r, out, why) || !check_length(s, r, out, why)) {
        return false;
    }
    set_pins(r, out, n_system);
    set_document(s, r, out, n_last);
    return true;
}

/* ---- Reuse -------------------------------------------------------------------------------------------- */

/* How many of the conversation's first tokens every lane still holds. */
static uint32_t whole(const slots *s, const slot *t)
{
    return h2okv_cache_whole(h2okv_llama_seq_cache(s->engine->h, t->seq));
}

static bool same_settings(const slot *t, const slot_prompt *p)
{
    return t->budget == p->budget && t->n_pins == p->n_pins &&
           memcmp(t->pin, p->pin, p->n_pins * sizeof *p->pin) == 0;
}

uint32_t slot_reusable(const slots *s, const slot *t, const slot_prompt *p, bool lossy)
{
    uint32_t n = 0, most = p->n - 1 < t->n_held ? p->n - 1 : t->n_held, exact;
    if (!same_settings(t, p)) return 0;
    while (n < most && t->held[n] == p->tokens[n]) n++;
    if (n == 0 || lossy) return n;
    exact = whole(s, t);
    return n < exact ? n : exact;
}

void slot_forget(slots *s, slot *t)
{
    (void)h2okv_llama_seq_clear(s->engine->h, t->seq);
    t->n_held = t->n_pins = 0;
    t->budget = 0;
}

/* Cuts the conversation down to its first n tokens. False: nothing of it can be kept. */
static bool cut(slots *s, slot *t, uint32_t n, bool *lossy)
{
    h2okv_llama *h = s->engine->h;
    bool evicted = whole(s, t) < n;
    uint32_t lost = 0;
    if (n < t->n_held && h2okv_llama_seq_trim(h, t->seq, (int32_t)n, evicted ? &lost : NULL)) return false;
    if (h2okv_cache_live(h2okv_llama_seq_cache(h, t->seq)) == 0) return false;
    t->n_held = n;
    *lossy = evicted;
    return true;
}

/* A cut has taken off the pins behind it. */
static bool pin_all(slots *s, slot *t)
{
    t->n_pins = t->prompt.n_pins;
    memcpy(t->pin, t->prompt.pin, sizeof t->pin);
    for (uint32_t i = 0; i < t->n_pins; i++) {
        if (h2okv_llama_seq_pin(s->engine->h, t->seq, t->pin[i].first, t->pin[i].end)) return false;
    }
    return true;
}

static bool refuse_by_cache(const slots *s, const char *param, slot_refusal *why)
{
    const char *advice = ": give a larger budget, or \"pin\": [] so that the system message is not pinned";
    return slot_refuse(why, 400, param, "%s%s", h2okv_llama_last_error(s->engine->h)->text,
                       strcmp(param, "pin") == 0 ? advice : "");
}

/* From an empty sequence on. */
static bool begin_anew(slots *s, slot *t, slot_refusal *why)
{
    slot_forget(s, t);
    t->budget = t->prompt.budget;
    if (h2okv_llama_seq_set_budget(s->engine->h, t->seq, t->budget, t->prompt.recent)) {
        return refuse_by_cache(s, "budget", why);
    }
    return pin_all(s, t) || refuse_by_cache(s, "pin", why);
}

bool slot_prepare(slots *s, slot *t, uint32_t *reuse, bool *lossy, slot_refusal *why)
{
    *lossy = false;
    if (*reuse > 0 && cut(s, t, *reuse, lossy) && pin_all(s, t)) return true;
    *reuse = 0;
    *lossy = false;
    if (begin_anew(s, t, why)) return true;
    slot_forget(s, t);
    return false;
}
