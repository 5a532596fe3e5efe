/* lifetime.c - rank by attention received for each token that could have given some: old tokens have no head start. */
#include "policies.h"

static const double *rank_by_mean(const h2okv_lane_view *lane, double *scratch)
{
    int32_t newest = lane->live > 0 ? lane->pos[lane->order[lane->live - 1]] : 0;
    for (uint32_t k = 0; k < lane->live; k++) {
        uint32_t cell = lane->order[k];
        scratch[cell] = lane->score[cell] / (newest - lane->pos[cell] + 1.0);
    }
    return scratch;
}

const h2okv_policy h2okv__policy_lifetime = {
    .size = sizeof(h2okv_policy),
    .flags = H2OKV_POLICY_NEEDS_SCORES,
    .name = "lifetime",
    .summary = "the tokens with the most attention per token since they came",
    .rank = rank_by_mean,
    .sinks = 4,
};
