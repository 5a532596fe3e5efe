/* options.h - a caller's options, read, completed and checked. */
#ifndef H2OKV_BASE_OPTIONS_H
#define H2OKV_BASE_OPTIONS_H

#include "h2okv/advanced.h"

/* Copy `given` over the defaults, check every field, and resolve H2OKV_AUTO. The result has this library's
 * size and always a policy in custom_policy. */
int h2okv__options_read(h2okv_options *out, const h2okv_options *given, h2okv_error *error);

#endif
