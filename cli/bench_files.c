/* bench_files.c - what `h2okv bench` measured, as JSON and CSV; h2okv-bench(1) documents both. */
#include "bench.h"

#include "h2okv/h2okv.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

static const char *const command = "bench";

/* ---- JSON --------------------------------------------------------------------------------------------- */

static bool set(json_t *object, const char *key, json_t *value)
{
    return json_object_set_new(object, key, value) == 0;
}

/* File names need not be UTF-8. */
static json_t *any_text(const char *text)
{
    cli_utf8 whole = { 0 };
    char *out = malloc(CLI_UTF8_ROOM(strlen(text)));
    json_t *j = out ? json_stringn(out, cli_utf8_take(&whole, text, strlen(text), out)) : NULL;
    free(out);
    return j;
}

static json_t *spread_json(bench_spread s)
{
    return json_pack("{s:f, s:f, s:f}", "median", s.median, "least", s.least, "most", s.most);
}

static json_t *load_json(const bench_machine *m)
{
    json_t *list = json_array();
    for (int i = 0; i < 3; i++) {
        json_array_append_new(list, m->load[i] < 0 ? json_null() : json_real(m->load[i]));
    }
    return list;
}

static json_t *machine_json(const bench_machine *m)
{
    json_t *j = json_object();
    if (j && set(j, "cpu", any_text(m->cpu)) && set(j, "processors", json_integer(m->processors)) &&
        set(j, "load_before", load_json(m)) && set(j, "engine", any_text(m->engine))) {
        return j;
    }
    json_decref(j);
    return NULL;
}

static json_t *point_json(const bench_point *p)
{
    const bench_sample *s = &p->sample[0];
    json_t *j = json_object();
    if (j && set(j, "system", json_string(bench_system_names[p->system])) &&
        set(j, "context", json_integer(p->context)) && set(j, "rounds", json_integer(p->n)) &&
        set(j, "prompt_tokens", json_integer(s->prompt_tokens)) &&
        set(j, "prompt_tok_s", spread_json(bench_prompt_speed(p))) &&
        set(j, "first_token_s", spread_json(bench_first_token(p))) &&
        set(j, "decode_tok_s", spread_json(bench_decode_speed(p))) &&
        set(j, "cells", json_integer(s->cells)) && set(j, "ubatch", json_integer(s->ubatch)) &&
        set(j, "kv_bytes", json_integer((json_int_t)s->kv_bytes)) &&
        set(j, "peak_rss_bytes", spread_json(bench_peak(p))) &&
        set(j, "isa", s->isa[0] ? json_string(s->isa) : json_null())) {
        return j;
    }
    json_decref(j);
    return NULL;
}

static json_t *points_json(const bench *b)
{
    json_t *list = json_array();
    for (uint32_t i = 0; list && i < b->n_points; i++) {
        if (b->point[i].n > 0 && json_array_append_new(list, point_json(&b->point[i]))) {
            json_decref(list);
            return NULL;
        }
    }
    return list;
}

static json_t *kernels_json(const bench_kernels *k)
{
    json_t *rows = json_array();
    if (!k->isa[0]) {
        json_decref(rows);
        return json_null();
    }
    for (uint32_t i = 0; i < k->n; i++) {
        json_int_t cells = k->row[i].cells, layers = k->row[i].layers;
        json_array_append_new(rows, json_pack("{s:I, s:I, s:o, s:f, s:f}", "cells", cells, "layers", layers,
                                              "us", spread_json(k->row[i].us), "gb_s", k->row[i].gb_s,
                                              "share", k->row[i].share));
    }
    return json_pack("{s:s, s:o, s:o}", "isa", k->isa, "copy_gb_s", spread_json(k->copy_gb_s), "decode",
                     rows);
}

static json_t *ratios_json(const bench *b)
{
    bench_ratio ratio[BENCH_MOST_RATIOS];
    uint32_t n = bench_ratios(b, ratio);
    json_t *list = json_array();
    for (uint32_t i = 0; i < n; i++) {
        json_array_append_new(list, json_pack("{s:s, s:s, s:f}", "key", ratio[i].key, "text", ratio[i].text,
                                              "value", ratio[i].value));
    }
    return list;
}

static bool set_all(json_t *j, const bench *b)
{
    const bench_options *o = b->options;
    return set(j, "version", json_string(h2okv_version())) && set(j, "machine", machine_json(&b->machine)) &&
           set(j, "threads", json_integer(o->threads)) && set(j, "load", json_string(bench_load_names[o->load])) &&
           set(j, "budget", json_integer(o->budget)) &&
           set(j, "new_tokens", json_integer(o->n_new)) && set(j, "text", any_text(b->source)) &&
           set(j, "model", o->model ? any_text(o->model) : json_null()) &&
           set(j, "measurements", points_json(b)) && set(j, "kernels", kernels_json(&b->kernels)) &&
           set(j, "ratios", ratios_json(b)) && set(j, "seconds", json_real(b->seconds)) &&
           set(j, "stopped", json_boolean(b->stopped));
}

bool bench_print_json(FILE *out, const bench *b)
{
    json_t *j = json_object();
    bool ok = j && set_all(j, b);
    if (!ok) cli_error(command, "out of memory for the JSON report");
    if (ok && (json_dumpf(j, out, JSON_INDENT(2) | JSON_REAL_PRECISION(6)) || fputc('\n', out) == EOF)) {
        ok = cli_error(command, "cannot write the JSON report");
    }
    json_decref(j);
    return ok;
}

/* ---- CSV ---------------------------------------------------------------------------------------------- */

static void put_sample(FILE *out, const bench_point *p, uint32_t i)
{
    const bench_sample *s = &p->sample[i];
    fprintf(out,
            "%" PRIu32 ",%s,%" PRIu32 ",%" PRIu32 ",%.3f,%.6f,%.3f,%" PRIu32 ",%" PRIu32 ",%" PRIu64
            ",%" PRIu64 ",%s\n",
            i + 1, bench_system_names[p->system], p->context, s->prompt_tokens,
            s->prompt_tokens / s->prompt_s, s->first_token_s, 1 / s->token_s, s->cells, s->ubatch,
            s->kv_bytes, s->peak_bytes, s->isa);
}

bool bench_write_csv(const char *path, const bench *b)
{
    FILE *out = fopen(path, "wb");
    if (!out) return cli_error(command, "%s: cannot write: %s", path, strerror(errno));
    fputs("round,system,context,prompt_tokens,prompt_tok_s,first_token_s,decode_tok_s,cells,ubatch,kv_bytes,"
          "peak_rss_bytes,isa\n", out);
    for (uint32_t p = 0; p < b->n_points; p++) {
        for (uint32_t i = 0; i < b->point[p].n; i++) put_sample(out, &b->point[p], i);
    }
    if (!(ferror(out) | fclose(out))) return true;
    return cli_error(command, "%s: cannot write: %s", path, strerror(errno));
}
