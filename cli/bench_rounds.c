/*
 * bench_rounds.c - the rounds of `h2okv bench`: each sample comes from a child of its own, so that its peak
 * memory is its own and nothing is left over from the one before it.
 *
 *   round 1:  point 0, point 1, ...    round 2:  point 0, point 1, ...    then the kernels
 *
 *   parent  fork -> poll pipe, progress, Ctrl-C -> sample   child  work -> sample into the pipe -> exit code
 *
 * The parent never loads a model: a child starts with what its parent holds.
 */
#include "bench.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static const char *const command = "bench";
enum { TICK_MS = 200 };

/* ---- Ctrl-C ------------------------------------------------------------------------------------------- */

static volatile sig_atomic_t interrupted;

static void on_signal(int number)
{
    if (interrupted) { /* the second time */
        signal(number, SIG_DFL);
        raise(number);
    }
    interrupted = 1;
}

static void catch_signals(void (*handler)(int))
{
    struct sigaction action = { .sa_handler = handler };
    sigemptyset(&action.sa_mask);
    if (!cli_signal_ignored(SIGINT)) sigaction(SIGINT, &action, NULL);
    if (!cli_signal_ignored(SIGTERM)) sigaction(SIGTERM, &action, NULL);
}

/* ---- Progress ----------------------------------------------------------------------------------------- */

typedef struct progress {
    bool shown;
    uint32_t done, total;
    char what[64];
    double left; /* seconds, when this sample began */
    double start;
} progress;

static void show(const progress *p)
{
    char line[160], bar[32];
    double left = p->left - (cli_seconds() - p->start);
    int width = cli_width(stderr) - 1, used;
    if (!p->shown) return;
    cli_bar(bar, 24, p->done, p->total);
    used = snprintf(line, sizeof line, "bench [%-24s] %" PRIu32 "/%" PRIu32 "  %s", bar, p->done, p->total,
                    p->what);
    if (p->left > 0 && used > 0 && (size_t)used < sizeof line) {
        snprintf(line + used, sizeof line - (size_t)used, left < 60 ? "  %.0f s left" : "  %.0f min left",
                 left < 60 ? (left > 1 ? left : 1) : left / 60 + 0.5);
    }
    if (width > 0 && width < (int)sizeof line) line[width] = '\0';
    fprintf(stderr, "\r%s\033[K", line);
    fflush(stderr);
}

static void wipe(const progress *p)
{
    if (!p->shown) return;
    fputs("\r\033[K", stderr);
    fflush(stderr);
}

/* ---- A child ------------------------------------------------------------------------------------------ */

typedef int (*child_work)(const bench *b, const void *what, void *result);

static void write_all(int fd, const void *bytes, size_t n)
{
    const char *at = bytes;
    while (n > 0) {
        ssize_t wrote = write(fd, at, n);
        if (wrote < 0 && errno != EINTR) return;
        if (wrote > 0) {
            at += wrote;
            n -= (size_t)wrote;
        }
    }
}

static void be_child(const bench *b, child_work work, const void *what, void *result, size_t size, int fd,
                     FILE *says)
{
    int code;
    catch_signals(SIG_DFL);
    dup2(fileno(says), STDERR_FILENO);
    code = work(b, what, result);
    if (code == CLI_OK) write_all(fd, result, size);
    fflush(NULL);
    _exit(code);
}

/* Reads until the child closes its end or Ctrl-C; returns the bytes that came. */
static size_t listen_to(int fd, void *result, size_t size, const progress *p)
{
    size_t n = 0;
    while (!interrupted && n < size) {
        struct pollfd polled = { fd, POLLIN, 0 };
        ssize_t got = 0;
        show(p);
        if (poll(&polled, 1, TICK_MS) <= 0) continue;
        got = read(fd, (char *)result + n, size - n);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) break;
        n += (size_t)got;
    }
    return n;
}

/* What the child wrote to its stderr, now that no progress line is in the way. */
static void pass_on(FILE *says)
{
    char bytes[1024];
    size_t n;
    rewind(says);
    while ((n = fread(bytes, 1, sizeof bytes, says)) > 0) fwrite(bytes, 1, n, stderr);
    fclose(says);
}

static int reap(pid_t pid, bool whole)
{
    int status;
    if (interrupted) kill(pid, SIGKILL);
    while (waitpid(pid, &status, 0) < 0) {
        if (errno != EINTR) return CLI_ENGINE;
        if (interrupted) kill(pid, SIGKILL);
    }
    if (interrupted) return CLI_STOPPED;
    if (WIFSIGNALED(status)) {
        cli_error(command, "a measurement was ended by signal %d", WTERMSIG(status));
        return CLI_ENGINE;
    }
    if (WEXITSTATUS(status)) return WEXITSTATUS(status);
    return whole ? CLI_OK : CLI_ENGINE;
}

static int in_child(const bench *b, child_work work, const void *what, void *result, size_t size,
                    const progress *p)
{
    int ends[2] = { -1, -1 }, code;
    FILE *says = tmpfile();
    pid_t pid = -1;
    size_t n;
    fflush(NULL);
    if (says && pipe(ends) == 0) pid = fork();
    if (pid == 0) be_child(b, work, what, result, size, ends[1], says);
    if (pid < 0) {
        cli_error(command, "cannot start a measurement: %s", strerror(errno));
        if (says) fclose(says);
        return CLI_ENGINE;
    }
    close(ends[1]);
    n = listen_to(ends[0], result, size, p);
    close(ends[0]);
    code = reap(pid, n == size);
    wipe(p);
    pass_on(says);
    return code;
}

/* ---- Time --------------------------------------------------------------------------------------------- */

/* How long a sample may take, in any unit: reading costs llama.cpp the square of the context. */
static double weight(const bench_point *p)
{
    double c = p->context, tokens = c + 2000;
    bool plain = p->system == BENCH_LLAMA_FA || p->system == BENCH_LLAMA || p->system == BENCH_FUSED_ALL;
    return plain ? tokens + c * c / 3000 : tokens;
}

/* Seconds for a sample of `p`: as last time, or by its weight; 0 while nothing is known. */
static double expected(const bench *b, const bench_point *p)
{
    double seconds = 0, weights = 0;
    if (p->seconds > 0) return p->seconds;
    for (uint32_t i = 0; i < b->n_points; i++) {
        if (b->point[i].n == 0) continue;
        seconds += b->point[i].seconds;
        weights += weight(&b->point[i]);
    }
    return weights > 0 ? weight(p) * seconds / weights : 0;
}

static double time_left(const bench *b, uint32_t round, uint32_t at, double elapsed)
{
    double left = 0, rest = b->options->minutes * 60 - elapsed;
    double least = 0; /* the first round is always finished */
    for (uint32_t r = round; r < b->options->repeat; r++) {
        for (uint32_t i = r == round ? at : 0; i < b->n_points; i++) left += expected(b, &b->point[i]);
        if (r == 0) least = left;
    }
    if (left > rest) left = rest;
    return left > least ? left : least;
}

/* ---- Rounds ------------------------------------------------------------------------------------------- */

static int point_work(const bench *b, const void *what, void *result)
{
#ifdef H2OKV_HAVE_LLAMA
    return bench_run_point(b, what, result);
#else
    (void)b; /* cmd_bench.c lets no point come this far */
    (void)what;
    (void)result;
    return CLI_MISSING;
#endif
}

static int kernel_work(const bench *b, const void *what, void *result)
{
    (void)what;
    return bench_run_kernels(b->options, result);
}

static int measure_point(bench *b, bench_point *point, progress *p)
{
    char context[16];
    double start = cli_seconds();
    int code;
    snprintf(p->what, sizeof p->what, "%s %s", bench_system_names[point->system],
             bench_context_name(context, point->context));
    p->start = start;
    code = in_child(b, point_work, point, &point->sample[point->n], sizeof point->sample[0], p);
    if (code) return code;
    point->n++;
    point->seconds = cli_seconds() - start;
    return CLI_OK;
}

static int measure_rounds(bench *b, progress *p, double start)
{
    const bench_options *o = b->options;
    int code = CLI_OK;
    for (uint32_t round = 0; round < o->repeat && !code; round++) {
        for (uint32_t i = 0; i < b->n_points && !code; i++, p->done++) {
            double elapsed = cli_seconds() - start;
            if (round > 0 && elapsed + expected(b, &b->point[i]) > o->minutes * 60) continue;
            p->left = time_left(b, round, i, elapsed);
            code = measure_point(b, &b->point[i], p);
        }
    }
    return code;
}

int bench_measure(bench *b)
{
    progress p = { .shown = !b->options->quiet && cli_is_terminal(stderr),
                   .total = b->options->repeat * b->n_points + 1 };
    double start = cli_seconds();
    int code;
    catch_signals(on_signal);
    code = measure_rounds(b, &p, start);
    if (!code) {
        bench_kernels kernels = { 0 };
        snprintf(p.what, sizeof p.what, "kernels");
        p.left = 0;
        code = in_child(b, kernel_work, NULL, &kernels, sizeof kernels, &p);
        if (!code) b->kernels = kernels;
    }
    b->seconds = cli_seconds() - start;
    b->stopped = code == CLI_STOPPED;
    return b->stopped ? CLI_OK : code;
}
