/* policies.h - the built-in policies, for the registry. */
#ifndef H2OKV_POLICIES_H
#define H2OKV_POLICIES_H

#include "h2okv/advanced.h"

extern const h2okv_policy h2okv__policy_h2o;
extern const h2okv_policy h2okv__policy_default;
extern const h2okv_policy h2okv__policy_h2o_paper;
extern const h2okv_policy h2okv__policy_snapkv;
extern const h2okv_policy h2okv__policy_tova;
extern const h2okv_policy h2okv__policy_lifetime;
extern const h2okv_policy h2okv__policy_streaming;
extern const h2okv_policy h2okv__policy_window;
extern const h2okv_policy h2okv__policy_random;
extern const h2okv_policy h2okv__policy_full;

/* The rank of h2o, for policies that differ in their presets. */
const double *h2okv__rank_by_score(const h2okv_lane_view *lane, double *scratch);

#endif
