/* buffer.c - bytes that grow; a NUL always follows them. */
#include "cli.h"

#include <stdlib.h>
#include <string.h>

bool cli_buffer_reserve(cli_buffer *b, size_t more)
{
    size_t room = b->room ? b->room : 256;
    char *data;
    if (more >= SIZE_MAX / 2 - b->n) return false;
    while (room < b->n + more + 1) room *= 2;
    if (room == b->room) return true;
    data = realloc(b->data, room);
    if (!data) return false;
    b->data = data;
    b->room = room;
    b->data[b->n] = '\0';
    return true;
}

bool cli_buffer_add(cli_buffer *b, const char *bytes, size_t n)
{
    if (!cli_buffer_reserve(b, n)) return false;
    if (n) memcpy(b->data + b->n, bytes, n);
    b->n += n;
    b->data[b->n] = '\0';
    return true;
}

void cli_buffer_free(cli_buffer *b)
{
    free(b->data);
    *b = (cli_buffer){ 0 };
}
