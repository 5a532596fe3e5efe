/*
 * test_slots.c - jobs in the slots of h2okv serve: what is answered, who waits for whom, who leaves and who is late.
 */
#include "slots_rig.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- Answers ------------------------------------------------------------------------------------------ */

static void together_they_say_what_they_say_alone(void **state)
{
    reply alone[SLOTS] = { 0 }, together[SLOTS] = { 0 };
    serve_job *job[SLOTS];
    (void)state;
    forget_all();
    for (uint32_t i = 0; i < SLOTS; i++) {
        alone[i] = answer(completion(prompts[i], NEW + i));
        assert_int_equal(alone[i].status, 0);
        assert_int_equal(alone[i].usage.completion, NEW + i);
        assert_int_equal(alone[i].finish, SERVE_LENGTH);
        assert_true(alone[i].n > 8);
    }
    forget_all();
    for (uint32_t i = 0; i < SLOTS; i++) job[i] = put(completion(prompts[i], NEW + i));
    answer_all(job, together, SLOTS);
    for (uint32_t i = 0; i < SLOTS; i++) assert_string_equal(together[i].text, alone[i].text);
    assert_non_null(strstr(alone[0].text, "Paris"));
    assert_non_null(strstr(alone[1].text, "7, 8, 9, 10"));
}

static void a_stop_string_is_no_part_of_the_answer(void **state)
{
    serve_request *r = completion(prompts[1], 40);
    reply stopped;
    (void)state;
    r->stops[r->n_stops++] = strdup("nothing of the kind");
    r->stops[r->n_stops++] = strdup(" 9, 1");
    stopped = answer(r);
    assert_string_equal(stopped.text, " 7, 8,");
    assert_int_equal(stopped.finish, SERVE_STOP);
    r = completion(prompts[1], 3); /* what might have become one is told in the end */
    r->stops[r->n_stops++] = strdup(" 7, 8, 9");
    stopped = answer(r);
    assert_true(strncmp(" 7, 8, 9", stopped.text, stopped.n) == 0 && stopped.n > 0);
    assert_int_equal(stopped.finish, SERVE_LENGTH);
}

static void a_grammar_is_obeyed(void **state)
{
    serve_request *r = completion("Is water wet? Answer:", 20);
    reply out;
    (void)state;
    r->grammar = strdup("root ::= \"\xf0\x9f\x90\x89\xc3\xa9!\" (\"maybe\" | \"perhaps\")");
    out = answer(r);
    assert_true(strcmp(out.text, "\xf0\x9f\x90\x89\xc3\xa9!maybe") == 0 ||
                strcmp(out.text, "\xf0\x9f\x90\x89\xc3\xa9!perhaps") == 0);
    assert_int_equal(out.finish, SERVE_STOP);
    r = completion("Is water wet? Answer:", 20);
    r->temperature = 2;
    r->grammar = strdup("root ::= [0-9]+ \".\"");
    out = answer(r);
    assert_int_equal(strspn(out.text, "0123456789."), out.n);
    r = completion("a", 2);
    r->grammar = strdup("root ::= (");
    out = answer(r);
    assert_int_equal(out.status, 400);
    assert_string_equal(out.param, "grammar");
}

static void logprobs_are_of_the_models_distribution(void **state)
{
    serve_request *r = completion(prompts[0], 4);
    reply out;
    (void)state;
    r->logprobs = 5;
    r->temperature = 0.5; /* does not change them */
    out = answer(r);
    assert_int_equal(out.n_tokens, 4);
    for (size_t i = 0; i < out.n_tokens; i++) {
        const serve_token *t = &out.token[i];
        double sum = 0;
        assert_int_equal(t->n_top, 5);
        for (size_t k = 0; k < t->n_top; k++) {
            sum += exp(t->top[k].logprob);
            assert_true(k == 0 || t->top[k].logprob <= t->top[k - 1].logprob);
        }
        assert_true(sum > 0.01 && sum <= 1 + 1e-6);
        assert_true(t->chosen.logprob <= t->top[0].logprob);
    }
    clear_tokens(&out);
    r = completion(prompts[0], 2);
    r->logprobs = 0; /* the chosen one alone */
    out = answer(r);
    assert_int_equal(out.n_tokens, 2);
    assert_int_equal(out.token[0].n_top, 0);
    assert_int_equal(out.token[0].chosen.n_bytes, strlen(out.token[0].chosen.bytes));
    clear_tokens(&out);
}

static reply drawn(uint32_t seed)
{
    serve_request *r = completion(prompts[2], NEW);
    r->temperature = 1;
    r->top_p = 0.9;
    r->seed = seed;
    r->has_seed = true;
    return answer(r);
}

static void a_seed_gives_the_same_again(void **state)
{
    reply a, b, c;
    (void)state;
    forget_all();
    a = drawn(7);
    forget_all();
    b = drawn(7);
    c = drawn(8);
    assert_string_equal(a.text, b.text);
    assert_string_not_equal(a.text, c.text);
}

static reply drawn_without_a_seed(void)
{
    serve_request *r = completion(prompts[2], NEW);
    r->temperature = 1;
    return answer(r);
}

static void without_a_seed_the_server_s_own_counts(void **state)
{
    reply first[2], second[2];
    (void)state;
    for (size_t i = 0; i < 2; i++) {
        s.jobs = 0; /* as in a server that has just started */
        forget_all();
        first[i] = drawn_without_a_seed();
        forget_all();
        second[i] = drawn_without_a_seed();
    }
    assert_string_equal(first[0].text, first[1].text);
    assert_string_equal(second[0].text, second[1].text);
    assert_string_not_equal(first[0].text, second[0].text);
}

static void hardly_any_temperature_is_none(void **state)
{
    serve_request *r = completion(prompts[2], NEW);
    reply cold, none;
    (void)state;
    forget_all();
    r->temperature = 1e-40; /* as a float no longer a normal number */
    cold = answer(r);
    forget_all();
    none = answer(completion(prompts[2], NEW));
    assert_string_equal(cold.text, none.text);
}

/* ---- Who leaves, who is late, what does not fit ------------------------------------------------------- */

static void a_client_that_leaves_frees_its_slot_at_once(void **state)
{
    char *text = long_text(80);
    serve_job *job;
    uint64_t left = s.numbers.left;
    (void)state;
    forget_all();
    job = put(completion(text, 100));
    slots_round(&s, 0); /* a chunk of the prompt */
    assert_true(slots_busy(&s));
    serve_job_leave(job);
    slots_round(&s, 0);
    assert_false(slots_busy(&s));
    job = put(completion(prompts[0], 100));
    for (uint32_t i = 0; i < 5; i++) slots_round(&s, 0);
    assert_true(slots_busy(&s)); /* it writes */
    serve_job_leave(job);
    slots_round(&s, 0);
    assert_false(slots_busy(&s));
    assert_int_equal(s.numbers.left, left + 2);
    free(text);
}

static void time_limits_hold(void **state)
{
    char *text = long_text(80);
    serve_job *job = serve_job_new(completion(text, 100), cli_seconds() + 0.2);
    reply out = { 0 };
    (void)state;
    assert_int_equal(serve_queue_put(queue, job), SERVE_QUEUED);
    answer_all(&job, &out, 1);
    assert_int_equal(out.status, 504);
    free(text);
}

static void a_prompt_past_the_trained_context_is_refused(void **state)
{
    char *text = long_text(600);
    reply out = answer(completion(text, 1));
    (void)state;
    assert_int_equal(out.status, 400);
    assert_string_equal(out.param, "prompt");
    assert_non_null(strstr(out.text, "8192"));
    out = answer(chat(text, 1));
    assert_string_equal(out.param, "messages");
    free(text);
}

static const slot *slot_of(const serve_job *job)
{
    for (uint32_t i = 0; i < s.n; i++) {
        if (s.slot[i].job == job) return &s.slot[i];
    }
    fail_msg("the job has no slot");
    return NULL;
}

/* One with a chunk of prompt to read and one that writes take turns: nobody waits for the whole of another's prompt. */
static void who_writes_goes_on_while_others_read(void **state)
{
    char *text = long_text(80);
    serve_job *writer = put(completion(prompts[2], 200)), *reader;
    const slot *writes, *reads;
    (void)state;
    for (uint32_t i = 0; i < 4; i++) slots_round(&s, 0);
    reader = put(completion(text, 1));
    writes = slot_of(writer);
    for (uint32_t i = 0; i < 4; i++) {
        uint32_t before = writes->n_new;
        slots_round(&s, 0);
        assert_int_equal(writes->n_new, before + 1);
    }
    reads = slot_of(reader);
    assert_int_equal(reads->state, SLOT_READING);
    assert_in_range(reads->at, 4 * 64, 4 * 128); /* a chunk a round */
    serve_job_leave(writer);
    serve_job_leave(reader);
    slots_round(&s, 0);
    assert_false(slots_busy(&s));
    free(text);
}

/* A short prompt overtakes a long one, which is read nevertheless; of equal ones the first is answered first. */
static void the_shortest_rest_is_read_first(void **state)
{
    char *text = long_text(80), *shorter = long_text(30);
    serve_job *first = put(completion(text, 1)), *second, *late;
    uint32_t before;
    (void)state;
    forget_all();
    slots_round(&s, 0);
    second = put(completion(text, 1));
    late = put(completion(shorter, 1));
    s.chunks = 0;
    slots_round(&s, 0); /* the oldest one's */
    before = slot_of(first)->at;
    assert_in_range(before, 2 * 64, 2 * 128);
    for (uint32_t i = 0; i < 3; i++) slots_round(&s, 0);
    assert_int_equal(slot_of(second)->at, 0);
    assert_int_equal(slot_of(first)->at, before);
    assert_in_range(slot_of(late)->at, 3 * 64, 3 * 128);
    serve_job_leave(late);
    for (uint32_t i = 0; i < 4; i++) slots_round(&s, 0);
    assert_int_equal(slot_of(second)->at, 0);
    assert_in_range(slot_of(first)->at, 6 * 64, 6 * 128);
    serve_job_leave(first);
    for (uint32_t i = 0; i < 2; i++) slots_round(&s, 0);
    assert_in_range(slot_of(second)->at, 2 * 64, 2 * 128);
    serve_job_leave(second);
    slots_round(&s, 0);
    free(shorter);
    free(text);
}

static void more_jobs_than_slots_wait_their_turn(void **state)
{
    serve_job *job[SLOTS + 2];
    reply out[SLOTS + 2] = { 0 };
    (void)state;
    for (uint32_t i = 0; i < SLOTS + 2; i++) job[i] = put(completion(prompts[i % SLOTS], 6));
    answer_all(job, out, SLOTS + 2);
    for (uint32_t i = 0; i < SLOTS + 2; i++) assert_int_equal(out[i].usage.completion, 6);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(together_they_say_what_they_say_alone),
        cmocka_unit_test(a_stop_string_is_no_part_of_the_answer),
        cmocka_unit_test(a_grammar_is_obeyed),
        cmocka_unit_test(logprobs_are_of_the_models_distribution),
        cmocka_unit_test(a_seed_gives_the_same_again),
        cmocka_unit_test(without_a_seed_the_server_s_own_counts),
        cmocka_unit_test(hardly_any_temperature_is_none),
        cmocka_unit_test(a_client_that_leaves_frees_its_slot_at_once),
        cmocka_unit_test(time_limits_hold),
        cmocka_unit_test(a_prompt_past_the_trained_context_is_refused),
        cmocka_unit_test(who_writes_goes_on_while_others_read),
        cmocka_unit_test(the_shortest_rest_is_read_first),
        cmocka_unit_test(more_jobs_than_slots_wait_their_turn),
    };
    return cmocka_run_group_tests(tests, rig_start, rig_end);
}
