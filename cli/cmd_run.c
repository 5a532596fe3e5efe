/*
 * cmd_run.c - `h2okv run`: a text of any length through a model in a KV cache of fixed size, and text
 * comes out.
 *
 *   options -> prompt.c -> llama/run.c: model, prompt, new tokens -> llama/report.c
 */
#include "run.h"

#include <stdint.h>
#include <string.h>

#define FIELD(name) offsetof(run_options, name)

static const cli_option options[] = {
    { CLI_HEADING, 0, NULL, 0, 0, 0, NULL, NULL, "Text" },
    { CLI_TEXT, 'f', "file", FIELD(file), 0, 0, NULL, "FILE", "text to go on from; - alone is standard input" },
    { CLI_TEXT, 'p', "prompt", FIELD(prompt), 0, 0, NULL, "TEXT", "the same, as an argument" },
    { CLI_COUNT, 'n', "new", FIELD(n_new), 0, CACHE_MOST_TOKENS, NULL, "N",
      "most new tokens (128); 0 reads the text only" },
    { CLI_FLAG, 0, "ignore-eos", FIELD(ignore_eos), 0, 0, NULL, NULL, "never choose an end token" },

    { CLI_HEADING, 0, NULL, 0, 0, 0, NULL, NULL, "Model" },
    { CLI_TEXT, 'm', "model", FIELD(model), 0, 0, NULL, "GGUF",
      "model file (the one that `make model` fetches)" },
    { CLI_COUNT, 't', "threads", FIELD(threads), 1, 1024, NULL, "N",
      "threads (as many as there are processors)" },
    { CLI_FLAG, 0, "mmap", FIELD(mmap), 0, 0, NULL, NULL,
      "map the model file instead of reading it: other\nprograms share it, but memory grows by it where\n"
      "llama.cpp rearranges the weights" },

    { CLI_HEADING, 0, NULL, 0, 0, 0, NULL, NULL, "Cache" },
    { CLI_COUNT, 0, "budget", FIELD(cache.budget), CACHE_LEAST_BUDGET, CACHE_MOST_TOKENS, NULL, "N",
      "tokens kept (512)" },
    { CLI_COUNT, 0, "recent", FIELD(cache.recent), 0, CACHE_MOST_TOKENS, NULL, "N",
      "of these the newest (the policy's: mostly half)" },
    { CLI_TEXT, 0, "policy", FIELD(cache.policy), 0, 0, NULL, "NAME",
      "default, h2o (heavy hitters), h2o-paper, snapkv,\ntova, lifetime, streaming, window, random, full" },
    { CLI_TEXT, 0, "guide", FIELD(guide_how), 0, 0, NULL, "HOW",
      "read the prompt with its end in mind, so that what\nit asks for is kept: auto (its last paragraph, when\n"
      "it is longer than the budget), the last N tokens,\nor off (auto)" },
    { CLI_TEXT, 0, "guide-text", FIELD(guide_text), 0, 0, NULL, "TEXT", "read all of it with this text in mind" },
    { CLI_COUNT, 0, "ubatch", FIELD(cache.ubatch), 1, CACHE_MOST_TOKENS, NULL, "N",
      "most tokens in a pass (the least from 128 up\nthat makes budget + N a multiple of 256)" },
    CACHE_ROWS(FIELD(cache)),

    { CLI_HEADING, 0, NULL, 0, 0, 0, NULL, NULL, "Choosing tokens" },
    { CLI_REAL, 0, "temp", FIELD(temp), 0, 100, NULL, "X", "temperature (0: always the most likely token)" },
    { CLI_COUNT, 0, "top-k", FIELD(top_k), 0, INT32_MAX, NULL, "N", "among the N most likely (40; 0: all)" },
    { CLI_REAL, 0, "top-p", FIELD(top_p), 0, 1, NULL, "X", "among those that make up X (0.95)" },
    { CLI_REAL, 0, "min-p", FIELD(min_p), 0, 1, NULL, "X", "at least X as likely as the most likely (0.05)" },

    { CLI_HEADING, 0, NULL, 0, 0, 0, NULL, NULL, "Output" },
    { CLI_FLAG, 0, "json", FIELD(json), 0, 0, NULL, NULL, "text and report as one JSON object" },
    { CLI_FLAG, 'q', "quiet", FIELD(quiet), 0, 0, NULL, NULL, "no report, progress or warnings" },
    { CLI_FLAG, 0, "print-config", FIELD(print_config), 0, 0, NULL, NULL,
      "the settings in effect, on stderr" },
    { CLI_FLAG, 'v', "verbose", FIELD(verbose), 0, 0, NULL, NULL, "llama.cpp's own messages, on stderr" },
};

static bool take_arguments(run_options *o, int argc, char **argv, int first)
{
    for (; first < argc; first++) {
        if (strcmp(argv[first], "-") != 0) {
            return cli_error("run", "unexpected argument '%s': a text goes with -p, a file with -f",
                             argv[first]);
        }
        o->from_stdin = true;
    }
    if (o->file && strcmp(o->file, "-") == 0) {
        if (o->from_stdin) return cli_error("run", "standard input is given twice");
        o->file = NULL;
        o->from_stdin = true;
    }
    return true;
}

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
    run_defaults(&o);
    if (!cli_parse(&cli_run, argc, argv, &o, &first, &code)) return code;
    if (!take_arguments(&o, argc, argv, first) || !run_check(&o)) return CLI_USAGE;
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
