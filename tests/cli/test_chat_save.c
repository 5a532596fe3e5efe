/*
 * test_chat_save.c - /save and /load: a conversation goes on from a file as if nothing had been, and a file that will not
 * do changes nothing. On the default model, in this process.
 */
#include "llama/talk.h"

#include "program.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { BUDGET = 96, NEW = 24 };

static engine loaded;
static chat_template chatml, bare;
static chat_options options;
static talk t;
static cli_buffer said;
static char folder[] = "/tmp/h2okv-chat-XXXXXX", file[64], other[64];

static int take(void *user, const char *text, size_t n)
{
    (void)user;
    return cli_buffer_add(&said, text, n) ? CLI_OK : CLI_ENGINE;
}

static int start(void **state)
{
    (void)state;
    if (!mkdtemp(folder)) return -1;
    snprintf(file, sizeof file, "%s/talk", folder);
    snprintf(other, sizeof other, "%s/other", folder);
    if (engine_load(&loaded, "chat", H2OKV_TEST_MODEL, false, false)) return -1;
    if (template_make("chat", "chatml", "", &bare)) return -1;
    return template_make("chat", "chatml", "Be brief.", &chatml);
}

static int end(void **state)
{
    (void)state;
    remove(file);
    remove(other);
    rmdir(folder);
    template_free(&chatml);
    template_free(&bare);
    cli_buffer_free(&said);
    engine_free(&loaded);
    return 0;
}

static void begin(const chat_template *template, const char *system)
{
    options = (chat_options){ .recent = CACHE_AUTO };
    run_defaults(&options.run, "chat");
    options.run.n_new = NEW;
    options.run.quiet = options.run.ignore_eos = true;
    options.run.cache.budget = BUDGET;
    options.run.cache.ubatch = 16;
    options.run.threads = 1;
    assert_true(run_check_settings(&options.run));
    assert_int_equal(engine_attach(&loaded, &options.run.cache, 1), 0);
    assert_int_equal(talk_start(&t, &options, &loaded, template, system), 0);
    t.put = take;
}

static void finish(void)
{
    talk_free(&t);
    h2okv_llama_free(loaded.h);
    loaded.h = NULL;
}

/* What it answers; to be freed. */
static char *say(const char *text)
{
    talk_answer a;
    said.n = 0;
    assert_int_equal(talk_say(&t, (template_text){ text, strlen(text) }, &a), 0);
    return strdup(said.data);
}

static int32_t next(void)
{
    return h2okv_llama_next_pos(loaded.h);
}

static void talk_for_a_while(void)
{
    free(say("Tell me of the sea."));
    free(say("And of the mountains?"));
    free(say("And of rivers, lakes and ponds?"));
    assert_true(next() > BUDGET); /* some of it is evicted */
}

static cli_buffer bytes_of(const char *path)
{
    cli_buffer b = { 0 };
    FILE *f = fopen(path, "rb");
    char some[4096];
    size_t n;
    assert_non_null(f);
    while ((n = fread(some, 1, sizeof some, f)) > 0) assert_true(cli_buffer_add(&b, some, n));
    fclose(f);
    return b;
}

static void write_bytes(const char *path, const char *data, size_t n)
{
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(data, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
}

/* ---- There and back ----------------------------------------------------------------------------------- */

static void it_goes_on_as_if_nothing_had_been(void **state)
{
    char *at_once, *later, *elsewhere;
    int32_t at;
    (void)state;
    begin(&chatml, "Be brief.");
    talk_for_a_while();
    at = next();
    assert_int_equal(talk_save(&t, file), 0);
    assert_int_equal(next(), at);
    at_once = say("Which is the best?");
    assert_int_equal(talk_load(&t, file), 0);
    assert_int_equal(next(), at);
    later = say("Which is the best?");
    assert_string_equal(later, at_once);
    finish();
    begin(&bare, ""); /* another program, with another system prompt: the saved one comes with its own */
    assert_int_equal(talk_load(&t, file), 0);
    assert_string_equal(t.system, "Be brief.");
    assert_true(t.n_system >= 8);
    elsewhere = say("Which is the best?");
    assert_string_equal(elsewhere, at_once);
    finish();
    free(at_once);
    free(later);
    free(elsewhere);
}

static void turns_come_back_too(void **state)
{
    talk_answer a;
    char *again;
    (void)state;
    begin(&chatml, "Be brief.");
    talk_for_a_while();
    assert_int_equal(talk_save(&t, file), 0);
    said.n = 0;
    assert_int_equal(talk_regen(&t, &a), 0);
    again = strdup(said.data);
    assert_int_equal(talk_clear(&t), 0);
    assert_int_equal(talk_load(&t, file), 0);
    assert_int_equal(t.history.n, 3);
    said.n = 0;
    assert_int_equal(talk_regen(&t, &a), 0);
    assert_string_equal(said.data, again);
    assert_int_equal(talk_undo(&t), 0);
    assert_int_equal(t.history.n, 2);
    free(say("Go on."));
    finish();
    free(again);
}

static void the_budget_comes_back(void **state)
{
    (void)state;
    begin(&chatml, "Be brief.");
    assert_int_equal(talk_budget(&t, 64), 0);
    talk_for_a_while();
    assert_int_equal(talk_save(&t, file), 0);
    finish();
    begin(&chatml, "Be brief.");
    assert_int_equal(talk_load(&t, file), 0);
    assert_int_equal(t.turn_options.cache.budget, 64);
    free(say("Go on."));
    assert_true(h2okv_cache_live(h2okv_llama_cache(loaded.h)) <= 64);
    finish();
}

/* ---- What will not do --------------------------------------------------------------------------------- */

static void refused(const char *path, int code, const char *part)
{
    int32_t at = next();
    stderr_catch();
    assert_int_equal(talk_load(&t, path), code);
    assert_contains(stderr_caught(), part);
    assert_int_equal(next(), at);
    assert_int_equal(t.history.n, 3);
    assert_string_equal(t.system, "Be brief.");
}

static void a_file_that_will_not_do_changes_nothing(void **state)
{
    static const char *const notes[] = {
        "", "{}", "[1]", "{\"h2okv_chat\": 2, \"system\": \"\", \"template\": [], \"dropped\": 0, \"turns\": []}",
        "{\"h2okv_chat\": 1, \"system\": \"\", \"template\": [\"a\", \"b\", \"c\"], \"dropped\": 0, \"turns\": []}",
        "{\"h2okv_chat\": 1, \"system\": \"\", \"template\": [\"a\", \"b\", \"c\", \"d\"], \"dropped\": 0, \"turns\": "
        "[{\"said\": \"x\", \"answer\": [99999999], \"start\": 0, \"reply\": 3, \"last\": 1}]}",
        "{\"h2okv_chat\": 1, \"system\": \"\", \"template\": [\"a\", \"b\", \"c\", \"d\"], \"dropped\": 0, \"turns\": "
        "[{\"said\": \"x\", \"answer\": [1], \"start\": 5, \"reply\": 3, \"last\": 1}]}",
    };
    cli_buffer whole;
    char *before, *after;
    (void)state;
    begin(&chatml, "Be brief.");
    talk_for_a_while();
    assert_int_equal(talk_save(&t, file), 0);
    whole = bytes_of(file);
    for (size_t at = 9; at < whole.n; at += whole.n / 7) {
        whole.data[at] ^= 1;
        write_bytes(other, whole.data, whole.n);
        refused(other, CLI_INPUT, "/load ");
        whole.data[at] ^= 1;
    }
    write_bytes(other, whole.data, whole.n / 2);
    refused(other, CLI_INPUT, "is cut");
    refused("/nowhere/talk", CLI_INPUT, "No such file");
    for (size_t i = 0; i < sizeof notes / sizeof notes[0]; i++) {
        assert_int_equal(h2okv_llama_seq_save(loaded.h, 0, other, notes[i], strlen(notes[i])), 0);
        refused(other, CLI_INPUT, "no conversation of h2okv chat");
    }
    before = say("Which is the best?");
    assert_int_equal(talk_load(&t, file), 0); /* the good one is still good */
    after = say("Which is the best?");
    assert_string_equal(after, before);
    finish();
    free(before);
    free(after);
    cli_buffer_free(&whole);
}

static void other_files_are_not_written_over(void **state)
{
    cli_buffer kept;
    (void)state;
    begin(&chatml, "Be brief.");
    write_bytes(other, "my notes", 8);
    stderr_catch();
    assert_int_equal(talk_save(&t, other), CLI_INPUT);
    assert_contains(stderr_caught(), "holds something else than a conversation");
    kept = bytes_of(other);
    assert_string_equal(kept.data, "my notes");
    stderr_catch();
    assert_int_equal(talk_save(&t, "/"), CLI_INPUT);
    assert_contains(stderr_caught(), "/: cannot write: is a directory");
    stderr_catch();
    assert_int_equal(talk_save(&t, "/nowhere/talk"), CLI_INPUT);
    assert_contains(stderr_caught(), "/save /nowhere/talk: ");
    assert_int_equal(talk_save(&t, file), 0);
    assert_int_equal(talk_save(&t, file), 0); /* a conversation may be */
    finish();
    cli_buffer_free(&kept);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_goes_on_as_if_nothing_had_been),
        cmocka_unit_test(turns_come_back_too),
        cmocka_unit_test(the_budget_comes_back),
        cmocka_unit_test(a_file_that_will_not_do_changes_nothing),
        cmocka_unit_test(other_files_are_not_written_over),
    };
    return cmocka_run_group_tests(tests, start, end);
}
