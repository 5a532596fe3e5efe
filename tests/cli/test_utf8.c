/* test_utf8.c - whole characters from any pieces, and where a text is not UTF-8. */
#include "program.h"

#include "cli.h"

#include <string.h>

#define BAD CLI_REPLACEMENT

static const struct {
    const char *bytes, *whole;
    size_t bad; /* offset of the first byte that is wrong; SIZE_MAX: none */
} cases[] = {
    { "", "", SIZE_MAX },
    { "plain\n\t~\x7f", "plain\n\t~\x7f", SIZE_MAX },
    { "\xc3\xa9\xe2\x82\xac\xf0\x9f\x99\x82.", "\xc3\xa9\xe2\x82\xac\xf0\x9f\x99\x82.", SIZE_MAX },
    { "\xc2\x80\xdf\xbf\xe0\xa0\x80\xed\x9f\xbf", "\xc2\x80\xdf\xbf\xe0\xa0\x80\xed\x9f\xbf", SIZE_MAX }, /* edges */
    { "\xee\x80\x80\xf0\x90\x80\x80\xf4\x8f\xbf\xbf", "\xee\x80\x80\xf0\x90\x80\x80\xf4\x8f\xbf\xbf",
      SIZE_MAX },
    { "a\x80z", "a" BAD "z", 1 },                       /* a continuation alone */
    { "a\xff", "a" BAD, 1 },                            /* never a byte of UTF-8 */
    { "\xc0\xaf", BAD BAD, 0 },                         /* overlong */
    { "\xe0\x80\xaf", BAD BAD BAD, 0 },                 /* overlong */
    { "\xed\xa0\x80", BAD BAD BAD, 0 },                 /* a surrogate */
    { "\xf4\x90\x80\x80", BAD BAD BAD BAD, 0 },         /* past U+10FFFF */
    { "x\xe2\x82y", "x" BAD "y", 1 },                   /* broken off by another character */
    { "\xe2\x82\xc3\xa9", BAD "\xc3\xa9", 0 },          /* and by the start of the next */
    { "ok\xe2\x82", "ok", 2 },                          /* cut off at the end: held back */
    { "\xf0\x9f\x99", "", 0 },
};
enum { N_CASES = sizeof cases / sizeof cases[0] };

/* Feeds the bytes in pieces of `piece` and gathers what comes out. */
static const char *gather(const char *bytes, size_t piece)
{
    static char out[256];
    cli_utf8 u = { 0 };
    size_t n = strlen(bytes), used = 0;
    for (size_t i = 0; i < n; i += piece) {
        size_t part = n - i < piece ? n - i : piece;
        size_t wrote = cli_utf8_take(&u, bytes + i, part, out + used);
        assert_true(wrote <= CLI_UTF8_ROOM(part));
        used += wrote;
    }
    out[used] = '\0';
    return out;
}

static void pieces_give_whole_characters(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_CASES; i++) {
        for (size_t piece = 1; piece <= 5; piece++) assert_string_equal(gather(cases[i].bytes, piece), cases[i].whole);
    }
}

static void nothing_comes_out_before_it_is_whole(void **state)
{
    cli_utf8 u = { 0 };
    char out[CLI_UTF8_ROOM(1)];
    (void)state;
    assert_int_equal(cli_utf8_take(&u, "\xf0", 1, out), 0);
    assert_int_equal(cli_utf8_take(&u, "\x9f", 1, out), 0);
    assert_int_equal(cli_utf8_take(&u, "\x99", 1, out), 0);
    assert_int_equal(cli_utf8_take(&u, "\x82", 1, out), 4);
    assert_memory_equal(out, "\xf0\x9f\x99\x82", 4);
}

static void the_first_bad_byte(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_CASES; i++) {
        assert_int_equal(cli_utf8_bad(cases[i].bytes, strlen(cases[i].bytes)), cases[i].bad);
    }
    assert_int_equal(cli_utf8_bad("ab\0c", 4), 2); /* a NUL is valid UTF-8, and no text */
    assert_int_equal(cli_utf8_bad("\xe2\x82\xac", 2), 0); /* what lies past the end does not count */
}

/* Escape sequences lose what makes them one; other characters stay, whatever bytes they are made of. */
static void what_a_terminal_would_obey_is_taken_out(void **state)
{
    static const char *const tamed[][2] = {
        { "a\tb\nc", "a\tb\nc" },
        { "a\033[2Jb\rc\007\177", "a[2Jbc" },
        { "\xc2\x9b" "2J\xc2\x80\xc2\x9f", "2J" },
        { "\xc2\xa0\xc3\x9b\xe2\x82\x9b\xf0\x9f\x98\x80", "\xc2\xa0\xc3\x9b\xe2\x82\x9b\xf0\x9f\x98\x80" },
        { "", "" },
    };
    (void)state;
    for (size_t i = 0; i < sizeof tamed / sizeof tamed[0]; i++) {
        char text[64];
        size_t n = strlen(tamed[i][0]);
        memcpy(text, tamed[i][0], n);
        assert_int_equal(cli_utf8_tame(text, n), strlen(tamed[i][1]));
        assert_memory_equal(text, tamed[i][1], strlen(tamed[i][1]));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pieces_give_whole_characters),
        cmocka_unit_test(nothing_comes_out_before_it_is_whole),
        cmocka_unit_test(the_first_bad_byte),
        cmocka_unit_test(what_a_terminal_would_obey_is_taken_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
