/*
 * trace_page.c - a recording as one HTML file that needs nothing else.
 *
 *   trace_page.html with %STYLE%, %DATA% and %SCRIPT%
 *   data: facts as JSON, then arrays as base64
 *      facts   names, counts, passes
 *      length  u16 [tokens]          text   bytes of all tokens
 *      gone    u8 or u16 [lanes][tokens]    last   u8 [lanes][tokens]
 *      score   u8, moment by moment [lanes][live]
 *
 * Everything that comes from outside is base64 or JSON in ASCII without '<', so that no text can end a script. Scores
 * are bytes: 0 is 0, and 1 to 255 are equal steps of the logarithm from the least to the most.
 */
#include "trace_page.h"
#include "trace_record.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- Base64 ------------------------------------------------------------------------------------------- */

typedef struct base64 {
    FILE *out;
    unsigned char held[3];
    unsigned n_held;
} base64;

static void put_group(const base64 *b)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    unsigned bits = (unsigned)b->held[0] << 16 | (unsigned)b->held[1] << 8 | b->held[2];
    char text[4] = { digits[bits >> 18], digits[bits >> 12 & 63], digits[bits >> 6 & 63], digits[bits & 63] };
    if (b->n_held < 3) text[3] = '=';
    if (b->n_held < 2) text[2] = '=';
    fwrite(text, 1, sizeof text, b->out);
}

static void put_byte(base64 *b, unsigned value)
{
    b->held[b->n_held++] = (unsigned char)value;
    if (b->n_held < 3) return;
    put_group(b);
    b->n_held = 0;
}

static void put_number(base64 *b, uint32_t value, unsigned bytes)
{
    for (unsigned i = 0; i < bytes; i++) put_byte(b, value >> 8 * i & 255);
}

static base64 begin_array(FILE *out, const char *name)
{
    fprintf(out, "<script type=\"application/octet-stream\" id=\"data-%s\">", name);
    return (base64){ .out = out };
}

static void end_array(base64 *b)
{
    if (b->n_held > 0) {
        memset(b->held + b->n_held, 0, 3 - b->n_held);
        put_group(b);
    }
    fputs("</script>\n", b->out);
}

/* ---- Scores ------------------------------------------------------------------------------------------- */

typedef struct scale {
    double least, most; /* of all scores above 0; both 0 when there is none */
} scale;

static void widen(scale *s, const float *score, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (!(score[i] > 0) || !isfinite(score[i])) continue;
        s->least = s->least > 0 && s->least < score[i] ? s->least : score[i];
        s->most = s->most > score[i] ? s->most : score[i];
    }
}

/* Six powers of ten are enough to tell apart; what is less counts as the least. */
static scale scale_of(const recording *r)
{
    scale s = { 0, 0 };
    for (uint32_t m = 0; m < r->n_moments; m++) {
        widen(&s, r->moment[m].score, (size_t)r->lanes * r->pass[r->moment[m].pass].live);
    }
    widen(&s, r->last, (size_t)r->lanes * r->most_tokens);
    if (s.least < s.most * 1e-6) s.least = s.most * 1e-6;
    return s;
}

static unsigned quantised(const scale *s, float score)
{
    double span = log(s->most / s->least), at;
    if (!(score > 0) || !(s->most > 0)) return 0;
    at = span > 0 ? log(score / s->least) / span : 1;
    return 1 + (unsigned)lrint(254 * (at < 0 ? 0 : at > 1 ? 1 : at));
}

/* ---- Facts -------------------------------------------------------------------------------------------- */

/* Names need not be UTF-8. */
static json_t *any_text(const char *text)
{
    cli_utf8 whole = { 0 };
    char *out = malloc(CLI_UTF8_ROOM(strlen(text)));
    json_t *j = out ? json_stringn(out, cli_utf8_take(&whole, text, strlen(text), out)) : NULL;
    free(out);
    return j;
}

static json_t *passes_json(const recording *r)
{
    json_t *list = json_array();
    for (uint32_t i = 0; list && i < r->n_passes; i++) {
        const trace_pass *p = &r->pass[i];
        json_array_append_new(list, json_pack("[i, i, i, i]", (int)p->seen, (int)p->live, (int)p->budget,
                                              (int)p->recent));
    }
    return list;
}

static json_t *moments_json(const recording *r)
{
    json_t *list = json_array();
    for (uint32_t i = 0; list && i < r->n_moments; i++) {
        json_array_append_new(list, json_integer(r->moment[i].pass));
    }
    return list;
}

static json_t *pins_json(const trace_about *a)
{
    json_t *list = json_array();
    for (uint32_t i = 0; list && i < a->n_pins; i++) {
        json_array_append_new(list, json_pack("[i, i]", (int)a->pin[i][0], (int)a->pin[i][1]));
    }
    return list;
}

/* One byte is enough for `gone` in most runs: 255 is "stays". */
static unsigned gone_bytes(const recording *r)
{
    return r->n_passes < 255 ? 1 : 2;
}

static json_t *facts_json(const recording *r, const trace_about *a, const scale *s)
{
    return json_pack("{s:o, s:o, s:s, s:s, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:f, s:o, s:b, s:i, s:f, s:f, s:o, "
                     "s:o}",
                     "model", any_text(a->model), "file", any_text(a->text_file), "policy", a->policy, "version",
                     h2okv_version(), "tokens", (int)recording_tokens(r), "prompt", (int)r->n_prompt, "layers",
                     (int)a->layers, "heads", (int)a->heads, "cells", (int)a->cells, "sinks", (int)a->sinks, "pool",
                     (int)a->pool, "guide", (int)a->guide, "decay", a->decay, "pins", pins_json(a), "stopped",
                     (int)a->stopped, "goneBytes", (int)gone_bytes(r), "least", s->least, "most", s->most, "passes",
                     passes_json(r), "moments", moments_json(r));
}

static bool put_facts(FILE *out, const recording *r, const trace_about *a, const scale *s)
{
    json_t *j = facts_json(r, a, s);
    char *text = j ? json_dumps(j, JSON_COMPACT | JSON_ENSURE_ASCII | JSON_REAL_PRECISION(9)) : NULL;
    json_decref(j);
    if (!text) return false;
    fputs("<script type=\"application/json\" id=\"data-facts\">", out);
    for (const char *at = text; *at; at++) {
        if (*at == '<') fputs("\\u003c", out);
        else fputc(*at, out);
    }
    fputs("</script>\n", out);
    free(text);
    return true;
}

/* ---- Arrays ------------------------------------------------------------------------------------------- */

static void put_text(FILE *out, const recording *r, const trace_about *a)
{
    uint32_t n = recording_tokens(r);
    size_t bytes = 0;
    base64 b = begin_array(out, "length");
    for (uint32_t i = 0; i < n; i++) put_number(&b, a->length[i], 2);
    end_array(&b);
    for (uint32_t i = 0; i < n; i++) bytes += a->length[i];
    b = begin_array(out, "text");
    for (size_t i = 0; i < bytes; i++) put_byte(&b, (unsigned char)a->bytes[i]);
    end_array(&b);
}

static void put_gone(FILE *out, const recording *r)
{
    uint32_t n = recording_tokens(r);
    base64 b = begin_array(out, "gone");
    for (uint32_t lane = 0; lane < r->lanes; lane++) {
        const uint16_t *gone = r->gone + (size_t)lane * r->most_tokens;
        for (uint32_t i = 0; i < n; i++) put_number(&b, gone[i], gone_bytes(r));
    }
    end_array(&b);
}

static void put_last(FILE *out, const recording *r, const scale *s)
{
    uint32_t n = recording_tokens(r);
    base64 b = begin_array(out, "last");
    for (uint32_t lane = 0; lane < r->lanes; lane++) {
        const float *last = r->last + (size_t)lane * r->most_tokens;
        for (uint32_t i = 0; i < n; i++) put_byte(&b, quantised(s, last[i]));
    }
    end_array(&b);
}

static void put_scores(FILE *out, const recording *r, const scale *s)
{
    base64 b = begin_array(out, "score");
    for (uint32_t m = 0; m < r->n_moments; m++) {
        size_t n = (size_t)r->lanes * r->pass[r->moment[m].pass].live;
        for (size_t i = 0; i < n; i++) put_byte(&b, quantised(s, r->moment[m].score[i]));
    }
    end_array(&b);
}

static bool put_data(FILE *out, const recording *r, const trace_about *a)
{
    scale s = scale_of(r);
    if (!put_facts(out, r, a, &s)) return false;
    put_text(out, r, a);
    put_gone(out, r);
    put_last(out, r, &s);
    put_scores(out, r, &s);
    return true;
}

/* ---- The page ----------------------------------------------------------------------------------------- */

bool trace_page_write(FILE *out, const recording *r, const trace_about *about)
{
    const char *at = trace_page_html, *mark;
    bool ok = true;
    while (ok && (mark = strchr(at, '%')) != NULL) {
        size_t n = strcspn(mark + 1, "%") + 2;
        fwrite(at, 1, (size_t)(mark - at), out);
        if (strncmp(mark, "%STYLE%", n) == 0) fputs(trace_page_css, out);
        else if (strncmp(mark, "%SCRIPT%", n) == 0) fputs(trace_page_js, out);
        else if (strncmp(mark, "%DATA%", n) == 0) ok = put_data(out, r, about);
        at = mark + n;
    }
    fputs(at, out);
    return ok;
}
