/*
 * test_chat_pty.c - `h2okv chat` at a terminal: editing, history, pasted text, Ctrl-C, wide characters; and 200 turns
 * with flat memory.
 *
 * What was understood shows in the answer: it has to be, byte for byte, the one to the same lines from a pipe.
 */
#define _POSIX_C_SOURCE 200809L /* kill, clock_gettime */
#include "terminal.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define MODEL "-m", H2OKV_TEST_MODEL, "-t", "1"
#define TALK "chat", MODEL, "--temp", "0", "--ignore-eos", "-n", "8", "--budget", "128", "--ubatch", "64"
#define LINES TALK, "--json", "-q"
#define LEFT "\033[D"
#define UP "\033[A"
#define BACKSPACE "\177"
#define CTRL_C "\003"
#define CTRL_D "\004"

/* ---- The same as from a pipe -------------------------------------------------------------------------- */

/* The lines of keys, each ended by Enter when the program waits for one. */
static void type_lines(terminal *t, const char *keys)
{
    while (*keys) {
        size_t n = strcspn(keys, "\n");
        char line[8192];
        assert_true(n + 2 < sizeof line && keys[n] == '\n');
        snprintf(line, sizeof line, "%.*s\r", (int)n, keys);
        terminal_wait(t, PROMPT);
        terminal_type(t, line);
        keys += n + 1;
    }
}

/* The answers to these keys and to these lines are the same. */
static void expect_same(const char *keys, const char *lines)
{
    terminal t = terminal_start(LINES);
    program_result r = program_run_with((program_setup){ .input = lines }, LINES);
    const char *shown = t.text;
    size_t answers = 0;
    char *end;
    assert_int_equal(r.code, 0);
    type_lines(&t, keys);
    type_lines(&t, "/quit\n");
    terminal_wait(&t, "{\"type\":\"report\"");
    assert_int_equal(terminal_end(&t), 0);
    shown = t.text;
    for (char *line = r.out; strncmp(line, "{\"type\":\"answer\"", 16) == 0; line = end + 1) {
        end = strchr(line, '\n');
        *end = '\0';
        assert_contains(shown, line);
        shown = strstr(shown, line) + strlen(line);
        answers++;
    }
    assert_true(answers > 0);
    assert_int_equal(count_of(t.text, "{\"type\":\"answer\""), answers);
    terminal_free(&t);
    program_free(&r);
}

static void a_line_is_edited(void **state)
{
    (void)state;
    expect_same("Whp" BACKSPACE "o are yu" LEFT "o\005?\n", "Who are you?\n"); /* Ctrl-E: to the end */
}

static void wide_characters_are_edited(void **state)
{
    (void)state;
    expect_same("\xe6\x97\xa5\xe6\x9c\xac\xe8\xaa\x9e" LEFT BACKSPACE "\xc3\xa4\xf0\x9f\x98\x80\n",
                "\xe6\x97\xa5\xc3\xa4\xf0\x9f\x98\x80\xe8\xaa\x9e\n");
}

/* The cursor goes back over both columns of a wide character. */
static void wide_characters_have_two_columns(void **state)
{
    terminal t = terminal_start(LINES);
    (void)state;
    terminal_wait(&t, "> ");
    terminal_type(&t, "\xe6\x97\xa5\xe6\x9c\xac");
    terminal_wait(&t, "\xe6\x97\xa5\xe6\x9c\xac");
    terminal_type(&t, LEFT);
    terminal_wait(&t, "\b\b");
    terminal_type(&t, LEFT "x");
    assert_lacks(terminal_wait(&t, "x"), "\b\b\b");
    terminal_type(&t, CTRL_C);
    terminal_wait(&t, PROMPT);
    terminal_type(&t, CTRL_D);
    assert_int_equal(terminal_end(&t), 0);
    terminal_free(&t);
}

static void lines_come_back(void **state)
{
    (void)state;
    expect_same("Hello!\nAnd you?\n" UP UP "\n", "Hello!\nAnd you?\nHello!\n");
}

static void messages_of_many_lines(void **state)
{
    (void)state;
    expect_same("Red\\\nGreen\n\"\"\"\nBlue\n\"\"\"\n", "Red\\\nGreen\n\"\"\"\nBlue\n\"\"\"\n");
}

static void pasted_text_is_one_message(void **state)
{
    (void)state;
    expect_same("Colours: \033[200~Red\rGreen\rBlue\033[201~!\n", "\"\"\"\nColours: Red\nGreen\nBlue!\n\"\"\"\n");
    expect_same("\033[200~/undo\r\rnow\033[201~\nHello!\n", "\"\"\"\n/undo\n\nnow\n\"\"\"\nHello!\n"); /* and no command */
}

/* What is too long to be edited stands in the line by its name. */
static void long_pasted_text(void **state)
{
    static char keys[4096] = "See \033[200~", lines[4096] = "\"\"\"\nSee ";
    terminal t = terminal_start(LINES);
    (void)state;
    for (int i = 0; i < 12; i++) {
        strcat(keys, "a line\r");
        strcat(lines, "a line\n");
    }
    strcat(keys, "end\033[201~.");
    strcat(lines, "end.\n\"\"\"\n");
    terminal_wait(&t, PROMPT);
    terminal_type(&t, keys);
    terminal_wait(&t, "[paste 1: 13 lines, 87 characters].");
    terminal_type(&t, CTRL_C);
    terminal_wait(&t, PROMPT);
    terminal_type(&t, CTRL_D);
    assert_int_equal(terminal_end(&t), 0);
    terminal_free(&t);
    strcat(keys, "\n");
    expect_same(keys, lines);
}

/* ---- Ctrl-C ------------------------------------------------------------------------------------------- */

static void ctrl_c_stops_the_answer(void **state)
{
    terminal t = terminal_start("chat", MODEL, "--temp", "0", "--ignore-eos", "-n", "100000");
    (void)state;
    for (int i = 0; i < 3; i++) {
        terminal_wait(&t, PROMPT);
        terminal_type(&t, "Tell me a story.\r");
        terminal_wait(&t, "\r\n"); /* the line's end; what follows is the answer */
        terminal_wait(&t, "e");
        terminal_type(&t, CTRL_C);
        terminal_wait(&t, "(stopped)");
    }
    terminal_wait(&t, PROMPT);
    terminal_type(&t, "/quit\r");
    terminal_wait(&t, "  turns    3; ");
    assert_int_equal(terminal_end(&t), 0);
    terminal_free(&t);
}

/* A message that is being read is taken back. */
static void ctrl_c_while_reading(void **state)
{
    enum { WORDS = 4000 };
    static char keys[6 * WORDS + 32] = "\033[200~";
    terminal t = terminal_start(TALK);
    (void)state;
    for (int i = 0; i < WORDS; i++) memcpy(keys + 6 + 6 * i, "apple ", 7);
    strcat(keys, "\033[201~\r");
    terminal_wait(&t, PROMPT);
    terminal_type(&t, keys);
    terminal_wait(&t, "\033[?2004l");
    terminal_wait(&t, "tok/s"); /* progress */
    terminal_type(&t, CTRL_C);
    terminal_wait(&t, "(stopped: the message is taken back)");
    terminal_wait(&t, PROMPT);
    terminal_type(&t, "Hello!\r");
    terminal_wait(&t, "(-n reached)");
    terminal_type(&t, "/quit\r");
    terminal_wait(&t, "  turns    1; ");
    assert_int_equal(terminal_end(&t), 0);
    terminal_free(&t);
}

static void ctrl_c_twice_ends(void **state)
{
    terminal t = terminal_start(TALK);
    (void)state;
    terminal_wait(&t, PROMPT);
    terminal_type(&t, "not sent");
    terminal_wait(&t, "not sent");
    terminal_type(&t, CTRL_C); /* of a line: it is given up, and that does not count */
    terminal_wait(&t, PROMPT);
    terminal_type(&t, CTRL_C);
    terminal_wait(&t, "(Ctrl-C again, Ctrl-D or /quit ends the conversation)");
    terminal_wait(&t, PROMPT);
    terminal_type(&t, "Hello!\r"); /* nor does that, with a message in between */
    terminal_wait(&t, "(-n reached)");
    for (int i = 0; i < 2; i++) {
        terminal_wait(&t, PROMPT);
        terminal_type(&t, CTRL_C);
    }
    terminal_wait(&t, "  turns    1; ");
    assert_int_equal(terminal_end(&t), 130);
    terminal_free(&t);
}

static void sigterm_ends(void **state)
{
    terminal t = terminal_start(TALK);
    (void)state;
    terminal_wait(&t, PROMPT);
    kill(t.pid, SIGTERM);
    terminal_wait(&t, "  turns    0; ");
    assert_int_equal(terminal_end(&t), 130);
    terminal_free(&t);
}

/* At a terminal a mistake does not end the conversation. */
static void mistakes_are_told(void **state)
{
    terminal t = terminal_start(TALK);
    (void)state;
    terminal_wait(&t, PROMPT);
    terminal_type(&t, "/undo\r");
    terminal_wait(&t, "/undo: nothing has been said yet");
    terminal_wait(&t, PROMPT);
    terminal_type(&t, "/stat\r");
    terminal_wait(&t, "unknown command '/stat'; did you mean '/stats'?");
    terminal_wait(&t, PROMPT);
    terminal_type(&t, CTRL_D);
    assert_int_equal(terminal_end(&t), 0);
    terminal_free(&t);
}

/* ---- For hours ---------------------------------------------------------------------------------------- */

/* Memory that the process has now, in KiB. */
static long memory_of(pid_t pid)
{
    char path[64], line[256];
    long kib = -1;
    FILE *file;
    snprintf(path, sizeof path, "/proc/%d/status", (int)pid);
    file = fopen(path, "r");
    assert_non_null(file);
    while (fgets(line, sizeof line, file)) {
        if (sscanf(line, "VmRSS: %ld kB", &kib) == 1) break;
    }
    fclose(file);
    assert_true(kib > 0);
    return kib;
}

static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static long number_of(const char *text, const char *key)
{
    const char *at = strstr(text, key);
    if (!at) fail_msg("no %s in %s", key, text);
    return strtol(at + strlen(key), NULL, 10);
}

static void two_hundred_turns(void **state)
{
    enum { TURNS = 200, EARLY = 20, BOUND_KIB = 1024 };
    terminal t = terminal_start(LINES, "--system", "You answer in one short sentence.");
    double first_s = 0, last_s = 0;
    long early = 0, late;
    const char *report;
    (void)state;
    for (int turn = 1; turn <= TURNS; turn++) {
        char message[64];
        double start;
        terminal_wait(&t, PROMPT);
        if (turn == EARLY + 1) early = memory_of(t.pid);
        snprintf(message, sizeof message, "What do you know of the number %d?\r", turn);
        start = seconds();
        terminal_type(&t, message);
        terminal_wait(&t, "\"stopped\":\"limit\"");
        if (turn > 5 && turn <= 15) first_s += seconds() - start;
        if (turn > TURNS - 10) last_s += seconds() - start;
    }
    terminal_wait(&t, PROMPT);
    late = memory_of(t.pid);
    terminal_type(&t, "/quit\r");
    report = terminal_wait(&t, "{\"type\":\"report\"");
    assert_int_equal(terminal_end(&t), 0);
    report = strstr(t.text, "{\"type\":\"report\"");
    assert_int_equal(number_of(report, "\"turns\":"), TURNS);
    assert_int_equal(number_of(report, "\"live\":"), 128);
    assert_true(number_of(report, "\"peak_live\":") <= 128 + 64);
    assert_true(number_of(report, "\"cells\":") <= 256);
    assert_true(number_of(report, "\"positions\":") > 20 * TURNS);
    printf("memory: %ld KiB after %d turns, %ld KiB after %d; ten turns: %.2f s from the 6th, %.2f s at the end\n", early,
           EARLY, late, TURNS, first_s, last_s);
    if (late > early + BOUND_KIB) fail_msg("memory grew by %ld KiB", late - early);
    terminal_free(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_line_is_edited),
        cmocka_unit_test(wide_characters_are_edited),
        cmocka_unit_test(wide_characters_have_two_columns),
        cmocka_unit_test(lines_come_back),
        cmocka_unit_test(messages_of_many_lines),
        cmocka_unit_test(pasted_text_is_one_message),
        cmocka_unit_test(long_pasted_text),
        cmocka_unit_test(ctrl_c_stops_the_answer),
        cmocka_unit_test(ctrl_c_while_reading),
        cmocka_unit_test(ctrl_c_twice_ends),
        cmocka_unit_test(sigterm_ends),
        cmocka_unit_test(mistakes_are_told),
        cmocka_unit_test(two_hundred_turns),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
