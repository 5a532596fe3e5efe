/* report.h - what `h2okv run` says about a run: for people, as JSON, and the settings beforehand. */
#ifndef H2OKV_CLI_REPORT_H
#define H2OKV_CLI_REPORT_H

#include "generate.h"

void report_config(FILE *out, const run_options *o, const engine *e);
void report_text(FILE *out, const generation *g);
bool report_json(FILE *out, const generation *g); /* false: an error has been printed */

#endif
