/* test_answer.c - events in, OpenAI's shapes out: one object, streams, logprobs, usage, views and metrics. */
#include "serve/api.h"

#include "support/check.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const serve_model model = { .name = "small", .created = 1700000000, .trained = 2048, .slots = 2, .budget = 512,
                                   .room = 1024, .policy = "default", .isa = "scalar", .chat = true };

static json_t *parse(const char *text)
{
    json_error_t where;
    json_t *json = json_loads(text, 0, &where);
    check_context("%s: %s", text, where.text);
    CHECK(json != NULL);
    return json;
}

/* The value at a path such as "choices.0.delta". */
static const json_t *at(const json_t *json, const char *path)
{
    char copy[128], *rest = copy;
    snprintf(copy, sizeof copy, "%s", path);
    for (char *name = strtok_r(copy, ".", &rest); name && json; name = strtok_r(NULL, ".", &rest)) {
        json = json_is_array(json) ? json_array_get(json, strtoul(name, NULL, 10)) : json_object_get(json, name);
    }
    return json;
}

static void expect_text(const json_t *json, const char *path, const char *text)
{
    check_context("%s", path);
    CHECK(json_is_string(at(json, path)));
    assert_string_equal(json_string_value(at(json, path)), text);
}

static void expect_number(const json_t *json, const char *path, json_int_t n)
{
    check_context("%s", path);
    CHECK(json_is_integer(at(json, path)));
    assert_int_equal(json_integer_value(at(json, path)), n);
}

static serve_logprob piece(const char *bytes, double logprob)
{
    return (serve_logprob){ strdup(bytes), strlen(bytes), logprob };
}

/* A text of one token, or of two that share its first character, where there is a |. The likeliest are it and "x". */
static serve_event *text_event(const char *words, bool logprobs)
{
    serve_event *e = serve_event_new(SERVE_TEXT);
    const char *bar = strchr(words, '|');
    const char *parts[] = { words, bar ? bar + 1 : NULL };
    e->text = strdup(words);
    if (bar) snprintf(e->text, strlen(words) + 1, "%.*s%s", (int)(bar - words), words, bar + 1);
    e->bytes = strlen(e->text);
    e->tokens = calloc(2, sizeof *e->tokens);
    for (size_t i = 0; logprobs && i < 2 && parts[i]; i++) {
        serve_token *t = &e->tokens[e->n_tokens++];
        t->chosen = piece(parts[i], -0.25);
        if (bar && i == 0) t->chosen.n_bytes = (size_t)(bar - words);
        t->top[0] = piece(parts[i], -0.25);
        t->top[0].n_bytes = t->chosen.n_bytes;
        t->top[1] = piece("x", -INFINITY);
        t->n_top = 2;
    }
    return e;
}

static serve_event *done(enum serve_finish finish, uint32_t evicted)
{
    serve_event *e = serve_event_new(SERVE_DONE);
    e->finish = finish;
    e->usage = (serve_usage){ .prompt = 10, .completion = 3, .evicted = evicted, .reused = 4, .slot = 1 };
    return e;
}

static void take(api_answer *a, serve_event *e, cli_buffer *out)
{
    assert_true(api_answer_take(a, e, out));
    serve_event_free(e);
}

/* ---- One object ---------------------------------------------------------------------------------------- */

static json_t *whole(serve_request *r, const char *const *words, enum serve_finish finish, uint32_t evicted)
{
    api_answer *a = api_answer_new(r, &model);
    cli_buffer out = { 0 };
    json_t *json;
    for (; *words; words++) take(a, text_event(*words, r->logprobs >= 0), &out);
    assert_int_equal(out.n, 0);
    take(a, done(finish, evicted), &out);
    json = parse(out.data);
    cli_buffer_free(&out);
    api_answer_free(a);
    return json;
}

static void a_chat_in_one_object(void **state)
{
    serve_request r = { .kind = SERVE_CHAT, .logprobs = -1 };
    json_t *json = whole(&r, (const char *const[]){ "caf\xc3\xa9 \"", "\n\x01", NULL }, SERVE_STOP, 0);
    (void)state;
    expect_text(json, "object", "chat.completion");
    expect_text(json, "model", "small");
    assert_true(strncmp(json_string_value(at(json, "id")), "chatcmpl-", 9) == 0);
    assert_true(json_is_integer(at(json, "created")));
    expect_number(json, "choices.0.index", 0);
    expect_text(json, "choices.0.message.role", "assistant");
    expect_text(json, "choices.0.message.content", "caf\xc3\xa9 \"\n\x01");
    assert_true(json_is_null(at(json, "choices.0.message.refusal")));
    assert_true(json_is_null(at(json, "choices.0.logprobs")));
    expect_text(json, "choices.0.finish_reason", "stop");
    expect_number(json, "usage.prompt_tokens", 10);
    expect_number(json, "usage.completion_tokens", 3);
    expect_number(json, "usage.total_tokens", 13);
    expect_number(json, "usage.prompt_tokens_details.cached_tokens", 4);
    assert_null(at(json, "usage.evicted_tokens"));
    expect_number(json, "h2okv.slot", 1);
    json_decref(json);
    json = whole(&r, (const char *const[]){ NULL }, SERVE_LENGTH, 77); /* an end token came first */
    expect_text(json, "choices.0.message.content", "");
    expect_text(json, "choices.0.finish_reason", "length");
    expect_number(json, "usage.evicted_tokens", 77);
    json_decref(json);
}

static void a_chats_logprobs(void **state)
{
    serve_request r = { .kind = SERVE_CHAT, .logprobs = 2 };
    json_t *json = whole(&r, (const char *const[]){ "a", "\xc3|\xa9", NULL }, SERVE_STOP, 0);
    (void)state;
    expect_text(json, "choices.0.message.content", "a\xc3\xa9");
    assert_int_equal(json_array_size(at(json, "choices.0.logprobs.content")), 3);
    expect_text(json, "choices.0.logprobs.content.0.token", "a");
    expect_number(json, "choices.0.logprobs.content.0.bytes.0", 'a');
    assert_true(fabs(json_real_value(at(json, "choices.0.logprobs.content.0.logprob")) + 0.25) < 1e-9);
    assert_int_equal(json_array_size(at(json, "choices.0.logprobs.content.0.top_logprobs")), 2);
    expect_text(json, "choices.0.logprobs.content.0.top_logprobs.1.token", "x");
    assert_true(fabs(json_real_value(at(json, "choices.0.logprobs.content.0.top_logprobs.1.logprob")) + 9999) < 1e-9);
    expect_text(json, "choices.0.logprobs.content.1.token", "\xef\xbf\xbd");
    expect_number(json, "choices.0.logprobs.content.1.bytes.0", 0xc3);
    json_decref(json);
    r.logprobs = 0; /* those of the chosen tokens alone */
    json = whole(&r, (const char *const[]){ "a", NULL }, SERVE_STOP, 0);
    assert_int_equal(json_array_size(at(json, "choices.0.logprobs.content.0.top_logprobs")), 0);
    json_decref(json);
    json = whole(&r, (const char *const[]){ NULL }, SERVE_STOP, 0);
    assert_true(json_is_array(at(json, "choices.0.logprobs.content")));
    json_decref(json);
}

static void a_completion_with_logprobs(void **state)
{
    serve_request r = { .kind = SERVE_COMPLETION, .logprobs = 2 };
    json_t *json = whole(&r, (const char *const[]){ "\xc3\xa9t", "b", NULL }, SERVE_LENGTH, 0);
    (void)state;
    expect_text(json, "object", "text_completion");
    assert_true(strncmp(json_string_value(at(json, "id")), "cmpl-", 5) == 0);
    expect_text(json, "choices.0.text", "\xc3\xa9tb");
    expect_text(json, "choices.0.finish_reason", "length");
    expect_text(json, "choices.0.logprobs.tokens.0", "\xc3\xa9t");
    assert_int_equal(json_array_size(at(json, "choices.0.logprobs.token_logprobs")), 2);
    assert_int_equal(json_object_size(at(json, "choices.0.logprobs.top_logprobs.1")), 2);
    expect_number(json, "choices.0.logprobs.text_offset.0", 0);
    expect_number(json, "choices.0.logprobs.text_offset.1", 2); /* characters */
    json_decref(json);
    r.logprobs = 1;
    json = whole(&r, (const char *const[]){ "a", NULL }, SERVE_STOP, 0);
    assert_int_equal(json_object_size(at(json, "choices.0.logprobs.top_logprobs.0")), 1);
    json_decref(json);
    r.logprobs = 0;
    json = whole(&r, (const char *const[]){ "a", NULL }, SERVE_STOP, 0);
    assert_true(json_is_null(at(json, "choices.0.logprobs.top_logprobs.0")));
    json_decref(json);
}

/* ---- Streams ------------------------------------------------------------------------------------------- */

enum { MOST_CHUNKS = 16 };
typedef struct chunks {
    json_t *json[MOST_CHUNKS];
    size_t n;
    bool finished, failed; /* [DONE] came; an error came */
} chunks;

static chunks split(const cli_buffer *out)
{
    chunks c = { { NULL }, 0, false, false };
    const char *line = out->data;
    while (line && *line) {
        const char *end = strstr(line, "\n\n");
        char copy[4096];
        assert_non_null(end);
        assert_false(c.finished);
        assert_true((size_t)(end - line) < sizeof copy);
        memcpy(copy, line, (size_t)(end - line));
        copy[end - line] = '\0';
        if (strncmp(copy, "event: error\ndata: ", 19) == 0) {
            c.failed = true;
            memmove(copy, copy + 13, strlen(copy + 13) + 1);
        }
        assert_true(strncmp(copy, "data: ", 6) == 0);
        if (strcmp(copy, "data: [DONE]") == 0) c.finished = true;
        else c.json[c.n++] = parse(copy + 6);
        line = end + 2;
    }
    return c;
}

static void free_chunks(chunks *c)
{
    while (c->n > 0) json_decref(c->json[--c->n]);
}

static chunks streamed(serve_request *r, const char *const *words, serve_event *last)
{
    api_answer *a = api_answer_new(r, &model);
    cli_buffer out = { 0 };
    chunks c;
    r->stream = true;
    for (; *words; words++) {
        size_t before = out.n;
        take(a, text_event(*words, r->logprobs >= 0), &out);
        assert_true(out.n > before); /* nothing is held back */
    }
    take(a, last, &out);
    c = split(&out);
    cli_buffer_free(&out);
    api_answer_free(a);
    return c;
}

static void a_chat_as_a_stream(void **state)
{
    serve_request r = { .kind = SERVE_CHAT, .logprobs = -1, .stream_usage = true };
    chunks c = streamed(&r, (const char *const[]){ "Hel", "lo\n", NULL }, done(SERVE_STOP, 5));
    (void)state;
    assert_true(c.finished && !c.failed);
    assert_int_equal(c.n, 5);
    for (size_t i = 0; i < c.n; i++) {
        expect_text(c.json[i], "object", "chat.completion.chunk");
        assert_string_equal(json_string_value(at(c.json[i], "id")), json_string_value(at(c.json[0], "id")));
        assert_true(i == 4 ? json_is_object(at(c.json[i], "usage")) : json_is_null(at(c.json[i], "usage")));
    }
    expect_text(c.json[0], "choices.0.delta.role", "assistant");
    expect_text(c.json[0], "choices.0.delta.content", "");
    expect_text(c.json[1], "choices.0.delta.content", "Hel");
    assert_null(at(c.json[1], "choices.0.delta.role"));
    assert_true(json_is_null(at(c.json[1], "choices.0.finish_reason")));
    expect_text(c.json[2], "choices.0.delta.content", "lo\n");
    assert_int_equal(json_object_size(at(c.json[3], "choices.0.delta")), 0);
    expect_text(c.json[3], "choices.0.finish_reason", "stop");
    assert_int_equal(json_array_size(at(c.json[4], "choices")), 0);
    expect_number(c.json[4], "usage.total_tokens", 13);
    expect_number(c.json[4], "usage.evicted_tokens", 5);
    free_chunks(&c);
    r.stream_usage = false;
    c = streamed(&r, (const char *const[]){ NULL }, done(SERVE_LENGTH, 0));
    assert_int_equal(c.n, 2);
    assert_null(at(c.json[0], "usage"));
    expect_text(c.json[1], "choices.0.finish_reason", "length");
    free_chunks(&c);
}

static void a_completion_as_a_stream(void **state)
{
    serve_request r = { .kind = SERVE_COMPLETION, .logprobs = 1 };
    chunks c = streamed(&r, (const char *const[]){ "one", " two", NULL }, done(SERVE_STOP, 0));
    (void)state;
    assert_true(c.finished);
    assert_int_equal(c.n, 3);
    expect_text(c.json[0], "object", "text_completion");
    expect_text(c.json[1], "choices.0.text", " two");
    expect_number(c.json[1], "choices.0.logprobs.text_offset.0", 3);
    expect_text(c.json[2], "choices.0.text", "");
    expect_text(c.json[2], "choices.0.finish_reason", "stop");
    free_chunks(&c);
}

static void a_stream_that_fails(void **state)
{
    serve_request r = { .kind = SERVE_CHAT, .logprobs = -1 };
    serve_event *e = serve_event_new(SERVE_FAILED);
    chunks c;
    cli_buffer out = { 0 };
    api_answer *a;
    (void)state;
    e->status = 504;
    e->text = strdup("the time limit passed");
    c = streamed(&r, (const char *const[]){ "Hel", NULL }, e);
    assert_true(c.failed && !c.finished);
    assert_int_equal(c.n, 3);
    expect_text(c.json[2], "error.message", "the time limit passed");
    expect_text(c.json[2], "error.type", "timeout_error");
    expect_text(c.json[2], "error.code", "time_limit");
    assert_true(json_is_null(at(c.json[2], "error.param")));
    free_chunks(&c);
    a = api_answer_new(&r, &model); /* half a character must never go out */
    e = text_event("\xc3", false);
    assert_false(api_answer_take(a, e, &out));
    serve_event_free(e);
    api_answer_free(a);
    api_answer_break(&out);
    c = split(&out);
    assert_true(c.failed && c.n == 1);
    free_chunks(&c);
    cli_buffer_free(&out);
}

/* ---- Of the server ------------------------------------------------------------------------------------- */

static void views_are_columns(void **state)
{
    serve_view_token tokens[] = {
        { (char[]){ "a" }, 1, 1, 0.5F, SERVE_SINK },
        { (char[]){ "\xc3" }, 1, 0, 0, SERVE_EVICTED },
        { (char[]){ "\xa9" }, 1, 0.25F, 2, SERVE_HEAVY },
        { (char[]){ "\xff" }, 1, 1, NAN, SERVE_RECENT },
        { (char[]){ "p" }, 1, 1, 0, SERVE_PINNED },
    };
    serve_view v = { .tokens = tokens, .n = 5, .slot = 1, .budget = 64, .recent = 8, .cells = 60, .busy = true,
                     .tokens_per_s = 12.5 };
    cli_buffer out = { 0 };
    json_t *json;
    (void)state;
    assert_true(api_add_view(&out, &v));
    json = parse(out.data);
    expect_number(json, "slot", 1);
    expect_number(json, "cells", 60);
    assert_true(json_is_true(at(json, "busy")));
    expect_text(json, "state", "sehrp");
    expect_text(json, "text.1", ""); /* half a character: it stands in the next one */
    expect_text(json, "text.2", "\xc3\xa9");
    expect_text(json, "text.3", "\xef\xbf\xbd");
    assert_true(fabs(json_real_value(at(json, "kept.2")) - 0.25) < 1e-9);
    assert_true(fabs(json_real_value(at(json, "score.2")) - 1) < 1e-9);
    assert_true(fabs(json_real_value(at(json, "score.3"))) < 1e-9);
    json_decref(json);
    cli_buffer_free(&out);
    v = (serve_view){ 0 };
    assert_true(api_add_view(&out, &v));
    json = parse(out.data);
    assert_int_equal(json_array_size(at(json, "text")), 0);
    json_decref(json);
    cli_buffer_free(&out);
}

/* Every series has its HELP and TYPE before it, and a number behind it. */
static unsigned check_series(const char *text)
{
    char help[128] = "", type[128] = "", name[128] = "";
    unsigned n = 0;
    for (const char *line = text; *line; line = strchr(line, '\n') + 1) {
        char *end;
        assert_non_null(strchr(line, '\n'));
        check_context("%.60s", line);
        if (sscanf(line, "# HELP %127s ", help) == 1 || sscanf(line, "# TYPE %127s ", type) == 1) continue;
        CHECK(sscanf(line, "%127[a-z0-9_]", name) == 1);
        CHECK(strcmp(name, help) == 0 && strcmp(name, type) == 0);
        line = strchr(line, '\n');
        while (line[-1] != ' ') line--;
        strtod(line, &end);
        CHECK(*end == '\n');
        n++;
    }
    return n;
}

static void metrics_health_models(void **state)
{
    serve_model odd = model;
    api_state s = { .model = &odd, .queue = 3, .queue_most = 64 };
    cli_buffer out = { 0 };
    json_t *json;
    (void)state;
    odd.name = "a\"b\\c";
    s.numbers = (serve_numbers){ .requests = 9, .new_tokens = 50, .decode_s = 2, .n_slots = 2 };
    s.numbers.slots[1] = (serve_slot_stats){ .busy = true, .budget = 512, .cells = 100, .next_pos = 1234 };
    api_count(&s.counts, 0, 200);
    api_count(&s.counts, 0, 200);
    api_count(&s.counts, 99, 999);
    assert_true(api_add_metrics(&out, &s));
    assert_true(check_series(out.data) > 25);
    assert_non_null(strstr(out.data, "h2okv_info{version=\""));
    assert_non_null(strstr(out.data, "model=\"a\\\"b\\\\c\""));
    assert_non_null(strstr(out.data, "h2okv_http_answers_total{route=\"/v1/chat/completions\",code=\"200\"} 2\n"));
    assert_non_null(strstr(out.data, "\nh2okv_requests_total 9\n"));
    assert_non_null(strstr(out.data, "\nh2okv_new_tokens_per_second 25.000000\n"));
    assert_non_null(strstr(out.data, "\nh2okv_slot_live_cells{slot=\"1\"} 100\n"));
    assert_non_null(strstr(out.data, "\nh2okv_slot_next_position{slot=\"1\"} 1234\n"));
    out.n = 0;
    assert_true(api_add_health(&out, &s));
    json = parse(out.data);
    expect_text(json, "status", "ok");
    expect_number(json, "slots.all", 2);
    expect_number(json, "slots.busy", 1);
    expect_number(json, "queue.length", 3);
    json_decref(json);
    out.n = 0;
    assert_true(api_add_models(&out, &model, true));
    json = parse(out.data);
    expect_text(json, "object", "list");
    expect_text(json, "data.0.id", "small");
    expect_number(json, "data.0.h2okv.budget", 512);
    json_decref(json);
    cli_buffer_free(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_chat_in_one_object),
        cmocka_unit_test(a_chats_logprobs),
        cmocka_unit_test(a_completion_with_logprobs),
        cmocka_unit_test(a_chat_as_a_stream),
        cmocka_unit_test(a_completion_as_a_stream),
        cmocka_unit_test(a_stream_that_fails),
        cmocka_unit_test(views_are_columns),
        cmocka_unit_test(metrics_health_models),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
