/* team.c - see team.h. */
#include "kernels/team.h"

#ifdef __STDC_NO_THREADS__
int sched_yield(void); /* POSIX; <sched.h> without asking for more than C11 */
#define thread_yield (void)sched_yield
#else
#include <threads.h>
#define thread_yield thrd_yield
#endif

enum { SPINS = 300 }; /* some ten microseconds: as long as threads of a layer usually differ */

static void relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

/* True for the last of them, who makes the team ready for the next round. */
static int arrive(h2okv__team *team, uint32_t n_threads)
{
    if (atomic_fetch_add_explicit(&team->arrived, 1, memory_order_acq_rel) + 1 < n_threads) {
        return 0;
    }
    atomic_store_explicit(&team->arrived, 0, memory_order_relaxed);
    atomic_store_explicit(&team->next, 0, memory_order_relaxed);
    atomic_fetch_add_explicit(&team->round, 1, memory_order_release);
    return 1;
}

void h2okv__team_wait(h2okv__team *team, uint32_t n_threads)
{
    unsigned round = atomic_load_explicit(&team->round, memory_order_acquire);
    if (arrive(team, n_threads)) {
        return;
    }
    for (uint32_t tries = 0; atomic_load_explicit(&team->round, memory_order_acquire) == round; tries++) {
        if (tries < SPINS) {
            relax();
        } else {
            thread_yield();
        }
    }
}

void h2okv__team_leave(h2okv__team *team, uint32_t n_threads)
{
    (void)arrive(team, n_threads);
}
