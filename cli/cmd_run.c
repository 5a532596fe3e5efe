/*
 * cmd_run.c - `h2okv run`: a text of any length through a model in a KV cache of fixed size, and text
 * comes out.
 *
 *   options -> prompt.c -> llama/run.c: model, prompt, new tokens -> llama/report.c
 */
#include "run.h"

#include <stdint.h>

#define FIELD(name) offsetof(run_options, name)

static const cli_option options[] = {
    { CLI_HEADING, 0, NULL, 0, 0, 0, NULL, NULL, "Text" },
    RUN_TEXT_ROWS(0),
    RUN_MODEL_ROWS(0),
    RUN_CACHE_ROWS(0),
    RUN_CHOICE_ROWS(0),

    { CLI_HEADING, 0, NULL, 0, 0, 0, NULL, NULL, "Output" },
    { CLI_TEXT, 0, "trace", offsetof(run_options, trace), 0, 0, NULL, "FILE", "record each pass for `h2okv replay`" },
    { CLI_FLAG, 0, "json", FIELD(json), 0, 0, NULL, NULL, "text and report as one JSON object" },
    { CLI_FLAG, 'q', "quiet", FIELD(quiet), 0, 0, NULL, NULL, "no report, progress or warnings" },
    { CLI_FLAG, 0, "print-config", FIELD(print_config), 0, 0, NULL, NULL,
      "the settings in effect, on stderr" },
    { CLI_FLAG, 'v', "verbose", FIELD(verbose), 0, 0, NULL, NULL, "llama.cpp's own messages, on stderr" },
};

static int go(const run_options *o)
{
#ifdef H2OKV_HAVE_LLAMA
    cli_buffer prompt = { 0 };
    int code = run_read_prompt(o, &prompt);
    if (!code) code = run_model(o, &prompt);
    cli_buffer_free(&prompt);
    return code;
#else
    (void)o;
    cli_error("run", "this h2okv was built without llama.cpp, which runs the model.\n"
              "Build it again with llama.cpp: `make` fetches it, `make LLAMA_DIR=folder` uses your own.");
    return CLI_MISSING;
#endif
}

static int cmd_run(int argc, char **argv)
{
    run_options o;
    int first, code;
    run_defaults(&o, "run");
    if (!cli_parse(&cli_run, argc, argv, &o, &first, &code)) return code;
    if (!run_take_arguments(&o, argc, argv, first) || !run_check(&o)) return CLI_USAGE;
    return go(&o);
}

const cli_command cli_run = {
    .name = "run",
    .summary = "a text of any length through a model, and new text comes out",
    .usage = "[-m GGUF] (-f FILE | -p TEXT | -) [options]",
    .about = "Reads a text of any length into a model whose KV cache never grows past a budget\n"
             "of tokens, and writes the text that follows to stdout; a report to stderr.",
    .options = options,
    .n_options = sizeof options / sizeof options[0],
    .example = "h2okv run -f long.txt --budget 512 -n 64",
    .run = cmd_run,
};
