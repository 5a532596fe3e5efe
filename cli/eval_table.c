/* eval_table.c - what `h2okv eval` measured, for people. */
#include "eval.h"

#include "h2okv/h2okv.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

/* A number, or "-" when it was not measured. */
static const char *number(char *out, const char *format, double value)
{
    if (isnan(value)) return "-";
    snprintf(out, 32, strcmp(format, "%") == 0 ? "%.1f %%" : format, value);
    return out;
}

static const char *file_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* ---- Head --------------------------------------------------------------------------------------------- */

static void put_what(FILE *out, const eval *e)
{
    const eval_options *o = e->options;
    char a[32], b[32];
    if (o->what == EVAL_RECALL) {
        fprintf(out, "  text   %s: documents of %s tokens, %" PRIu32 " key%s in each, seed %" PRIu32 "\n", e->source,
                cli_thousands(a, e->tokens), o->questions, o->questions == 1 ? "" : "s", o->cache.seed);
    } else {
        fprintf(out, "  text   %s: %s tokens, the last %s scored\n", e->source, cli_thousands(a, e->tokens),
                cli_thousands(b, e->tokens - e->tokens / 2));
    }
}

static void put_head(FILE *out, const eval *e)
{
    const eval_options *o = e->options;
    const eval_row *r = &e->row[0];
    static const char *const lanes[] = { "a lane for each KV head", "a lane for each layer", "one lane" };
    fprintf(out, "%sh2okv %s, %s%s\n", cli_style(out, CLI_BOLD), h2okv_version(), eval_names[o->what],
            cli_style(out, CLI_PLAIN));
    fprintf(out, "  model  %s%s%.12s\n", file_name(e->model), e->hash[0] ? ", SHA-256 " : "", e->hash);
    put_what(out, e);
    fprintf(out, "  cache  %s%s%s, %s, passes of %" PRIu32 " tokens, %" PRIu32 " thread%s\n\n", r->attention,
            r->isa[0] ? " " : "", r->isa, lanes[o->cache.lanes], e->ubatch, o->threads, o->threads == 1 ? "" : "s");
}

/* ---- Rows --------------------------------------------------------------------------------------------- */

static void put_row_head(FILE *out, const eval_row *r)
{
    char budget[32], recent[32] = "-", percent[32] = "", name[48];
    if (r->percent >= 0) snprintf(percent, sizeof percent, "%g %%", r->percent);
    if (!r->full) cli_thousands(recent, r->cache.recent);
    fprintf(out, "%-17s %7s %6s %7s", eval_row_name(r, name, sizeof name), cli_thousands(budget, r->cache.budget),
            percent, recent);
}

static void put_score(FILE *out, const eval *e, const eval_row *r)
{
    char a[32], b[32], c[32], d[32], f[32];
    put_row_head(out, r);
    fprintf(out, " %10s %7s", number(a, "%.3f", r->ppl), number(b, "%.4f", eval_ratio(e, r)));
    if (e->options->what == EVAL_KL) {
        fprintf(out, " %8s %8s %8s", number(c, "%.4f", r->kl_mean), number(d, "%.4f", r->kl_p99),
                number(f, "%", r->top1 * 100));
    }
    fputc('\n', out);
}

static void put_answers(FILE *out, const eval *e, const eval_row *r)
{
    const eval_options *o = e->options;
    char a[32], b[32], c[32];
    put_row_head(out, r);
    fprintf(out, " %4" PRIu32 "/%-4" PRIu32 " %8s", r->right, r->n, number(a, "%", eval_recall(r) * 100));
    if (o->questions > 1) {
        fprintf(out, " %8s %8s", number(b, "%", eval_recall_first(r) * 100),
                number(c, "%", eval_recall_later(r) * 100));
    }
    for (uint32_t i = 0; i < o->n_depths && o->n_depths <= 6 && o->questions == 1; i++) {
        char share[32];
        snprintf(share, sizeof share, "%" PRIu32 "/%" PRIu32, r->depth_right[i], r->depth_n[i]);
        fprintf(out, " %5s", share);
    }
    fputc('\n', out);
}

static void put_column_heads(FILE *out, const eval *e)
{
    const eval_options *o = e->options;
    fprintf(out, "%-17s %7s %6s %7s", "policy", "budget", "", "recent");
    if (o->what != EVAL_RECALL) fprintf(out, " %10s %7s", "perplexity", "/ full");
    if (o->what == EVAL_KL) fprintf(out, " %8s %8s %8s", "KL mean", "KL p99", "same top");
    if (o->what == EVAL_RECALL) fprintf(out, " %9s %8s", "found", "recall");
    if (o->what == EVAL_RECALL && o->questions > 1) fprintf(out, " %8s %8s", "first", "later");
    for (uint32_t i = 0; i < o->n_depths && o->what == EVAL_RECALL && o->n_depths <= 6 && o->questions == 1; i++) {
        char depth[32];
        snprintf(depth, sizeof depth, "%g%%", o->depth[i]);
        fprintf(out, " %5s", depth);
    }
    fputc('\n', out);
}

void eval_print(FILE *out, const eval *e)
{
    put_head(out, e);
    put_column_heads(out, e);
    for (uint32_t i = 0; i < e->n_rows; i++) {
        if (e->row[i].n == 0) continue;
        if (e->options->what == EVAL_RECALL) {
            put_answers(out, e, &e->row[i]);
        } else {
            put_score(out, e, &e->row[i]);
        }
    }
    if (e->stopped) fputs("(interrupted)\n", out);
}
