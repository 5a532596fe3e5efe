/*
 * cmd_chat.c - `h2okv chat`: talk with a model in a KV cache of fixed size, for as long as you like.
 *
 *   options -> system prompt -> llama/chat.c
 */
#include "chat.h"

#include <string.h>

#define FIELD(name) offsetof(chat_options, name)

enum { DEFAULT_NEW = 512, MOST_NEW = 1 << 20 };
#define DEFAULT_TEMP 0.8

static const cli_option options[] = {
    { CLI_HEADING, 0, NULL, 0, 0, 0, NULL, NULL, "Conversation" },
    { CLI_TEXT, 0, "system", FIELD(system), 0, 0, NULL, "TEXT", "system prompt; it is never evicted" },
    { CLI_TEXT, 0, "system-file", FIELD(system_file), 0, 0, NULL, "FILE", "the same, from a file" },
    { CLI_TEXT, 0, "template", FIELD(template), 0, 0, NULL, "NAME",
      "chat template: a name (`list` lists them), or a\nfile (the model's own)" },
    { CLI_COUNT, 'n', "new", FIELD(run.n_new), 1, MOST_NEW, NULL, "N", "most tokens of an answer (512)" },
    { CLI_FLAG, 0, "past-context", FIELD(past_context), 0, 0, NULL, NULL,
      "go on past the context that the model was trained\nfor, instead of beginning anew with the last turns" },
    { CLI_FLAG, 0, "ignore-eos", FIELD(run.ignore_eos), 0, 0, NULL, NULL, "never choose an end token" },
    RUN_MODEL_ROWS(FIELD(run)),
    RUN_KEEP_ROWS(FIELD(run)),
    { CLI_TEXT, 0, "guide", FIELD(run.guide_how), 0, 0, NULL, "HOW",
      "read a message that is longer than the budget with\nits end in mind: auto (its last paragraph), the\n"
      "last N tokens, or off (auto)" },
    RUN_PASS_ROWS(FIELD(run)),
    { CLI_HEADING, 0, NULL, 0, 0, 0, NULL, NULL, "Choosing tokens" },
    { CLI_REAL, 0, "temp", FIELD(run.temp), 0, 100, NULL, "X", "temperature (0.8); 0: always the most likely token" },
    RUN_AMONG_ROWS(FIELD(run)),

    { CLI_HEADING, 0, NULL, 0, 0, 0, NULL, NULL, "Output" },
    { CLI_FLAG, 0, "json", FIELD(run.json), 0, 0, NULL, NULL, "answers and reports as lines of JSON" },
    { CLI_FLAG, 'q', "quiet", FIELD(run.quiet), 0, 0, NULL, NULL, "no report, notes, progress or warnings" },
    { CLI_FLAG, 0, "print-config", FIELD(run.print_config), 0, 0, NULL, NULL, "the settings in effect, on stderr" },
    { CLI_FLAG, 'v', "verbose", FIELD(run.verbose), 0, 0, NULL, NULL, "llama.cpp's own messages, on stderr" },
};

/* White space around a system prompt is the file's, not the prompt's. */
static void trim(cli_buffer *text)
{
    size_t first = strspn(text->data, " \t\r\n");
    text->n -= first;
    memmove(text->data, text->data + first, text->n + 1);
    while (text->n > 0 && strchr(" \t\r\n", text->data[text->n - 1])) text->data[--text->n] = '\0';
}

static int read_system(const chat_options *o, cli_buffer *text)
{
    int code = CLI_OK;
    if (!o->system && !o->system_file) return CLI_OK;
    if (o->system_file) {
        code = cli_read_text("chat", o->system_file, text);
    } else {
        if (!cli_buffer_add(text, o->system, strlen(o->system))) code = CLI_ENGINE;
        if (!code) code = cli_check_text("chat", "--system", text);
    }
    if (!code) trim(text);
    if (code || text->n > 0) return code;
    cli_error("chat", "the system prompt is blank: give some text, or leave it out");
    return CLI_INPUT;
}

static bool check(chat_options *o, int argc, char **argv, int first)
{
    if (first < argc) {
        return cli_error("chat", "unexpected argument '%s': what you say comes from standard input", argv[first]);
    }
    if (o->system && o->system_file) return cli_error("chat", "give --system or --system-file, not both");
    o->recent = o->run.cache.recent;
    return run_check_settings(&o->run);
}

static int go(const chat_options *o)
{
#ifdef H2OKV_HAVE_LLAMA
    cli_buffer system = { 0 };
    int code = read_system(o, &system);
    if (!code) code = chat_model(o, &system);
    cli_buffer_free(&system);
    return code;
#else
    (void)o;
    (void)read_system;
    cli_error("chat", "this h2okv was built without llama.cpp, which runs the model.\n"
              "Build it again with llama.cpp: `make` fetches it, `make LLAMA_DIR=folder` uses your own.");
    return CLI_MISSING;
#endif
}

static int cmd_chat(int argc, char **argv)
{
    chat_options o = { 0 };
    int first, code;
    run_defaults(&o.run, "chat");
    o.run.n_new = DEFAULT_NEW;
    o.run.temp = DEFAULT_TEMP;
    if (!cli_parse(&cli_chat, argc, argv, &o, &first, &code)) return code;
#ifdef H2OKV_HAVE_LLAMA
    if (o.template && strcmp(o.template, "list") == 0) {
        chat_list_templates();
        return CLI_OK;
    }
#endif
    return check(&o, argc, argv, first) ? go(&o) : CLI_USAGE;
}

const cli_command cli_chat = {
    .name = "chat",
    .summary = "talk with a model, for as long as you like",
    .usage = "[-m GGUF] [--system TEXT] [options]",
    .about = "Talks with a model whose KV cache never grows past a budget of tokens: neither\n"
             "memory nor time for a token grow with the conversation. A line is a message;\n"
             "/help lists the commands. From a pipe it takes the same lines as a script.",
    .options = options,
    .n_options = sizeof options / sizeof options[0],
    .example = "h2okv chat --system 'You answer in one sentence.' --budget 1024",
    .run = cmd_chat,
};
