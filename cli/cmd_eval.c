/*
 * cmd_eval.c - `h2okv eval`: what a budget costs in quality, policy by policy, against the full cache.
 *
 *   options -> eval_check -> text -> llama/eval.c: rows -> table, JSON, CSV, SVG
 */
#include "eval.h"

#include <string.h>

static const char *const command = "eval";
const char *const eval_names[] = { "ppl", "kl", "recall", NULL };

#define FIELD(name) offsetof(eval_options, name)
#define MOST_TOKENS (INT32_MAX / 64)

static const cli_option options[] = {
    { CLI_HEADING, 0, NULL, 0, 0, 0, NULL, NULL, "What is measured" },
    { CLI_TEXT, 'f', "file", FIELD(file), 0, 0, NULL, "FILE",
      "the text; with recall the haystack (licences of\nthis system)" },
    { CLI_COUNT, 0, "tokens", FIELD(tokens), 32, MOST_TOKENS, NULL, "N",
      "tokens of it that are used (2048, or all there\nare); recall: of a document (1500)" },
    { CLI_COUNT, 0, "keys", FIELD(keys), 1, 100000, NULL, "N", "recall: keys asked for (10)" },
    { CLI_COUNT, 0, "questions", FIELD(questions), 1, EVAL_MOST_QUESTIONS, NULL, "N",
      "recall: keys in one document, asked one after\nthe other (1)" },
    { CLI_TEXT, 0, "depths", FIELD(depths_text), 0, 0, NULL, "LIST",
      "recall: where in the text they are hidden, in\nturn (10%,30%,50%,70%,90%)" },

    { CLI_HEADING, 0, NULL, 0, 0, 0, NULL, NULL, "Cache" },
    { CLI_TEXT, 0, "policy", FIELD(policies_text), 0, 0, NULL, "LIST",
      "policies (default,h2o,streaming); the full cache\nis always the first row" },
    { CLI_TEXT, 0, "budget", FIELD(budgets_text), 0, 0, NULL, "LIST",
      "tokens kept, or percent of --tokens (10%,20%)" },
    { CLI_TEXT, 0, "recent", FIELD(recent_text), 0, 0, NULL, "N",
      "of these the newest, or percent of the budget\n(the policy's)" },
    { CLI_TEXT, 0, "guide", FIELD(guides_text), 0, 0, NULL, "LIST",
      "recall: whether a document is read with the first\nquestion in mind: auto, its last N tokens only, or\n"
      "off (auto)" },
    { CLI_COUNT, 0, "ubatch", FIELD(cache.ubatch), 1, MOST_TOKENS, NULL, "N",
      "tokens in a pass, all of which a pass sees beside\nthe budget (16; recall: 64)" },
    CACHE_ROWS(FIELD(cache)),

    { CLI_HEADING, 0, NULL, 0, 0, 0, NULL, NULL, "Model" },
    { CLI_TEXT, 'm', "model", FIELD(model), 0, 0, NULL, "GGUF", "model file (the one that `make model` fetches)" },
    { CLI_COUNT, 't', "threads", FIELD(threads), 1, 1024, NULL, "N",
      "threads (as many as there are processors)" },

    { CLI_HEADING, 0, NULL, 0, 0, 0, NULL, NULL, "Output" },
    { CLI_FLAG, 0, "json", FIELD(json), 0, 0, NULL, NULL, "one JSON object instead of the table" },
    { CLI_TEXT, 0, "csv", FIELD(csv), 0, 0, NULL, "FILE", "write the rows" },
    { CLI_TEXT, 0, "svg", FIELD(svg), 0, 0, NULL, "FILE", "write a chart of quality against budget" },
    { CLI_FLAG, 'q', "quiet", FIELD(quiet), 0, 0, NULL, NULL, "no progress or warnings" },
    { CLI_FLAG, 'v', "verbose", FIELD(verbose), 0, 0, NULL, NULL, "llama.cpp's own messages, on stderr" },
};

static void set_defaults(eval_options *o)
{
    *o = (eval_options){
        .policies_text = "default,h2o,streaming",
        .budgets_text = "10%,20%",
        .tokens = EVAL_AUTO,
        .keys = EVAL_AUTO,
        .questions = EVAL_AUTO,
        .threads = cli_cpus(),
    };
    cache_defaults(&o->cache);
}

static bool take_arguments(eval_options *o, int argc, char **argv, int first)
{
    uint32_t what;
    if (first == argc) return cli_error(command, "say what to measure: ppl, kl or recall");
    if (first + 1 < argc) return cli_error(command, "unexpected argument '%s'", argv[first + 1]);
    if (!cli_parse_name(command, "measure", argv[first], eval_names, &what)) return false;
    o->what = (enum eval_what)what;
    return true;
}

#ifdef H2OKV_HAVE_LLAMA

static int read_text(eval *e)
{
    const char *path = e->options->file;
    snprintf(e->source, sizeof e->source, "%s", path ? path : "licences in /usr/share/common-licenses");
    return path ? cli_read_text(command, path, &e->text) : cli_read_licences(command, &e->text);
}

static int report(const eval *e, int code)
{
    const eval_options *o = e->options;
    bool ok = true, any = false;
    for (uint32_t i = 0; i < e->n_rows; i++) any = any || e->row[i].n > 0;
    if (!any && (code || !e->stopped)) return code;
    if (o->json) {
        ok = eval_print_json(stdout, e);
    } else if (!any) {
        fputs("(interrupted before anything was measured)\n", stdout);
    } else {
        eval_print(stdout, e);
    }
    if (o->csv && any) ok = eval_write_csv(o->csv, e) && ok;
    if (o->svg && any) ok = eval_write_svg(o->svg, e) && ok;
    if (code) return code;
    if (!ok) return CLI_ENGINE;
    return e->stopped ? CLI_STOPPED : CLI_OK;
}

static int go(const eval_options *o)
{
    static eval e; /* too large for a stack */
    const cli_path paths[] = {
        { "-f", o->file, false }, { "-m", o->model, false }, { "--csv", o->csv, true }, { "--svg", o->svg, true },
    };
    int code;
    e = (eval){ .options = o };
    if (!cli_check_paths(command, paths, sizeof paths / sizeof *paths)) return CLI_USAGE;
    if ((o->csv && !cli_may_write(command, o->csv)) || (o->svg && !cli_may_write(command, o->svg))) return CLI_ENGINE;
    code = read_text(&e);
    if (!code) code = report(&e, eval_measure(&e));
    cli_buffer_free(&e.text);
    return code;
}

#else

static int go(const eval_options *o)
{
    (void)o;
    cli_error(command, "this h2okv was built without llama.cpp, which runs the model.\n"
              "Build it again with llama.cpp: `make` fetches it, `make LLAMA_DIR=folder` uses your own.");
    return CLI_MISSING;
}

#endif

static int cmd_eval(int argc, char **argv)
{
    eval_options o;
    int first, code;
    set_defaults(&o);
    if (!cli_parse(&cli_eval, argc, argv, &o, &first, &code)) return code;
    return take_arguments(&o, argc, argv, first) && eval_check(&o) ? go(&o) : CLI_USAGE;
}

const cli_command cli_eval = {
    .name = "eval",
    .summary = "what a budget costs in quality, against the full cache",
    .usage = "ppl|kl|recall [-m GGUF] [-f FILE] [options]",
    .about = "Runs the same text through the full cache, and each policy at each budget.\n"
             "  ppl     perplexity of the second half of the text\n"
             "  kl      the same, KL divergence to the full cache, and how often the most\n"
             "          likely token is the same\n"
             "  recall  share of the five-digit keys, hidden in a text, that are found",
    .options = options,
    .n_options = sizeof options / sizeof options[0],
    .example = "h2okv eval kl -f text.txt --policy h2o,window --budget 10%,20%,256",
    .run = cmd_eval,
};
