/* term.c - the terminal: width, colours, a progress line; and this machine: clock, memory, processors. */
#ifdef __linux__
#define _GNU_SOURCE 1 /* sched_getaffinity */
#endif
#include "cli.h"

#include <math.h>
#ifdef __linux__
#include <sched.h>
#endif
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

bool cli_is_terminal(FILE *stream)
{
    return isatty(fileno(stream)) == 1;
}

int cli_width(FILE *stream)
{
    struct winsize size;
    if (ioctl(fileno(stream), TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
    return 80;
}

const char *cli_style(FILE *stream, enum cli_style style)
{
    static const char *const codes[CLI_STYLES] = {
        "\033[0m", "\033[1m", "\033[2m", "\033[32m", "\033[33m", "\033[31m", "\033[36m",
    };
    const char *no_color = getenv("NO_COLOR");
    const char *term = getenv("TERM");
    if ((no_color && *no_color) || (term && strcmp(term, "dumb") == 0) || !cli_is_terminal(stream)) return "";
    return codes[style];
}

double cli_seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

uint64_t cli_physical_memory(void)
{
    long pages = sysconf(_SC_PHYS_PAGES), size = sysconf(_SC_PAGESIZE);
    return pages > 0 && size > 0 ? (uint64_t)pages * (uint64_t)size : 0;
}

uint64_t cli_peak_memory(void)
{
    struct rusage usage;
    if (getrusage(RUSAGE_SELF, &usage)) return 0;
#ifdef __APPLE__
    return (uint64_t)usage.ru_maxrss; /* bytes there, KiB elsewhere */
#else
    return (uint64_t)usage.ru_maxrss * 1024;
#endif
}

/* Those the process is confined to, where the system says so: threads that share one wait for each other. */
uint32_t cli_cpus(void)
{
    long n = sysconf(_SC_NPROCESSORS_ONLN);
#ifdef __linux__
    cpu_set_t allowed;
    if (sched_getaffinity(0, sizeof allowed, &allowed) == 0) n = CPU_COUNT(&allowed);
#endif
    return n > 0 ? (uint32_t)n : 1;
}

static void put_time(char *out, size_t size, double seconds)
{
    if (seconds < 60) {
        snprintf(out, size, "%.0f s", seconds);
    } else if (seconds < 3600) {
        snprintf(out, size, "%.0f min %02.0f s", floor(seconds / 60), floor(fmod(seconds, 60)));
    } else {
        snprintf(out, size, "%.0f h %02.0f min", floor(seconds / 3600), floor(fmod(seconds, 3600) / 60));
    }
}

void cli_progress_text(char *out, size_t size, int width, const char *label, uint64_t done, uint64_t total,
                       double elapsed)
{
    char text[160], left[40] = "", count[32], all[32], bar[48];
    double speed = elapsed > 0 ? (double)done / elapsed : 0;
    int room;
    if (speed > 0 && done < total) put_time(left, sizeof left, (double)(total - done) / speed);
    snprintf(text, sizeof text, "%s/%s  %.0f tok/s%s%s%s", cli_thousands(count, done),
             cli_thousands(all, total), speed, *left ? "  " : "", left, *left ? " left" : "");
    room = width - (int)strlen(label) - 52; /* the longest text, so that the bar keeps its length */
    if (room > 40) room = 40;
    if (room < 8) { /* too narrow for a bar */
        snprintf(out, size, "%s %s", label, text);
    } else {
        cli_bar(bar, room, (double)done, (double)total);
        snprintf(out, size, "%s [%-*s] %s", label, room, bar, text);
    }
    if (width > 0 && strlen(out) > (size_t)width) out[width] = '\0';
}

void cli_progress_start(cli_progress *p, const char *label, bool quiet)
{
    *p = (cli_progress){ .label = !quiet && cli_is_terminal(stderr) ? label : NULL, .start = cli_seconds() };
}

void cli_progress_show(cli_progress *p, uint64_t done, uint64_t total)
{
    char line[256];
    double now = cli_seconds();
    if (!p->label || (p->drawn > 0 && now - p->drawn < 0.1 && done < total)) return;
    p->drawn = now;
    cli_progress_text(line, sizeof line, cli_width(stderr) - 1, p->label, done, total, now - p->start);
    fprintf(stderr, "\r%s\033[K", line);
    fflush(stderr);
}

void cli_progress_end(cli_progress *p)
{
    if (p->label && p->drawn > 0) {
        fputs("\r\033[K", stderr);
        fflush(stderr);
    }
    p->label = NULL;
}
