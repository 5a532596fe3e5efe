/*
 * test_events.c - commit tells of each token that goes, once: lane, cell, position and score as they were before,
 * and the number of the pass. A plan that is not committed tells nothing.
 */
#include "support/check.h"
#include "support/rig.h"

#include <string.h>

typedef struct heard {
    h2okv_event event[ENGINE_MAX_CELLS * RIG_LANES];
    uint32_t n;
} heard;

typedef struct books {
    int32_t pos[RIG_LANES][ENGINE_MAX_CELLS];
    double score[RIG_LANES][ENGINE_MAX_CELLS];
    uint32_t cell[RIG_LANES][ENGINE_MAX_CELLS];
    uint32_t n;
} books;

static void listen(void *user, const h2okv_event *event)
{
    heard *h = user;
    h->event[h->n++] = *event;
}

static void read_books(const rig *r, books *b)
{
    for (uint32_t l = 0; l < r->options.lanes; l++) {
        b->n = h2okv_cache_kept(r->cache, l, b->pos[l], b->score[l], b->cell[l]);
    }
}

/* How many events tell of this token in full. */
static uint32_t told(const heard *h, const books *b, uint32_t lane, uint32_t i, uint32_t kind, uint64_t pass)
{
    uint32_t times = 0;
    for (uint32_t k = 0; k < h->n; k++) {
        const h2okv_event *e = &h->event[k];
        if (e->lane == lane && e->pos == b->pos[lane][i]) {
            CHECK(e->kind == kind && e->cell == b->cell[lane][i] && e->pass == pass);
            CHECK(memcmp(&e->score, &b->score[lane][i], sizeof e->score) == 0);
            times++;
        }
    }
    return times;
}

static int still_there(const books *after, uint32_t lane, int32_t pos)
{
    for (uint32_t i = 0; i < after->n; i++) {
        if (after->pos[lane][i] == pos) {
            return 1;
        }
    }
    return 0;
}

static void check_told(const rig *r, const heard *h, const books *before, uint32_t kind)
{
    books after;
    uint32_t gone = 0;
    read_books(r, &after);
    for (uint32_t l = 0; l < r->options.lanes; l++) {
        for (uint32_t i = 0; i < before->n; i++) {
            uint32_t here = (uint32_t)still_there(&after, l, before->pos[l][i]);
            CHECK(told(h, before, l, i, kind, r->passes - 1) == 1 - here);
            gone += 1 - here;
        }
    }
    CHECK(h->n == gone);
}

static void test_each_token_is_told_once(void **state)
{
    static heard h;
    static books before;
    rig_options o = rig_defaults(11);
    (void)state;
    o.lanes = 4;
    o.on_event = listen;
    o.event_user = &h;
    rig *r = rig_create(&o);
    for (uint32_t i = 0; i < 60; i++) {
        const h2okv_plan *plan;
        int trim = i % 5 == 4;
        check_context("pass %u", i);
        rig_admit(r, 1 + i % 9);
        rig_observe_all(r);
        h.n = 0;
        CHECK_OK(h2okv_cache_plan(r->cache, &plan));
        read_books(r, &before);
        CHECK(h.n == 0);
        if (trim) {
            rig_trim(r, r->next_pos > 8 ? r->next_pos - 8 : 0);
        } else {
            rig_evict(r);
        }
        check_told(r, &h, &before, trim ? H2OKV_EVENT_TRIM : H2OKV_EVENT_EVICT);
        if (trim) {
            rig_evict(r);
        }
    }
    rig_free(r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_token_is_told_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
