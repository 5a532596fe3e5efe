/* default.c - h2o as measured best on perplexity and recall together: docs/quality.md tells how its presets were
 * found. */
#include "policies.h"

const h2okv_policy h2okv__policy_default = {
    .size = sizeof(h2okv_policy),
    .flags = H2OKV_POLICY_NEEDS_SCORES,
    .name = "default",
    .summary = "h2o with sinks and a slow decay: what we recommend",
    .rank = h2okv__rank_by_score,
    .sinks = 4,
    .decay = 0.9968,
};
