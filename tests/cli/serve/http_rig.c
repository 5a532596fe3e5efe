/* http_rig.c - see http_rig.h. */
#include "cli/serve/http_rig.h"

#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { MOST_SLOTS = 8, WAIT_MS = 10000, LONG_WORD = 65536 };

typedef struct slot {
    serve_job *job;
    char verb[16];
    unsigned n, ms, said;
    double next; /* when the next word is due */
} slot;

struct http_rig {
    serve_options o;
    serve_model model;
    serve_queue *q;
    serve_stats *stats;
    serve_http *http;
    pthread_t engine;
    slot slots[MOST_SLOTS];
    pthread_mutex_t lock;
    rig_seen seen;
};

/* ---- The engine ---------------------------------------------------------------------------------------- */

static void say_text(serve_job *job, const char *words, size_t n)
{
    serve_event *e = serve_event_new(SERVE_TEXT);
    e->text = malloc(n + 1);
    memcpy(e->text, words, n);
    e->text[n] = '\0';
    e->bytes = n;
    e->usage.slot = 1;
    serve_job_tell(job, e);
}

static void say_failed(serve_job *job, int status)
{
    serve_event *e = serve_event_new(SERVE_FAILED);
    e->status = status;
    e->text = strdup("the script says so");
    e->param = status == 400 ? "budget" : NULL;
    serve_job_tell(job, e);
}

/* A token of each kind; the first one is hostile. */
static void say_view(serve_job *job)
{
    static const char *const words[] = { "word", "<b>", "\n", "", "last" };
    enum { N = sizeof words / sizeof words[0] };
    serve_event *e = serve_event_new(SERVE_VIEW);
    e->view.slot = serve_job_request(job)->slot;
    e->view.budget = 8;
    e->view.recent = 1;
    e->view.cells = 4;
    e->view.tokens_per_s = 12.5;
    e->view.tokens = calloc(N, sizeof *e->view.tokens);
    e->view.n = N;
    for (size_t i = 0; i < N; i++) {
        serve_view_token *t = &e->view.tokens[i];
        t->bytes = strdup(words[i]);
        t->n_bytes = strlen(words[i]);
        t->state = (uint32_t[]){ SERVE_SINK, SERVE_PINNED, SERVE_HEAVY, SERVE_EVICTED, SERVE_RECENT }[i];
        t->kept = t->state == SERVE_EVICTED ? 0 : t->state == SERVE_HEAVY ? 0.5f : 1;
        t->score = t->kept / 2;
    }
    serve_job_tell(job, e);
}

/* False: the job has ended. */
static bool step(slot *s)
{
    static char flood[LONG_WORD];
    static const char *const letters[] = { "\xc3\xa9", "\xe2\x82\xac", "\xf0\x9f\x98\x80", "\"\\\n" };
    char word[32];
    bool words = strcmp(s->verb, "words") == 0;
    if (cli_seconds() < s->next) return true;
    s->next += s->ms / 1000.0;
    if (strcmp(s->verb, "never") == 0) return true;
    if (strcmp(s->verb, "letgo") == 0) return false;
    if (strcmp(s->verb, "flood") == 0) {
        memset(flood, 'f', sizeof flood);
        say_text(s->job, flood, sizeof flood);
        s->ms = 1;
        return true;
    }
    if (strcmp(s->verb, "fail") == 0 || (s->said > 0 && strcmp(s->verb, "late") == 0)) {
        say_failed(s->job, (int)s->n);
        return false;
    }
    if (strcmp(s->verb, "broken") == 0) say_text(s->job, "a\xc3", 2);
    else if (strcmp(s->verb, "letters") == 0) say_text(s->job, letters[s->said % 4], strlen(letters[s->said % 4]));
    else if (!words || s->said < s->n) say_text(s->job, word, (size_t)snprintf(word, sizeof word, "w%u ", s->said));
    s->said++;
    if (strcmp(s->verb, "late") == 0 || (words && s->said < s->n)) return true;
    if (strcmp(s->verb, "letters") == 0 && s->said < 40) return true;
    serve_event *e = serve_event_new(SERVE_DONE);
    e->usage = (serve_usage){ .prompt = 3, .completion = s->n, .slot = 1 };
    serve_job_tell(s->job, e);
    return false;
}

static void begin(http_rig *r, slot *s, serve_job *job)
{
    const serve_request *q = serve_job_request(job);
    *s = (slot){ .job = job, .next = cli_seconds() };
    if (q->kind == SERVE_CHAT) sscanf(q->messages[q->n_messages - 1].content, "%15s %u %u", s->verb, &s->n, &s->ms);
    if (q->kind == SERVE_COMPLETION) sscanf(q->prompt, "%15s %u %u", s->verb, &s->n, &s->ms);
    pthread_mutex_lock(&r->lock);
    r->seen.taken += q->kind != SERVE_LOOK;
    pthread_mutex_unlock(&r->lock);
    if (q->kind != SERVE_LOOK) return;
    say_view(job);
    serve_job_let_go(job);
    s->job = NULL;
}

/* Every slot one step; the number that is busy. */
static unsigned pass(http_rig *r)
{
    unsigned busy = 0;
    for (uint32_t i = 0; i < r->o.slots; i++) {
        slot *s = &r->slots[i];
        bool left = s->job && serve_job_left(s->job);
        if (!s->job) continue;
        if (left || !step(s)) {
            serve_job_let_go(s->job);
            s->job = NULL;
            pthread_mutex_lock(&r->lock);
            r->seen.left += left;
            pthread_mutex_unlock(&r->lock);
        } else {
            busy++;
        }
    }
    return busy;
}

static slot *free_slot(http_rig *r)
{
    for (uint32_t i = 0; i < r->o.slots; i++) {
        if (!r->slots[i].job) return &r->slots[i];
    }
    return NULL;
}

static void *engine(void *user)
{
    http_rig *r = user;
    slot look;
    for (;;) {
        unsigned busy = pass(r);
        slot *s = free_slot(r);
        serve_job *job = serve_queue_take(r->q, busy ? 0 : 0.01, !s);
        if (job) begin(r, serve_job_request(job)->kind == SERVE_LOOK ? &look : s, job);
        else if (!busy && serve_queue_stopping(r->q)) return NULL;
        else if (busy) nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
    }
}

/* ---- The rig ------------------------------------------------------------------------------------------- */

http_rig *rig_start(rig_setup setup)
{
    http_rig *r = calloc(1, sizeof *r);
    http_limits *l = &setup.limits;
    double *const seconds[] = { &l->request, &l->write, &l->late, &l->stop };
    for (int i = 0; i < 4; i++) *seconds[i] = *seconds[i] > 0 ? *seconds[i] : 20;
    r->o = (serve_options){ .host = setup.host ? setup.host : "127.0.0.1", .port = 0, .slots = setup.slots ? setup.slots : 2,
                            .queue = setup.queue ? setup.queue : 4, .most_tokens = 16, .time_limit = setup.time_limit,
                            .most_body = setup.most_body ? setup.most_body : 65536, .api_key = setup.key,
                            .connections = setup.connections ? setup.connections : 64 };
    cache_defaults(&r->o.cache);
    r->model = (serve_model){ .name = "small", .slots = r->o.slots, .budget = 512, .room = 1024, .trained = 2048,
                              .policy = "default", .isa = "scalar", .chat = !setup.no_template };
    r->q = serve_queue_new(r->o.queue);
    r->stats = serve_stats_new(r->o.slots);
    pthread_mutex_init(&r->lock, NULL);
    CHECK(r->q && r->stats);
    CHECK(http_start_within(&r->http, &r->o, &r->model, r->q, r->stats, l) == CLI_OK);
    CHECK(pthread_create(&r->engine, NULL, engine, r) == 0);
    return r;
}

void rig_stop_http(http_rig *r)
{
    http_stop(r->http);
    r->http = NULL;
}

void rig_stop(http_rig *r)
{
    serve_queue_stop(r->q);
    pthread_join(r->engine, NULL);
    http_stop(r->http);
    serve_queue_free(r->q);
    serve_stats_free(r->stats);
    pthread_mutex_destroy(&r->lock);
    free(r);
}

rig_seen rig_look(http_rig *r)
{
    rig_seen seen;
    pthread_mutex_lock(&r->lock);
    seen = r->seen;
    pthread_mutex_unlock(&r->lock);
    return seen;
}

unsigned rig_port(const http_rig *r)
{
    return http_port(r->http);
}

serve_queue *rig_queue(const http_rig *r)
{
    return r->q;
}

void rig_wait_for_left(http_rig *r, unsigned n)
{
    for (int i = 0; i < 1000 && rig_look(r).left < n; i++) nanosleep(&(struct timespec){ .tv_nsec = 10000000 }, NULL);
    CHECK(rig_look(r).left >= n);
}

void rig_wait_for_taken(http_rig *r, unsigned n)
{
    for (int i = 0; i < 1000 && rig_look(r).taken < n; i++) nanosleep(&(struct timespec){ .tv_nsec = 10000000 }, NULL);
    CHECK(rig_look(r).taken >= n);
}

bool rig_alive(http_rig *r)
{
    reply a = ask(r, "GET", "/health", NULL);
    bool alive = a.status == 200 && strstr(a.body, "\"status\":\"ok\"");
    reply_free(&a);
    return alive;
}

/* ---- Clients ------------------------------------------------------------------------------------------- */

int dial(const http_rig *r)
{
    struct sockaddr_in to = { .sin_family = AF_INET, .sin_port = htons((uint16_t)rig_port(r)) };
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    CHECK(fd >= 0 && connect(fd, (struct sockaddr *)&to, sizeof to) == 0);
    return fd;
}

void say_bytes(int fd, const char *bytes, size_t n)
{
    while (n > 0) {
        ssize_t sent = send(fd, bytes, n, MSG_NOSIGNAL);
        if (sent < 0) return;
        bytes += sent;
        n -= (size_t)sent;
    }
}

void say(int fd, const char *bytes)
{
    say_bytes(fd, bytes, strlen(bytes));
}

/* Adds at most `most` bytes; 0: the connection has ended. */
static size_t more(int fd, cli_buffer *b, size_t most)
{
    struct pollfd p = { .fd = fd, .events = POLLIN };
    ssize_t n;
    CHECK(poll(&p, 1, WAIT_MS) > 0);
    CHECK(cli_buffer_reserve(b, most));
    n = recv(fd, b->data + b->n, most, 0);
    if (n <= 0) return 0;
    b->n += (size_t)n;
    b->data[b->n] = '\0';
    return (size_t)n;
}

static bool read_line(int fd, cli_buffer *b, size_t from)
{
    while (b->n < from + 2 || strcmp(b->data + b->n - 2, "\r\n") != 0) {
        if (!more(fd, b, 1)) return false;
    }
    return true;
}

static bool read_n(int fd, cli_buffer *b, size_t n)
{
    for (size_t got; n > 0; n -= got) {
        got = more(fd, b, n);
        if (!got) return false;
    }
    return true;
}

static bool read_chunks(int fd, cli_buffer *body)
{
    for (;;) {
        cli_buffer line = { 0 };
        size_t n;
        if (!read_line(fd, &line, 0)) {
            cli_buffer_free(&line);
            return false;
        }
        n = strtoul(line.data, NULL, 16);
        cli_buffer_free(&line);
        if (!read_n(fd, body, n) || !read_line(fd, &line, 0)) return false;
        cli_buffer_free(&line);
        if (n == 0) return true;
    }
}

reply hear(int fd)
{
    reply a = { 0 };
    cli_buffer head = { 0 }, body = { 0 };
    const char *length, *coding;
    size_t from = 0;
    CHECK(cli_buffer_reserve(&head, 1) && cli_buffer_reserve(&body, 1));
    do {
        from = head.n;
        if (!read_line(fd, &head, from)) break;
    } while (head.n > from + 2 || from == 0);
    a.head = head.data;
    sscanf(head.data, "HTTP/1.1 %d", &a.status);
    length = reply_header(&a, "Content-Length");
    if (length) a.cut = !read_n(fd, &body, strtoul(length, NULL, 10));
    coding = reply_header(&a, "Transfer-Encoding");
    if (coding && strcasecmp(coding, "chunked") == 0) a.cut = !read_chunks(fd, &body);
    a.body = body.data;
    a.n_body = body.n;
    return a;
}

bool hung_up(int fd)
{
    cli_buffer b = { 0 };
    while (more(fd, &b, 4096)) {}
    cli_buffer_free(&b);
    return true;
}

char *hear_some(int fd)
{
    cli_buffer b = { 0 };
    CHECK(cli_buffer_reserve(&b, 1));
    more(fd, &b, 4096);
    return b.data;
}

void reply_free(reply *a)
{
    free(a->head);
    free(a->body);
}

const char *reply_header(const reply *a, const char *name)
{
    static _Thread_local char value[256];
    for (const char *line = strstr(a->head, "\r\n"); line; line = strstr(line + 2, "\r\n")) {
        size_t n = strlen(name);
        if (strncasecmp(line + 2, name, n) != 0 || line[2 + n] != ':') continue;
        snprintf(value, sizeof value, "%.*s", (int)strcspn(line + 4 + n, "\r"), line + 4 + n);
        return value;
    }
    return NULL;
}

static void send_request(int fd, const char *method, const char *path, const char *headers, const char *body)
{
    size_t n = body ? strlen(body) : 0, room = n + strlen(path) + strlen(headers) + 256;
    char *text = malloc(room);
    snprintf(text, room, "%s %s HTTP/1.1\r\nHost: 127.0.0.1\r\n%sContent-Length: %zu\r\n\r\n%s", method, path, headers, n,
             body ? body : "");
    say(fd, text);
    free(text);
}

void post(int fd, const char *path, const char *body)
{
    send_request(fd, "POST", path, "Content-Type: application/json\r\n", body);
}

reply ask_with(http_rig *r, const char *method, const char *path, const char *headers, const char *body)
{
    int fd = dial(r);
    reply a;
    send_request(fd, method, path, headers, body);
    a = hear(fd);
    close(fd);
    return a;
}

reply ask(http_rig *r, const char *method, const char *path, const char *body)
{
    return ask_with(r, method, path, body ? "Content-Type: application/json\r\n" : "", body);
}

void expect_reply(reply a, int status, const char *text)
{
    check_context("expected %d \"%s\", got %d %s %s", status, text, a.status, a.head, a.body);
    CHECK(a.status == status);
    CHECK(strstr(a.body, text) != NULL);
    CHECK(!a.cut);
    reply_free(&a);
}
