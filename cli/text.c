/* text.c - texts from files and streams: UTF-8 without NUL. */
#include "cli.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

enum { PIECE = 1 << 16 };
#define MOST_BYTES ((size_t)1 << 30) /* more than 2^31 tokens could not be counted */

int cli_read_stream(const char *command, FILE *file, const char *name, cli_buffer *text)
{
    size_t n;
    do {
        if (text->n > MOST_BYTES) {
            cli_error(command, "%s: longer than %zu bytes", name, MOST_BYTES);
            return CLI_INPUT;
        }
        if (!cli_buffer_reserve(text, PIECE)) {
            cli_error(command, "%s: out of memory after %zu bytes", name, text->n);
            return CLI_ENGINE;
        }
        n = fread(text->data + text->n, 1, PIECE, file);
        text->n += n;
        text->data[text->n] = '\0';
    } while (n > 0);
    if (ferror(file)) {
        cli_error(command, "%s: cannot read: %s", name, strerror(errno));
        return CLI_INPUT;
    }
    return CLI_OK;
}

static int read_file(const char *command, const char *path, cli_buffer *text)
{
    struct stat info;
    FILE *file = fopen(path, "rb");
    int code;
    if (!file) {
        cli_error(command, "%s: cannot open: %s", path, strerror(errno));
        return CLI_INPUT;
    }
    if (fstat(fileno(file), &info) == 0 && S_ISDIR(info.st_mode)) {
        cli_error(command, "%s: is a directory, not a text", path);
        code = CLI_INPUT;
    } else {
        code = cli_read_stream(command, file, path, text);
    }
    fclose(file);
    return code;
}

static void drop_mark(cli_buffer *text)
{
    static const char mark[] = "\xef\xbb\xbf";
    size_t n = sizeof mark - 1;
    if (text->n < n || memcmp(text->data, mark, n) != 0) return;
    text->n -= n;
    memmove(text->data, text->data + n, text->n + 1); /* with the NUL behind it */
}

int cli_check_text(const char *command, const char *name, cli_buffer *text)
{
    size_t bad = cli_utf8_bad(text->data, text->n);
    char what = '\0';
    if (bad != SIZE_MAX) what = text->data[bad];
    drop_mark(text); /* after the check, so that an error names the byte of the file */
    if (text->n == 0) {
        cli_error(command, "%s: is empty: there is no text to go on from", name);
        return CLI_INPUT;
    }
    if (bad != SIZE_MAX) {
        cli_error(command, "%s: not a text: %s at byte %zu", name,
                  what ? "invalid UTF-8" : "a NUL", bad);
        return CLI_INPUT;
    }
    return CLI_OK;
}

int cli_read_text(const char *command, const char *path, cli_buffer *text)
{
    int code = read_file(command, path, text);
    return code ? code : cli_check_text(command, path, text);
}

/* The text that `make run` uses comes first. */
int cli_read_licences(const char *command, cli_buffer *text)
{
    static const char *const names[] = { "GPL-3",   "LGPL-3",     "GPL-2",   "LGPL-2.1",
                                         "MPL-2.0", "Apache-2.0", "GFDL-1.3" };
    char path[64];
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        FILE *file;
        int code;
        snprintf(path, sizeof path, "/usr/share/common-licenses/%s", names[i]);
        file = fopen(path, "rb");
        if (!file) continue;
        code = cli_read_stream(command, file, path, text);
        fclose(file);
        if (code) return code;
    }
    if (text->n > 0) return CLI_OK;
    cli_error(command, "no text: this system has no /usr/share/common-licenses; give one with -f FILE");
    return CLI_INPUT;
}

const char *cli_last_paragraph(const char *text, size_t n)
{
    const char *at = text + n;
    while (at > text && strchr(" \t\r\n", at[-1])) at--;
    while (at - text >= 2 && !(at[-1] == '\n' && at[-2] == '\n')) at--;
    return at - text >= 2 ? at : text;
}
