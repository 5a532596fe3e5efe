/*
 * chat.c - `h2okv chat` from its checked options on.
 *
 *   load -> template -> system prompt -> message -> request -> talk.c -> answer
 *                                        ^                              |
 *                                        +------------------------------+    at the end: report
 */
#include "chat_report.h"
#include "report.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

typedef struct session {
    const chat_options *options;
    engine engine;
    chat_template template;
    talk talk;
    chat_lines lines;
    cli_buffer text; /* an answer, for --json; else a piece of it */
    bool begun;      /* an answer's text, behind white space at its start */
    char end;        /* its last byte */
} session;

static bool is_quiet(const session *s)
{
    return s->options->run.quiet;
}

static void note(const session *s, const char *text)
{
    if (!is_quiet(s)) fprintf(stderr, "%s(%s)%s\n", cli_style(stderr, CLI_DIM), text, cli_style(stderr, CLI_PLAIN));
}

/* ---- Answers ------------------------------------------------------------------------------------------ */

static int write_out(const char *text, size_t n)
{
    if (fwrite(text, 1, n, stdout) == n && fflush(stdout) == 0) return CLI_OK;
    cli_error("chat", "cannot write to standard output: %s", strerror(errno));
    return CLI_ENGINE;
}

static int put(void *user, const char *text, size_t n)
{
    session *s = user;
    if (!s->options->run.json) s->text.n = 0;
    if (!cli_buffer_add(&s->text, text, n)) {
        cli_error("chat", "out of memory for the answer");
        return CLI_ENGINE;
    }
    if (s->options->run.json) return CLI_OK;
    if (s->lines.editor) n = cli_utf8_tame(s->text.data, n);
    text = s->text.data;
    for (; !s->begun && n > 0 && strchr(" \t\r\n", *text); n--) text++;
    if (n == 0) return CLI_OK;
    s->begun = true;
    s->end = text[n - 1];
    return write_out(text, n);
}

static int end_answer(session *s, const talk_answer *answer)
{
    if (answer->taken_back) {
        note(s, "stopped: the message is taken back");
    } else if (s->options->run.json) {
        return chat_answer_json(stdout, &s->talk, answer, &s->text) ? CLI_OK : CLI_ENGINE;
    } else if (!s->begun || s->end != '\n') {
        int code = write_out("\n", 1);
        if (code) return code;
    }
    if (answer->taken_back) return CLI_OK;
    if (answer->stopped == STOP_LIMIT) note(s, "-n reached");
    if (answer->stopped == STOP_INTERRUPT) note(s, "stopped");
    return CLI_OK;
}

/* `said`: NULL for another answer to the last message. */
static int answer(session *s, const template_text *said)
{
    talk_answer a;
    int code;
    s->text.n = 0;
    s->begun = false;
    code = said ? talk_say(&s->talk, *said, &a) : talk_regen(&s->talk, &a);
    return code ? code : end_answer(s, &a);
}

/* ---- Requests ----------------------------------------------------------------------------------------- */

static int report(const session *s)
{
    if (s->options->run.json) return chat_report_json(stdout, &s->talk) ? CLI_OK : CLI_ENGINE;
    chat_report_text(stderr, &s->talk);
    return CLI_OK;
}

static int undo(session *s)
{
    int code = talk_undo(&s->talk);
    if (!code) note(s, "the last message and its answer are taken back");
    return code;
}

static int save(session *s, const char *path)
{
    int code = talk_save(&s->talk, path);
    if (!code) note(s, "saved");
    return code;
}

static int load(session *s, const char *path)
{
    char text[96], at[32];
    int code = talk_load(&s->talk, path);
    snprintf(text, sizeof text, "loaded: the conversation is at token %s",
             cli_thousands(at, (uint64_t)h2okv_llama_next_pos(s->engine.h)));
    if (!code) note(s, text);
    return code;
}

static int serve(session *s, const chat_request *r)
{
    template_text said = { r->text, r->n };
    switch (r->verb) {
    case CHAT_SAY: return r->n > 0 ? answer(s, &said) : CLI_OK;
    case CHAT_HELP: chat_print_commands(stderr); return CLI_OK;
    case CHAT_REGEN: return answer(s, NULL);
    case CHAT_UNDO: return undo(s);
    case CHAT_CLEAR: return talk_clear(&s->talk);
    case CHAT_STATS: return report(s);
    case CHAT_BUDGET: return talk_budget(&s->talk, r->budget);
    case CHAT_SAVE: return save(s, r->text);
    case CHAT_LOAD: return load(s, r->text);
    case CHAT_QUIT: break;
    }
    return CLI_OK;
}

/* ---- The conversation --------------------------------------------------------------------------------- */

/* Whether it goes on after this code: at a terminal people see what went wrong, a script does not. */
static bool goes_on(const session *s, int code)
{
    if (cli_terminated()) return false;
    if (code == CLI_OK) return true;
    return s->lines.editor && (code == CLI_USAGE || code == CLI_INPUT || code == CLI_STOPPED);
}

static int converse(session *s)
{
    for (;;) {
        chat_request request = { .verb = CHAT_SAY };
        enum chat_read read = chat_read_message(&s->lines);
        int code = read == CHAT_BAD ? CLI_INPUT : CLI_OK;
        if (read == CHAT_END || read == CHAT_STOP) return read == CHAT_STOP ? CLI_STOPPED : CLI_OK;
        if (!code && !chat_parse(&s->lines.message, &request)) code = CLI_USAGE;
        if (!code) code = serve(s, &request);
        if (!goes_on(s, code)) return code ? code : CLI_STOPPED;
        if (!code && request.verb == CHAT_QUIT) return CLI_OK;
        cli_take_interrupt();
    }
}

static int finish(const session *s, int code)
{
    bool whole = code == CLI_OK || code == CLI_STOPPED || code == CLI_USAGE || code == CLI_INPUT;
    if (!whole || (is_quiet(s) && !s->options->run.json)) return code;
    return report(s) ? CLI_ENGINE : code;
}

/* With people at a terminal, or with a script. */
static int meet(session *s)
{
    int code;
    s->lines.editor = chat_editor_open();
    if (s->lines.editor) {
        cli_go_on_after_interrupts();
        note(s, "/help lists the commands; Ctrl-D ends");
    }
    code = converse(s);
    chat_editor_close(s->lines.editor);
    return code;
}

/* ---- The beginning ------------------------------------------------------------------------------------ */

static int find_template(session *s, const char *system)
{
    char *text;
    int code = template_find(&s->engine, s->options->template, &text);
    if (!code) code = template_make("chat", text, system, &s->template);
    free(text);
    return code;
}

static int begin(session *s, const char *system)
{
    const run_options *o = &s->options->run;
    int code = engine_load(&s->engine, "chat", o->model, o->mmap, o->verbose);
    if (!code) code = find_template(s, system);
    if (!code) code = engine_attach(&s->engine, &o->cache, o->threads);
    if (!code && o->print_config) report_config(stderr, o, &s->engine);
    if (!code) code = talk_start(&s->talk, s->options, &s->engine, &s->template, system);
    s->talk.put = put;
    s->talk.put_user = s;
    return code;
}

int chat_model(const chat_options *o, const cli_buffer *system)
{
    session s = { .options = o };
    int code;
    cli_catch_signals();
    code = begin(&s, system->data ? system->data : "");
    if (code == CLI_STOPPED && !is_quiet(&s)) fputs("interrupted while the model was loaded\n", stderr);
    if (!code) code = finish(&s, meet(&s));
    chat_lines_free(&s.lines);
    talk_free(&s.talk);
    template_free(&s.template);
    engine_free(&s.engine);
    cli_buffer_free(&s.text);
    return code;
}

void chat_list_templates(void)
{
    template_list(stdout);
}
