/*
 * signals.c - Ctrl-C and SIGTERM: the first one ends the work where it can still be reported, the second one the
 * process.
 *
 *   signal -> interrupted -> asked between passes, between tokens, and while a model is loaded
 */
#include "cli.h"

#include <signal.h>

static volatile sig_atomic_t interrupted;

static void on_signal(int number)
{
    if (interrupted) { /* the second time */
        signal(number, SIG_DFL);
        raise(number);
    }
    interrupted = 1;
}

static void catch_one(int number)
{
    struct sigaction action = { .sa_handler = on_signal, .sa_flags = SA_RESTART };
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
    catch_one(SIGINT);
    catch_one(SIGTERM);
}

bool cli_interrupted(void)
{
    return interrupted;
}
