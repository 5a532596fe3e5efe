/* trace_parts.h - what the parts of the reader of traces share: trace.c, trace_header.c and trace_mass.c. */
#ifndef H2OKV_CLI_TRACE_PARTS_H
#define H2OKV_CLI_TRACE_PARTS_H

#include "trace.h"

#include <jansson.h>

#define TRACE_MOST_COUNT (1u << 20) /* tokens in a budget or a step */

/* "FILE:LINE: message" into r->error; returns false. */
bool trace_fail(trace_reader *r, int exit_code, const char *format, ...) __attribute__((format(printf, 3, 4)));

const char *trace_type_name(const json_t *value); /* "a list" */

/* The next line as a JSON object, the caller's; NULL at the end of the file or on an error, told by r->exit_code. */
json_t *trace_read_line(trace_reader *r);

/* Every key of `object` is one of the n. */
bool trace_known_keys(trace_reader *r, json_t *object, const char *const *keys, size_t n);

/* `value` is a list of n entries; `where` is what an error calls it. */
bool trace_is_list(trace_reader *r, const json_t *value, size_t n, const char *where);

/* A whole number in [min, max]; where it is not required and not there, *out stays. `in` is "" or "header: ". */
bool trace_count(trace_reader *r, const json_t *object, const char *in, const char *key, bool required, uint32_t min,
                 uint32_t max, uint32_t *out);

/* Makes an array hold n elements. */
bool trace_grow(trace_reader *r, void **array, size_t *room, size_t n, size_t element);

bool trace_read_header(trace_reader *r);                 /* trace_header.c */
bool trace_read_mass_step(trace_reader *r, json_t *object); /* trace_mass.c: all but kept and scores */

#endif
