/*
 * cache_options.h - the options of a cache that the commands with a model share: one table, one check, one conversion.
 *
 *   --sink ... (CACHE_ROWS) -> cache_options -> cache_check -> cache_resolve -> engine_attach in llama/engine.c
 *
 * A command adds rows of its own for what it takes lists of, or explains differently: --policy, --budget, --recent,
 * --ubatch, --guide. `h2okv serve` has no --pin: its requests name what is pinned.
 */
#ifndef H2OKV_CLI_CACHE_OPTIONS_H
#define H2OKV_CLI_CACHE_OPTIONS_H

#include "cli.h"

#define CACHE_AUTO UINT32_MAX     /* not given */
#define CACHE_POLICYS_DECAY (-1.0) /* not given */

enum {
    CACHE_LEAST_BUDGET = 16,
    CACHE_MOST_TOKENS = INT32_MAX / 4,
    CACHE_MOST_PINS = 16,
    CACHE_MOST_GUIDE = 4096,
};

enum cache_kv_type { CACHE_KV_F16, CACHE_KV_Q8_0 };

/* By enum h2okv_llama_lanes, h2okv_llama_attention and cache_kv_type; each ends with NULL. */
extern const char *const cache_lane_names[], *const cache_attention_names[], *const cache_kv_type_names[];

typedef struct cache_range {
    int32_t first, end; /* positions first..end-1 */
} cache_range;

typedef struct cache_options {
    const char *policy;
    uint32_t budget;
    uint32_t recent, sinks, pool; /* CACHE_AUTO: the policy's; filled in by cache_resolve, as is decay */
    double decay;                 /* below 0: the policy's */
    uint32_t grace;
    uint32_t prompt_budget;       /* room while the prompt is read; 0: the budget */
    cli_texts pin_texts;
    cache_range pin[CACHE_MOST_PINS]; /* filled in by cache_check */
    uint32_t n_pins;

    uint32_t guide;               /* last tokens of the prompt that it is read for; CACHE_AUTO: what asks; 0: none */
    uint32_t guide_chunk, guide_recent, guide_spread; /* as in h2okv_llama_guide; CACHE_AUTO: the adapter's choice */

    uint32_t lanes, attention, kv_type;
    uint32_t ubatch;              /* CACHE_AUTO: the adapter's choice */
    const char *isa;              /* NULL: the best here */
    uint32_t seed;
} cache_options;

void cache_defaults(cache_options *o);

/* What has to hold whatever the policy and the budget are. Like the next ones: false, an error has been printed. */
bool cache_check(const char *command, cache_options *o);

/* What the policy makes of what was not given, and whether it fits the budget. */
bool cache_resolve(const char *command, cache_options *o);

/* Does the policy choose by scores? Not those that keep all, the newest, or any. */
bool cache_uses_scores(const char *policy);

/* An option that was given and does nothing without a guide, or NULL; and the same for scores, which a guide needs. */
const char *cache_guide_option(const cache_options *o);
const char *cache_scores_option(const cache_options *o);

/* The index of a policy's name, as cli_parse_name. */
bool cache_parse_policy(const char *command, const char *text, const char **policy);

/* "auto", "off" or a number of tokens. */
bool cache_parse_guide(const char *command, const char *text, uint32_t *out);

#define CACHE_CHOICE_ROWS(at)                                                                                        \
    { CLI_COUNT, 0, "sink", (at) + offsetof(cache_options, sinks), 0, CACHE_MOST_TOKENS, NULL, "N",                  \
      "of these the text's first tokens (the policy's)" },                                                           \
    { CLI_REAL, 0, "decay", (at) + offsetof(cache_options, decay), 0, 1, NULL, "X",                                  \
      "factor on old scores per token, 1 for none (the\npolicy's)" },                                                \
    { CLI_COUNT, 0, "pool", (at) + offsetof(cache_options, pool), 0, CACHE_MOST_TOKENS, NULL, "N",                   \
      "a token ranks as the best within N positions (the\npolicy's)" },                                              \
    { CLI_COUNT, 0, "grace", (at) + offsetof(cache_options, grace), 0, 65536, NULL, "N",                             \
      "passes for which a new token is kept as far as\nthe budget allows (0)" }
#define CACHE_PIN_ROW(at)                                                                                            \
    { CLI_TEXTS, 0, "pin", (at) + offsetof(cache_options, pin_texts), 0, 0, NULL, "A:B,...",                         \
      "always keep the tokens from position A to before\nB; may be given again" }
#define CACHE_READING_ROWS(at)                                                                                       \
    { CLI_COUNT, 0, "prompt-budget", (at) + offsetof(cache_options, prompt_budget), CACHE_LEAST_BUDGET,              \
      CACHE_MOST_TOKENS, NULL, "N", "tokens kept while the prompt is read; then down\nto the budget" },              \
    { CLI_COUNT, 0, "guide-chunk", (at) + offsetof(cache_options, guide_chunk), 1, CACHE_MOST_TOKENS, NULL, "N",     \
      "tokens of the prompt between two looks at the\nguide (192, or what --ubatch leaves of it)" },                 \
    { CLI_COUNT, 0, "guide-recent", (at) + offsetof(cache_options, guide_recent), 1, CACHE_MOST_TOKENS, NULL, "N",   \
      "newest tokens kept while it is read so (16)" },                                                               \
    { CLI_COUNT, 0, "guide-spread", (at) + offsetof(cache_options, guide_spread), 0, CACHE_MOST_TOKENS, NULL, "N",   \
      "positions around what the guide attends to that\nstay with it (8)" },                                         \
    { CLI_NAME, 0, "lanes", (at) + offsetof(cache_options, lanes), 0, 0, cache_lane_names, "WHICH",                  \
      "who chooses what to keep: each KV head of each\nlayer (head), each layer (layer), or one choice\n"            \
      "for the model (all)" },                                                                                       \
    { CLI_NAME, 0, "kv-type", (at) + offsetof(cache_options, kv_type), 0, 0, cache_kv_type_names, "TYPE",            \
      "K and V in f16 (default) or q8_0; q8_0 needs\nfused attention" },                                             \
    { CLI_NAME, 0, "attention", (at) + offsetof(cache_options, attention), 0, 0, cache_attention_names, "HOW",       \
      "fused (kernels of our own), observe (llama.cpp's\nattention, slower), or auto (fused where the\n"             \
      "model allows it)" },                                                                                          \
    { CLI_TEXT, 0, "isa", (at) + offsetof(cache_options, isa), 0, 0, NULL, "NAME",                                   \
      "instruction set of the kernels (the best here);\n`h2okv bench --isa list` lists them" },                      \
    { CLI_COUNT, 0, "seed", (at) + offsetof(cache_options, seed), 0, UINT32_MAX - 1, NULL, "N",                      \
      "for all that is drawn at random (0)" }
#define CACHE_ROWS(at) CACHE_CHOICE_ROWS(at), CACHE_PIN_ROW(at), CACHE_READING_ROWS(at)

#endif
