/*
 * eval_files.c - the rows of `h2okv eval` as JSON and CSV; h2okv-eval(1) documents both. A line of CSV is a row of the
 * JSON with its objects opened up, so the two cannot differ.
 */
#include "eval.h"

#include "h2okv/h2okv.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char *const command = "eval";
enum { JSON_FLAGS = JSON_REAL_PRECISION(8) };

/* ---- A row -------------------------------------------------------------------------------------------- */

static bool set(json_t *object, const char *key, json_t *value)
{
    return json_object_set_new(object, key, value) == 0;
}

static json_t *real_or_null(double value)
{
    return isnan(value) ? json_null() : json_real(value);
}

static json_t *text_or_null(const char *text)
{
    return text && *text ? json_string(text) : json_null();
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

static json_t *guide_json(const eval_row *r)
{
    if (r->cache.guide == CACHE_AUTO) return json_string("auto");
    return r->cache.guide > 0 ? json_integer(r->cache.guide) : json_string("off");
}

static bool set_cache(json_t *j, const eval_row *r)
{
    const cache_options *c = &r->cache;
    return set(j, "policy", json_string(c->policy)) && set(j, "budget", json_integer(c->budget)) &&
           set(j, "recent", r->full ? json_null() : json_integer(c->recent)) &&
           set(j, "decay", json_real(c->decay)) && set(j, "pool", json_integer(c->pool)) &&
           set(j, "guide", guide_json(r)) &&
           set(j, "prompt_budget", c->prompt_budget > 0 ? json_integer(c->prompt_budget) : json_null());
}

static bool set_numbers(json_t *j, const eval *e, const eval_row *r)
{
    return set(j, "ppl", real_or_null(r->ppl)) && set(j, "ppl_ratio", real_or_null(eval_ratio(e, r))) &&
           set(j, "kl_mean", real_or_null(r->kl_mean)) && set(j, "kl_p99", real_or_null(r->kl_p99)) &&
           set(j, "top1_agree", real_or_null(r->top1)) && set(j, "recall", real_or_null(eval_recall(r))) &&
           set(j, "recall_first", real_or_null(eval_recall_first(r))) &&
           set(j, "recall_later", real_or_null(eval_recall_later(r))) && set(j, "n", json_integer(r->n));
}

static json_t *depths_json(const eval_options *o, const eval_row *r)
{
    json_t *list = json_array();
    for (uint32_t i = 0; list && i < o->n_depths; i++) {
        json_array_append_new(list, json_pack("{s:f, s:i, s:i}", "depth", o->depth[i], "right",
                                              (int)r->depth_right[i], "n", (int)r->depth_n[i]));
    }
    return list;
}

/* As --pin has them; null: none. */
static json_t *pins_json(const cache_options *c)
{
    char text[CACHE_MOST_PINS * 24] = "";
    for (uint32_t i = 0; i < c->n_pins; i++) {
        size_t used = strlen(text);
        snprintf(text + used, sizeof text - used, "%s%" PRId32 ":%" PRId32, i ? "," : "", c->pin[i].first,
                 c->pin[i].end);
    }
    return text_or_null(text);
}

static bool set_reading(json_t *j, const eval_row *r)
{
    const cache_options *c = &r->cache;
    bool guided = c->guide > 0;
    return set(j, "sink", r->full ? json_null() : json_integer(c->sinks)) && set(j, "grace", json_integer(c->grace)) &&
           set(j, "pin", pins_json(c)) &&
           set(j, "guide_recent", guided ? json_integer(c->guide_recent) : json_null()) &&
           set(j, "guide_spread", guided ? json_integer(c->guide_spread) : json_null()) &&
           set(j, "lanes", json_string(cache_lane_names[c->lanes])) &&
           set(j, "kv_type", json_string(cache_kv_type_names[c->kv_type]));
}

static json_t *options_json(const eval *e, const eval_row *r)
{
    const eval_options *o = e->options;
    bool recall = o->what == EVAL_RECALL, ok;
    json_t *j = json_object();
    ok = j && set(j, "budget_percent", r->percent < 0 ? json_null() : json_real(r->percent)) && set_reading(j, r) &&
         set(j, "ubatch", json_integer(e->ubatch)) && set(j, "attention", json_string(r->attention)) &&
         set(j, "isa", text_or_null(r->isa)) && set(j, "threads", json_integer(o->threads)) &&
         set(j, "tokens", json_integer(e->tokens)) && set(j, "keys", recall ? json_integer(o->keys) : json_null()) &&
         set(j, "questions", recall ? json_integer(o->questions) : json_null()) &&
         set(j, "seed", json_integer(o->cache.seed)) && set(j, "text", any_text(e->source));
    if (ok) return j;
    json_decref(j);
    return NULL;
}

static json_t *row_json(const eval *e, const eval_row *r)
{
    json_t *j = json_object();
    bool ok = j && set(j, "measure", json_string(eval_names[e->options->what])) && set_cache(j, r) &&
              set_numbers(j, e, r) &&
              set(j, "by_depth", e->options->what == EVAL_RECALL ? depths_json(e->options, r) : json_null()) &&
              set(j, "options", options_json(e, r)) && set(j, "model", any_text(e->model)) &&
              set(j, "model_sha256", text_or_null(e->hash)) && set(j, "version", json_string(h2okv_version()));
    if (ok) return j;
    json_decref(j);
    return NULL;
}

static json_t *rows_json(const eval *e)
{
    json_t *list = json_array();
    for (uint32_t i = 0; list && i < e->n_rows; i++) {
        if (e->row[i].n > 0 && json_array_append_new(list, row_json(e, &e->row[i]))) {
            json_decref(list);
            list = NULL;
        }
    }
    if (!list) cli_error(command, "out of memory for the rows");
    return list;
}

/* ---- JSON --------------------------------------------------------------------------------------------- */

bool eval_print_json(FILE *out, const eval *e)
{
    json_t *rows = rows_json(e), *j = json_object();
    bool ok = rows && j && set(j, "measure", json_string(eval_names[e->options->what])) &&
              set(j, "version", json_string(h2okv_version())) && set(j, "model", any_text(e->model)) &&
              set(j, "model_sha256", text_or_null(e->hash)) && set(j, "stopped", json_boolean(e->stopped));
    ok = ok && json_object_set(j, "rows", rows) == 0;
    if (ok && (json_dumpf(j, out, JSON_INDENT(2) | JSON_FLAGS) || fputc('\n', out) == EOF)) {
        ok = cli_error(command, "cannot write the JSON report");
    }
    json_decref(j);
    json_decref(rows);
    return ok;
}

/* ---- CSV ---------------------------------------------------------------------------------------------- */

static void put_quoted(FILE *out, const char *text)
{
    fputc('"', out);
    for (; *text; text++) fprintf(out, *text == '"' ? "\"\"" : "%c", *text);
    fputc('"', out);
}

/* "1:8/8 ..." as depth:right/n; depths come as an array of objects. */
static void put_depths(FILE *out, const json_t *list)
{
    size_t i;
    json_t *d;
    fputc('"', out);
    json_array_foreach(list, i, d) {
        fprintf(out, "%s%g:%" JSON_INTEGER_FORMAT "/%" JSON_INTEGER_FORMAT, i ? " " : "",
                json_real_value(json_object_get(d, "depth")), json_integer_value(json_object_get(d, "right")),
                json_integer_value(json_object_get(d, "n")));
    }
    fputc('"', out);
}

static void put_value(FILE *out, const json_t *value)
{
    char *text;
    if (json_is_string(value)) {
        put_quoted(out, json_string_value(value));
    } else if (json_is_array(value)) {
        put_depths(out, value);
    } else if (!json_is_null(value)) {
        text = json_dumps(value, JSON_ENCODE_ANY | JSON_FLAGS);
        fputs(text ? text : "", out);
        free(text);
    }
}

/* The keys, or with `names` false the values, of an object and of those in it. */
static void put_fields(FILE *out, json_t *object, bool names, bool *first)
{
    const char *key;
    json_t *value;
    json_object_foreach(object, key, value) {
        if (json_is_object(value)) {
            put_fields(out, value, names, first);
            continue;
        }
        if (!*first) fputc(',', out);
        *first = false;
        if (names) {
            fputs(key, out);
        } else {
            put_value(out, value);
        }
    }
}

static void put_line(FILE *out, json_t *row, bool names)
{
    bool first = true;
    put_fields(out, row, names, &first);
    fputc('\n', out);
}

bool eval_write_csv(const char *path, const eval *e)
{
    json_t *rows = rows_json(e), *row;
    FILE *out = rows ? fopen(path, "wb") : NULL;
    size_t i;
    bool ok = out != NULL;
    if (rows && !out) cli_error(command, "%s: cannot write: %s", path, strerror(errno));
    if (out) {
        put_line(out, json_array_get(rows, 0), true);
        json_array_foreach(rows, i, row) put_line(out, row, false);
        if (ferror(out) | fclose(out)) ok = cli_error(command, "%s: cannot write: %s", path, strerror(errno));
    }
    json_decref(rows);
    return ok;
}
