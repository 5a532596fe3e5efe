/*
 * eval_svg.c - a chart of `h2okv eval`: quality against budget, one line a policy.
 *
 *   TOP     title, text
 *           ^ perplexity / full, mean KL or recall       name of each line, at its height, kept apart
 *           |      - - - the full cache - - -
 *   BOTTOM  +-----------------------> budget, log
 *
 * A viewer's light or dark scheme decides the colours; nothing is loaded from elsewhere.
 */
#include "eval.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char *const command = "eval";
enum { WIDTH = 820, HEIGHT = 450, LEFT = 70, RIGHT = 640, TOP = 80, BOTTOM = 390 };
enum { LABEL_STEP = 18, TICKS = 5, COLOURS = 8 };

typedef struct chart {
    const eval *e;
    FILE *out;
    double least, most;   /* budgets */
    double bottom, top;   /* values */
} chart;

typedef struct line { /* a policy's measured rows, by budget */
    char name[48];
    const eval_row *row[EVAL_MOST];
    uint32_t n;
    double y; /* of its name */
} line;

typedef struct scheme {
    const char *back, *text, *small, *grid, *colour[COLOURS];
} scheme;
static const scheme light = {
    "#ffffff", "#1f2328", "#59636e", "#d8dee4",
    { "#0550ae", "#b42318", "#0f766e", "#8250df", "#9a6700", "#bf3989", "#3d6b00", "#57606a" },
};
static const scheme dark = {
    "#0d1117", "#e6edf3", "#9198a1", "#2b323b",
    { "#6cb6ff", "#ff8a80", "#4ac7b8", "#c297ff", "#e3b341", "#ff9bce", "#9fd356", "#b1bac4" },
};

/* Plain rules without variables, which not every viewer knows. */
static void put_scheme(FILE *out, const scheme *s)
{
    fprintf(out, "    .back { fill: %s } text { fill: %s } .small { fill: %s } .grid { stroke: %s } "
            ".full { stroke: %s }\n", s->back, s->text, s->small, s->grid, s->small);
    for (int i = 0; i < COLOURS; i++) {
        fprintf(out, "    .c%d polyline { stroke: %s } .c%d circle, .c%d text { fill: %s }\n", i, s->colour[i], i, i,
                s->colour[i]);
    }
}

static void put_escaped(FILE *out, const char *text)
{
    for (; *text; text++) {
        unsigned char byte = (unsigned char)*text;
        if (byte == '&' || byte == '<' || byte == '>') {
            fprintf(out, "&#%d;", byte);
        } else {
            fputc(byte < 32 || byte > 126 ? '?' : byte, out); /* whatever a file is called */
        }
    }
}

/* ---- Values and places -------------------------------------------------------------------------------- */

static double value_of(const eval *e, const eval_row *r)
{
    if (e->options->what == EVAL_RECALL) return eval_recall(r);
    return e->options->what == EVAL_KL ? r->kl_mean : eval_ratio(e, r);
}

static double x_of(const chart *c, double budget)
{
    double span = log(c->most / c->least);
    return span > 0 ? LEFT + 24 + (RIGHT - LEFT - 48) * log(budget / c->least) / span : (LEFT + RIGHT) / 2.0;
}

static double y_of(const chart *c, double value)
{
    return BOTTOM - (BOTTOM - TOP) * (value - c->bottom) / (c->top - c->bottom);
}

/* The least of 1, 2, 2.5 and 5 times a power of ten that is at least `value`. */
static double round_up(double value)
{
    static const double steps[] = { 1, 2, 2.5, 5 };
    double power = pow(10, floor(log10(value)));
    for (int i = 0; i < 4; i++) {
        if (value <= steps[i] * power * (1 + 1e-9)) return steps[i] * power;
    }
    return 10 * power;
}

/* The axis begins with the full cache's value (recall: 0) and ends with a round number. */
static void find_ranges(chart *c)
{
    const eval *e = c->e;
    double worst = 0;
    c->least = 1e30;
    c->bottom = e->options->what == EVAL_PPL ? 1 : 0;
    for (uint32_t i = 0; i < e->n_rows; i++) {
        const eval_row *r = &e->row[i];
        if (r->n == 0) continue;
        if (!r->full || e->n_rows == 1) {
            c->least = fmin(c->least, r->cache.budget);
            c->most = fmax(c->most, r->cache.budget);
        }
        worst = fmax(worst, fabs(value_of(e, r) - c->bottom));
        if (value_of(e, r) < c->bottom) c->bottom = value_of(e, r); /* better than full: it happens */
    }
    if (c->most == 0) c->least = c->most = 1;
    c->top = fmax(c->bottom, e->options->what == EVAL_PPL) + TICKS * round_up(fmax(worst, 1e-6) / TICKS);
    if (e->options->what == EVAL_RECALL) c->top = 1;
}

/* ---- The frame ---------------------------------------------------------------------------------------- */

static void put_head(const chart *c)
{
    static const char *const titles[] = { "Perplexity / full cache's", "Mean KL divergence to the full cache, nats",
                                          "Keys found" };
    const eval *e = c->e;
    FILE *out = c->out;
    fprintf(out, "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" width=\"%d\" height=\"%d\" "
            "role=\"img\" aria-label=\"%s by budget\">\n  <style>\n"
            "    text { font: 13px system-ui, sans-serif } .title { font-size: 17px; font-weight: 600 }\n"
            "    .small { font-size: 12px } polyline { fill: none; stroke-width: 2.2 }\n"
            "    .full { stroke-dasharray: 6 4; stroke-width: 1.5 }\n", WIDTH, HEIGHT, WIDTH, HEIGHT,
            titles[e->options->what]);
    put_scheme(out, &light);
    fputs("    @media (prefers-color-scheme: dark) {\n", out);
    put_scheme(out, &dark);
    fprintf(out, "    }\n  </style>\n  <rect class=\"back\" width=\"%d\" height=\"%d\"/>\n"
            "  <text class=\"title\" x=\"24\" y=\"34\">%s</text>\n  <text class=\"small\" x=\"24\" y=\"56\">", WIDTH,
            HEIGHT, titles[e->options->what]);
    put_escaped(out, e->source);
    fprintf(out, ", %" PRIu32 " tokens; passes of %" PRIu32 "</text>\n", e->tokens, e->ubatch);
}

static void put_value_axis(const chart *c)
{
    const char *format = c->e->options->what == EVAL_RECALL ? "%.0f %%" : "%.4g";
    double factor = c->e->options->what == EVAL_RECALL ? 100 : 1;
    for (int i = 0; i <= TICKS; i++) {
        double value = c->bottom + (c->top - c->bottom) * i / TICKS;
        fprintf(c->out, "  <line class=\"grid\" x1=\"%d\" y1=\"%.1f\" x2=\"%d\" y2=\"%.1f\"/><text class=\"small\" "
                "x=\"%d\" y=\"%.1f\" text-anchor=\"end\">", LEFT, y_of(c, value), RIGHT, y_of(c, value), LEFT - 8,
                y_of(c, value) + 4);
        fprintf(c->out, format, value * factor);
        fputs("</text>\n", c->out);
    }
}

/* A budget's number under it, unless one is too near already. */
static void put_budget_axis(const chart *c)
{
    double used[EVAL_MOST_ROWS];
    uint32_t n = 0;
    for (uint32_t i = 0; i < c->e->n_rows; i++) {
        const eval_row *r = &c->e->row[i];
        double x = x_of(c, r->cache.budget);
        char count[32];
        bool free_here = r->n > 0 && (!r->full || c->e->n_rows == 1);
        for (uint32_t k = 0; k < n; k++) free_here = free_here && fabs(used[k] - x) > 44;
        if (!free_here) continue;
        used[n++] = x;
        fprintf(c->out, "  <text class=\"small\" x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">%s</text>\n", x,
                BOTTOM + 18,
                cli_thousands(count, r->cache.budget));
        if (r->percent < 0) continue;
        fprintf(c->out, "  <text class=\"small\" x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">%g %%</text>\n", x,
                BOTTOM + 33, r->percent);
    }
    fprintf(c->out, "  <text class=\"small\" x=\"%d\" y=\"%d\">budget, tokens</text>\n", RIGHT + 10, BOTTOM + 33);
}

static void put_full(const chart *c)
{
    double y = y_of(c, value_of(c->e, &c->e->row[0]));
    if (c->e->row[0].n == 0) return;
    fprintf(c->out, "  <line class=\"full\" x1=\"%d\" y1=\"%.1f\" x2=\"%d\" y2=\"%.1f\"/>\n", LEFT, y, RIGHT, y);
}

/* ---- Lines -------------------------------------------------------------------------------------------- */

static int by_budget(const void *a, const void *b)
{
    const eval_row *x = *(const eval_row *const *)a, *y = *(const eval_row *const *)b;
    return (x->cache.budget > y->cache.budget) - (x->cache.budget < y->cache.budget);
}

/* The rows of a policy and a guide stand together. */
static line line_of(const chart *c, uint32_t index)
{
    uint32_t n = c->e->options->n_budgets;
    const eval_row *first = &c->e->row[1 + index * n];
    line l = { .n = 0 };
    char name[sizeof l.name];
    snprintf(l.name, sizeof l.name, "%s", eval_row_name(first, name, sizeof name));
    for (const eval_row *r = first; r < first + n; r++) {
        if (r->n > 0) l.row[l.n++] = r;
    }
    qsort(l.row, l.n, sizeof l.row[0], by_budget);
    if (l.n > 0) l.y = y_of(c, value_of(c->e, l.row[l.n - 1]));
    return l;
}

static void put_line(const chart *c, const line *l)
{
    fputs("    <polyline points=\"", c->out);
    for (uint32_t i = 0; i < l->n; i++) {
        const eval_row *r = l->row[i];
        fprintf(c->out, "%s%.1f,%.1f", i ? " " : "", x_of(c, r->cache.budget), y_of(c, value_of(c->e, r)));
    }
    fputs("\"/>\n", c->out);
    for (uint32_t i = 0; i < l->n; i++) {
        uint32_t budget = l->row[i]->cache.budget;
        double value = value_of(c->e, l->row[i]);
        fprintf(c->out, "    <circle cx=\"%.1f\" cy=\"%.1f\" r=\"3.6\"><title>%s, budget %" PRIu32 ": %.4g</title>"
                "</circle>\n", x_of(c, budget), y_of(c, value), l->name, budget, value);
    }
}

/* Height of a name: its line's end, or as near as the names before it leave room for. */
static double place_name(const double *taken, uint32_t n, double y)
{
    for (int step = 0; step < 4 * EVAL_MOST; step++) {
        double at = y + (step % 2 ? 1 : -1) * ((step + 1) / 2) * (LABEL_STEP / 2.0);
        bool free_here = at > TOP - 10 && at < BOTTOM + 4;
        for (uint32_t i = 0; i < n; i++) free_here = free_here && fabs(taken[i] - at) >= LABEL_STEP;
        if (free_here) return at;
    }
    return y;
}

static void put_lines(const chart *c)
{
    double taken[EVAL_MOST * EVAL_MOST + 1];
    uint32_t n = 0;
    if (c->e->row[0].n > 0) {
        taken[n++] = y_of(c, value_of(c->e, &c->e->row[0]));
        fprintf(c->out, "  <text class=\"small\" x=\"%d\" y=\"%.1f\">full cache, %" PRIu32 "</text>\n", RIGHT + 10,
                taken[0] + 4, c->e->row[0].cache.budget);
    }
    for (uint32_t p = 0; 1 + p * c->e->options->n_budgets < c->e->n_rows; p++) {
        line l = line_of(c, p);
        if (l.n == 0) continue;
        taken[n] = place_name(taken, n, l.y);
        fprintf(c->out, "  <g class=\"c%" PRIu32 "\">\n    <text x=\"%d\" y=\"%.1f\">%s</text>\n", p % COLOURS,
                RIGHT + 10, taken[n] + 4, l.name);
        put_line(c, &l);
        fputs("  </g>\n", c->out);
        n++;
    }
}

bool eval_write_svg(const char *path, const eval *e)
{
    chart c = { .e = e, .out = fopen(path, "wb") };
    if (!c.out) return cli_error(command, "%s: cannot write: %s", path, strerror(errno));
    find_ranges(&c);
    put_head(&c);
    put_value_axis(&c);
    put_budget_axis(&c);
    put_full(&c);
    put_lines(&c);
    fputs("</svg>\n", c.out);
    if (ferror(c.out) | fclose(c.out)) return cli_error(command, "%s: cannot write: %s", path, strerror(errno));
    return true;
}
