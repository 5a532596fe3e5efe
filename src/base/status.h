/* status.h - the one way in which a function reports a failure with a text. */
#ifndef H2OKV_BASE_STATUS_H
#define H2OKV_BASE_STATUS_H

#include "h2okv/h2okv.h"

#if defined(__GNUC__)
#define H2OKV__PRINTF(text, first) __attribute__((format(printf, text, first)))
#else
#define H2OKV__PRINTF(text, first)
#endif

/* Fill `error` (may be NULL) and return `status`, so that a caller can write: return h2okv__fail(...). */
int h2okv__fail(h2okv_error *error, int status, const char *field, const char *format, ...) H2OKV__PRINTF(4, 5);

#endif
