/*
 * template.c - see template.h.
 *
 *   llama_chat_apply_template([system,] USER)      -> first   the place of the words USER and ANSWER shows where
 *   llama_chat_apply_template(x, ANSWER, USER)     -> next    one text ends and the next begins
 */
#include "template.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static const char user_word[] = "h2okvsUserSaysThis", answer_word[] = "h2okvsModelSaysThis";

/* ---- Frames ------------------------------------------------------------------------------------------- */

/* `open`: with an opened answer behind it. NULL: llama.cpp does not know the template, or there is no memory. */
static char *apply_to(const char *text, const llama_chat_message *message, size_t n, bool open)
{
    int32_t room = llama_chat_apply_template(text, message, n, open, NULL, 0);
    char *out = room >= 0 ? calloc((size_t)room + 1, 1) : NULL;
    if (out) llama_chat_apply_template(text, message, n, open, out, room);
    return out;
}

static char *apply(const char *text, const llama_chat_message *message, size_t n)
{
    return apply_to(text, message, n, true);
}

static char *last_place(char *text, const char *word)
{
    char *found = NULL;
    for (char *at = strstr(text, word); at; at = strstr(at + 1, word)) found = at;
    return found;
}

/* `text` from `from` on, cut in two at the user's word. */
static bool cut(const char *from, char *at, template_frame *out)
{
    *at = '\0';
    out->before = strdup(from);
    out->behind = strdup(at + sizeof user_word - 1);
    return out->before && out->behind;
}

static bool make_first(const char *text, const char *system, template_frame *out)
{
    llama_chat_message message[2] = { { "system", system }, { "user", user_word } };
    size_t skip = *system ? 0 : 1;
    char *all = apply(text, message + skip, 2 - skip), *at = all ? last_place(all, user_word) : NULL;
    bool ok = at && cut(all, at, out);
    free(all);
    return ok;
}

static bool make_next(const char *text, template_frame *out)
{
    llama_chat_message message[3] = { { "user", "x" }, { "assistant", answer_word }, { "user", user_word } };
    char *all = apply(text, message, 3), *answer = all ? strstr(all, answer_word) : NULL;
    char *at = answer ? strstr(answer, user_word) : NULL;
    bool ok = at && cut(answer + sizeof answer_word - 1, at, out);
    free(all);
    return ok;
}

/* The words of the system prompt, without space around them: some templates take that away. */
static bool holds(const char *text, const char *system)
{
    size_t n = strlen(system);
    char *words = strdup(system + strspn(system, " \t\r\n"));
    bool found;
    if (!words) return false;
    for (n = strlen(words); n > 0 && strchr(" \t\r\n", words[n - 1]); n--) words[n - 1] = '\0';
    found = strstr(text, words) != NULL;
    free(words);
    return found;
}

int template_make(const char *command, const char *text, const char *system, chat_template *out)
{
    *out = (chat_template){ 0 };
    if (!make_first(text, system, &out->first) || !make_next(text, &out->next)) {
        cli_error(command, "the chat template is none of those that llama.cpp knows; give one of them with --template: "
                           "`h2okv chat --template list` lists them");
        return CLI_MODEL;
    }
    if (holds(out->first.before, system)) return CLI_OK;
    cli_error(command, "the chat template has no place for a system prompt: leave it out, or give another --template");
    return CLI_USAGE;
}

static void free_frame(template_frame *f)
{
    free(f->before);
    free(f->behind);
}

void template_free(chat_template *t)
{
    free_frame(&t->first);
    free_frame(&t->next);
    *t = (chat_template){ 0 };
}

/* ---- Which one ---------------------------------------------------------------------------------------- */

/* The names that llama.cpp knows; *n of them, to be freed. */
static const char **all_names(size_t *n)
{
    int32_t most = llama_chat_builtin_templates(NULL, 0);
    const char **names = calloc((size_t)(most > 0 ? most : 0) + 1, sizeof *names);
    *n = names && most > 0 ? (size_t)most : 0;
    if (*n) llama_chat_builtin_templates(names, *n);
    return names;
}

void template_list(FILE *out)
{
    size_t n;
    const char **names = all_names(&n);
    for (size_t i = 0; i < n; i++) fprintf(out, "%s\n", names[i]);
    free(names);
}

static int unknown(const char *command, const char *name, const char **names, size_t n)
{
    const char *near = cli_nearest(name, names, n);
    cli_error(command, "--template %s: neither the name of a template%s%s%s nor a file that can be read: %s", name,
              near ? " (did you mean " : "", near ? near : "", near ? "?)" : "", strerror(errno));
    return CLI_INPUT;
}

static int named(const engine *e, const char *name, char **text)
{
    size_t n;
    const char **names = all_names(&n);
    cli_buffer file = { 0 };
    FILE *readable;
    int code = CLI_OK;
    for (size_t i = 0; i < n && !*text; i++) {
        if (strcmp(names[i], name) == 0) *text = strdup(name);
    }
    if (!*text) {
        readable = fopen(name, "rb");
        if (readable) fclose(readable);
        code = readable ? cli_read_text(e->command, name, &file) : unknown(e->command, name, names, n);
        *text = file.data;
    }
    free(names);
    return code;
}

int template_find(const engine *e, const char *name_or_file, char **text)
{
    const char *own = llama_model_chat_template(e->model, NULL);
    *text = NULL;
    if (name_or_file) return named(e, name_or_file, text);
    if (own) *text = strdup(own);
    if (*text) return CLI_OK;
    cli_error(e->command, "%s: has no chat template; give one that fits with --template NAME (`--template list` lists "
              "them), or use h2okv run, which needs none", e->path);
    return CLI_MODEL;
}

/* ---- Tokens ------------------------------------------------------------------------------------------- */

typedef struct tokens {
    llama_token *data;
    uint32_t n;
} tokens;

static bool add(const engine *e, const char *text, size_t bytes, bool special, tokens *t)
{
    int32_t most = bytes ? -llama_tokenize(e->vocab, text, (int32_t)bytes, NULL, 0, false, special) : 0;
    llama_token *more = realloc(t->data, ((size_t)t->n + (most > 0 ? (size_t)most : 0) + 1) * sizeof *more);
    if (!more) return false;
    t->data = more;
    if (most > 0) {
        t->n += (uint32_t)llama_tokenize(e->vocab, text, (int32_t)bytes, t->data + t->n, most, false, special);
    }
    return true;
}

/* Whether the text spells out special tokens. */
static bool spells(const engine *e, template_text said, bool *out)
{
    tokens plain = { 0 }, special = { 0 };
    bool ok = add(e, said.text, said.n, false, &plain) && add(e, said.text, said.n, true, &special);
    if (ok) *out = plain.n != special.n || memcmp(plain.data, special.data, plain.n * sizeof *plain.data) != 0;
    free(plain.data);
    free(special.data);
    return ok;
}

/* All at once, as tokens may go over from the template to what is said; in pieces only where that is unsafe. */
static bool add_turn(const engine *e, const template_frame *f, template_text said, tokens *t)
{
    cli_buffer all = { 0 };
    bool in_pieces, ok;
    if (!spells(e, said, &in_pieces)) return false;
    if (in_pieces) {
        return add(e, f->before, strlen(f->before), true, t) && add(e, said.text, said.n, false, t) &&
               add(e, f->behind, strlen(f->behind), true, t);
    }
    ok = cli_buffer_add(&all, f->before, strlen(f->before)) && cli_buffer_add(&all, said.text, said.n) &&
         cli_buffer_add(&all, f->behind, strlen(f->behind)) && add(e, all.data, all.n, true, t);
    cli_buffer_free(&all);
    return ok;
}

/* The template may spell it out itself. */
static void begin(const engine *e, tokens *t)
{
    llama_token bos = llama_vocab_bos(e->vocab);
    if (!llama_vocab_get_add_bos(e->vocab) || bos < 0 || (t->n > 0 && t->data[0] == bos)) return;
    memmove(t->data + 1, t->data, t->n * sizeof *t->data); /* add() leaves room for one */
    t->data[0] = bos;
    t->n++;
}

static int out_of_memory(const engine *e)
{
    cli_error(e->command, "out of memory for tokens");
    return CLI_ENGINE;
}

int template_tokens(const engine *e, const template_frame *frame, template_text said, bool start, llama_token **out,
                    uint32_t *n, uint32_t *n_behind)
{
    tokens t = { 0 }, behind = { 0 };
    bool ok = add_turn(e, frame, said, &t) && add(e, frame->behind, strlen(frame->behind), true, &behind);
    if (ok && start) begin(e, &t);
    *n_behind = behind.n;
    *out = t.data;
    *n = t.n;
    free(behind.data);
    return ok ? CLI_OK : out_of_memory(e);
}

static uint32_t common(const tokens *a, const tokens *b)
{
    uint32_t n = 0;
    while (n < a->n && n < b->n && a->data[n] == b->data[n]) n++;
    return n;
}

int template_fixed(const engine *e, const template_frame *frame, llama_token **out, uint32_t *n)
{
    static const char *const samples[] = { "a", "Why", "1", "\"", "\xc3\xa4", "\xe6\x97\xa5" };
    tokens fixed = { 0 };
    bool ok = add(e, frame->before, strlen(frame->before), true, &fixed);
    for (size_t i = 0; ok && i < sizeof samples / sizeof samples[0]; i++) {
        tokens t = { 0 };
        ok = add_turn(e, frame, (template_text){ samples[i], strlen(samples[i]) }, &t);
        if (ok) fixed.n = common(&fixed, &t);
        free(t.data);
    }
    if (ok) begin(e, &fixed);
    *out = fixed.data;
    *n = fixed.n;
    return ok ? CLI_OK : out_of_memory(e);
}

/* ---- A whole conversation ----------------------------------------------------------------------------- */

enum { WORD_ROOM = 40 };

static void mark(char *word, size_t i)
{
    snprintf(word, WORD_ROOM, "h2okvsMessage%zuSaysThis", i);
}

/* The same messages, with a word of their own in place of what is said; to be freed. */
static char *apply_marked(const char *text, template_talk talk, bool open)
{
    llama_chat_message *marked = calloc(talk.n, sizeof *marked);
    char (*word)[WORD_ROOM] = calloc(talk.n, sizeof *word), *all = NULL;
    for (size_t i = 0; marked && word && i < talk.n; i++) {
        mark(word[i], i);
        marked[i] = (llama_chat_message){ talk.message[i].role, word[i] };
    }
    if (marked && word) all = apply_to(text, marked, talk.n, open);
    free(marked);
    free(word);
    return all;
}

/* The template's text as it is meant, and what is said as plain text. False: no memory, or a message has no place. */
static bool add_in_pieces(const engine *e, const char *text, template_talk talk, bool open, tokens *t)
{
    char *all = apply_marked(text, talk, open), *from = all, word[WORD_ROOM];
    bool ok = all != NULL;
    for (size_t i = 0; ok && i < talk.n; i++) {
        const char *said = talk.message[i].content;
        char *at;
        mark(word, i);
        at = strstr(from, word);
        ok = at && add(e, from, (size_t)(at - from), true, t) && add(e, said, strlen(said), false, t);
        if (ok) from = at + strlen(word);
    }
    ok = ok && add(e, from, strlen(from), true, t);
    if (ok) begin(e, t);
    free(all);
    return ok;
}

/* As llama.cpp writes it, unless what is said spells out special tokens. */
static bool add_talk(const engine *e, const char *text, template_talk talk, bool open, tokens *t)
{
    bool in_pieces = false, ok = true;
    char *all;
    for (size_t i = 0; ok && !in_pieces && i < talk.n; i++) {
        const char *said = talk.message[i].content;
        ok = spells(e, (template_text){ said, strlen(said) }, &in_pieces);
    }
    if (!ok || in_pieces) return ok && add_in_pieces(e, text, talk, open, t);
    all = apply_to(text, talk.message, talk.n, open);
    ok = all && add(e, all, strlen(all), true, t);
    if (ok) begin(e, t);
    free(all);
    return ok;
}

/* How many tokens of the conversation are those of its first n messages. */
static uint32_t count_first(const engine *e, const char *text, template_talk talk, size_t n, const tokens *whole)
{
    tokens t = { 0 };
    uint32_t count = 0;
    if (n > 0 && add_talk(e, text, (template_talk){ talk.message, n }, false, &t)) count = common(whole, &t);
    free(t.data);
    return count;
}

static bool has_places(const char *text, template_talk talk)
{
    char *all = apply_to(text, talk.message, talk.n, true);
    bool ok = all != NULL;
    for (size_t i = 0; ok && i < talk.n; i++) ok = holds(all, talk.message[i].content);
    free(all);
    return ok;
}

int template_conversation(const engine *e, const char *text, template_talk talk, llama_token **out, uint32_t *n,
                          uint32_t *n_system, uint32_t *n_last)
{
    tokens t = { 0 };
    size_t system = 0;
    *out = NULL;
    *n = *n_system = *n_last = 0;
    if (!has_places(text, talk)) return CLI_MODEL;
    if (!add_talk(e, text, talk, true, &t)) {
        free(t.data);
        return CLI_ENGINE;
    }
    while (system < talk.n && strcmp(talk.message[system].role, "system") == 0) system++;
    *n_system = system < talk.n ? count_first(e, text, talk, system, &t) : 0;
    *n_last = t.n - count_first(e, text, talk, talk.n - 1, &t);
    *out = t.data;
    *n = t.n;
    return CLI_OK;
}
