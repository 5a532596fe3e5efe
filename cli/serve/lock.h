/* lock.h - a mutex with a condition that waits on the clock of cli_seconds, which nobody can turn back. */
#ifndef H2OKV_CLI_SERVE_LOCK_H
#define H2OKV_CLI_SERVE_LOCK_H

#include "../cli.h"

#include <pthread.h>

typedef struct serve_lock {
    pthread_mutex_t mutex;
    pthread_cond_t changed;
} serve_lock;

bool serve_lock_init(serve_lock *l); /* false: the system has none left, and there is nothing to destroy */
void serve_lock_destroy(serve_lock *l);

void serve_lock_take(serve_lock *l);
void serve_lock_give(serve_lock *l);
void serve_lock_wake(serve_lock *l); /* all who wait */

/* Held by the caller. False: it is `until` by cli_seconds' clock. True may mean nothing: look again. */
bool serve_lock_wait(serve_lock *l, double until);

#endif
