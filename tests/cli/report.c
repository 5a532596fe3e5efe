/* report.c - see report.h. */
#include "program.h"
#include "report.h"

json_t *object_of(const program_result *r)
{
    json_error_t error;
    json_t *j = json_loads(r->out, 0, &error); /* it refuses invalid UTF-8 and anything behind the object */
    if (!j) fail_msg("%s in: %s%s", error.text, r->out, r->err);
    return j;
}

json_int_t number(const json_t *j, const char *key)
{
    if (!json_is_integer(json_object_get(j, key))) fail_msg("no whole number \"%s\"", key);
    return json_integer_value(json_object_get(j, key));
}

double real(const json_t *j, const char *key)
{
    if (!json_is_real(json_object_get(j, key))) fail_msg("no real number \"%s\"", key);
    return json_real_value(json_object_get(j, key));
}

const char *string(const json_t *j, const char *key)
{
    if (!json_is_string(json_object_get(j, key))) fail_msg("no string \"%s\"", key);
    return json_string_value(json_object_get(j, key));
}
