/*
 * signals.c - Ctrl-C and SIGTERM: the first one ends the work where it can still be reported, the second one the
 * process.
 *
 *   signal -> interrupted -> asked between passes, between tokens, and while a model is loaded
 *   the second one, and those that end the process at once -> a file that is not complete is removed -> the end
 *
 * A program that people talk with goes on after Ctrl-C: there it ends what is being done, however often it comes, and
 * SIGTERM alone ends the process.
 */
#include "cli.h"

#include <signal.h>
#include <stdatomic.h>
#include <sys/select.h>
#include <unistd.h>

static volatile sig_atomic_t interrupted, terminated, patient, resized;
static const char *_Atomic unfinished; /* a path, or NULL */

static void end_process(int number)
{
    const char *path = unfinished;
    if (path) unlink(path);
    signal(number, SIG_DFL);
    raise(number);
}

static void on_signal(int number)
{
    if (number == SIGINT ? interrupted && !patient : terminated) end_process(number); /* the second time */
    interrupted = 1;
    if (number == SIGTERM || !patient) terminated = 1;
}

static void on_resize(int number)
{
    (void)number;
    resized = 1;
}

static void catch_one(int number, void (*handler)(int))
{
    struct sigaction action = { .sa_handler = handler, .sa_flags = SA_RESTART };
    sigemptyset(&action.sa_mask);
    if (!cli_signal_ignored(number)) sigaction(number, &action, NULL);
}

bool cli_signal_ignored(int number)
{
    struct sigaction now;
    return sigaction(number, NULL, &now) == 0 && now.sa_handler == SIG_IGN;
}

void cli_catch_signals(void)
{
    catch_one(SIGINT, on_signal);
    catch_one(SIGTERM, on_signal);
}

void cli_remove_when_killed(const char *path)
{
    unfinished = path;
    if (!path) return;
    catch_one(SIGHUP, end_process);
    catch_one(SIGPIPE, end_process);
    catch_one(SIGQUIT, end_process);
    signal(SIGXFSZ, SIG_IGN); /* a file that may not grow is an error of writing, like a full disk */
}

bool cli_interrupted(void)
{
    return interrupted;
}

/* ---- Programs that people talk with -------------------------------------------------------------------- */

void cli_go_on_after_interrupts(void)
{
    patient = 1;
    catch_one(SIGWINCH, on_resize);
    catch_one(SIGCONT, on_resize); /* the terminal may be set in any way after a stop */
}

bool cli_take_interrupt(void)
{
    bool was = interrupted;
    if (!terminated) interrupted = 0;
    return was;
}

bool cli_terminated(void)
{
    return terminated;
}

bool cli_take_resize(void)
{
    bool was = resized;
    resized = 0;
    return was;
}

static bool input_or_signal(int fd, const sigset_t *before)
{
    struct timespec second = { .tv_sec = 1 }; /* a thread of llama.cpp may get the signal in our place */
    fd_set set;
    int ready = 0;
    while (ready == 0 && !interrupted && !resized) {
        FD_ZERO(&set);
        FD_SET(fd, &set);
        ready = pselect(fd + 1, &set, NULL, NULL, &second, before);
    }
    return ready > 0;
}

bool cli_wait_for_input(int fd)
{
    sigset_t ours, before;
    bool ready;
    sigemptyset(&ours);
    sigaddset(&ours, SIGINT);
    sigaddset(&ours, SIGTERM);
    sigaddset(&ours, SIGWINCH);
    sigaddset(&ours, SIGCONT);
    sigprocmask(SIG_BLOCK, &ours, &before); /* so that none comes between the look and the wait */
    ready = input_or_signal(fd, &before);
    sigprocmask(SIG_SETMASK, &before, NULL);
    return ready;
}
