/*
 * talk_save.c - a conversation in a file: the sequence, and with it as its note, in JSON, what chat knows of it.
 *
 *   {"h2okv_chat": 1, "system": "...", "template": [first.before, first.behind, next.before, next.behind],
 *    "dropped": 0, "turns": [{"said": "...", "answer": [tokens], "start": 0, "reply": 0, "last": 0}, ...]}
 *
 * Loading reads and checks the note first, then restores the sequence: up to there the conversation is as it was.
 */
#include "talk.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

enum { NOTE_FORMAT = 1 };

/* ---- Out ---------------------------------------------------------------------------------------------- */

static json_t *turn_json(const history_turn *turn)
{
    json_t *answer = json_array();
    for (uint32_t i = 0; answer && i < turn->n_answer; i++) {
        json_array_append_new(answer, json_integer(turn->answer[i]));
    }
    return json_pack("{s:s%, s:o, s:i, s:i, s:i}", "said", turn->said, turn->n_said, "answer", answer, "start",
                     (int)turn->start, "reply", (int)turn->reply, "last", (int)turn->last);
}

static char *make_note(const talk *t)
{
    const template_frame *first = &t->template->first, *next = &t->template->next;
    json_t *turns = json_array(), *all;
    char *text;
    for (uint32_t i = 0; turns && i < t->history.n; i++) {
        json_t *turn = turn_json(&t->history.turn[i]);
        if (!turn || json_array_append_new(turns, turn)) {
            json_decref(turns);
            return NULL;
        }
    }
    all = json_pack("{s:i, s:s, s:[s, s, s, s], s:I, s:o}", "h2okv_chat", (int)NOTE_FORMAT, "system", t->system,
                    "template", first->before, first->behind, next->before, next->behind, "dropped",
                    (json_int_t)t->history.dropped, "turns", turns);
    text = all ? json_dumps(all, JSON_COMPACT) : NULL;
    json_decref(all);
    return text;
}

/* A file that holds something else is not written over. */
static bool may_write(const char *path)
{
    char start[8];
    FILE *file;
    bool is_session;
    if (!cli_may_replace("chat", path)) return false;
    file = fopen(path, "rb");
    if (!file) return true; /* there is none; or saving says why */
    is_session = fread(start, 1, sizeof start, file) == sizeof start && memcmp(start, "H2OKVSES", sizeof start) == 0;
    fclose(file);
    return is_session || cli_error("chat", "/save %s: the file holds something else than a conversation: give another "
                                   "name, or remove it first", path);
}

/* As a shell would, ~/ is the user's own folder. To be freed. */
static char *whole_path(const char *path)
{
    const char *home = path[0] == '~' && path[1] == '/' ? getenv("HOME") : NULL;
    size_t n = (home ? strlen(home) : 0) + strlen(path) + 1;
    char *out = malloc(n);
    if (out) snprintf(out, n, "%s%s", home ? home : "", home ? path + 1 : path);
    return out;
}

static int refused(const talk *t, const char *verb, const char *path, int status)
{
    cli_error("chat", "/%s %s: %s", verb, path, h2okv_llama_last_error(t->engine->h)->text);
    switch (status) {
    case H2OKV_E_FILE: return CLI_INPUT;
    case H2OKV_E_INVALID:
    case H2OKV_E_UNSUPPORTED: return CLI_USAGE;
    default: return CLI_ENGINE;
    }
}

static int out_of_memory(void)
{
    cli_error("chat", "out of memory for the conversation");
    return CLI_ENGINE;
}

int talk_save(talk *t, const char *path)
{
    char *note = make_note(t), *whole = whole_path(path);
    int code = note && whole ? CLI_OK : out_of_memory();
    if (!code && !may_write(whole)) code = CLI_INPUT;
    if (!code) {
        int status = h2okv_llama_seq_save(t->engine->h, 0, whole, note, strlen(note));
        if (status) code = refused(t, "save", whole, status);
    }
    free(note);
    free(whole);
    return code;
}

/* ---- In ----------------------------------------------------------------------------------------------- */

/* What a note says, until it is the talk's. */
typedef struct saved {
    char *system;
    chat_template template;
    history history;
    llama_token *system_tokens;
    uint32_t n_system;
} saved;

static void free_saved(saved *x)
{
    free(x->system);
    free(x->system_tokens);
    template_free(&x->template);
    history_clear(&x->history);
}

static bool read_answer(const json_t *list, int32_t n_vocab, history_turn *turn)
{
    size_t n = json_array_size(list);
    turn->answer = malloc((n ? n : 1) * sizeof *turn->answer);
    if (!turn->answer || n > CACHE_MOST_TOKENS) return false;
    for (size_t i = 0; i < n; i++) {
        json_int_t token = json_integer_value(json_array_get(list, i));
        if (token < 0 || token >= n_vocab) return false;
        turn->answer[i] = (llama_token)token;
    }
    turn->n_answer = (uint32_t)n;
    return true;
}

/* Positions rise from turn to turn, and end where the sequence does. */
static bool read_turn(json_t *j, int32_t n_vocab, int32_t least, history_turn *turn)
{
    const char *said = NULL;
    json_t *answer = NULL;
    int start = 0, reply = 0, last = 0;
    size_t n = 0;
    *turn = (history_turn){ 0 };
    if (json_unpack(j, "{s:s%, s:o, s:i, s:i, s:i}", "said", &said, &n, "answer", &answer, "start", &start, "reply",
                    &reply, "last", &last)) {
        return false;
    }
    turn->said = malloc(n + 1);
    turn->n_said = n;
    turn->start = start;
    turn->reply = reply;
    turn->last = last;
    if (turn->said) memcpy(turn->said, said, n + 1);
    return turn->said && read_answer(answer, n_vocab, turn) && start >= least && reply > start &&
           last >= 0 && last < n_vocab;
}

static bool read_turns(const talk *t, const json_t *turns, saved *x)
{
    int32_t n_vocab = llama_vocab_n_tokens(t->engine->vocab), least = 0;
    size_t n = json_array_size(turns);
    if (!json_is_array(turns) || n > HISTORY_TURNS) return false;
    for (size_t i = 0; i < n; i++) {
        history_turn *turn = &x->history.turn[x->history.n++];
        if (!read_turn(json_array_get(turns, i), n_vocab, least, turn)) return false;
        least = turn->reply + (int32_t)turn->n_answer;
    }
    return true;
}

static bool read_template(const json_t *list, chat_template *out)
{
    const char *text[4];
    char **place[4] = { &out->first.before, &out->first.behind, &out->next.before, &out->next.behind };
    bool ok = json_array_size(list) == 4;
    for (size_t i = 0; ok && i < 4; i++) {
        text[i] = json_string_value(json_array_get(list, i));
        *place[i] = text[i] ? strdup(text[i]) : NULL;
        ok = *place[i] != NULL;
    }
    return ok;
}

static bool read_note(const talk *t, json_t *j, saved *x)
{
    int format = 0;
    json_int_t dropped = 0;
    const char *system = NULL;
    json_t *template = NULL, *turns = NULL;
    if (!j || json_unpack(j, "{s:i, s:s, s:o, s:I, s:o}", "h2okv_chat", &format, "system", &system, "template",
                          &template, "dropped", &dropped, "turns", &turns)) {
        return false;
    }
    x->system = strdup(system);
    x->history.dropped = dropped > 0 ? (uint64_t)dropped : 0;
    return format == NOTE_FORMAT && x->system && read_template(template, &x->template) && read_turns(t, turns, x);
}

static int parse_note(const talk *t, const char *path, const void *note, size_t n, saved *x)
{
    json_t *j = json_loadb(note, n, 0, NULL);
    bool ok = read_note(t, j, x);
    json_decref(j);
    if (!ok) {
        cli_error("chat", "/load %s: holds a sequence, but no conversation of h2okv chat", path);
        return CLI_INPUT;
    }
    return *x->system ? template_fixed(t->engine, &x->template.first, &x->system_tokens, &x->n_system) : CLI_OK;
}

/* The saved one is the talk's now. */
static void take(talk *t, saved *x)
{
    history_clear(&t->history);
    template_free(&t->loaded_template);
    free(t->loaded_system);
    free(t->system_tokens);
    t->history = x->history;
    t->loaded_template = x->template;
    t->loaded_system = x->system;
    t->template = &t->loaded_template;
    t->system = t->loaded_system;
    t->system_tokens = x->system_tokens;
    t->n_system = x->n_system;
    t->warned = false;
    *x = (saved){ 0 };
    talk_take_budget(t);
}

static int restore(talk *t, const char *path, saved *x)
{
    int status = h2okv_llama_seq_restore(t->engine->h, 0, path, NULL, NULL);
    if (status) return refused(t, "load", path, status);
    take(t, x);
    return CLI_OK;
}

int talk_load(talk *t, const char *path)
{
    char *whole = whole_path(path);
    void *note = NULL;
    size_t n = 0;
    saved x = { 0 };
    int code = whole ? CLI_OK : out_of_memory(), status;
    if (!code) {
        status = h2okv_llama_seq_read_note(t->engine->h, 0, whole, &note, &n);
        code = status ? refused(t, "load", whole, status) : parse_note(t, whole, note, n, &x);
    }
    if (!code) code = restore(t, whole, &x);
    free_saved(&x);
    free(note);
    free(whole);
    return code;
}
