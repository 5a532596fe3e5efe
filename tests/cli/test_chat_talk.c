/*
 * test_chat_talk.c - a conversation in the cache, seen from inside: what is pinned stays, what was taken back is gone,
 * the history is bounded. On the default model, in this process.
 */
#include "llama/talk.h"

#include "program.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BUDGET = 64, NEW = 8 };

static engine loaded;
static chat_template chatml;
static chat_options options;
static talk t;
static cli_buffer said;
static int stop_after; /* pieces of an answer until Ctrl-C; 0: never */

static int start(void **state)
{
    (void)state;
    signal(SIGINT, SIG_DFL); /* whatever the caller of the tests had set */
    cli_catch_signals();
    cli_go_on_after_interrupts();
    if (engine_load(&loaded, "chat", H2OKV_TEST_MODEL, false, false)) return -1;
    return template_make("chat", "chatml", "Be brief.", &chatml);
}

static int end(void **state)
{
    (void)state;
    template_free(&chatml);
    cli_buffer_free(&said);
    engine_free(&loaded);
    return 0;
}

static int take(void *user, const char *text, size_t n)
{
    (void)user;
    if (stop_after > 0 && --stop_after == 0) raise(SIGINT);
    return cli_buffer_add(&said, text, n) ? CLI_OK : CLI_ENGINE;
}

static void begin_with(uint32_t budget, uint32_t n_new)
{
    options = (chat_options){ .recent = CACHE_AUTO };
    run_defaults(&options.run, "chat");
    options.run.n_new = n_new;
    options.run.ignore_eos = options.run.quiet = true;
    options.run.cache.budget = budget;
    options.run.cache.ubatch = 16;
    options.run.threads = 1;
    assert_true(run_check_settings(&options.run));
    assert_int_equal(engine_attach(&loaded, &options.run.cache, 1), 0);
    assert_int_equal(talk_start(&t, &options, &loaded, &chatml, "Be brief."), 0);
    t.put = take;
}

static void begin(uint32_t n_new)
{
    begin_with(BUDGET, n_new);
}

static void finish(void)
{
    talk_free(&t);
    h2okv_llama_free(loaded.h);
    loaded.h = NULL;
}

static talk_answer say(const char *text)
{
    talk_answer a;
    said.n = 0;
    assert_int_equal(talk_say(&t, (template_text){ text, strlen(text) }, &a), 0);
    return a;
}

static int32_t next(void)
{
    return h2okv_llama_next_pos(loaded.h);
}

static uint32_t live(void)
{
    h2okv_llama_stats s;
    h2okv_llama_get_stats(loaded.h, &s);
    return s.cache.live;
}

/* Every lane holds every token of the system prompt. */
static void expect_system_kept(void)
{
    const h2okv_cache *cache = h2okv_llama_cache(loaded.h);
    h2okv_llama_stats s;
    h2okv_llama_get_stats(loaded.h, &s);
    assert_true(t.n_system >= 8);
    for (uint32_t lane = 0; lane < s.lanes; lane++) {
        int32_t pos[BUDGET + 16];
        assert_true(h2okv_cache_kept(cache, lane, pos, NULL, NULL) >= t.n_system);
        for (uint32_t i = 0; i < t.n_system; i++) assert_int_equal(pos[i], i);
    }
}

/* ---- What stays --------------------------------------------------------------------------------------- */

static void the_system_prompt_stays(void **state)
{
    (void)state;
    begin(NEW);
    for (int i = 0; i < 12; i++) {
        say("What do you know of the number 7?");
        expect_system_kept();
    }
    assert_int_equal(live(), BUDGET);
    assert_int_equal(talk_clear(&t), 0);
    assert_int_equal(live(), t.n_system);
    for (int i = 0; i < 12; i++) say("What do you know of the number 7?");
    expect_system_kept(); /* pinned anew */
    finish();
}

/* A cut that reaches past what the cache holds: the system prompt and the turns are read again. */
static void after_reading_again_it_stays_too(void **state)
{
    int32_t before;
    (void)state;
    begin(BUDGET + 30);
    say("One.");
    before = next();
    say("Two.");
    assert_int_equal(t.history.n, 2);
    assert_int_equal(talk_undo(&t), 0);
    assert_int_equal(t.history.n, 1);
    assert_int_equal(next(), before);
    expect_system_kept();
    assert_int_equal(live(), BUDGET);
    finish();
}

static void the_history_is_bounded(void **state)
{
    char text[64];
    (void)state;
    begin_with(512, 1); /* no turn is ever out of reach */
    for (int i = 0; i < HISTORY_TURNS + 5; i++) {
        snprintf(text, sizeof text, "%d?", i);
        say(text);
        assert_int_equal(t.history.n, i < HISTORY_TURNS ? i + 1 : HISTORY_TURNS);
    }
    assert_string_equal(t.history.turn[0].said, "5?");
    assert_string_equal(history_last(&t.history)->said, "20?");
    for (int i = 0; i < HISTORY_TURNS; i++) assert_int_equal(talk_undo(&t), 0);
    stderr_catch();
    assert_int_equal(talk_undo(&t), CLI_USAGE);
    assert_contains(stderr_caught(), "/undo: turns before the last 16 are no longer kept; /clear forgets them all");
    say("Hello!"); /* it goes on */
    assert_int_equal(t.history.n, 1);
    finish();
}

static void long_messages_shorten_the_history(void **state)
{
    history h = { .n = 0 };
    (void)state;
    for (int i = 0; i < 5; i++) {
        history_turn turn = { .said = calloc(1, 1), .n_said = HISTORY_BYTES / 2 - 10, .start = i };
        history_add(&h, turn);
    }
    assert_int_equal(h.n, 3); /* two of half the bytes, and the last one */
    assert_int_equal(h.dropped, 2);
    assert_int_equal(h.turn[0].start, 2);
    history_clear(&h);
    assert_int_equal(h.n, 0);
}

/* Near the end of the trained context it begins anew, with the turns that the budget holds. */
static void the_context_is_renewed(void **state)
{
    history_turn *turn;
    int32_t longest = 0;
    (void)state;
    begin(NEW);
    t.trained = 200;
    for (int i = 0; i < 30; i++) {
        say("Say it again, please.");
        expect_system_kept();
        turn = history_last(&t.history);
        assert_true(turn->start <= 175); /* seven eighths */
        longest = turn->start > longest ? turn->start : longest;
        for (uint32_t k = 1; k < t.history.n; k++) {
            turn = &t.history.turn[k];
            assert_int_equal(turn->start, turn[-1].reply + (int32_t)turn[-1].n_answer);
        }
    }
    assert_true(longest > 130);
    assert_true(t.history.n >= 2);
    assert_int_equal(t.history.n + t.history.dropped, 30);
    t.trained = 40; /* no turn fits half of this: the system prompt alone is left */
    options.run.quiet = false;
    stderr_catch();
    say("Hello!");
    assert_contains(stderr_caught(), "(the context that the model was trained for ends: going on from the last 0 turns)");
    assert_int_equal(history_last(&t.history)->start, t.n_system);
    options.past_context = true;
    for (int i = 0; i < 4; i++) say("Say it again, please.");
    assert_true(next() > 80);
    finish();
}

/* ---- What is taken back ------------------------------------------------------------------------------- */

static void positions_of_turns(void **state)
{
    int32_t start;
    history_turn *turn;
    talk_answer a;
    (void)state;
    begin(NEW);
    assert_int_equal(next(), t.n_system);
    a = say("Hello!");
    turn = history_last(&t.history);
    assert_int_equal(turn->start, t.n_system);
    assert_int_equal(turn->reply, turn->start + (int32_t)a.n_prompt);
    assert_int_equal(next(), turn->reply + NEW);
    assert_int_equal(turn->n_answer, NEW);
    start = next();
    say("And you?");
    turn = history_last(&t.history);
    assert_int_equal(turn->start, start);
    assert_int_equal(talk_regen(&t, &a), 0);
    assert_int_equal(next(), turn->reply + NEW);
    assert_int_equal(turn->start, start);
    assert_int_equal(talk_undo(&t), 0);
    assert_int_equal(next(), start);
    assert_int_equal(talk_undo(&t), 0);
    assert_int_equal(next(), t.n_system);
    finish();
}

/* What was written so far stays, and is in the cache to its last token. */
static void a_stopped_answer_stays(void **state)
{
    talk_answer a;
    (void)state;
    begin(1000);
    stop_after = 5;
    a = say("Hello!");
    assert_int_equal(a.stopped, STOP_INTERRUPT);
    assert_false(a.taken_back);
    assert_true(a.n_new >= 5 && a.n_new < 20);
    assert_int_equal(history_last(&t.history)->n_answer, a.n_new);
    assert_int_equal(next(), history_last(&t.history)->reply + (int32_t)a.n_new);
    assert_true(cli_take_interrupt());
    stop_after = 0;
    t.turn_options.n_new = NEW;
    finish();
}

/* Ctrl-C before the message is read, as if it came while it is. */
static void a_stopped_message_was_not_said(void **state)
{
    talk_answer a;
    int32_t before;
    (void)state;
    begin(NEW);
    raise(SIGINT);
    a = say("Hello!");
    assert_true(a.taken_back);
    assert_int_equal(next(), t.n_system);
    expect_system_kept();
    assert_int_equal(t.history.n, 0);
    assert_false(cli_interrupted());
    say("Hello!");
    before = next();
    raise(SIGINT);
    a = say("And you?");
    assert_true(a.taken_back);
    assert_int_equal(next(), before);
    assert_int_equal(t.history.n, 1);
    raise(SIGINT);
    assert_int_equal(talk_regen(&t, &a), 0); /* the message stays, without an answer */
    assert_false(a.taken_back);
    assert_int_equal(a.n_new, 0);
    assert_int_equal(next(), history_last(&t.history)->reply);
    assert_true(cli_take_interrupt());
    assert_int_equal(talk_regen(&t, &a), 0);
    assert_int_equal(next(), before);
    finish();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_system_prompt_stays),
        cmocka_unit_test(after_reading_again_it_stays_too),
        cmocka_unit_test(the_history_is_bounded),
        cmocka_unit_test(long_messages_shorten_the_history),
        cmocka_unit_test(the_context_is_renewed),
        cmocka_unit_test(positions_of_turns),
        cmocka_unit_test(a_stopped_answer_stays),
        cmocka_unit_test(a_stopped_message_was_not_said),
    };
    return cmocka_run_group_tests(tests, start, end);
}
