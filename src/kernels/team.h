/*
 * team.h - what the threads of one call share: a counter that hands out pieces of work, and a barrier.
 *
 *   for (i = take(team); i < n; i = take(team)) piece(i);     whoever is free takes the next
 *   team_wait(team, n_threads);                               all pieces are done; the counter is 0 again
 *
 * Waiting spins briefly and then yields, so that a neighbour who needs the processor gets it: with more runnable
 * threads than processors a spinning barrier burns the time that the last thread needs.
 */
#ifndef H2OKV_KERNELS_TEAM_H
#define H2OKV_KERNELS_TEAM_H

#include <stdatomic.h>
#include <stdint.h>

typedef struct h2okv__team {
    _Alignas(64) atomic_uint next;    /* piece of work to be taken next */
    _Alignas(64) atomic_uint arrived; /* threads at the barrier */
    _Alignas(64) atomic_uint round;   /* barriers passed */
} h2okv__team; /* all zero is ready to use */

static inline uint32_t h2okv__team_take(h2okv__team *team)
{
    return atomic_fetch_add_explicit(&team->next, 1, memory_order_relaxed);
}

/* Until all n_threads threads have come here. What they wrote before it, all can read after it. */
void h2okv__team_wait(h2okv__team *team, uint32_t n_threads);

/* The last thing that each thread does: as the barrier, but nobody waits. The team is then as new. */
void h2okv__team_leave(h2okv__team *team, uint32_t n_threads);

#endif
