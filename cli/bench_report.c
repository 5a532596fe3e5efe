/* bench_report.c - the table of `h2okv bench` for people. */
#include "bench.h"

#include "h2okv/h2okv.h"

#include <inttypes.h>
#include <string.h>

/* "613" or, where that would be coarse, "6.1". */
static const char *short_number(char *out, double value)
{
    snprintf(out, 16, value < 9.95 ? "%.2f" : value < 99.5 ? "%.1f" : "%.0f", value);
    return out;
}

static const char *range(char *out, bench_spread s)
{
    char least[16], most[16];
    snprintf(out, 40, "%s..%s", short_number(least, s.least), short_number(most, s.most));
    return out;
}

static const bench_sample *any_sample(const bench *b, bool bounded)
{
    for (uint32_t i = 0; i < b->n_points; i++) {
        const bench_point *p = &b->point[i];
        bool right = !bounded || (p->system >= BENCH_OBSERVE && p->system != BENCH_FUSED_ALL);
        if (p->n > 0 && right) return &p->sample[0];
    }
    return NULL;
}

static void put_head(FILE *out, const bench *b)
{
    const bench_options *o = b->options;
    const bench_machine *m = &b->machine;
    const bench_sample *bounded = any_sample(b, true);
    char budget[32], cells[32];
    fprintf(out, "%sh2okv %s, %s%s\n", cli_style(out, CLI_BOLD), h2okv_version(), m->engine,
            cli_style(out, CLI_PLAIN));
    fprintf(out, "  %s; %" PRIu32 " thread%s on %" PRIu32 " processor%s; ", m->cpu, o->threads,
            o->threads == 1 ? "" : "s", m->processors, m->processors == 1 ? "" : "s");
    if (m->load[0] < 0) {
        fputs("load before unknown\n", out);
    } else {
        fprintf(out, "load before %.2f %.2f %.2f\n", m->load[0], m->load[1], m->load[2]);
    }
    if (b->n_points == 0) return;
    fprintf(out, "  text: %s\n", b->source);
    if (!bounded) return;
    fprintf(out,
            "  budget %s + passes of %" PRIu32 " = %s cells; %" PRIu32 " tokens decoded at a context's end\n",
            cli_thousands(budget, o->budget), bounded->ubatch, cli_thousands(cells, bounded->cells),
            o->n_new);
}

static void put_row(FILE *out, const bench_point *p, bool first_of_context)
{
    bench_spread prompt = bench_prompt_speed(p), decode = bench_decode_speed(p);
    char context[16] = "", a[16], b[40], c[16], d[16], e[40];
    if (first_of_context) bench_context_name(context, p->context);
    fprintf(out, "%7s %-9s %6s %-11s %8s %6s %-11s %6.1f %6.1f %2" PRIu32 "\n", context,
            bench_system_names[p->system], short_number(a, prompt.median), range(b, prompt),
            short_number(c, bench_first_token(p).median), short_number(d, decode.median), range(e, decode),
            (double)p->sample[0].kv_bytes / (1 << 20), bench_peak(p).median / (1 << 20), p->n);
}

static void put_names(FILE *out, const bench *b)
{
    bool measured[BENCH_SYSTEMS] = { false };
    for (uint32_t i = 0; i < b->n_points; i++) measured[b->point[i].system] |= b->point[i].n > 0;
    fputs("Medians of n rounds; peak: of the process, with the model's file where it is mapped.", out);
    for (int s = 0; s < BENCH_SYSTEMS; s++) {
        if (!measured[s]) continue;
        fprintf(out, "\n  %-9s %s", bench_system_names[s], bench_system_labels[s]);
    }
    fputs("\n", out);
}

static void put_rows(FILE *out, const bench *b)
{
    uint32_t context = 0;
    if (!any_sample(b, false)) return;
    fprintf(out, "\n%7s %-9s %6s %-11s %8s %6s %-11s %6s %6s\n", "", "", "prompt", "", "first", "decode", "",
            "KV", "peak");
    fprintf(out, "%7s %-9s %6s %-11s %8s %6s %-11s %6s %6s %2s\n", "context", "system", "tok/s",
            "least..most", "token s", "tok/s", "least..most", "MiB", "MiB", "n");
    for (uint32_t i = 0; i < b->n_points; i++) {
        const bench_point *p = &b->point[i];
        if (p->n == 0) continue;
        put_row(out, p, p->context != context);
        context = p->context;
    }
    put_names(out, b);
}

static void put_kernels(FILE *out, const bench_kernels *k)
{
    char cells[32], text[40];
    if (!k->isa[0]) return;
    fprintf(out, "\ndecode kernel alone, %s: 9 query heads, 3 KV heads, 64 numbers a head, f16\n", k->isa);
    fprintf(out, "  copy bandwidth %.1f GB/s (%s), bytes read + written\n", k->copy_gb_s.median,
            range(text, k->copy_gb_s));
    fprintf(out, "  %7s %9s %-13s %6s %6s\n", "cells", "us/layer", "least..most", "GB/s", "share");
    for (uint32_t i = 0; i < k->n; i++) {
        fprintf(out, "  %7s %9.1f %-13s %6.1f %6.2f\n", cli_thousands(cells, k->row[i].cells),
                k->row[i].us.median, range(text, k->row[i].us), k->row[i].gb_s, k->row[i].share);
    }
}

void bench_print(FILE *out, const bench *b)
{
    bench_ratio ratio[BENCH_MOST_RATIOS];
    uint32_t n = bench_ratios(b, ratio);
    put_head(out, b);
    put_rows(out, b);
    put_kernels(out, &b->kernels);
    if (n > 0) fputs("\n", out);
    for (uint32_t i = 0; i < n; i++) {
        fprintf(out, "%s: %s%.2fx%s\n", ratio[i].text, cli_style(out, CLI_BOLD), ratio[i].value,
                cli_style(out, CLI_PLAIN));
    }
    if (b->stopped) fputs("(interrupted)\n", out);
}
