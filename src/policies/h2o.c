/* h2o.c - rank by attention received so far: heavy hitters stay (Zhang et al. 2023, section 4). "h2o-paper" is the same
 * by a name that will not change its presets: half recent, half heavy, no sinks, no decay, no pooling. */
#include "policies.h"

const double *h2okv__rank_by_score(const h2okv_lane_view *lane, double *scratch)
{
    (void)scratch;
    return lane->score;
}

const h2okv_policy h2okv__policy_h2o = {
    .size = sizeof(h2okv_policy),
    .flags = H2OKV_POLICY_NEEDS_SCORES,
    .name = "h2o",
    .summary = "recent tokens and heavy hitters, the tokens with the most attention so far",
    .rank = h2okv__rank_by_score,
};

const h2okv_policy h2okv__policy_h2o_paper = {
    .size = sizeof(h2okv_policy),
    .flags = H2OKV_POLICY_NEEDS_SCORES,
    .name = "h2o-paper",
    .summary = "h2o exactly as published: half recent, no sinks, no decay, no pooling",
    .rank = h2okv__rank_by_score,
};
