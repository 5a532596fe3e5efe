/* trace_run.h - the options of `h2okv trace`. */
#ifndef H2OKV_CLI_TRACE_RUN_H
#define H2OKV_CLI_TRACE_RUN_H

#include "run.h"

typedef struct trace_options {
    run_options run;
    const char *output;
} trace_options;

#ifdef H2OKV_HAVE_LLAMA
int trace_model(const trace_options *o, const cli_buffer *prompt); /* llama/trace.c; returns the exit code */
#endif

#endif
