/*
 * soak.c - one session of very many tokens on the real model: read in chunks, written token by token, cut, guided, given
 * another budget, forked, saved and restored, in random order; after each of these everything that must hold is looked at.
 *
 *   soak [TOKENS [THREADS [SEED]]]       `make soak` reads and writes 200,000; a few thousand are one of the tests
 *
 * Sequence 0 is the session; sequence 1 is there to be forked and restored into. Memory is looked at from the first tenth
 * on: from there it may not grow by more than a few MiB.
 */
#define _POSIX_C_SOURCE 200809L

#include "fixture.h"
#include "session_rig.h"

#include "support/rng.h"

#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { ROOM = 512, LEAST_BUDGET = 128, PINNED = 12, CELLS = 1024, MOST_GROWTH_KIB = 16 * 1024 };

typedef struct soak {
    h2okv_llama *h;
    h2okv_llama_stats made; /* lanes, ubatch: what does not change */
    rng random;
    uint64_t tokens, wanted;
    uint64_t rounds, cuts, losses, budgets, forks, saves, guided;
    int32_t whole_from; /* all positions from here on are there, as far as they are recent */
    uint32_t at;        /* in the text */
    uint32_t recent;
    long kib_at_first;  /* memory once all is warm; 0: not yet */
    double start, shown;
    const char *last;   /* what was done */
} soak;

static volatile sig_atomic_t interrupted;

static void on_signal(int number)
{
    (void)number;
    interrupted = 1;
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* ---- What must hold ----------------------------------------------------------------------------------- */

static void must(const soak *s, bool holds, const char *what)
{
    if (!holds) {
        fail_msg("after %llu tokens, round %llu, %s: %s", (unsigned long long)s->tokens, (unsigned long long)s->rounds,
                 s->last, what);
    }
}

static void must_work(const soak *s, int status, const char *what)
{
    if (status != H2OKV_OK) {
        fail_msg("after %llu tokens: %s: %s", (unsigned long long)s->tokens, what, h2okv_llama_last_error(s->h)->text);
    }
}

static uint32_t budget_now(const soak *s)
{
    h2okv_llama_stats stats;
    h2okv_llama_get_stats(s->h, &stats);
    return stats.budget;
}

/* Positions rise, scores are numbers, no cell is taken twice; pins, sinks and the newest are there. */
static void check_lane(const soak *s, uint32_t lane, uint32_t live, int32_t next)
{
    int32_t pos[CELLS];
    double score[CELLS];
    uint32_t cell[CELLS], newest = next - s->whole_from < (int32_t)s->recent ? (uint32_t)(next - s->whole_from) : s->recent;
    bool taken[CELLS] = {false};
    must(s, h2okv_cache_kept(h2okv_llama_cache(s->h), lane, pos, score, cell) == live, "a lane has another length");
    for (uint32_t i = 0; i < live; i++) {
        must(s, pos[i] > (i > 0 ? pos[i - 1] : -1) && pos[i] < next, "positions do not rise, or are past the end");
        must(s, isfinite(score[i]) && score[i] >= 0, "a score is no number");
        must(s, cell[i] < s->made.cells && !taken[cell[i]], "a cell is taken twice");
        taken[cell[i]] = true;
    }
    for (int32_t p = 0; p < PINNED && p < next; p++) {
        must(s, pos[p] == p, "a pinned token is gone");
    }
    for (uint32_t i = 0; i < newest && i < live; i++) {
        must(s, pos[live - 1 - i] == next - 1 - (int32_t)i, "a recent token is gone");
    }
}

static void check_logits(const soak *s)
{
    const float *logits = h2okv_llama_logits(s->h, 0);
    for (int32_t i = 0; logits != NULL && i < fixture_n_vocab; i++) {
        must(s, isfinite(logits[i]), "a logit is no number");
    }
}

static long resident_kib(void)
{
    FILE *file = fopen("/proc/self/statm", "r");
    long all = 0, resident = 0;
    assert_non_null(file);
    assert_int_equal(fscanf(file, "%ld %ld", &all, &resident), 2);
    fclose(file);
    return resident * (sysconf(_SC_PAGESIZE) / 1024);
}

static void check_memory(soak *s)
{
    if (s->tokens < s->wanted / 10) {
        return;
    }
    long kib = resident_kib();
    if (s->kib_at_first == 0) {
        s->kib_at_first = kib;
    }
    must(s, kib < s->kib_at_first + MOST_GROWTH_KIB, "memory grows");
}

static void check_all(soak *s)
{
    uint32_t live = h2okv_cache_live(h2okv_llama_cache(s->h));
    int32_t next = h2okv_llama_next_pos(s->h);
    llama_memory_t memory = llama_get_memory(h2okv_llama_context(s->h));
    must(s, live <= budget_now(s), "more tokens than the budget");
    must(s, llama_memory_seq_pos_max(memory, 0) == next - 1, "llama.cpp's last position is another one");
    for (uint32_t lane = 0; lane < s->made.lanes; lane++) {
        check_lane(s, lane, live, next);
    }
    check_logits(s);
    check_memory(s);
}

/* ---- What is done ------------------------------------------------------------------------------------- */

static const llama_token *next_text(soak *s, uint32_t n)
{
    if (s->at + n > FIXTURE_TOKENS) {
        s->at = 1 + rng_below(&s->random, 64);
    }
    s->at += n;
    return fixture_token + s->at - n;
}

static void read_chunk(soak *s)
{
    uint32_t n = rng_range(&s->random, 1, s->made.ubatch / 2);
    must_work(s, h2okv_llama_decode(s->h, next_text(s, n), n), "reading");
    s->tokens += n;
}

static llama_token most_likely(const float *logits)
{
    llama_token best = 0;
    for (llama_token i = 1; i < fixture_n_vocab; i++) {
        best = logits[i] > logits[best] ? i : best;
    }
    return best;
}

static void write_some(soak *s)
{
    uint32_t n = rng_range(&s->random, 1, 12);
    for (uint32_t i = 0; i < n; i++) {
        const float *logits = h2okv_llama_logits(s->h, 0);
        llama_token token = logits != NULL ? most_likely(logits) : fixture_token[1];
        must_work(s, h2okv_llama_decode(s->h, &token, 1), "writing");
    }
    s->tokens += n;
}

static void read_guided(soak *s)
{
    uint32_t n = rng_range(&s->random, 1, s->made.ubatch);
    h2okv_llama_guide guide;
    h2okv_llama_guide_init(&guide);
    guide.tokens = fixture_token + 100;
    guide.n = rng_range(&s->random, 1, 20);
    must_work(s, h2okv_llama_decode_guided(s->h, next_text(s, n), n, &guide), "guided reading");
    if (s->whole_from < h2okv_llama_next_pos(s->h) - 16) { /* it keeps fewer of the newest meanwhile */
        s->whole_from = h2okv_llama_next_pos(s->h) - 16;
    }
    s->tokens += n;
    s->guided++;
}

static void cut(soak *s)
{
    int32_t next = h2okv_llama_next_pos(s->h);
    bool far = rng_below(&s->random, 4) == 0;
    uint32_t n = far ? s->recent + rng_range(&s->random, 1, 20) : rng_range(&s->random, 1, 8), lost = 0;
    if (n + PINNED > h2okv_cache_live(h2okv_llama_cache(s->h))) {
        return; /* some lane could not keep what is pinned */
    }
    int status = h2okv_llama_trim(s->h, next - (int32_t)n, NULL);
    if (status == H2OKV_E_UNSUPPORTED) { /* it would lose others: so be it */
        status = h2okv_llama_trim(s->h, next - (int32_t)n, &lost);
        must(s, lost > 0, "an inexact cut lost nothing");
        s->losses++;
    }
    must_work(s, status, "a cut");
    int32_t from = next - (int32_t)s->recent; /* those before were not recent then */
    next -= (int32_t)n;
    s->whole_from = from > s->whole_from ? from : s->whole_from;
    s->whole_from = lost > 0 || s->whole_from > next ? next : s->whole_from; /* recent ones may be among the lost */
    must_work(s, h2okv_llama_pin(s->h, 0, PINNED), "pinning again");
    s->cuts++;
}

static void set_budget(soak *s)
{
    uint32_t budget = rng_range(&s->random, LEAST_BUDGET, ROOM), before = s->recent;
    h2okv_options options;
    must_work(s, h2okv_llama_set_budget(s->h, budget, H2OKV_AUTO), "another budget");
    h2okv_cache_get_options(h2okv_llama_cache(s->h), &options);
    s->recent = options.recent;
    if (s->recent > before) { /* those that are gone do not come back */
        int32_t from = h2okv_llama_next_pos(s->h) - (int32_t)before;
        s->whole_from = from > s->whole_from ? from : s->whole_from;
    }
    s->budgets++;
}

static void fork_it(soak *s)
{
    llama_token token = fixture_token[7];
    h2okv_llama_input both[2] = {{.seq = 0, .n = 1, .tokens = &token}, {.seq = 1, .n = 1, .tokens = &token}};
    must_work(s, h2okv_llama_seq_copy(s->h, 0, 1), "a fork");
    must(s, session_digest(s->h, 0, true) == session_digest(s->h, 1, true), "a fork differs");
    must_work(s, h2okv_llama_decode_batch(s->h, both, 2), "both together");
    must(s, h2okv_llama_seq_next_pos(s->h, 0) == h2okv_llama_seq_next_pos(s->h, 1), "a fork is elsewhere");
    must_work(s, h2okv_llama_seq_clear(s->h, 1), "forgetting the fork");
    s->tokens++;
    s->forks++;
}

static void save_and_restore(soak *s)
{
    const char *path = session_path("soak");
    uint64_t before = session_digest(s->h, 0, true);
    must_work(s, h2okv_llama_save(s->h, path), "saving");
    must_work(s, h2okv_llama_seq_restore(s->h, 1, path, NULL, NULL), "restoring elsewhere");
    must(s, session_digest(s->h, 1, true) == before, "what was restored differs");
    must_work(s, h2okv_llama_seq_clear(s->h, 1), "forgetting it");
    must_work(s, h2okv_llama_restore(s->h, path), "restoring");
    must(s, session_digest(s->h, 0, true) == before, "what was restored in place differs");
    s->saves++;
}

static const struct {
    uint32_t share; /* of a hundred */
    void (*act)(soak *s);
    const char *name;
} acts[] = {
    {56, read_chunk, "reading"}, {14, write_some, "writing"}, {9, read_guided, "guided reading"}, {9, cut, "a cut"},
    {5, set_budget, "a budget"}, {4, fork_it, "a fork"},      {3, save_and_restore, "a restore"},
};

static void do_something(soak *s)
{
    uint32_t chance = rng_below(&s->random, 100), i = 0;
    for (; chance >= acts[i].share; i++) {
        chance -= acts[i].share;
    }
    s->last = acts[i].name;
    acts[i].act(s);
}

/* ---- The run ------------------------------------------------------------------------------------------ */

static void show(soak *s)
{
    double t = now();
    if (!isatty(STDERR_FILENO) || t - s->shown < 0.5) {
        return;
    }
    double share = (double)s->tokens / (double)s->wanted;
    s->shown = t;
    fprintf(stderr, "\rsoak: %llu of %llu tokens, %.0f s left \033[K", (unsigned long long)s->tokens,
            (unsigned long long)s->wanted, share > 0 ? (t - s->start) * (1 / share - 1) : 0);
}

static h2okv_llama *make(int32_t threads)
{
    struct llama_context_params params = fixture_params();
    h2okv_options cache;
    h2okv_llama_options options;
    h2okv_llama *h = NULL;
    h2okv_error error;
    h2okv_options_init(&cache);
    cache.budget = 256;
    h2okv_llama_options_init(&options);
    options.cache = &cache;
    options.room = ROOM;
    options.sequences = 2;
    params.n_threads = params.n_threads_batch = threads;
    if (h2okv_llama_create(&h, fixture_model, params, &options, &error) != H2OKV_OK) {
        fail_msg("create: %s", error.text);
    }
    return h;
}

static struct {
    uint64_t tokens;
    int32_t threads;
    uint64_t seed;
} wanted = {3000, 1, 1};

static void report(const soak *s)
{
    printf("soak: %llu tokens in %.0f s, last position %d; %llu cuts (%llu with a loss), %llu budgets, %llu forks, "
           "%llu saved and restored, %llu guided; memory %.1f MiB, %+.1f since the first tenth\n",
           (unsigned long long)s->tokens, now() - s->start, h2okv_llama_next_pos(s->h) - 1, (unsigned long long)s->cuts,
           (unsigned long long)s->losses, (unsigned long long)s->budgets, (unsigned long long)s->forks,
           (unsigned long long)s->saves, (unsigned long long)s->guided, (double)resident_kib() / 1024,
           s->kib_at_first > 0 ? (double)(resident_kib() - s->kib_at_first) / 1024 : 0.0);
}

static void a_session_of_very_many_tokens(void **state)
{
    (void)state;
    soak s = {.h = make(wanted.threads), .random = {wanted.seed}, .wanted = wanted.tokens, .start = now(), .at = 1};
    h2okv_options options;
    h2okv_llama_get_stats(s.h, &s.made);
    h2okv_cache_get_options(h2okv_llama_cache(s.h), &options);
    s.recent = options.recent;
    must_work(&s, h2okv_llama_pin(s.h, 0, PINNED), "pinning");
    while (s.tokens < s.wanted && !interrupted) {
        do_something(&s);
        s.rounds++;
        check_all(&s);
        show(&s);
    }
    report(&s);
    if (!interrupted) {
        must(&s, s.cuts > 0 && s.budgets > 0 && s.forks > 0 && s.saves > 0 && s.guided > 0, "something was never done");
    }
    h2okv_llama_free(s.h);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_session_of_very_many_tokens)};
    wanted.tokens = argc > 1 ? strtoull(argv[1], NULL, 10) : wanted.tokens;
    wanted.threads = argc > 2 ? atoi(argv[2]) : wanted.threads;
    wanted.seed = argc > 3 ? strtoull(argv[3], NULL, 10) : wanted.seed;
    if (wanted.tokens == 0 || wanted.threads < 1) {
        fprintf(stderr, "usage: %s [TOKENS [THREADS [SEED]]], all at least 1\n", argv[0]);
        return 2;
    }
    signal(SIGINT, on_signal);
    session_open_folder();
    int failed = cmocka_run_group_tests(tests, fixture_open, fixture_close);
    session_close_folder();
    return failed;
}
