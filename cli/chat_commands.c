/* chat_commands.c - what a message of `h2okv chat` asks for: one table, which /help prints. */
#include "chat.h"

#include <string.h>

static const struct {
    const char *name;
    enum chat_verb verb;
    const char *argument; /* what /help calls it; NULL: it takes none */
    const char *help;
} commands[] = {
    { "help", CHAT_HELP, NULL, "this list" },
    { "regen", CHAT_REGEN, NULL, "another answer in place of the last one" },
    { "undo", CHAT_UNDO, NULL, "take back the last message and its answer" },
    { "clear", CHAT_CLEAR, NULL, "forget the conversation; the system prompt stays" },
    { "stats", CHAT_STATS, NULL, "the report of now" },
    { "budget", CHAT_BUDGET, "N", "keep N tokens from now on" },
    { "save", CHAT_SAVE, "FILE", "keep the conversation in a file" },
    { "load", CHAT_LOAD, "FILE", "go on with the one in a file" },
    { "quit", CHAT_QUIT, NULL, "end with the report, as Ctrl-D does" },
};
enum { N_COMMANDS = sizeof commands / sizeof commands[0] };

void chat_print_commands(FILE *out)
{
    char words[32];
    for (size_t i = 0; i < N_COMMANDS; i++) {
        const char *argument = commands[i].argument;
        snprintf(words, sizeof words, "/%s%s%s", commands[i].name, argument ? " " : "", argument ? argument : "");
        fprintf(out, "  %-13s %s\n", words, commands[i].help);
    }
    fputs("A line that ends in \\ goes on in the next one; \"\"\" begins and ends a message of\n"
          "many lines. One that starts with / is written with //. Ctrl-C stops an answer.\n", out);
}

/* ---- What is said ------------------------------------------------------------------------------------- */

static void trim(const cli_buffer *message, chat_request *out)
{
    const char *at = message->data, *end = at + message->n, *line;
    while (end > at && strchr(" \t\r\n", end[-1])) end--;
    for (line = at; line < end && strchr(" \t\r\n", *line); line++) {
        if (*line == '\n') at = line + 1; /* the indentation of the first line that has text stays */
    }
    out->verb = CHAT_SAY;
    out->text = at < end ? at : end;
    out->n = (size_t)(end - out->text);
}

/* ---- Commands ----------------------------------------------------------------------------------------- */

static bool unknown(const char *name, size_t n)
{
    const char *names[N_COMMANDS], *near;
    char word[32];
    for (size_t i = 0; i < N_COMMANDS; i++) names[i] = commands[i].name;
    snprintf(word, sizeof word, "%.*s", (int)(n < 24 ? n : 24), name);
    near = cli_nearest(word, names, N_COMMANDS);
    if (near) return cli_error("chat", "unknown command '/%s'; did you mean '/%s'?", word, near);
    return cli_error("chat", "unknown command '/%s'; /help lists them, and a message that starts with / is written //",
                     word);
}

static bool take_argument(size_t row, const char *text, chat_request *out)
{
    const char *name = commands[row].name, *argument = commands[row].argument;
    out->verb = commands[row].verb;
    out->text = text + strspn(text, " \t");
    out->n = strlen(out->text);
    if (!argument) {
        return out->n == 0 || cli_error("chat", "/%s takes nothing behind it, and '%s' is there", name, out->text);
    }
    if (out->n == 0) return cli_error("chat", "/%s %s: what is %s?", name, argument, argument);
    if (out->verb != CHAT_BUDGET) return true;
    return cli_parse_count("chat", "/budget", out->text, CACHE_LEAST_BUDGET, CACHE_MOST_TOKENS, &out->budget);
}

static bool parse_command(const char *text, chat_request *out)
{
    size_t n = strcspn(text, " \t");
    for (size_t i = 0; i < N_COMMANDS; i++) {
        if (strlen(commands[i].name) == n && memcmp(commands[i].name, text, n) == 0) {
            return take_argument(i, text + n, out);
        }
    }
    return unknown(text, n);
}

bool chat_parse(const cli_buffer *message, chat_request *out)
{
    trim(message, out);
    if (out->n == 0 || out->text[0] != '/' || memchr(out->text, '\n', out->n)) return true;
    if (out->n > 1 && out->text[1] == '/') {
        out->text++;
        out->n--;
        return true;
    }
    message->data[out->text + out->n - message->data] = '\0'; /* blanks behind a command */
    return parse_command(out->text + 1, out);
}
