/*
 * chat_edit.c - a line from a terminal, with libedit: editing, history, pasted text, Ctrl-C.
 *
 *   bytes -> read_character: whole characters, signals -> libedit -> a line, which may hold pasted ends of lines
 *
 * The terminal marks pasted text (ESC [ 200 ~ text ESC [ 201 ~) while it is asked to, so that an end of a line in it is
 * text and not Enter.
 */
#include "chat.h"

#include <histedit.h>
#include <locale.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <wchar.h>

enum { HISTORY_LINES = 200, CTRL_C = 3, MOST_PASTES = 16, SHORT_LINES = 8, SHORT_TEXT = 1000, NAME_ROOM = 96 };

typedef struct pasted {
    wchar_t *text;
    size_t n, room, lines;
} pasted;

struct chat_editor {
    EditLine *el;
    HistoryW *history;
    bool more;       /* the line goes on with a message */
    bool cancelled;  /* Ctrl-C in this line */
    bool warned;     /* that another Ctrl-C ends the conversation */
    bool stop;       /* it came */
    cli_buffer line; /* in UTF-8 */
    pasted paste[MOST_PASTES]; /* long ones: their names stand in the line */
    unsigned n_pastes;
};

static chat_editor *editor_of(EditLine *el)
{
    void *data = NULL;
    el_wget(el, EL_CLIENTDATA, &data);
    return data;
}

/* ---- Characters --------------------------------------------------------------------------------------- */

/* A signal came while nothing was typed. False: the input ends. */
static bool on_signal(EditLine *el, wchar_t *out)
{
    if (cli_terminated()) return false;
    if (cli_take_resize()) {
        el_wset(el, EL_PREP_TERM, 0); /* or it would take the terminal for prepared */
        el_wset(el, EL_PREP_TERM, 1);
        el_resize(el);
        fputs("\r\033[K", stdout); /* the row of the cursor: libedit draws from its beginning */
        el_wset(el, EL_REFRESH);
    }
    *out = cli_take_interrupt() ? CTRL_C : L'\0';
    return true;
}

static wchar_t decode(const char *bytes, size_t n)
{
    unsigned char lead = (unsigned char)bytes[0];
    wchar_t c = n == 1 ? lead : lead & (0x7f >> n);
    for (size_t i = 1; i < n; i++) c = (wchar_t)(c << 6 | (bytes[i] & 0x3f));
    return c;
}

/* libedit's source of characters: 1, or at the end 0. Bytes that are no UTF-8 become U+FFFD. */
static int read_character(EditLine *el, wchar_t *out)
{
    cli_utf8 u = { .n_held = 0 };
    char byte, whole[CLI_UTF8_ROOM(1)];
    size_t n = 0;
    while (n == 0) {
        if (!cli_wait_for_input(STDIN_FILENO)) {
            if (!on_signal(el, out)) return 0;
            if (*out) return 1;
        } else if (read(STDIN_FILENO, &byte, 1) != 1) {
            return 0;
        } else {
            n = cli_utf8_take(&u, &byte, 1, whole);
        }
    }
    *out = decode(whole, n);
    return 1;
}

/* ---- Keys --------------------------------------------------------------------------------------------- */

/* Ctrl-C: the line is given up; on an empty one the second time, the conversation. */
static unsigned char cancel(EditLine *el, wint_t key)
{
    chat_editor *e = editor_of(el);
    const LineInfoW *line = el_wline(el);
    bool empty = line->lastchar == line->buffer && !e->more;
    (void)key;
    e->cancelled = true;
    e->stop = empty && e->warned;
    e->warned = empty;
    el_cursor(el, (int)(line->lastchar - line->cursor));
    el_wpush(el, L"\n"); /* Enter: it leaves the cursor below the line */
    return CC_REFRESH;
}

/* ---- Pasted text --------------------------------------------------------------------------------------- */

static void forget_pastes(chat_editor *e)
{
    while (e->n_pastes > 0) free(e->paste[--e->n_pastes].text);
}

static bool add(pasted *p, wchar_t c)
{
    if (p->n + 1 >= p->room) {
        size_t room = p->room ? 2 * p->room : 1024;
        wchar_t *text = room * sizeof *text <= CHAT_MOST_BYTES ? realloc(p->text, room * sizeof *text) : NULL;
        if (!text) return false;
        p->text = text;
        p->room = room;
    }
    p->text[p->n++] = c;
    p->text[p->n] = L'\0';
    return true;
}

/* Takes the mark of the end off, if it is there. */
static bool ends(pasted *p)
{
    static const wchar_t mark[] = L"\033[201~";
    size_t n = sizeof mark / sizeof mark[0] - 1;
    if (p->n < n || wmemcmp(p->text + p->n - n, mark, n) != 0) return false;
    p->n -= n;
    p->text[p->n] = L'\0';
    return true;
}

/* Terminals paste CR, or CR LF, for an end of a line. */
static void mend_line_ends(pasted *p)
{
    size_t n = 0;
    p->lines = 1;
    for (size_t i = 0; i < p->n; i++) {
        wchar_t c = p->text[i];
        if (c == L'\r' && p->text[i + 1] == L'\n') continue;
        p->text[n++] = c == L'\r' ? L'\n' : c;
        p->lines += p->text[n - 1] == L'\n' && i + 1 < p->n;
    }
    p->n = n;
    if (p->text) p->text[n] = L'\0';
}

static void name_of(const chat_editor *e, unsigned i, wchar_t *name)
{
    swprintf(name, NAME_ROOM, L"[paste %u: %zu lines, %zu characters]", i + 1, e->paste[i].lines, e->paste[i].n);
}

/* What would not fit the terminal, which libedit cannot scroll back, is kept aside, and its name stands in the line. */
static bool insert(chat_editor *e, pasted *p)
{
    wchar_t name[NAME_ROOM];
    if (p->n == 0) return true;
    if (p->lines <= SHORT_LINES && p->n <= SHORT_TEXT) return el_winsertstr(e->el, p->text) == 0;
    if (e->n_pastes == MOST_PASTES) return false;
    e->paste[e->n_pastes++] = *p;
    *p = (pasted){ 0 };
    name_of(e, e->n_pastes - 1, name);
    return el_winsertstr(e->el, name) == 0;
}

static unsigned char paste(EditLine *el, wint_t key)
{
    pasted p = { 0 };
    wchar_t c;
    bool fits = true;
    (void)key;
    while (fits && !ends(&p) && el_wgetc(el, &c) == 1) fits = add(&p, c);
    mend_line_ends(&p);
    if (fits) fits = insert(editor_of(el), &p);
    free(p.text);
    return fits ? CC_REFRESH : CC_REFRESH_BEEP;
}

/* ---- Lines -------------------------------------------------------------------------------------------- */

/* What stands between two marks takes no room. */
static wchar_t *prompt(EditLine *el)
{
    static wchar_t text[32];
    const char *style = cli_style(stdout, CLI_BOLD), *sign = editor_of(el)->more ? "| " : "> ";
    if (*style) {
        swprintf(text, 32, L"\1%s\1%s\1%s\1", style, sign, cli_style(stdout, CLI_PLAIN));
    } else {
        swprintf(text, 32, L"%s", sign);
    }
    return text;
}

static bool encode(cli_buffer *out, const wchar_t *text, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        unsigned long c = (unsigned long)text[i];
        char bytes[4];
        size_t k = c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
        bytes[0] = (char)(k == 1 ? c : (0xf00 >> k & 0xff) | c >> 6 * (k - 1));
        for (size_t j = 1; j < k; j++) bytes[j] = (char)(0x80 | (c >> 6 * (k - 1 - j) & 0x3f));
        if (!cli_buffer_add(out, bytes, k)) return false;
    }
    return true;
}

/* The paste whose name stands at `at`, or NULL; *n characters of name. */
static const pasted *paste_at(const chat_editor *e, const wchar_t *at, size_t *n)
{
    for (unsigned i = 0; *at == L'[' && i < e->n_pastes; i++) {
        wchar_t name[NAME_ROOM];
        name_of(e, i, name);
        *n = wcslen(name);
        if (wcsncmp(at, name, *n) == 0) return &e->paste[i];
    }
    return NULL;
}

/* The line with what its names stand for. */
static bool expand(chat_editor *e, const wchar_t *line, size_t n)
{
    e->line.n = 0;
    for (size_t i = 0, length; i < n; i += length) {
        const pasted *p = paste_at(e, line + i, &length);
        if (!p) length = 1;
        if (!(p ? encode(&e->line, p->text, p->n) : encode(&e->line, line + i, 1))) return false;
    }
    return true;
}

static const wchar_t *ask(chat_editor *e, int *n)
{
    const wchar_t *line;
    el_wset(e->el, EL_PREP_TERM, 1); /* before the terminal is told, so that no mark is echoed */
    fputs("\033[?2004h", stdout);
    fflush(stdout);
    line = el_wgets(e->el, n);
    fputs("\033[?2004l", stdout);
    if (!line) fputc('\n', stdout);
    fflush(stdout);
    return line;
}

static void remember(chat_editor *e, const wchar_t *line)
{
    HistEventW event;
    history_w(e->history, &event, H_ENTER, line);
}

static enum chat_read give_up(const chat_editor *e)
{
    if (e->stop) return CHAT_STOP;
    if (e->warned) fputs("(Ctrl-C again, Ctrl-D or /quit ends the conversation)\n", stdout);
    return CHAT_DROPPED;
}

enum chat_read chat_edit_line(chat_editor *e, bool more, const char **text, size_t *n)
{
    const wchar_t *line;
    int length = 0;
    e->more = more;
    e->cancelled = false;
    forget_pastes(e);
    line = ask(e, &length);
    if (cli_terminated()) return CHAT_STOP;
    if (e->cancelled) return give_up(e);
    if (!line || length < 1) return CHAT_END;
    e->warned = false;
    if (!expand(e, line, (size_t)length)) {
        cli_error("chat", "out of memory for the line");
        return CHAT_BAD;
    }
    if (length > 1 && e->n_pastes == 0) remember(e, line);
    *text = e->line.data;
    *n = e->line.n;
    return CHAT_MESSAGE;
}

/* ---- The beginning and the end ------------------------------------------------------------------------ */

/* libedit asks the locale how wide a character is, and puts characters out in its encoding. */
static void use_utf8(void)
{
    const char *names[] = { "", "C.UTF-8", "en_US.UTF-8" };
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (setlocale(LC_CTYPE, names[i]) && MB_CUR_MAX > 1) return;
    }
}

static void set_up(chat_editor *e)
{
    EditLine *el = e->el;
    HistEventW event;
    el_wset(el, EL_CLIENTDATA, e);
    el_wset(el, EL_PROMPT_ESC, prompt, L'\1');
    el_wset(el, EL_EDITOR, L"emacs");
    el_wset(el, EL_SIGNAL, 0);
    el_wset(el, EL_GETCFN, read_character);
    el_wset(el, EL_HIST, history_w, e->history);
    el_wset(el, EL_ADDFN, L"h2okv-cancel", L"Give the line up", cancel);
    el_wset(el, EL_ADDFN, L"h2okv-paste", L"Insert pasted text", paste);
    el_source(el, NULL); /* ~/.editrc */
    el_wset(el, EL_BIND, L"^C", L"h2okv-cancel", NULL);
    el_wset(el, EL_BIND, L"\\e[200~", L"h2okv-paste", NULL);
    history_w(e->history, &event, H_SETSIZE, HISTORY_LINES);
    history_w(e->history, &event, H_SETUNIQUE, 1);
}

chat_editor *chat_editor_open(void)
{
    chat_editor *e;
    if (!cli_is_terminal(stdin) || !cli_is_terminal(stdout)) return NULL;
    e = calloc(1, sizeof *e);
    if (!e) return NULL;
    use_utf8();
    e->el = el_init("h2okv", stdin, stdout, stderr);
    e->history = history_winit();
    if (e->el && e->history) {
        set_up(e);
        return e;
    }
    chat_editor_close(e);
    return NULL;
}

void chat_editor_close(chat_editor *e)
{
    if (!e) return;
    if (e->el) el_end(e->el);
    if (e->history) history_wend(e->history);
    forget_pastes(e);
    cli_buffer_free(&e->line);
    free(e);
}
