/*
 * memory.c - see memory.h. Each block carries its size in front:   [ size | mark | memory ... ]
 */
#include "support/memory.h"

#include <stdalign.h>
#include <stdlib.h>
#include <string.h>

#define MARK 0x6832306b76u

typedef struct front {
    alignas(max_align_t) size_t size;
    size_t mark;
} front;

static void *take(void *user, size_t bytes)
{
    test_memory *m = user;
    front *f;
    if (++m->calls == m->fail_at) {
        return NULL;
    }
    f = malloc(sizeof *f + bytes);
    if (!f) {
        return NULL;
    }
    *f = (front){ bytes, MARK };
    memset(f + 1, 0xa5, bytes); /* fresh memory is not zero */
    m->held++;
    m->bytes += bytes;
    return f + 1;
}

static void give_back(void *user, void *memory, size_t bytes)
{
    test_memory *m = user;
    front *f = memory;
    if (!memory) {
        return;
    }
    f--;
    if (f->mark != MARK || f->size != bytes) {
        m->wrong_frees++;
        return;
    }
    f->mark = 0;
    m->held--;
    free(f);
}

void test_memory_init(test_memory *memory, uint32_t fail_at)
{
    memset(memory, 0, sizeof *memory);
    memory->hook = (h2okv_allocator){ take, give_back, memory };
    memory->fail_at = fail_at;
}
