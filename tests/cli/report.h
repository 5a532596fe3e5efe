/* report.h - the JSON object that a command wrote, and its values; each fails the test when it is not so. */
#ifndef TEST_REPORT_H
#define TEST_REPORT_H

#include "program.h"

#include <jansson.h>

json_t *object_of(const program_result *r); /* standard output is this object and nothing else; to be freed */
json_int_t number(const json_t *j, const char *key);
double real(const json_t *j, const char *key);
const char *string(const json_t *j, const char *key);

#endif
