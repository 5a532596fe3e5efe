/* check.c - see check.h. */
#include "support/check.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static char context[512];

void check_context(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(context, sizeof context, format, arguments);
    va_end(arguments);
}

_Noreturn void check_failed(const char *file, int line, const char *what, const char *more)
{
    print_error("context: %s\n", context);
    print_error("%s: %s\n", what, more);
    _fail(file, line);
    abort(); /* _fail does not return, but does not say so */
}

void check_status(const char *file, int line, const char *what, int status, int expected)
{
    char more[64];
    if (status != expected) {
        snprintf(more, sizeof more, "status %d, expected %d", status, expected);
        check_failed(file, line, what, more);
    }
}

int check_close(double a, double b)
{
    return fabs(a - b) <= 1e-9 * fmax(fabs(a), fabs(b));
}
