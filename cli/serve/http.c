/*
 * http.c - the daemon: where it listens, how a request comes in, and the end.
 *
 *   request line, headers -> handle (route_find) -> body, piece by piece -> handle (route_answer) -> completed
 */
#include "http.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

enum { HEADER_BYTES = 65536, STACK_BYTES = 1 << 20, BACKLOG = 128, SPARE = 16 };

/* ---- Requests ------------------------------------------------------------------------------------------ */

static void too_long(const serve_http *h, api_error *e)
{
    api_fail(e, 413, NULL, "body_too_large", "the body is longer than %zu bytes (--max-body)", h->o->most_body);
}

/* Headers are there. A body that says beforehand that it is too long is refused at once: libmicrohttpd then closes. */
static enum MHD_Result begin(serve_http *h, struct MHD_Connection *mhd, const char *path, const char *method,
                             void **state)
{
    const union MHD_ConnectionInfo *info = MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    const char *length = MHD_lookup_connection_value(mhd, MHD_HEADER_KIND, "Content-Length");
    http_exchange *x = calloc(1, sizeof *x);
    if (!x || !info || !info->socket_context) {
        free(x);
        return MHD_NO;
    }
    x->h = h;
    x->c = info->socket_context;
    x->mhd = mhd;
    *state = x;
    route_find(x, path, method);
    if (!x->early.status && guard_crowded(h)) {
        api_fail(&x->early, 503, NULL, "too_many_connections", "all %u connections are in use: try again later",
                 (unsigned)h->o->connections);
    }
    if (!length || strtoull(length, NULL, 10) <= h->o->most_body) return MHD_YES;
    if (!x->early.status) too_long(h, &x->early);
    x->whole = true;
    return exchange_fail(x, &x->early);
}

/* A piece of the body. Past the limit it is thrown away, so that the client hears of it; past twice the limit the
 * connection ends. */
static enum MHD_Result receive(http_exchange *x, const char *bytes, size_t *n)
{
    size_t most = x->h->o->most_body;
    x->taken = *n > SIZE_MAX - x->taken ? SIZE_MAX : x->taken + *n;
    if (x->taken / 2 > most) return MHD_NO;
    if (!x->early.status && x->taken > most) too_long(x->h, &x->early);
    if (!x->early.status && !cli_buffer_add(&x->body, bytes, *n)) {
        api_fail(&x->early, 500, NULL, "out_of_memory", "the server has no memory left: try again later");
    }
    if (x->early.status) cli_buffer_free(&x->body);
    *n = 0;
    return MHD_YES;
}

static enum MHD_Result handle(void *user, struct MHD_Connection *mhd, const char *path, const char *method,
                              const char *version, const char *bytes, size_t *n, void **state)
{
    http_exchange *x = *state;
    (void)version;
    if (!x) return begin(user, mhd, path, method, state);
    if (*n > 0) return receive(x, bytes, n);
    if (x->whole) return MHD_YES;
    x->whole = true;
    guard_phase(x->h, x->c, HTTP_SERVES);
    return route_answer(x);
}

static void completed(void *user, struct MHD_Connection *mhd, void **state, enum MHD_RequestTerminationCode why)
{
    http_exchange *x = *state;
    (void)user;
    (void)mhd;
    (void)why;
    if (!x) return;
    guard_phase(x->h, x->c, HTTP_WAITS);
    exchange_free(x);
    *state = NULL;
}

static void connected(void *user, struct MHD_Connection *mhd, void **context, enum MHD_ConnectionNotificationCode what)
{
    const union MHD_ConnectionInfo *info = MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_CONNECTION_FD);
    if (what == MHD_CONNECTION_NOTIFY_STARTED) {
        *context = info ? guard_add(user, info->connect_fd) : NULL;
    } else if (*context) {
        guard_remove(user, *context);
        *context = NULL;
    }
}

/* ---- Listening ----------------------------------------------------------------------------------------- */

static bool is_loopback(const struct sockaddr *a)
{
    if (a->sa_family == AF_INET) {
        return ntohl(((const struct sockaddr_in *)(const void *)a)->sin_addr.s_addr) >> 24 == 127;
    }
    return IN6_IS_ADDR_LOOPBACK(&((const struct sockaddr_in6 *)(const void *)a)->sin6_addr);
}

static int listen_at(serve_http *h, const struct addrinfo *a)
{
    struct sockaddr_storage got = { 0 };
    socklen_t n = sizeof got;
    int yes = 1, fd = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0) return -1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    if (bind(fd, a->ai_addr, a->ai_addrlen) || listen(fd, BACKLOG) || getsockname(fd, (struct sockaddr *)&got, &n)) {
        int error = errno;
        close(fd);
        errno = error;
        return -1;
    }
    h->loopback = is_loopback((const struct sockaddr *)&got);
    h->port = ntohs(got.ss_family == AF_INET ? ((struct sockaddr_in *)&got)->sin_port
                                             : ((struct sockaddr_in6 *)&got)->sin6_port);
    return fd;
}

/* -1: an error has been printed. */
static int open_socket(serve_http *h)
{
    struct addrinfo hints = { .ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE }, *found;
    char port[16];
    int fd, wrong;
    snprintf(port, sizeof port, "%u", (unsigned)h->o->port);
    wrong = getaddrinfo(h->o->host, port, &hints, &found);
    if (wrong) {
        cli_error("serve", "--host '%s': %s", h->o->host, gai_strerror(wrong));
        return -1;
    }
    fd = listen_at(h, found);
    if (fd < 0) {
        cli_error("serve", "cannot listen on %s, port %s: %s%s", h->o->host, port, strerror(errno),
                  errno == EADDRINUSE ? "; --port 0 takes a free one" : "");
    }
    freeaddrinfo(found);
    return fd;
}

/* ---- The daemon ---------------------------------------------------------------------------------------- */

static void log_line(void *user, const char *format, va_list arguments)
{
    const serve_http *h = user;
    if (h->o->verbose) vfprintf(stderr, format, arguments);
}

static bool start_daemon(serve_http *h, int fd)
{
    h->daemon = MHD_start_daemon(
        MHD_USE_AUTO | MHD_USE_INTERNAL_POLLING_THREAD | MHD_USE_THREAD_PER_CONNECTION |
            MHD_USE_ITC | MHD_USE_ERROR_LOG,
        0, NULL, NULL, handle, h, MHD_OPTION_EXTERNAL_LOGGER, log_line, h, MHD_OPTION_LISTEN_SOCKET, fd,
        MHD_OPTION_NOTIFY_COMPLETED, completed, h, MHD_OPTION_NOTIFY_CONNECTION, connected, h,
        MHD_OPTION_CONNECTION_LIMIT, (unsigned)h->o->connections + SPARE,
        MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)HEADER_BYTES, MHD_OPTION_THREAD_STACK_SIZE, (size_t)STACK_BYTES,
        MHD_OPTION_STRICT_FOR_CLIENT, 1, MHD_OPTION_END);
    return h->daemon != NULL;
}

/* Threads that start now get no signals: they are the main thread's, and a client that is gone is no reason to end. */
static void without_signals(sigset_t *before)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGHUP);
    sigaddset(&set, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &set, before);
}

static int start_threads(serve_http *h)
{
    sigset_t before;
    bool good;
    int fd = open_socket(h);
    if (fd < 0) return CLI_USAGE;
    without_signals(&before);
    good = guard_start(h) && start_daemon(h, fd);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (good) return CLI_OK;
    close(fd);
    cli_error("serve", "cannot start the threads of HTTP: %s", strerror(errno));
    return CLI_ENGINE;
}

/* Whatever bytes the file's name had, the model's is text. */
static bool copy_name(serve_http *h, const serve_model *model)
{
    cli_utf8 u = { { 0 }, 0 };
    size_t n = strlen(model->name);
    h->name = malloc(CLI_UTF8_ROOM(n));
    if (!h->name) return false;
    h->name[cli_utf8_take(&u, model->name, n, h->name)] = '\0';
    h->model.name = h->name;
    return true;
}

static void free_all(serve_http *h)
{
    serve_lock_destroy(&h->lock);
    free(h->name);
    free(h);
}

static void announce(const serve_http *h)
{
    bool v6 = strchr(h->o->host, ':') != NULL;
    printf("h2okv serve: http://%s%s%s:%u, model %s\n", v6 ? "[" : "", h->o->host, v6 ? "]" : "", (unsigned)h->port,
           h->model.name);
    fflush(stdout);
}

int http_start_within(serve_http **out, const serve_options *o, const serve_model *model, serve_queue *q,
                      serve_stats *s, const http_limits *limits)
{
    serve_http *h = calloc(1, sizeof *h);
    int code = CLI_ENGINE;
    if (!h || !serve_lock_init(&h->lock)) {
        free(h);
        cli_error("serve", "out of memory");
        return CLI_ENGINE;
    }
    h->o = o;
    h->model = *model;
    h->q = q;
    h->stats = s;
    h->limits = *limits;
    h->rules = (api_rules){ &h->model, o->most_tokens, o->cache.guide != 0, cache_uses_scores(o->cache.policy) };
    if (copy_name(h, model)) code = start_threads(h);
    else cli_error("serve", "out of memory");
    if (code) {
        guard_end(h);
        free_all(h);
        return code;
    }
    if (!h->loopback && !o->api_key) {
        cli_warn("serve", "whoever reaches %s can use this server: give --api-key-file, or H2OKV_API_KEY", o->host);
    }
    announce(h);
    *out = h;
    return CLI_OK;
}

int http_start(serve_http **out, const serve_options *o, const serve_model *model, serve_queue *q, serve_stats *s)
{
    static const http_limits limits = { .request = 60, .write = 30, .late = 5, .stop = 10 };
    return http_start_within(out, o, model, q, s, &limits);
}

uint16_t http_port(const serve_http *h)
{
    return h->port;
}

void http_stop(serve_http *h)
{
    MHD_socket fd;
    if (!h) return;
    fd = MHD_quiesce_daemon(h->daemon);
    guard_wait_for_all(h, h->limits.stop);
    MHD_stop_daemon(h->daemon); /* cuts those that are left: whoever waits for the engine sees it */
    guard_end(h);
    if (fd != MHD_INVALID_SOCKET) close(fd);
    free_all(h);
}
