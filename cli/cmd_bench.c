/*
 * cmd_bench.c - `h2okv bench`: h2okv and plain llama.cpp side by side on the same model and text.
 *
 *   options -> lists, defaults -> text -> bench_measure -> table, JSON, CSV, SVG
 */
#include "bench.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static const char *const command = "bench";

const char *const bench_system_names[] = {
    "llama-fa", "llama", "observe", "fused", "fused-q8", "fused-all", NULL,
};
const char *const bench_system_labels[] = {
    "llama.cpp flash attention", "llama.cpp without flash attention", "h2okv observe",
    "h2okv fused",               "h2okv fused, K and V q8_0",         "h2okv fused, nothing evicted",
};

#define FIELD(name) offsetof(bench_options, name)
#define MOST_TOKENS (INT32_MAX / 4)
enum { LEAST_CONTEXT = 64, LEAST_BUDGET = 16, LARGEST_ALL = 4096 };

const char *const bench_load_names[] = { "own", "read", "mmap", NULL };

static const cli_option options[] = {
    { CLI_HEADING, 0, NULL, 0, 0, 0, NULL, NULL, "What is measured" },
    { CLI_TEXT, 0, "systems", FIELD(systems_text), 0, 0, NULL, "LIST",
      "of llama-fa, llama (plain llama.cpp with and\nwithout flash attention), observe, fused,\n"
      "fused-q8, fused-all (nothing evicted, at 4k);\nnone: the kernels only (all)" },
    { CLI_TEXT, 0, "contexts", FIELD(contexts_text), 0, 0, NULL, "LIST", "for all systems (1k,2k,4k,8k)" },
    { CLI_TEXT, 0, "long", FIELD(long_text), 0, 0, NULL, "LIST", "for fused alone; may be none (16k,32k)" },
    { CLI_COUNT, 'n', "new", FIELD(n_new), 1, BENCH_MOST_NEW, NULL, "N",
      "tokens decoded at the end of a context (64)" },
    { CLI_COUNT, 0, "repeat", FIELD(repeat), 1, BENCH_MOST_ROUNDS, NULL, "N",
      "at most N rounds over everything (3)" },
    { CLI_REAL, 0, "minutes", FIELD(minutes), 0, 1e6, NULL, "X",
      "after the first round nothing is begun that\nwould end later (12)" },
    { CLI_FLAG, 0, "quick", FIELD(quick), 0, 0, NULL, NULL,
      "one round of 512 and 1k, 16 new tokens: to see\nthat it works" },
    { CLI_TEXT, 'f', "file", FIELD(file), 0, 0, NULL, "FILE", "the text (licences of this system)" },

    { CLI_HEADING, 0, NULL, 0, 0, 0, NULL, NULL, "How" },
    { CLI_TEXT, 'm', "model", FIELD(model), 0, 0, NULL, "GGUF",
      "model file (the one that `make model` fetches)" },
    { CLI_COUNT, 't', "threads", FIELD(threads), 1, 1024, NULL, "N",
      "threads (as many as there are processors)" },
    { CLI_NAME, 0, "load", FIELD(load), 0, 0, bench_load_names, "HOW",
      "own (h2okv reads the model's file, llama.cpp maps\nit, as they do by themselves), or for all read or\nmmap" },
    { CLI_COUNT, 0, "budget", FIELD(budget), LEAST_BUDGET, MOST_TOKENS, NULL, "N",
      "tokens that h2okv keeps (800)" },
    { CLI_COUNT, 0, "ubatch", FIELD(ubatch), 1, MOST_TOKENS, NULL, "N",
      "most tokens in a pass of h2okv (the least from\n128 up that makes budget + N a multiple of 256)" },
    { CLI_TEXT, 0, "isa", FIELD(isa), 0, 0, NULL, "NAME",
      "instruction set of h2okv's kernels (the best);\nlist: those there are" },

    { CLI_HEADING, 0, NULL, 0, 0, 0, NULL, NULL, "Output" },
    { CLI_FLAG, 0, "json", FIELD(json), 0, 0, NULL, NULL, "one JSON object instead of the table" },
    { CLI_TEXT, 0, "csv", FIELD(csv), 0, 0, NULL, "FILE", "write every single measurement" },
    { CLI_TEXT, 0, "svg", FIELD(svg), 0, 0, NULL, "FILE", "write a chart of the decode speeds" },
    { CLI_FLAG, 'q', "quiet", FIELD(quiet), 0, 0, NULL, NULL, "no progress or warnings" },
    { CLI_FLAG, 'v', "verbose", FIELD(verbose), 0, 0, NULL, NULL, "llama.cpp's own messages, on stderr" },
};

/* ---- Lists -------------------------------------------------------------------------------------------- */

/* The next word of a list into `word`; NULL when there is none, "" when it is empty or too long. */
static const char *next_word(const char **list, char *word, size_t size)
{
    size_t n;
    if (!*list) return NULL;
    n = strcspn(*list, ",");
    snprintf(word, size, "%.*s", (int)(n < size ? n : 0), *list);
    *list = (*list)[n] ? *list + n + 1 : NULL;
    return word;
}

/* "8k" or "8192". */
static bool parse_context(const char *option, const char *word, uint32_t *out)
{
    char digits[16];
    size_t n = strlen(word);
    bool k = n > 1 && (word[n - 1] == 'k' || word[n - 1] == 'K');
    snprintf(digits, sizeof digits, "%.*s", (int)(k ? n - 1 : n), word);
    if (!*digits || strspn(digits, "0123456789") != strlen(digits)) {
        return cli_error(command, "%s '%s' is no list of contexts such as 1k,2k,4096", option, word);
    }
    if (!k) return cli_parse_count(command, option, digits, LEAST_CONTEXT, MOST_TOKENS, out);
    if (!cli_parse_count(command, option, digits, 1, MOST_TOKENS / 1024, out)) return false;
    *out *= 1024;
    return true;
}

static int by_size(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

/* Rising, each once. */
static bool parse_contexts(const char *option, const char *list, uint32_t *out, uint32_t *n)
{
    char word[16];
    uint32_t unique = 0;
    *n = 0;
    if (strcmp(list, "none") == 0) return true;
    while (next_word(&list, word, sizeof word)) {
        if (*n == BENCH_MOST_CONTEXTS) {
            return cli_error(command, "%s: more than %d contexts", option, BENCH_MOST_CONTEXTS);
        }
        if (!parse_context(option, word, &out[(*n)++])) return false;
    }
    qsort(out, *n, sizeof *out, by_size);
    for (uint32_t i = 0; i < *n; i++) {
        if (i == 0 || out[i] != out[i - 1]) out[unique++] = out[i];
    }
    *n = unique;
    return true;
}

static bool parse_systems(bench_options *o)
{
    const char *list = o->systems_text;
    char word[32];
    for (int i = 0; i < BENCH_SYSTEMS; i++) o->wanted[i] = !list;
    if (!list || strcmp(list, "none") == 0) return true;
    while (next_word(&list, word, sizeof word)) {
        uint32_t system;
        if (!cli_parse_name(command, "--systems", word, bench_system_names, &system)) return false;
        o->wanted[system] = true;
    }
    return true;
}

/* ---- Options ------------------------------------------------------------------------------------------ */

static void set_defaults(bench_options *o)
{
    *o = (bench_options){
        .threads = cli_cpus(),
        .budget = 800,
        .ubatch = BENCH_AUTO,
        .repeat = BENCH_AUTO,
        .n_new = BENCH_AUTO,
        .minutes = 12,
    };
}

static void fill_in(bench_options *o)
{
    if (!o->contexts_text) o->contexts_text = o->quick ? "512,1k" : "1k,2k,4k,8k";
    if (!o->long_text) o->long_text = o->quick || !o->wanted[BENCH_FUSED] ? "none" : "16k,32k";
    if (o->repeat == BENCH_AUTO) o->repeat = o->quick ? 1 : 3;
    if (o->n_new == BENCH_AUTO) o->n_new = o->quick ? 16 : 64;
    o->kernel_runs = o->quick ? 5 : 21;
}

static bool check_together(const bench_options *o)
{
    uint32_t least = o->n_contexts ? o->contexts[0] : o->n_long ? o->long_contexts[0] : UINT32_MAX;
    bool any = false;
    for (int i = 0; i < BENCH_SYSTEMS; i++) any = any || o->wanted[i];
    if (any && least == UINT32_MAX) {
        return cli_error(command, "no context is left to measure: give --contexts");
    }
    if (o->n_long && !o->wanted[BENCH_FUSED]) {
        return cli_error(command, "--long is measured with fused alone, and --systems does not name it");
    }
    if (o->n_long && least > o->long_contexts[0]) least = o->long_contexts[0];
    if (any && o->n_new >= least) {
        return cli_error(command, "--new %" PRIu32 " leaves no prompt in a context of %" PRIu32, o->n_new,
                         least);
    }
    return true;
}

static bool check(bench_options *o)
{
    if (!parse_systems(o)) return false;
    fill_in(o);
    return parse_contexts("--contexts", o->contexts_text, o->contexts, &o->n_contexts) &&
           parse_contexts("--long", o->long_text, o->long_contexts, &o->n_long) &&
           (!o->isa || cli_check_isa(command, o->isa)) && check_together(o);
}

/* ---- The plan ----------------------------------------------------------------------------------------- */

static void add_point(bench *b, enum bench_system system, uint32_t context)
{
    b->point[b->n_points].system = system;
    b->point[b->n_points].context = context;
    b->n_points++;
}

/* The context at which nothing is evicted: the largest up to 4k, or the smallest. */
static uint32_t context_for_all(const bench_options *o)
{
    uint32_t best = o->n_contexts ? o->contexts[0] : 0;
    for (uint32_t i = 0; i < o->n_contexts; i++) {
        if (o->contexts[i] <= LARGEST_ALL) best = o->contexts[i];
    }
    return best;
}

bool bench_plan(bench *b)
{
    const bench_options *o = b->options;
    b->point = calloc((size_t)BENCH_SYSTEMS * BENCH_MOST_CONTEXTS + BENCH_MOST_CONTEXTS, sizeof *b->point);
    if (!b->point) return cli_error(command, "out of memory");
    for (uint32_t c = 0; c < o->n_contexts; c++) {
        for (int s = 0; s < BENCH_SYSTEMS; s++) {
            bool here = s != BENCH_FUSED_ALL || o->contexts[c] == context_for_all(o);
            if (o->wanted[s] && here) add_point(b, (enum bench_system)s, o->contexts[c]);
        }
    }
    for (uint32_t c = 0; c < o->n_long; c++) {
        bool new_one = o->n_contexts == 0 || o->long_contexts[c] > o->contexts[o->n_contexts - 1];
        if (new_one) add_point(b, BENCH_FUSED, o->long_contexts[c]);
    }
    return true;
}

/* ---- The text ----------------------------------------------------------------------------------------- */

static int read_text(bench *b)
{
    const char *path = b->options->file;
    snprintf(b->source, sizeof b->source, "%s", path ? path : "licences in /usr/share/common-licenses");
    return path ? cli_read_text(command, path, &b->text) : cli_read_licences(command, &b->text);
}

/* ---- The command -------------------------------------------------------------------------------------- */

static void warn_of_load(const bench *b)
{
    const bench_machine *m = &b->machine;
    if (b->options->quiet || m->load[0] <= 0.5 * m->processors) return;
    cli_warn(command,
             "load average %.2f on %" PRIu32 " processors: other programs slow this one down, and plain "
             "llama.cpp most of all",
             m->load[0], m->processors);
}

static bool anything_measured(const bench *b)
{
    bool any = b->kernels.isa[0] != '\0';
    for (uint32_t i = 0; i < b->n_points; i++) any = any || b->point[i].n > 0;
    return any;
}

static int report(const bench *b, int code)
{
    const bench_options *o = b->options;
    bool ok = true;
    if (!anything_measured(b)) return b->stopped ? CLI_STOPPED : code;
    if (o->json) {
        ok = bench_print_json(stdout, b);
    } else {
        bench_print(stdout, b);
    }
    if (o->csv) ok = bench_write_csv(o->csv, b) && ok;
    if (o->svg) ok = bench_write_svg(o->svg, b) && ok;
    if (code) return code;
    if (!ok) return CLI_ENGINE;
    return b->stopped ? CLI_STOPPED : CLI_OK;
}

static int go(const bench_options *o)
{
    bench b = { .options = o };
    const cli_path paths[] = {
        { "-f", o->file, false }, { "-m", o->model, false }, { "--csv", o->csv, true }, { "--svg", o->svg, true },
    };
    int code;
    if (!cli_check_paths(command, paths, sizeof paths / sizeof *paths)) return CLI_USAGE;
    if ((o->csv && !cli_may_write(command, o->csv)) || (o->svg && !cli_may_write(command, o->svg))) return CLI_ENGINE;
    bench_look_at_machine(&b.machine);
    code = read_text(&b);
    if (!code && !bench_plan(&b)) code = CLI_ENGINE;
    if (!code) {
        warn_of_load(&b);
        code = report(&b, bench_measure(&b));
    }
    free(b.point);
    cli_buffer_free(&b.text);
    return code;
}

static int start(const bench_options *o)
{
#ifndef H2OKV_HAVE_LLAMA
    for (int i = 0; i < BENCH_SYSTEMS; i++) {
        if (!o->wanted[i]) continue;
        cli_error(command, "this h2okv was built without llama.cpp, which runs the model.\n"
                  "Build it again with llama.cpp: `make` fetches it, `make LLAMA_DIR=folder` uses your own.\n"
                  "The kernels alone can be measured: h2okv bench --systems none");
        return CLI_MISSING;
    }
#endif
    return go(o);
}

static int cmd_bench(int argc, char **argv)
{
    bench_options o;
    int first, code;
    set_defaults(&o);
    if (!cli_parse(&cli_bench, argc, argv, &o, &first, &code)) return code;
    if (first < argc) {
        cli_error(command, "takes no argument, and '%s' is one", argv[first]);
        return CLI_USAGE;
    }
    if (o.isa && strcmp(o.isa, "list") == 0) {
        cli_list_isas();
        return CLI_OK;
    }
    return check(&o) ? start(&o) : CLI_USAGE;
}

const cli_command cli_bench = {
    .name = "bench",
    .summary = "h2okv and plain llama.cpp side by side, and the kernels alone",
    .usage = "[-m GGUF] [options]",
    .about = "Measures h2okv and plain llama.cpp on the same model and text, turn by turn in\n"
             "one run: speed of reading, time to the first token, speed of decoding, memory.\n"
             "Then the attention kernel alone, against the memory's copy bandwidth.",
    .options = options,
    .n_options = sizeof options / sizeof options[0],
    .example = "h2okv bench --csv bench.csv --svg bench.svg",
    .run = cmd_bench,
};
