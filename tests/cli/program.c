/* program.c - see program.h. */
#define _GNU_SOURCE 1
#include "program.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

typedef struct capture {
    int fd;
    char *text;
    size_t n;
} capture;

/* ---- The child ---------------------------------------------------------------------------------------- */

static void child_input(const char *input)
{
    int fd = open("/dev/null", O_RDONLY);
    if (input) {
        FILE *file = tmpfile();
        if (!file || fwrite(input, 1, strlen(input), file) != strlen(input) || fflush(file)) _exit(99);
        fd = fileno(file);
        lseek(fd, 0, SEEK_SET);
    }
    dup2(fd, 0);
}

static void child(program_setup setup, const char *const *arguments, const int *out, const int *err)
{
    char *argv[64] = { (char *)H2OKV_TEST_CLI };
    size_t n = 1;
    for (; arguments[n - 1] && n < 63; n++) argv[n] = (char *)(uintptr_t)arguments[n - 1];
    child_input(setup.input);
    dup2(out[1], 1);
    dup2(err[1], 2);
    if (setup.output_file) {
        close(1);
        if (*setup.output_file) dup2(open(setup.output_file, O_WRONLY | O_CREAT | O_TRUNC, 0600), 1);
    }
    for (int fd = 3; fd < 64; fd++) close(fd);
    signal(SIGINT, SIG_DFL); /* whatever the caller of the tests had set */
    signal(SIGTERM, SIG_DFL);
    if (setup.file_limit) {
        setrlimit(RLIMIT_FSIZE, &(struct rlimit){ setup.file_limit, setup.file_limit });
    }
    if (setup.ignored) signal(setup.ignored, SIG_IGN);
    if (setup.environment) putenv((char *)(uintptr_t)setup.environment);
    execv(H2OKV_TEST_CLI, argv);
    _exit(98);
}

/* ---- What it says ------------------------------------------------------------------------------------- */

static void take(capture *c)
{
    char bytes[4096];
    ssize_t n = read(c->fd, bytes, sizeof bytes);
    if (n <= 0) {
        close(c->fd);
        c->fd = -1;
        return;
    }
    c->text = realloc(c->text, c->n + (size_t)n + 1);
    assert_non_null(c->text);
    memcpy(c->text + c->n, bytes, (size_t)n);
    c->n += (size_t)n;
    c->text[c->n] = '\0';
}

static bool time_to_signal(const program_setup *setup, const capture *c)
{
    if (!setup->signal) return false;
    if (*setup->signal_after) return strstr(c[1].text, setup->signal_after) != NULL;
    return c[0].n > 0;
}

static void wait_ms(unsigned ms)
{
    nanosleep(&(struct timespec){ .tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000L }, NULL);
}

static void listen(program_setup *setup, capture *c, pid_t pid)
{
    time_t end = time(NULL) + 300;
    while (c[0].fd >= 0 || c[1].fd >= 0) {
        struct pollfd polled[2] = { { c[0].fd, POLLIN, 0 }, { c[1].fd, POLLIN, 0 } };
        if (poll(polled, 2, 1000) < 0 && errno != EINTR) break;
        for (int i = 0; i < 2; i++) {
            if (c[i].fd >= 0 && polled[i].revents) take(&c[i]);
        }
        if (time_to_signal(setup, c)) {
            wait_ms(setup->signal_delay);
            kill(pid, setup->signal);
            if (setup->signal_twice) {
                wait_ms(100); /* or the two would be one */
                kill(pid, setup->signal);
            }
            setup->signal = 0;
        }
        if (time(NULL) > end) {
            kill(pid, SIGKILL);
            fail_msg("the program ran for more than 300 s");
        }
    }
}

program_result program_run_list(program_setup setup, const char *const *arguments)
{
    capture c[2] = { { .text = calloc(1, 1) }, { .text = calloc(1, 1) } };
    int out[2], err[2], status = 0;
    pid_t pid;
    assert_int_equal(pipe(out), 0);
    assert_int_equal(pipe(err), 0);
    fflush(NULL);
    pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) child(setup, arguments, out, err);
    close(out[1]);
    close(err[1]);
    c[0].fd = out[0];
    c[1].fd = err[0];
    listen(&setup, c, pid);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    int code = WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
    return (program_result){ code, c[0].text, c[1].text, c[0].n };
}

void program_free(program_result *r)
{
    free(r->out);
    free(r->err);
    *r = (program_result){ 0 };
}

void program_expect_list(int code, const char *text, const char *const *arguments)
{
    program_result r = program_run_list((program_setup){ 0 }, arguments);
    if (r.code != code) fail_msg("exit code %d, expected %d; stderr: %s", r.code, code, r.err);
    assert_contains(code ? r.err : r.out, text);
    program_free(&r);
}

/* ---- Text --------------------------------------------------------------------------------------------- */

void assert_contains(const char *text, const char *part)
{
    if (!strstr(text, part)) fail_msg("\"%s\" is not in: %s", part, text);
}

void assert_lacks(const char *text, const char *part)
{
    if (strstr(text, part)) fail_msg("\"%s\" is in: %s", part, text);
}

unsigned count_of(const char *text, const char *part)
{
    unsigned n = 0;
    while ((text = strstr(text, part)) != NULL) {
        text += strlen(part);
        n++;
    }
    return n;
}

size_t longest_line(const char *text)
{
    size_t longest = 0;
    while (*text) {
        size_t n = strcspn(text, "\n");
        longest = n > longest ? n : longest;
        text += n + (text[n] != '\0');
    }
    return longest;
}

/* ---- Files -------------------------------------------------------------------------------------------- */

static char files[256][64];
static unsigned n_files;

const char *program_file(const char *text, size_t n)
{
    char *name = files[n_files++];
    int fd;
    assert_true(n_files <= sizeof files / sizeof files[0]);
    snprintf(name, sizeof files[0], "/tmp/h2okv-test-XXXXXX");
    fd = mkstemp(name);
    assert_true(fd >= 0);
    assert_int_equal(text ? write(fd, text, n) : 0, text ? (ssize_t)n : 0);
    close(fd);
    return name;
}

void program_clean(void)
{
    while (n_files > 0) unlink(files[--n_files]);
}

unsigned program_left(const char *path)
{
    char folder[64], prefix[64];
    const char *slash = strrchr(path, '/');
    unsigned n = 0;
    snprintf(folder, sizeof folder, "%.*s", (int)(slash - path), path);
    snprintf(prefix, sizeof prefix, "%s.", slash + 1);
    DIR *list = opendir(folder);
    assert_non_null(list);
    for (struct dirent *entry = readdir(list); entry; entry = readdir(list)) {
        n += strncmp(entry->d_name, prefix, strlen(prefix)) == 0;
    }
    closedir(list);
    return n;
}

static FILE *caught;
static int stderr_was;

void stderr_catch(void)
{
    fflush(stderr);
    caught = tmpfile();
    stderr_was = dup(2);
    assert_true(caught && stderr_was >= 0);
    dup2(fileno(caught), 2);
}

const char *stderr_caught(void)
{
    static char text[4096];
    size_t n;
    fflush(stderr);
    dup2(stderr_was, 2);
    close(stderr_was);
    rewind(caught);
    n = fread(text, 1, sizeof text - 1, caught);
    text[n] = '\0';
    fclose(caught);
    return text;
}
