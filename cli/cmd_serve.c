/*
 * cmd_serve.c - `h2okv serve`: many clients, one bounded engine, by OpenAI's HTTP API.
 *
 *   options, key -> serve_options -> llama/serve.c, which starts HTTP (serve/http.c)
 */
#include "serve/serve.h"

#include "run.h"

#include <stdlib.h>
#include <string.h>

/* As given; `o` is what they come to. */
typedef struct serve_command {
    serve_options o;
    uint32_t port, most_body, guide;
    const char *key, *key_file;
} serve_command;

#define FIELD(name) offsetof(serve_command, name)

enum { MOST_NEW = 1 << 20, LEAST_BODY = 1024, MOST_BODY = 1 << 30, MOST_KEY = 1024, GUIDE_OFF = 1 };

static const char *const guide_names[] = { "auto", "off", NULL };

static const cli_option options[] = {
    { CLI_HEADING, 0, NULL, 0, 0, 0, NULL, NULL, "Server" },
    { CLI_TEXT, 0, "host", FIELD(o.host), 0, 0, NULL, "ADDRESS", "where to listen (127.0.0.1)" },
    { CLI_COUNT, 0, "port", FIELD(port), 0, 65535, NULL, "N", "port (8080); 0: any free one, which is printed" },
    { CLI_TEXT, 0, "api-key", FIELD(key), 0, 0, NULL, "KEY",
      "clients have to send it; also $H2OKV_API_KEY, which\nother users do not see" },
    { CLI_TEXT, 0, "api-key-file", FIELD(key_file), 0, 0, NULL, "FILE", "the same, from a file" },
    { CLI_COUNT, 0, "slots", FIELD(o.slots), 1, SERVE_MOST_SLOTS, NULL, "N", "requests decoded at once (4)" },
    { CLI_COUNT, 0, "queue", FIELD(o.queue), 1, 65536, NULL, "N",
      "requests that may wait for a slot (64); the next one\ngets 429" },
    { CLI_COUNT, 0, "max-tokens", FIELD(o.most_tokens), 1, MOST_NEW, NULL, "N",
      "most tokens of an answer whose request names none\n(512)" },
    { CLI_REAL, 0, "time-limit", FIELD(o.time_limit), 0, 1e6, NULL, "S",
      "seconds that a request may take, waiting included\n(600); 0: any" },
    { CLI_COUNT, 0, "max-body", FIELD(most_body), LEAST_BODY, MOST_BODY, NULL, "BYTES", "of a request (16777216)" },
    { CLI_COUNT, 0, "connections", FIELD(o.connections), 1, 1024, NULL, "N", "connections at once (128)" },
    { CLI_HEADING, 0, NULL, 0, 0, 0, NULL, NULL, "Model" },
    { CLI_TEXT, 'm', "model", FIELD(o.model), 0, 0, NULL, "GGUF", "model file (the one that `make model` fetches)" },
    { CLI_TEXT, 0, "template", FIELD(o.template), 0, 0, NULL, "NAME",
      "chat template: a name (`h2okv chat --template list`\nlists them), or a file (the model's own)" },
    { CLI_COUNT, 't', "threads", FIELD(o.threads), 1, 1024, NULL, "N",
      "threads (as many as there are processors)" },
    { CLI_FLAG, 0, "mmap", FIELD(o.mapped), 0, 0, NULL, NULL,
      "map the model file instead of reading it: other\nprograms share it, but memory grows by it where\n"
      "llama.cpp rearranges the weights" },
    { CLI_HEADING, 0, NULL, 0, 0, 0, NULL, NULL, "Cache of each slot" },
    { CLI_COUNT, 0, "budget", FIELD(o.cache.budget), CACHE_LEAST_BUDGET, CACHE_MOST_TOKENS, NULL, "N",
      "tokens kept (512)" },
    { CLI_COUNT, 0, "recent", FIELD(o.cache.recent), 0, CACHE_MOST_TOKENS, NULL, "N",
      "of these the newest (the policy's: mostly half)" },
    { CLI_TEXT, 0, "policy", FIELD(o.cache.policy), 0, 0, NULL, "NAME",
      "default, h2o (heavy hitters), h2o-paper, snapkv,\ntova, lifetime, streaming, window, random, full" },
    { CLI_NAME, 0, "guide", FIELD(guide), 0, 0, guide_names, "HOW",
      "read a prompt that is longer than the budget with\nits end in mind: auto, or off (auto)" },
    { CLI_COUNT, 0, "ubatch", FIELD(o.cache.ubatch), 1, CACHE_MOST_TOKENS, NULL, "N",
      "most tokens in a pass (the least from 128 up\nthat makes budget + N a multiple of 256)" },
    CACHE_CHOICE_ROWS(FIELD(o.cache)),
    CACHE_READING_ROWS(FIELD(o.cache)),
    { CLI_HEADING, 0, NULL, 0, 0, 0, NULL, NULL, "Output" },
    { CLI_FLAG, 'v', "verbose", FIELD(o.verbose), 0, 0, NULL, NULL,
      "answers by status, and llama.cpp's own messages, on\nstderr" },
};

static void defaults(serve_command *c)
{
    *c = (serve_command){ .port = 8080, .most_body = 16 << 20 };
    c->o = (serve_options){ .host = "127.0.0.1", .slots = 4, .queue = 64, .threads = cli_cpus(), .most_tokens = 512,
                            .time_limit = 600, .connections = 128 };
    cache_defaults(&c->o.cache);
}

/* ---- The key ------------------------------------------------------------------------------------------- */

static int bad_key(const char *where, const char *what)
{
    cli_error("serve", "%s: %s", where, what);
    return CLI_USAGE;
}

/* What a header can hold, and nothing that an eye or a shell may lose. */
static int check_key(const char *where, const char *key)
{
    size_t n = strlen(key);
    if (n == 0) return bad_key(where, "the key is empty: give one, or leave it out");
    if (n > MOST_KEY) return bad_key(where, "the key is longer than 1024 characters");
    for (size_t i = 0; i < n; i++) {
        if (key[i] <= ' ' || key[i] > '~') {
            return bad_key(where, "the key has to be of printable ASCII characters, without spaces");
        }
    }
    return CLI_OK;
}

static int read_key(const char *path, cli_buffer *text)
{
    int code = cli_read_text("serve", path, text);
    while (!code && text->n > 0 && strchr("\r\n", text->data[text->n - 1])) text->data[--text->n] = '\0';
    return code ? code : check_key("--api-key-file", text->data);
}

/* From where it was given into `text`, and o.api_key. The argument is wiped: it stands in the list of processes. */
static int find_key(serve_command *c, cli_buffer *text)
{
    const char *given = c->key ? c->key : getenv("H2OKV_API_KEY");
    int code;
    if (c->key && c->key_file) return bad_key("--api-key", "give --api-key or --api-key-file, not both");
    if (!c->key_file && !given) return CLI_OK;
    if (c->key_file) {
        code = read_key(c->key_file, text);
    } else {
        code = check_key(c->key ? "--api-key" : "H2OKV_API_KEY", given);
        if (!code && !cli_buffer_add(text, given, strlen(given))) code = CLI_ENGINE;
        if (c->key) memset((char *)(uintptr_t)c->key, '*', strlen(c->key));
    }
    c->o.api_key = text->data;
    return code;
}

/* ---- The rest ------------------------------------------------------------------------------------------ */

static bool check_guide(const serve_command *c)
{
    const char *option = cache_guide_option(&c->o.cache);
    if (!option || c->guide != GUIDE_OFF) return true;
    return cli_error("serve", "%s has no effect with --guide off", option);
}

/* An option that would do nothing is refused, so that nobody believes it did something. */
static bool check_scores(const serve_command *c)
{
    const char *option = cache_scores_option(&c->o.cache);
    if (!option || cache_uses_scores(c->o.cache.policy)) return true;
    return cli_error("serve", "%s has no effect with --policy %s, which uses no scores", option, c->o.cache.policy);
}

static bool check_recent(const cache_options *c)
{
    if (c->guide_recent == CACHE_AUTO || c->guide_recent <= c->recent) return true;
    return cli_error("serve", "--guide-recent %u is more than --recent, %u", (unsigned)c->guide_recent,
                     (unsigned)c->recent);
}

static bool check(serve_command *c, int argc, char **argv, int first)
{
    cache_options *cache = &c->o.cache;
    if (first < argc) return cli_error("serve", "unexpected argument '%s': a model goes with -m", argv[first]);
    if (!*c->o.host) return cli_error("serve", "--host is empty: give an address, such as 127.0.0.1");
    c->o.port = (uint16_t)c->port;
    c->o.most_body = c->most_body;
    if (c->guide == GUIDE_OFF) cache->guide = 0;
    return cache_parse_policy("serve", cache->policy, &cache->policy) && cache_check("serve", cache) &&
           check_guide(c) && check_scores(c) && cache_resolve("serve", cache) && check_recent(cache);
}

static int go(serve_command *c)
{
#ifdef H2OKV_HAVE_LLAMA
    cli_buffer key = { 0 };
    int code = find_key(c, &key);
    if (!code) code = serve_model_run(&c->o);
    cli_buffer_free(&key);
    return code;
#else
    (void)c;
    (void)find_key;
    cli_error("serve", "this h2okv was built without llama.cpp, which runs the model.\n"
              "Build it again with llama.cpp: `make` fetches it, `make LLAMA_DIR=folder` uses your own.");
    return CLI_MISSING;
#endif
}

static int cmd_serve(int argc, char **argv)
{
    serve_command c;
    int first, code;
    defaults(&c);
    if (!cli_parse(&cli_serve, argc, argv, &c, &first, &code)) return code;
    return check(&c, argc, argv, first) ? go(&c) : CLI_USAGE;
}

const cli_command cli_serve = {
    .name = "serve",
    .summary = "answer many clients by OpenAI's HTTP API",
    .usage = "[-m GGUF] [--port N] [--slots N] [options]",
    .about = "Serves a model to programs that speak OpenAI's API, from slots whose KV caches\n"
             "never grow past a budget: memory is known beforehand, however long and many the\n"
             "conversations are. Ctrl-C or SIGTERM lets the answers at hand end, then ends.",
    .options = options,
    .n_options = sizeof options / sizeof options[0],
    .example = "h2okv serve --slots 4 --budget 1024 --port 8080",
    .run = cmd_serve,
};
