/* messages.c - `messages` of a chat, and the `prompt` of a completion. */
#include "request.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_MESSAGES = 4096 };

/* "messages[3].content": what is wrong with it. Always false. */
static bool bad(reader *d, size_t i, const char *key, const char *code, const char *what)
{
    char param[64];
    snprintf(param, sizeof param, "messages[%zu]%s%s", i, *key ? "." : "", key);
    return api_fail(d->error, 400, param, code, "'%s' %s", param, what);
}

/* ---- Content: a string, or parts that are text --------------------------------------------------------- */

static const char *wrong_part(const json_t *part)
{
    const char *type = json_string_value(json_object_get(part, "type"));
    if (!json_is_object(part) || !type) return "has to be a string, or a list of {\"type\": \"text\", \"text\": ...}";
    if (strcmp(type, "text") != 0) return "has a part that is no text: this model reads text only";
    if (!json_is_string(json_object_get(part, "text"))) return "has a part whose 'text' is no string";
    return json_object_size(part) == 2 ? NULL : "has a part with more than 'type' and 'text'";
}

static bool take_parts(reader *d, size_t i, const json_t *parts, serve_message *m)
{
    cli_buffer text = { 0 };
    const char *wrong = NULL;
    size_t k;
    json_t *part;
    bool room = cli_buffer_reserve(&text, 1);
    json_array_foreach(parts, k, part) {
        const json_t *words = json_object_get(part, "text");
        if ((wrong = wrong_part(part)) != NULL) break;
        room = room && cli_buffer_add(&text, json_string_value(words), json_string_length(words));
    }
    m->content = text.data;
    m->content_bytes = text.n;
    if (wrong) return bad(d, i, "content", "invalid_value", wrong);
    if (!room) return api_no_memory(d);
    return json_array_size(parts) > 0 || bad(d, i, "content", "invalid_value", "is an empty list");
}

static bool take_content(reader *d, size_t i, const json_t *content, serve_message *m)
{
    if (!content || json_is_null(content)) return bad(d, i, "content", "missing_required_parameter", "is missing");
    if (json_is_array(content)) return take_parts(d, i, content, m);
    if (!json_is_string(content)) {
        return bad(d, i, "content", "invalid_value", "has to be a string, or a list of parts");
    }
    m->content = strdup(json_string_value(content));
    m->content_bytes = json_string_length(content);
    return m->content || api_no_memory(d);
}

/* ---- Messages ----------------------------------------------------------------------------------------- */

static bool take_role(reader *d, size_t i, const json_t *role, serve_message *m)
{
    const char *name = json_string_value(role);
    if (!role || json_is_null(role)) return bad(d, i, "role", "missing_required_parameter", "is missing");
    if (!name) return bad(d, i, "role", "invalid_value", "has to be a string");
    if (strcmp(name, "developer") == 0) name = "system"; /* OpenAI's newer name of it */
    if (strcmp(name, "tool") == 0 || strcmp(name, "function") == 0) {
        return bad(d, i, "role", "unsupported_parameter", "is of a tool: tools are not supported");
    }
    if (strcmp(name, "system") != 0 && strcmp(name, "user") != 0 && strcmp(name, "assistant") != 0) {
        return bad(d, i, "role", "invalid_value", "has to be system, developer, user or assistant");
    }
    m->role = strdup(name);
    return m->role || api_no_memory(d);
}

/* Fields that hold nothing are what clients send that give an answer back as they got it. */
static bool nothing(const json_t *value)
{
    return json_is_null(value) || (json_is_array(value) && json_array_size(value) == 0);
}

static bool check_keys(reader *d, size_t i, json_t *message)
{
    const char *key;
    json_t *value;
    json_object_foreach(message, key, value) {
        bool known = strcmp(key, "role") == 0 || strcmp(key, "content") == 0;
        if (!known && !nothing(value)) return bad(d, i, key, "unsupported_parameter", "is not supported");
    }
    return true;
}

static bool take_message(reader *d, size_t i, json_t *message)
{
    serve_message *m = &d->r->messages[i];
    if (!json_is_object(message)) {
        return bad(d, i, "", "invalid_value", "has to be an object with 'role' and 'content'");
    }
    return check_keys(d, i, message) && take_role(d, i, json_object_get(message, "role"), m) &&
           take_content(d, i, json_object_get(message, "content"), m);
}

bool api_take_messages(reader *d, const json_t *value)
{
    size_t n = json_array_size(value);
    if (!json_is_array(value) || n == 0) return api_bad(d, "a list of at least one message");
    if (n > MOST_MESSAGES) {
        return api_fail(d->error, 400, d->name, "invalid_value", "'messages' has %zu entries, at most %d", n,
                        MOST_MESSAGES);
    }
    d->r->messages = calloc(n, sizeof *d->r->messages);
    if (!d->r->messages) return api_no_memory(d);
    d->r->n_messages = n;
    for (size_t i = 0; i < n; i++) {
        if (!take_message(d, i, json_array_get(value, i))) return false;
    }
    return true;
}

/* ---- Prompts ------------------------------------------------------------------------------------------ */

bool api_take_prompt(reader *d, const json_t *value)
{
    const json_t *text = value;
    if (json_is_array(value) && json_array_size(value) == 1) text = json_array_get(value, 0);
    if (json_is_array(value) && !json_is_string(text)) {
        return api_fail(d->error, 400, d->name, "unsupported_parameter",
                        "'prompt' has to be one text: lists of texts and of tokens are not supported");
    }
    if (!api_take_text(d, text, &d->r->prompt, &d->r->prompt_bytes)) return false;
    return d->r->prompt_bytes > 0 || api_bad(d, "a text that is not empty");
}
