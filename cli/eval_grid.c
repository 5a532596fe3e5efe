/*
 * eval_grid.c - the lists of `h2okv eval` and the rows that they make.
 *
 *   --policy a,b  --budget 20%,10%   ->   full | a 20% | a 10% | b 20% | b 10%
 */
#include "eval.h"

#include "h2okv/advanced.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char *const command = "eval";

/* ---- Lists -------------------------------------------------------------------------------------------- */

/* The next word of a list into `word`, "" when it is empty or too long. False: there is none. */
static bool next_word(const char *option, const char **list, char *word, size_t size, uint32_t n, bool *ok)
{
    size_t length;
    if (!*list || !*ok) return false;
    if (n == EVAL_MOST) {
        *ok = cli_error(command, "%s names more than %d", option, EVAL_MOST);
        return false;
    }
    length = strcspn(*list, ",");
    snprintf(word, size, "%.*s", (int)(length < size ? length : 0), *list);
    *list = (*list)[length] ? *list + length + 1 : NULL;
    return true;
}

/* "512", or "20%" of `least` to `most`. */
static bool parse_amount(const char *option, const char *word, double least, double most, eval_amount *out)
{
    char number[24];
    size_t n = strlen(word);
    uint32_t count;
    out->percent = n > 1 && word[n - 1] == '%';
    snprintf(number, sizeof number, "%.*s", (int)(out->percent ? n - 1 : n), word);
    if (out->percent) return cli_parse_real(command, option, number, least, most, &out->value);
    if (!cli_parse_count(command, option, number, 1, CACHE_MOST_TOKENS, &count)) return false;
    out->value = count;
    return true;
}

static bool parse_budgets(eval_options *o)
{
    const char *list = o->budgets_text;
    char word[24];
    bool ok = true;
    while (next_word("--budget", &list, word, sizeof word, o->n_budgets, &ok)) {
        eval_amount *a = &o->budget[o->n_budgets++];
        ok = parse_amount("--budget", word, 0, 100, a);
        if (ok && !a->percent && a->value < CACHE_LEAST_BUDGET) {
            ok = cli_error(command, "--budget %s is too small: at least %d", word, CACHE_LEAST_BUDGET);
        }
    }
    return ok;
}

static bool parse_policies(eval_options *o)
{
    const char *list = o->policies_text, *name;
    char word[32];
    bool ok = true;
    while (next_word("--policy", &list, word, sizeof word, o->n_policies, &ok)) {
        ok = cache_parse_policy(command, word, &name);
        if (ok && !(h2okv_policy_find(name)->flags & H2OKV_POLICY_KEEPS_ALL)) o->policy[o->n_policies++] = name;
    }
    return ok;
}

static bool parse_depths(eval_options *o)
{
    const char *list = o->depths_text;
    char word[24];
    bool ok = true;
    while (next_word("--depths", &list, word, sizeof word, o->n_depths, &ok)) {
        size_t n = strlen(word);
        if (n > 1 && word[n - 1] == '%') word[n - 1] = '\0';
        ok = cli_parse_real(command, "--depths", word, 0, 100, &o->depth[o->n_depths++]);
    }
    return ok;
}

static bool parse_guides(eval_options *o)
{
    const char *list = o->guides_text;
    char word[24];
    bool ok = true;
    while (next_word("--guide", &list, word, sizeof word, o->n_guides, &ok)) {
        ok = cache_parse_guide(command, word, &o->guide[o->n_guides++]);
    }
    return ok;
}

/* ---- Checks ------------------------------------------------------------------------------------------- */

/* The option that was given and goes with recall only, or NULL. */
static const char *recalls_option(const eval_options *o)
{
    if (o->keys != EVAL_AUTO) return "--keys";
    if (o->questions != EVAL_AUTO) return "--questions";
    if (o->depths_text) return "--depths";
    if (o->guides_text) return "--guide";
    if (o->cache.prompt_budget > 0) return "--prompt-budget";
    return cache_guide_option(&o->cache);
}

/* An option that would do nothing is refused, so that nobody believes it did something. */
static bool check_idle(const eval_options *o)
{
    const char *idle = recalls_option(o), *scored = cache_scores_option(&o->cache);
    bool any_scores = false;
    if (o->what != EVAL_RECALL && idle) {
        return cli_error(command, "%s has no effect on %s: it goes with recall", idle, eval_names[o->what]);
    }
    for (uint32_t i = 0; i < o->n_policies; i++) any_scores = any_scores || cache_uses_scores(o->policy[i]);
    return any_scores || !scored || cli_error(command, "%s has no effect: no policy of --policy uses scores", scored);
}

static void fill_in(eval_options *o)
{
    bool recall = o->what == EVAL_RECALL;
    o->tokens_given = o->tokens != EVAL_AUTO;
    if (!o->tokens_given) o->tokens = recall ? 1500 : 2048;
    if (o->cache.ubatch == CACHE_AUTO) o->cache.ubatch = recall ? 64 : 16;
    if (o->keys == EVAL_AUTO) o->keys = 10;
    if (o->questions == EVAL_AUTO) o->questions = 1;
    if (!o->depths_text) o->depths_text = "10%,30%,50%,70%,90%";
    if (!o->guides_text) o->guides_text = recall ? "auto" : "off";
    if (o->cache.guide_recent == CACHE_AUTO) o->cache.guide_recent = 16;
    if (o->cache.guide_spread == CACHE_AUTO) o->cache.guide_spread = 8;
}

static bool check_recent(eval_options *o)
{
    o->recent_given = o->recent_text != NULL;
    if (!o->recent_given) return true;
    if (strcmp(o->recent_text, "0") == 0) {
        return cli_error(command, "--recent 0: llama.cpp needs the newest token; give at least 1");
    }
    return parse_amount("--recent", o->recent_text, 0, 100, &o->recent);
}

bool eval_check(eval_options *o)
{
    if (!cache_check(command, &o->cache) || !parse_policies(o) || !parse_budgets(o) || !check_recent(o)) return false;
    if (!check_idle(o)) return false;
    fill_in(o);
    if (o->what != EVAL_RECALL && !o->file) {
        return cli_error(command, "%s needs a text: give one with -f FILE", eval_names[o->what]);
    }
    if (o->questions > o->keys) {
        return cli_error(command, "--questions %" PRIu32 " is more than --keys %" PRIu32, o->questions, o->keys);
    }
    return parse_depths(o) && parse_guides(o);
}

/* ---- Rows --------------------------------------------------------------------------------------------- */

uint32_t eval_amount_of(eval_amount a, uint32_t whole)
{
    if (!a.percent) return (uint32_t)a.value;
    return (uint32_t)floor(whole * a.value / 100 + 1e-9); /* 20 % of 35 is 7, however 0.2 is rounded */
}

static eval_row empty_row(const eval_options *o, const char *policy)
{
    eval_row r = { .cache = o->cache, .percent = -1, .ppl = NAN, .kl_mean = NAN, .kl_p99 = NAN, .top1 = NAN };
    r.cache.policy = policy;
    return r;
}

static bool fill_row(const eval_options *o, eval_amount budget, uint32_t tokens, eval_row *r)
{
    r->cache.budget = eval_amount_of(budget, tokens);
    if (budget.percent) r->percent = budget.value;
    if (r->cache.budget < CACHE_LEAST_BUDGET) {
        return cli_error(command, "--budget %g%% of %" PRIu32 " tokens is %" PRIu32 ": at least %d", budget.value,
                         tokens, r->cache.budget, CACHE_LEAST_BUDGET);
    }
    if (o->recent_given) r->cache.recent = eval_amount_of(o->recent, r->cache.budget);
    if (r->cache.recent == 0) r->cache.recent = 1;
    return cache_resolve(command, &r->cache);
}

/* The rows of a policy: each guide at each budget. Guides choose by scores; a policy without any reads as always. */
static bool add_rows(eval *e, const char *policy, uint32_t tokens)
{
    const eval_options *o = e->options;
    uint32_t n_guides = cache_uses_scores(policy) ? o->n_guides : 1;
    for (uint32_t i = 0; i < n_guides * o->n_budgets; i++) {
        eval_row *r = &e->row[e->n_rows++];
        *r = empty_row(o, policy);
        r->cache.guide = o->guide[i / o->n_budgets];
        if (!fill_row(o, o->budget[i % o->n_budgets], tokens, r)) return false;
    }
    return true;
}

/* Nothing of the cache's options means anything to it. */
static eval_row full_row(const eval_options *o, uint32_t tokens)
{
    eval_row r = empty_row(o, "full");
    r.full = true;
    r.cache.budget = r.cache.recent = tokens < CACHE_LEAST_BUDGET ? CACHE_LEAST_BUDGET : tokens;
    r.cache.sinks = r.cache.pool = r.cache.grace = r.cache.guide = r.cache.prompt_budget = r.cache.n_pins = 0;
    r.cache.decay = 1;
    return r;
}

bool eval_make_rows(eval *e, uint32_t tokens, uint32_t full)
{
    const eval_options *o = e->options;
    e->tokens = tokens;
    e->ubatch = o->cache.ubatch;
    e->row[0] = full_row(o, full);
    e->n_rows = 1;
    for (uint32_t p = 0; p < o->n_policies; p++) {
        if (!add_rows(e, o->policy[p], tokens)) return false;
    }
    return true;
}

/* ---- What the rows say -------------------------------------------------------------------------------- */

const char *eval_row_name(const eval_row *row, char *out, size_t size)
{
    const char *policy = row->cache.policy;
    if (row->cache.guide == 0) return policy;
    if (row->cache.guide == CACHE_AUTO) {
        snprintf(out, size, "%s guided", policy);
    } else {
        snprintf(out, size, "%s guide %" PRIu32, policy, row->cache.guide);
    }
    return out;
}

static double share(uint32_t part, uint32_t whole)
{
    return whole > 0 ? (double)part / whole : (double)NAN;
}

double eval_ratio(const eval *e, const eval_row *row)
{
    return row->ppl / e->row[0].ppl;
}

double eval_recall(const eval_row *row)
{
    return row->n_first > 0 ? share(row->right, row->n) : (double)NAN;
}

double eval_recall_first(const eval_row *row)
{
    return share(row->right_first, row->n_first);
}

double eval_recall_later(const eval_row *row)
{
    return row->n_first > 0 ? share(row->right - row->right_first, row->n - row->n_first) : (double)NAN;
}
