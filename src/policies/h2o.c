/* h2o.c - rank by attention received so far: heavy hitters stay (Zhang et al. 2023, section 4). */
#include "policies.h"

static const double *rank_by_score(const h2okv_lane_view *lane, double *scratch)
{
    (void)scratch;
    return lane->score;
}

const h2okv_policy h2okv__policy_h2o = {
    .size = sizeof(h2okv_policy),
    .flags = H2OKV_POLICY_NEEDS_SCORES,
    .name = "h2o",
    .summary = "recent tokens and heavy hitters, the tokens with the most attention so far",
    .rank = rank_by_score,
};
