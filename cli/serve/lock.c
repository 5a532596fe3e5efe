/* lock.c - see lock.h. */
#include "lock.h"

#include <errno.h>
#include <time.h>

static bool init_condition(pthread_cond_t *changed)
{
    pthread_condattr_t how;
    bool done;
    if (pthread_condattr_init(&how)) return false;
    done = !pthread_condattr_setclock(&how, CLOCK_MONOTONIC) && !pthread_cond_init(changed, &how);
    pthread_condattr_destroy(&how);
    return done;
}

bool serve_lock_init(serve_lock *l)
{
    if (pthread_mutex_init(&l->mutex, NULL)) return false;
    if (init_condition(&l->changed)) return true;
    pthread_mutex_destroy(&l->mutex);
    return false;
}

void serve_lock_destroy(serve_lock *l)
{
    pthread_cond_destroy(&l->changed);
    pthread_mutex_destroy(&l->mutex);
}

void serve_lock_take(serve_lock *l)
{
    pthread_mutex_lock(&l->mutex);
}

void serve_lock_give(serve_lock *l)
{
    pthread_mutex_unlock(&l->mutex);
}

void serve_lock_wake(serve_lock *l)
{
    pthread_cond_broadcast(&l->changed);
}

bool serve_lock_wait(serve_lock *l, double until)
{
    struct timespec t;
    double whole = until > 0 ? until : 0;
    t.tv_sec = (time_t)whole;
    t.tv_nsec = (long)((whole - (double)t.tv_sec) * 1e9);
    return pthread_cond_timedwait(&l->changed, &l->mutex, &t) != ETIMEDOUT;
}
