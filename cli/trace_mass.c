/*
 * trace_mass.c - a step of a trace that holds masses (version 2): what each lane's tokens received together.
 *
 *   held before | new | probe        columns of "mass", by rising position
 */
#include "trace_parts.h"

#include <inttypes.h>
#include <math.h>

static bool read_changes(trace_reader *r, const json_t *object)
{
    trace_step *s = &r->step;
    s->budget = s->recent = TRACE_SAME;
    if (!trace_count(r, object, "", "budget", false, 1, TRACE_MOST_COUNT, &s->budget) ||
        !trace_count(r, object, "", "recent", false, 0, TRACE_MOST_COUNT, &s->recent)) {
        return false;
    }
    if (s->budget != TRACE_SAME) r->budget = s->budget;
    if (s->recent == TRACE_SAME || s->recent <= r->budget) return true;
    return trace_fail(r, CLI_INPUT, "\"recent\" is %" PRIu32 ", more than the budget %" PRIu32, s->recent, r->budget);
}

static bool read_counts(trace_reader *r, const json_t *object)
{
    trace_step *s = &r->step;
    uint64_t held;
    s->n_probe = s->spread = 0;
    if (!trace_count(r, object, "", "new", true, 0, TRACE_MOST_COUNT, &s->n_new) ||
        !trace_count(r, object, "", "probe", false, 1, TRACE_MOST_COUNT, &s->n_probe) ||
        !trace_count(r, object, "", "spread", false, 1, TRACE_MOST_COUNT, &s->spread)) {
        return false;
    }
    if (s->n_new == 0 && s->n_probe > 0) return trace_fail(r, CLI_INPUT, "\"probe\" needs new tokens");
    if (s->n_probe == 0 && s->spread > 0) return trace_fail(r, CLI_INPUT, "\"spread\" needs a probe");
    if (r->tokens + s->n_new + s->n_probe > INT32_MAX) {
        return trace_fail(r, CLI_INPUT, "more than %d tokens", INT32_MAX);
    }
    held = (uint64_t)r->live + s->n_new;
    s->columns = r->live + s->n_new + s->n_probe;
    s->n_kept = held < r->budget ? (uint32_t)held : r->budget;
    return true;
}

static bool read_lane(trace_reader *r, const json_t *list, uint32_t lane)
{
    trace_step *s = &r->step;
    double *out = s->mass + (size_t)lane * s->columns;
    char where[32];
    snprintf(where, sizeof where, "mass[%" PRIu32 "]", lane);
    if (!trace_is_list(r, list, s->columns, where)) return false;
    for (uint32_t c = 0; c < s->columns; c++) {
        const json_t *value = json_array_get(list, c);
        if (!json_is_number(value)) {
            return trace_fail(r, CLI_INPUT, "%s[%" PRIu32 "] has to be a number, not %s", where, c,
                              trace_type_name(value));
        }
        out[c] = json_number_value(value);
        if (out[c] < 0) return trace_fail(r, CLI_INPUT, "%s[%" PRIu32 "] is negative", where, c);
        if (!(out[c] <= 1e30)) return trace_fail(r, CLI_INPUT, "%s[%" PRIu32 "] is too large for a mass", where, c);
    }
    return true;
}

bool trace_read_mass_step(trace_reader *r, json_t *object)
{
    static const char *const keys[] = { "new", "probe", "budget", "spread", "recent", "mass", "kept", "scores",
                                        "meta" };
    const json_t *list = json_object_get(object, "mass");
    trace_step *s = &r->step;
    if (!trace_known_keys(r, object, keys, sizeof keys / sizeof keys[0]) || !read_changes(r, object) ||
        !read_counts(r, object)) {
        return false;
    }
    if (!list) return trace_fail(r, CLI_INPUT, "\"mass\" is missing");
    s->has_weights = !json_is_null(list);
    if (!s->has_weights) return true;
    if (s->n_new == 0) return trace_fail(r, CLI_INPUT, "\"mass\" has to be null where no token is new");
    /* The file has to hold as many columns as it says before memory is taken for them. */
    if (!trace_is_list(r, list, r->header.lanes, "mass") ||
        !trace_is_list(r, json_array_get(list, 0), s->columns, "mass[0]") ||
        !trace_grow(r, (void **)&s->mass, &r->mass_room, (size_t)r->header.lanes * s->columns, sizeof *s->mass)) {
        return false;
    }
    for (uint32_t lane = 0; lane < r->header.lanes; lane++) {
        if (!read_lane(r, json_array_get(list, lane), lane)) return false;
    }
    return true;
}
