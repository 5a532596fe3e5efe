/* slots.c - see slots.h. */
#include "slots.h"

#include "h2okv/advanced.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { CHUNK = 192 };    /* tokens between two looks at a guide, as in h2okv_llama_guide */
enum { FIRST_COME = 4 }; /* of so many chunks one is the oldest job's */

/* ---- The end of a job --------------------------------------------------------------------------------- */

static uint64_t evicted_now(const slots *s, const slot *t)
{
    h2okv_cache_stats stats;
    h2okv_cache_get_stats(h2okv_llama_seq_cache(s->engine->h, t->seq), &stats);
    return stats.evicted;
}

static void free_prompt(slot *t)
{
    free(t->prompt.tokens);
    t->prompt = (slot_prompt){ 0 };
}

/* The conversation stays in the cache. */
static void let_go(slot *t)
{
    choice_end(&t->choice);
    text_end(&t->text);
    free_prompt(t);
    serve_job_let_go(t->job);
    t->job = NULL;
    t->request = NULL;
    t->state = SLOT_FREE;
}

static serve_event *failure(int status, const char *param, const char *text)
{
    serve_event *e = serve_event_new(SERVE_FAILED);
    if (!e) return NULL;
    e->status = status;
    e->param = param;
    e->bytes = strlen(text);
    e->text = strdup(text);
    if (e->text) return e;
    serve_event_free(e);
    return NULL;
}

static void fail(slots *s, slot *t, int status, const char *text)
{
    s->numbers.failed++;
    serve_job_tell(t->job, failure(status, NULL, text));
    let_go(t);
}

/* What the cache holds after an error of the engine is not trusted. */
static void fail_by_engine(slots *s, slot *t, int status)
{
    const char *text = h2okv_llama_last_error(s->engine->h)->text;
    s->broken = s->broken || status == H2OKV_E_BROKEN;
    cli_warn("serve", "slot %" PRIu32 ": %s", t->seq, text);
    fail(s, t, 500, text);
    slot_forget(s, t);
}

static void out_of_memory(slots *s, slot *t)
{
    fail(s, t, 500, "the server is out of memory");
}

static void finish(slots *s, slot *t, enum serve_finish how)
{
    serve_event *e = serve_event_new(SERVE_DONE);
    if (how == SERVE_LENGTH && !text_flush(t)) {
        serve_event_free(e);
        out_of_memory(s, t);
        return;
    }
    t->usage.completion = t->n_new;
    t->usage.evicted = (uint32_t)(evicted_now(s, t) - t->evicted_before);
    t->usage.decode_s = t->newest - t->first;
    if (e) {
        e->finish = how;
        e->usage = t->usage;
    }
    serve_job_tell(t->job, e);
    let_go(t);
}

/* ---- The beginning of one ----------------------------------------------------------------------------- */

/* Of the free slots the one whose conversation the prompt goes on with; else an empty one; else the one that was used
 * longest ago. NULL: none is free. */
static slot *choose_slot(slots *s, const slot_prompt *p, bool lossy, uint32_t *reuse)
{
    slot *best = NULL;
    *reuse = 0;
    for (uint32_t i = 0; i < s->n; i++) {
        slot *t = &s->slot[i];
        uint32_t n;
        bool older;
        if (t->state != SLOT_FREE) continue;
        n = slot_reusable(s, t, p, lossy);
        older = best && (t->n_held == 0) == (best->n_held == 0) ? t->used < best->used : t->n_held == 0;
        if (best && (n < *reuse || (n == *reuse && !older))) continue;
        best = t;
        *reuse = n;
    }
    return best;
}

/* For a request without a seed: another one for each, and after a restart the same again. */
static uint32_t seed_of(const slots *s)
{
    return (uint32_t)((s->options->cache.seed + (uint64_t)s->jobs) % LLAMA_DEFAULT_SEED); /* which is none */
}

static bool begin(slots *s, serve_job *job, const serve_request *r, slot_prompt *p, slot_refusal *why)
{
    uint32_t reuse;
    slot *t = choose_slot(s, p, r->reuse_lossy, &reuse);
    slot_choice choice;
    if (!t) return slot_refuse(why, 500, NULL, "no slot is free");
    if (!choice_start(&choice, r, seed_of(s), s->engine->vocab, why)) {
        choice_end(&choice);
        return false;
    }
    t->prompt = *p;
    t->usage = (serve_usage){ .prompt = p->n, .slot = t->seq };
    if (!slot_prepare(s, t, &reuse, &t->usage.lossy, why)) {
        choice_end(&choice);
        t->prompt = (slot_prompt){ 0 };
        return false;
    }
    t->used = ++s->jobs;
    t->job = job;
    t->request = r;
    t->choice = choice;
    t->state = SLOT_READING;
    t->at = t->usage.reused = reuse;
    t->most_new = r->max_tokens > 0 ? r->max_tokens : UINT32_MAX;
    t->n_new = 0;
    t->began = t->first = t->newest = cli_seconds();
    t->evicted_before = evicted_now(s, t);
    s->numbers.reused_tokens += reuse;
    *p = (slot_prompt){ 0 }; /* it is the slot's now */
    return true;
}

static void take_job(slots *s, serve_job *job)
{
    const serve_request *r = serve_job_request(job);
    slot_prompt prompt;
    slot_refusal why;
    s->numbers.requests++;
    if (!slot_make_prompt(s, r, &prompt, &why) || !begin(s, job, r, &prompt, &why)) {
        s->numbers.failed++;
        serve_job_tell(job, failure(why.status, why.param, why.text));
        serve_job_let_go(job);
    }
    free(prompt.tokens);
}

static void look(slots *s, serve_job *job)
{
    const serve_request *r = serve_job_request(job);
    serve_event *e = r->slot < s->n ? slot_look(s, r->slot) : failure(400, "slot", "there is no such slot");
    serve_job_tell(job, e);
    serve_job_let_go(job);
}

static bool has_free_slot(const slots *s)
{
    for (uint32_t i = 0; i < s->n; i++) {
        if (s->slot[i].state == SLOT_FREE) return true;
    }
    return false;
}

static void take_jobs(slots *s, double seconds)
{
    serve_job *job;
    while ((job = serve_queue_take(s->queue, slots_busy(s) ? 0 : seconds, !has_free_slot(s))) != NULL) {
        if (serve_job_request(job)->kind == SERVE_LOOK) {
            look(s, job);
        } else {
            take_job(s, job);
        }
        seconds = 0;
    }
}

static void drop_who_left(slots *s)
{
    double now = cli_seconds();
    for (uint32_t i = 0; i < s->n; i++) {
        slot *t = &s->slot[i];
        double deadline = t->job ? serve_job_deadline(t->job) : 0;
        if (t->job && serve_job_left(t->job)) {
            s->numbers.left++;
            let_go(t);
        } else if (t->job && deadline > 0 && now > deadline) {
            fail(s, t, 504, "the request took longer than the server allows: ask for fewer tokens, or start the server "
                            "with a larger --time-limit");
        }
    }
}

/* ---- Tokens ------------------------------------------------------------------------------------------- */

static bool hold(slot *t, const llama_token *tokens, uint32_t n)
{
    if (t->n_held + n > t->held_room) {
        uint32_t room = 2 * (t->n_held + n) + 64;
        llama_token *held = realloc(t->held, room * sizeof *held);
        if (!held) return false;
        t->held = held;
        t->held_room = room;
    }
    memcpy(t->held + t->n_held, tokens, n * sizeof *tokens);
    t->n_held += n;
    return true;
}

/* Is there no place for another token behind those that are held? */
static bool is_full(const slots *s, const slot *t)
{
    return t->n_held + 1 >= s->trained || (s->keeps_all && t->n_held >= t->budget);
}

static bool make_token(slots *s, slot *t, const float *logits, serve_token *named)
{
    int n = t->request->logprobs;
    *named = (serve_token){ 0 };
    t->next = choice_make(&t->choice, s->engine->vocab, logits);
    if (t->next < 0 || llama_vocab_is_eog(s->engine->vocab, t->next) || n < 0) return true;
    return choice_logprobs(s->engine, logits, t->next, (uint32_t)n, named);
}

/* The next token of an answer, told; or its end. */
static void write_next(slots *s, slot *t)
{
    const float *logits = h2okv_llama_logits(s->engine->h, t->seq);
    serve_token named;
    bool stopped = false;
    if (!logits || !make_token(s, t, logits, &named)) {
        out_of_memory(s, t);
        return;
    }
    t->newest = cli_seconds();
    if (t->n_new == 0) {
        t->first = t->newest;
        t->usage.prompt_s = t->first - t->began;
    }
    if (t->next < 0 || llama_vocab_is_eog(s->engine->vocab, t->next)) {
        if (text_flush(t)) {
            finish(s, t, SERVE_STOP);
        } else {
            out_of_memory(s, t);
        }
        return;
    }
    t->state = SLOT_WRITING;
    t->n_new++;
    s->numbers.new_tokens++;
    if (t->n_new > 1 && t->newest > t->first) t->speed = (t->n_new - 1) / (t->newest - t->first);
    if (!text_take(t, s->engine, t->next, t->request->logprobs >= 0 ? &named : NULL, &stopped)) {
        out_of_memory(s, t);
    } else if (stopped) {
        finish(s, t, SERVE_STOP);
    } else if (t->n_new >= t->most_new || is_full(s, t)) {
        finish(s, t, SERVE_LENGTH);
    }
}

/* ---- Prompts ------------------------------------------------------------------------------------------ */

static int decode_guided(const slots *s, const slot *t, uint32_t n)
{
    const cache_options *o = &s->options->cache;
    h2okv_llama_guide guide;
    h2okv_llama_guide_init(&guide);
    engine_set_guide(&guide, o);
    guide.tokens = t->prompt.tokens + t->prompt.n_document;
    guide.n = t->prompt.n - t->prompt.n_document;
    return h2okv_llama_seq_decode_guided(s->engine->h, t->seq, t->prompt.tokens + t->at, n, &guide);
}

static int decode_plain(const slots *s, const slot *t, const llama_token *tokens, uint32_t n)
{
    h2okv_llama_input input = { .seq = t->seq, .n = n, .tokens = tokens };
    return h2okv_llama_decode_batch(s->engine->h, &input, 1);
}

static uint32_t least(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

/* As long as all fits, a document is read as it comes, but for its last chunk: see h2okv_llama_decode_guided. */
static int read_document(const slots *s, const slot *t, uint32_t *n)
{
    uint32_t left = t->prompt.n_document - t->at, given = s->options->cache.guide_chunk;
    uint32_t guide = t->prompt.n - t->prompt.n_document;
    uint32_t chunk = least(given == CACHE_AUTO ? CHUNK : given, s->ubatch - guide);
    uint32_t live = h2okv_cache_live(h2okv_llama_seq_cache(s->engine->h, t->seq));
    *n = least(left, chunk);
    if (left > chunk && live + *n <= t->budget) return decode_plain(s, t, t->prompt.tokens + t->at, *n);
    return decode_guided(s, t, *n);
}

/* More room while a prompt is read, and then no more: --prompt-budget. */
static int set_room(const slots *s, slot *t, bool reading)
{
    uint32_t budget = reading ? s->options->cache.prompt_budget : t->prompt.budget;
    if (s->options->cache.prompt_budget <= t->prompt.budget || t->budget == budget) return H2OKV_OK;
    t->budget = budget;
    return h2okv_llama_seq_set_budget(s->engine->h, t->seq, budget, reading ? H2OKV_AUTO : t->prompt.recent);
}

static int read_some(slots *s, slot *t, uint32_t *n)
{
    int status = set_room(s, t, t->at < t->prompt.n_document);
    if (status) return status;
    if (t->at < t->prompt.n_document) return read_document(s, t, n);
    *n = least(t->prompt.n - t->at, s->ubatch);
    return decode_plain(s, t, t->prompt.tokens + t->at, *n);
}

static void read_chunk(slots *s, slot *t)
{
    double start = cli_seconds();
    uint32_t n = 0;
    int status = read_some(s, t, &n);
    s->numbers.prompt_s += cli_seconds() - start;
    s->chunks++;
    if (status) {
        fail_by_engine(s, t, status);
        return;
    }
    if (!hold(t, t->prompt.tokens + t->at, n)) {
        out_of_memory(s, t);
        slot_forget(s, t);
        return;
    }
    t->at += n;
    s->numbers.prompt_tokens += n;
    if (t->at == t->prompt.n) write_next(s, t);
}

/* One chunk in four goes to the slot that was given its job first, the others to the one that has least to read: so
 * prompts that came together end one by one and not all at the last moment, and a long one is not put off for ever. */
static slot *choose_reader(slots *s)
{
    bool first_come = s->chunks % FIRST_COME == 0;
    slot *best = NULL;
    for (uint32_t i = 0; i < s->n; i++) {
        slot *t = &s->slot[i];
        uint64_t left = t->prompt.n - t->at, least_left = best ? best->prompt.n - best->at : 0;
        if (t->state != SLOT_READING) continue;
        if (!best || (first_come || left == least_left ? t->used < best->used : left < least_left)) best = t;
    }
    return best;
}

/* ---- Answers ------------------------------------------------------------------------------------------ */

static void take_token(slots *s, slot *t)
{
    if (hold(t, &t->next, 1)) {
        write_next(s, t);
        return;
    }
    out_of_memory(s, t);
    slot_forget(s, t);
}

/* What went wrong may have been another slot's. */
static void try_alone(slots *s, slot *t, int status)
{
    if (!s->broken) status = decode_plain(s, t, &t->next, 1);
    if (status) {
        fail_by_engine(s, t, status);
    } else {
        take_token(s, t);
    }
}

/* Those that came through go first: decoding another one again throws their logits away. */
static void write_answers(slots *s)
{
    h2okv_llama_input input[SERVE_MOST_SLOTS];
    slot *writing[SERVE_MOST_SLOTS], *missed[SERVE_MOST_SLOTS];
    uint32_t n = 0, n_missed = 0;
    double start = cli_seconds();
    int status;
    for (uint32_t i = 0; i < s->n; i++) {
        slot *t = &s->slot[i];
        if (t->state != SLOT_WRITING) continue;
        input[n] = (h2okv_llama_input){ .seq = t->seq, .n = 1, .tokens = &t->next };
        writing[n++] = t;
    }
    if (n == 0) return;
    status = h2okv_llama_decode_batch(s->engine->h, input, n);
    s->broken = s->broken || status == H2OKV_E_BROKEN;
    for (uint32_t i = 0; i < n; i++) {
        if (h2okv_llama_seq_next_pos(s->engine->h, writing[i]->seq) > (int32_t)writing[i]->n_held) {
            take_token(s, writing[i]);
        } else {
            missed[n_missed++] = writing[i];
        }
    }
    for (uint32_t i = 0; i < n_missed; i++) try_alone(s, missed[i], status);
    s->numbers.decode_s += cli_seconds() - start;
}

/* ---- Rounds ------------------------------------------------------------------------------------------- */

static void count_slots(slots *s)
{
    uint64_t evicted = 0;
    uint32_t lanes;
    h2okv_llama_stats stats;
    h2okv_llama_get_stats(s->engine->h, &stats);
    lanes = stats.lanes;
    s->numbers.n_slots = s->n;
    for (uint32_t i = 0; i < s->n; i++) {
        const slot *t = &s->slot[i];
        uint64_t now = evicted_now(s, t);
        evicted += now >= s->slot[i].evicted_counted ? now - s->slot[i].evicted_counted : now; /* cleared meanwhile */
        s->slot[i].evicted_counted = now;
        s->numbers.slots[i] = (serve_slot_stats){
            .busy = t->state != SLOT_FREE,
            .budget = t->budget > 0 ? t->budget : s->options->cache.budget,
            .cells = h2okv_cache_live(h2okv_llama_seq_cache(s->engine->h, t->seq)),
            .next_pos = (int32_t)t->n_held,
        };
    }
    s->numbers.evictions += evicted * lanes;
}

bool slots_busy(const slots *s)
{
    for (uint32_t i = 0; i < s->n; i++) {
        if (s->slot[i].state != SLOT_FREE) return true;
    }
    return false;
}

void slots_round(slots *s, double seconds)
{
    slot *reader;
    take_jobs(s, seconds);
    drop_who_left(s);
    reader = choose_reader(s);
    if (reader) read_chunk(s, reader);
    write_answers(s);
    count_slots(s);
}

void slots_start(slots *s, engine *e, const serve_options *o, serve_queue *q, char *template)
{
    h2okv_llama_stats stats;
    h2okv_options cache;
    const h2okv_policy *policy = h2okv_policy_find(o->cache.policy);
    int32_t trained = llama_model_n_ctx_train(e->model);
    *s = (slots){ .engine = e, .options = o, .queue = q, .template = template, .n = o->slots };
    h2okv_llama_get_stats(e->h, &stats);
    h2okv_cache_get_options(h2okv_llama_cache(e->h), &cache);
    s->ubatch = stats.ubatch;
    s->recent = cache.recent;
    s->room = o->cache.prompt_budget > o->cache.budget ? o->cache.prompt_budget : o->cache.budget;
    s->trained = trained > 0 ? (uint32_t)trained : INT32_MAX;
    s->keeps_all = policy && (policy->flags & H2OKV_POLICY_KEEPS_ALL);
    s->uses_scores = cache_uses_scores(o->cache.policy);
    for (uint32_t i = 0; i < s->n; i++) s->slot[i].seq = i;
    count_slots(s);
}

void slots_free(slots *s, int status, const char *why)
{
    for (uint32_t i = 0; i < s->n; i++) {
        slot *t = &s->slot[i];
        if (t->job) fail(s, t, status, why);
        free(t->held);
    }
    free(s->template);
    s->template = NULL;
    s->n = 0;
}
