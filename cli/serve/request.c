/* request.c - requests in JSON -> serve_request: the body as a whole, and what its fields must fulfil together. */
#include "request.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_DEPTH = 32 };

void serve_request_free(serve_request *r)
{
    if (!r) return;
    for (size_t i = 0; i < r->n_messages; i++) {
        free(r->messages[i].role);
        free(r->messages[i].content);
    }
    for (size_t i = 0; i < r->n_stops; i++) free(r->stops[i]);
    free(r->messages);
    free(r->prompt);
    free(r->grammar);
    free(r);
}

/* ---- The body ----------------------------------------------------------------------------------------- */

/* How deep arrays and objects stand in one another, before a parser that calls itself for each sees them. */
static size_t depth_of(const char *body, size_t n)
{
    size_t depth = 0, most = 0;
    bool text = false;
    for (size_t i = 0; i < n; i++) {
        char c = body[i];
        if (text && c == '\\') i++;
        else if (c == '"') text = !text;
        else if (!text && (c == '[' || c == '{') && ++depth > most) most = depth;
        else if (!text && (c == ']' || c == '}') && depth > 0) depth--;
    }
    return most;
}

static json_t *parse(const char *body, size_t n, api_error *error)
{
    json_error_t where;
    json_t *root;
    if (n == 0) {
        api_fail(error, 400, NULL, "invalid_json", "the body is empty: send a JSON object");
        return NULL;
    }
    if (depth_of(body, n) > MOST_DEPTH) {
        api_fail(error, 400, NULL, "invalid_json", "the body is nested more than %d deep", MOST_DEPTH);
        return NULL;
    }
    root = json_loadb(body, n, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, &where);
    if (!root) {
        api_fail(error, 400, NULL, "invalid_json", "the body is no valid JSON: %s (line %d, column %d)", where.text,
                 where.line, where.column);
    } else if (!json_is_object(root)) {
        api_fail(error, 400, NULL, "invalid_json", "the body has to be a JSON object");
        json_decref(root);
        return NULL;
    }
    return root;
}

/* ---- Fields ------------------------------------------------------------------------------------------- */

bool api_bad(reader *d, const char *should_be)
{
    return api_fail(d->error, 400, d->name, "invalid_value", "'%s' has to be %s", d->name, should_be);
}

bool api_no_memory(reader *d)
{
    return api_fail(d->error, 500, NULL, "out_of_memory", "out of memory: try again later");
}

bool api_take_uint(reader *d, const json_t *value, uint32_t min, uint32_t max, uint32_t *out)
{
    char range[80];
    json_int_t given = json_integer_value(value);
    snprintf(range, sizeof range, "a whole number from %" PRIu32 " to %" PRIu32, min, max);
    if (!json_is_integer(value)) return api_bad(d, range);
    if (given < (json_int_t)min || given > (json_int_t)max) {
        return api_fail(d->error, 400, d->name, "invalid_value", "'%s' is %" JSON_INTEGER_FORMAT "; it has to be %s",
                        d->name, given, range);
    }
    *out = (uint32_t)given;
    return true;
}

bool api_take_real(reader *d, const json_t *value, double min, double max, double *out)
{
    char range[80];
    double given = json_number_value(value);
    snprintf(range, sizeof range, "a number from %g to %g", min, max);
    if (!json_is_number(value)) return api_bad(d, range);
    if (!(given >= min && given <= max)) {
        return api_fail(d->error, 400, d->name, "invalid_value", "'%s' is %g; it has to be %s", d->name, given, range);
    }
    *out = given;
    return true;
}

bool api_take_bool(reader *d, const json_t *value, bool *out)
{
    if (!json_is_boolean(value)) return api_bad(d, "true or false");
    *out = json_is_true(value);
    return true;
}

bool api_take_text(reader *d, const json_t *value, char **out, size_t *bytes)
{
    if (!json_is_string(value)) return api_bad(d, "a string");
    *out = strdup(json_string_value(value)); /* jansson takes no NUL in a string */
    if (bytes) *bytes = json_string_length(value);
    return *out || api_no_memory(d);
}

static const field *find(const char *name)
{
    for (const field *f = api_fields; f->name; f++) {
        if (strcmp(f->name, name) == 0) return f;
    }
    return NULL;
}

static bool unknown(reader *d, const char *name)
{
    const char *names[128], *near;
    size_t n = 0;
    for (const field *f = api_fields; f->name && n < 128; f++) {
        if (f->kinds & (1U << d->r->kind)) names[n++] = f->name;
    }
    near = cli_nearest(name, names, n);
    return api_fail(d->error, 400, name, "unknown_parameter", "unknown field '%s'%s%s%s", name,
                    near ? "; did you mean '" : "", near ? near : "", near ? "'?" : "");
}

static bool take_one(reader *d, const char *name, const json_t *value)
{
    const field *f = find(name);
    if (!f) return unknown(d, name);
    if (!(f->kinds & (1U << d->r->kind))) {
        return api_fail(d->error, 400, name, "unknown_parameter", "'%s' is a field of %s, not of this address", name,
                        d->r->kind == SERVE_CHAT ? "/v1/completions" : "/v1/chat/completions");
    }
    d->name = name;
    return json_is_null(value) || f->take(d, value);
}

static bool take_all(reader *d, json_t *root)
{
    const char *name;
    json_t *value;
    json_object_foreach(root, name, value) {
        if (!take_one(d, name, value)) return false;
    }
    return true;
}

/* ---- All together ------------------------------------------------------------------------------------- */

static bool missing(reader *d, const char *name)
{
    return api_fail(d->error, 400, name, "missing_required_parameter", "'%s' is missing", name);
}

static bool check(reader *d)
{
    const serve_request *r = d->r;
    if (r->kind == SERVE_CHAT && !r->n_messages) return missing(d, "messages");
    if (r->kind == SERVE_COMPLETION && !r->prompt) return missing(d, "prompt");
    if (r->kind == SERVE_CHAT && d->has_top && !d->wants_logprobs) {
        return api_fail(d->error, 400, "top_logprobs", "invalid_value", "'top_logprobs' needs 'logprobs': true");
    }
    if (d->has_stream_options && !r->stream) {
        return api_fail(d->error, 400, "stream_options", "invalid_value", "'stream_options' needs 'stream': true");
    }
    return true;
}

static serve_request *defaults(enum serve_kind kind, const api_rules *rules)
{
    serve_request *r = calloc(1, sizeof *r);
    if (!r) return NULL;
    r->kind = kind;
    r->max_tokens = rules->most_tokens;
    r->temperature = r->top_p = 1;
    r->logprobs = -1;
    r->guide = rules->guide;
    r->pin_system = kind == SERVE_CHAT;
    return r;
}

serve_request *api_read_request(enum serve_kind kind, const char *body, size_t n, const api_rules *rules,
                                api_error *error)
{
    reader d = { .r = defaults(kind, rules), .rules = rules, .error = error };
    json_t *root = d.r ? parse(body, n, error) : NULL;
    bool good = root && take_all(&d, root) && check(&d);
    if (!d.r) api_no_memory(&d);
    json_decref(root);
    if (good) return d.r;
    serve_request_free(d.r);
    return NULL;
}
