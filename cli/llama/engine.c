/*
 * engine.c - see engine.h.
 *
 *   path -> is it a GGUF file? -> backends -> model -> is its kind supported? -> does it fit? -> context
 */
#include "engine.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define DEFAULT_MODEL "SmolLM2-135M-Instruct.Q4_1.gguf"

/* ---- llama.cpp's log ---------------------------------------------------------------------------------- */

/* llama.cpp has one log for the process. */
static struct {
    bool verbose;
    char error[512]; /* the first error since the last load began: later ones only say that it failed */
} engine_log;

static void on_log(enum ggml_log_level level, const char *text, void *user)
{
    (void)user;
    if (engine_log.verbose) fputs(text, stderr);
    if (level == GGML_LOG_LEVEL_ERROR && !engine_log.error[0]) {
        snprintf(engine_log.error, sizeof engine_log.error, "%s", text);
        engine_log.error[strcspn(engine_log.error, "\n")] = '\0';
    }
}

const char *engine_last_log(void)
{
    return engine_log.error;
}

static void start_log(bool verbose)
{
    engine_log.verbose = verbose;
    engine_log.error[0] = '\0';
    llama_log_set(on_log, NULL);
}

/* ---- The file ----------------------------------------------------------------------------------------- */

static bool default_path(char *out, size_t size)
{
    const char *own = getenv("H2OKV_CACHE"), *xdg = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    int n;
    if (own && *own) {
        n = snprintf(out, size, "%s/models/%s", own, DEFAULT_MODEL);
    } else if (xdg && *xdg) {
        n = snprintf(out, size, "%s/h2okv/models/%s", xdg, DEFAULT_MODEL);
    } else {
        n = snprintf(out, size, "%s/.cache/h2okv/models/%s", home ? home : "", DEFAULT_MODEL);
    }
    return n >= 0 && (size_t)n < size;
}

static int find_file(engine *e, const char *path)
{
    struct stat info;
    bool fits = path ? strlen(path) < sizeof e->path : default_path(e->path, sizeof e->path);
    if (!fits) {
        cli_error(e->command, "the model's path is too long");
        return CLI_INPUT;
    }
    if (path) snprintf(e->path, sizeof e->path, "%s", path);
    if (stat(e->path, &info) == 0) {
        if (S_ISREG(info.st_mode)) return CLI_OK;
        cli_error(e->command, "%s: is %s", e->path,
                  S_ISDIR(info.st_mode) ? "a directory, not a model"
                                        : "not a regular file; llama.cpp reads a model more than once");
    } else if (path) {
        cli_error(e->command, "%s: cannot open: %s", e->path, strerror(errno));
    } else {
        cli_error(e->command, "no model: %s is missing; run `make model`, or name a GGUF file with -m",
                  e->path);
    }
    return CLI_INPUT;
}

/* What is no GGUF file is told so here: llama.cpp's own words for it are about magic characters. */
static int check_magic(const engine *e)
{
    char magic[4];
    FILE *file = fopen(e->path, "rb");
    size_t n = file ? fread(magic, 1, sizeof magic, file) : 0;
    int code = CLI_INPUT;
    if (!file) {
        cli_error(e->command, "%s: cannot open: %s", e->path, strerror(errno));
    } else if (n < sizeof magic || memcmp(magic, "GGUF", sizeof magic) != 0) {
        cli_error(e->command, "%s: is no GGUF file", e->path);
    } else {
        code = CLI_OK;
    }
    if (file) fclose(file);
    return code;
}

/* ---- The model ---------------------------------------------------------------------------------------- */

static bool on_load(float done, void *user)
{
    (void)done;
    (void)user;
    return !cli_interrupted();
}

static int load_model(engine *e, bool mapped)
{
    struct llama_model_params params = llama_model_default_params();
    h2okv_error error;
    if (h2okv_llama_load_backends(NULL)) {
        cli_error(e->command,
                  "llama.cpp has no CPU backend: its libggml-cpu files have to lie beside libllama");
        return CLI_MISSING;
    }
    params.load_mode = mapped ? LLAMA_LOAD_MODE_MMAP : LLAMA_LOAD_MODE_NONE;
    params.progress_callback = on_load;
    e->model = llama_model_load_from_file(e->path, params);
    if (!e->model && cli_interrupted()) return CLI_STOPPED;
    if (!e->model) {
        cli_error(e->command, "%s: llama.cpp cannot load it: %s", e->path, engine_last_log());
        return CLI_MODEL;
    }
    if (h2okv_llama_check_model(e->model, &error)) {
        cli_error(e->command, "%s: %s", e->path, error.text);
        return CLI_MODEL;
    }
    e->vocab = llama_model_get_vocab(e->model);
    if (llama_vocab_type(e->vocab) == LLAMA_VOCAB_TYPE_NONE) { /* asked for tokens, llama.cpp would abort */
        cli_error(e->command, "%s: has no vocabulary, so no text can be read or written with it", e->path);
        return CLI_MODEL;
    }
    return CLI_OK;
}

int engine_load(engine *e, const char *command, const char *path, bool mapped, bool verbose)
{
    int code;
    *e = (engine){ .command = command };
    start_log(verbose);
    code = find_file(e, path);
    if (!code) code = check_magic(e);
    return code ? code : load_model(e, mapped);
}

void engine_free(engine *e)
{
    h2okv_llama_free(e->h);
    if (e->model) llama_model_free(e->model);
    e->h = NULL;
    e->model = NULL;
}

/* ---- Does it fit? ------------------------------------------------------------------------------------- */

/* "<architecture>.<suffix>" of the model's metadata, or `otherwise`. */
static uint64_t metadata(const engine *e, const char *suffix, uint64_t otherwise)
{
    char architecture[96] = "", key[192], text[32];
    llama_model_meta_val_str(e->model, "general.architecture", architecture, sizeof architecture);
    snprintf(key, sizeof key, "%s.%s", architecture, suffix);
    if (llama_model_meta_val_str(e->model, key, text, sizeof text) < 0) return otherwise;
    return strtoull(text, NULL, 10);
}

/* Numbers of K and V in a cell of all layers, from the model's header: as if all layers were alike. */
static double numbers_per_cell(const engine *e)
{
    double heads = llama_model_n_head(e->model), layers = llama_model_n_layer(e->model);
    uint64_t head = (uint64_t)llama_model_n_embd(e->model) / (heads > 0 ? (uint64_t)heads : 1);
    uint64_t k = metadata(e, "attention.key_length", head), v = metadata(e, "attention.value_length", head);
    return layers * llama_model_n_head_kv(e->model) * ((double)k + (double)v);
}

uint64_t engine_kv_bytes_per_cell(const engine *e)
{
    return (uint64_t)numbers_per_cell(e) * 2;
}

static double bytes_per_number(enum ggml_type type)
{
    return (double)ggml_type_size(type) / (double)ggml_blck_size(type);
}

/* Bytes for `cells` cells: K and V, a pass's mask and, where llama.cpp computes attention, its weights, and the books.
 * An estimate, only to refuse what cannot be; a double, because it may be past 2^64. */
static double bytes_needed(const engine *e, const h2okv_llama_options *o, double cells, double ubatch,
                           enum ggml_type kv_type)
{
    bool observe = o->attention == H2OKV_ATTENTION_OBSERVE; /* auto will be fused on nearly every model */
    double rows = 1 + (observe ? llama_model_n_head(e->model) : 0), sequences = e->sequences > 0 ? e->sequences : 1;
    h2okv_options books = *o->cache;
    size_t book_bytes = 0;
    books.lanes = (uint32_t)(llama_model_n_layer(e->model) * llama_model_n_head_kv(e->model));
    books.cells = (uint32_t)cells;
    if (h2okv_cache_bytes(&books, &book_bytes)) book_bytes = 0;
    return sequences * (numbers_per_cell(e) * bytes_per_number(kv_type) * cells + (double)book_bytes) +
           rows * ubatch * cells * 4;
}

static bool fits(const engine *e, const h2okv_llama_options *o, enum ggml_type kv_type)
{
    uint32_t most = o->room > o->cache->budget ? o->room : o->cache->budget;
    double ubatch = o->ubatch == H2OKV_AUTO ? 128 : o->ubatch, cells = most + ubatch;
    double need = bytes_needed(e, o, cells, ubatch, kv_type), memory = (double)cli_physical_memory();
    char text[32];
    if (memory <= 0 || need <= memory) return true;
    return cli_error(e->command,
                     "%s %" PRIu32 " with passes of %.0f tokens needs %.1f GiB; this machine has %s: "
                     "give a smaller one",
                     o->room > o->cache->budget ? "--prompt-budget" : "--budget", most, ubatch, need / (1 << 30),
                     cli_bytes(text, (uint64_t)memory));
}

/* ---- The context -------------------------------------------------------------------------------------- */

static int code_of(int status)
{
    switch (status) {
    case H2OKV_E_INVALID: return CLI_USAGE;
    case H2OKV_E_UNSUPPORTED: return CLI_MODEL;
    default: return CLI_ENGINE;
    }
}

/* The one place where options of the program become options of the library. */
static void convert(const engine *e, const cache_options *o, h2okv_options *cache, h2okv_llama_options *llama)
{
    h2okv_options_init(cache);
    cache->on_event = e->watch.event;
    cache->on_mass = e->watch.mass;
    cache->event_user = cache->mass_user = e->watch.user;
    cache->policy = o->policy;
    cache->budget = o->budget;
    cache->recent = o->recent == CACHE_AUTO ? H2OKV_AUTO : o->recent;
    cache->sinks = o->sinks == CACHE_AUTO ? H2OKV_AUTO : o->sinks;
    cache->pool = o->pool == CACHE_AUTO ? H2OKV_AUTO : o->pool;
    cache->decay = o->decay < 0 ? 0 : o->decay;
    cache->grace = o->grace;
    cache->seed = o->seed;
    h2okv_llama_options_init(llama);
    llama->cache = cache;
    llama->lanes = o->lanes;
    llama->room = o->prompt_budget;
    llama->ubatch = o->ubatch == CACHE_AUTO ? H2OKV_AUTO : o->ubatch;
    llama->attention = o->attention;
    llama->isa = o->isa;
    llama->sequences = e->sequences;
    if (o->kv_type != CACHE_KV_F16) llama->attention = H2OKV_ATTENTION_FUSED; /* so that an error says why not */
}

int engine_pin(const engine *e, h2okv_llama *h, const cache_options *o)
{
    for (uint32_t i = 0; i < o->n_pins; i++) {
        if (h2okv_llama_pin(h, o->pin[i].first, o->pin[i].end) == H2OKV_OK) continue;
        cli_error(e->command, "--pin %" PRId32 ":%" PRId32 ": %s", o->pin[i].first, o->pin[i].end,
                  h2okv_llama_last_error(h)->text);
        return CLI_USAGE;
    }
    return CLI_OK;
}

void engine_set_guide(h2okv_llama_guide *guide, const cache_options *o)
{
    if (o->guide_chunk != CACHE_AUTO) guide->chunk = o->guide_chunk;
    if (o->guide_recent != CACHE_AUTO) guide->recent = o->guide_recent;
    if (o->guide_spread != CACHE_AUTO) guide->spread = o->guide_spread;
}

int engine_attach(engine *e, const cache_options *options, uint32_t threads)
{
    struct llama_context_params params = llama_context_default_params();
    enum ggml_type kv_type = options->kv_type == CACHE_KV_F16 ? GGML_TYPE_F16 : GGML_TYPE_Q8_0;
    h2okv_llama_options llama;
    h2okv_options cache;
    h2okv_error error;
    int status;
    convert(e, options, &cache, &llama);
    if (!fits(e, &llama, kv_type)) return CLI_USAGE;
    params.n_threads = params.n_threads_batch = (int32_t)threads;
    params.type_k = params.type_v = kv_type;
    params.no_perf = true;
    engine_log.error[0] = '\0';
    status = h2okv_llama_create(&e->h, e->model, params, &llama, &error);
    if (!status) return CLI_OK;
    cli_error(e->command, "%s%s%s", error.text, engine_log.error[0] ? ": " : "", engine_log.error);
    return code_of(status);
}

bool engine_passed(const engine *e)
{
    if (!e->watch.pass) return true;
    return e->watch.pass(e->watch.user, h2okv_llama_cache(e->h), (uint32_t)h2okv_llama_next_pos(e->h));
}

/* ---- Tokens ------------------------------------------------------------------------------------------- */

int engine_tokenize(const engine *e, const cli_buffer *text, llama_token **tokens, uint32_t *n)
{
    int32_t length = (int32_t)text->n;
    int32_t most = -llama_tokenize(e->vocab, text->data, length, NULL, 0, true, false);
    *n = 0;
    *tokens = most > 0 ? malloc((size_t)most * sizeof **tokens) : NULL;
    if (most > 0 && *tokens) most = llama_tokenize(e->vocab, text->data, length, *tokens, most, true, false);
    if (most > 1 && *tokens && llama_vocab_get_add_eos(e->vocab)) most--; /* the text is to go on */
    if (most < 1 || !*tokens) {
        cli_error(e->command, "llama.cpp makes no tokens of the text, or there is no memory for them");
        return CLI_ENGINE;
    }
    *n = (uint32_t)most;
    return CLI_OK;
}

int engine_tokenize_more(const engine *e, const char *text, size_t bytes, llama_token **tokens, uint32_t *n)
{
    int32_t most = -llama_tokenize(e->vocab, text, (int32_t)bytes, NULL, 0, false, false);
    *n = 0;
    *tokens = malloc((size_t)(most > 0 ? most : 1) * sizeof **tokens);
    if (!*tokens) {
        cli_error(e->command, "out of memory for tokens");
        return CLI_ENGINE;
    }
    if (most > 0) *n = (uint32_t)llama_tokenize(e->vocab, text, (int32_t)bytes, *tokens, most, false, false);
    return CLI_OK;
}

static bool add_piece(const engine *e, llama_token token, bool special, cli_buffer *out)
{
    int32_t room = 64, n;
    for (;;) {
        if (!cli_buffer_reserve(out, (size_t)room)) return false;
        n = llama_token_to_piece(e->vocab, token, out->data + out->n, room, 0, special);
        if (n >= 0) break;
        room = -n;
    }
    out->n += (size_t)n;
    out->data[out->n] = '\0';
    return true;
}

bool engine_piece(const engine *e, llama_token token, cli_buffer *out)
{
    return add_piece(e, token, false, out);
}

bool engine_special(const engine *e, llama_token token, cli_buffer *out)
{
    return add_piece(e, token, true, out);
}
