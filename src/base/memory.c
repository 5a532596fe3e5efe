/* memory.c - see memory.h. */
#include "memory.h"

#include <stdlib.h>
#include <string.h>

size_t h2okv__mul(size_t a, size_t b, bool *overflow)
{
    if (b != 0 && a > SIZE_MAX / b) {
        *overflow = true;
        return 0;
    }
    return a * b;
}

size_t h2okv__place(h2okv__layout *layout, size_t count, size_t element_bytes)
{
    size_t offset = layout->bytes;
    size_t bytes = h2okv__mul(count, element_bytes, &layout->overflow);
    /* The top quarter is kept free, so that adding the alignment twice cannot wrap. */
    if (layout->overflow || bytes > SIZE_MAX / 4 || offset > SIZE_MAX / 4) {
        layout->overflow = true;
        return 0;
    }
    size_t end = offset + bytes;
    layout->bytes = (end + H2OKV__ALIGN - 1) / H2OKV__ALIGN * H2OKV__ALIGN;
    return offset;
}

static void *plain_alloc(const h2okv_allocator *allocator, size_t bytes)
{
    return allocator != NULL ? allocator->alloc(allocator->user, bytes) : malloc(bytes);
}

static void plain_free(const h2okv_allocator *allocator, void *memory, size_t bytes)
{
    if (allocator != NULL) {
        allocator->free(allocator->user, memory, bytes);
    } else {
        free(memory);
    }
}

size_t h2okv__alloc_bytes(size_t bytes)
{
    return bytes + H2OKV__ALIGN;
}

/* The byte before the aligned block says how far it lies from what the allocator gave: 1..64. */
void *h2okv__alloc(const h2okv_allocator *allocator, size_t bytes)
{
    unsigned char *given = plain_alloc(allocator, h2okv__alloc_bytes(bytes));
    if (given == NULL) {
        return NULL;
    }
    size_t shift = H2OKV__ALIGN - (uintptr_t)given % H2OKV__ALIGN;
    unsigned char *memory = given + shift;
    memory[-1] = (unsigned char)shift;
    memset(memory, 0, bytes);
    return memory;
}

void h2okv__release(const h2okv_allocator *allocator, void *memory, size_t bytes)
{
    if (memory != NULL) {
        unsigned char *aligned = memory;
        plain_free(allocator, aligned - aligned[-1], h2okv__alloc_bytes(bytes));
    }
}

bool h2okv__read_sized(void *known, size_t known_size, const void *given, uint32_t given_size)
{
    const unsigned char *bytes = given;
    for (size_t i = known_size; i < given_size; i++) {
        if (bytes[i] != 0) {
            return false;
        }
    }
    memcpy(known, given, given_size < known_size ? given_size : known_size);
    return true;
}
