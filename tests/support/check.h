/*
 * check.h - assertions that print what the test was doing: set the context (seed, options, step) as you go.
 * Includes what cmocka needs.
 */
#ifndef TEST_CHECK_H
#define TEST_CHECK_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

/* printf-like; printed when a check fails. */
void check_context(const char *format, ...) __attribute__((format(printf, 1, 2)));
_Noreturn void check_failed(const char *file, int line, const char *what, const char *more);

#define CHECK(condition)                                       \
    do {                                                       \
        if (!(condition)) {                                    \
            check_failed(__FILE__, __LINE__, #condition, ""); \
        }                                                      \
    } while (0)

/* For functions that return NULL or a text saying what is wrong. */
#define CHECK_RIGHT(call)                                       \
    do {                                                        \
        const char *check_wrong = (call);                       \
        if (check_wrong) {                                      \
            check_failed(__FILE__, __LINE__, #call, check_wrong); \
        }                                                       \
    } while (0)

#define CHECK_STATUS(call, expected) check_status(__FILE__, __LINE__, #call, (call), (expected))
#define CHECK_OK(call) CHECK_STATUS(call, 0)
void check_status(const char *file, int line, const char *what, int status, int expected);

/* Equal to 1e-9 relative. */
int check_close(double a, double b);

#endif
