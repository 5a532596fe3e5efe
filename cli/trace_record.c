/* trace_record.c - see trace_record.h. All arrays that grow with the text are allocated at the start; moments as they
 * come, since how many tokens lanes will hold is not known before. */
#include "trace_record.h"

#include "h2okv/advanced.h"

#include <stdlib.h>

/* Scores in a page: so many that it stays a file of a few MB, but never so few that time is not seen to go by. */
enum { MOST_SCORES = 2000000, LEAST_MOMENTS = 24, MOST_MOMENTS = 64 };

static uint32_t between(uint64_t low, uint64_t value, uint64_t high)
{
    return (uint32_t)(value < low ? low : value > high ? high : value);
}

/* Tokens between moments when n tokens get m of them. */
static uint32_t step_for(uint32_t n, uint32_t m)
{
    return m > 0 && n > m ? (n + m - 1) / m : 1;
}

bool recording_start(recording *r, uint32_t lanes, uint32_t n_prompt, uint32_t n_new, uint32_t budget)
{
    size_t places = (size_t)lanes * ((size_t)n_prompt + n_new);
    uint32_t held = n_prompt + n_new < budget ? n_prompt + n_new : budget, of_new;
    *r = (recording){ .lanes = lanes, .n_prompt = n_prompt, .most_tokens = n_prompt + n_new };
    r->most_moments = between(LEAST_MOMENTS, MOST_SCORES / ((uint64_t)lanes * held + 1), MOST_MOMENTS);
    of_new = between(0, n_new, r->most_moments / 4);
    r->prompt_step = step_for(n_prompt, r->most_moments - of_new - 3); /* 3: the ends, and changes of the budget */
    r->new_step = step_for(n_new, of_new);
    r->gone = malloc(places * sizeof *r->gone);
    r->last = calloc(places, sizeof *r->last);
    r->moment = calloc(r->most_moments, sizeof *r->moment);
    if (!r->gone || !r->last || !r->moment) return false;
    for (size_t i = 0; i < places; i++) r->gone[i] = TRACE_STAYS;
    return true;
}

void recording_free(recording *r)
{
    for (uint32_t i = 0; i < r->n_moments; i++) free(r->moment[i].score);
    free(r->moment);
    free(r->pass);
    free(r->last);
    free(r->gone);
    *r = (recording){ 0 };
}

/* Trims are of probes, which are no text. */
void recording_event(void *user, const h2okv_event *event)
{
    recording *r = user;
    size_t at = (size_t)event->lane * r->most_tokens + (size_t)event->pos;
    if (event->kind != H2OKV_EVENT_EVICT || event->pos < 0 || (uint32_t)event->pos >= r->most_tokens) return;
    r->gone[at] = (uint16_t)r->n_passes;
    r->last[at] = (float)event->score;
}

/* ---- Moments ------------------------------------------------------------------------------------------ */

static float *copy_scores(const recording *r, const h2okv_cache *cache, uint32_t live)
{
    float *out = malloc(((size_t)r->lanes * live + 1) * sizeof *out), *at = out;
    for (uint32_t lane = 0; out && lane < r->lanes; lane++) {
        h2okv_lane_view view;
        if (h2okv_cache_lane(cache, lane, &view)) continue;
        for (uint32_t k = 0; k < live; k++) *at++ = (float)view.score[view.order[k]];
    }
    return out;
}

/* The last pass becomes a moment; it takes the place of an earlier one with as many tokens read. */
static void add_moment(recording *r, const h2okv_cache *cache)
{
    const trace_pass *now = &r->pass[r->n_passes - 1];
    trace_moment *last = r->n_moments > 0 ? &r->moment[r->n_moments - 1] : NULL;
    float *score = copy_scores(r, cache, now->live);
    bool replace = last && (r->pass[last->pass].seen == now->seen || r->n_moments == r->most_moments);
    if (!score) {
        r->failed = true;
        return;
    }
    if (replace) free(last->score);
    r->moment[replace ? r->n_moments - 1 : r->n_moments++] = (trace_moment){ r->n_passes - 1, score };
}

/* The end always has its moment, so all but one may be used before. */
static bool is_due(const recording *r)
{
    uint32_t seen = r->pass[r->n_passes - 1].seen;
    uint32_t before = r->n_moments > 0 ? r->pass[r->moment[r->n_moments - 1].pass].seen : 0;
    if (seen == r->n_prompt || r->n_moments == 0 || before == seen) return true;
    if (r->n_moments + 1 >= r->most_moments) return false;
    return seen - before >= (seen <= r->n_prompt ? r->prompt_step : r->new_step);
}

/* ---- Passes ------------------------------------------------------------------------------------------- */

static bool room_for_pass(recording *r)
{
    uint32_t room = r->pass_room > 0 ? 2 * r->pass_room : 64;
    trace_pass *more;
    if (r->n_passes < r->pass_room) return true;
    more = realloc(r->pass, room * sizeof *more);
    if (!more) return false;
    r->pass = more;
    r->pass_room = room;
    return true;
}

void recording_pass(recording *r, const h2okv_cache *cache, uint32_t seen)
{
    h2okv_options now;
    h2okv_cache_get_options(cache, &now);
    if (r->failed || seen > r->most_tokens || r->n_passes >= TRACE_STAYS || !room_for_pass(r)) {
        r->failed = true;
        return;
    }
    r->pass[r->n_passes++] = (trace_pass){ seen, h2okv_cache_live(cache), now.budget, now.recent };
    if (is_due(r)) add_moment(r, cache);
}

void recording_end(recording *r, const h2okv_cache *cache)
{
    if (r->failed || r->n_passes == 0 || r->moment[r->n_moments - 1].pass == r->n_passes - 1) return;
    add_moment(r, cache);
}
