/*
 * test_queue.c - jobs between two threads, the queue of h2okv serve, and the engine's numbers: in one thread every order
 * of letting go, then many connections against one engine (also under ThreadSanitizer, check.threads).
 */
#include "serve/serve.h"

#include "support/check.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

static serve_request *request(enum serve_kind kind)
{
    serve_request *r = calloc(1, sizeof *r);
    assert_non_null(r);
    r->kind = kind;
    r->prompt = strdup("text");
    r->stops[r->n_stops++] = strdup("stop");
    r->messages = calloc(1, sizeof *r->messages);
    r->messages[r->n_messages++] = (serve_message){ strdup("user"), strdup("hello"), 5 };
    return r;
}

static serve_job *job_until(enum serve_kind kind, double deadline)
{
    serve_job *job = serve_job_new(request(kind), deadline);
    assert_non_null(job);
    return job;
}

static serve_job *job_of(enum serve_kind kind)
{
    return job_until(kind, 0);
}

static serve_event *text(const char *words)
{
    serve_event *e = serve_event_new(SERVE_TEXT);
    assert_non_null(e);
    e->text = strdup(words);
    e->bytes = strlen(words);
    e->tokens = calloc(1, sizeof *e->tokens);
    e->n_tokens = 1;
    e->tokens[0].chosen.bytes = strdup(words);
    e->tokens[0].top[0].bytes = strdup(words);
    e->tokens[0].n_top = 1;
    return e;
}

static void expect_failed(serve_job *job, int status)
{
    serve_event *e = serve_job_wait(job, 0);
    assert_non_null(e);
    assert_int_equal(e->kind, SERVE_FAILED);
    assert_int_equal(e->status, status);
    assert_non_null(e->text);
    serve_event_free(e);
    assert_null(serve_job_wait(job, 60)); /* at once: there is no more */
}

/* ---- Jobs --------------------------------------------------------------------------------------------- */

static void events_come_in_their_order_and_end_once(void **state)
{
    serve_job *job = job_until(SERVE_CHAT, 12.5);
    serve_event *e;
    (void)state;
    assert_string_equal(serve_job_request(job)->messages[0].content, "hello");
    assert_true(serve_job_deadline(job) > 12.4 && serve_job_deadline(job) < 12.6);
    assert_null(serve_job_wait(job, 0));
    serve_job_tell(job, text("a"));
    serve_job_tell(job, text("b"));
    serve_job_tell(job, serve_event_new(SERVE_DONE));
    serve_job_tell(job, text("too late"));
    serve_job_tell(job, NULL);
    for (int i = 0; i < 2; i++) {
        e = serve_job_wait(job, 0);
        assert_string_equal(e->text, i ? "b" : "a");
        assert_null(e->next);
        serve_event_free(e);
    }
    e = serve_job_wait(job, 0);
    assert_int_equal(e->kind, SERVE_DONE);
    serve_event_free(e);
    assert_null(serve_job_wait(job, 60));
    serve_job_let_go(job);
    assert_null(serve_job_wait(job, 60));
    serve_job_leave(job);
}

static void either_side_goes_first(void **state)
{
    (void)state;
    for (int order = 0; order < 2; order++) {
        serve_job *job = job_of(SERVE_COMPLETION);
        serve_event *view = serve_event_new(SERVE_VIEW);
        view->view.tokens = calloc(2, sizeof *view->view.tokens);
        view->view.n = 2;
        view->view.tokens[1].bytes = strdup("x");
        serve_job_tell(job, view); /* never fetched */
        assert_false(serve_job_left(job));
        if (order) {
            serve_job_leave(job);
            assert_true(serve_job_left(job));
            serve_job_tell(job, text("nobody hears it"));
            serve_job_let_go(job);
        } else {
            serve_job_let_go(job);
            serve_job_leave(job);
        }
    }
}

static void an_engine_without_memory_or_without_an_end_has_failed(void **state)
{
    serve_job *job = job_of(SERVE_CHAT);
    (void)state;
    serve_job_tell(job, NULL);
    expect_failed(job, 500);
    serve_job_let_go(job);
    serve_job_leave(job);
    job = job_of(SERVE_CHAT);
    serve_job_let_go(job);
    expect_failed(job, 500);
    serve_job_leave(job);
}

/* ---- The queue ---------------------------------------------------------------------------------------- */

static void first_come_first_served_looks_before_all(void **state)
{
    serve_queue *q = serve_queue_new(3);
    serve_job *job[4], *look = job_of(SERVE_LOOK);
    (void)state;
    for (int i = 0; i < 4; i++) job[i] = job_of(SERVE_CHAT);
    for (int i = 0; i < 3; i++) assert_int_equal(serve_queue_put(q, job[i]), SERVE_QUEUED);
    assert_int_equal(serve_queue_put(q, job[3]), SERVE_FULL);
    serve_job_leave(job[3]); /* frees it: the queue has let go */
    assert_int_equal(serve_queue_put(q, look), SERVE_QUEUED); /* has room all the same */
    assert_int_equal(serve_queue_length(q), 3);
    assert_ptr_equal(serve_queue_take(q, 0, true), look);
    assert_null(serve_queue_take(q, 60, true));
    for (int i = 0; i < 3; i++) assert_ptr_equal(serve_queue_take(q, 0, false), job[i]);
    assert_null(serve_queue_take(q, 0, false));
    for (int i = 0; i < 3; i++) {
        serve_job_leave(job[i]);
        serve_job_let_go(job[i]);
    }
    serve_job_let_go(look);
    serve_job_leave(look);
    serve_queue_free(q);
}

static void those_that_left_hold_no_place(void **state)
{
    serve_queue *q = serve_queue_new(2);
    serve_job *job[4];
    (void)state;
    for (int i = 0; i < 4; i++) job[i] = job_of(SERVE_CHAT);
    assert_int_equal(serve_queue_put(q, job[0]), SERVE_QUEUED);
    assert_int_equal(serve_queue_put(q, job[1]), SERVE_QUEUED);
    serve_job_leave(job[1]); /* the last one */
    assert_int_equal(serve_queue_put(q, job[2]), SERVE_QUEUED);
    serve_job_leave(job[0]); /* the first one */
    assert_int_equal(serve_queue_length(q), 1);
    assert_int_equal(serve_queue_put(q, job[3]), SERVE_QUEUED);
    for (int i = 2; i < 4; i++) {
        assert_ptr_equal(serve_queue_take(q, 0, false), job[i]);
        serve_job_let_go(job[i]);
        serve_job_leave(job[i]);
    }
    serve_queue_free(q);
}

static void time_limits_pass_in_the_queue(void **state)
{
    serve_queue *q = serve_queue_new(4);
    serve_job *late = job_until(SERVE_CHAT, cli_seconds() - 1), *later = job_until(SERVE_CHAT, cli_seconds() + 3600);
    (void)state;
    assert_int_equal(serve_queue_put(q, late), SERVE_QUEUED);
    assert_int_equal(serve_queue_put(q, later), SERVE_QUEUED);
    assert_null(serve_queue_take(q, 0, true)); /* all slots busy: it is told nevertheless */
    expect_failed(late, 504);
    serve_job_leave(late);
    assert_ptr_equal(serve_queue_take(q, 0, false), later);
    serve_job_leave(later);
    serve_job_let_go(later);
    serve_queue_free(q);
}

static void a_stopped_queue_gives_what_it_has_and_takes_nothing(void **state)
{
    serve_queue *q = serve_queue_new(4);
    serve_job *job[3];
    (void)state;
    for (int i = 0; i < 3; i++) job[i] = job_of(SERVE_CHAT);
    assert_int_equal(serve_queue_put(q, job[0]), SERVE_QUEUED);
    assert_int_equal(serve_queue_put(q, job[1]), SERVE_QUEUED);
    assert_false(serve_queue_stopping(q));
    serve_queue_stop(q);
    assert_true(serve_queue_stopping(q));
    assert_int_equal(serve_queue_put(q, job[2]), SERVE_STOPPING);
    serve_job_leave(job[2]);
    assert_ptr_equal(serve_queue_take(q, 60, false), job[0]);
    serve_job_let_go(job[0]);
    serve_job_leave(job[0]);
    serve_queue_free(q);
    expect_failed(job[1], 503);
    serve_job_leave(job[1]);
    q = serve_queue_new(4);
    serve_queue_stop(q);
    assert_null(serve_queue_take(q, 60, false)); /* at once */
    serve_queue_free(q);
    serve_queue_free(NULL);
}

/* ---- Threads ------------------------------------------------------------------------------------------ */

enum { CONNECTIONS = 4, JOBS = 200 };

typedef struct place {
    serve_queue *q;
    serve_stats *stats;
    unsigned heard, refused;
} place;

/* Sends its jobs one by one; every seventh client leaves before the end. */
static void *connection(void *user)
{
    place *p = user;
    serve_numbers n;
    for (int i = 0; i < JOBS; i++) {
        serve_job *job = job_of(i % 5 == 4 ? SERVE_LOOK : SERVE_CHAT);
        enum serve_event_kind last = SERVE_TEXT;
        if (serve_queue_put(p->q, job) != SERVE_QUEUED) {
            p->refused++;
            serve_job_leave(job);
            continue;
        }
        for (int k = 0; last != SERVE_DONE && !(i % 7 == 6 && k == 1); k++) {
            serve_event *e = serve_job_wait(job, 30);
            CHECK(e != NULL);
            last = e->kind;
            serve_event_free(e);
        }
        serve_job_leave(job);
        serve_stats_get(p->stats, &n);
        CHECK(n.requests == n.new_tokens); /* whole, never half of two */
        p->heard++;
    }
    return NULL;
}

static void *engine(void *user)
{
    place *p = user;
    serve_numbers n = { .n_slots = 1 };
    for (;;) {
        serve_job *job = serve_queue_take(p->q, 0.05, false);
        if (!job && serve_queue_stopping(p->q)) return NULL;
        if (!job) continue;
        for (int i = 0; i < 3 && !serve_job_left(job); i++) serve_job_tell(job, text("word "));
        serve_job_tell(job, serve_event_new(SERVE_DONE));
        serve_job_let_go(job);
        n.requests++;
        n.new_tokens++;
        serve_stats_set(p->stats, &n);
    }
}

static void many_connections_one_engine(void **state)
{
    serve_queue *q = serve_queue_new(2);
    serve_stats *stats = serve_stats_new(1);
    place p[CONNECTIONS + 1];
    pthread_t thread[CONNECTIONS + 1];
    unsigned heard = 0, refused = 0;
    (void)state;
    for (int i = 0; i <= CONNECTIONS; i++) {
        p[i] = (place){ .q = q, .stats = stats };
        CHECK(pthread_create(&thread[i], NULL, i < CONNECTIONS ? connection : engine, &p[i]) == 0);
    }
    for (int i = 0; i < CONNECTIONS; i++) {
        pthread_join(thread[i], NULL);
        heard += p[i].heard;
        refused += p[i].refused;
    }
    serve_queue_stop(q);
    pthread_join(thread[CONNECTIONS], NULL);
    assert_int_equal(heard + refused, CONNECTIONS * JOBS);
    assert_true(heard > 0);
    serve_stats_free(stats);
    serve_queue_free(q);
}

static void numbers_start_at_zero(void **state)
{
    serve_stats *s = serve_stats_new(3), *many = serve_stats_new(100000);
    serve_numbers n = { .n_slots = 77 };
    (void)state;
    serve_stats_get(s, &n);
    assert_int_equal(n.n_slots, 3);
    assert_int_equal(n.requests, 0);
    serve_stats_get(many, &n);
    assert_int_equal(n.n_slots, SERVE_MOST_SLOTS);
    serve_stats_free(s);
    serve_stats_free(many);
    serve_stats_free(NULL);
    serve_event_free(NULL);
    serve_request_free(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(events_come_in_their_order_and_end_once),
        cmocka_unit_test(either_side_goes_first),
        cmocka_unit_test(an_engine_without_memory_or_without_an_end_has_failed),
        cmocka_unit_test(first_come_first_served_looks_before_all),
        cmocka_unit_test(those_that_left_hold_no_place),
        cmocka_unit_test(time_limits_pass_in_the_queue),
        cmocka_unit_test(a_stopped_queue_gives_what_it_has_and_takes_nothing),
        cmocka_unit_test(many_connections_one_engine),
        cmocka_unit_test(numbers_start_at_zero),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
