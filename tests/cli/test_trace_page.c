/*
 * test_trace_page.c - the page of `h2okv trace` in headless Chromium, at two widths and in both colour schemes: it
 * draws, a layer and a head are chosen, tokens and moments too, and it complains of nothing. A page without a model,
 * whose tokens are hostile, and one of the real model.
 */
#include "browser.h"
#include "trace_rig.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static browser *b;
static trace_rig rig;
static char model_page[80], rig_page[80]; /* a browser goes by the end of a name */

static const char *text =
    "The whale swam north past the ice. A ship followed it for nine days, and the crew kept watch by night.\n\n"
    "On the tenth day the wind fell. \xf0\x9f\x90\xb3 <b>Nobody</b> &amp; nothing moved; the sea lay flat as glass, and the "
    "captain wrote in his book that he had never seen it so still. He wrote of the cold, of the bread that was left, and "
    "of the oil that they had not yet found.\n\nWhat did the captain write of?";

static int start(void **state)
{
    (void)state;
    trace_rig_make(&rig, "rig");
    b = browser_open();
    snprintf(rig_page, sizeof rig_page, "%s.html", program_file(NULL, 0));
    trace_rig_save(&rig, rig_page);
    snprintf(model_page, sizeof model_page, "%s.html", program_file(NULL, 0));
    program_result r = program_run("trace", "-m", H2OKV_TEST_MODEL, "-t", "1", "-p", text, "--budget", "32", "--ubatch",
                                   "16", "--guide", "off", "-n", "8", "--ignore-eos", "-o", model_page);
    if (r.code) fail_msg("%s", r.err);
    assert_contains(r.err, " tokens, 90 lanes, ");
    assert_string_equal(r.out, "");
    program_free(&r);
    return 0;
}

static int end(void **state)
{
    (void)state;
    browser_close(b);
    unlink(model_page);
    unlink(rig_page);
    trace_rig_free(&rig);
    program_clean();
    return 0;
}

#define TOKENS "[...document.querySelectorAll('#text span')]"

/* Different colours among a canvas's pixels. */
static long colours(const char *id)
{
    char script[512];
    snprintf(script, sizeof script, "(() => { const c = document.getElementById('%s'), seen = new Set();"
             " const g = new OffscreenCanvas(c.width, c.height).getContext('2d', { willReadFrequently: true });"
             " g.drawImage(c, 0, 0);"
             " new Uint32Array(g.getImageData(0, 0, c.width, c.height).data.buffer).forEach(v => seen.add(v));"
             " return c.width > 100 && c.height > 20 ? seen.size : 0; })()", id);
    return browser_number(b, script);
}

static long count_class(const char *name)
{
    char script[128];
    snprintf(script, sizeof script, TOKENS ".filter(s => s.classList.contains('%s')).length", name);
    return browser_number(b, script);
}

static void choose(const char *id, int value)
{
    char script[256];
    snprintf(script, sizeof script, "(() => { const s = document.getElementById('%s'); s.value = %d;"
             " s.dispatchEvent(new Event(s.type === 'range' ? 'input' : 'change')); return s.value; })()", id, value);
    json_decref(browser_eval(b, script));
}

/* ---- The page of the rig ------------------------------------------------------------------------------ */

/* A lane's tokens have the classes that the cache's books give them. */
static void lane_is_coloured(int lane)
{
    char want[RIG_TOKENS + 1], got[RIG_TOKENS + 1];
    json_t *list = browser_eval(b, TOKENS ".map(s => s.classList.contains('recent') ? 'r' : s.classList.contains('sink')"
                                   " ? 's' : s.classList.contains('heavy') ? 'h' : s.classList.contains('gone') ? '.'"
                                   " : '?').join('')");
    memset(want, '.', RIG_TOKENS);
    want[RIG_TOKENS] = '\0';
    for (int k = 0; k < RIG_BUDGET; k++) {
        int pos = rig.kept[lane][k];
        want[pos] = pos < RIG_SINKS || pos == 5 ? 's' : pos >= RIG_TOKENS - RIG_RECENT ? 'r' : 'h';
    }
    snprintf(got, sizeof got, "%s", json_string_value(list));
    assert_string_equal(got, want);
    json_decref(list);
}

/* The last row of the heat map: for each token whether no lane, some lanes or all lanes hold it at the end. */
static void heat_map_is_right(void)
{
    char want[RIG_TOKENS + 1] = "";
    int held[RIG_TOKENS] = { 0 };
    for (int k = 0; k < RIG_LANES * RIG_BUDGET; k++) held[rig.kept[k / RIG_BUDGET][k % RIG_BUDGET]]++;
    for (int i = 0; i < RIG_TOKENS; i++) want[i] = held[i] == 0 ? '.' : held[i] == RIG_LANES ? '*' : 'x';
    browser_expect(b, "(() => { const c = document.getElementById('heat'), left = 52;"
                   " const g = new OffscreenCanvas(c.width, c.height).getContext('2d', { willReadFrequently: true });"
                   " g.drawImage(c, 0, 0); let out = '';"
                   " for (let i = 0; i < 53; i++) { const x = left + (i + 0.5) * (c.width - left) / 53;"
                   " const p = g.getImageData(x, c.height - 8, 1, 1).data.slice(0, 3).join();"
                   " out += p === '222,225,230' ? '.' : p === '61,12,6' ? '*' : 'x'; } return out; })()", want);
}

static void each_lane_of_the_rig(void **state)
{
    (void)state;
    browser_show(b, rig_page, 1400, false);
    browser_expect(b, "document.getElementById('text').textContent", rig_text);
    assert_int_equal(browser_number(b, "document.querySelectorAll('#text b, #text img, #text script').length"), 0);
    heat_map_is_right();
    for (int lane = 0; lane < RIG_LANES; lane++) {
        choose("layer", lane / RIG_HEADS);
        choose("head", lane % RIG_HEADS);
        lane_is_coloured(lane);
    }
    assert_string_equal(browser_said(b), "");
}

static void a_moment_of_the_rig(void **state)
{
    (void)state;
    browser_show(b, rig_page, 1400, true);
    choose("time", 0); /* the first pass: 8 tokens, all still there */
    assert_int_equal(count_class("later"), RIG_TOKENS - 8);
    assert_int_equal(count_class("gone"), 0);
    assert_int_equal(count_class("sink"), 3);
    assert_int_equal(count_class("recent"), 3); /* 4, 6 and 7; 5 is pinned */
    assert_int_equal(count_class("s10"), 2);    /* in all lanes */
    browser_expect(b, "document.getElementById('time-now').textContent", "8 of 53 tokens");
    assert_string_equal(browser_said(b), "");
}

/* ---- The page of the model ---------------------------------------------------------------------------- */

static void draws(int width, bool dark)
{
    browser_show(b, model_page, width, dark);
    assert_int_equal(browser_number(b, "document.documentElement.scrollWidth - document.documentElement.clientWidth"), 0);
    assert_int_equal(count_class("recent"), 16);
    assert_true(count_class("share") > 20);
    assert_int_equal(count_class("wrote"), 7); /* the last of 8 is chosen and not read again */
    assert_in_range(colours("heat"), 8, 4000);
    assert_in_range(colours("overlap"), 8, 4000);
    browser_expect(b, "getComputedStyle(document.body).backgroundColor", dark ? "rgb(21, 23, 27)" : "rgb(250, 249, 246)");
    assert_contains(text, "\xf0\x9f\x90\xb3 <b>Nobody</b> &amp;");
    browser_expect(b, "document.getElementById('text').textContent.slice(0, 20)", "The whale swam north");
    assert_int_equal(browser_number(b, "document.getElementById('text').textContent.includes('\xf0\x9f\x90\xb3 "
                                       "<b>Nobody</b> &amp; nothing') ? 1 : 0"), 1);
    choose("layer", 7);
    choose("head", 2);
    assert_int_equal(count_class("recent") + count_class("heavy") + count_class("sink"), 32);
    assert_int_equal(count_class("gone"), browser_number(b, TOKENS ".length") - 32);
    assert_in_range(colours("heat"), 8, 4000);
    browser_expect(b, "document.getElementById('heat-title').textContent", "Scores over time");
    assert_int_equal(browser_number(b, "performance.getEntriesByType('resource').length"), 0);
    assert_string_equal(browser_said(b), "");
}

static void at_each_width_and_scheme(void **state)
{
    (void)state;
    draws(1400, false);
    draws(1400, true);
    draws(400, false);
    draws(400, true);
}

static void by_keyboard(void **state)
{
    (void)state;
    browser_show(b, model_page, 1400, false);
    json_decref(browser_eval(b, "document.getElementById('text').focus()"));
    for (int i = 0; i < 4; i++) browser_key(b, "ArrowRight");
    browser_expect(b, "document.getElementById('token-title').textContent", "Token at position 3");
    browser_expect(b, "document.getElementById('token-text').textContent", "\xe2\x90\xa3north");
    browser_key(b, "Enter");
    browser_expect(b, "document.getElementById('token-title').textContent", "Token at position 3 (held; Esc lets go)");
    browser_key(b, "Escape");
    browser_key(b, "ArrowDown");
    assert_true(browser_number(b, "document.querySelector('#text .here').token") > 10);
    browser_key(b, "End");
    browser_key(b, "ArrowLeft");
    assert_int_equal(browser_number(b, "document.querySelector('#text .here').token"),
                     browser_number(b, "document.querySelectorAll('#text span').length - 2"));
    json_decref(browser_eval(b, "document.getElementById('heat').focus()"));
    browser_key(b, "ArrowUp");
    assert_true(browser_number(b, "document.getElementById('time').value - document.getElementById('time').max") < 0);
    assert_string_equal(browser_said(b), "");
}

static void by_mouse(void **state)
{
    (void)state;
    browser_show(b, model_page, 1400, false);
    browser_click(b, "#overlap", 0.5, 15.5 / 30); /* layers down: the sixteenth */
    browser_expect(b, "document.getElementById('layer').value", "15");
    browser_click(b, "#heat", 0.15, 0.5);
    assert_true(browser_number(b, "document.getElementById('time').value * 1") <
                browser_number(b, "document.getElementById('time').max * 1"));
    assert_int_equal(browser_number(b, "document.querySelectorAll('#text .held').length"), 1);
    assert_int_equal(browser_number(b, "document.getElementById('token-body').hidden ? 1 : 0"), 0);
    browser_click(b, "#text span:nth-child(5)", 0.5, 0.5);
    browser_expect(b, "document.getElementById('token-title').textContent", "Token at position 4 (held; Esc lets go)");
    browser_click(b, "#play", 0.5, 0.5);
    browser_expect(b, "document.getElementById('play').textContent", "Pause");
    browser_click(b, "#play", 0.5, 0.5);
    assert_string_equal(browser_said(b), "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_lane_of_the_rig), cmocka_unit_test(a_moment_of_the_rig),
        cmocka_unit_test(at_each_width_and_scheme), cmocka_unit_test(by_keyboard), cmocka_unit_test(by_mouse),
    };
    return cmocka_run_group_tests(tests, start, end);
}
