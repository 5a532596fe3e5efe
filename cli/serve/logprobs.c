/*
 * logprobs.c - tokens with their probabilities, as OpenAI's two kinds of answer hold them.
 *
 *   chat        {"content": [{"token", "logprob", "bytes", "top_logprobs": [{"token", "logprob", "bytes"}]}]}
 *   completion  {"tokens": [], "token_logprobs": [], "top_logprobs": [{token: logprob}], "text_offset": []}
 *
 * A token need not be whole characters: as text it then holds U+FFFD; "bytes" are exact.
 */
#include "answer.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define LEAST_LOGPROB (-9999.0) /* of what cannot be: JSON has no infinity */

static json_t *text_of(const serve_logprob *t)
{
    char *text = malloc(CLI_UTF8_ROOM(t->n_bytes));
    cli_utf8 u = { { 0 }, 0 };
    json_t *json = NULL;
    size_t n;
    if (!text) return NULL;
    n = cli_utf8_take(&u, t->bytes, t->n_bytes, text);
    if (u.n_held > 0) {
        memcpy(text + n, CLI_REPLACEMENT, 3);
        n += 3;
    }
    json = json_stringn(text, n);
    free(text);
    return json;
}

static json_t *number_of(const serve_logprob *t)
{
    return json_real(isfinite(t->logprob) ? t->logprob : LEAST_LOGPROB);
}

static json_t *bytes_of(const serve_logprob *t)
{
    json_t *list = json_array();
    for (size_t i = 0; list && i < t->n_bytes; i++) {
        json_array_append_new(list, json_integer((unsigned char)t->bytes[i]));
    }
    return list;
}

static size_t characters(const serve_logprob *t)
{
    size_t n = 0;
    for (size_t i = 0; i < t->n_bytes; i++) n += ((unsigned char)t->bytes[i] & 0xc0) != 0x80;
    return n;
}

/* ---- A chat's ------------------------------------------------------------------------------------------ */

static json_t *entry_of(const serve_logprob *t)
{
    return json_pack("{sososo}", "token", text_of(t), "logprob", number_of(t), "bytes", bytes_of(t));
}

static bool add_chat(json_t *content, const serve_token *t, size_t most)
{
    json_t *entry = entry_of(&t->chosen), *top = json_array();
    bool good = entry && top;
    for (size_t i = 0; good && i < t->n_top && i < most; i++) good = !json_array_append_new(top, entry_of(&t->top[i]));
    if (json_object_set_new(entry, "top_logprobs", top)) good = false;
    if (json_array_append_new(content, entry)) good = false;
    return good;
}

/* ---- A completion's ------------------------------------------------------------------------------------ */

static bool add_likely(json_t *likely, const serve_logprob *t)
{
    json_t *text = text_of(t);
    bool good = text != NULL;
    if (good && !json_object_get(likely, json_string_value(text))) { /* two that are no whole characters look alike */
        good = !json_object_set_new(likely, json_string_value(text), number_of(t));
    }
    json_decref(text);
    return good;
}

/* A map of the likeliest ones, with the one that was chosen wherever it stands. */
static json_t *likely_of(const serve_token *t, size_t most)
{
    json_t *likely = most > 0 ? json_object() : json_null();
    bool good = likely != NULL;
    for (size_t i = 0; good && i < t->n_top && i < most; i++) good = add_likely(likely, &t->top[i]);
    if (good && most > 0) good = add_likely(likely, &t->chosen);
    if (good) return likely;
    json_decref(likely);
    return NULL;
}

static bool add_completion(json_t *all, const serve_token *t, size_t most, size_t *offset)
{
    bool good = !json_array_append_new(json_object_get(all, "tokens"), text_of(&t->chosen)) &&
                !json_array_append_new(json_object_get(all, "token_logprobs"), number_of(&t->chosen)) &&
                !json_array_append_new(json_object_get(all, "top_logprobs"), likely_of(t, most)) &&
                !json_array_append_new(json_object_get(all, "text_offset"), json_integer((json_int_t)*offset));
    *offset += characters(&t->chosen);
    return good;
}

/* ---- Both ---------------------------------------------------------------------------------------------- */

json_t *logprobs_new(enum serve_kind kind, size_t *offset, const serve_event *e, int most)
{
    bool chat = kind == SERVE_CHAT, good;
    size_t n = most > 0 ? (size_t)most : 0;
    json_t *all = chat ? json_pack("{s[]sn}", "content", "refusal")
                       : json_pack("{s[]s[]s[]s[]}", "tokens", "token_logprobs", "top_logprobs", "text_offset");
    good = all != NULL;
    for (size_t i = 0; good && i < e->n_tokens; i++) {
        good = chat ? add_chat(json_object_get(all, "content"), &e->tokens[i], n)
                    : add_completion(all, &e->tokens[i], n, offset);
    }
    if (good) return all;
    json_decref(all);
    return NULL;
}

bool logprobs_join(json_t *all, json_t *more)
{
    const char *key;
    json_t *list;
    json_object_foreach(more, key, list) {
        if (json_is_array(list) && json_array_extend(json_object_get(all, key), list)) return false;
    }
    return true;
}
