/* slots_rig.c - see slots_rig.h. */
#include "slots_rig.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

engine loaded;
static serve_options options;
serve_queue *queue;
slots s;

int rig_start(void **state)
{
    (void)state;
    options = (serve_options){ .slots = SLOTS, .queue = 8, .threads = 1 };
    cache_defaults(&options.cache);
    options.cache.budget = BUDGET;
    options.cache.prompt_budget = ROOM;
    if (!cache_check("serve", &options.cache) || !cache_resolve("serve", &options.cache)) return -1;
    if (engine_load(&loaded, "serve", H2OKV_TEST_MODEL, false, false)) return -1;
    loaded.sequences = SLOTS;
    if (engine_attach(&loaded, &options.cache, 1)) return -1;
    queue = serve_queue_new(options.queue);
    slots_start(&s, &loaded, &options, queue, strdup("chatml"));
    return queue ? 0 : -1;
}

int rig_end(void **state)
{
    (void)state;
    slots_free(&s, 503, "the end");
    serve_queue_free(queue);
    engine_free(&loaded);
    return 0;
}

/* ---- A client ----------------------------------------------------------------------------------------- */

serve_request *completion(const char *prompt, uint32_t max_tokens)
{
    serve_request *r = calloc(1, sizeof *r);
    r->kind = SERVE_COMPLETION;
    r->prompt = strdup(prompt);
    r->prompt_bytes = strlen(prompt);
    r->max_tokens = max_tokens;
    r->top_p = 1;
    r->logprobs = -1;
    r->guide = true;
    return r;
}

void add_message(serve_request *r, const char *role, const char *content)
{
    r->messages = realloc(r->messages, (r->n_messages + 1) * sizeof *r->messages);
    r->messages[r->n_messages++] = (serve_message){ strdup(role), strdup(content), strlen(content) };
}

serve_request *chat(const char *said, uint32_t max_tokens)
{
    serve_request *r = completion("", max_tokens);
    r->kind = SERVE_CHAT;
    r->pin_system = true;
    add_message(r, "user", said);
    return r;
}

serve_job *put(serve_request *r)
{
    serve_job *job = serve_job_new(r, 0);
    assert_int_equal(serve_queue_put(queue, job), SERVE_QUEUED);
    return job;
}

static void take(reply *out, serve_event *e)
{
    switch (e->kind) {
    case SERVE_TEXT:
        assert_true(e->bytes > 0 && out->n + e->bytes < sizeof out->text);
        assert_true(cli_utf8_bad(e->text, e->bytes) == SIZE_MAX); /* whole characters */
        memcpy(out->text + out->n, e->text, e->bytes + 1);
        out->n += e->bytes;
        for (size_t i = 0; i < e->n_tokens && out->n_tokens < 64; i++) {
            out->token[out->n_tokens++] = e->tokens[i];
            e->tokens[i] = (serve_token){ 0 };
        }
        break;
    case SERVE_DONE:
        out->done = true;
        out->finish = e->finish;
        out->usage = e->usage;
        break;
    default:
        out->done = true;
        out->status = e->status;
        snprintf(out->text, sizeof out->text, "%s", e->text);
        snprintf(out->param, sizeof out->param, "%s", e->param ? e->param : "");
    }
    serve_event_free(e);
}

static void drain(serve_job *job, reply *out)
{
    serve_event *e;
    while ((e = serve_job_wait(job, 0)) != NULL) take(out, e);
}

/* Rounds until all of these have ended. */
void answer_all(serve_job **job, reply *out, size_t n)
{
    size_t ended = 0;
    for (uint32_t rounds = 0; ended < n; rounds++) {
        assert_true(rounds < 2000);
        slots_round(&s, 0);
        for (size_t i = ended = 0; i < n; i++) {
            drain(job[i], &out[i]);
            ended += out[i].done;
        }
    }
    for (size_t i = 0; i < n; i++) serve_job_leave(job[i]);
    assert_false(slots_busy(&s));
}

reply answer(serve_request *r)
{
    reply out = { 0 };
    serve_job *job = put(r);
    answer_all(&job, &out, 1);
    return out;
}

void forget_all(void)
{
    for (uint32_t i = 0; i < s.n; i++) slot_forget(&s, &s.slot[i]);
}

void clear_tokens(reply *r)
{
    for (size_t i = 0; i < r->n_tokens; i++) serve_token_clear(&r->token[i]);
    r->n_tokens = 0;
}

/* ---- Texts -------------------------------------------------------------------------------------------- */

const char *const prompts[SLOTS] = {
    "The capital of France is",
    "1, 2, 3, 4, 5, 6,",
    "Once upon a time there was a small dragon that lived in a cave near the sea. One morning it woke up and",
    "Water boils at",
};

char *long_text(uint32_t sentences)
{
    char *text = calloc(1, 96 * (size_t)sentences + 200);
    for (uint32_t i = 0; i < sentences; i++) {
        if (i == sentences / 3) strcat(text, "The secret number of Linden is 48213. ");
        sprintf(text + strlen(text), "In the year %u the harvest was good and nothing else happened. ", 1500 + i);
    }
    strcat(text, "\n\nThe secret number of Linden is");
    return text;
}

uint32_t live(uint32_t seq)
{
    return h2okv_cache_live(h2okv_llama_seq_cache(loaded.h, seq));
}
