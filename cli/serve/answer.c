/*
 * answer.c - events -> what the client gets, in OpenAI's shapes.
 *
 *   stream     TEXT -> data: {chunk}\n\n   ...   DONE -> data: {chunk with finish_reason}, maybe {usage}, data: [DONE]
 *              FAILED -> event: error\ndata: {"error": ...}\n\n, and that is the end
 *   no stream  TEXT is gathered            ...   DONE -> one object
 *
 * A chunk is a whole JSON text with whole characters, however the bytes are cut on their way.
 */
#include "answer.h"

#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

struct api_answer {
    const serve_request *r;
    const serve_model *model;
    char id[48];
    int64_t created;
    bool chat, begun;
    cli_buffer text;  /* no stream: so far */
    json_t *logprobs; /* the same; NULL: none */
    size_t offset;    /* characters of the answer in tokens so far */
};

/* ---- Making and ending --------------------------------------------------------------------------------- */

static void name_it(api_answer *a)
{
    unsigned char bytes[12] = { 0 };
    size_t n = (size_t)snprintf(a->id, sizeof a->id, "%s-", a->chat ? "chatcmpl" : "cmpl");
    if (getrandom(bytes, sizeof bytes, 0) < 0) memcpy(bytes, &a, sizeof a);
    for (size_t i = 0; i < sizeof bytes; i++) n += (size_t)snprintf(a->id + n, sizeof a->id - n, "%02x", bytes[i]);
}

api_answer *api_answer_new(const serve_request *r, const serve_model *model)
{
    api_answer *a = calloc(1, sizeof *a);
    if (!a) return NULL;
    a->r = r;
    a->model = model;
    a->chat = r->kind == SERVE_CHAT;
    a->created = (int64_t)time(NULL);
    name_it(a);
    if (cli_buffer_reserve(&a->text, 1)) return a;
    api_answer_free(a);
    return NULL;
}

void api_answer_free(api_answer *a)
{
    if (!a) return;
    cli_buffer_free(&a->text);
    json_decref(a->logprobs);
    free(a);
}

/* ---- Parts --------------------------------------------------------------------------------------------- */

/* Takes over the JSON, which may be NULL (out of memory). */
static bool add_json(cli_buffer *out, json_t *json, const char *before, const char *after)
{
    char *text = json ? json_dumps(json, JSON_COMPACT) : NULL;
    bool done = text && cli_buffer_add(out, before, strlen(before)) && cli_buffer_add(out, text, strlen(text)) &&
                cli_buffer_add(out, after, strlen(after));
    free(text);
    json_decref(json);
    return done;
}

static bool add_chunk(cli_buffer *out, json_t *json)
{
    return add_json(out, json, "data: ", "\n\n");
}

static json_t *usage_of(const serve_usage *u)
{
    json_t *json = json_pack("{sIsIsIs{sI}}", "prompt_tokens", (json_int_t)u->prompt, "completion_tokens",
                             (json_int_t)u->completion, "total_tokens", (json_int_t)u->prompt + u->completion,
                             "prompt_tokens_details", "cached_tokens", (json_int_t)u->reused);
    bool good = json != NULL;
    if (good && u->evicted > 0) good = !json_object_set_new(json, "evicted_tokens", json_integer(u->evicted));
    if (good && u->lossy) good = !json_object_set_new(json, "lossy_reuse", json_true());
    if (good) return json;
    json_decref(json);
    return NULL;
}

/* What h2okv adds to an answer: where the conversation is, and how long it took. */
static json_t *details_of(const serve_usage *u)
{
    return json_pack("{sisfsf}", "slot", (int)u->slot, "prompt_seconds", u->prompt_s, "decode_seconds", u->decode_s);
}

static const char *reason_of(const serve_event *e)
{
    return e->finish == SERVE_LENGTH ? "length" : "stop";
}

/* The head that an answer and its chunks share, around `choices`, which it takes over. */
static json_t *frame(const api_answer *a, const char *object, json_t *choices)
{
    return json_pack("{sssssIssso}", "id", a->id, "object", object, "created", (json_int_t)a->created, "model",
                     a->model->name, "choices", choices);
}

/* One choice; takes over what it holds. A chat's part is its message or delta, a completion's its text. */
static json_t *choice(const char *part_name, json_t *part, json_t *logprobs, const char *reason)
{
    json_t *one = json_pack("{sisososs?}", "index", 0, part_name, part, "logprobs", logprobs ? logprobs : json_null(),
                            "finish_reason", reason);
    return json_pack("[o]", one);
}

/* ---- A stream ------------------------------------------------------------------------------------------ */

static json_t *chunk(const api_answer *a, json_t *part, json_t *logprobs, const char *reason)
{
    json_t *json = frame(a, a->chat ? "chat.completion.chunk" : "text_completion",
                         choice(a->chat ? "delta" : "text", part, logprobs, reason));
    if (json && a->r->stream_usage) json_object_set_new(json, "usage", json_null());
    return json;
}

static bool begin(api_answer *a, cli_buffer *out)
{
    if (a->begun || !a->chat) return true;
    a->begun = true;
    return add_chunk(out, chunk(a, json_pack("{ssss}", "role", "assistant", "content", ""), NULL, NULL));
}

static json_t *words(const serve_event *e)
{
    return json_stringn(e->text ? e->text : "", e->text ? e->bytes : 0);
}

static bool stream_text(api_answer *a, const serve_event *e, json_t *logprobs, cli_buffer *out)
{
    json_t *part = a->chat ? json_pack("{so}", "content", words(e)) : words(e);
    return add_chunk(out, chunk(a, part, logprobs, NULL));
}

static bool stream_end(api_answer *a, const serve_event *e, cli_buffer *out)
{
    json_t *last = chunk(a, a->chat ? json_object() : json_string(""), NULL, reason_of(e)), *usage;
    if (last) json_object_set_new(last, "h2okv", details_of(&e->usage));
    if (!add_chunk(out, last)) return false;
    if (a->r->stream_usage) {
        usage = frame(a, a->chat ? "chat.completion.chunk" : "text_completion", json_array());
        if (usage) json_object_set_new(usage, "usage", usage_of(&e->usage));
        if (!add_chunk(out, usage)) return false;
    }
    return cli_buffer_add(out, "data: [DONE]\n\n", 14);
}

static bool stream_failure(const serve_event *e, cli_buffer *out)
{
    api_error error;
    api_error_of(e, &error);
    return cli_buffer_add(out, "event: error\ndata: ", 19) && api_add_error(out, &error) &&
           cli_buffer_add(out, "\n\n", 2);
}

void api_answer_break(cli_buffer *out)
{
    static const char text[] =
        "event: error\ndata: {\"error\":{\"message\":\"the server has no memory left, or the engine's text is no "
        "text\",\"type\":\"server_error\",\"param\":null,\"code\":null}}\n\n";
    out->n = 0;
    cli_buffer_add(out, text, sizeof text - 1);
}

/* ---- One object ---------------------------------------------------------------------------------------- */

static bool gather(api_answer *a, const serve_event *e, json_t *logprobs)
{
    bool good = cli_buffer_add(&a->text, e->text ? e->text : "", e->text ? e->bytes : 0);
    if (!logprobs) return good;
    if (!a->logprobs) {
        a->logprobs = logprobs;
        return good;
    }
    good = logprobs_join(a->logprobs, logprobs) && good;
    json_decref(logprobs);
    return good;
}

static bool whole(api_answer *a, const serve_event *e, cli_buffer *out)
{
    json_t *text = json_stringn(a->text.data, a->text.n), *json, *logprobs = a->logprobs;
    serve_event none = { .kind = SERVE_TEXT };
    if (!logprobs && a->r->logprobs >= 0) logprobs = logprobs_new(a->r->kind, &a->offset, &none, 0);
    a->logprobs = NULL;
    if (a->chat) text = json_pack("{sssosn}", "role", "assistant", "content", text, "refusal");
    json = frame(a, a->chat ? "chat.completion" : "text_completion",
                 choice(a->chat ? "message" : "text", text, logprobs, reason_of(e)));
    if (json) {
        json_object_set_new(json, "usage", usage_of(&e->usage));
        json_object_set_new(json, "h2okv", details_of(&e->usage));
    }
    return add_json(out, json, "", "\n");
}

/* ---- Events -------------------------------------------------------------------------------------------- */

static bool take_text(api_answer *a, const serve_event *e, cli_buffer *out)
{
    json_t *logprobs = NULL;
    if (a->r->logprobs >= 0) {
        logprobs = logprobs_new(a->r->kind, &a->offset, e, a->r->logprobs);
        if (!logprobs) return false;
    }
    return a->r->stream ? stream_text(a, e, logprobs, out) : gather(a, e, logprobs);
}

bool api_answer_take(api_answer *a, const serve_event *e, cli_buffer *out)
{
    bool stream = a->r->stream;
    if (stream && e->kind != SERVE_FAILED && !begin(a, out)) return false;
    switch (e->kind) {
    case SERVE_TEXT: return take_text(a, e, out);
    case SERVE_DONE: return stream ? stream_end(a, e, out) : whole(a, e, out);
    case SERVE_FAILED: return !stream || stream_failure(e, out);
    case SERVE_VIEW: break;
    }
    return true;
}
