/* error.c - errors in OpenAI's shape: {"error":{"message","type","param","code"}}. */
#include "request.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

static const char *type_of(int status)
{
    switch (status) {
    case 401: return "authentication_error";
    case 403: return "permission_error";
    case 429: return "rate_limit_error";
    case 503: return "overloaded_error";
    case 504: return "timeout_error";
    default: return status >= 500 ? "server_error" : "invalid_request_error";
    }
}

/* A copy, cut before a character that does not fit; what is no UTF-8 becomes U+FFFD. */
static void copy(char *out, size_t size, const char *text)
{
    char *whole = malloc(CLI_UTF8_ROOM(strlen(text)));
    cli_utf8 u = { { 0 }, 0 };
    size_t n = whole ? cli_utf8_take(&u, text, strlen(text), whole) : 0;
    if (n >= size) {
        n = size - 1;
        while (n > 0 && ((unsigned char)whole[n] & 0xc0) == 0x80) n--;
    }
    if (n > 0) memcpy(out, whole, n);
    out[n] = '\0';
    free(whole);
}

bool api_fail(api_error *e, int status, const char *param, const char *code, const char *format, ...)
{
    char text[2 * sizeof e->text];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    e->status = status;
    e->type = type_of(status);
    e->code = code;
    copy(e->param, sizeof e->param, param ? param : "");
    copy(e->text, sizeof e->text, text);
    return false;
}

bool api_add_error(cli_buffer *out, const api_error *e)
{
    json_t *json = json_pack("{s{ssssss?ss?}}", "error", "message", e->text, "type", e->type, "param",
                             e->param[0] ? e->param : NULL, "code", e->code);
    char *text = json ? json_dumps(json, JSON_COMPACT) : NULL;
    bool done = text && cli_buffer_add(out, text, strlen(text));
    free(text);
    json_decref(json);
    return done;
}

void api_error_of(const serve_event *e, api_error *out)
{
    static const char *const codes[] = { "engine_failed", "stopping", "time_limit" };
    const char *code = e->status == 503 ? codes[1] : e->status == 504 ? codes[2] : e->status >= 500 ? codes[0] : NULL;
    api_fail(out, e->status, e->param, code, "%s", e->text ? e->text : "the engine failed");
}
