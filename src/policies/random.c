/* random.c - rank by a number drawn once for each token: what stays is a uniform sample of the past, the same for
 * the same seed however the text is split into passes. A yardstick: a policy should beat it. */
#include "policies.h"

/* The finaliser of SplitMix64 (Steele, Lea, Flood 2014, "Fast Splittable Pseudorandom Number Generators"). */
static uint64_t mix(uint64_t z)
{
    z += 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

static const double *rank_by_draw(const h2okv_lane_view *lane, double *scratch)
{
    uint64_t stream = mix(lane->seed ^ mix(lane->lane));
    for (uint32_t k = 0; k < lane->live; k++) {
        uint32_t cell = lane->order[k];
        scratch[cell] = (double)(mix(stream ^ (uint64_t)(uint32_t)lane->pos[cell]) >> 11);
    }
    return scratch;
}

const h2okv_policy h2okv__policy_random = {
    .size = sizeof(h2okv_policy),
    .name = "random",
    .summary = "recent tokens and a uniform sample of the others, drawn from a seed; a yardstick",
    .rank = rank_by_draw,
};
