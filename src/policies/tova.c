/* tova.c - rank by the newest token's attention alone (Oren et al. 2024, "Transformers are Multi-State RNNs", section
 * 3.2; there the heads of a layer choose together). A decay this steep leaves nothing of older queries. */
#include "policies.h"

const h2okv_policy h2okv__policy_tova = {
    .size = sizeof(h2okv_policy),
    .flags = H2OKV_POLICY_NEEDS_SCORES,
    .name = "tova",
    .summary = "the tokens with the most attention from the newest one",
    .rank = h2okv__rank_by_score,
    .decay = 1e-300,
};
