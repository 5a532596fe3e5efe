/*
 * test_page.c - the page of `h2okv serve` in headless Chromium, at a desk's and a phone's width and in both colour schemes,
 * against a scripted engine: it talks, stops, tells what went wrong and shows the cache, by mouse and by keyboard, and
 * the console has nothing to say.
 */
#include "cli/browser.h"
#include "cli/serve/http_rig.h"

#include <stdio.h>
#include <string.h>

static browser *b;

static int start(void **state)
{
    (void)state;
    b = browser_open();
    return 0;
}

static int end(void **state)
{
    (void)state;
    browser_close(b);
    return 0;
}

static void visit(http_rig *r, int width, bool dark)
{
    char url[64];
    snprintf(url, sizeof url, "http://127.0.0.1:%u/", rig_port(r));
    browser_visit(b, url, width, dark);
}

static void type(const char *message)
{
    char script[512];
    snprintf(script, sizeof script, "document.getElementById('say').value = '%s', document.getElementById('say').focus()",
             message);
    json_decref(browser_eval(b, script));
}

static void press(const char *where, const char *key, bool shift)
{
    char script[512];
    snprintf(script, sizeof script, "!document.querySelector('%s').dispatchEvent(new KeyboardEvent('keydown', "
             "{ key: '%s', shiftKey: %s, bubbles: true, cancelable: true }))", where, key, shift ? "true" : "false");
    json_decref(browser_eval(b, script));
}

#define TEXT(selector) "(document.querySelector('" selector "')?.textContent ?? 'nothing')"
#define LAST "article:last-of-type"

/* ---- Talk --------------------------------------------------------------------------------------------- */

static void talks(int width, bool dark)
{
    http_rig *r = rig_start((rig_setup){ 0 });
    visit(r, width, dark);
    browser_expect(b, TEXT("#model"), "small");
    assert_int_equal(browser_number(b, "document.documentElement.scrollWidth"), width);
    type("words 3");
    press("#say", "Enter", false);
    browser_wait(b, "document.getElementById('stop').disabled && document.querySelectorAll('article').length === 2");
    browser_expect(b, TEXT("article.user"), "words 3");
    browser_expect(b, TEXT("article.assistant"), "w0 w1 w2 ");
    browser_expect(b, "document.getElementById('say').value", "");
    browser_expect(b, TEXT("#usage"), "3 read, 3 written");
    browser_click(b, "#again", .5, .5);
    browser_wait(b, "document.getElementById('stop').disabled && document.querySelectorAll('article').length === 2");
    type("words 1");
    browser_click(b, "#send", .5, .5);
    browser_wait(b, "document.getElementById('stop').disabled && document.querySelectorAll('article').length === 4");
    browser_expect(b, TEXT(LAST), "w0 ");
    browser_click(b, "#new", .5, .5);
    assert_int_equal(browser_number(b, "document.querySelectorAll('article').length"), 0);
    assert_int_equal(rig_look(r).taken, 3);
    rig_stop(r);
}

static void at_each_width_and_scheme(void **state)
{
    (void)state;
    talks(1280, false);
    talks(390, true);
    assert_string_equal(browser_said(b), "");
}

static void a_new_line_is_not_sent(void **state)
{
    http_rig *r = rig_start((rig_setup){ 0 });
    (void)state;
    visit(r, 1280, false);
    type("words 3");
    press("#say", "Enter", true);
    type("");
    press("#say", "Enter", false); /* nothing to say */
    assert_int_equal(rig_look(r).taken, 0);
    rig_stop(r);
}

static void an_answer_is_stopped(void **state)
{
    static const char *const how[] = { "button", "key" };
    http_rig *r = rig_start((rig_setup){ 0 });
    (void)state;
    for (unsigned i = 0; i < 2; i++) {
        visit(r, 1280, false);
        type("words 100000 30");
        press("#say", "Enter", false);
        browser_wait(b, TEXT("article.assistant") ".startsWith('w0 w1 ')");
        browser_expect(b, "document.getElementById('log').getAttribute('aria-busy')", "true");
        if (strcmp(how[i], "key") == 0) press("body", "Escape", false);
        else browser_click(b, "#stop", .5, .5);
        browser_wait(b, "document.getElementById('stop').disabled");
        rig_wait_for_left(r, i + 1);
        browser_expect(b, "String(document.getElementById('trouble').hidden)", "true");
        browser_expect(b, "String(" TEXT("article.assistant") ".startsWith('w0 w1 '))", "true"); /* what there was stays */
    }
    assert_string_equal(browser_said(b), ""); /* before the end, which cuts off what the page asks for meanwhile */
    rig_stop(r);
}

static void what_people_and_models_say_is_text(void **state)
{
    http_rig *r = rig_start((rig_setup){ 0 });
    (void)state;
    visit(r, 1280, false);
    type("words 1 <img src=x onerror=alert(1)>");
    press("#say", "Enter", false);
    browser_wait(b, "document.getElementById('stop').disabled && document.querySelectorAll('article').length === 2");
    browser_expect(b, TEXT("article.user"), "words 1 <img src=x onerror=alert(1)>");
    browser_wait(b, "document.querySelectorAll('#tokens span').length === 5");
    assert_int_equal(browser_number(b, "document.querySelectorAll('img, #tokens b').length"), 0);
    assert_string_equal(browser_said(b), "");
    rig_stop(r);
}

/* ---- What goes wrong ---------------------------------------------------------------------------------- */

static void what_goes_wrong_is_told(void **state)
{
    http_rig *r = rig_start((rig_setup){ 0 });
    (void)state;
    visit(r, 1280, false);
    type("late 500"); /* in the middle of an answer */
    press("#say", "Enter", false);
    browser_wait(b, "!document.getElementById('trouble').hidden");
    browser_expect(b, TEXT("#trouble"), "the script says so");
    browser_expect(b, TEXT("article.assistant"), "w0 ");
    type("words 1"); /* and it goes on */
    press("#say", "Enter", false);
    browser_wait(b, "document.getElementById('trouble').hidden && document.getElementById('stop').disabled");
    assert_string_equal(browser_said(b), "");
    rig_stop(r);
}

/* The console tells of each answer 401, so it is not looked at afterwards: this is the last test. */
static void a_key_is_asked_for(void **state)
{
    http_rig *r = rig_start((rig_setup){ .key = "sesame" });
    (void)state;
    visit(r, 390, false);
    browser_expect(b, "String(document.getElementById('locked').hidden)", "false");
    browser_expect(b, "document.activeElement.id", "key");
    json_decref(browser_eval(b, "document.getElementById('key').value = 'sesame', "
                                "document.getElementById('key').dispatchEvent(new Event('change')), 1"));
    browser_wait(b, TEXT("#model") " === 'small'");
    type("words 2");
    press("#say", "Enter", false);
    browser_wait(b, TEXT("article.assistant") " === 'w0 w1 '");
    rig_stop(r);
}

/* ---- The cache ---------------------------------------------------------------------------------------- */

static void the_cache_is_shown(void **state)
{
    http_rig *r = rig_start((rig_setup){ 0 });
    (void)state;
    visit(r, 1280, false);
    browser_expect(b, TEXT("#gauge"), "nothing in it yet");
    type("words 1");
    press("#say", "Enter", false);
    browser_wait(b, "document.querySelectorAll('#tokens span').length === 5");
    browser_expect(b, "[...document.querySelectorAll('#tokens span')].map(e => e.className).join()",
                   "sink,pinned,heavy s5,gone,recent");
    browser_expect(b, TEXT("#tokens"), "word<b>\xe2\x86\xb5\n\xc2\xb7" "last");
    browser_expect(b, TEXT("#gauge"), "4 of 8 cells \xc2\xb7 5 tokens so far \xc2\xb7 12.5 tokens a second");
    browser_expect(b, "document.getElementById('fill').style.width", "50%");
    browser_click(b, "#tokens span", .5, .5);
    browser_expect(b, TEXT("#detail"), "Token 0, \"word\": a sink, always kept, in 100 % of the heads; score 0.500 of the "
                   "largest");
    press("#tokens", "ArrowRight", false);
    press("#tokens", "ArrowRight", false);
    browser_expect(b, TEXT("#tokens .here"), "\xe2\x86\xb5\n");
    press("#tokens", "End", false);
    browser_expect(b, TEXT("#tokens .here"), "last");
    browser_click(b, "#new", .5, .5);
    browser_expect(b, TEXT("#tokens"), "");
    assert_string_equal(browser_said(b), "");
    rig_stop(r);
}

/* Thousands of tokens: once drawn, what did not change is not touched. */
static void only_what_changes_is_drawn(void **state)
{
    http_rig *r = rig_start((rig_setup){ 0 });
    long changes;
    (void)state;
    visit(r, 1280, false);
    changes = browser_number(b,
        "(() => { const n = 8000, v = { text: Array(n).fill('word '), kept: Array(n).fill(1), score: Array(n).fill(0),"
        " state: 'r'.repeat(n), budget: n, recent: n, cells: n, tokens_per_s: 1, busy: true };"
        " show(v); let changed = 0;"
        " const seen = new MutationObserver(list => changed += list.length);"
        " seen.observe(document.getElementById('tokens'), { subtree: true, childList: true, attributes: true,"
        " characterData: true });"
        " show({ ...v, state: 'e' + v.state.slice(1) }); changed += seen.takeRecords().length;"
        " return document.querySelectorAll('#tokens span').length === n ? changed : -1; })()");
    assert_int_equal(changes, 1);
    rig_stop(r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(at_each_width_and_scheme),
        cmocka_unit_test(a_new_line_is_not_sent),
        cmocka_unit_test(an_answer_is_stopped),
        cmocka_unit_test(what_people_and_models_say_is_text),
        cmocka_unit_test(what_goes_wrong_is_told),
        cmocka_unit_test(the_cache_is_shown),
        cmocka_unit_test(only_what_changes_is_drawn),
        cmocka_unit_test(a_key_is_asked_for),
    };
    return cmocka_run_group_tests(tests, start, end);
}
