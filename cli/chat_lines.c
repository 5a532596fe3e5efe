/*
 * chat_lines.c - messages from lines.
 *
 *   a line            one message
 *   a line \          goes on in the next line
 *   """ lines """     one message
 */
#include "chat.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <unistd.h>

enum { PIECE = 1 << 16 };
static const char fence[] = "\"\"\"";

static enum chat_read bad(const chat_lines *l, const char *what)
{
    cli_error("chat", "line %" PRIu64 ": %s", l->number, what);
    return CHAT_BAD;
}

/* More of standard input behind what is held. */
static enum chat_read fill(chat_lines *l)
{
    ssize_t got;
    if (l->at > 0) { /* lines that have been handed out */
        l->input.n -= l->at;
        memmove(l->input.data, l->input.data + l->at, l->input.n);
        l->at = 0;
    }
    if (l->input.n > CHAT_MOST_BYTES) return bad(l, "the next one is longer than 64 MiB");
    if (!cli_buffer_reserve(&l->input, PIECE)) return bad(l, "out of memory for the next one");
    do {
        if (!cli_wait_for_input(STDIN_FILENO) && cli_interrupted()) return CHAT_STOP;
        got = read(STDIN_FILENO, l->input.data + l->input.n, PIECE);
    } while (got < 0 && errno == EINTR);
    if (got < 0) {
        cli_error("chat", "cannot read standard input: %s", strerror(errno));
        return CHAT_BAD;
    }
    l->input.n += (size_t)got;
    return got > 0 ? CHAT_MESSAGE : CHAT_END;
}

/* A line of standard input. */
static enum chat_read plain_line(chat_lines *l, const char **line, size_t *n)
{
    size_t looked = 0;
    for (;;) {
        size_t held = l->input.n - l->at;
        const char *from = held ? l->input.data + l->at : NULL;
        const char *end = held > looked ? memchr(from + looked, '\n', held - looked) : NULL;
        enum chat_read read = end ? CHAT_MESSAGE : fill(l);
        if (read == CHAT_MESSAGE && !end) {
            looked = held;
            continue;
        }
        if (read != CHAT_MESSAGE && (read != CHAT_END || held == 0)) return read;
        *line = l->input.data + l->at;
        *n = end ? (size_t)(end + 1 - from) : held; /* the last line may have no end */
        l->at += *n;
        return CHAT_MESSAGE;
    }
}

static enum chat_read any_line(chat_lines *l, bool more, const char **line, size_t *n)
{
#ifdef H2OKV_HAVE_LLAMA
    if (l->editor) return chat_edit_line(l->editor, more, line, n);
#endif
    (void)more;
    return plain_line(l, line, n);
}

/* The next line without what ends it. `more`: it goes on with a message. */
static enum chat_read next_line(chat_lines *l, bool more, const char **line, size_t *n)
{
    enum chat_read read = any_line(l, more, line, n);
    if (read != CHAT_MESSAGE) return read;
    l->number++;
    if (*n > 0 && (*line)[*n - 1] == '\n') --*n;
    if (*n > 0 && (*line)[*n - 1] == '\r') --*n;
    return CHAT_MESSAGE;
}

static enum chat_read add(chat_lines *l, const char *line, size_t n, bool newline)
{
    if (l->message.n + n > CHAT_MOST_BYTES) return bad(l, "a message is longer than 64 MiB");
    if (cli_buffer_add(&l->message, line, n) && (!newline || cli_buffer_add(&l->message, "\n", 1))) return CHAT_MESSAGE;
    return bad(l, "out of memory for the message");
}

static bool is_fence(const char *line, size_t n)
{
    size_t blank = 0;
    while (blank < n && (line[n - 1 - blank] == ' ' || line[n - 1 - blank] == '\t')) blank++;
    return n - blank == sizeof fence - 1 && memcmp(line, fence, sizeof fence - 1) == 0;
}

static enum chat_read read_fenced(chat_lines *l)
{
    uint64_t opened = l->number;
    enum chat_read read;
    const char *line;
    size_t n;
    while ((read = next_line(l, true, &line, &n)) == CHAT_MESSAGE) {
        if (is_fence(line, n)) return CHAT_MESSAGE;
        read = add(l, line, n, true);
        if (read != CHAT_MESSAGE) return read;
    }
    if (read != CHAT_END) return read;
    cli_error("chat", "the \"\"\" in line %" PRIu64 " has no other that ends the message", opened);
    return CHAT_BAD;
}

/* `line` is the first one. */
static enum chat_read read_continued(chat_lines *l, const char *line, size_t n)
{
    enum chat_read read = CHAT_MESSAGE;
    while (read == CHAT_MESSAGE && n > 0 && line[n - 1] == '\\') {
        read = add(l, line, n - 1, true);
        if (read != CHAT_MESSAGE) return read;
        read = next_line(l, true, &line, &n);
        if (read == CHAT_END) return CHAT_MESSAGE;
    }
    return read == CHAT_MESSAGE ? add(l, line, n, false) : read;
}

static void drop_mark(chat_lines *l, bool first)
{
    if (!first || l->message.n < 3 || memcmp(l->message.data, "\xef\xbb\xbf", 3) != 0) return;
    l->message.n -= 3;
    memmove(l->message.data, l->message.data + 3, l->message.n + 1);
}

static enum chat_read check(chat_lines *l)
{
    size_t at = l->message.n ? cli_utf8_bad(l->message.data, l->message.n) : SIZE_MAX;
    if (at == SIZE_MAX) return CHAT_MESSAGE;
    cli_error("chat", "the message up to line %" PRIu64 " is no text: %s at its byte %zu", l->number,
              l->message.data[at] ? "invalid UTF-8" : "a NUL", at);
    return CHAT_BAD;
}

static enum chat_read read_message(chat_lines *l)
{
    bool first = l->number == 0;
    const char *line;
    size_t n;
    enum chat_read read = next_line(l, false, &line, &n);
    l->message.n = 0;
    if (read != CHAT_MESSAGE) return read;
    read = is_fence(line, n) ? read_fenced(l) : read_continued(l, line, n);
    if (read != CHAT_MESSAGE) return read;
    if (!cli_buffer_reserve(&l->message, 1)) return bad(l, "out of memory for the message");
    drop_mark(l, first);
    return check(l);
}

enum chat_read chat_read_message(chat_lines *l)
{
    enum chat_read read;
    do {
        read = read_message(l);
    } while (read == CHAT_DROPPED);
    return read;
}

void chat_lines_free(chat_lines *l)
{
    cli_buffer_free(&l->input);
    cli_buffer_free(&l->message);
    *l = (chat_lines){ 0 };
}
