/* options.h - a caller's options, read, completed and checked. */
#ifndef H2OKV_BASE_OPTIONS_H
#define H2OKV_BASE_OPTIONS_H

#include "h2okv/advanced.h"

/* Copy `given` over the defaults, check every field, and resolve H2OKV_AUTO. The result has this library's
 * size and always a policy in custom_policy. */
int h2okv__options_read(h2okv_options *out, const h2okv_options *given, h2okv_error *error);

/* Copy a policy of any size that there was, newer fields 0, and check it. */
int h2okv__policy_read(h2okv_policy *out, const h2okv_policy *given, h2okv_error *error);

/* Do sinks, `recent` and so many pinned tokens that are no sinks fit into the budget? */
int h2okv__check_shares(const h2okv_options *o, uint32_t pinned, h2okv_error *error);

/* What H2OKV_AUTO for `recent` stands for. */
uint32_t h2okv__recent_of(const h2okv_policy *policy, uint32_t budget);

#endif
