/*
 * test_run_model.c - `h2okv run` on the default model.
 *
 * One thread and short texts: what is tested is the program, not the model's speed.
 */
#define _POSIX_C_SOURCE 200809L /* popen */
#include "program.h"

#include "h2okv/advanced.h"

#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MODEL "-m", H2OKV_TEST_MODEL, "-t", "1"
#define SMALL MODEL, "--budget", "48", "--ubatch", "16"
#define SHORT "Water boils at a hundred degrees because"

static const char *text; /* a file of about 170 tokens */

static int start(void **state)
{
    static char many[4096];
    (void)state;
    for (int i = 0; i < 12; i++) strcat(many, "The lazy caf\xc3\xa9 owner counted 17 cups, then slept.\n");
    text = program_file(many, strlen(many));
    return 0;
}

static int end(void **state)
{
    (void)state;
    program_clean();
    return 0;
}

static json_t *object_of(const program_result *r)
{
    json_error_t error;
    json_t *j = json_loads(r->out, 0, &error); /* it refuses invalid UTF-8 and anything behind the object */
    if (!j) fail_msg("%s in: %s%s", error.text, r->out, r->err);
    return j;
}

static json_int_t number(const json_t *j, const char *key)
{
    if (!json_is_integer(json_object_get(j, key))) fail_msg("no whole number \"%s\"", key);
    return json_integer_value(json_object_get(j, key));
}

static double real(const json_t *j, const char *key)
{
    if (!json_is_real(json_object_get(j, key))) fail_msg("no real number \"%s\"", key);
    return json_real_value(json_object_get(j, key));
}

static const char *string(const json_t *j, const char *key)
{
    if (!json_is_string(json_object_get(j, key))) fail_msg("no string \"%s\"", key);
    return json_string_value(json_object_get(j, key));
}

/* ---- Refused ------------------------------------------------------------------------------------------ */

static void a_cut_model_is_refused(void **state)
{
    enum { CUT = 1 << 22 };
    char *bytes = malloc(CUT);
    FILE *file = fopen(H2OKV_TEST_MODEL, "rb");
    (void)state;
    assert_true(file && bytes && fread(bytes, 1, CUT, file) == CUT);
    fclose(file);
    program_expect(5, "llama.cpp cannot load it: llama_model_load: error loading model: tensor", "run", "-p",
                   "a", "-m", program_file(bytes, CUT));
    program_expect(5, ": llama.cpp cannot load it: ", "run", "-p", "a", "-m", program_file(bytes, CUT / 8));
    free(bytes);
}

/* The default model with another word for its tokenizer, of the same length. llama.cpp aborts when such a model is
 * asked for tokens. */
static void a_model_without_vocabulary_is_refused(void **state)
{
    static const char key[] = "tokenizer.ggml.model";
    FILE *file = fopen(H2OKV_TEST_MODEL, "rb");
    char *bytes = NULL, *name = NULL;
    long n = 0;
    (void)state;
    assert_true(file && fseek(file, 0, SEEK_END) == 0 && (n = ftell(file)) > 65536);
    bytes = malloc((size_t)n);
    rewind(file);
    assert_true(bytes && fread(bytes, 1, (size_t)n, file) == (size_t)n);
    fclose(file);
    for (char *at = bytes; !name && at < bytes + 65536; at++) {
        if (memcmp(at, key, sizeof key - 1) == 0) name = at + sizeof key - 1 + 4 + 8; /* type, length */
    }
    assert_true(name && memcmp(name, "gpt2", 4) == 0);
    memcpy(name, "none", 4);
    program_expect(5, ": has no vocabulary", "run", "-p", "a", "-t", "1", "-m", program_file(bytes, (size_t)n));
    free(bytes);
}

static void a_budget_larger_than_the_machine_is_refused(void **state)
{
    (void)state;
    program_expect(2, "--budget 400000000 with passes of 128 tokens needs ", "run", "-p", "a", MODEL,
                   "--budget", "400000000");
    program_expect(2, "with passes of 100000000 tokens needs ", "run", "-p", "a", MODEL, "--ubatch",
                   "100000000");
}

static void full_policy_needs_room(void **state)
{
    (void)state;
    program_expect(2, "--policy full keeps every token: ", "run", "-p", SHORT, SMALL, "--policy", "full",
                   "-n", "48");
}

static void the_models_file_is_read_or_mapped(void **state)
{
    program_result r = program_run("run", "-p", SHORT, SMALL, "-n", "0", "-v");
    (void)state;
    assert_contains(r.err, "(load_mode = none)");
    program_free(&r);
    r = program_run("run", "-p", SHORT, SMALL, "-n", "0", "-v", "--mmap");
    assert_contains(r.err, "(load_mode = mmap)");
    program_free(&r);
}

/* ---- Run ---------------------------------------------------------------------------------------------- */

static void json_keys_and_invariants(void **state)
{
    program_result r = program_run("run", "-f", text, SMALL, "-n", "40", "--ignore-eos", "--json");
    json_t *j;
    json_int_t prompt, decoded;
    (void)state;
    assert_int_equal(r.code, 0);
    assert_string_equal(r.err, "");
    j = object_of(&r);
    prompt = number(j, "prompt_tokens");
    decoded = prompt + 39; /* the last new token does not go through the model */
    assert_true(prompt > 120 && prompt < 300);
    assert_int_equal(number(j, "generated_tokens"), 40);
    assert_int_equal(number(j, "budget"), 48);
    assert_int_equal(number(j, "recent"), 24);
    assert_int_equal(number(j, "sinks"), 4);
    assert_int_equal(number(j, "live"), 48);
    assert_int_equal(number(j, "peak_live"), 48 + 16);
    assert_int_equal(number(j, "positions"), decoded);
    assert_int_equal(number(j, "evicted"), decoded - 48);
    assert_true(number(j, "cells") >= 48 + 16);
    assert_int_equal(number(j, "lanes"), 90);
    assert_true(number(j, "moves") > 0);
    assert_int_equal(number(j, "kv_bytes") * decoded, number(j, "kv_bytes_full") * number(j, "cells"));
    assert_true(real(j, "prompt_tok_s") > 0 && real(j, "decode_tok_s") > 0 && real(j, "ttft_s") > 0);
    assert_true(number(j, "peak_rss_bytes") > 50000000);
    assert_true(strlen(string(j, "text")) > 40);
    assert_string_equal(string(j, "stopped"), "limit");
    assert_string_equal(string(j, "policy"), "h2o");
    assert_string_equal(string(j, "model"), H2OKV_TEST_MODEL);
    json_decref(j);
    program_free(&r);
}

static void nothing_to_generate(void **state)
{
    program_result r = program_run("run", "-p", SHORT, SMALL, "-n", "0", "--json"), plain;
    json_t *j = object_of(&r);
    (void)state;
    assert_int_equal(r.code, 0);
    assert_int_equal(number(j, "generated_tokens"), 0);
    assert_int_equal(number(j, "positions"), number(j, "prompt_tokens"));
    assert_true(json_is_null(json_object_get(j, "ttft_s")));
    assert_true(json_is_null(json_object_get(j, "decode_tok_s")));
    assert_string_equal(string(j, "text"), "");
    json_decref(j);
    program_free(&r);
    plain = program_run("run", "-p", SHORT, SMALL, "-n", "0");
    assert_int_equal(plain.code, 0);
    assert_string_equal(plain.out, "");
    assert_contains(plain.err, "  new      0 tokens");
    program_free(&plain);
}

static json_t *object_with(const char *attention, const char *option, const char *value)
{
    program_result r = program_run("run", "-f", text, SMALL, "-n", "2", "--json", "--attention", attention,
                                   option, value);
    json_t *j = object_of(&r);
    assert_int_equal(r.code, 0);
    program_free(&r);
    return j;
}

/* q8_0 stores 32 numbers in 34 bytes, f16 in 64. */
static void attention_isa_and_types(void **state)
{
    json_t *f16 = object_with("auto", "--isa", "scalar"), *q8 = object_with("auto", "--kv-type", "q8_0");
    json_t *observe = object_with("observe", "--kv-type", "f16");
    (void)state;
    assert_string_equal(string(f16, "attention"), "fused");
    assert_string_equal(string(f16, "isa"), "scalar");
    assert_string_equal(string(f16, "kv_type"), "f16");
    assert_string_equal(string(q8, "attention"), "fused");
    assert_string_equal(string(q8, "isa"), h2okv_isa_best());
    assert_string_equal(string(q8, "kv_type"), "q8_0");
    assert_int_equal(number(q8, "kv_bytes") * 64, number(f16, "kv_bytes") * 34);
    assert_string_equal(string(observe, "attention"), "observe");
    assert_true(json_is_null(json_object_get(observe, "isa")));
    assert_int_equal(number(observe, "kv_bytes"), number(f16, "kv_bytes"));
    json_decref(f16);
    json_decref(q8);
    json_decref(observe);
}

/* The text alone goes to stdout, the report to stderr; from a file, an argument or stdin alike. */
static void text_and_report(void **state)
{
    program_result r = program_run("run", "-p", SHORT, SMALL, "-n", "12");
    program_result quiet = program_run("run", "-f", program_file(SHORT, strlen(SHORT)), SMALL, "-n", "12",
                                       "--quiet");
    program_result stdin_json = program_run_with(((program_setup){ .input = SHORT }), "run", "-", SMALL, "-n",
                                                 "12", "--json", "-q");
    json_t *j = object_of(&stdin_json);
    (void)state;
    assert_int_equal(r.code, 0);
    assert_true(r.n_out > 20);
    assert_contains(r.err, "h2o, budget 48 = 24 recent + 24 heavy (4 sinks)\n  prompt   ");
    assert_contains(r.err, "  new      12 tokens in ");
    assert_contains(r.err, "; a full cache would need ");
    assert_true(longest_line(r.err) <= 80);
    assert_lacks(r.err, "\r"); /* progress is for terminals */
    assert_int_equal(quiet.code, 0);
    assert_string_equal(quiet.err, "");
    assert_string_equal(quiet.out, r.out);
    assert_string_equal(string(j, "text"), r.out);
    json_decref(j);
    program_free(&r);
    program_free(&quiet);
    program_free(&stdin_json);
}

static char *sample(const char *seed)
{
    program_result r = program_run("run", "-p", SHORT, SMALL, "-n", "16", "-q", "--temp", "1.2", "--seed",
                                   seed);
    assert_int_equal(r.code, 0);
    free(r.err);
    return r.out;
}

static void same_seed_same_text(void **state)
{
    char *a = sample("7"), *again = sample("7"), *b = sample("8");
    (void)state;
    assert_string_equal(a, again);
    assert_string_not_equal(a, b);
    free(a);
    free(again);
    free(b);
}

/* An end token ends the text, unless it is never chosen; it is not counted. */
static void end_of_text(void **state)
{
    program_result r = program_run("run", "-p", "The capital of France is Paris.", SMALL, "-n", "400",
                                   "--json");
    json_t *j = object_of(&r);
    json_int_t n = number(j, "generated_tokens");
    (void)state;
    if (strcmp(string(j, "stopped"), "eos") != 0) fail_msg("not ended in 400 tokens: %s", string(j, "text"));
    assert_true(n < 400);
    assert_int_equal(number(j, "positions"), number(j, "prompt_tokens") + n);
    json_decref(j);
    program_free(&r);
}

/* Moves of a run with one option more; what lanes choose shows in them. */
static json_int_t moves_with(const char *policy, const char *option, const char *value)
{
    program_result r = program_run("run", "-f", text, SMALL, "-n", "0", "--json", "--policy", policy, option,
                                   value);
    json_t *j = object_of(&r);
    json_int_t moves = number(j, "moves");
    assert_int_equal(r.code, 0);
    json_decref(j);
    program_free(&r);
    return moves;
}

static void options_reach_the_cache(void **state)
{
    (void)state;
    assert_int_equal(moves_with("window", "--sink", "0"), 0); /* the oldest token goes, and its cell with it */
    assert_true(moves_with("window", "--sink", "4") > 0);
    assert_int_not_equal(moves_with("h2o", "--decay", "1"), moves_with("h2o", "--decay", "0.5"));
    assert_int_not_equal(moves_with("random", "--seed", "1"), moves_with("random", "--seed", "2"));
}

static void settings_in_effect(void **state)
{
    program_result r = program_run("run", "-p", SHORT, SMALL, "-n", "1", "-q", "--print-config", "--recent",
                                   "46",
                                   "--policy", "random", "--lanes", "layer", "--temp", "0.5", "--top-k", "3");
    static const char *const lines[] = { "\npolicy      random\n", "\nbudget      48\n", "\nrecent      46\n",
                                         "\nsink        2\n",      "\nubatch      16\n",
                                         "\nlanes       layer (30)\n",
                                         "\nattention   fused\nisa         ", "\nkv-type     f16\n",
                                         "\ntop-k       3\n",      "\nthreads     1\n",
                                         "\ntop-p       0.95\n" };
    (void)state;
    assert_int_equal(r.code, 0);
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++) assert_contains(r.err, lines[i]);
    assert_lacks(r.err, "llama_"); /* llama.cpp is silent without --verbose */
    program_free(&r);
    r = program_run("run", "-p", SHORT, SMALL, "-n", "0", "-q", "--verbose");
    assert_contains(r.err, "llama_");
    program_free(&r);
}

/* ---- Stopped ------------------------------------------------------------------------------------------ */

static void ctrl_c_while_writing(void **state)
{
    program_result r = program_run_with(((program_setup){ .signal = SIGINT, .signal_after = "" }), "run",
                                        "-p", SHORT, SMALL, "-n", "100000", "--ignore-eos");
    (void)state;
    assert_int_equal(r.code, 130);
    assert_contains(r.err, "(interrupted)");
    assert_contains(r.err, "  KV       ");
    program_free(&r);
}

/* A text of so many words, each a token, and one token more. The model was trained for 8,192. */
static const char *words(int n)
{
    static char many[10000 * 6 + 1];
    assert_true(n <= 10000);
    for (int i = 0; i < n; i++) memcpy(many + 6 * i, "apple ", 6);
    return program_file(many, (size_t)n * 6);
}

static void ctrl_c_while_reading(void **state)
{
    program_setup term = { .signal = SIGTERM, .signal_after = "seed  " };
    program_result r = program_run_with(term, "run", "-f", words(10000), SMALL, "--print-config", "--json",
                                        "-q");
    json_t *j = object_of(&r);
    (void)state;
    assert_int_equal(r.code, 130);
    assert_string_equal(string(j, "stopped"), "interrupt");
    assert_int_equal(number(j, "generated_tokens"), 0);
    assert_true(number(j, "positions") < number(j, "prompt_tokens"));
    assert_lacks(r.err, "warning");
    json_decref(j);
    program_free(&r);
}

static void a_text_past_the_trained_context_is_warned_of(void **state)
{
    program_setup soon = { .signal = SIGINT, .signal_after = "warning: " }; /* the rest would take long */
    program_result r = program_run_with(soon, "run", "-f", words(10000), SMALL);
    (void)state;
    assert_int_equal(r.code, 130);
    assert_int_equal(count_of(r.err, "warning: "), 1);
    assert_contains(r.err, " tokens run past the 8,192 that the model was trained for");
    assert_contains(r.err, " read) in "); /* so many of the prompt's tokens */
    assert_contains(r.err, "  new      0 tokens (interrupted)\n");
    program_free(&r);
}

static void running_past_the_trained_context_is_warned_of_once(void **state)
{
    program_result r = program_run("run", "-f", words(8188), MODEL, "--budget", "16", "--policy", "window",
                                   "-n", "8", "--ignore-eos");
    (void)state;
    assert_int_equal(r.code, 0);
    assert_contains(r.err, "  prompt   8,189 tokens in ");
    assert_int_equal(count_of(r.err, "warning: "), 1);
    assert_contains(r.err, "warning: 8,193 tokens run past the 8,192 ");
    program_free(&r);
}

/* Passes of 1,024 tokens take long enough that the second signal comes in the first one. */
static void ctrl_c_twice(void **state)
{
    program_setup twice = { .signal = SIGINT, .signal_after = "seed  ", .signal_twice = true };
    program_result r;
    (void)state;
    r = program_run_with(twice, "run", "-f", words(10000), MODEL, "--ubatch", "1024", "--print-config");
    assert_int_equal(r.code, -SIGINT);
    assert_lacks(r.err, "interrupted");
    program_free(&r);
}

static void output_that_fails(void **state)
{
    program_result full = program_run_with(((program_setup){ .output_file = "/dev/full" }), "run", "-p",
                                           SHORT, SMALL, "-q");
    program_result closed = program_run_with(((program_setup){ .output_file = "" }), "run", "-p", SHORT,
                                             SMALL, "-q");
    (void)state;
    assert_int_equal(full.code, 6);
    assert_string_equal(full.err, "h2okv run: cannot write to standard output: No space left on device\n");
    assert_int_equal(closed.code, 6);
    assert_contains(closed.err, "cannot write to standard output");
    program_free(&full);
    program_free(&closed);
}

/* As in `h2okv run ... | head -c 1`: no message, and it does not go on for 100,000 tokens. */
static void a_reader_that_goes_away(void **state)
{
    char command[1024];
    const char *err = program_file(NULL, 0);
    FILE *file;
    (void)state;
    snprintf(command, sizeof command,
             "'%s' run -m '%s' -t 1 --budget 48 -p '%s' -n 100000 --ignore-eos -q 2>%s | head -c 1",
             H2OKV_TEST_CLI, H2OKV_TEST_MODEL, SHORT, err);
    file = popen(command, "r");
    assert_non_null(file);
    assert_int_not_equal(fgetc(file), EOF);
    assert_int_equal(fgetc(file), EOF);
    assert_int_equal(pclose(file), 0);
    file = fopen(err, "r");
    assert_non_null(file);
    assert_int_equal(fgetc(file), EOF);
    fclose(file);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_cut_model_is_refused),
        cmocka_unit_test(a_model_without_vocabulary_is_refused),
        cmocka_unit_test(a_budget_larger_than_the_machine_is_refused),
        cmocka_unit_test(full_policy_needs_room),
        cmocka_unit_test(the_models_file_is_read_or_mapped),
        cmocka_unit_test(json_keys_and_invariants),
        cmocka_unit_test(nothing_to_generate),
        cmocka_unit_test(attention_isa_and_types),
        cmocka_unit_test(text_and_report),
        cmocka_unit_test(same_seed_same_text),
        cmocka_unit_test(end_of_text),
        cmocka_unit_test(options_reach_the_cache),
        cmocka_unit_test(settings_in_effect),
        cmocka_unit_test(ctrl_c_while_writing),
        cmocka_unit_test(ctrl_c_while_reading),
        cmocka_unit_test(a_text_past_the_trained_context_is_warned_of),
        cmocka_unit_test(running_past_the_trained_context_is_warned_of_once),
        cmocka_unit_test(ctrl_c_twice),
        cmocka_unit_test(output_that_fails),
        cmocka_unit_test(a_reader_that_goes_away),
    };
    return cmocka_run_group_tests(tests, start, end);
}
