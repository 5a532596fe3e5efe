/*
 * memory.h - checked sizes, and one block of memory for a whole object.
 *
 *   block: | object | array a | pad | array b | pad | ...      each part starts at a multiple of 64 bytes
 *
 * A create function places its parts in a layout, asks once for layout.bytes and turns each part's offset into
 * a pointer. A function that only tells the size runs the same placing code, so the two cannot disagree.
 */
#ifndef H2OKV_BASE_MEMORY_H
#define H2OKV_BASE_MEMORY_H

#include "h2okv/h2okv.h"

#include <stdbool.h>

enum { H2OKV__ALIGN = 64 }; /* a cache line, and the widest vector */

typedef struct h2okv__layout {
    size_t bytes;
    bool overflow; /* once set, bytes means nothing */
} h2okv__layout;

/* a * b, or 0 with *overflow set (never cleared). */
size_t h2okv__mul(size_t a, size_t b, bool *overflow);

/* Offset of count elements, placed behind what the layout has. */
size_t h2okv__place(h2okv__layout *layout, size_t count, size_t element_bytes);

/* Zeroed memory, aligned to H2OKV__ALIGN; NULL when there is none. `allocator` NULL: malloc and free. */
void *h2okv__alloc(const h2okv_allocator *allocator, size_t bytes);
void h2okv__release(const h2okv_allocator *allocator, void *memory, size_t bytes);

/* What h2okv__alloc asks its allocator for: room to align. */
size_t h2okv__alloc_bytes(size_t bytes);

/* Read a caller's size-tagged struct over defaults that `known` already holds. False when the caller's struct
 * is newer than the library and uses a field that the library does not have. */
bool h2okv__read_sized(void *known, size_t known_size, const void *given, uint32_t given_size);

#endif
