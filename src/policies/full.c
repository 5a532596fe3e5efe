/* full.c - keeps every token: a plain KV cache, which ends when its cells do. The measure for all others. */
#include "policies.h"

static const double *rank_all_alike(const h2okv_lane_view *lane, double *scratch)
{
    for (uint32_t i = 0; i < lane->cells; i++) {
        scratch[i] = 0.0;
    }
    return scratch;
}

const h2okv_policy h2okv__policy_full = {
    .size = sizeof(h2okv_policy),
    .flags = H2OKV_POLICY_KEEPS_ALL,
    .name = "full",
    .summary = "every token: a plain cache, for comparison",
    .rank = rank_all_alike,
};
