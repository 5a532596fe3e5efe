/* status.c - status numbers as text, and the error struct that carries more. */
#include "h2okv/advanced.h"

#include <stdarg.h>
#include <stdio.h>

const char *h2okv_version(void)
{
    return H2OKV_VERSION;
}

const char *h2okv_strerror(int status)
{
    switch (status) {
#define STATUS_CASE(name, value, text) \
    case H2OKV_##name:                 \
        return text;
        H2OKV_STATUS_MAP(STATUS_CASE)
#undef STATUS_CASE
    default:
        return "unknown status";
    }
}

int h2okv_error_set(h2okv_error *error, int status, const char *field, const char *format, ...)
{
    if (error != NULL) {
        va_list arguments;
        va_start(arguments, format);
        error->status = status;
        snprintf(error->field, sizeof error->field, "%s", field);
        vsnprintf(error->text, sizeof error->text, format, arguments);
        va_end(arguments);
    }
    return status;
}
