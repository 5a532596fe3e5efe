/* bench_ratios.c - medians with their spread, and the ratios between systems that people ask for. */
#include "bench.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* ---- Medians ------------------------------------------------------------------------------------------ */

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

bench_spread bench_spread_of(double *values, uint32_t n)
{
    if (n == 0) return (bench_spread){ 0 };
    qsort(values, n, sizeof *values, by_value);
    return (bench_spread){ (values[n / 2] + values[(n - 1) / 2]) / 2, values[0], values[n - 1] };
}

static double prompt_speed(const bench_sample *s) { return s->prompt_tokens / s->prompt_s; }
static double first_token(const bench_sample *s) { return s->first_token_s; }
static double decode_speed(const bench_sample *s) { return 1 / s->token_s; }
static double peak(const bench_sample *s) { return (double)s->peak_bytes; }

static bench_spread spread(const bench_point *p, double (*figure)(const bench_sample *s))
{
    double values[BENCH_MOST_ROUNDS];
    for (uint32_t i = 0; i < p->n; i++) values[i] = figure(&p->sample[i]);
    return bench_spread_of(values, p->n);
}

bench_spread bench_prompt_speed(const bench_point *p) { return spread(p, prompt_speed); }
bench_spread bench_first_token(const bench_point *p) { return spread(p, first_token); }
bench_spread bench_decode_speed(const bench_point *p) { return spread(p, decode_speed); }
bench_spread bench_peak(const bench_point *p) { return spread(p, peak); }

char *bench_context_name(char *out, uint32_t context)
{
    bool whole = context >= 1024 && context % 1024 == 0;
    snprintf(out, 16, whole ? "%" PRIu32 "k" : "%" PRIu32, whole ? context / 1024 : context);
    return out;
}

/* ---- Points ------------------------------------------------------------------------------------------- */

typedef bench_spread (*figure_of)(const bench_point *p);

static const bench_point *find(const bench *b, enum bench_system system, uint32_t context)
{
    for (uint32_t i = 0; i < b->n_points; i++) {
        const bench_point *p = &b->point[i];
        if (p->system == system && p->context == context && p->n > 0) return p;
    }
    return NULL;
}

/* Of the points that were measured, the one with the largest context that `other` was measured at too;
 * `other` may be the system itself. Contexts rise in the plan. */
static const bench_point *last(const bench *b, enum bench_system system, enum bench_system other)
{
    const bench_point *found = NULL;
    for (uint32_t i = 0; i < b->n_points; i++) {
        const bench_point *p = &b->point[i];
        if (p->system == system && p->n > 0 && find(b, other, p->context)) found = p;
    }
    return found;
}

static const bench_point *first(const bench *b, enum bench_system system)
{
    for (uint32_t i = 0; i < b->n_points; i++) {
        if (b->point[i].system == system && b->point[i].n > 0) return &b->point[i];
    }
    return NULL;
}

static const bench_point *slowest(const bench *b, enum bench_system system, figure_of figure)
{
    const bench_point *found = NULL;
    for (uint32_t i = 0; i < b->n_points; i++) {
        const bench_point *p = &b->point[i];
        if (p->system != system || p->n == 0) continue;
        if (!found || figure(p).median < figure(found).median) found = p;
    }
    return found;
}

/* Plain llama.cpp at its shortest context, with or without flash attention: whichever is faster. */
static const bench_point *plain_at_best(const bench *b, figure_of figure)
{
    const bench_point *fa = first(b, BENCH_LLAMA_FA), *without = first(b, BENCH_LLAMA);
    if (!fa || !without || fa->context != without->context) return fa ? fa : without;
    return figure(fa).median >= figure(without).median ? fa : without;
}

/* ---- Ratios ------------------------------------------------------------------------------------------- */

/* "decode at 8k, fused / llama.cpp flash attention" */
static void put_same_context(bench_ratio *r, const char *key, const char *what, figure_of figure,
                             const bench_point *above, const bench_point *below)
{
    static const char *const names[] = {
        "llama.cpp flash attention",  "llama.cpp", "observe", "fused", "fused q8_0",
        "fused with nothing evicted",
    };
    char context[16];
    r->key = key;
    r->value = figure(above).median / figure(below).median;
    snprintf(r->text, sizeof r->text, "%s at %s, %s / %s", what, bench_context_name(context, above->context),
             names[above->system], names[below->system]);
}

/* "decode, fused at any context (slowest at 32k) / llama.cpp flash attention at 1k" */
static bool put_any_context(bench_ratio *r, const char *key, const char *what, figure_of figure,
                            const bench *b)
{
    const bench_point *above = slowest(b, BENCH_FUSED, figure), *below = plain_at_best(b, figure);
    char context[16], base[16];
    if (!above || !below) return false;
    r->key = key;
    r->value = figure(above).median / figure(below).median;
    snprintf(r->text, sizeof r->text, "%s, fused at any context (slowest at %s) / %s at %s", what,
             bench_context_name(context, above->context), bench_system_labels[below->system],
             bench_context_name(base, below->context));
    return true;
}

/* Reading a long text against reading 4k, or the shortest when that was not measured: linear cost gives 1. */
static bool put_linear(bench_ratio *r, const bench *b)
{
    const bench_point *longest = last(b, BENCH_FUSED, BENCH_FUSED), *base = find(b, BENCH_FUSED, 4096);
    char above[16], below[16];
    if (!base) base = first(b, BENCH_FUSED);
    if (!longest || longest->context <= base->context) return false;
    r->key = "prompt_linear";
    r->value = bench_prompt_speed(longest).median / bench_prompt_speed(base).median;
    snprintf(r->text, sizeof r->text, "prompt speed, fused at %s / fused at %s",
             bench_context_name(above, longest->context), bench_context_name(below, base->context));
    return true;
}

static bool put_kernel(bench_ratio *r, const bench *b)
{
    enum { FROM = 8192 };
    double least = 0;
    for (uint32_t i = 0; i < b->kernels.n; i++) {
        double share = b->kernels.row[i].share;
        if (b->kernels.row[i].cells >= FROM && (least <= 0 || share < least)) least = share;
    }
    if (least <= 0) return false;
    r->key = "kernel_share";
    r->value = least;
    snprintf(r->text, sizeof r->text, "decode kernel alone from 8k cells on, least / copy bandwidth");
    return true;
}

uint32_t bench_ratios(const bench *b, bench_ratio *out)
{
    const bench_point *fused = last(b, BENCH_FUSED, BENCH_LLAMA_FA);
    const bench_point *all = last(b, BENCH_FUSED_ALL, BENCH_LLAMA_FA);
    const bench_point *plain = fused ? find(b, BENCH_LLAMA_FA, fused->context) : NULL;
    uint32_t n = 0;
    if (plain) put_same_context(&out[n++], "decode", "decode", bench_decode_speed, fused, plain);
    n += put_any_context(&out[n], "decode_any_context", "decode", bench_decode_speed, b);
    if (all) {
        put_same_context(&out[n++], "decode_all_kept", "decode", bench_decode_speed, all,
                         find(b, BENCH_LLAMA_FA, all->context));
    }
    if (plain) {
        put_same_context(&out[n++], "first_token", "time to first token", bench_first_token, plain, fused);
    }
    n += put_any_context(&out[n], "prompt_any_context", "prompt speed", bench_prompt_speed, b);
    n += put_linear(&out[n], b);
    if (plain) put_same_context(&out[n++], "peak_rss", "peak memory", bench_peak, fused, plain);
    n += put_kernel(&out[n], b);
    return n;
}
