/* test_http.c - h2okv serve over real sockets with a scripted engine: routes, answers, streams, keys, the end. */
#include "cli/serve/http_rig.h"

#include "cli/program.h"

#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define CHAT(words) "{\"messages\":[{\"role\":\"user\",\"content\":\"" words "\"}]}"
#define STREAMED(words) "{\"messages\":[{\"role\":\"user\",\"content\":\"" words "\"}],\"stream\":true}"

static void every_route(void **state)
{
    http_rig *r = rig_start((rig_setup){ 0 });
    reply a;
    (void)state;
    expect_reply(ask(r, "GET", "/health", NULL), 200, "\"status\":\"ok\"");
    expect_reply(ask(r, "GET", "/v1/models", NULL), 200, "\"id\":\"small\"");
    expect_reply(ask(r, "GET", "/v1/models/small", NULL), 200, "\"id\":\"small\"");
    expect_reply(ask(r, "GET", "/v1/models/gpt", NULL), 404, "\"code\":\"model_not_found\"");
    expect_reply(ask(r, "GET", "/metrics", NULL), 200, "\nh2okv_slots 2\n");
    expect_reply(ask(r, "GET", "/live/1", NULL), 200, "\"text\":[\"word\",\"<b>\",\"\\n\",\"\",\"last\"]");
    expect_reply(ask(r, "GET", "/live/2", NULL), 404, "from 0 to 1");
    expect_reply(ask(r, "GET", "/live/x", NULL), 404, "there is no slot 'x'");
    expect_reply(ask(r, "GET", "/live/-1", NULL), 404, "there is no slot");
    expect_reply(ask(r, "GET", "/", NULL), 200, "");
    expect_reply(ask(r, "GET", "/health?x=1", NULL), 200, "ok");
    expect_reply(ask(r, "GET", "/v2", NULL), 404, "there is nothing at '/v2'");
    expect_reply(ask(r, "GET", "/v1/chat/completions/", NULL), 404, "not_found");
    expect_reply(ask(r, "POST", "/v1/embeddings", "{}"), 404, "not_found");
    expect_reply(ask(r, "POST", "/v1/completions", "{\"prompt\":\"words 2\"}"), 200, "\"text\":\"w0 w1 \"");
    expect_reply(ask(r, "POST", "/v1/chat/completions", CHAT("words 2")), 200, "\"content\":\"w0 w1 \"");
    a = ask(r, "GET", "/v1/completions", NULL);
    assert_string_equal(reply_header(&a, "Allow"), "POST");
    expect_reply(a, 405, "use POST");
    a = ask(r, "DELETE", "/metrics", NULL);
    assert_string_equal(reply_header(&a, "Allow"), "GET, HEAD");
    expect_reply(a, 405, "does not take DELETE");
    a = ask(r, "GET", "/metrics", NULL);
    assert_non_null(strstr(a.body, "h2okv_http_answers_total{route=\"/v1/completions\",code=\"405\"} 1\n"));
    assert_string_equal(reply_header(&a, "X-Content-Type-Options"), "nosniff");
    reply_free(&a);
    rig_stop(r);
}

static void a_stream_comes_word_by_word(void **state)
{
    http_rig *r = rig_start((rig_setup){ 0 });
    int fd = dial(r);
    char *some;
    reply a;
    (void)state;
    post(fd, "/v1/chat/completions", STREAMED("words 1000000 20"));
    some = hear_some(fd); /* the head, and maybe the first chunk: long before the end */
    assert_non_null(strstr(some, "HTTP/1.1 200"));
    assert_non_null(strcasestr(some, "Content-Type: text/event-stream"));
    free(some);
    close(fd);
    rig_wait_for_left(r, 1);
    a = ask(r, "POST", "/v1/chat/completions", STREAMED("words 3 5"));
    assert_string_equal(reply_header(&a, "X-H2okv-Slot"), "1");
    assert_non_null(strstr(a.body, "data: {"));
    assert_non_null(strstr(a.body, "\"content\":\"w2 \""));
    expect_reply(a, 200, "data: [DONE]\n\n");
    expect_reply(ask(r, "POST", "/v1/completions", "{\"prompt\":\"words 3\",\"stream\":true}"), 200, "\"text\":\"w2 \"");
    rig_stop(r);
}

static void characters_stay_whole(void **state)
{
    http_rig *r = rig_start((rig_setup){ 0 });
    reply a = ask(r, "POST", "/v1/chat/completions", STREAMED("letters"));
    unsigned found = 0;
    (void)state;
    assert_true(cli_utf8_bad(a.body, a.n_body) == SIZE_MAX);
    for (const char *at = a.body; (at = strstr(at, "\"content\":\"\xf0\x9f\x98\x80\"")) != NULL; at++) found++;
    assert_int_equal(found, 10);
    reply_free(&a);
    expect_reply(ask(r, "POST", "/v1/chat/completions", CHAT("letters")), 200,
                 "\"content\":\"\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80\\\"\\\\\\n\xc3\xa9");
    rig_stop(r);
}

static void failures_have_their_status_or_end_the_stream(void **state)
{
    http_rig *r = rig_start((rig_setup){ 0 });
    reply a;
    (void)state;
    expect_reply(ask(r, "POST", "/v1/chat/completions", CHAT("fail 400")), 400, "\"param\":\"budget\"");
    expect_reply(ask(r, "POST", "/v1/chat/completions", STREAMED("fail 400")), 400, "\"type\":\"invalid_request_error\"");
    expect_reply(ask(r, "POST", "/v1/chat/completions", STREAMED("fail 500")), 500, "\"type\":\"server_error\"");
    expect_reply(ask(r, "POST", "/v1/chat/completions", CHAT("late 504")), 504, "\"type\":\"timeout_error\"");
    expect_reply(ask(r, "POST", "/v1/chat/completions", CHAT("letgo")), 500, "the engine failed");
    expect_reply(ask(r, "POST", "/v1/chat/completions", STREAMED("letgo")), 500, "the engine failed");
    expect_reply(ask(r, "POST", "/v1/chat/completions", CHAT("broken")), 500, "server_error");
    a = ask(r, "POST", "/v1/chat/completions", STREAMED("late 500"));
    assert_null(strstr(a.body, "[DONE]"));
    expect_reply(a, 200, "event: error\ndata: {\"error\":{\"message\":\"the script says so\"");
    a = ask(r, "POST", "/v1/chat/completions", STREAMED("fail 503"));
    assert_string_equal(reply_header(&a, "Retry-After"), "10");
    expect_reply(a, 503, "overloaded_error");
    rig_stop(r);
    r = rig_start((rig_setup){ .no_template = true });
    expect_reply(ask(r, "POST", "/v1/chat/completions", CHAT("words 1")), 400, "no_chat_template");
    expect_reply(ask(r, "POST", "/v1/completions", "{\"prompt\":\"words 1\"}"), 200, "w0");
    rig_stop(r);
}

static void a_connection_is_used_again(void **state)
{
    http_rig *r = rig_start((rig_setup){ 0 });
    int fd = dial(r);
    (void)state;
    for (int i = 0; i < 3; i++) {
        post(fd, "/v1/chat/completions", i == 1 ? STREAMED("words 2") : CHAT("words 2"));
        expect_reply(hear(fd), 200, "w1 ");
        post(fd, "/v1/chat/completions", "{");
        expect_reply(hear(fd), 400, "no valid JSON");
    }
    /* Two at once: answered one after the other. */
    say(fd, "POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: 22\r\n\r\n"
            "{\"prompt\":\"words 1 9\"}" "GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n");
    expect_reply(hear(fd), 403, "host_not_allowed");
    close(fd);
    fd = dial(r);
    say(fd, "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 23\r\n\r\n"
            "{\"prompt\":\"words 1 20\"}" "GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n");
    expect_reply(hear(fd), 200, "w0 ");
    expect_reply(hear(fd), 200, "\"status\":\"ok\"");
    close(fd);
    rig_stop(r);
}

/* ---- Limits -------------------------------------------------------------------------------------------- */

static void a_full_queue_says_so(void **state)
{
    http_rig *r = rig_start((rig_setup){ .slots = 1, .queue = 2 });
    int fd[3];
    reply a;
    (void)state;
    for (int i = 0; i < 3; i++) {
        fd[i] = dial(r);
        post(fd[i], "/v1/chat/completions", CHAT("never"));
        if (i == 0) rig_wait_for_taken(r, 1);
    }
    for (int i = 0; i < 1000 && serve_queue_length(rig_queue(r)) < 2; i++) usleep(10000);
    a = ask(r, "POST", "/v1/chat/completions", CHAT("words 1"));
    assert_string_equal(reply_header(&a, "Retry-After"), "1");
    expect_reply(a, 429, "\"code\":\"queue_full\"");
    expect_reply(ask(r, "GET", "/live/0", NULL), 200, "word"); /* looks need no slot */
    expect_reply(ask(r, "GET", "/health", NULL), 200, "\"queue\":{\"length\":2");
    close(fd[1]); /* one that waits leaves: its place is free */
    for (int i = 0; i < 1000 && serve_queue_length(rig_queue(r)) > 1; i++) usleep(10000);
    close(fd[0]);
    close(fd[2]);
    expect_reply(ask(r, "POST", "/v1/chat/completions", CHAT("words 1")), 200, "w0 ");
    rig_stop(r);
}

static void time_limits(void **state)
{
    http_rig *r = rig_start((rig_setup){ .time_limit = 0.2, .slots = 1, .limits = { .late = 0.2 } });
    (void)state;
    expect_reply(ask(r, "POST", "/v1/chat/completions", CHAT("never")), 504, "\"code\":\"time_limit\"");
    expect_reply(ask(r, "POST", "/v1/chat/completions", STREAMED("never")), 504, "timeout_error");
    rig_stop(r);
}

static void bodies_have_a_limit(void **state)
{
    http_rig *r = rig_start((rig_setup){ .most_body = 1000 });
    char body[1600], *at;
    int fd;
    (void)state;
    memset(body, ' ', sizeof body);
    body[999] = '\0';
    memcpy(body, CHAT("words 1"), strlen(CHAT("words 1")));
    expect_reply(ask(r, "POST", "/v1/chat/completions", body), 200, "w0 ");
    body[999] = ' ';
    body[1001] = '\0';
    expect_reply(ask(r, "POST", "/v1/chat/completions", body), 413, "longer than 1000 bytes");
    fd = dial(r); /* it does not say beforehand how long it is */
    at = body + snprintf(body, sizeof body, "POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: "
                         "application/json\r\nTransfer-Encoding: chunked\r\n\r\n");
    say(fd, body);
    for (int i = 0; i < 12; i++) say(fd, "64\r\n{                                                                           "
                                         "                        \r\n");
    say(fd, "0\r\n\r\n");
    expect_reply(hear(fd), 413, "longer than 1000 bytes");
    close(fd);
    fd = dial(r); /* and one that has no end */
    say_bytes(fd, body, (size_t)(at - body));
    for (int i = 0; i < 400; i++) say(fd, "64\r\n{                                                                          "
                                          "                         \r\n");
    assert_true(hung_up(fd));
    close(fd);
    fd = dial(r); /* a client that asks before it sends */
    say(fd, "POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: 5000000\r\n"
            "Expect: 100-continue\r\n\r\n");
    expect_reply(hear(fd), 413, "longer than 1000 bytes");
    close(fd);
    assert_true(rig_alive(r));
    rig_stop(r);
}

/* ---- Who may ask --------------------------------------------------------------------------------------- */

static void keys(void **state)
{
    http_rig *r = rig_start((rig_setup){ .key = "sk-right" });
    static const char *const wrong[] = { "Bearer sk-wrong", "Bearer sk-righ", "Bearer sk-right2", "Bearer ", "sk-right",
                                         "Basic sk-right", "Bearer sk-rightsk-right" };
    char line[128];
    reply a = ask(r, "POST", "/v1/chat/completions", CHAT("words 1"));
    (void)state;
    assert_string_equal(reply_header(&a, "WWW-Authenticate"), "Bearer");
    expect_reply(a, 401, "an API key is needed");
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        snprintf(line, sizeof line, "Content-Type: application/json\r\nAuthorization: %s\r\n", wrong[i]);
        expect_reply(ask_with(r, "POST", "/v1/chat/completions", line, CHAT("words 1")), 401, "\"code\":\"invalid_api_key\"");
    }
    expect_reply(ask(r, "GET", "/metrics", NULL), 401, "authentication_error");
    expect_reply(ask(r, "GET", "/live/0", NULL), 401, "authentication_error");
    expect_reply(ask(r, "GET", "/v1/models", NULL), 401, "authentication_error");
    expect_reply(ask(r, "GET", "/nothing", NULL), 401, "authentication_error");
    expect_reply(ask(r, "GET", "/health", NULL), 200, "ok");
    expect_reply(ask(r, "GET", "/", NULL), 200, "");
    expect_reply(ask_with(r, "GET", "/v1/models", "Authorization: Bearer sk-right\r\n", NULL), 200, "small");
    expect_reply(ask_with(r, "GET", "/v1/models", "authorization: bearer sk-right\r\n", NULL), 200, "small");
    assert_int_equal(rig_look(r).taken, 0);
    rig_stop(r);
}

static void types_and_hosts(void **state)
{
    static const char *const types[] = { "", "Content-Type: text/plain\r\n", "Content-Type: application/jsonp\r\n",
                                         "Content-Type: application/x-www-form-urlencoded\r\n" };
    static const char *const hosts[] = { "evil.example", "evil.example:80", "127.0.0.1.evil.example", "localhost.example" };
    static const char *const fine[] = { "localhost", "LOCALHOST:1", "127.0.0.1:99", "[::1]:80" };
    http_rig *r = rig_start((rig_setup){ 0 });
    char line[256];
    int fd;
    (void)state;
    for (size_t i = 0; i < 4; i++) {
        expect_reply(ask_with(r, "POST", "/v1/chat/completions", types[i], CHAT("words 1")), 415, "application/json");
    }
    expect_reply(ask_with(r, "POST", "/v1/chat/completions", "Content-Type: Application/JSON ; charset=utf-8\r\n",
                          CHAT("words 1")), 200, "w0");
    for (size_t i = 0; i < 8; i++) {
        fd = dial(r);
        snprintf(line, sizeof line, "GET /health HTTP/1.1\r\nHost: %s\r\n\r\n", i < 4 ? hosts[i] : fine[i - 4]);
        say(fd, line);
        expect_reply(hear(fd), i < 4 ? 403 : 200, i < 4 ? "host_not_allowed" : "ok");
        close(fd);
    }
    rig_stop(r);
}

/* ---- The end ------------------------------------------------------------------------------------------- */

static void *stop(void *user)
{
    rig_stop(user);
    return NULL;
}

static void stopping_lets_answers_end(void **state)
{
    http_rig *r = rig_start((rig_setup){ .slots = 1 });
    int idle = dial(r), busy = dial(r), waiting = dial(r);
    pthread_t thread;
    reply a;
    (void)state;
    say(idle, "GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n");
    expect_reply(hear(idle), 200, "ok");
    post(busy, "/v1/chat/completions", STREAMED("words 20 20"));
    rig_wait_for_taken(r, 1);
    post(waiting, "/v1/chat/completions", CHAT("words 2"));
    while (serve_queue_length(rig_queue(r)) < 1) usleep(1000);
    assert_int_equal(pthread_create(&thread, NULL, stop, r), 0);
    a = hear(busy);
    assert_non_null(strstr(a.body, "\"content\":\"w19 \""));
    expect_reply(a, 200, "[DONE]");
    a = hear(waiting); /* what was in the queue is still answered */
    assert_non_null(reply_header(&a, "Connection"));
    expect_reply(a, 200, "w1 ");
    assert_true(hung_up(idle));
    pthread_join(thread, NULL);
    close(idle);
    close(busy);
    close(waiting);
}

static void stopping_does_not_wait_for_ever(void **state)
{
    http_rig *r = rig_start((rig_setup){ .limits = { .stop = 0.2 } });
    int fd = dial(r), other = dial(r);
    (void)state;
    post(fd, "/v1/chat/completions", CHAT("never"));
    post(other, "/v1/chat/completions", STREAMED("flood")); /* and reads nothing */
    rig_wait_for_taken(r, 2);
    rig_stop_http(r);
    assert_true(hung_up(fd));
    rig_wait_for_left(r, 2);
    close(fd);
    close(other);
    rig_stop(r);
}

static void a_place_that_is_taken(void **state)
{
    http_rig *r = rig_start((rig_setup){ 0 });
    serve_options o = { .host = "127.0.0.1", .port = (uint16_t)rig_port(r), .connections = 4 };
    serve_model m = { .name = "m", .policy = "default" };
    serve_http *second = NULL;
    serve_queue *q = serve_queue_new(1);
    serve_stats *s = serve_stats_new(1);
    (void)state;
    cache_defaults(&o.cache);
    stderr_catch();
    assert_int_equal(http_start(&second, &o, &m, q, s), CLI_USAGE);
    assert_contains(stderr_caught(), "cannot listen on 127.0.0.1");
    o.host = "256.0.0.1";
    stderr_catch();
    assert_int_equal(http_start(&second, &o, &m, q, s), CLI_USAGE);
    assert_contains(stderr_caught(), "--host '256.0.0.1'");
    http_stop(NULL);
    serve_queue_free(q);
    serve_stats_free(s);
    rig_stop(r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_route),
        cmocka_unit_test(a_stream_comes_word_by_word),
        cmocka_unit_test(characters_stay_whole),
        cmocka_unit_test(failures_have_their_status_or_end_the_stream),
        cmocka_unit_test(a_connection_is_used_again),
        cmocka_unit_test(a_full_queue_says_so),
        cmocka_unit_test(time_limits),
        cmocka_unit_test(bodies_have_a_limit),
        cmocka_unit_test(keys),
        cmocka_unit_test(types_and_hosts),
        cmocka_unit_test(stopping_lets_answers_end),
        cmocka_unit_test(stopping_does_not_wait_for_ever),
        cmocka_unit_test(a_place_that_is_taken),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
