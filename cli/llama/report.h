/* report.h - what `h2okv run` says about a run: for people, as JSON, and the settings beforehand. `h2okv chat` shares
 * what is said about the cache. */
#ifndef H2OKV_CLI_REPORT_H
#define H2OKV_CLI_REPORT_H

#include "generate.h"

#include <jansson.h>

void report_config(FILE *out, const run_options *o, const engine *e);
void report_text(FILE *out, const generation *g);
bool report_json(FILE *out, const generation *g); /* false: an error has been printed */

/* The cache and the process after `positions` tokens: the last lines of the text, and keys of the object. */
void report_policy(FILE *out, const run_options *o, const engine *e);
void report_cache(FILE *out, const engine *e, uint64_t positions);
bool report_set_cache(json_t *object, const run_options *o, const engine *e, uint64_t positions);
bool report_set(json_t *object, const char *key, json_t *value); /* takes the value over */
char *report_speed(char *out, double speed); /* tokens a second; at least 32 bytes */

#endif
