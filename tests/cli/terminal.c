/* terminal.c - see terminal.h. */
#define _GNU_SOURCE 1
#include "terminal.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { PATIENCE = 120 };

static void child(const char *path, const char *const *arguments)
{
    static const char *const environment[][2] = { { "LC_ALL", "C.UTF-8" }, { "TERM", "xterm" }, { "NO_COLOR", "1" },
                                                  { "HOME", "/nonexistent" } };
    struct winsize size = { .ws_row = 24, .ws_col = 80 };
    char *argv[64] = { (char *)(uintptr_t)H2OKV_TEST_CLI };
    size_t n = 1;
    int fd;
    for (; arguments[n - 1] && n < 63; n++) argv[n] = (char *)(uintptr_t)arguments[n - 1];
    setsid();
    fd = open(path, O_RDWR);
    if (fd < 0 || ioctl(fd, TIOCSCTTY, 0) || ioctl(fd, TIOCSWINSZ, &size)) _exit(97);
    for (int i = 0; i < 3; i++) dup2(fd, i);
    for (int i = 3; i < 64; i++) close(i);
    for (size_t i = 0; i < sizeof environment / sizeof environment[0]; i++) {
        setenv(environment[i][0], environment[i][1], 1);
    }
    signal(SIGINT, SIG_DFL);
    signal(SIGTERM, SIG_DFL);
    execv(H2OKV_TEST_CLI, argv);
    _exit(98);
}

terminal terminal_start_list(const char *const *arguments)
{
    terminal t = { .fd = posix_openpt(O_RDWR | O_NOCTTY), .text = calloc(1, 1) };
    char path[128];
    assert_true(t.fd >= 0 && t.text);
    assert_int_equal(grantpt(t.fd), 0);
    assert_int_equal(unlockpt(t.fd), 0);
    assert_int_equal(ptsname_r(t.fd, path, sizeof path), 0);
    fflush(NULL);
    t.pid = fork();
    assert_true(t.pid >= 0);
    if (t.pid == 0) child(path, arguments);
    return t;
}

void terminal_type(terminal *t, const char *bytes)
{
    size_t n = strlen(bytes);
    while (n > 0) {
        ssize_t done = write(t->fd, bytes, n);
        assert_true(done > 0);
        bytes += done;
        n -= (size_t)done;
    }
}

/* False: the program has closed the terminal. */
static bool take(terminal *t)
{
    char bytes[4096];
    ssize_t n = read(t->fd, bytes, sizeof bytes);
    if (n <= 0) return false;
    t->text = realloc(t->text, t->n + (size_t)n + 1);
    assert_non_null(t->text);
    memcpy(t->text + t->n, bytes, (size_t)n);
    t->n += (size_t)n;
    t->text[t->n] = '\0';
    return true;
}

static bool take_in_time(terminal *t, time_t end)
{
    struct pollfd polled = { t->fd, POLLIN, 0 };
    int ready;
    do {
        ready = poll(&polled, 1, 1000);
    } while (ready <= 0 && time(NULL) <= end);
    return ready > 0 && take(t);
}

const char *terminal_wait(terminal *t, const char *text)
{
    time_t end = time(NULL) + PATIENCE;
    size_t from = t->seen;
    char *at;
    while ((at = strstr(t->text + from, text)) == NULL) {
        if (take_in_time(t, end)) continue;
        kill(t->pid, SIGKILL);
        fail_msg("\"%s\" was not shown: %s", text, t->text + from);
    }
    t->seen = (size_t)(at - t->text) + strlen(text);
    return t->text + from;
}

int terminal_end(terminal *t)
{
    time_t end = time(NULL) + PATIENCE;
    int status = 0;
    while (take_in_time(t, end)) {}
    if (time(NULL) > end) kill(t->pid, SIGKILL);
    assert_int_equal(waitpid(t->pid, &status, 0), t->pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

void terminal_free(terminal *t)
{
    close(t->fd);
    free(t->text);
    *t = (terminal){ 0 };
}
