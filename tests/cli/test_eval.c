/*
 * test_eval.c - `h2okv eval` without a model: what it refuses, its arithmetic, its documents, its rows and its files.
 * tests/cli/test_eval_model.c runs it.
 */
#include "program.h"

#include "eval.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define ASSERT_NEAR(a, b) assert_true(fabs((a) - (b)) < 1e-6)

/* ---- Refused ------------------------------------------------------------------------------------------ */

static void usage_errors(void **state)
{
    static const struct {
        const char *words[8], *says;
    } cases[] = {
        { { NULL }, "say what to measure: ppl, kl or recall" },
        { { "pll" }, "measure 'pll' is unknown; did you mean 'ppl'?" },
        { { "ppl", "text.txt" }, "unexpected argument 'text.txt'" },
        { { "ppl" }, "ppl needs a text: give one with -f FILE" },
        { { "kl" }, "kl needs a text: give one with -f FILE" },
        { { "ppl", "-f", "a", "--keys", "5" }, "--keys has no effect on ppl: it goes with recall" },
        { { "kl", "-f", "a", "--guide", "off" }, "--guide has no effect on kl" },
        { { "ppl", "-f", "a", "--guide-recent", "9" }, "--guide-recent has no effect on ppl" },
        { { "recall", "--guide", "auto,maybe" }, "--guide 'maybe' is neither auto nor off nor a number of tokens" },
        { { "recall", "--guide", "auto," }, "--guide '' is neither auto nor off nor a number of tokens" },
        { { "recall", "--guide", "0" }, "--guide 0 is out of range: 1 to 4096" },
        { { "recall", "--guide-recent", "0" }, "--guide-recent 0 is out of range: 1 to " },
        { { "ppl", "-f", "a", "--guide-spread", "3" }, "--guide-spread has no effect on ppl" },
        { { "ppl", "-f", "a", "--guide-chunk", "3" }, "--guide-chunk has no effect on ppl" },
        { { "kl", "-f", "a", "--prompt-budget", "99" }, "--prompt-budget has no effect on kl: it goes with recall" },
        { { "recall", "--prompt-budget", "15" }, "--prompt-budget 15 is out of range: 16 to " },
        { { "recall", "--pin", "4" }, "--pin '4' is no list of positions" },
        { { "recall", "--pool", "2", "--policy", "window" }, "--pool has no effect: no policy of --policy uses scores" },
        { { "recall", "--kv-type=q8_0", "--attention=observe" }, "--kv-type q8_0 needs fused attention" },
        { { "kl", "-f", "a", "--depths", "5%" }, "--depths has no effect on kl" },
        { { "kl", "-f", "a", "--questions", "2" }, "--questions has no effect on kl" },
        { { "recall", "--questions", "33" }, "--questions 33 is out of range: 1 to 32" },
        { { "recall", "--questions", "3", "--keys", "2" }, "--questions 3 is more than --keys 2" },
        { { "recall", "--depths", "101%" }, "--depths 101 is out of range: 0 to 100" },
        { { "recall", "--depths", "5,,6" }, "--depths '' is not a number" },
        { { "recall", "--policy", "h2o,windwo" }, "--policy 'windwo' is unknown; did you mean 'window'?" },
        { { "recall", "--policy", "" }, "--policy '' is unknown; choose from default, h2o, " },
        { { "recall", "--budget", "15" }, "--budget 15 is too small: at least 16" },
        { { "recall", "--budget", "20%,0" }, "--budget 0 is out of range: 1 to " },
        { { "recall", "--budget", "101%" }, "--budget 101 is out of range: 0 to 100" },
        { { "recall", "--budget", "20%%" }, "--budget '20%' is not a number" },
        { { "recall", "--budget", "64," }, "--budget '' is not a whole number" },
        { { "recall", "--budget", "16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16" },
          "--budget names more than 16" },
        { { "recall", "--recent", "0" }, "--recent 0: llama.cpp needs the newest token" },
        { { "recall", "--recent", "half" }, "--recent 'half' is not a whole number" },
        { { "recall", "--decay", "0" }, "--decay 0 would forget every score" },
        { { "recall", "--decay", "0.9", "--policy", "window" }, "--decay has no effect: no policy" },
        { { "recall", "--tokens", "31" }, "--tokens 31 is out of range: 32 to " },
        { { "recall", "--isa", "mmx" }, "--isa 'mmx' is unknown" },
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const char *words[10] = { "eval" };
        for (size_t k = 0; k < 8; k++) words[k + 1] = cases[i].words[k];
        program_expect_list(2, cases[i].says, words);
    }
}

#ifdef H2OKV_HAVE_LLAMA
static void files_that_are_none(void **state)
{
    (void)state;
    program_expect(4, "/nowhere.txt: cannot open: No such file", "eval", "ppl", "-f", "/nowhere.txt");
    program_expect(4, ": not a text: invalid UTF-8 at byte 3", "eval", "kl", "-f", program_file("abc\xff", 4));
    program_expect(6, "/nowhere/a.svg: cannot write: No such file", "eval", "recall", "--svg", "/nowhere/a.svg");
    program_expect(6, "/nowhere/a.csv: cannot write: No such file", "eval", "recall", "--csv", "/nowhere/a.csv");
    program_clean();
}
#else
static void without_llama(void **state)
{
    (void)state;
    program_expect(3, "this h2okv was built without llama.cpp", "eval", "recall");
}
#endif

/* ---- Arithmetic --------------------------------------------------------------------------------------- */

static void softmax_by_hand(void **state)
{
    float p[3];
    (void)state;
    ASSERT_NEAR(eval_softmax((const float[]){ 0, logf(3) }, 2, p), log(4));
    ASSERT_NEAR(p[0], 0.25);
    ASSERT_NEAR(p[1], 0.75);
    ASSERT_NEAR(eval_softmax((const float[]){ 1000, 1000, -1000 }, 3, p), 1000 + log(2)); /* no overflow */
    ASSERT_NEAR(p[0], 0.5);
    assert_true(p[2] == 0);
    ASSERT_NEAR(eval_softmax((const float[]){ -1000, -1000 }, 2, NULL), -1000 + log(2));
}

static double kl_of(const float *p_logits, const float *q_logits, uint32_t n)
{
    float p[4];
    double p_sum = eval_softmax(p_logits, n, p);
    return eval_kl(p_logits, p, p_sum, q_logits, eval_softmax(q_logits, n, NULL), n);
}

static void kl_by_hand(void **state)
{
    const float even[] = { 2, 2 }, uneven[] = { logf(3), 0 }, sure[] = { 0, -2000 };
    const float odd[] = { 0.1f, -7.3f, 2.2f };
    (void)state;
    ASSERT_NEAR(kl_of(even, uneven, 2), 0.5 * log(0.5 / 0.75) + 0.5 * log(0.5 / 0.25)); /* 0.1438 */
    ASSERT_NEAR(kl_of(uneven, even, 2), 0.75 * log(0.75 / 0.5) + 0.25 * log(0.25 / 0.5)); /* 0.1308 */
    ASSERT_NEAR(kl_of(sure, even, 2), log(2)); /* 0 log 0 is 0 */
    assert_true(kl_of(odd, odd, 3) == 0);
    /* The same distribution: its KL rounds to -7e-9, and 0 is what it is. */
    assert_true(kl_of((const float[]){ 0.1f, -1.3f, 0.046875f }, (const float[]){ 0.1f + 1, -1.3f + 1, 1.046875f }, 3) == 0);
}

static void perplexity_mean_percentile(void **state)
{
    double values[150];
    (void)state;
    ASSERT_NEAR(eval_perplexity(log(2) + log(8), 2), 4);
    ASSERT_NEAR(eval_mean((const double[]){ 1, 2, 6 }, 3), 3);
    for (int i = 0; i < 150; i++) values[i] = (i * 7) % 150 + 1; /* 1..150 in some order */
    assert_true(eval_percentile(values, 150, 99) == 149);        /* the 148.5th, rounded up */
    assert_true(eval_percentile(values, 100, 99) == 99);         /* sorted by now */
    assert_true(eval_percentile(values, 10, 99) == 10);
    assert_true(eval_percentile(values, 1, 99) == 1);
    assert_int_equal(eval_most_likely((const float[]){ -3, 5, 5, 1 }, 4), 1);
}

static void percent_rounds_down(void **state)
{
    (void)state;
    assert_int_equal(eval_amount_of((eval_amount){ 20, true }, 35), 7);
    assert_int_equal(eval_amount_of((eval_amount){ 18.4, true }, 375), 69); /* 68.999... in doubles */
    assert_int_equal(eval_amount_of((eval_amount){ 10, true }, 2048), 204);
    assert_int_equal(eval_amount_of((eval_amount){ 33.3, true }, 1000), 333);
    assert_int_equal(eval_amount_of((eval_amount){ 100, true }, 300), 300);
    assert_int_equal(eval_amount_of((eval_amount){ 256, false }, 100), 256);
}

/* ---- Documents ---------------------------------------------------------------------------------------- */

static const char prose[] = "One fish swam. Two fish swam! Did three? A fourth fish swam by.\n\nThe end came.";

static void pieces_end_with_sentences(void **state)
{
    static const char *const pieces[] = { "One fish swam.", " Two fish swam!", " Did three?", " A fourth fish swam by.",
                                          "\n\nThe end came." };
    cli_buffer text = { .data = (char *)(uintptr_t)prose, .n = strlen(prose) };
    eval_pieces p;
    (void)state;
    assert_true(eval_cut(&p, &text));
    assert_int_equal(p.n, 5);
    for (uint32_t i = 0; i < p.n; i++) {
        assert_int_equal(p.start[i + 1] - p.start[i], strlen(pieces[i]));
        assert_memory_equal(prose + p.start[i], pieces[i], strlen(pieces[i]));
    }
    free(p.start);
}

static void a_text_without_sentences_is_cut_too(void **state)
{
    char words[2001];
    cli_buffer text = { .data = words, .n = 2000 };
    eval_pieces p;
    (void)state;
    for (int i = 0; i < 2000; i++) words[i] = i % 5 == 4 ? ' ' : 'a';
    words[2000] = '\0';
    assert_true(eval_cut(&p, &text));
    assert_true(p.n >= 4);
    assert_int_equal(p.start[p.n], 2000);
    free(p.start);
}

static void document_by_hand(void **state)
{
    cli_buffer text = { .data = (char *)(uintptr_t)prose, .n = strlen(prose) }, out = { 0 };
    eval_options o = { .depth = { 0, 50, 100 }, .n_depths = 3 };
    const eval_key keys[] = { { "Ada", 12345, 1 }, { "Bob", 67890, 2 }, { "Cy", 55555, 0 } };
    eval_pieces p;
    (void)state;
    assert_true(eval_cut(&p, &text));
    assert_true(eval_write_document(&out, &o, &p, 3, 4, keys, 3)); /* pieces 3, 4, 0, 1: 24, 15, 14, 15 bytes */
    assert_true(eval_write_question(&out, &keys[0], true));
    assert_true(eval_write_question(&out, &keys[1], false));
    assert_string_equal(out.data, "The secret number of Cy is 55555. A fourth fish swam by.\n\nThe end came. "
                        "The secret number of Ada is 12345.\n\nOne fish swam. Two fish swam! "
                        "The secret number of Bob is 67890.\n\nThe secret number of Ada is"
                        ".\n\nThe secret number of Bob is");
    cli_buffer_free(&out);
    free(p.start);
}

static void keys_are_drawn_from_the_seed(void **state)
{
    eval_options o = { .keys = 11, .questions = 4, .n_depths = 5, .cache.seed = 3 }, other = o;
    eval_pieces p = { .n = 1000 };
    eval_key a[EVAL_MOST_QUESTIONS], b[EVAL_MOST_QUESTIONS];
    uint32_t first, again, depths[5] = { 0 }, differ = 0;
    (void)state;
    other.cache.seed = 4;
    assert_int_equal(eval_documents(&o), 3);
    assert_int_equal(eval_keys_in(&o, 1), 4);
    assert_int_equal(eval_keys_in(&o, 2), 3);
    for (uint32_t d = 0; d < 3; d++) {
        eval_draw(&o, d, &p, a, &first);
        eval_draw(&o, d, &p, b, &again);
        assert_int_equal(first, again);
        for (uint32_t i = 0; i < eval_keys_in(&o, d); i++) {
            assert_true(a[i].number >= 10000 && a[i].number <= 99999);
            assert_int_equal(a[i].number, b[i].number);
            assert_string_equal(a[i].name, b[i].name);
            for (uint32_t k = 0; k < i; k++) assert_string_not_equal(a[i].name, a[k].name);
            depths[a[i].depth]++;
        }
        eval_draw(&other, d, &p, b, &again);
        differ += first != again && a[0].number != b[0].number;
    }
    for (int i = 0; i < 5; i++) assert_true(depths[i] == 2 + (i == 0)); /* 11 keys take turns */
    assert_int_equal(differ, 3);
}

static void answers(void **state)
{
    static const struct {
        const char *answer;
        bool right, ended;
    } cases[] = {
        { " 48213", true, false },          { " 48213.", true, true },  { "\n  48213 and", true, true },
        { " not known, maybe 48213,", true, true }, { " 482135", false, true }, { " 4821", false, false },
        { " 4821.", false, true },          { " 12 48213.", false, true }, { "", false, false },
        { " the same as before", false, false }, { " 048213", false, true },
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        if (eval_answer_right(cases[i].answer, 48213) != cases[i].right) fail_msg("right: %s", cases[i].answer);
        if (eval_answer_ended(cases[i].answer) != cases[i].ended) fail_msg("ended: %s", cases[i].answer);
    }
}

/* ---- Rows --------------------------------------------------------------------------------------------- */

static eval_options grid(enum eval_what what)
{
    eval_options o = { .what = what, .file = "a", .policies_text = "h2o,full,streaming", .budgets_text = "20%,64",
                       .tokens = EVAL_AUTO, .keys = EVAL_AUTO, .questions = EVAL_AUTO, .threads = 1 };
    cache_defaults(&o.cache);
    o.cache.pool = 2;
    o.cache.decay = 0.5;
    assert_true(eval_check(&o));
    return o;
}

static void rows_of_a_grid(void **state)
{
    static const struct {
        const char *policy;
        uint32_t budget, recent, sinks;
        double decay, percent;
    } right[] = {
        { "h2o", 200, 100, 0, 0.5, 20 }, { "h2o", 64, 32, 0, 0.5, -1 },
        { "streaming", 200, 100, 4, 1, 20 }, { "streaming", 64, 32, 4, 1, -1 }, /* which has no scores to decay */
    };
    static eval e;
    eval_options o = grid(EVAL_PPL);
    (void)state;
    e = (eval){ .options = &o };
    assert_int_equal(o.cache.ubatch, 16);
    assert_int_equal(o.tokens, 2048);
    assert_true(eval_make_rows(&e, 1000, 1010));
    assert_int_equal(e.n_rows, 5);
    assert_string_equal(e.row[0].cache.policy, "full");
    assert_int_equal(e.row[0].cache.budget, 1010);
    for (int i = 0; i < 4; i++) {
        const eval_row *r = &e.row[i + 1];
        assert_string_equal(r->cache.policy, right[i].policy);
        assert_int_equal(r->cache.budget, right[i].budget);
        assert_int_equal(r->cache.recent, right[i].recent);
        assert_int_equal(r->cache.sinks, right[i].sinks);
        assert_int_equal(r->cache.pool, i < 2 ? 2 : 0);
        assert_true(r->cache.decay == right[i].decay && r->percent == right[i].percent);
        assert_true(r->n == 0 && isnan(r->ppl) && isnan(r->kl_mean) && isnan(eval_recall(r)));
    }
}

static void rows_that_cannot_be(void **state)
{
    static const struct {
        const char *budget, *recent;
        uint32_t sinks;
        const char *says;
    } cases[] = {
        { "1%", NULL, EVAL_AUTO, "--budget 1% of 1000 tokens is 10: at least 16" },
        { "100,64", "80", EVAL_AUTO, "--recent 80 is more than --budget 64" },
        { "64", "50%", 33, "--sink 33 + --recent 32 is more than --budget 64" },
    };
    static eval e;
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        eval_options o = { .file = "a", .policies_text = "h2o", .keys = EVAL_AUTO, .questions = EVAL_AUTO };
        bool ok;
        cache_defaults(&o.cache);
        o.budgets_text = cases[i].budget;
        o.recent_text = cases[i].recent;
        o.cache.sinks = cases[i].sinks;
        assert_true(eval_check(&o));
        e = (eval){ .options = &o };
        stderr_catch();
        ok = eval_make_rows(&e, 1000, 1000);
        assert_contains(stderr_caught(), cases[i].says);
        assert_false(ok);
    }
}

/* ---- Files -------------------------------------------------------------------------------------------- */

/* As if a recall of 5 keys, 2 of them first questions, had been measured. */
static void pretend(eval *e, const eval_options *o)
{
    *e = (eval){ .options = o, .source = "a<b & \"c\".txt", .model = "m.gguf", .hash = "" };
    assert_true(eval_make_rows(e, 1000, 1010));
    for (uint32_t i = 0; i < e->n_rows; i++) {
        eval_row *r = &e->row[i];
        r->n = 5;
        r->n_first = 2;
        r->right_first = 2;
        r->right = i == 0 ? 5 : 2;
        r->depth_n[0] = 5;
        r->depth_right[0] = r->right;
        strcpy(r->attention, "observe");
    }
    e->row[3].n = 0; /* not reached before Ctrl-C */
    e->stopped = true;
}

static char *contents(const char *path)
{
    static char text[65536];
    FILE *file = fopen(path, "rb");
    size_t n = file ? fread(text, 1, sizeof text - 1, file) : 0;
    assert_non_null(file);
    fclose(file);
    text[n] = '\0';
    return text;
}

static void json_and_csv(void **state)
{
    static eval e;
    eval_options o = grid(EVAL_RECALL);
    const char *path = program_file(NULL, 0);
    FILE *file = fopen(path, "wb");
    json_t *j, *rows, *row;
    char *csv;
    (void)state;
    o.cache.prompt_budget = 300;
    pretend(&e, &o);
    assert_true(file && eval_print_json(file, &e));
    fclose(file);
    j = json_loads(contents(path), 0, NULL);
    rows = json_object_get(j, "rows");
    assert_true(json_is_true(json_object_get(j, "stopped")));
    assert_int_equal(json_array_size(rows), 4);
    row = json_array_get(rows, 1);
    ASSERT_NEAR(json_real_value(json_object_get(row, "recall")), 0.4);
    ASSERT_NEAR(json_real_value(json_object_get(row, "decay")), 0.5);
    assert_int_equal(json_integer_value(json_object_get(row, "pool")), 2);
    assert_int_equal(json_integer_value(json_object_get(row, "prompt_budget")), 300);
    assert_string_equal(json_string_value(json_object_get(row, "guide")), "auto");
    assert_string_equal(json_string_value(json_object_get(json_array_get(rows, 0), "guide")), "off");
    assert_true(json_is_null(json_object_get(json_array_get(rows, 0), "prompt_budget")));
    ASSERT_NEAR(json_real_value(json_object_get(row, "recall_first")), 1);
    assert_true(json_is_real(json_object_get(row, "recall_later")));
    ASSERT_NEAR(json_real_value(json_object_get(row, "recall_later")), 0);
    assert_true(json_is_null(json_object_get(row, "ppl")) && json_is_null(json_object_get(row, "model_sha256")));
    json_decref(j);

    assert_true(eval_write_csv(path, &e));
    csv = contents(path);
    assert_int_equal(count_of(csv, "\n"), 5);
    assert_int_equal(strncmp(csv, "measure,policy,budget,recent,decay,pool,guide,prompt_budget,ppl,", 64), 0);
    assert_contains(csv, "\n\"recall\",\"h2o\",200,100,0.5,2,\"auto\",300,,,,,,0.4,1.0,0.0,5,"
                    "\"10:2/5 30:0/0 50:0/0 70:0/0 90:0/0\",20.0,0,0,,16,8,\"head\",\"f16\",64,");
    assert_contains(csv, "\"a<b & \"\"c\"\".txt\"");
    program_clean();
}

static void chart(void **state)
{
    static eval e;
    eval_options o = grid(EVAL_RECALL);
    const char *path = program_file(NULL, 0), *svg;
    (void)state;
    pretend(&e, &o);
    assert_true(eval_write_svg(path, &e));
    svg = contents(path);
    assert_contains(svg, "prefers-color-scheme: dark");
    assert_contains(svg, "a&#60;b &#38; ");
    assert_int_equal(count_of(svg, "<circle"), 3); /* the fourth was not measured */
    assert_int_equal(count_of(svg, "<polyline"), 2);
    assert_contains(svg, "<title>h2o guided, budget 200: 0.4</title>");
    assert_contains(svg, "full cache, 1010</text>");
    assert_lacks(svg, "nan");
    assert_int_equal(count_of(svg, "<g "), count_of(svg, "</g>"));
    program_clean();
}

/* Each guide of a policy has a line of its own. */
static void lines_of_guides(void **state)
{
    static eval e;
    eval_options o = { .what = EVAL_RECALL, .policies_text = "h2o,streaming", .budgets_text = "20%,10%,64",
                       .guides_text = "off,auto,7", .tokens = EVAL_AUTO, .keys = EVAL_AUTO, .questions = EVAL_AUTO };
    static const char *const names[] = { "full", "h2o", "h2o", "h2o", "h2o guided", "h2o guided", "h2o guided",
                                         "h2o guide 7", "h2o guide 7", "h2o guide 7", "streaming", "streaming", "streaming" };
    const char *path = program_file(NULL, 0), *svg;
    char name[48];
    (void)state;
    cache_defaults(&o.cache);
    assert_true(eval_check(&o));
    pretend(&e, &o);
    assert_int_equal(e.n_rows, 13);
    for (int i = 0; i < 13; i++) assert_string_equal(eval_row_name(&e.row[i], name, sizeof name), names[i]);
    assert_int_equal(e.row[9].cache.guide, 7);
    assert_int_equal(e.row[9].cache.budget, 64);
    assert_int_equal(e.row[4].cache.budget, 200);
    assert_true(eval_write_svg(path, &e));
    svg = contents(path);
    assert_int_equal(count_of(svg, "<polyline"), 4);
    assert_int_equal(count_of(svg, "<circle"), 11); /* one was not measured */
    assert_contains(svg, ">h2o guide 7</text>");
    assert_contains(svg, "<title>streaming, budget 64: 0.4</title>");
    program_clean();
}

static void hash_of_a_file(void **state)
{
    char hash[EVAL_HASH_LENGTH + 1];
    (void)state;
    eval_hash_file(program_file("abc", 3), hash); /* FIPS 180-4's example */
    assert_string_equal(hash, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    eval_hash_file("/nowhere", hash);
    assert_string_equal(hash, "");
    program_clean();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(usage_errors),
#ifdef H2OKV_HAVE_LLAMA
        cmocka_unit_test(files_that_are_none),
#else
        cmocka_unit_test(without_llama),
#endif
        cmocka_unit_test(softmax_by_hand),
        cmocka_unit_test(kl_by_hand),
        cmocka_unit_test(perplexity_mean_percentile),
        cmocka_unit_test(percent_rounds_down),
        cmocka_unit_test(pieces_end_with_sentences),
        cmocka_unit_test(a_text_without_sentences_is_cut_too),
        cmocka_unit_test(document_by_hand),
        cmocka_unit_test(keys_are_drawn_from_the_seed),
        cmocka_unit_test(answers),
        cmocka_unit_test(rows_of_a_grid),
        cmocka_unit_test(rows_that_cannot_be),
        cmocka_unit_test(json_and_csv),
        cmocka_unit_test(chart),
        cmocka_unit_test(lines_of_guides),
        cmocka_unit_test(hash_of_a_file),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
