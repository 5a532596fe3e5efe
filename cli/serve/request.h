/*
 * request.h - what request.c and the files with its fields share.
 *
 *   body -> depth, jansson -> object -> each key: its row of api_fields -> serve_request -> checks of all together
 *
 * A null is the same as nothing. A name without a row is refused, and so is a value that would do nothing: what a
 * client asks for is done or refused, never ignored.
 */
#ifndef H2OKV_CLI_SERVE_REQUEST_H
#define H2OKV_CLI_SERVE_REQUEST_H

#include "api.h"

#include <jansson.h>

enum { FOR_CHAT = 1 << SERVE_CHAT, FOR_COMPLETION = 1 << SERVE_COMPLETION, FOR_BOTH = FOR_CHAT | FOR_COMPLETION };

typedef struct reader {
    serve_request *r;
    const api_rules *rules;
    api_error *error;
    const char *name; /* of the field at hand */
    bool wants_logprobs, has_top, has_max, has_stream_options;
} reader;

typedef struct field {
    const char *name;
    unsigned kinds; /* FOR_* */
    bool (*take)(reader *d, const json_t *value);
} field;

extern const field api_fields[]; /* ends with a NULL name */

/* Always false: the field's value is not what it should be. */
bool api_bad(reader *d, const char *should_be);
bool api_no_memory(reader *d);

bool api_take_uint(reader *d, const json_t *value, uint32_t min, uint32_t max, uint32_t *out);
bool api_take_real(reader *d, const json_t *value, double min, double max, double *out);
bool api_take_bool(reader *d, const json_t *value, bool *out);
bool api_take_text(reader *d, const json_t *value, char **out, size_t *bytes); /* bytes may be NULL */

/* messages.c */
bool api_take_messages(reader *d, const json_t *value);
bool api_take_prompt(reader *d, const json_t *value);

/* grammar.c */
extern const char api_json_grammar[]; /* GBNF of one JSON object */

#endif
