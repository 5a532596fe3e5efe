/* window.c - rank by position: only the newest stay. "streaming" keeps the first tokens as well (Xiao et al.
 * 2023, "Efficient Streaming Language Models with Attention Sinks", section 3.2), at true positions. */
#include "policies.h"

static const double *rank_by_position(const h2okv_lane_view *lane, double *scratch)
{
    for (uint32_t i = 0; i < lane->cells; i++) {
        scratch[i] = lane->pos[i];
    }
    return scratch;
}

const h2okv_policy h2okv__policy_window = {
    .size = sizeof(h2okv_policy),
    .name = "window",
    .summary = "the newest tokens",
    .rank = rank_by_position,
};

const h2okv_policy h2okv__policy_streaming = {
    .size = sizeof(h2okv_policy),
    .name = "streaming",
    .summary = "the first 4 tokens and the newest: attention-sink streaming",
    .rank = rank_by_position,
    .sinks = 4,
};
