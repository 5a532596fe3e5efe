/* test_request.c - requests in JSON: what each field sets, and everything that is refused, by name. */
#include "serve/request.h"

#include "support/check.h"

#include <stdlib.h>
#include <string.h>

static const serve_model model = { .name = "small", .trained = 2048, .slots = 2, .budget = 512, .room = 1024,
                                   .policy = "default", .isa = "scalar", .chat = true };
static api_rules rules = { &model, 256, true, true };

static serve_request *read_bytes(enum serve_kind kind, const char *body, size_t n, api_error *error)
{
    char *copy = malloc(n ? n : 1); /* no NUL behind it: a read past the end is seen by AddressSanitizer */
    serve_request *r;
    assert_non_null(copy);
    memcpy(copy, body, n);
    *error = (api_error){ 0 };
    r = api_read_request(kind, copy, n, &rules, error);
    free(copy);
    assert_true((r != NULL) == (error->status == 0));
    return r;
}

/* The fields of `more` beside one message or a prompt. */
static serve_request *with(enum serve_kind kind, const char *more, api_error *error)
{
    char body[4096];
    snprintf(body, sizeof body, "{%s%s%s}", kind == SERVE_CHAT
                 ? "\"messages\":[{\"role\":\"user\",\"content\":\"hello\"}]" : "\"prompt\":\"hello\"",
             *more ? "," : "", more);
    return read_bytes(kind, body, strlen(body), error);
}

static serve_request *good(enum serve_kind kind, const char *more)
{
    api_error e;
    serve_request *r = with(kind, more, &e);
    check_context("%s: %s", more, e.text);
    CHECK(r != NULL);
    return r;
}

/* ---- What is taken ------------------------------------------------------------------------------------- */

static void defaults(void **state)
{
    serve_request *r = good(SERVE_CHAT, "");
    (void)state;
    assert_int_equal(r->kind, SERVE_CHAT);
    assert_int_equal(r->n_messages, 1);
    assert_string_equal(r->messages[0].role, "user");
    assert_string_equal(r->messages[0].content, "hello");
    assert_int_equal(r->messages[0].content_bytes, 5);
    assert_int_equal(r->max_tokens, 256);
    assert_true(r->temperature > 0.99 && r->temperature < 1.01 && r->top_p > 0.99 && r->top_p < 1.01);
    assert_int_equal(r->logprobs, -1);
    assert_true(r->guide && r->pin_system);
    assert_false(r->stream || r->has_seed || r->reuse_lossy || r->grammar || r->n_stops || r->n_pins || r->budget);
    serve_request_free(r);
    r = good(SERVE_COMPLETION, "");
    assert_string_equal(r->prompt, "hello");
    assert_int_equal(r->prompt_bytes, 5);
    assert_false(r->pin_system); /* there are no messages */
    serve_request_free(r);
}

static void every_field(void **state)
{
    serve_request *r = good(SERVE_CHAT,
        "\"model\":\"small\",\"max_tokens\":7,\"max_completion_tokens\":7,\"temperature\":0,\"top_p\":0.5,\"seed\":4294967294,"
        "\"stop\":[\"a\",\"\\u00e9\"],\"stream\":true,\"stream_options\":{\"include_usage\":true,\"include_obfuscation\":false},"
        "\"top_logprobs\":3,\"logprobs\":true,\"grammar\":\"root ::= [a-z]\",\"budget\":1024,\"policy\":\"default\","
        "\"pin\":[\"system\",\"0:4\",\"10:12\"],\"guide\":false,\"reuse\":\"lossy\"");
    (void)state;
    assert_int_equal(r->max_tokens, 7);
    assert_true(r->temperature <= 0 && r->top_p > 0.49 && r->top_p < 0.51);
    assert_true(r->has_seed && r->seed == 4294967294U);
    assert_int_equal(r->n_stops, 2);
    assert_string_equal(r->stops[1], "\xc3\xa9");
    assert_true(r->stream && r->stream_usage);
    assert_int_equal(r->logprobs, 3);
    assert_string_equal(r->grammar, "root ::= [a-z]");
    assert_int_equal(r->budget, 1024);
    assert_true(r->pin_system && r->n_pins == 2 && r->pins[1].first == 10 && r->pins[1].end == 12);
    assert_true(!r->guide && r->reuse_lossy);
    serve_request_free(r);
    r = good(SERVE_COMPLETION, "\"logprobs\":2,\"stop\":\"x\",\"echo\":false,\"best_of\":1,\"suffix\":null");
    assert_int_equal(r->logprobs, 2);
    assert_string_equal(r->stops[0], "x");
    serve_request_free(r);
}

static void shapes_of_messages(void **state)
{
    static const char body[] =
        "{\"messages\":[{\"role\":\"developer\",\"content\":[{\"type\":\"text\",\"text\":\"a\"},{\"text\":\"b\",\"type\":\"text\"}]},"
        "{\"role\":\"assistant\",\"content\":\"\",\"refusal\":null,\"tool_calls\":[],\"annotations\":[]},"
        "{\"role\":\"user\",\"content\":\"\\ud83d\\ude00\"}]}";
    api_error e;
    serve_request *r = read_bytes(SERVE_CHAT, body, strlen(body), &e);
    (void)state;
    assert_int_equal(r->n_messages, 3);
    assert_string_equal(r->messages[0].role, "system");
    assert_string_equal(r->messages[0].content, "ab");
    assert_int_equal(r->messages[0].content_bytes, 2);
    assert_string_equal(r->messages[1].content, "");
    assert_string_equal(r->messages[2].content, "\xf0\x9f\x98\x80");
    serve_request_free(r);
    r = read_bytes(SERVE_COMPLETION, "{\"prompt\":[\"one\"]}", 18, &e);
    assert_string_equal(r->prompt, "one");
    serve_request_free(r);
}

static void neutral_values_change_nothing(void **state)
{
    static const char *const both[] = {
        "\"n\":1", "\"user\":\"me\"", "\"frequency_penalty\":0", "\"presence_penalty\":0.0", "\"logit_bias\":{}",
        "\"stop\":null", "\"temperature\":null", "\"seed\":null", "\"stream\":false", "\"model\":null",
        "\"response_format\":{\"type\":\"text\"}", "\"stream_options\":null", "\"pin\":[]",
    };
    static const char *const chat[] = {
        "\"metadata\":{\"a\":\"b\"}", "\"store\":false", "\"tools\":[]", "\"tool_choice\":\"none\"", "\"service_tier\":\"auto\"",
        "\"modalities\":[\"text\"]", "\"logprobs\":false", "\"parallel_tool_calls\":true", "\"audio\":null",
        "\"prompt_cache_key\":\"k\"", "\"safety_identifier\":\"s\"",
    };
    serve_request *r;
    (void)state;
    for (size_t i = 0; i < sizeof both / sizeof both[0]; i++) {
        serve_request_free(good(SERVE_CHAT, both[i]));
        serve_request_free(good(SERVE_COMPLETION, both[i]));
    }
    for (size_t i = 0; i < sizeof chat / sizeof chat[0]; i++) serve_request_free(good(SERVE_CHAT, chat[i]));
    r = good(SERVE_CHAT, "\"pin\":[]");
    assert_false(r->pin_system);
    serve_request_free(r);
    r = good(SERVE_CHAT, "\"response_format\":{\"type\":\"json_object\"}");
    assert_string_equal(r->grammar, api_json_grammar);
    serve_request_free(r);
}

/* ---- What is refused ----------------------------------------------------------------------------------- */

typedef struct bad_case {
    const char *more, *param, *says;
    const char *code; /* NULL: invalid_value */
    int status;       /* 0: 400 */
} bad_case;

static void expect_bad(enum serve_kind kind, const bad_case *c)
{
    api_error e;
    serve_request *r = with(kind, c->more, &e);
    check_context("%s: %s (%s)", c->more, e.text, e.param);
    CHECK(r == NULL);
    CHECK(e.status == (c->status ? c->status : 400));
    CHECK(strcmp(e.param, c->param) == 0);
    CHECK(strstr(e.text, c->says) != NULL);
    CHECK(e.code && strcmp(e.code, c->code ? c->code : "invalid_value") == 0);
    CHECK(strcmp(e.type, "invalid_request_error") == 0);
}

#define UNSUPPORTED "unsupported_parameter"

static void bad_values(void **state)
{
    static const bad_case cases[] = {
        { "\"max_tokens\":0", "max_tokens", "'max_tokens' is 0; it has to be a whole number from 1 to 1048576", 0, 0 },
        { "\"max_tokens\":-1", "max_tokens", "-1", 0, 0 },
        { "\"max_tokens\":9007199254740993", "max_tokens", "9007199254740993", 0, 0 },
        { "\"max_tokens\":1.5", "max_tokens", "whole number", 0, 0 },
        { "\"max_tokens\":16.0", "max_tokens", "whole number", 0, 0 },
        { "\"max_tokens\":\"x\"", "max_tokens", "whole number", 0, 0 },
        { "\"max_tokens\":1e99", "max_tokens", "whole number", 0, 0 },
        { "\"max_tokens\":true", "max_tokens", "whole number", 0, 0 },
        { "\"temperature\":-0.1", "temperature", "'temperature' is -0.1; it has to be a number from 0 to 2", 0, 0 },
        { "\"temperature\":2.5", "temperature", "from 0 to 2", 0, 0 },
        { "\"temperature\":1e308", "temperature", "from 0 to 2", 0, 0 },
        { "\"temperature\":\"hot\"", "temperature", "a number", 0, 0 },
        { "\"top_p\":1.01", "top_p", "from 0 to 1", 0, 0 },
        { "\"top_p\":[]", "top_p", "a number", 0, 0 },
        { "\"seed\":-1", "seed", "from 0 to 4294967294", 0, 0 },
        { "\"seed\":4294967295", "seed", "4294967295", 0, 0 },
        { "\"seed\":1.0", "seed", "whole number", 0, 0 },
        { "\"stop\":\"\"", "stop", "1 to 1024 bytes", 0, 0 },
        { "\"stop\":[1]", "stop", "a string", 0, 0 },
        { "\"stop\":{}", "stop", "a string", 0, 0 },
        { "\"stop\":[\"1\",\"2\",\"3\",\"4\",\"5\",\"6\",\"7\",\"8\",\"9\",\"a\",\"b\",\"c\",\"d\",\"e\",\"f\",\"g\",\"h\"]", "stop",
          "at most 16", 0, 0 },
        { "\"stream\":1", "stream", "true or false", 0, 0 },
        { "\"stream\":\"true\"", "stream", "true or false", 0, 0 },
        { "\"stream_options\":{\"include_usage\":true}", "stream_options", "needs 'stream': true", 0, 0 },
        { "\"stream\":true,\"stream_options\":{\"include_usage\":1}", "stream_options", "true or false", 0, 0 },
        { "\"stream\":true,\"stream_options\":{\"x\":1}", "stream_options", "'stream_options.x' is not supported", UNSUPPORTED, 0 },
        { "\"stream\":true,\"stream_options\":[]", "stream_options", "an object", 0, 0 },
        { "\"n\":2", "n", "not supported but for 1", UNSUPPORTED, 0 },
        { "\"n\":0", "n", "not supported but for 1", UNSUPPORTED, 0 },
        { "\"n\":\"1\"", "n", "has to be 1", 0, 0 },
        { "\"frequency_penalty\":0.5", "frequency_penalty", "not supported but for 0", UNSUPPORTED, 0 },
        { "\"presence_penalty\":\"a\"", "presence_penalty", "a number", 0, 0 },
        { "\"logit_bias\":{\"50256\":-100}", "logit_bias", "not supported", UNSUPPORTED, 0 },
        { "\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{}}", "response_format",
          "json_schema is not supported: use json_object, or a 'grammar'", UNSUPPORTED, 0 },
        { "\"response_format\":{\"type\":\"xml\"}", "response_format", "text or json_object", 0, 0 },
        { "\"response_format\":\"json_object\"", "response_format", "{\"type\": ", 0, 0 },
        { "\"response_format\":{\"type\":\"json_object\",\"x\":1}", "response_format", "'type' alone", 0, 0 },
        { "\"grammar\":\"root ::= x\",\"response_format\":{\"type\":\"json_object\"}", "response_format", "not both", 0, 0 },
        { "\"response_format\":{\"type\":\"json_object\"},\"grammar\":\"root ::= x\"", "grammar", "not both", 0, 0 },
        { "\"grammar\":\"\"", "grammar", "not empty", 0, 0 },
        { "\"grammar\":5", "grammar", "a string", 0, 0 },
        { "\"budget\":15", "budget", "'budget' is 15; it has to be a whole number from 16 to 1024", 0, 0 },
        { "\"budget\":1025", "budget", "1025", 0, 0 },
        { "\"budget\":\"10%\"", "budget", "whole number", 0, 0 },
        { "\"policy\":\"h2o\"", "policy", "'policy' is 'h2o', and this server was started with 'default'", UNSUPPORTED, 0 },
        { "\"policy\":1", "policy", "a string", 0, 0 },
        { "\"guide\":\"auto\"", "guide", "true or false", 0, 0 },
        { "\"reuse\":\"maybe\"", "reuse", "\"exact\" or \"lossy\"", 0, 0 },
        { "\"pin\":\"4:4\"", "pin", "from A to before B", 0, 0 },
        { "\"pin\":\"-1:4\"", "pin", "from A to before B", 0, 0 },
        { "\"pin\":\"1:4x\"", "pin", "from A to before B", 0, 0 },
        { "\"pin\":\"0:99999999999999999999\"", "pin", "from A to before B", 0, 0 },
        { "\"pin\":[1]", "pin", "from A to before B", 0, 0 },
        { "\"pin\":[\"0:1\",\"0:1\",\"0:1\",\"0:1\",\"0:1\",\"0:1\",\"0:1\",\"0:1\",\"0:1\",\"0:1\",\"0:1\",\"0:1\",\"0:1\",\"0:1\",\"0:1\","
          "\"0:1\",\"0:1\"]", "pin", "at most 16", 0, 0 },
        { "\"model\":\"gpt-4\"", "model", "there is no model 'gpt-4' here: use 'small'", "model_not_found", 404 },
        { "\"model\":7", "model", "a string", 0, 0 },
        { "\"temprature\":1", "temprature", "unknown field 'temprature'; did you mean 'temperature'?", "unknown_parameter", 0 },
        { "\"zzzz\":null", "zzzz", "unknown field 'zzzz'", "unknown_parameter", 0 },
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        expect_bad(SERVE_CHAT, &cases[i]);
        expect_bad(SERVE_COMPLETION, &cases[i]);
    }
}

static void bad_values_of_one_kind(void **state)
{
    static const bad_case chat[] = {
        { "\"prompt\":\"x\"", "prompt", "is a field of /v1/completions", "unknown_parameter", 0 },
        { "\"max_completion_tokens\":5,\"max_tokens\":6", "max_tokens", "give one of them", 0, 0 },
        { "\"logprobs\":2", "logprobs", "true or false", 0, 0 },
        { "\"top_logprobs\":2", "top_logprobs", "needs 'logprobs': true", 0, 0 },
        { "\"logprobs\":true,\"top_logprobs\":21", "top_logprobs", "from 0 to 20", 0, 0 },
        { "\"tools\":[{\"type\":\"function\"}]", "tools", "not supported", UNSUPPORTED, 0 },
        { "\"tool_choice\":\"auto\"", "tool_choice", "not supported but for \"none\"", UNSUPPORTED, 0 },
        { "\"service_tier\":\"flex\"", "service_tier", "not supported", UNSUPPORTED, 0 },
        { "\"modalities\":[\"text\",\"audio\"]", "modalities", "not supported", UNSUPPORTED, 0 },
        { "\"store\":true", "store", "not supported but for false", UNSUPPORTED, 0 },
        { "\"reasoning_effort\":\"low\"", "reasoning_effort", "not supported", UNSUPPORTED, 0 },
    };
    static const bad_case completion[] = {
        { "\"messages\":[]", "messages", "is a field of /v1/chat/completions", "unknown_parameter", 0 },
        { "\"logprobs\":true", "logprobs", "whole number", 0, 0 },
        { "\"logprobs\":21", "logprobs", "from 0 to 20", 0, 0 },
        { "\"echo\":true", "echo", "not supported but for false", UNSUPPORTED, 0 },
        { "\"suffix\":\"end\"", "suffix", "not supported", UNSUPPORTED, 0 },
        { "\"best_of\":3", "best_of", "not supported but for 1", UNSUPPORTED, 0 },
        { "\"pin\":\"system\"", "pin", "from A to before B", 0, 0 },
    };
    (void)state;
    for (size_t i = 0; i < sizeof chat / sizeof chat[0]; i++) expect_bad(SERVE_CHAT, &chat[i]);
    for (size_t i = 0; i < sizeof completion / sizeof completion[0]; i++) expect_bad(SERVE_COMPLETION, &completion[i]);
    rules.scores = false;
    expect_bad(SERVE_CHAT, &(bad_case){ "\"guide\":true", "guide", "which uses no scores", UNSUPPORTED, 0 });
    serve_request_free(good(SERVE_CHAT, "\"guide\":false"));
    rules.scores = true;
}

static void bad_bodies(void **state)
{
    static const struct {
        const char *body;
        size_t n; /* 0: a string */
        const char *param, *says;
    } cases[] = {
        { "", 0, "", "the body is empty" },
        { "{:", 0, "", "no valid JSON" },
        { "{\"messages\":", 0, "", "no valid JSON" },
        { "[]", 0, "", "has to be a JSON object" },
        { "\"text\"", 0, "", "has to be a JSON object" },
        { "null", 0, "", "has to be a JSON object" },
        { "{} {}", 0, "", "no valid JSON" },
        { "{}", 0, "messages", "'messages' is missing" },
        { "{\"messages\":null}", 0, "messages", "'messages' is missing" },
        { "{\"messages\":{}}", 0, "messages", "a list of at least one message" },
        { "{\"messages\":[]}", 0, "messages", "a list of at least one message" },
        { "{\"messages\":[1]}", 0, "messages[0]", "an object" },
        { "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"},{}]}", 0, "messages[1].role", "is missing" },
        { "{\"messages\":[{\"role\":\"user\"}]}", 0, "messages[0].content", "is missing" },
        { "{\"messages\":[{\"role\":\"user\",\"content\":null}]}", 0, "messages[0].content", "is missing" },
        { "{\"messages\":[{\"role\":\"user\",\"content\":5}]}", 0, "messages[0].content", "a string" },
        { "{\"messages\":[{\"role\":\"user\",\"content\":[]}]}", 0, "messages[0].content", "an empty list" },
        { "{\"messages\":[{\"role\":\"user\",\"content\":[\"a\"]}]}", 0, "messages[0].content", "a list of {" },
        { "{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"image_url\",\"image_url\":{\"url\":\"x\"}}]}]}", 0,
          "messages[0].content", "reads text only" },
        { "{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":1}]}]}", 0, "messages[0].content", "no string" },
        { "{\"messages\":[{\"role\":\"bot\",\"content\":\"a\"}]}", 0, "messages[0].role", "system, developer, user or assistant" },
        { "{\"messages\":[{\"role\":1,\"content\":\"a\"}]}", 0, "messages[0].role", "a string" },
        { "{\"messages\":[{\"role\":\"tool\",\"content\":\"a\"}]}", 0, "messages[0].role", "tools are not supported" },
        { "{\"messages\":[{\"role\":\"user\",\"content\":\"a\",\"name\":\"Bo\"}]}", 0, "messages[0].name", "is not supported" },
        { "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}],\"seed\":NaN}", 0, "", "no valid JSON" },
        { "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}],\"seed\":1e999}", 0, "", "no valid JSON" },
        { "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}],\"seed\":123456789012345678901234567890}", 0, "", "no valid JSON" },
        { "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}],\"seed\":1,\"seed\":2}", 0, "", "no valid JSON" },
        { "{\"messages\":[{\"role\":\"user\",\"content\":\"a\xff\"}]}", 0, "", "no valid JSON" },
        { "{\"messages\":[{\"role\":\"user\",\"content\":\"\xc0\xaf\"}]}", 0, "", "no valid JSON" },     /* too long a form */
        { "{\"messages\":[{\"role\":\"user\",\"content\":\"\xed\xa0\x80\"}]}", 0, "", "no valid JSON" }, /* half a pair */
        { "{\"messages\":[{\"role\":\"user\",\"content\":\"\\ud800\"}]}", 0, "", "no valid JSON" },
        { "{\"messages\":[{\"role\":\"user\",\"content\":\"a\\u0000b\"}]}", 0, "", "no valid JSON" },
        { "{\"messages\":[{\"role\":\"user\",\"content\":\"a\0b\"}]}", 46, "", "no valid JSON" },
        { "{\"\xff\":1}", 0, "", "no valid JSON" },
    };
    api_error e;
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        serve_request *r = read_bytes(SERVE_CHAT, cases[i].body, cases[i].n ? cases[i].n : strlen(cases[i].body), &e);
        check_context("case %zu: %s (%s)", i, e.text, e.param);
        CHECK(r == NULL && e.status == 400);
        CHECK(strcmp(e.param, cases[i].param) == 0);
        CHECK(strstr(e.text, cases[i].says) != NULL);
        CHECK(cli_utf8_bad(e.text, strlen(e.text)) == SIZE_MAX);
    }
    assert_null(read_bytes(SERVE_COMPLETION, "{\"prompt\":\"\"}", 13, &e));
    assert_non_null(strstr(e.text, "not empty"));
    assert_null(read_bytes(SERVE_COMPLETION, "{\"prompt\":[1,2]}", 16, &e));
    assert_non_null(strstr(e.text, "lists of texts and of tokens"));
    assert_null(read_bytes(SERVE_COMPLETION, "{\"prompt\":[\"a\",\"b\"]}", 20, &e));
}

static void deep_nesting(void **state)
{
    enum { DEEP = 200000 };
    static char body[DEEP + 64];
    api_error e;
    (void)state;
    for (int kind = 0; kind < 2; kind++) {
        size_t n = (size_t)snprintf(body, sizeof body, "{\"messages\":");
        memset(body + n, '[', DEEP);
        if (kind) memcpy(body + n, "{\"a\":{\"b\":", 10);
        assert_null(read_bytes(SERVE_CHAT, body, n + DEEP, &e));
        assert_int_equal(e.status, 400);
        assert_non_null(strstr(e.text, "nested more than 32 deep"));
    }
    serve_request_free(good(SERVE_COMPLETION, "\"user\":\"[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[\\\"[[[[[\""));
}

/* Cut at every byte, and every byte changed: never more than an error. */
static void damage(void **state)
{
    static const char body[] =
        "{\"messages\":[{\"role\":\"system\",\"content\":[{\"type\":\"text\",\"text\":\"\xc3\xa9\\n\"}]}],\"max_tokens\":5,"
        "\"stop\":[\"a\"],\"temperature\":0.5,\"pin\":\"0:3\",\"response_format\":{\"type\":\"json_object\"}}";
    char copy[sizeof body];
    api_error e;
    (void)state;
    for (size_t n = 0; n < sizeof body - 1; n++) assert_null(read_bytes(SERVE_CHAT, body, n, &e));
    for (size_t i = 0; i < sizeof body - 1; i++) {
        static const char with_bytes[] = "\0\xff\"\\{}[]:,0-ae ";
        for (size_t k = 0; k < sizeof with_bytes - 1; k++) {
            memcpy(copy, body, sizeof body);
            copy[i] = with_bytes[k];
            serve_request_free(read_bytes(SERVE_CHAT, copy, sizeof body - 1, &e));
        }
    }
}

static void names_that_are_long_are_cut_between_characters(void **state)
{
    char more[2000] = "\"", *at = more + 1;
    api_error e;
    (void)state;
    for (int i = 0; i < 600; i++) {
        memcpy(at, "\xc3\xa9", 2);
        at += 2;
    }
    memcpy(at, "\":1", 4);
    assert_null(with(SERVE_CHAT, more, &e));
    assert_true(strlen(e.param) >= 60 && cli_utf8_bad(e.param, strlen(e.param)) == SIZE_MAX);
    assert_true(strlen(e.text) >= 500 && cli_utf8_bad(e.text, strlen(e.text)) == SIZE_MAX);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(defaults),
        cmocka_unit_test(every_field),
        cmocka_unit_test(shapes_of_messages),
        cmocka_unit_test(neutral_values_change_nothing),
        cmocka_unit_test(bad_values),
        cmocka_unit_test(bad_values_of_one_kind),
        cmocka_unit_test(bad_bodies),
        cmocka_unit_test(deep_nesting),
        cmocka_unit_test(damage),
        cmocka_unit_test(names_that_are_long_are_cut_between_characters),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
