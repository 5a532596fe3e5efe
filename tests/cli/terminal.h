/*
 * terminal.h - runs the built program h2okv in a pseudo-terminal, as people do.
 *
 *   terminal t = terminal_start("chat", "--json");
 *   terminal_wait(&t, PROMPT);
 *   terminal_type(&t, "Hello\r");
 */
#ifndef TEST_TERMINAL_H
#define TEST_TERMINAL_H

#include "program.h"

#include <sys/types.h>

#define PROMPT "\033[?2004h" /* the program asks the terminal to mark pasted text whenever it waits for a line */

typedef struct terminal {
    int fd;
    pid_t pid;
    char *text; /* all that it showed */
    size_t n, seen;
} terminal;

/* 80 columns of an xterm without colours, in UTF-8. */
#define terminal_start(...) terminal_start_list((const char *const[]){ __VA_ARGS__, NULL })
terminal terminal_start_list(const char *const *arguments);

void terminal_type(terminal *t, const char *bytes);

/* Waits until `text` has been shown, behind what was waited for before; what was shown in between and after that, up to
 * now. Fails the test after 120 s, or when the program ends before. */
const char *terminal_wait(terminal *t, const char *text);

/* Waits for the end; returns the exit code, or minus the signal that ended it. */
int terminal_end(terminal *t);
void terminal_free(terminal *t);

#endif
