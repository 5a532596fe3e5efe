/*
 * browser.h - headless Chromium by its DevTools protocol, over a pair of pipes: no driver and no package of a language.
 *
 *   browser_open -> browser_show(file, width, dark) -> browser_eval(script) ... -> browser_close
 *
 * Whatever the page complains of (exceptions, console, loading) is kept; browser_said tells it. Each call fails the test
 * when the browser does not answer within a minute.
 */
#ifndef TEST_BROWSER_H
#define TEST_BROWSER_H

#include "program.h"

#include <jansson.h>

typedef struct browser browser;

browser *browser_open(void);
void browser_close(browser *b);

/* Loads a file in a window of that width, and waits until the page's root element has the attribute data-drawn. */
void browser_show(browser *b, const char *path, int width, bool dark);
void browser_visit(browser *b, const char *url, int width, bool dark); /* the same of an address */

/* Until the expression is true: fails the test after ten seconds. */
void browser_wait(browser *b, const char *script);

/* The value of an expression as JSON; the caller's. An exception fails the test. */
json_t *browser_eval(browser *b, const char *script);
long browser_number(browser *b, const char *script);
void browser_expect(browser *b, const char *script, const char *text); /* the value is this string */

/* A key as a person presses it ("ArrowRight"), and a click in the middle of an element, or at a part of its size. */
void browser_key(browser *b, const char *key);
void browser_click(browser *b, const char *selector, double across, double down);

const char *browser_said(const browser *b); /* "" when nothing was complained of since browser_open */

#endif
