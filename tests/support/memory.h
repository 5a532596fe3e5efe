/*
 * memory.h - an allocator for tests: counts, fails at the n-th call, and notices wrong sizes at free.
 */
#ifndef TEST_MEMORY_H
#define TEST_MEMORY_H

#include "h2okv/h2okv.h"

typedef struct test_memory {
    h2okv_allocator hook; /* give its address to an options struct */
    uint32_t calls;       /* of alloc, failed ones too */
    uint32_t fail_at;     /* the call that fails, from 1; 0: none */
    uint32_t held;        /* blocks not yet freed */
    uint32_t wrong_frees; /* size at free was not the size at alloc, or not ours */
    size_t bytes;         /* asked for in all, by calls that succeeded */
} test_memory;

void test_memory_init(test_memory *memory, uint32_t fail_at);

#endif
