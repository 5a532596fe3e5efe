/* window.c - rank by position: only the newest stay. With sinks it is attention-sink streaming (Xiao et al. 2023,
 * "Efficient Streaming Language Models with Attention Sinks", section 3.2), at true positions. */
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
    .summary = "the newest tokens; with sinks, attention-sink streaming",
    .rank = rank_by_position,
};
