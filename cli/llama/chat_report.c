/* chat_report.c - see chat_report.h. h2okv-chat(1) documents the JSON keys. */
#include "chat_report.h"

#include "report.h"

#include <inttypes.h>

static uint64_t positions_of(const talk *t)
{
    return t->engine->h ? (uint64_t)h2okv_llama_next_pos(t->engine->h) : 0;
}

static double per_second(uint64_t tokens, double seconds)
{
    return seconds > 0 ? (double)tokens / seconds : 0;
}

/* ---- For people --------------------------------------------------------------------------------------- */

static void put_line(FILE *out, const char *label, uint64_t tokens, uint64_t timed, double seconds)
{
    char n[32], speed[32];
    fprintf(out, "  %-8s %s token%s", label, cli_thousands(n, tokens), tokens == 1 ? "" : "s");
    if (timed > 0 && seconds > 0) {
        fprintf(out, " in %.2f s, %s tok/s", seconds, report_speed(speed, per_second(timed, seconds)));
    }
    fputc('\n', out);
}

void chat_report_text(FILE *out, const talk *t)
{
    char a[32], b[32];
    report_policy(out, &t->turn_options, t->engine);
    fprintf(out, "  turns    %s; the conversation is at token %s\n", cli_thousands(a, t->totals.turns),
            cli_thousands(b, positions_of(t)));
    if (t->n_system > 0) fprintf(out, "  system   %" PRIu32 " tokens, always kept\n", t->n_system);
    put_line(out, "read", t->totals.read, t->totals.read, t->totals.read_s);
    put_line(out, "written", t->totals.written, t->totals.timed, t->totals.write_s);
    report_cache(out, t->engine, positions_of(t));
}

/* ---- JSON --------------------------------------------------------------------------------------------- */

static bool dump(FILE *out, json_t *j, bool ok)
{
    if (!ok) cli_error("chat", "out of memory for a line of JSON");
    if (ok && (json_dumpf(j, out, JSON_COMPACT | JSON_REAL_PRECISION(6)) || fputc('\n', out) == EOF || fflush(out))) {
        ok = cli_error("chat", "cannot write to standard output");
    }
    json_decref(j);
    return ok;
}

static json_t *speed(uint64_t tokens, double seconds)
{
    return tokens > 0 && seconds > 0 ? json_real(per_second(tokens, seconds)) : json_null();
}

static bool set_totals(json_t *j, const talk *t)
{
    const talk_totals *n = &t->totals;
    return report_set(j, "turns", json_integer((json_int_t)n->turns)) &&
           report_set(j, "read_tokens", json_integer((json_int_t)n->read)) &&
           report_set(j, "written_tokens", json_integer((json_int_t)n->written)) &&
           report_set(j, "read_tok_s", speed(n->read, n->read_s)) &&
           report_set(j, "decode_tok_s", speed(n->timed, n->write_s)) &&
           report_set(j, "system_tokens", json_integer(t->n_system));
}

bool chat_report_json(FILE *out, const talk *t)
{
    json_t *j = json_object();
    bool ok = j && report_set(j, "type", json_string("report")) && set_totals(j, t) &&
              report_set_cache(j, &t->turn_options, t->engine, positions_of(t));
    return dump(out, j, ok);
}

static const char *stop_name(enum stop stopped)
{
    return stopped == STOP_EOS ? "eos" : stopped == STOP_INTERRUPT ? "interrupt" : "limit";
}

bool chat_answer_json(FILE *out, const talk *t, const talk_answer *answer, const cli_buffer *text)
{
    json_t *j = json_object();
    bool ok = j && report_set(j, "type", json_string("answer")) &&
              report_set(j, "turn", json_integer((json_int_t)t->totals.turns)) &&
              report_set(j, "text", json_stringn(text->data ? text->data : "", text->n)) &&
              report_set(j, "read_tokens", json_integer(answer->n_prompt)) &&
              report_set(j, "written_tokens", json_integer(answer->n_new)) &&
              report_set(j, "stopped", json_string(stop_name(answer->stopped))) &&
              report_set(j, "positions", json_integer((json_int_t)positions_of(t)));
    return dump(out, j, ok);
}
