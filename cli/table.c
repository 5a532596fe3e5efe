/* table.c - numbers, bars and tables of tokens for people. */
#include "cli.h"

#include <inttypes.h>
#include <string.h>

static const char *const group_names[] = { "heavy", "sink", "recent", "evicted" };
static const enum cli_style group_styles[] = { CLI_YELLOW, CLI_GREEN, CLI_CYAN, CLI_DIM };

const char *cli_group_name(enum cli_group group)
{
    return group_names[group];
}

void cli_bar(char *out, int width, double value, double most)
{
    int n = 0;
    if (value > 0 && most > 0) {
        n = (int)(value / most * width + 0.5);
        if (n < 1) n = 1;
        if (n > width) n = width;
    }
    memset(out, '#', (size_t)n);
    out[n] = '\0';
}

char *cli_ranges(char *out, size_t size, const int32_t *pos, size_t n)
{
    size_t used = 0;
    out[0] = '\0';
    for (size_t i = 0, last; i < n; i = last + 1) {
        char part[40];
        int length;
        for (last = i; last + 1 < n && pos[last + 1] == pos[last] + 1;) last++;
        length = last == i ? snprintf(part, sizeof part, "%s%" PRId32, i ? ", " : "", pos[i])
                           : snprintf(part, sizeof part, "%s%" PRId32 "..%" PRId32, i ? ", " : "", pos[i],
                                      pos[last]);
        if (used + (size_t)length + (last + 1 < n ? 5 : 0) >= size) {
            snprintf(out + used, size - used, "%s...", i ? ", " : "");
            break;
        }
        memcpy(out + used, part, (size_t)length + 1);
        used += (size_t)length;
    }
    return out;
}

void cli_print_tokens(FILE *out, const cli_token *tokens, size_t n, int bar_width)
{
    double most = 0;
    char bar[128];
    if (bar_width > (int)sizeof bar - 1) bar_width = (int)sizeof bar - 1;
    for (size_t i = 0; i < n; i++) most = tokens[i].score > most ? tokens[i].score : most;
    fprintf(out, "  token    score  %-*s group\n", bar_width, "");
    for (size_t i = 0; i < n; i++) {
        const cli_token *t = &tokens[i];
        const char *style = cli_style(out, group_styles[t->group]);
        cli_bar(bar, bar_width, t->score, most);
        fprintf(out, "  %5" PRId32 " %8.3f  %s%-*s %s%s%s%s\n", t->pos, t->score, style, bar_width, bar,
                cli_group_name(t->group), cli_style(out, CLI_PLAIN), t->note ? ", " : "",
                t->note ? t->note : "");
    }
}

char *cli_thousands(char *out, uint64_t value)
{
    char digits[24];
    int n = snprintf(digits, sizeof digits, "%" PRIu64, value), used = 0;
    for (int i = 0; i < n; i++) {
        if (i && (n - i) % 3 == 0) out[used++] = ',';
        out[used++] = digits[i];
    }
    out[used] = '\0';
    return out;
}

char *cli_bytes(char *out, uint64_t bytes)
{
    static const char *const units[] = { "B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB" };
    double value = (double)bytes;
    int unit = 0;
    for (; value >= 1024 && unit < 6; unit++) value /= 1024;
    snprintf(out, 32, unit ? "%.1f %s" : "%.0f %s", value, units[unit]);
    return out;
}
