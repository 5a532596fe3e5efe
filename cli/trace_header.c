/*
 * trace_header.c - the first line of a trace.
 *
 *   version 1   mode shared, per-head   softmax rows of heads
 *   version 2   mode mass               masses of lanes, and the policy that the run had
 */
#include "trace_parts.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define MOST_HEADS 1024u
#define MOST_LANES 65536u
#define MOST_GRACE 65536 /* what the cache takes */

static bool header_kind(trace_reader *r, json_t *object)
{
    const char *format = json_string_value(json_object_get(object, "format"));
    const char *mode = json_string_value(json_object_get(object, "mode"));
    json_t *version = json_object_get(object, "version");
    if (!format || strcmp(format, "h2okv-trace") != 0) {
        return trace_fail(r, CLI_INPUT, "not a trace: the first line needs \"format\": \"h2okv-trace\"");
    }
    if (!json_is_integer(version) || json_integer_value(version) < 1 || json_integer_value(version) > 2) {
        char *text = version ? json_dumps(version, JSON_ENCODE_ANY | JSON_COMPACT) : NULL;
        trace_fail(r, CLI_INPUT, "header: \"version\" is %.40s; this program reads versions 1 and 2",
                   text ? text : "missing");
        free(text);
        return false;
    }
    if (!mode || (strcmp(mode, "shared") != 0 && strcmp(mode, "per-head") != 0 && strcmp(mode, "mass") != 0)) {
        return trace_fail(r, CLI_INPUT, "header: \"mode\" is %s%.40s%s; it has to be \"shared\", \"per-head\" or "
                          "\"mass\"", mode ? "\"" : "", mode ? mode : "missing or no string", mode ? "\"" : "");
    }
    r->header.shared = strcmp(mode, "shared") == 0;
    r->header.mass = strcmp(mode, "mass") == 0;
    if (r->header.mass == (json_integer_value(version) == 2)) return true;
    return trace_fail(r, CLI_INPUT, "header: \"mode\" \"%s\" is for version %d", mode, r->header.mass ? 2 : 1);
}

static bool header_budget(trace_reader *r, json_t *object)
{
    trace_header *h = &r->header;
    json_t *decay = json_object_get(object, "decay");
    bool ok = trace_count(r, object, "header: ", "recent", true, 0, TRACE_MOST_COUNT, &h->recent) &&
              trace_count(r, object, "header: ", "heavy", true, 0, TRACE_MOST_COUNT, &h->heavy) &&
              trace_count(r, object, "header: ", "sinks", false, 0, TRACE_MOST_COUNT, &h->sinks) &&
              trace_count(r, object, "header: ", "grace", false, 0, MOST_GRACE, &h->grace);
    if (!ok) return false;
    if (decay) {
        if (!json_is_number(decay) || !(json_number_value(decay) > 0) || json_number_value(decay) > 1) {
            return trace_fail(r, CLI_INPUT, "header: \"decay\" has to be above 0 and at most 1");
        }
        h->decay = json_number_value(decay);
    }
    if (h->recent + h->heavy == 0) return trace_fail(r, CLI_INPUT, "header: recent + heavy has to be at least 1");
    if (h->sinks > h->heavy) {
        return trace_fail(r, CLI_INPUT, "header: \"sinks\" %" PRIu32 " count in \"heavy\" %" PRIu32 " and are more",
                          h->sinks, h->heavy);
    }
    return true;
}

/* ---- Version 1 ---------------------------------------------------------------------------------------- */

static bool header_heads(trace_reader *r, json_t *object)
{
    trace_header *h = &r->header;
    json_t *self = json_object_get(object, "count_self");
    if (!json_is_boolean(self)) return trace_fail(r, CLI_INPUT, "header: \"count_self\" has to be true or false");
    h->count_self = json_is_true(self);
    if (h->shared) {
        if (json_object_get(object, "group")) {
            return trace_fail(r, CLI_INPUT, "header: \"group\" is for mode per-head");
        }
        h->group = h->heads;
    } else if (h->heads % h->group) {
        return trace_fail(r, CLI_INPUT, "header: \"heads\" %" PRIu32 " is no multiple of \"group\" %" PRIu32,
                          h->heads, h->group);
    }
    h->lanes = h->heads / h->group;
    return true;
}

static bool read_version_1(trace_reader *r, json_t *object)
{
    static const char *const keys[] = { "format", "version", "mode", "heads", "group", "recent", "heavy",
                                        "sinks", "grace", "count_self", "decay", "meta" };
    trace_header *h = &r->header;
    return trace_known_keys(r, object, keys, sizeof keys / sizeof keys[0]) &&
           trace_count(r, object, "header: ", "heads", true, 1, MOST_HEADS, &h->heads) &&
           trace_count(r, object, "header: ", "group", false, 1, MOST_HEADS, &h->group) &&
           header_budget(r, object) && header_heads(r, object);
}

/* ---- Version 2 ---------------------------------------------------------------------------------------- */

static bool header_pins(trace_reader *r, json_t *object)
{
    json_t *list = json_object_get(object, "pins"), *pair;
    trace_header *h = &r->header;
    size_t i;
    if (!list) return true;
    if (!json_is_array(list) || json_array_size(list) > TRACE_MOST_PINS) {
        return trace_fail(r, CLI_INPUT, "header: \"pins\" has to be a list of at most %d ranges", TRACE_MOST_PINS);
    }
    json_array_foreach(list, i, pair) {
        json_int_t first = json_integer_value(json_array_get(pair, 0));
        json_int_t end = json_integer_value(json_array_get(pair, 1));
        if (json_array_size(pair) != 2 || first < 0 || end <= first || end > INT32_MAX) {
            return trace_fail(r, CLI_INPUT, "header: pins[%zu] has to be [first, end], two positions", i);
        }
        h->pin[h->n_pins][0] = (int32_t)first;
        h->pin[h->n_pins++][1] = (int32_t)end;
    }
    return true;
}

static bool read_version_2(trace_reader *r, json_t *object)
{
    static const char *const keys[] = { "format", "version", "mode", "lanes", "recent", "heavy", "sinks", "grace",
                                        "decay", "policy", "pool", "seed", "pins", "meta" };
    trace_header *h = &r->header;
    const char *policy = json_string_value(json_object_get(object, "policy"));
    h->count_self = true; /* a mass is what counted */
    if (!trace_known_keys(r, object, keys, sizeof keys / sizeof keys[0]) ||
        !trace_count(r, object, "header: ", "lanes", true, 1, MOST_LANES, &h->lanes) ||
        !trace_count(r, object, "header: ", "pool", false, 0, TRACE_MOST_COUNT, &h->pool) ||
        !trace_count(r, object, "header: ", "seed", false, 0, UINT32_MAX, &h->seed) || !header_budget(r, object) ||
        !header_pins(r, object)) {
        return false;
    }
    if (!policy || strlen(policy) >= sizeof h->policy) {
        return trace_fail(r, CLI_INPUT, "header: \"policy\" has to be the name of a policy");
    }
    strcpy(h->policy, policy);
    h->heads = h->lanes;
    return true;
}

bool trace_read_header(trace_reader *r)
{
    json_t *object = trace_read_line(r);
    bool ok;
    if (!object) return r->exit_code ? false : trace_fail(r, CLI_INPUT, "the file is empty");
    r->header = (trace_header){ .group = 1, .decay = 1, .policy = "h2o" };
    ok = header_kind(r, object) && (r->header.mass ? read_version_2(r, object) : read_version_1(r, object));
    r->budget = r->header.recent + r->header.heavy;
    json_decref(object);
    return ok;
}
