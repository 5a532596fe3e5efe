/* trace_write.c - see trace_write.h. Numbers are written by hand: a line has some 100,000. */
#include "trace_write.h"

#include "h2okv/advanced.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

bool trace_writer_open(trace_writer *w, const char *command, const char *path)
{
    *w = (trace_writer){ 0 };
    return cli_save_open(&w->file, command, path);
}

static void free_arrays(trace_writer *w)
{
    free(w->mass);
    free(w->has_mass);
    free(w->pos);
    free(w->score);
    w->mass = w->score = NULL;
    w->has_mass = NULL;
    w->pos = NULL;
}

bool trace_writer_keep(trace_writer *w)
{
    free_arrays(w);
    return cli_save_keep(&w->file);
}

void trace_writer_drop(trace_writer *w)
{
    free_arrays(w);
    cli_save_drop(&w->file);
}

/* ---- The header --------------------------------------------------------------------------------------- */

static json_t *pins_json(const cache_options *o)
{
    json_t *list = json_array();
    for (uint32_t i = 0; list && i < o->n_pins; i++) {
        json_array_append_new(list, json_pack("[i, i]", (int)o->pin[i].first, (int)o->pin[i].end));
    }
    return list;
}

/* A path need not be UTF-8. */
static json_t *any_text(const char *text)
{
    cli_utf8 whole = { 0 };
    char *out = malloc(CLI_UTF8_ROOM(strlen(text)));
    json_t *j = out ? json_stringn(out, cli_utf8_take(&whole, text, strlen(text), out)) : NULL;
    free(out);
    return j;
}

static bool put_header(trace_writer *w, const cache_options *o, const char *model)
{
    const h2okv_options *c = &w->options;
    json_t *meta = json_pack("{s:s, s:o, s:s}", "by", "h2okv run --trace", "model", any_text(model), "version",
                             h2okv_version());
    json_t *j = json_pack("{s:s, s:i, s:s, s:I, s:I, s:I, s:I, s:I, s:f, s:s, s:I, s:I, s:o, s:o}", "format",
                          "h2okv-trace", "version", 2, "mode", "mass", "lanes", (json_int_t)c->lanes, "recent",
                          (json_int_t)c->recent, "heavy", (json_int_t)(c->budget - c->recent), "sinks",
                          (json_int_t)c->sinks, "grace", (json_int_t)c->grace, "decay", c->decay, "policy", o->policy,
                          "pool", (json_int_t)c->pool, "seed", (json_int_t)o->seed, "pins", pins_json(o), "meta", meta);
    bool ok = j && json_dumpf(j, w->file.file, JSON_REAL_PRECISION(17)) == 0;
    fputc('\n', w->file.file);
    json_decref(j);
    return ok;
}

bool trace_writer_begin(trace_writer *w, const h2okv_cache *cache, const cache_options *options, const char *model)
{
    size_t cells, lanes;
    h2okv_cache_get_options(cache, &w->options);
    cells = w->options.cells;
    lanes = w->options.lanes;
    w->budget = w->options.budget;
    w->recent = w->options.recent;
    w->mass = malloc(cells * lanes * sizeof *w->mass);
    w->has_mass = calloc(lanes, sizeof *w->has_mass);
    w->pos = malloc(cells * sizeof *w->pos);
    w->score = malloc(cells * sizeof *w->score);
    if (w->mass && w->has_mass && w->pos && w->score && put_header(w, options, model)) return true;
    return cli_error(w->file.command, "out of memory for the trace");
}

/* ---- A pass ------------------------------------------------------------------------------------------- */

/* A lane that spans several layers gets its mass in parts. */
void trace_writer_mass(trace_writer *w, const h2okv_cache *cache, uint32_t lane, const double *mass)
{
    h2okv_lane_view view;
    double *out = w->mass + (size_t)lane * w->options.cells;
    if (h2okv_cache_lane(cache, lane, &view)) return;
    for (uint32_t k = 0; k < view.live; k++) {
        out[k] = (w->has_mass[lane] ? out[k] : 0) + mass[view.order[k]];
    }
    w->has_mass[lane] = true;
    w->columns = view.live;
}

void trace_writer_guided(trace_writer *w, uint32_t spread)
{
    w->spread = spread;
}

/* As short as it may be and still the same number. Most masses are floats. */
static void put_real(FILE *out, double value)
{
    if (value == 0) fputc('0', out);
    else fprintf(out, (double)(float)value == value ? "%.9g" : "%.17g", value);
}

static void put_mass(const trace_writer *w)
{
    FILE *out = w->file.file;
    if (w->columns == 0) {
        fputs("null", out);
        return;
    }
    for (uint32_t lane = 0; lane < w->options.lanes; lane++) {
        const double *mass = w->mass + (size_t)lane * w->options.cells;
        for (uint32_t k = 0; k < w->columns; k++) {
            fputs(k ? "," : lane ? "],[" : "[[", out);
            put_real(out, w->has_mass[lane] ? mass[k] : 0);
        }
    }
    fputs("]]", out);
}

static void put_kept(const trace_writer *w, const h2okv_cache *cache, bool scores)
{
    FILE *out = w->file.file;
    fputc('[', out);
    for (uint32_t lane = 0; lane < w->options.lanes; lane++) {
        uint32_t n = h2okv_cache_kept(cache, lane, w->pos, w->score, NULL);
        fputs(lane ? ",[" : "[", out);
        for (uint32_t k = 0; k < n; k++) {
            if (k) fputc(',', out);
            if (scores) fprintf(out, "%.7g", w->score[k]);
            else fprintf(out, "%" PRId32, w->pos[k]);
        }
        fputc(']', out);
    }
    fputc(']', out);
}

static void put_change(FILE *out, const char *key, uint32_t *known, uint32_t now)
{
    if (*known != now) fprintf(out, ", \"%s\": %" PRIu32, key, now);
    *known = now;
}

/* `recent` goes with the budget: an engine may clip it. */
static void put_changes(trace_writer *w, const h2okv_cache *cache)
{
    FILE *out = w->file.file;
    h2okv_options now;
    h2okv_cache_get_options(cache, &now);
    put_change(out, "budget", &w->budget, now.budget);
    put_change(out, "recent", &w->recent, now.recent);
}

bool trace_writer_pass(trace_writer *w, const h2okv_cache *cache, uint32_t seen)
{
    uint32_t n = seen - w->seen, text = w->live + n;
    FILE *out = w->file.file;
    errno = 0;
    fprintf(out, "{\"new\": %" PRIu32, n);
    if (w->columns > text) fprintf(out, ", \"probe\": %" PRIu32, w->columns - text);
    if (w->columns > text && w->spread > 0) fprintf(out, ", \"spread\": %" PRIu32, w->spread);
    put_changes(w, cache);
    fputs(", \"mass\": ", out);
    put_mass(w);
    fputs(", \"kept\": ", out);
    put_kept(w, cache, false);
    fputs(", \"scores\": ", out);
    put_kept(w, cache, true);
    fputs("}\n", out);
    w->seen = seen;
    w->live = h2okv_cache_live(cache);
    w->columns = 0;
    memset(w->has_mass, 0, w->options.lanes * sizeof *w->has_mass);
    w->steps++;
    return cli_save_check(&w->file);
}
