/* prompt.c - the text for `h2okv run`: an argument, a file, or standard input; UTF-8 without NUL. */
#include "run.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>

static const char *const command = "run";

enum { PIECE = 1 << 16 };
#define MOST_BYTES ((size_t)1 << 30) /* more than 2^31 tokens could not be counted */

static int read_all(FILE *file, const char *name, cli_buffer *text)
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

static int read_file(const char *path, cli_buffer *text)
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
        code = read_all(file, path, text);
    }
    fclose(file);
    return code;
}

static int check_text(const char *name, const cli_buffer *text)
{
    size_t bad = cli_utf8_bad(text->data, text->n);
    if (text->n == 0) {
        cli_error(command, "%s: is empty: there is no text to go on from", name);
        return CLI_INPUT;
    }
    if (bad != SIZE_MAX) {
        cli_error(command, "%s: not a text: %s at byte %zu", name,
                  text->data[bad] ? "invalid UTF-8" : "a NUL", bad);
        return CLI_INPUT;
    }
    return CLI_OK;
}

int run_read_prompt(const run_options *o, cli_buffer *text)
{
    const char *name = o->prompt ? "--prompt" : o->from_stdin ? "standard input" : o->file;
    int code = CLI_OK;
    if (o->prompt) {
        if (!cli_buffer_add(text, o->prompt, strlen(o->prompt))) code = CLI_ENGINE;
    } else if (o->from_stdin) {
        bool typed = cli_is_terminal(stdin) && !o->quiet;
        if (typed) fputs("reading text from the terminal; end it with Ctrl-D\n", stderr);
        code = read_all(stdin, name, text);
    } else {
        code = read_file(o->file, text);
    }
    return code ? code : check_text(name, text);
}
