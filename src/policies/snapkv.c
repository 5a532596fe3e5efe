/* snapkv.c - rank by the attention of an observation window, pooled over neighbours (Li et al. 2024, "SnapKV", section
 * 4). The window is soft, so that text may come in any chunks: a query 32 tokens back counts 1/e as much as the
 * newest. */
#include "policies.h"

const h2okv_policy h2okv__policy_snapkv = {
    .size = sizeof(h2okv_policy),
    .flags = H2OKV_POLICY_NEEDS_SCORES,
    .name = "snapkv",
    .summary = "the tokens with the most attention from the last 32 or so, and their neighbours",
    .rank = h2okv__rank_by_score,
    .pool = 3,
    .decay = 0.96875,
};
