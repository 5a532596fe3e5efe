/*
 * cmd_trace.c - `h2okv trace`: a run as `h2okv run` makes it, and a page that shows what became of each token.
 *
 *   options -> prompt.c -> llama/trace.c: run, recorded (trace_record.c) -> trace_page.c
 */
#include "trace_run.h"

#define FIELD(name) offsetof(trace_options, name)

static const cli_option options[] = {
    { CLI_HEADING, 0, NULL, 0, 0, 0, NULL, NULL, "Text" },
    { CLI_TEXT, 'o', "output", FIELD(output), 0, 0, NULL, "FILE", "the page, an HTML file of a few MB; needed" },
    RUN_TEXT_ROWS(FIELD(run)),
    RUN_MODEL_ROWS(FIELD(run)),
    RUN_CACHE_ROWS(FIELD(run)),
    RUN_CHOICE_ROWS(FIELD(run)),

    { CLI_HEADING, 0, NULL, 0, 0, 0, NULL, NULL, "Messages" },
    { CLI_FLAG, 'q', "quiet", FIELD(run.quiet), 0, 0, NULL, NULL, "no report, progress or warnings" },
    { CLI_FLAG, 'v', "verbose", FIELD(run.verbose), 0, 0, NULL, NULL, "llama.cpp's own messages, on stderr" },
};

static int go(const trace_options *o)
{
#ifdef H2OKV_HAVE_LLAMA
    cli_buffer prompt = { 0 };
    int code = run_read_prompt(&o->run, &prompt);
    if (!code) code = trace_model(o, &prompt);
    cli_buffer_free(&prompt);
    return code;
#else
    (void)o;
    cli_error("trace", "this h2okv was built without llama.cpp, which runs the model.\n"
              "Build it again with llama.cpp: `make` fetches it, `make LLAMA_DIR=folder` uses your own.");
    return CLI_MISSING;
#endif
}

static bool check_output(const trace_options *o)
{
    const cli_path paths[] = {
        { "-f", o->run.file, false }, { "-m", o->run.model, false }, { "-o", o->output, true },
    };
    return cli_check_paths("trace", paths, sizeof paths / sizeof *paths);
}

static int cmd_trace(int argc, char **argv)
{
    trace_options o = { 0 };
    int first, code;
    run_defaults(&o.run, "trace");
    if (!cli_parse(&cli_trace, argc, argv, &o, &first, &code)) return code;
    if (!o.output) {
        cli_error("trace", "no -o FILE: where to write the page, for instance -o trace.html");
        return CLI_USAGE;
    }
    if (!run_take_arguments(&o.run, argc, argv, first) || !run_check(&o.run) || !check_output(&o)) return CLI_USAGE;
    o.run.json = true; /* new text goes into memory, not to stdout */
    return go(&o);
}

const cli_command cli_trace = {
    .name = "trace",
    .summary = "see what is kept: a run as a web page, token by token",
    .usage = "-o FILE.html [-m GGUF] (-f FILE | -p TEXT | -) [options]",
    .about = "Runs a text as `h2okv run` does and writes one HTML page, which needs no\n"
             "network: the text with each token coloured by what became of it, scores over\n"
             "time for every layer and head, and how alike the layers choose.",
    .options = options,
    .n_options = sizeof options / sizeof options[0],
    .example = "h2okv trace -f long.txt --budget 256 -n 64 -o trace.html",
    .run = cmd_trace,
};
