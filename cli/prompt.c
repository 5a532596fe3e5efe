/* prompt.c - the text for `h2okv run`: an argument, a file, or standard input. */
#include "run.h"

#include <string.h>

int run_read_prompt(const run_options *o, cli_buffer *text)
{
    const char *name = o->prompt ? "--prompt" : o->from_stdin ? "standard input" : o->file;
    int code = CLI_OK;
    if (o->prompt) {
        if (!cli_buffer_add(text, o->prompt, strlen(o->prompt))) code = CLI_ENGINE;
    } else if (o->from_stdin) {
        bool typed = cli_is_terminal(stdin) && !o->quiet;
        if (typed) fputs("reading text from the terminal; end it with Ctrl-D\n", stderr);
        code = cli_read_stream(o->command, stdin, name, text);
    } else {
        return cli_read_text(o->command, o->file, text);
    }
    return code ? code : cli_check_text(o->command, name, text);
}
