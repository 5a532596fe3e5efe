/* fields.c - the table of a request's fields: OpenAI's, and those that h2okv adds (budget, policy, pin, guide, reuse,
 * grammar). man/h2okv-serve.1 lists them. */
#include "request.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_NEW = 1 << 20, MOST_STOP_BYTES = 1024 };

/* ---- What is said beside the text ---------------------------------------------------------------------- */

static bool take_model(reader *d, const json_t *value)
{
    const char *name = json_string_value(value);
    if (!name) return api_bad(d, "a string");
    if (strcmp(name, d->rules->model->name) == 0) return true;
    return api_fail(d->error, 404, "model", "model_not_found",
                    "there is no model '%.80s' here: use '%s', or leave 'model' out", name, d->rules->model->name);
}

static bool take_max_tokens(reader *d, const json_t *value)
{
    uint32_t before = d->has_max ? d->r->max_tokens : 0;
    if (!api_take_uint(d, value, 1, MOST_NEW, &d->r->max_tokens)) return false;
    d->has_max = true;
    return before == 0 || before == d->r->max_tokens ||
           api_bad(d, "the same as 'max_tokens', which is its older name: give one of them");
}

static bool take_temperature(reader *d, const json_t *value)
{
    return api_take_real(d, value, 0, 2, &d->r->temperature);
}

static bool take_top_p(reader *d, const json_t *value)
{
    return api_take_real(d, value, 0, 1, &d->r->top_p);
}

static bool take_seed(reader *d, const json_t *value)
{
    d->r->has_seed = true;
    return api_take_uint(d, value, 0, UINT32_MAX - 1, &d->r->seed);
}

static bool add_stop(reader *d, const json_t *value)
{
    char *text = NULL;
    if (!json_is_string(value) || json_string_length(value) == 0 || json_string_length(value) > MOST_STOP_BYTES) {
        return api_bad(d, "a string, or a list of at most 16, each of 1 to 1024 bytes");
    }
    if (!api_take_text(d, value, &text, NULL)) return false;
    d->r->stops[d->r->n_stops++] = text;
    return true;
}

static bool take_stop(reader *d, const json_t *value)
{
    if (!json_is_array(value)) return add_stop(d, value);
    if (json_array_size(value) > SERVE_MOST_STOPS) return api_bad(d, "a string, or a list of at most 16");
    for (size_t i = 0; i < json_array_size(value); i++) {
        if (!add_stop(d, json_array_get(value, i))) return false;
    }
    return true;
}

static bool take_stream(reader *d, const json_t *value)
{
    return api_take_bool(d, value, &d->r->stream);
}

static bool take_stream_options(reader *d, const json_t *value)
{
    const char *key;
    json_t *option;
    if (!json_is_object(value)) return api_bad(d, "an object");
    d->has_stream_options = true;
    json_object_foreach((json_t *)(uintptr_t)value, key, option) {
        bool usage = strcmp(key, "include_usage") == 0, padding = strcmp(key, "include_obfuscation") == 0;
        if (usage && !json_is_null(option) && !api_take_bool(d, option, &d->r->stream_usage)) return false;
        if (!usage && !(padding && json_is_false(option))) {
            return api_fail(d->error, 400, d->name, "unsupported_parameter", "'stream_options.%s' is not supported",
                            key);
        }
    }
    return true;
}

/* A chat's is a bool, with top_logprobs beside it; a completion's is the number. */
static bool take_logprobs(reader *d, const json_t *value)
{
    uint32_t n = 0;
    if (d->r->kind == SERVE_CHAT) {
        if (!api_take_bool(d, value, &d->wants_logprobs)) return false;
        if (d->wants_logprobs && d->r->logprobs < 0) d->r->logprobs = 0;
        return true;
    }
    if (!api_take_uint(d, value, 0, SERVE_MOST_LOGPROBS, &n)) return false;
    d->r->logprobs = (int)n;
    return true;
}

static bool take_top_logprobs(reader *d, const json_t *value)
{
    uint32_t n = 0;
    if (!api_take_uint(d, value, 0, SERVE_MOST_LOGPROBS, &n)) return false;
    d->has_top = true;
    d->r->logprobs = (int)n;
    return true;
}

/* ---- Shapes of the answer ------------------------------------------------------------------------------ */

static bool two_grammars(reader *d)
{
    return api_fail(d->error, 400, d->name, "invalid_value", "give 'grammar' or a 'response_format', not both");
}

static bool take_grammar(reader *d, const json_t *value)
{
    if (d->r->grammar) return two_grammars(d);
    if (!api_take_text(d, value, &d->r->grammar, NULL)) return false;
    return d->r->grammar[0] || api_bad(d, "a grammar in GBNF that is not empty");
}

static bool take_response_format(reader *d, const json_t *value)
{
    const char *type = json_string_value(json_object_get(value, "type"));
    if (!type) return api_bad(d, "{\"type\": \"text\"} or {\"type\": \"json_object\"}");
    if (strcmp(type, "json_schema") == 0) {
        return api_fail(d->error, 400, "response_format", "unsupported_parameter",
                        "'response_format' json_schema is not supported: use json_object, or a 'grammar'");
    }
    if (strcmp(type, "text") != 0 && strcmp(type, "json_object") != 0) return api_bad(d, "of type text or json_object");
    if (json_object_size(value) != 1) return api_bad(d, "an object with 'type' alone");
    if (strcmp(type, "text") == 0) return true;
    if (d->r->grammar) return two_grammars(d);
    d->r->grammar = strdup(api_json_grammar);
    return d->r->grammar || api_no_memory(d);
}

/* ---- What h2okv adds ---------------------------------------------------------------------------------- */

static bool take_budget(reader *d, const json_t *value)
{
    return api_take_uint(d, value, CACHE_LEAST_BUDGET, d->rules->model->room, &d->r->budget);
}

static bool take_policy(reader *d, const json_t *value)
{
    const char *name = json_string_value(value), *ours = d->rules->model->policy;
    if (!name) return api_bad(d, "a string");
    if (strcmp(name, ours) == 0) return true;
    return api_fail(d->error, 400, "policy", "unsupported_parameter",
                    "'policy' is '%.40s', and this server was started with '%s', for all requests", name, ours);
}

static bool take_guide(reader *d, const json_t *value)
{
    if (!api_take_bool(d, value, &d->r->guide)) return false;
    if (!d->r->guide || d->rules->scores) return true;
    return api_fail(d->error, 400, "guide", "unsupported_parameter",
                    "'guide' has no effect with the policy '%s', which uses no scores", d->rules->model->policy);
}

static bool take_reuse(reader *d, const json_t *value)
{
    const char *how = json_string_value(value);
    if (!how || (strcmp(how, "exact") != 0 && strcmp(how, "lossy") != 0)) return api_bad(d, "\"exact\" or \"lossy\"");
    d->r->reuse_lossy = strcmp(how, "lossy") == 0;
    return true;
}

/* Digits up to `end`; NULL when it is no position. */
static const char *position(const char *at, char end, int32_t *out)
{
    size_t n = strspn(at, "0123456789");
    if (n == 0 || n > 9 || at[n] != end) return NULL;
    *out = (int32_t)strtol(at, NULL, 10);
    return at + n;
}

static bool add_pin(reader *d, const json_t *value)
{
    const char *text = json_string_value(value);
    int32_t first = 0, end = 0;
    if (text && strcmp(text, "system") == 0 && d->r->kind == SERVE_CHAT) {
        d->r->pin_system = true;
        return true;
    }
    text = text ? position(text, ':', &first) : NULL;
    text = text ? position(text + 1, '\0', &end) : NULL;
    if (!text || first >= end) {
        return api_bad(d, d->r->kind == SERVE_CHAT
                              ? "\"system\", positions \"A:B\" from A to before B, or a list of these"
                              : "positions \"A:B\" from A to before B, or a list of these");
    }
    if (d->r->n_pins == SERVE_MOST_PINS) return api_bad(d, "a list of at most 16");
    d->r->pins[d->r->n_pins].first = first;
    d->r->pins[d->r->n_pins++].end = end;
    return true;
}

/* In place of the default: an empty list pins nothing. */
static bool take_pin(reader *d, const json_t *value)
{
    d->r->pin_system = false;
    if (!json_is_array(value)) return add_pin(d, value);
    for (size_t i = 0; i < json_array_size(value); i++) {
        if (!add_pin(d, json_array_get(value, i))) return false;
    }
    return true;
}

/* ---- OpenAI's that are not supported, but for the value that changes nothing ---------------------------- */

static bool unsupported(reader *d, const char *more)
{
    return api_fail(d->error, 400, d->name, "unsupported_parameter", "'%s' is not supported%s", d->name, more);
}

static bool take_anything(reader *d, const json_t *value)
{
    (void)d;
    (void)value;
    return true;
}

static bool take_one(reader *d, const json_t *value)
{
    if (!json_is_integer(value)) return api_bad(d, "1");
    return json_integer_value(value) == 1 || unsupported(d, " but for 1: send one request for each answer");
}

static bool take_zero(reader *d, const json_t *value)
{
    double given = json_number_value(value);
    if (!json_is_number(value)) return api_bad(d, "a number");
    return !(given < 0 || given > 0) || unsupported(d, " but for 0");
}

static bool take_false(reader *d, const json_t *value)
{
    if (!json_is_boolean(value)) return api_bad(d, "true or false");
    return json_is_false(value) || unsupported(d, " but for false");
}

static bool take_empty(reader *d, const json_t *value)
{
    bool empty = (json_is_array(value) && json_array_size(value) == 0) ||
                 (json_is_object(value) && json_object_size(value) == 0) ||
                 (json_is_string(value) && json_string_length(value) == 0);
    return empty || unsupported(d, "");
}

static bool take_tool_choice(reader *d, const json_t *value)
{
    const char *how = json_string_value(value);
    return (how && strcmp(how, "none") == 0) || unsupported(d, " but for \"none\"");
}

static bool take_service_tier(reader *d, const json_t *value)
{
    const char *how = json_string_value(value);
    return (how && (strcmp(how, "auto") == 0 || strcmp(how, "default") == 0)) || unsupported(d, " but for \"auto\"");
}

static bool take_modalities(reader *d, const json_t *value)
{
    const char *how = json_string_value(json_array_get(value, 0));
    return (json_array_size(value) == 1 && how && strcmp(how, "text") == 0) || unsupported(d, " but for [\"text\"]");
}

const field api_fields[] = {
    { "model", FOR_BOTH, take_model },
    { "messages", FOR_CHAT, api_take_messages },
    { "prompt", FOR_COMPLETION, api_take_prompt },
    { "max_tokens", FOR_BOTH, take_max_tokens },
    { "max_completion_tokens", FOR_CHAT, take_max_tokens },
    { "temperature", FOR_BOTH, take_temperature },
    { "top_p", FOR_BOTH, take_top_p },
    { "seed", FOR_BOTH, take_seed },
    { "stop", FOR_BOTH, take_stop },
    { "stream", FOR_BOTH, take_stream },
    { "stream_options", FOR_BOTH, take_stream_options },
    { "logprobs", FOR_BOTH, take_logprobs },
    { "top_logprobs", FOR_CHAT, take_top_logprobs },
    { "response_format", FOR_BOTH, take_response_format },
    { "grammar", FOR_BOTH, take_grammar },
    { "budget", FOR_BOTH, take_budget },
    { "policy", FOR_BOTH, take_policy },
    { "pin", FOR_BOTH, take_pin },
    { "guide", FOR_BOTH, take_guide },
    { "reuse", FOR_BOTH, take_reuse },

    /* They change nothing in an answer: labels for OpenAI's own records and caches. */
    { "user", FOR_BOTH, take_anything },
    { "metadata", FOR_CHAT, take_anything },
    { "safety_identifier", FOR_CHAT, take_anything },
    { "prompt_cache_key", FOR_CHAT, take_anything },
    { "parallel_tool_calls", FOR_CHAT, take_anything }, /* of tools, and there are none */

    { "n", FOR_BOTH, take_one },
    { "best_of", FOR_COMPLETION, take_one },
    { "echo", FOR_COMPLETION, take_false },
    { "suffix", FOR_COMPLETION, take_empty },
    { "frequency_penalty", FOR_BOTH, take_zero },
    { "presence_penalty", FOR_BOTH, take_zero },
    { "logit_bias", FOR_BOTH, take_empty },
    { "store", FOR_CHAT, take_false },
    { "tools", FOR_CHAT, take_empty },
    { "functions", FOR_CHAT, take_empty },
    { "tool_choice", FOR_CHAT, take_tool_choice },
    { "function_call", FOR_CHAT, take_tool_choice },
    { "service_tier", FOR_CHAT, take_service_tier },
    { "modalities", FOR_CHAT, take_modalities },
    { "audio", FOR_CHAT, take_empty },
    { "prediction", FOR_CHAT, take_empty },
    { "web_search_options", FOR_CHAT, take_empty },
    { "reasoning_effort", FOR_CHAT, take_empty },
    { "verbosity", FOR_CHAT, take_empty },
    { NULL, 0, NULL },
};
