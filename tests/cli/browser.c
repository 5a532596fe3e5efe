/* browser.c - see browser.h. Messages are JSON objects that end with NUL; we write to fd 3 and read from fd 4 of the
 * browser. */
#define _GNU_SOURCE 1
#include "browser.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

struct browser {
    pid_t pid;
    int to, from;
    char folder[32]; /* of the browser's own */
    char *session;
    int last_id;
    char *buffer;    /* what came and was not taken yet */
    size_t n;
    char said[4096];
};

/* ---- Messages ----------------------------------------------------------------------------------------- */

static void keep_complaint(browser *b, const json_t *message)
{
    static const char *const complaints[] = { "Runtime.exceptionThrown", "Runtime.consoleAPICalled",
                                              "Log.entryAdded" };
    const char *method = json_string_value(json_object_get(message, "method"));
    for (size_t i = 0; method && i < sizeof complaints / sizeof complaints[0]; i++) {
        size_t used = strlen(b->said);
        char *text;
        if (strcmp(method, complaints[i]) != 0) continue;
        text = json_dumps(message, JSON_COMPACT);
        snprintf(b->said + used, sizeof b->said - used, "%s\n", text);
        free(text);
    }
}

static void read_more(browser *b)
{
    struct pollfd polled = { b->from, POLLIN, 0 };
    ssize_t n;
    if (poll(&polled, 1, 60000) != 1) fail_msg("the browser does not answer");
    b->buffer = realloc(b->buffer, b->n + 65536);
    assert_non_null(b->buffer);
    n = read(b->from, b->buffer + b->n, 65536);
    if (n <= 0) fail_msg("the browser has ended");
    b->n += (size_t)n;
}

static json_t *next_message(browser *b)
{
    char *end;
    json_t *message;
    while (b->n == 0 || !(end = memchr(b->buffer, '\0', b->n))) read_more(b);
    message = json_loads(b->buffer, 0, NULL);
    assert_non_null(message);
    b->n -= (size_t)(end + 1 - b->buffer);
    memmove(b->buffer, end + 1, b->n);
    return message;
}

static void send_message(browser *b, const char *method, json_t *params)
{
    json_t *message = json_pack("{s:i, s:s, s:o}", "id", ++b->last_id, "method", method, "params",
                                params ? params : json_object());
    char *text;
    size_t n, done = 0;
    if (b->session) json_object_set_new(message, "sessionId", json_string(b->session));
    text = json_dumps(message, JSON_COMPACT);
    n = strlen(text) + 1;
    while (done < n) {
        ssize_t m = write(b->to, text + done, n - done);
        assert_true(m > 0);
        done += (size_t)m;
    }
    free(text);
    json_decref(message);
}

/* Sends a command and gives its result, which is the caller's; `params` goes away. */
static json_t *call(browser *b, const char *method, json_t *params)
{
    send_message(b, method, params);
    for (;;) {
        json_t *message = next_message(b), *result = json_object_get(message, "result");
        if (json_integer_value(json_object_get(message, "id")) != b->last_id) {
            keep_complaint(b, message);
            json_decref(message);
            continue;
        }
        if (!result) {
            char *text = json_dumps(message, 0);
            fail_msg("%s: %s", method, text);
        }
        json_incref(result);
        json_decref(message);
        return result;
    }
}

static void tell(browser *b, const char *method, json_t *params)
{
    json_decref(call(b, method, params));
}

/* ---- The browser -------------------------------------------------------------------------------------- */

static void child(const browser *b, int in, int out)
{
    char folder[64];
    snprintf(folder, sizeof folder, "--user-data-dir=%s", b->folder);
    int null = open("/dev/null", O_RDWR), a = fcntl(in, F_DUPFD, 10), z = fcntl(out, F_DUPFD, 10);
    for (int fd = 0; fd < 3; fd++) dup2(null, fd);
    dup2(a, 3);
    dup2(z, 4);
    for (int fd = 5; fd < 64; fd++) close(fd);
    /* The sandbox refuses root, and only pages of our own are shown. */
    execlp(H2OKV_TEST_BROWSER, "chromium", "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
           "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-extensions",
           "--remote-debugging-pipe", folder, "about:blank", (char *)NULL);
    _exit(98);
}

static void start(browser *b)
{
    int in[2], out[2];
    strcpy(b->folder, "/tmp/h2okv-browser-XXXXXX");
    assert_non_null(mkdtemp(b->folder));
    assert_int_equal(pipe(in), 0);
    assert_int_equal(pipe(out), 0);
    signal(SIGPIPE, SIG_IGN);
    b->pid = fork();
    assert_true(b->pid >= 0);
    if (b->pid == 0) child(b, in[0], out[1]);
    close(in[0]);
    close(out[1]);
    b->to = in[1];
    b->from = out[0];
}

browser *browser_open(void)
{
    browser *b = calloc(1, sizeof *b);
    json_t *target, *session;
    assert_non_null(b);
    start(b);
    target = call(b, "Target.createTarget", json_pack("{s:s}", "url", "about:blank"));
    session = call(b, "Target.attachToTarget", json_pack("{s:O, s:b}", "targetId", json_object_get(target, "targetId"),
                                                         "flatten", 1));
    b->session = strdup(json_string_value(json_object_get(session, "sessionId")));
    json_decref(session);
    json_decref(target);
    tell(b, "Page.enable", NULL);
    tell(b, "Runtime.enable", NULL);
    tell(b, "Log.enable", NULL);
    return b;
}

void browser_close(browser *b)
{
    char command[64];
    int waited = 0;
    free(b->session);
    b->session = NULL;
    send_message(b, "Browser.close", NULL);
    while (waitpid(b->pid, NULL, WNOHANG) == 0) {
        if (waited++ == 100) kill(b->pid, SIGKILL);
        nanosleep(&(struct timespec){ .tv_nsec = 100000000 }, NULL);
    }
    close(b->to);
    close(b->from);
    snprintf(command, sizeof command, "rm -rf %s", b->folder);
    assert_int_equal(system(command), 0);
    free(b->buffer);
    free(b);
}

const char *browser_said(const browser *b)
{
    return b->said;
}

/* ---- The page ----------------------------------------------------------------------------------------- */

json_t *browser_eval(browser *b, const char *script)
{
    json_t *result = call(b, "Runtime.evaluate", json_pack("{s:s, s:b}", "expression", script, "returnByValue", 1));
    json_t *value = json_object_get(json_object_get(result, "result"), "value");
    if (json_object_get(result, "exceptionDetails")) {
        char *text = json_dumps(result, 0);
        fail_msg("%s: %s", script, text);
    }
    value = value ? json_incref(value) : json_null();
    json_decref(result);
    return value;
}

long browser_number(browser *b, const char *script)
{
    json_t *j = browser_eval(b, script);
    if (!json_is_number(j)) fail_msg("%s is no number", script);
    long value = (long)json_number_value(j);
    json_decref(j);
    return value;
}

void browser_expect(browser *b, const char *script, const char *text)
{
    json_t *j = browser_eval(b, script);
    if (!json_is_string(j)) fail_msg("%s is no string", script);
    assert_string_equal(json_string_value(j), text);
    json_decref(j);
}

void browser_show(browser *b, const char *path, int width, bool dark)
{
    char url[600];
    snprintf(url, sizeof url, "file://%s", path);
    browser_visit(b, url, width, dark);
}

void browser_wait(browser *b, const char *script)
{
    for (int i = 0; i < 200; i++) {
        json_t *value = browser_eval(b, script);
        bool is_true = json_is_true(value);
        json_decref(value);
        if (is_true) return;
        nanosleep(&(struct timespec){ .tv_nsec = 50000000 }, NULL);
    }
    fail_msg("never true: %s; %s", script, b->said);
}

void browser_visit(browser *b, const char *url, int width, bool dark)
{
    tell(b, "Emulation.setDeviceMetricsOverride", json_pack("{s:i, s:i, s:i, s:b}", "width", width, "height", 900,
                                                            "deviceScaleFactor", 1, "mobile", 0));
    tell(b, "Emulation.setEmulatedMedia", json_pack("{s:[{s:s, s:s}]}", "features", "name", "prefers-color-scheme",
                                                    "value", dark ? "dark" : "light"));
    json_decref(browser_eval(b, "delete document.documentElement.dataset.drawn")); /* of the page before */
    tell(b, "Page.navigate", json_pack("{s:s}", "url", url));
    for (int i = 0; i < 600; i++) {
        json_t *drawn = browser_eval(b, "document.documentElement?.dataset.drawn || ''");
        bool ready = *json_string_value(drawn) != '\0';
        json_decref(drawn);
        if (ready) return;
        nanosleep(&(struct timespec){ .tv_nsec = 100000000 }, NULL);
    }
    fail_msg("%s is not drawn; %s", url, b->said);
}

void browser_key(browser *b, const char *key)
{
    tell(b, "Input.dispatchKeyEvent", json_pack("{s:s, s:s}", "type", "rawKeyDown", "key", key));
    tell(b, "Input.dispatchKeyEvent", json_pack("{s:s, s:s}", "type", "keyUp", "key", key));
}

void browser_click(browser *b, const char *selector, double across, double down)
{
    static const char *const types[] = { "mouseMoved", "mousePressed", "mouseReleased" };
    char script[512];
    json_t *at;
    snprintf(script, sizeof script, "(() => { const e = document.querySelector('%s'); e.scrollIntoView({block: 'center'});"
             " const r = e.getBoundingClientRect(); return [r.x + r.width * %g, r.y + r.height * %g]; })()", selector,
             across, down);
    at = browser_eval(b, script);
    for (int i = 0; i < 3; i++) {
        tell(b, "Input.dispatchMouseEvent", json_pack("{s:s, s:O, s:O, s:s, s:i}", "type", types[i], "x",
                                                      json_array_get(at, 0), "y", json_array_get(at, 1), "button",
                                                      i ? "left" : "none", "clickCount", i > 0));
    }
    json_decref(at);
}
