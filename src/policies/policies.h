/* policies.h - the built-in policies, for the registry. */
#ifndef H2OKV_POLICIES_H
#define H2OKV_POLICIES_H

#include "h2okv/advanced.h"

extern const h2okv_policy h2okv__policy_h2o;
extern const h2okv_policy h2okv__policy_window;
extern const h2okv_policy h2okv__policy_random;
extern const h2okv_policy h2okv__policy_full;

#endif
