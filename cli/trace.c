/*
 * trace.c - see trace.h. A line's numbers go from JSON into flat arrays that grow to the longest step.
 *
 * Anything unknown or misshapen is an error with its line number: a misspelt key must not pass unseen.
 */
#include "trace_parts.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* ---- Errors ------------------------------------------------------------------------------------------- */

bool trace_fail(trace_reader *r, int exit_code, const char *format, ...)
{
    va_list arguments;
    int n = r->line ? snprintf(r->error, sizeof r->error, "%.200s:%" PRIu64 ": ", r->path, r->line)
                    : snprintf(r->error, sizeof r->error, "%.200s: ", r->path);
    va_start(arguments, format);
    vsnprintf(r->error + n, sizeof r->error - (size_t)n, format, arguments);
    va_end(arguments);
    r->exit_code = exit_code;
    return false;
}

const char *trace_type_name(const json_t *value)
{
    if (!value) return "nothing";
    switch (json_typeof(value)) {
    case JSON_OBJECT: return "an object";
    case JSON_ARRAY: return "a list";
    case JSON_STRING: return "a string";
    case JSON_INTEGER: return "a whole number";
    case JSON_REAL: return "a real number";
    case JSON_NULL: return "null";
    default: return "true or false";
    }
}

/* ---- Lines -------------------------------------------------------------------------------------------- */

json_t *trace_read_line(trace_reader *r)
{
    json_error_t why;
    json_t *object;
    ssize_t n;
    errno = 0;
    n = getline(&r->text, &r->text_room, r->file);
    if (n < 0) {
        if (ferror(r->file) || errno == ENOMEM) {
            trace_fail(r, CLI_INPUT, "cannot read: %s", strerror(errno ? errno : EIO));
        }
        return NULL;
    }
    r->line++;
    object = json_loadb(r->text, (size_t)n, JSON_REJECT_DUPLICATES, &why);
    if (!object) {
        trace_fail(r, CLI_INPUT, "not JSON: %s (column %d)", why.text, why.column);
        return NULL;
    }
    if (!json_is_object(object)) {
        trace_fail(r, CLI_INPUT, "a line has to be an object, this one is %s", trace_type_name(object));
        json_decref(object);
        return NULL;
    }
    return object;
}

bool trace_known_keys(trace_reader *r, json_t *object, const char *const *keys, size_t n)
{
    const char *key;
    json_t *value;
    json_object_foreach(object, key, value) {
        const char *near = cli_nearest(key, keys, n);
        size_t i = 0;
        while (i < n && strcmp(key, keys[i]) != 0) i++;
        if (i == n) {
            return trace_fail(r, CLI_INPUT, "unknown field \"%.40s\"%s%s%s", key, near ? "; did you mean \"" : "",
                        near ? near : "", near ? "\"?" : "");
        }
    }
    return true;
}

bool trace_count(trace_reader *r, const json_t *object, const char *in, const char *key, bool required, uint32_t min,
                 uint32_t max, uint32_t *out)
{
    json_t *value = json_object_get(object, key);
    json_int_t n = json_integer_value(value);
    if (!value && !required) return true;
    if (!value) return trace_fail(r, CLI_INPUT, "%s\"%s\" is missing", in, key);
    if (!json_is_integer(value)) {
        return trace_fail(r, CLI_INPUT, "%s\"%s\" has to be a whole number, not %s", in, key, trace_type_name(value));
    }
    if (n < (json_int_t)min || n > (json_int_t)max) {
        return trace_fail(r, CLI_INPUT,
                          "%s\"%s\" is %" JSON_INTEGER_FORMAT ", it has to be %" PRIu32 " to %" PRIu32, in, key, n,
                          min, max);
    }
    *out = (uint32_t)n;
    return true;
}

/* ---- Room --------------------------------------------------------------------------------------------- */

bool trace_grow(trace_reader *r, void **array, size_t *room, size_t n, size_t element)
{
    void *bigger;
    if (n <= *room) return true;
    bigger = n > SIZE_MAX / element ? NULL : realloc(*array, n * element);
    if (!bigger) return trace_fail(r, CLI_ENGINE, "out of memory for a step of %zu numbers", n);
    *array = bigger;
    *room = n;
    return true;
}

static bool make_room_for_weights(trace_reader *r)
{
    trace_step *s = &r->step;
    uint64_t n = (uint64_t)r->header.heads * s->n_new * s->columns;
    if (n > SIZE_MAX) return trace_fail(r, CLI_ENGINE, "out of memory for a step of %" PRIu64 " weights", n);
    return trace_grow(r, (void **)&s->weights, &r->weights_room, (size_t)n, sizeof *s->weights);
}

static bool make_room_for_kept(trace_reader *r)
{
    trace_step *s = &r->step;
    size_t n = (size_t)r->header.lanes * (s->n_kept > 0 ? s->n_kept : 1);
    size_t scores_room = r->kept_room; /* the two grow together */
    return trace_grow(r, (void **)&s->scores, &scores_room, n, sizeof *s->scores) &&
           trace_grow(r, (void **)&s->kept, &r->kept_room, n, sizeof *s->kept);
}

/* ---- Weights ------------------------------------------------------------------------------------------ */

bool trace_is_list(trace_reader *r, const json_t *value, size_t n, const char *where)
{
    if (!json_is_array(value)) {
        return trace_fail(r, CLI_INPUT, "%s has to be a list, not %s", where, trace_type_name(value));
    }
    if (json_array_size(value) != n) {
        return trace_fail(r, CLI_INPUT, "%s has %zu entries, it needs %zu", where, json_array_size(value), n);
    }
    return true;
}

/* One softmax row, of the q-th new token. Queries are causal: nothing on tokens newer than the q-th. */
static bool read_row(trace_reader *r, const json_t *row, uint32_t head, uint32_t q, float *out)
{
    trace_step *s = &r->step;
    uint32_t before = s->columns - s->n_new, given = r->header.shared ? before : s->columns;
    char where[64];
    snprintf(where, sizeof where, "weights[%" PRIu32 "][%" PRIu32 "]", head, q);
    if (!trace_is_list(r, row, given, where)) return false;
    memset(out, 0, s->columns * sizeof *out);
    for (uint32_t c = 0; c < given; c++) {
        const json_t *value = json_array_get(row, c);
        if (!json_is_number(value)) {
            return trace_fail(r, CLI_INPUT, "%s[%" PRIu32 "] has to be a number, not %s", where, c,
                        trace_type_name(value));
        }
        out[c] = (float)json_number_value(value);
        if (!isfinite(out[c])) {
            return trace_fail(r, CLI_INPUT, "%s[%" PRIu32 "] is too large for a weight", where, c);
        }
        if (out[c] < 0) return trace_fail(r, CLI_INPUT, "%s[%" PRIu32 "] is negative", where, c);
        if (c > before + q && out[c] > 0) {
            return trace_fail(r, CLI_INPUT, "%s[%" PRIu32 "] is attention to a later token", where, c);
        }
    }
    return true;
}

/* One head: a list of rows, or, when there is but one new token, the row itself. */
static bool read_head(trace_reader *r, const json_t *list, uint32_t head)
{
    trace_step *s = &r->step;
    float *out = s->weights + (size_t)head * s->n_new * s->columns;
    char where[32];
    bool nested = json_is_array(json_array_get(list, 0));
    snprintf(where, sizeof where, "weights[%" PRIu32 "]", head);
    if (!json_is_array(list)) {
        return trace_fail(r, CLI_INPUT, "%s has to be a list, not %s", where, trace_type_name(list));
    }
    if (s->n_new == 1 && !nested) return read_row(r, list, head, 0, out);
    if (!trace_is_list(r, list, s->n_new, where)) return false;
    for (uint32_t q = 0; q < s->n_new; q++) {
        if (!read_row(r, json_array_get(list, q), head, q, out + (size_t)q * s->columns)) return false;
    }
    return true;
}

static bool read_weights(trace_reader *r, const json_t *list)
{
    if (!list) return trace_fail(r, CLI_INPUT, "\"weights\" is missing");
    r->step.has_weights = !json_is_null(list);
    if (!r->step.has_weights) return true;
    if (!trace_is_list(r, list, r->header.heads, "weights")) return false;
    /* The file has to hold as many rows as "new" says before memory is taken for them. */
    if (r->step.n_new > 1 && !trace_is_list(r, json_array_get(list, 0), r->step.n_new, "weights[0]")) return false;
    if (!make_room_for_weights(r)) return false;
    for (uint32_t h = 0; h < r->header.heads; h++) {
        if (!read_head(r, json_array_get(list, h), h)) return false;
    }
    return true;
}

/* ---- What a step should lead to ----------------------------------------------------------------------- */

static bool read_positions(trace_reader *r, const json_t *list, const char *where, int32_t *out)
{
    int64_t last = -1;
    if (!trace_is_list(r, list, r->step.n_kept, where)) return false;
    for (size_t i = 0; i < r->step.n_kept; i++) {
        const json_t *value = json_array_get(list, i);
        json_int_t pos = json_integer_value(value);
        if (!json_is_integer(value)) {
            return trace_fail(r, CLI_INPUT, "%s[%zu] has to be a position, not %s", where, i, trace_type_name(value));
        }
        if (pos <= last || pos >= (json_int_t)(r->tokens + r->step.n_new)) {
            return trace_fail(r, CLI_INPUT,
                        "%s[%zu] is %" JSON_INTEGER_FORMAT "; positions rise and are below %" PRIu64,
                        where, i, pos, r->tokens + r->step.n_new);
        }
        last = pos;
        out[i] = (int32_t)pos;
    }
    return true;
}

static bool read_scores(trace_reader *r, const json_t *list, const char *where, double *out)
{
    if (!trace_is_list(r, list, r->step.n_kept, where)) return false;
    for (size_t i = 0; i < r->step.n_kept; i++) {
        const json_t *value = json_array_get(list, i);
        if (!json_is_number(value)) {
            return trace_fail(r, CLI_INPUT, "%s[%zu] has to be a number, not %s", where, i, trace_type_name(value));
        }
        out[i] = json_number_value(value);
    }
    return true;
}

/* "kept" or "scores": in shared mode one flat list, else a list for each lane. */
static bool read_expected(trace_reader *r, json_t *object, const char *key, bool *has)
{
    const json_t *list = json_object_get(object, key);
    bool kept = strcmp(key, "kept") == 0;
    trace_step *s = &r->step;
    *has = list != NULL;
    if (!list) return !r->need_expected || trace_fail(r, CLI_INPUT, "\"%s\" is missing; --check needs it", key);
    if (!r->header.shared && !trace_is_list(r, list, r->header.lanes, key)) return false;
    for (uint32_t lane = 0; lane < r->header.lanes; lane++) {
        const json_t *part = r->header.shared ? list : json_array_get(list, lane);
        size_t at = (size_t)lane * s->n_kept;
        char where[32];
        if (r->header.shared) {
            snprintf(where, sizeof where, "%s", key);
        } else {
            snprintf(where, sizeof where, "%s[%" PRIu32 "]", key, lane);
        }
        bool ok = kept ? read_positions(r, part, where, s->kept + at)
                       : read_scores(r, part, where, s->scores + at);
        if (!ok) return false;
    }
    return true;
}

/* ---- Steps -------------------------------------------------------------------------------------------- */

static bool read_new(trace_reader *r, json_t *object)
{
    const json_t *value = json_object_get(object, "new");
    json_int_t n = json_integer_value(value);
    if (!value) return trace_fail(r, CLI_INPUT, "\"new\" is missing");
    if (!json_is_integer(value)) {
        return trace_fail(r, CLI_INPUT, "\"new\" has to be a whole number, not %s", trace_type_name(value));
    }
    if (n < 1 || n > (json_int_t)TRACE_MOST_COUNT) {
        return trace_fail(r, CLI_INPUT, "\"new\" is %" JSON_INTEGER_FORMAT ", it has to be 1 to %u", n,
                    TRACE_MOST_COUNT);
    }
    if (r->tokens + (uint64_t)n > INT32_MAX) return trace_fail(r, CLI_INPUT, "more than %d tokens", INT32_MAX);
    r->step.n_new = (uint32_t)n;
    r->step.columns = r->live + (uint32_t)n;
    r->step.n_kept = r->step.columns < r->budget ? r->step.columns : r->budget;
    return true;
}

static bool read_weights_step(trace_reader *r, json_t *object)
{
    static const char *const keys[] = { "new", "weights", "kept", "scores", "meta" };
    r->step.n_probe = r->step.spread = 0;
    r->step.budget = r->step.recent = TRACE_SAME;
    return trace_known_keys(r, object, keys, sizeof keys / sizeof keys[0]) && read_new(r, object) &&
           read_weights(r, json_object_get(object, "weights"));
}

int trace_next(trace_reader *r)
{
    json_t *object = trace_read_line(r);
    bool ok;
    if (!object) return r->exit_code ? -1 : 0;
    ok = (r->header.mass ? trace_read_mass_step(r, object) : read_weights_step(r, object)) && make_room_for_kept(r) &&
         read_expected(r, object, "kept", &r->step.has_kept) &&
         read_expected(r, object, "scores", &r->step.has_scores);
    json_decref(object);
    if (!ok) return -1;
    r->steps++;
    r->tokens += r->step.n_new;
    r->live = r->step.n_kept;
    return 1;
}

/* ---- The file ----------------------------------------------------------------------------------------- */

bool trace_open(trace_reader *r, const char *path, bool need_expected)
{
    struct stat info;
    *r = (trace_reader){ .path = path, .need_expected = need_expected };
    if (stat(path, &info)) return trace_fail(r, CLI_INPUT, "cannot open: %s", strerror(errno));
    if (S_ISDIR(info.st_mode)) return trace_fail(r, CLI_INPUT, "is a directory, not a trace");
    if (!S_ISREG(info.st_mode)) return trace_fail(r, CLI_INPUT, "is not a regular file; a trace is read twice");
    r->file = fopen(path, "rb");
    if (!r->file) return trace_fail(r, CLI_INPUT, "cannot open: %s", strerror(errno));
    return trace_read_header(r);
}

bool trace_rewind(trace_reader *r)
{
    if (fseek(r->file, 0, SEEK_SET)) return trace_fail(r, CLI_INPUT, "cannot read again: %s", strerror(errno));
    r->line = r->steps = r->tokens = r->live = 0;
    return trace_read_header(r);
}

void trace_close(trace_reader *r)
{
    if (r->file) fclose(r->file);
    free(r->text);
    free(r->step.weights);
    free(r->step.mass);
    free(r->step.kept);
    free(r->step.scores);
    r->file = NULL;
    r->text = NULL;
    r->step = (trace_step){ 0 };
}
