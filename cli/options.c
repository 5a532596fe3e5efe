/*
 * options.c - the options of a command from one table, which parsing, --help and the tests all read.
 *
 *   table row  ->  struct option of getopt_long   (its val is the letter, or FIRST_LONG + row)
 *              ->  a line of --help
 *              ->  a field of the command's struct, at `offset`
 */
#include "cli.h"

#include <getopt.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

enum { FIRST_LONG = 256, MOST_OPTIONS = 64, LONGEST_NAME = 32 };

/* ---- Errors ------------------------------------------------------------------------------------------- */

static void report(const char *command, const char *kind, const char *format, va_list arguments)
{
    fprintf(stderr, "h2okv%s%s: %s", *command ? " " : "", command, kind);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
}

bool cli_error(const char *command, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    report(command, "", format, arguments);
    va_end(arguments);
    return false;
}

void cli_warn(const char *command, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    report(command, "warning: ", format, arguments);
    va_end(arguments);
}

/* ---- Values ------------------------------------------------------------------------------------------- */

bool cli_parse_count(const char *command, const char *option, const char *text, uint32_t min, uint32_t max,
                     uint32_t *out)
{
    char *end;
    unsigned long long value;
    bool digits = *text && strspn(text, "0123456789") == strlen(text);
    value = strtoull(text, &end, 10); /* ULLONG_MAX when it is too large, so past any range */
    if (!digits) {
        return cli_error(command, "%s '%s' is not a whole number from %" PRIu32 " to %" PRIu32, option, text,
                         min, max);
    }
    if (value < min || value > max) {
        return cli_error(command, "%s %s is out of range: %" PRIu32 " to %" PRIu32, option, text, min, max);
    }
    *out = (uint32_t)value;
    return true;
}

bool cli_parse_real(const char *command, const char *option, const char *text, double min, double max,
                    double *out)
{
    char *end;
    double value = strtod(text, &end);
    if (end == text || *end || !isfinite(value)) {
        return cli_error(command, "%s '%s' is not a number from %g to %g", option, text, min, max);
    }
    if (value < min || value > max) {
        return cli_error(command, "%s %s is out of range: %g to %g", option, text, min, max);
    }
    *out = value;
    return true;
}

static size_t count_names(const char *const *names)
{
    size_t n = 0;
    while (names[n]) n++;
    return n;
}

bool cli_parse_name(const char *command, const char *option, const char *text, const char *const *names,
                    uint32_t *out)
{
    char list[160] = "";
    const char *near = cli_nearest(text, names, count_names(names));
    for (uint32_t i = 0; names[i]; i++) {
        size_t used = strlen(list);
        if (strcmp(text, names[i]) == 0) {
            *out = i;
            return true;
        }
        snprintf(list + used, sizeof list - used, "%s%s", i ? ", " : "", names[i]);
    }
    if (near) return cli_error(command, "%s '%s' is unknown; did you mean '%s'?", option, text, near);
    return cli_error(command, "%s '%s' is unknown; choose from %s", option, text, list);
}

/* ---- Nearest names ------------------------------------------------------------------------------------ */

/* Damerau-Levenshtein distance (optimal string alignment) of words of at most LONGEST_NAME letters. */
static size_t distance(const char *a, const char *b)
{
    size_t d[LONGEST_NAME + 1][LONGEST_NAME + 1], n = strlen(a), m = strlen(b);
    for (size_t i = 0; i <= n; i++) d[i][0] = i;
    for (size_t j = 0; j <= m; j++) d[0][j] = j;
    for (size_t i = 1; i <= n; i++) {
        for (size_t j = 1; j <= m; j++) {
            size_t best = d[i - 1][j - 1] + (a[i - 1] != b[j - 1]);
            if (d[i - 1][j] + 1 < best) best = d[i - 1][j] + 1;
            if (d[i][j - 1] + 1 < best) best = d[i][j - 1] + 1;
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] &&
                d[i - 2][j - 2] + 1 < best) {
                best = d[i - 2][j - 2] + 1;
            }
            d[i][j] = best;
        }
    }
    return d[n][m];
}

const char *cli_nearest(const char *word, const char *const *names, size_t n)
{
    const char *near = NULL;
    size_t length = strlen(word), least = length / 3 + 1; /* a third of the letters may differ, and one */
    if (length < 2 || length > LONGEST_NAME) return NULL;
    if (least > 3) least = 3;
    for (size_t i = 0; i < n; i++) {
        size_t d = strlen(names[i]) > LONGEST_NAME ? SIZE_MAX : distance(word, names[i]);
        if (length >= 3 && strncmp(word, names[i], length) == 0) d = 1; /* --conf for --config */
        if (d <= least && (!near || d < least)) {
            near = names[i];
            least = d;
        }
    }
    return near;
}

/* ---- Parsing ------------------------------------------------------------------------------------------ */

typedef struct getopt_table {
    struct option longs[MOST_OPTIONS + 2];
    char letters[2 * MOST_OPTIONS + 4];
} getopt_table;

static void add_option(getopt_table *table, size_t *n, size_t *n_letters, const char *name, char letter,
                       bool has_value, int id)
{
    table->longs[(*n)++] = (struct option){ name, has_value ? required_argument : no_argument, NULL, id };
    if (!letter) return;
    table->letters[(*n_letters)++] = letter;
    if (has_value) table->letters[(*n_letters)++] = ':';
}

static void fill_table(getopt_table *table, const cli_command *command)
{
    size_t n = 0, n_letters = 0;
    memset(table, 0, sizeof *table);
    table->letters[n_letters++] = ':'; /* tell a missing value from an unknown option */
    for (size_t i = 0; i < command->n_options && n < MOST_OPTIONS; i++) {
        const cli_option *o = &command->options[i];
        int id = o->letter ? o->letter : FIRST_LONG + (int)i;
        if (o->kind != CLI_HEADING) {
            add_option(table, &n, &n_letters, o->name, o->letter, o->kind != CLI_FLAG, id);
        }
    }
    add_option(table, &n, &n_letters, "help", 'h', false, 'h');
}

static const cli_option *option_of(const cli_command *command, int id)
{
    if (id >= FIRST_LONG) return &command->options[id - FIRST_LONG];
    for (size_t i = 0; i < command->n_options; i++) {
        if (command->options[i].letter && command->options[i].letter == id) return &command->options[i];
    }
    return NULL;
}

static bool unknown_option(const cli_command *command, const getopt_table *table, const char *word)
{
    const char *names[MOST_OPTIONS + 1], *near;
    char name[64];
    size_t n = 0;
    if (strncmp(word, "--", 2) != 0) {
        return cli_error(command->name, "unknown option '-%c'; 'h2okv %s --help' lists them", optopt,
                         command->name);
    }
    snprintf(name, sizeof name, "%.*s", (int)strcspn(word + 2, "="), word + 2);
    for (; table->longs[n].name; n++) names[n] = table->longs[n].name;
    near = cli_nearest(name, names, n);
    if (near) return cli_error(command->name, "unknown option '--%s'; did you mean '--%s'?", name, near);
    return cli_error(command->name, "unknown option '--%s'; 'h2okv %s --help' lists them", name,
                     command->name);
}

/* `word` is the argument at which getopt_long stumbled, `id` its verdict. */
static bool refuse(const cli_command *command, const getopt_table *table, const char *word, int id)
{
    const cli_option *option = optopt ? option_of(command, optopt) : NULL;
    if (id == ':') return cli_error(command->name, "%s needs a value: %s", word, option ? option->value : "");
    if (option || (optopt == 'h' && strncmp(word, "--help=", 7) == 0)) {
        return cli_error(command->name, "--%s takes no value", option ? option->name : "help");
    }
    return unknown_option(command, table, word);
}

static bool add_text(const cli_command *command, const char *option, const char *text, cli_texts *out)
{
    if (out->n == CLI_MOST_TEXTS) {
        return cli_error(command->name, "%s is given more than %d times", option, CLI_MOST_TEXTS);
    }
    out->text[out->n++] = text;
    return true;
}

static bool set_option(const cli_command *command, const cli_option *o, const char *text, void *out)
{
    void *field = (char *)out + o->offset;
    char option[64];
    snprintf(option, sizeof option, "--%s", o->name);
    switch (o->kind) {
    case CLI_FLAG: *(bool *)field = true; return true;
    case CLI_TEXT: *(const char **)field = text; return true;
    case CLI_TEXTS: return add_text(command, option, text, field);
    case CLI_COUNT:
        return cli_parse_count(command->name, option, text, (uint32_t)o->min, (uint32_t)o->max, field);
    case CLI_REAL: return cli_parse_real(command->name, option, text, o->min, o->max, field);
    case CLI_NAME: return cli_parse_name(command->name, option, text, o->names, field);
    case CLI_HEADING: break;
    }
    return false;
}

bool cli_parse(const cli_command *command, int argc, char **argv, void *out, int *first, int *exit_code)
{
    getopt_table table;
    int id;
    fill_table(&table, command);
    opterr = 0; /* messages of our own, which know the nearest name */
    optind = 0; /* afresh */
    *exit_code = CLI_USAGE;
    while ((id = getopt_long(argc, argv, table.letters, table.longs, NULL)) != -1) {
        if (id == '?' || id == ':') return refuse(command, &table, argv[optind - 1], id);
        if (id == 'h') {
            cli_help(stdout, command);
            *exit_code = CLI_OK;
            return false;
        }
        if (!set_option(command, option_of(command, id), optarg, out)) return false;
    }
    *first = optind;
    *exit_code = CLI_OK;
    return true;
}

/* ---- Help --------------------------------------------------------------------------------------------- */

/* `text` at column `indent`; the first line stands there already. */
static void put_lines(FILE *out, const char *text, int indent)
{
    for (;;) {
        size_t n = strcspn(text, "\n");
        fprintf(out, "%.*s\n", (int)n, text);
        if (!text[n]) return;
        text += n + 1;
        fprintf(out, "%*s", indent, "");
    }
}

static void put_option(FILE *out, const cli_option *o)
{
    char left[64];
    int used = o->letter ? snprintf(left, sizeof left, "  -%c, --%s", o->letter, o->name)
                         : snprintf(left, sizeof left, "      --%s", o->name);
    if (o->value) snprintf(left + used, sizeof left - (size_t)used, " %s", o->value);
    fprintf(out, "%-24s ", left);
    put_lines(out, o->help, 25);
}

void cli_help(FILE *out, const cli_command *command)
{
    static const cli_option help = { .letter = 'h', .name = "help", .help = "this text" };
    fprintf(out, "usage: h2okv %s%s", command->name, *command->usage ? " " : "");
    put_lines(out, command->usage, 13 + (int)strlen(command->name) + 1);
    fprintf(out, "\n%s\n", command->about);
    if (command->n_options == 0 || command->options[0].kind != CLI_HEADING) fprintf(out, "\n");
    for (size_t i = 0; i < command->n_options; i++) {
        const cli_option *o = &command->options[i];
        if (o->kind == CLI_HEADING) {
            fprintf(out, "\n%s\n", o->help);
        } else {
            put_option(out, o);
        }
    }
    put_option(out, &help);
    fprintf(out, "\nexample:\n  %s\n", command->example);
}
