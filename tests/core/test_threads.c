/*
 * test_threads.c - handles know nothing of one another: two caches in two threads at once end as one after the other, and
 * ThreadSanitizer (check.threads) sees no memory that they share.
 */
#define _POSIX_C_SOURCE 200809L /* pthread_barrier_t */
#include "support/check.h"
#include "support/rig.h"

#include <pthread.h>

typedef struct worker {
    uint64_t seed;
    pthread_barrier_t *start;
    rig *r;
} worker;

static void *work(void *user)
{
    worker *w = user;
    pthread_barrier_wait(w->start);
    w->r = rig_with_a_past(w->seed);
    for (uint32_t i = 0; i < 20; i++) {
        rig_pass(w->r, 1 + i % 3);
    }
    return NULL;
}

static rig *alone(uint64_t seed)
{
    pthread_barrier_t start;
    worker w = {.seed = seed, .start = &start};
    CHECK(pthread_barrier_init(&start, NULL, 1) == 0);
    work(&w);
    pthread_barrier_destroy(&start);
    return w.r;
}

/* faults.md 71; that of one context used by two threads is a rule of the API's: a handle belongs to one thread at a time. */
static void test_fault_71_two_handles_two_threads(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 14; seed++) { /* every policy with itself, and then with the next */
        const uint64_t seeds[2] = {seed, seed <= 7 ? seed : seed + 1};
        worker w[2];
        pthread_barrier_t start;
        pthread_t thread[2];
        CHECK(pthread_barrier_init(&start, NULL, 2) == 0);
        for (int i = 0; i < 2; i++) {
            w[i] = (worker){.seed = seeds[i], .start = &start};
            CHECK(pthread_create(&thread[i], NULL, work, &w[i]) == 0);
        }
        for (int i = 0; i < 2; i++) {
            pthread_join(thread[i], NULL);
            rig *expected = alone(seeds[i]);
            check_context("seeds %u and %u, thread %d", (unsigned)seeds[0], (unsigned)seeds[1], i);
            CHECK_RIGHT(rig_differ(w[i].r, expected));
            CHECK_RIGHT(rig_check(w[i].r));
            rig_free(expected);
            rig_free(w[i].r);
        }
        pthread_barrier_destroy(&start);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fault_71_two_handles_two_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
