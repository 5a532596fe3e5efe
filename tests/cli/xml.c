/* xml.c - see xml.h. A stack of open elements, and a look at each character. */
#include "xml.h"

#include "program.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DEEPEST = 32, LONGEST = 32 };

static size_t name_at(const char *at)
{
    size_t n = 0;
    while (isalnum((unsigned char)at[n]) || (n > 0 && (at[n] == '-' || at[n] == ':'))) n++;
    return n;
}

/* Behind ` name="value"`, or NULL. */
static const char *skip_attribute(const char *at)
{
    size_t n = name_at(at);
    if (n == 0 || strncmp(at + n, "=\"", 2) != 0) return NULL;
    at += n + 2;
    at += strcspn(at, "\"<&");
    return *at == '"' ? at + 1 : NULL;
}

/* Behind a tag that starts at `at`; pushes or pops its name. */
static const char *skip_tag(const char *at, char stack[][LONGEST], size_t *depth)
{
    bool closing = at[1] == '/';
    const char *name = at + 1 + closing;
    size_t n = name_at(name);
    if (n == 0 || n >= LONGEST) return NULL;
    at = name + n;
    if (closing) {
        bool fits = *depth > 0 && strlen(stack[*depth - 1]) == n && memcmp(stack[*depth - 1], name, n) == 0;
        if (!fits || *at != '>') return NULL;
        --*depth;
        return at + 1;
    }
    while (*at == ' ') {
        at = skip_attribute(at + 1);
        if (!at) return NULL;
    }
    if (strncmp(at, "/>", 2) == 0) return at + 2;
    if (*at != '>' || *depth == DEEPEST) return NULL;
    snprintf(stack[(*depth)++], LONGEST, "%.*s", (int)n, name);
    return at + 1;
}

const char *xml_fault(const char *text)
{
    char stack[DEEPEST][LONGEST];
    const char *at = text, *next;
    size_t depth = 0, roots = 0;
    while (*at) {
        if (*at == '<') {
            roots += depth == 0;
            next = skip_tag(at, stack, &depth);
        } else if (*at == '&') {
            next = strncmp(at, "&#", 2) == 0 && at[2 + strspn(at + 2, "0123456789")] == ';' ? at + 2 : NULL;
        } else if ((unsigned char)*at < 32 && *at != '\n') {
            next = NULL;
        } else {
            next = depth > 0 || *at == '\n' ? at + 1 : NULL;
        }
        if (!next) return at;
        at = next;
    }
    return depth == 0 && roots == 1 ? NULL : at;
}

char *file_bytes(const char *path)
{
    FILE *file = fopen(path, "rb");
    char *bytes = calloc(1, 1 << 20);
    if (!file || !bytes) fail_msg("cannot read %s", path);
    bytes[fread(bytes, 1, (1 << 20) - 1, file)] = '\0';
    fclose(file);
    return bytes;
}
