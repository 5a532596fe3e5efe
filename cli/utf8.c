/*
 * utf8.c - whole UTF-8 characters from bytes that come in any pieces.
 *
 *   held: [lead byte][continuation]...   a valid beginning of one character, never a whole one
 *
 * A model's token may end in the middle of a character: what is printed has to wait for the next token.
 */
#include "cli.h"

#include <string.h>

/* Bytes of the character that `lead` begins; 0 when it begins none. */
static unsigned length_of(unsigned char lead)
{
    if (lead < 0x80) return 1;
    if (lead >= 0xc2 && lead <= 0xdf) return 2;
    if (lead >= 0xe0 && lead <= 0xef) return 3;
    if (lead >= 0xf0 && lead <= 0xf4) return 4;
    return 0;
}

/* Whether `byte` may follow what is held. The second byte rules out overlong forms, surrogates and what lies
 * past U+10FFFF (The Unicode Standard, table 3-7). */
static bool may_follow(const cli_utf8 *u, unsigned char byte)
{
    unsigned char low = 0x80, high = 0xbf;
    if (u->n_held == 1) {
        if (u->held[0] == 0xe0) low = 0xa0;
        if (u->held[0] == 0xed) high = 0x9f;
        if (u->held[0] == 0xf0) low = 0x90;
        if (u->held[0] == 0xf4) high = 0x8f;
    }
    return byte >= low && byte <= high;
}

static size_t put(char *out, const void *bytes, size_t n)
{
    memcpy(out, bytes, n);
    return n;
}

static size_t begin(cli_utf8 *u, unsigned char byte, char *out)
{
    unsigned length = length_of(byte);
    if (length == 0) return put(out, CLI_REPLACEMENT, 3);
    if (length == 1) return put(out, &byte, 1);
    u->held[0] = byte;
    u->n_held = 1;
    return 0;
}

static size_t take(cli_utf8 *u, unsigned char byte, char *out)
{
    size_t n = 0;
    if (u->n_held == 0) return begin(u, byte, out);
    if (!may_follow(u, byte)) {
        n = put(out, CLI_REPLACEMENT, 3);
        u->n_held = 0;
        return n + begin(u, byte, out + n);
    }
    u->held[u->n_held++] = byte;
    if (u->n_held == length_of(u->held[0])) {
        n = put(out, u->held, u->n_held);
        u->n_held = 0;
    }
    return n;
}

size_t cli_utf8_take(cli_utf8 *u, const char *bytes, size_t n, char *out)
{
    size_t written = 0;
    for (size_t i = 0; i < n; i++) written += take(u, (unsigned char)bytes[i], out + written);
    return written;
}

size_t cli_utf8_tame(char *text, size_t n)
{
    size_t kept = 0;
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)text[i], next = i + 1 < n ? (unsigned char)text[i + 1] : 0;
        bool one = (c < 0x20 && c != '\n' && c != '\t') || c == 0x7f;
        bool two = c == 0xc2 && next >= 0x80 && next <= 0x9f;
        if (!one && !two) text[kept++] = text[i];
        i += two;
    }
    return kept;
}

size_t cli_utf8_bad(const char *bytes, size_t n)
{
    size_t i = 0;
    while (i < n) {
        unsigned length = length_of((unsigned char)bytes[i]);
        cli_utf8 u = { { (unsigned char)bytes[i] }, 1 };
        if (length == 0 || bytes[i] == '\0' || length > n - i) return i;
        for (; u.n_held < length; u.n_held++) {
            if (!may_follow(&u, (unsigned char)bytes[i + u.n_held])) return i;
        }
        i += length;
    }
    return SIZE_MAX;
}
