/* trace_rig.c - see trace_rig.h. */
#define _GNU_SOURCE 1 /* open_memstream */
#include "program.h"

#include "trace_rig.h"

#include "h2okv/advanced.h"

#include "support/check.h"
#include "support/rng.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *const rig_pieces[] = {
    "<script>alert(1)", "</script>", "<!--", "]]>", "&amp;", " \"quoted\"", " 'single'", "\n", "\n\n", "\t",
    "\xf0\x9f", "\x98\x80", "\xff", "\xc3", "A", "</style><img src=x onerror=alert(1)>", " %DATA%", "", "\\u003c", " word",
};
enum { N_PIECES = sizeof rig_pieces / sizeof rig_pieces[0] };
#define RIG_ROUND "<script>alert(1)</script><!--]]>&amp; \"quoted\" 'single'\n\n\n\t\xf0\x9f\x98\x80\xef\xbf\xbd" \
    "\xef\xbf\xbd" "A</style><img src=x onerror=alert(1)> %DATA%\\u003c word"
const char rig_text[] = RIG_ROUND RIG_ROUND "<script>alert(1)</script><!--]]>&amp; \"quoted\" 'single'\n\n\n\t"
    "\xf0\x9f\x98\x80\xef\xbf\xbd";

static void one_pass(trace_rig *rig, int32_t first, uint32_t n, rng *random)
{
    uint32_t cell[RIG_PASS], found = 0;
    int32_t pos[RIG_PASS];
    h2okv_lane_view view;
    const h2okv_plan *plan;
    CHECK_OK(h2okv_cache_lane(rig->cache, 0, &view));
    for (uint32_t c = 0; c < view.cells && found < n; c++) {
        if (view.pos[c] >= 0) continue;
        pos[found] = first + (int32_t)found;
        cell[found++] = c;
    }
    CHECK_OK(h2okv_cache_admit(rig->cache, cell, pos, n));
    for (uint32_t lane = 0; lane < RIG_LANES; lane++) {
        float mass[RIG_BUDGET + RIG_PASS];
        for (uint32_t c = 0; c < view.cells; c++) mass[c] = rng_float(random);
        CHECK_OK(h2okv_cache_observe_mass(rig->cache, lane, mass));
    }
    CHECK_OK(h2okv_cache_plan(rig->cache, &plan));
    CHECK_OK(h2okv_cache_commit(rig->cache, plan));
    recording_pass(&rig->record, rig->cache, (uint32_t)first + n);
}

static void write_page(trace_rig *rig, const char *text_file)
{
    static const int32_t pin[1][2] = { { 5, 6 } };
    uint32_t length[RIG_TOKENS];
    char bytes[4096];
    size_t n = 0;
    size_t size;
    FILE *file = open_memstream(&rig->page, &size);
    trace_about about = { .model = "model <b>&", .text_file = text_file, .policy = "h2o", .layers = RIG_LAYERS,
                          .heads = RIG_HEADS, .cells = RIG_BUDGET + RIG_PASS, .sinks = RIG_SINKS, .decay = 1,
                          .pin = pin, .n_pins = 1, .bytes = bytes, .length = length };
    for (uint32_t i = 0; i < RIG_TOKENS; i++) {
        const char *piece = rig_pieces[i % N_PIECES];
        length[i] = (uint32_t)strlen(piece);
        memcpy(bytes + n, piece, length[i]);
        n += length[i];
    }
    assert_non_null(file);
    assert_true(trace_page_write(file, &rig->record, &about));
    assert_int_equal(fclose(file), 0);
}

void trace_rig_make(trace_rig *rig, const char *text_file)
{
    rng random = { 7 };
    h2okv_options o;
    *rig = (trace_rig){ 0 };
    h2okv_options_init(&o);
    o.lanes = RIG_LANES;
    o.budget = RIG_BUDGET;
    o.recent = RIG_RECENT;
    o.sinks = RIG_SINKS;
    o.cells = RIG_BUDGET + RIG_PASS;
    o.on_event = recording_event;
    o.event_user = &rig->record;
    CHECK_OK(h2okv_cache_create(&rig->cache, &o, NULL));
    CHECK_OK(h2okv_cache_pin(rig->cache, 5, 6, NULL));
    assert_true(recording_start(&rig->record, RIG_LANES, RIG_PROMPT, RIG_NEW, RIG_BUDGET));
    for (int32_t at = 0; at < RIG_PROMPT; at += RIG_PASS) one_pass(rig, at, RIG_PASS, &random);
    for (int32_t at = RIG_PROMPT; at < RIG_TOKENS; at++) one_pass(rig, at, 1, &random);
    recording_end(&rig->record, rig->cache);
    assert_false(rig->record.failed);
    for (uint32_t lane = 0; lane < RIG_LANES; lane++) {
        assert_int_equal(h2okv_cache_kept(rig->cache, lane, rig->kept[lane], rig->score[lane], NULL), RIG_BUDGET);
    }
    write_page(rig, text_file);
}

void trace_rig_save(const trace_rig *rig, const char *path)
{
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(rig->page, file);
    assert_int_equal(fclose(file), 0);
}

void trace_rig_free(trace_rig *rig)
{
    h2okv_cache_free(rig->cache);
    recording_free(&rig->record);
    free(rig->page);
}
