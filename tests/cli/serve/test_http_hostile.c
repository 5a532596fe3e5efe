/*
 * test_http_hostile.c - clients that leave, dawdle, read nothing or speak nonsense: they get an error or are dropped, their
 * job ends, and the others go on (faults.md 65 and 68).
 */
#include "cli/serve/http_rig.h"

#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define CHAT(words) "{\"messages\":[{\"role\":\"user\",\"content\":\"" words "\"}]}"
#define STREAMED(words) "{\"messages\":[{\"role\":\"user\",\"content\":\"" words "\"}],\"stream\":true}"

/* ---- Clients that leave -------------------------------------------------------------------------------- */

static void fault_65_who_leaves_frees_the_slot(void **state)
{
    static const char *const bodies[] = { CHAT("never"), STREAMED("never"), CHAT("words 1000000 5"),
                                          STREAMED("words 1000000 5"), STREAMED("words 1000000 300") };
    http_rig *r = rig_start((rig_setup){ .slots = 1 });
    unsigned n = 0;
    (void)state;
    for (size_t i = 0; i < sizeof bodies / sizeof bodies[0]; i++) {
        for (int how = 0; how < 3; how++) {
            int fd = dial(r);
            post(fd, "/v1/chat/completions", bodies[i]);
            rig_wait_for_taken(r, n + 1);
            if (how == 1) shutdown(fd, SHUT_WR); /* may still read, and is dropped all the same */
            if (how == 2) setsockopt(fd, SOL_SOCKET, SO_LINGER, &(struct linger){ 1, 0 }, sizeof(struct linger)); /* a reset */
            if (how != 1) close(fd);
            rig_wait_for_left(r, ++n);
            if (how == 1) close(fd);
        }
    }
    expect_reply(ask(r, "POST", "/v1/chat/completions", CHAT("words 1")), 200, "w0 ");
    rig_stop(r);
}

static void others_are_not_touched(void **state)
{
    http_rig *r = rig_start((rig_setup){ .slots = 2 });
    int stays = dial(r);
    reply a;
    (void)state;
    post(stays, "/v1/chat/completions", STREAMED("words 60 10"));
    rig_wait_for_taken(r, 1);
    for (unsigned i = 0; i < 3; i++) {
        int fd = dial(r);
        post(fd, "/v1/chat/completions", STREAMED("words 1000000 5"));
        rig_wait_for_taken(r, i + 2);
        close(fd);
        rig_wait_for_left(r, i + 1);
    }
    a = hear(stays);
    for (int i = 0; i < 60; i++) {
        char word[32];
        snprintf(word, sizeof word, "\"content\":\"w%d \"", i);
        CHECK(strstr(a.body, word) != NULL);
    }
    expect_reply(a, 200, "[DONE]");
    close(stays);
    rig_stop(r);
}

/* ---- Clients that dawdle ------------------------------------------------------------------------------- */

/* Sends a byte every 20 ms, so it is never silent for long; true: the server hung up before all was sent. */
static bool drip(int fd, const char *text)
{
    for (; *text; text++) {
        char byte;
        say_bytes(fd, text, 1);
        usleep(20000);
        if (recv(fd, &byte, 1, MSG_DONTWAIT | MSG_PEEK) == 0) return true;
    }
    return false;
}

static void slow_clients_are_dropped(void **state)
{
    http_rig *r = rig_start((rig_setup){ .limits = { .request = 0.3, .write = 0.3 } });
    int silent = dial(r), fd = dial(r);
    (void)state;
    assert_true(drip(fd, "GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\nX: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"));
    close(fd);
    fd = dial(r);
    say(fd, "POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: 90\r\n\r\n");
    assert_true(drip(fd, "{\"prompt\":\"words 1                                                                         "));
    close(fd);
    assert_true(hung_up(silent));
    close(silent);
    fd = dial(r); /* an answer that takes longer than both limits is no slow client */
    post(fd, "/v1/chat/completions", CHAT("words 10 60"));
    expect_reply(hear(fd), 200, "w9 ");
    assert_true(hung_up(fd)); /* but the connection is not kept for ever */
    close(fd);
    fd = dial(r);
    post(fd, "/v1/chat/completions", STREAMED("words 3 350"));
    expect_reply(hear(fd), 200, "[DONE]");
    close(fd);
    rig_stop(r);
}

static void a_client_that_reads_nothing_is_dropped(void **state)
{
    http_rig *r = rig_start((rig_setup){ .limits = { .write = 0.3 } });
    int fd = dial(r), small = 4096;
    (void)state;
    setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof small);
    post(fd, "/v1/chat/completions", STREAMED("flood"));
    rig_wait_for_left(r, 1);
    close(fd);
    assert_true(rig_alive(r));
    rig_stop(r);
}

/* ---- Clients that speak nonsense ----------------------------------------------------------------------- */

static void fault_68_bad_bodies_are_refused(void **state)
{
    static const char *const bodies[] = {
        "", "{:", "{", "[]", "null", "\"", "{\"messages\":{}}", CHAT("a\xff"), "{\"messages\":[{\"role\":\"user\",\"content\":\"\\ud800\"}]}",
        "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}],\"max_tokens\":\"x\"}",
        "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}],\"max_tokens\":1e99}",
        "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}],\"max_tokens\":-1}",
        "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}],\"max_tokens\":NaN}",
        "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}],\"seed\":99999999999999999999999999}",
        "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}],\"temperature\":-1e308}",
        "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}],\"temperature\":1e999}",
        "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}],\"tools\":[{}]}",
        "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}],\"colour\":\"red\"}",
    };
    http_rig *r = rig_start((rig_setup){ 0 });
    int fd = dial(r);
    char *deep = malloc(60001);
    (void)state;
    for (size_t i = 0; i < sizeof bodies / sizeof bodies[0]; i++) {
        reply a;
        post(fd, "/v1/chat/completions", bodies[i]);
        a = hear(fd);
        check_context("%s: %d %s", bodies[i], a.status, a.body);
        CHECK(a.status == 400);
        CHECK(strstr(a.body, "{\"error\":{\"message\":\"") == a.body);
        CHECK(strstr(a.body, "\"type\":\"invalid_request_error\"") != NULL);
        CHECK(cli_utf8_bad(a.body, a.n_body) == SIZE_MAX);
        reply_free(&a);
    }
    memset(deep, '[', 60000);
    deep[60000] = '\0';
    post(fd, "/v1/chat/completions", deep);
    expect_reply(hear(fd), 400, "nested more than 32 deep");
    free(deep);
    close(fd);
    assert_int_equal(rig_look(r).taken, 0);
    assert_true(rig_alive(r));
    rig_stop(r);
}

/* Whatever comes, the connection ends or an answer that is an error comes; no job is made of it. */
static void bytes_that_are_no_http(void **state)
{
    static const char *const nonsense[] = {
        "\r\n\r\n\r\n\r\n", "GET\r\n\r\n", "GET / HTTP/9.9\r\n\r\n", "GET / FTP/1.0\r\nHost: 127.0.0.1\r\n\r\n", "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        "GET /%00%ff%zz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n", "GET /../../etc HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
        "POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: -5\r\n\r\n{}",
        "POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: 99999999999999999999999\r\n\r\n{}",
        "POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: x\r\n\r\n{}",
        "POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n{}\r\n",
        "POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffffff\r\n{}",
        "GET /health HTTP/1.1\r\n: empty\r\n\r\n", "GET /health HTTP/1.1\r\nHost\r\n\r\n", "POST /v1/completions HTTP/1.1\r\n\r\n",
    };
    http_rig *r = rig_start((rig_setup){ .limits = { .request = 1 } });
    (void)state;
    for (size_t i = 0; i < sizeof nonsense / sizeof nonsense[0]; i++) {
        int fd = dial(r);
        say(fd, nonsense[i]);
        shutdown(fd, SHUT_WR);
        check_context("%s", nonsense[i]);
        CHECK(hung_up(fd));
        close(fd);
        CHECK(rig_alive(r));
    }
    assert_int_equal(rig_look(r).taken, 0);
    rig_stop(r);
}

static void headers_have_a_limit(void **state)
{
    http_rig *r = rig_start((rig_setup){ 0 });
    char *line = malloc(200000);
    int fd = dial(r);
    reply a;
    (void)state;
    memset(line, 'a', 199999);
    line[199999] = '\0';
    say(fd, "GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Long: ");
    say(fd, line);
    say(fd, "\r\n\r\n");
    a = hear(fd);
    assert_true(a.status == 431 || a.status == 413 || a.status == 0);
    reply_free(&a);
    close(fd);
    fd = dial(r);
    say(fd, "GET /");
    say(fd, line);
    a = hear(fd);
    assert_true(a.status == 414 || a.status == 0);
    reply_free(&a);
    close(fd);
    free(line);
    assert_true(rig_alive(r));
    rig_stop(r);
}

static uint64_t next_random(uint64_t *s)
{
    *s ^= *s << 13;
    *s ^= *s >> 7;
    *s ^= *s << 17;
    return *s;
}

/* A good request with some bytes changed, cut or doubled. */
static void damaged_requests(void **state)
{
    static const char good[] =
        "POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: 74\r\n\r\n"
        "{\"messages\":[{\"role\":\"user\",\"content\":\"words 2\"}],\"max_tokens\":5,\"seed\":10}";
    http_rig *r = rig_start((rig_setup){ .limits = { .request = 1 } });
    uint64_t seed = 88172645463325252ULL;
    (void)state;
    for (int i = 0; i < 300; i++) {
        char bytes[sizeof good];
        size_t n = sizeof good - 1 - (i % 3 == 0 ? next_random(&seed) % (sizeof good - 1) : 0);
        int fd = dial(r);
        memcpy(bytes, good, sizeof good);
        for (uint64_t k = next_random(&seed) % 4; k > 0; k--) {
            bytes[next_random(&seed) % (sizeof good - 1)] = (char)next_random(&seed);
        }
        say_bytes(fd, bytes, n);
        shutdown(fd, SHUT_WR);
        CHECK(hung_up(fd));
        close(fd);
    }
    assert_true(rig_alive(r));
    expect_reply(ask(r, "POST", "/v1/chat/completions", CHAT("words 2")), 200, "w1 ");
    rig_stop(r);
}

/* ---- Many at once -------------------------------------------------------------------------------------- */

enum { CLIENTS = 16, TIMES = 6 };
typedef struct client {
    http_rig *r;
    int number;
    unsigned good, full;
} client;

static void *talk(void *user)
{
    client *c = user;
    for (int i = 0; i < TIMES; i++) {
        bool stream = (c->number + i) % 2;
        int fd = dial(c->r);
        reply a;
        post(fd, "/v1/chat/completions", stream ? STREAMED("words 5 1") : CHAT("words 5 1"));
        if ((c->number + i) % 5 == 4) { /* these leave at once */
            close(fd);
            continue;
        }
        a = hear(fd);
        CHECK(a.status == 429 || (a.status == 200 && strstr(a.body, "w4 ") && !a.cut));
        c->good += a.status == 200;
        c->full += a.status == 429;
        reply_free(&a);
        close(fd);
    }
    return NULL;
}

static void sixteen_clients_on_four_slots(void **state)
{
    http_rig *r = rig_start((rig_setup){ .slots = 4, .queue = 16 });
    client c[CLIENTS];
    pthread_t thread[CLIENTS];
    unsigned good = 0, full = 0;
    (void)state;
    for (int i = 0; i < CLIENTS; i++) {
        c[i] = (client){ .r = r, .number = i };
        CHECK(pthread_create(&thread[i], NULL, talk, &c[i]) == 0);
    }
    for (int i = 0; i < CLIENTS; i++) {
        pthread_join(thread[i], NULL);
        good += c[i].good;
        full += c[i].full;
    }
    assert_true(good > 0 && good + full >= CLIENTS * TIMES * 3 / 4);
    assert_true(rig_alive(r));
    rig_stop(r);
}

/* Soon: an answer counts until its last byte is known to be sent. */
static bool alive_soon(http_rig *r)
{
    for (int i = 0; i < 1000; i++) {
        if (rig_alive(r)) return true;
        usleep(10000);
    }
    return false;
}

static void idle_connections_keep_nobody_out(void **state)
{
    http_rig *r = rig_start((rig_setup){ .connections = 2, .slots = 4 });
    int idle[40], busy[2] = { dial(r), dial(r) };
    (void)state;
    post(busy[0], "/v1/chat/completions", STREAMED("words 1000000 5"));
    rig_wait_for_taken(r, 1);
    for (int i = 0; i < 40; i++) {
        idle[i] = dial(r);
        CHECK(alive_soon(r));
    }
    post(busy[1], "/v1/chat/completions", CHAT("never")); /* had been closed: it waited longest */
    assert_true(hung_up(busy[1]));
    close(busy[1]);
    busy[1] = dial(r);
    post(busy[1], "/v1/chat/completions", CHAT("never"));
    rig_wait_for_taken(r, 2);
    expect_reply(ask(r, "GET", "/health", NULL), 503, "too_many_connections");
    close(busy[0]);
    rig_wait_for_left(r, 1);
    assert_true(alive_soon(r));
    for (int i = 0; i < 40; i++) close(idle[i]);
    close(busy[1]);
    rig_wait_for_left(r, 2);
    rig_stop(r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fault_65_who_leaves_frees_the_slot),
        cmocka_unit_test(others_are_not_touched),
        cmocka_unit_test(slow_clients_are_dropped),
        cmocka_unit_test(a_client_that_reads_nothing_is_dropped),
        cmocka_unit_test(fault_68_bad_bodies_are_refused),
        cmocka_unit_test(bytes_that_are_no_http),
        cmocka_unit_test(headers_have_a_limit),
        cmocka_unit_test(damaged_requests),
        cmocka_unit_test(sixteen_clients_on_four_slots),
        cmocka_unit_test(idle_connections_keep_nobody_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
