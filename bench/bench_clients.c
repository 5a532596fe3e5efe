/*
 * bench_clients.c - clients of `h2okv serve`: tokens a second over all of them and the time to the first token, with
 * its defaults and with a budget that keeps everything, beside llama.cpp's own server with as many slots.
 *
 *   servers  all run all the time, and the idle ones sleep
 *   round    1, 4, 16 clients:  each server in turn:  all their requests at once, each over a connection of its own
 *   request  a prompt of about 1,024 tokens that begins as no other does, so that nothing can be reused; 128 new
 *            tokens, streamed, temperature 0
 *
 *   bench_clients [--json] [--rounds N] [--llama-server FILE] [THREADS]
 */
#define _POSIX_C_SOURCE 200809L

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "timing.h"

enum { SLOTS = 4, NEW = 128, CELLS = 1280, MOST_CLIENTS = 16, MOST_ROUNDS = 20, START_SECONDS = 120, SECONDS = 600 };
enum { LEVELS = 3 };
static const uint32_t clients[LEVELS] = {1, 4, 16}, bursts[LEVELS] = {4, 1, 1}; /* of a round */

enum { DEFAULTS, KEEPS_ALL, LLAMA, SYSTEMS };
static const char *const names[SYSTEMS] = {"h2okv serve", "h2okv serve, nothing evicted", "llama-server"};
static const char *const keys[SYSTEMS] = {"h2okv", "h2okv-all", "llama-server"};

enum { MOST_REQUESTS = MOST_ROUNDS * MOST_CLIENTS };

/* What came of one system with so many clients. */
typedef struct results {
    double tok_s[MOST_REQUESTS], first[MOST_REQUESTS]; /* of each burst; seconds of each request */
    uint32_t n_bursts, n_requests;
    uint64_t prompt_tokens, new_tokens;
} results;

typedef struct server {
    pid_t pid; /* 0: none */
    uint16_t port;
    uint64_t peak_bytes;
    results level[LEVELS];
} server;

typedef struct request {
    int fd;
    char *reply; /* all that came, ending in \0 */
    size_t n, room;
    double first, end; /* 0: not yet */
} request;

static server servers[SYSTEMS];
static uint32_t asked; /* prompts made so far */

/* ---- Small things ---- */

static void check(bool ok, const char *what, const char *detail)
{
    if (!ok) {
        fprintf(stderr, "bench_clients: %s failed%s%s\n", what, detail ? ": " : "", detail ? detail : "");
        exit(6);
    }
}

/* The least value that so many percent are not above; sorts. */
static double percentile(double *values, size_t n, size_t percent)
{
    qsort(values, n, sizeof *values, by_value);
    return values[(n * percent + 99) / 100 - 1];
}

/* ---- Servers ---- */

static struct sockaddr_in address_of(uint16_t port)
{
    return (struct sockaddr_in){
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
}

static uint16_t free_port(void)
{
    struct sockaddr_in address = address_of(0);
    socklen_t size = sizeof address;
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    bool ok = fd >= 0 && !bind(fd, (struct sockaddr *)&address, size) &&
              !getsockname(fd, (struct sockaddr *)&address, &size);
    check(ok, "finding a free port", NULL);
    close(fd);
    return ntohs(address.sin_port);
}

static int connect_to(uint16_t port)
{
    struct sockaddr_in address = address_of(port);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (fd >= 0 && !connect(fd, (struct sockaddr *)&address, sizeof address)) {
        return fd;
    }
    if (fd >= 0) {
        close(fd);
    }
    return -1;
}

static bool is_healthy(uint16_t port)
{
    static const char ask[] = "GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    char line[16] = "";
    int fd = connect_to(port);
    if (fd < 0) {
        return false;
    }
    bool ok = write(fd, ask, sizeof ask - 1) == sizeof ask - 1 && read(fd, line, sizeof line - 1) >= 12 &&
              strncmp(line + 8, " 200", 4) == 0;
    close(fd);
    return ok;
}

static void start(server *s, char *const *command)
{
    s->pid = fork();
    check(s->pid >= 0, "starting a process", NULL);
    if (s->pid == 0) {
        int nowhere = open("/dev/null", O_WRONLY);
        dup2(nowhere, STDOUT_FILENO);
        dup2(nowhere, STDERR_FILENO);
        signal(SIGPIPE, SIG_DFL);
        execv(command[0], command);
        _exit(127);
    }
    for (double end = now_seconds() + START_SECONDS; !is_healthy(s->port);) {
        struct timespec moment = {.tv_nsec = 50000000};
        bool gone = waitpid(s->pid, NULL, WNOHANG) != 0;
        s->pid = gone ? 0 : s->pid;
        check(!gone && now_seconds() < end, "starting a server", command[0]);
        nanosleep(&moment, NULL);
    }
}

static void start_h2okv(server *s, const char *threads, bool keeps_all)
{
    char port[8], slots[8], cells[8];
    s->port = free_port();
    snprintf(port, sizeof port, "%u", s->port);
    snprintf(slots, sizeof slots, "%d", SLOTS);
    snprintf(cells, sizeof cells, "%d", CELLS);
    char *command[] = {H2OKV_BENCH_PROGRAM, "serve", "-m", H2OKV_BENCH_MODEL, "--port", port, "--slots", slots,
                       "--threads", (char *)threads, keeps_all ? "--budget" : NULL, cells, NULL};
    start(s, command);
}

/* As it comes, with cells for a prompt and its answer in each slot; the store of old prompts in memory is off, for no
 * prompt comes again. */
static void start_llama(server *s, const char *threads, const char *program)
{
    char port[8], slots[8], cells[8];
    s->port = free_port();
    snprintf(port, sizeof port, "%u", s->port);
    snprintf(slots, sizeof slots, "%d", SLOTS);
    snprintf(cells, sizeof cells, "%d", SLOTS * CELLS);
    char *command[] = {(char *)program, "-m", H2OKV_BENCH_MODEL, "--port", port, "-np", slots, "-c", cells,
                       "-t", (char *)threads, "--cache-ram", "0", NULL};
    start(s, command);
}

static uint64_t peak_of(pid_t pid)
{
    char path[32], line[128];
    unsigned long long kib = 0;
    snprintf(path, sizeof path, "/proc/%ld/status", (long)pid);
    FILE *file = fopen(path, "r");
    while (file && fgets(line, sizeof line, file)) {
        if (strncmp(line, "VmHWM:", 6) == 0) {
            kib = strtoull(line + 6, NULL, 10);
        }
    }
    if (file) {
        fclose(file);
    }
    return kib * 1024;
}

static void stop_servers(void)
{
    for (uint32_t i = 0; i < SYSTEMS; i++) {
        if (servers[i].pid > 0) {
            kill(servers[i].pid, SIGTERM);
            waitpid(servers[i].pid, NULL, 0);
            servers[i].pid = 0;
        }
    }
}

static void interrupted(int number)
{
    for (uint32_t i = 0; i < SYSTEMS; i++) {
        if (servers[i].pid > 0) {
            kill(servers[i].pid, SIGKILL);
        }
    }
    _exit(128 + number);
}

/* ---- Requests ---- */

/* Words of one token each, for the default model. A short last paragraph is what h2okv reads the rest in mind of. */
static size_t write_prompt(char *out, size_t room)
{
    static const char *const words[] = {
        "the", "of", "and", "to", "in", "is", "that", "for", "it", "as", "was", "with", "be", "by", "on", "not",
        "he", "his", "but", "at", "are", "this", "have", "from", "or", "had", "an", "they", "which", "one", "you",
        "were", "all", "her", "she", "there", "would", "their", "we", "him", "been", "has", "when", "who", "will",
        "more", "no", "if", "out", "so", "up", "said", "what", "its", "about", "than", "into", "them", "can", "only",
        "other", "time", "new", "some", "could", "these", "two", "may", "first", "then", "do", "any", "like", "my"};
    uint32_t random = ++asked * 2654435761u;
    size_t n = (size_t)snprintf(out, room, "%u:", asked);
    for (uint32_t i = 0; i < 1000; i++) {
        random = random * 1664525u + 1013904223u;
        n += (size_t)snprintf(out + n, room - n, " %s", words[(random >> 16) % (sizeof words / sizeof *words)]);
    }
    return n + (size_t)snprintf(out + n, room - n, ".\\n\\nWhat has been said before, in other words, is that");
}

static void ask(request *r, uint16_t port)
{
    static char prompt[8192], body[9000], all[9300];
    write_prompt(prompt, sizeof prompt);
    int n = snprintf(body, sizeof body, "{\"prompt\": \"%s\", \"max_tokens\": %d, \"temperature\": 0, "
                     "\"stream\": true, \"stream_options\": {\"include_usage\": true}}", prompt, NEW);
    n = snprintf(all, sizeof all, "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
                 "Content-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", n, body);
    *r = (request){.fd = connect_to(port)};
    check(r->fd >= 0 && write(r->fd, all, (size_t)n) == n, "sending a request", NULL);
}

/* True: a text is in what came. */
static bool has_text(const char *reply)
{
    static const char key[] = "\"text\":\"";
    for (const char *at = reply; (at = strstr(at, key)) != NULL;) {
        at += sizeof key - 1;
        if (*at != '\0' && *at != '"') {
            return true;
        }
    }
    return false;
}

/* Takes what came; at the end closes. */
static void receive(request *r)
{
    if (r->n + 65536 > r->room) {
        r->room = 2 * r->room + 131072;
        r->reply = realloc(r->reply, r->room);
        check(r->reply != NULL, "memory", NULL);
    }
    ssize_t n = read(r->fd, r->reply + r->n, r->room - r->n - 1);
    double time = now_seconds();
    check(n >= 0, "receiving an answer", NULL);
    r->n += (size_t)n;
    r->reply[r->n] = '\0';
    if (r->first == 0 && has_text(r->reply)) {
        r->first = time;
    }
    if (n == 0) {
        close(r->fd);
        r->fd = -1;
        r->end = time;
    }
}

/* The number behind the last such key. Both servers send an event in one piece, so no key is cut. */
static uint64_t last_number(const char *reply, const char *key)
{
    const char *last = NULL;
    for (const char *at = reply; (at = strstr(at, key)) != NULL; at += strlen(key)) {
        last = at + strlen(key);
    }
    check(last != NULL, "finding the usage in an answer", reply);
    return strtoull(last + strspn(last, "\": "), NULL, 10);
}

static void wait_for(request *list, uint32_t n)
{
    struct pollfd waits[MOST_CLIENTS];
    double end = now_seconds() + SECONDS;
    for (uint32_t left = n; left > 0;) {
        for (uint32_t i = 0; i < n; i++) {
            waits[i] = (struct pollfd){.fd = list[i].fd, .events = POLLIN}; /* below 0: not looked at */
        }
        check(poll(waits, n, 1000) >= 0 && now_seconds() < end, "waiting for answers", NULL);
        for (uint32_t i = 0; i < n; i++) {
            if (waits[i].fd >= 0 && waits[i].revents) {
                receive(&list[i]);
                left -= list[i].fd < 0;
            }
        }
    }
}

static void burst(server *s, uint32_t n, results *out)
{
    request list[MOST_CLIENTS];
    uint64_t tokens = 0;
    double began = now_seconds(), end = began;
    for (uint32_t i = 0; i < n; i++) {
        ask(&list[i], s->port);
    }
    wait_for(list, n);
    for (uint32_t i = 0; i < n; i++) {
        check(list[i].first > 0, "an answer's text", list[i].reply);
        tokens += last_number(list[i].reply, "\"completion_tokens\"");
        out->prompt_tokens += last_number(list[i].reply, "\"prompt_tokens\"");
        out->first[out->n_requests++] = list[i].first - began;
        end = list[i].end > end ? list[i].end : end;
        free(list[i].reply);
    }
    out->new_tokens += tokens;
    out->tok_s[out->n_bursts++] = (double)tokens / (end - began);
}

static void measure(uint32_t rounds)
{
    for (uint32_t i = 0; i < SYSTEMS; i++) {
        results warm = {0};
        if (servers[i].pid > 0) {
            burst(&servers[i], SLOTS, &warm);
        }
    }
    for (uint32_t round = 0; round < rounds; round++) {
        for (uint32_t l = 0; l < LEVELS; l++) {
            for (uint32_t i = 0; i < bursts[l] * SYSTEMS; i++) {
                server *s = &servers[i % SYSTEMS];
                if (s->pid > 0) {
                    burst(s, clients[l], &s->level[l]);
                }
            }
        }
    }
    for (uint32_t i = 0; i < SYSTEMS; i++) {
        servers[i].peak_bytes = servers[i].pid > 0 ? peak_of(servers[i].pid) : 0;
    }
}

/* ---- What came of it ---- */

static void print_json(const char *threads)
{
    const char *between = "";
    printf("{\"threads\": %s, \"slots\": %d, \"rows\": [", threads, SLOTS);
    for (uint32_t l = 0; l < LEVELS; l++) {
        for (uint32_t i = 0; i < SYSTEMS; i++) {
            results *r = &servers[i].level[l];
            if (r->n_requests == 0) {
                continue;
            }
            printf("%s{\"clients\": %u, \"system\": \"%s\", \"tok_s\": %.2f, \"first_p50_s\": %.3f, "
                   "\"first_p95_s\": %.3f, \"requests\": %u, \"prompt_tokens\": %llu, \"new_tokens\": %llu, "
                   "\"peak_bytes\": %llu}", between, clients[l], keys[i], percentile(r->tok_s, r->n_bursts, 50),
                   percentile(r->first, r->n_requests, 50), percentile(r->first, r->n_requests, 95), r->n_requests,
                   (unsigned long long)r->prompt_tokens, (unsigned long long)r->new_tokens,
                   (unsigned long long)servers[i].peak_bytes);
            between = ", ";
        }
    }
    puts("]}");
}

static void print_text(const char *threads)
{
    printf("clients at once, each with a prompt of some 1,024 tokens and %d new ones; %d slots, %s threads\n"
           "  %7s %-29s %6s %12s %12s %9s %7s %6s\n", NEW, SLOTS, threads, "clients", "server", "tok/s",
           "first s, p50", "first s, p95", "peak MiB", "prompt", "new");
    for (uint32_t l = 0; l < LEVELS; l++) {
        for (uint32_t i = 0; i < SYSTEMS; i++) {
            results *r = &servers[i].level[l];
            if (r->n_requests == 0) {
                continue;
            }
            printf("  %7u %-29s %6.1f %12.2f %12.2f %9.0f %7.0f %6.1f\n", clients[l], names[i],
                   percentile(r->tok_s, r->n_bursts, 50), percentile(r->first, r->n_requests, 50),
                   percentile(r->first, r->n_requests, 95), (double)servers[i].peak_bytes / (1 << 20),
                   (double)r->prompt_tokens / r->n_requests, (double)r->new_tokens / r->n_requests);
        }
    }
    puts("tok/s: new ones, over all clients, the waiting for first tokens included; medians of the bursts\n"
         "prompt, new: tokens of a request, as the server counts them");
    if (servers[LLAMA].level[0].n_requests == 0) {
        puts("llama-server: not there; `make bench LLAMA=source` builds it, --llama-server FILE names one");
    }
}

int main(int argc, char **argv)
{
    const char *llama = access(H2OKV_BENCH_LLAMA_SERVER, X_OK) == 0 ? H2OKV_BENCH_LLAMA_SERVER : NULL;
    const char *threads = "2";
    uint32_t rounds = 1;
    bool json = false;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--json") == 0) {
            json = true;
        } else if (strcmp(argv[i], "--rounds") == 0 && i + 1 < argc) {
            rounds = (uint32_t)strtoul(argv[++i], NULL, 10);
        } else if (strcmp(argv[i], "--llama-server") == 0 && i + 1 < argc) {
            llama = argv[++i];
        } else {
            threads = argv[i];
        }
    }
    check(atoi(threads) > 0, "reading the number of threads", threads);
    check(rounds > 0 && rounds <= MOST_ROUNDS, "reading --rounds (1 to 20)", NULL);
    signal(SIGPIPE, SIG_IGN);
    signal(SIGINT, interrupted);
    signal(SIGTERM, interrupted);
    atexit(stop_servers);
    start_h2okv(&servers[DEFAULTS], threads, false);
    start_h2okv(&servers[KEEPS_ALL], threads, true);
    if (llama) {
        start_llama(&servers[LLAMA], threads, llama);
    }
    measure(rounds);
    (json ? print_json : print_text)(threads);
    return 0;
}
