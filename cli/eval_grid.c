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
enum { MOST_TOKENS = INT32_MAX / 4 };

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
    if (!cli_parse_count(command, option, number, 1, MOST_TOKENS, &count)) return false;
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
        if (ok && !a->percent && a->value < EVAL_LEAST_BUDGET) {
            ok = cli_error(command, "--budget %s is too small: at least %d", word, EVAL_LEAST_BUDGET);
        }
    }
    return ok;
}

static bool parse_policies(eval_options *o)
{
    const char *names[32] = { NULL }, *list = o->policies_text;
    char word[32];
    uint32_t n = 0;
    bool ok = true;
    while (n < 31 && (names[n] = h2okv_policy_name(n)) != NULL) n++;
    while (next_word("--policy", &list, word, sizeof word, o->n_policies, &ok)) {
        uint32_t i;
        ok = cli_parse_name(command, "--policy", word, names, &i);
        if (ok && !(h2okv_policy_find(names[i])->flags & H2OKV_POLICY_KEEPS_ALL)) {
            o->policy[o->n_policies++] = names[i];
        }
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
        uint32_t *out = &o->guide[o->n_guides++];
        *out = strcmp(word, "auto") == 0 ? EVAL_AUTO : 0;
        if (*out == EVAL_AUTO || strcmp(word, "off") == 0) continue;
        ok = cli_parse_count(command, "--guide", word, 1, MOST_TOKENS, out);
    }
    return ok;
}

/* ---- Checks ------------------------------------------------------------------------------------------- */

static bool given(double decay)
{
    return decay >= 0;
}

/* An option that would do nothing is refused, so that nobody believes it did something. */
static bool check_idle(const eval_options *o)
{
    const char *idle = o->keys != EVAL_AUTO ? "--keys" : o->questions != EVAL_AUTO ? "--questions" : NULL;
    bool any_scores = !given(o->decay);
    if (o->depths_text) idle = "--depths";
    if (o->guides_text) idle = "--guide";
    if (o->guide_recent != EVAL_AUTO) idle = "--guide-recent";
    if (o->guide_pool != EVAL_AUTO) idle = "--guide-pool";
    if (o->what != EVAL_RECALL && idle) {
        return cli_error(command, "%s has no effect on %s: it goes with recall", idle, eval_names[o->what]);
    }
    for (uint32_t i = 0; i < o->n_policies; i++) {
        any_scores = any_scores || (h2okv_policy_find(o->policy[i])->flags & H2OKV_POLICY_NEEDS_SCORES);
    }
    return any_scores || cli_error(command, "--decay has no effect: no policy of --policy uses scores");
}

static void fill_in(eval_options *o)
{
    bool recall = o->what == EVAL_RECALL;
    o->tokens_given = o->tokens != EVAL_AUTO;
    if (!o->tokens_given) o->tokens = recall ? 1500 : 2048;
    if (o->ubatch == EVAL_AUTO) o->ubatch = recall ? 64 : 16;
    if (o->keys == EVAL_AUTO) o->keys = 10;
    if (o->questions == EVAL_AUTO) o->questions = 1;
    if (!o->depths_text) o->depths_text = "10%,30%,50%,70%,90%";
    if (!o->guides_text) o->guides_text = recall ? "auto" : "off";
    if (o->guide_recent == EVAL_AUTO) o->guide_recent = 32;
    if (o->guide_pool == EVAL_AUTO) o->guide_pool = 8;
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
    if (o->decay >= 0 && o->decay <= 0) {
        return cli_error(command, "--decay 0 would forget every score; give above 0 and at most 1");
    }
    if (!parse_policies(o) || !parse_budgets(o) || !check_recent(o) || !check_idle(o)) return false;
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

static eval_row empty_row(const char *policy)
{
    return (eval_row){ .policy = policy, .percent = -1, .decay = 1, .ppl = NAN, .kl_mean = NAN, .kl_p99 = NAN,
                       .top1 = NAN };
}

/* What the policy makes of the options. */
static bool resolve(const eval_options *o, eval_row *r)
{
    bool scores = h2okv_policy_find(r->policy)->flags & H2OKV_POLICY_NEEDS_SCORES;
    h2okv_options cache;
    h2okv_error error;
    h2okv_options_init(&cache);
    cache.policy = r->policy;
    cache.budget = cache.cells = r->budget;
    cache.recent = r->recent;
    cache.sinks = o->sinks;
    cache.pool = scores ? o->pool : 0;
    cache.decay = !scores ? 1 : given(o->decay) ? o->decay : 0;
    if (h2okv_options_resolve(&cache, &cache, &error)) return cli_error(command, "%s", error.text);
    r->recent = cache.recent > 0 ? cache.recent : 1;
    r->sinks = cache.sinks;
    r->pool = cache.pool;
    r->decay = cache.decay;
    return true;
}

static bool fill_row(const eval_options *o, eval_amount budget, uint32_t tokens, eval_row *r)
{
    r->budget = eval_amount_of(budget, tokens);
    if (budget.percent) r->percent = budget.value;
    if (r->budget < EVAL_LEAST_BUDGET) {
        return cli_error(command, "--budget %g%% of %" PRIu32 " tokens is %" PRIu32 ": at least %d", budget.value,
                         tokens, r->budget, EVAL_LEAST_BUDGET);
    }
    r->recent = o->recent_given ? eval_amount_of(o->recent, r->budget) : H2OKV_AUTO;
    if (r->recent == 0) r->recent = 1;
    return resolve(o, r);
}

/* The rows of a policy: each guide at each budget. Guides choose by scores; a policy without any reads as always. */
static bool add_rows(eval *e, const char *policy, uint32_t tokens)
{
    const eval_options *o = e->options;
    bool scores = h2okv_policy_find(policy)->flags & H2OKV_POLICY_NEEDS_SCORES;
    for (uint32_t g = 0; g < (scores ? o->n_guides : 1); g++) {
        for (uint32_t b = 0; b < o->n_budgets; b++) {
            eval_row *r = &e->row[e->n_rows++];
            *r = empty_row(policy);
            r->guide = scores ? o->guide[g] : 0;
            if (!fill_row(o, o->budget[b], tokens, r)) return false;
        }
    }
    return true;
}

bool eval_make_rows(eval *e, uint32_t tokens, uint32_t full)
{
    const eval_options *o = e->options;
    e->tokens = tokens;
    e->ubatch = o->ubatch;
    e->n_rows = 1;
    e->row[0] = empty_row("full");
    e->row[0].full = true;
    e->row[0].budget = e->row[0].recent = full < EVAL_LEAST_BUDGET ? EVAL_LEAST_BUDGET : full;
    for (uint32_t p = 0; p < o->n_policies; p++) {
        if (!add_rows(e, o->policy[p], tokens)) return false;
    }
    return true;
}

/* ---- What the rows say -------------------------------------------------------------------------------- */

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
