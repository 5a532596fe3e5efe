/*
 * bench_svg.c - a chart of `h2okv bench`: decode speed against context, one line a system.
 *
 *   TOP     title, machine
 *           ^ tok/s, from 0                          name of each line, at its height, kept apart;
 *           |       lines, least..most as whiskers   a dotted line leads from the line's end to it
 *   BOTTOM  +-----------------------> context, log
 *
 * A viewer's light or dark scheme decides the colours; nothing is loaded from elsewhere.
 */
#include "bench.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>

static const char *const command = "bench";
enum { WIDTH = 880, HEIGHT = 470, LEFT = 64, RIGHT = 640, TOP = 76, BOTTOM = 410 };
enum { LABEL_STEP = 19, TICKS = 6 };

typedef struct chart {
    const bench *b;
    FILE *out;
    uint32_t least, most; /* contexts */
    double top;           /* tok/s at TOP */
} chart;

typedef struct scheme {
    const char *back, *text, *small, *grid;
    const char *system[BENCH_SYSTEMS];
} scheme;
static const scheme light = {
    "#ffffff", "#1f2328", "#59636e", "#d8dee4",
    { "#b42318", "#9a6700", "#8250df", "#0550ae", "#0f766e", "#57606a" },
};
static const scheme dark = {
    "#0d1117", "#e6edf3", "#9198a1", "#2b323b",
    { "#ff8a80", "#e3b341", "#c297ff", "#6cb6ff", "#4ac7b8", "#b1bac4" },
};

/* Plain rules without variables, which not every viewer knows. */
static void put_scheme(FILE *out, const scheme *s)
{
    fprintf(out, "    .back { fill: %s } text { fill: %s } .small { fill: %s }\n", s->back, s->text,
            s->small);
    fprintf(out, "    .grid { stroke: %s } .axis { stroke: %s }\n", s->grid, s->small);
    for (int i = 0; i < BENCH_SYSTEMS; i++) {
        fprintf(out, "    .s%d line, .s%d polyline { stroke: %s } .s%d circle, .s%d text { fill: %s }\n", i,
                i, s->system[i], i, i, s->system[i]);
    }
}

static void put_style(FILE *out)
{
    fputs("  <style>\n"
          "    text { font: 13px system-ui, sans-serif } .title { font-size: 17px; font-weight: 600 }\n"
          "    .small { font-size: 12px } polyline { fill: none; stroke-width: 2.2 }\n"
          "    .lead { stroke-width: 1; stroke-dasharray: 1 4 }\n", out);
    put_scheme(out, &light);
    fputs("    @media (prefers-color-scheme: dark) {\n", out);
    put_scheme(out, &dark);
    fputs("    }\n  </style>\n", out);
}

/* ---- Places ------------------------------------------------------------------------------------------- */

static double x_of(const chart *c, uint32_t context)
{
    double span = log((double)c->most / c->least);
    if (span <= 0) return (LEFT + RIGHT) / 2.0;
    return LEFT + 24 + (RIGHT - LEFT - 48) * log((double)context / c->least) / span;
}

static double y_of(const chart *c, double speed)
{
    return BOTTOM - (BOTTOM - TOP) * speed / c->top;
}

/* The least of 1, 2 and 5 times a power of ten that is at least `value`. */
static double round_up(double value)
{
    double power = pow(10, floor(log10(value)));
    if (value <= power) return power;
    return value <= 2 * power ? 2 * power : value <= 5 * power ? 5 * power : 10 * power;
}

static double find_ranges(chart *c)
{
    double fastest = 0;
    c->least = UINT32_MAX;
    for (uint32_t i = 0; i < c->b->n_points; i++) {
        const bench_point *p = &c->b->point[i];
        if (p->n == 0) continue;
        if (p->context < c->least) c->least = p->context;
        if (p->context > c->most) c->most = p->context;
        fastest = fmax(fastest, bench_decode_speed(p).most);
    }
    return fastest;
}

/* ---- The frame ---------------------------------------------------------------------------------------- */

static void put_escaped(FILE *out, const char *text)
{
    for (; *text; text++) {
        unsigned char byte = (unsigned char)*text;
        if (byte == '&' || byte == '<' || byte == '>') {
            fprintf(out, "&#%d;", byte);
        } else {
            fputc(byte < 32 || byte > 126 ? '?' : byte, out); /* whatever a processor or a file is called */
        }
    }
}

static void put_head(const chart *c)
{
    const bench_machine *m = &c->b->machine;
    FILE *out = c->out;
    fprintf(out, "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" width=\"%d\" height=\"%d\" "
            "role=\"img\">\n", WIDTH, HEIGHT, WIDTH, HEIGHT);
    fprintf(out, "  <title>Decode speed against context</title>\n");
    put_style(out);
    fprintf(out, "  <rect class=\"back\" width=\"%d\" height=\"%d\"/>\n", WIDTH, HEIGHT);
    fprintf(out, "  <text class=\"title\" x=\"%d\" y=\"28\">Decode speed against context</text>\n",
            LEFT - 40);
    fprintf(out, "  <text class=\"small\" x=\"%d\" y=\"48\">", LEFT - 40);
    put_escaped(out, m->cpu);
    fprintf(out, ", %" PRIu32 " thread%s; h2okv with a budget of %" PRIu32 " tokens; ",
            c->b->options->threads, c->b->options->threads == 1 ? "" : "s", c->b->options->budget);
    put_escaped(out, m->engine);
    fprintf(out, "</text>\n");
}

static void put_speed_axis(const chart *c)
{
    double step = round_up(c->top / TICKS);
    fprintf(c->out, "  <text class=\"small\" x=\"%d\" y=\"%d\" text-anchor=\"end\">tok/s</text>\n", LEFT - 8,
            TOP - 8);
    for (double speed = 0; speed <= c->top * 1.0001; speed += step) {
        double y = y_of(c, speed);
        fprintf(c->out, "  <line class=\"%s\" x1=\"%d\" y1=\"%.1f\" x2=\"%d\" y2=\"%.1f\"/>\n",
                speed > 0 ? "grid" : "axis", LEFT, y, RIGHT, y);
        fprintf(c->out, "  <text class=\"small\" x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%g</text>\n",
                LEFT - 8, y + 4, speed);
    }
}

static void put_context_axis(const chart *c)
{
    uint32_t before = 0;
    char name[16];
    for (uint32_t i = 0; i < c->b->n_points; i++) {
        const bench_point *p = &c->b->point[i];
        if (p->n == 0 || p->context == before) continue;
        before = p->context;
        fprintf(c->out, "  <text class=\"small\" x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">%s</text>\n",
                x_of(c, p->context), BOTTOM + 20, bench_context_name(name, p->context));
    }
    fprintf(c->out,
            "  <text class=\"small\" x=\"%d\" y=\"%d\" text-anchor=\"middle\">context, tokens</text>\n",
            (LEFT + RIGHT) / 2, BOTTOM + 44);
}

/* ---- Lines -------------------------------------------------------------------------------------------- */

/* Calls for each measured point of a system; returns the last one, or NULL. */
static const bench_point *each_point(const chart *c, int system,
                                     void (*put)(const chart *c, const bench_point *p))
{
    const bench_point *last = NULL;
    for (uint32_t i = 0; i < c->b->n_points; i++) {
        const bench_point *p = &c->b->point[i];
        if ((int)p->system != system || p->n == 0) continue;
        if (put) put(c, p);
        last = p;
    }
    return last;
}

static void put_corner(const chart *c, const bench_point *p)
{
    fprintf(c->out, " %.1f,%.1f", x_of(c, p->context), y_of(c, bench_decode_speed(p).median));
}

static void put_dot(const chart *c, const bench_point *p)
{
    bench_spread s = bench_decode_speed(p);
    double x = x_of(c, p->context), y = y_of(c, s.median);
    char name[16];
    fprintf(c->out, "    <line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\"/>\n", x, y_of(c, s.most), x,
            y_of(c, s.least));
    fprintf(c->out, "    <circle cx=\"%.1f\" cy=\"%.1f\" r=\"3.6\"><title>%s at %s: %.1f tok/s "
            "(%.1f..%.1f)</title></circle>\n", x, y, bench_system_labels[p->system],
            bench_context_name(name, p->context), s.median, s.least, s.most);
}

static void put_lines(const chart *c)
{
    for (int s = BENCH_SYSTEMS - 1; s >= 0; s--) { /* what matters most comes on top */
        if (!each_point(c, s, NULL)) continue;
        fprintf(c->out, "  <g class=\"s%d\">\n    <polyline points=\"", s);
        each_point(c, s, put_corner);
        fprintf(c->out, "\"/>\n");
        each_point(c, s, put_dot);
        fprintf(c->out, "  </g>\n");
    }
}

/* ---- Names -------------------------------------------------------------------------------------------- */

typedef struct label {
    const bench_point *end;
    double y, at; /* of the line's end, of its name */
} label;

/* Names from the top down, at least a step apart, and none below the chart: pushed down, then up again. */
static void spread_labels(label *list, int n)
{
    for (int i = 1; i < n; i++) {
        for (int j = i; j > 0 && list[j].y < list[j - 1].y; j--) {
            label t = list[j];
            list[j] = list[j - 1];
            list[j - 1] = t;
        }
    }
    for (int i = 0; i < n; i++) {
        list[i].at = list[i].y;
        if (i > 0) list[i].at = fmax(list[i].y, list[i - 1].at + LABEL_STEP);
    }
    for (int i = n - 1; i >= 0; i--) {
        double most = i == n - 1 ? BOTTOM - 4 : list[i + 1].at - LABEL_STEP;
        list[i].at = fmin(list[i].at, most);
    }
}

static void put_labels(const chart *c)
{
    label list[BENCH_SYSTEMS];
    int n = 0;
    for (int s = 0; s < BENCH_SYSTEMS; s++) {
        const bench_point *end = each_point(c, s, NULL);
        if (end) list[n++] = (label){ .end = end, .y = y_of(c, bench_decode_speed(end).median) };
    }
    spread_labels(list, n);
    for (int i = 0; i < n; i++) {
        const label *l = &list[i];
        fprintf(c->out,
                "  <g class=\"s%d\"><line class=\"lead\" x1=\"%.1f\" y1=\"%.1f\" x2=\"%d\" y2=\"%.1f\"/>",
                (int)l->end->system, x_of(c, l->end->context) + 8, l->y, RIGHT + 4, l->at);
        fprintf(c->out, "<text x=\"%d\" y=\"%.1f\">%s</text></g>\n", RIGHT + 10, l->at + 4,
                bench_system_labels[l->end->system]);
    }
}

bool bench_write_svg(const char *path, const bench *b)
{
    chart c = { .b = b, .out = fopen(path, "wb") };
    double fastest = find_ranges(&c);
    if (!c.out) return cli_error(command, "%s: cannot write: %s", path, strerror(errno));
    c.top = fastest > 0 ? fastest * 1.05 : 1;
    put_head(&c);
    put_speed_axis(&c);
    if (fastest > 0) {
        put_context_axis(&c);
        put_lines(&c);
        put_labels(&c);
    }
    fputs("</svg>\n", c.out);
    if (!(ferror(c.out) | fclose(c.out))) return true;
    return cli_error(command, "%s: cannot write: %s", path, strerror(errno));
}
