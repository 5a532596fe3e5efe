/*
 * test_run_model.c - `h2okv run` on the default model.
 *
 * One thread and short texts: what is tested is the program, not the model's speed.
 */
#include "program.h"
#include "report.h"

#include "h2okv/advanced.h"

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

/* GiB that a run would need, from its refusal. */
static double needed(const char *attention)
{
    program_result r = program_run("run", "-p", "a", MODEL, "--budget", "400000000", "--attention", attention);
    const char *at = strstr(r.err, " needs ");
    double gib = at ? strtod(at + 7, NULL) : 0;
    assert_int_equal(r.code, 2);
    program_free(&r);
    return gib;
}

/* 9 heads x 128 queries x 400,000,128 cells x 4 bytes. Fused attention has no such rows. */
static void only_observe_mode_needs_room_for_weights(void **state)
{
    double fused = needed("fused"), rows = 9.0 * 128 * 400000128 * 4 / (1 << 30);
    (void)state;
    assert_true(needed("auto") == fused);
    assert_true(needed("observe") > fused + rows - 1 && needed("observe") < fused + rows + 1);
}

/* Before the text is read; and keeping new tokens for a while does not make up for it. */
static void fault_26_a_small_budget_is_warned_of(void **state)
{
    program_result r = program_run("run", "-f", text, SMALL, "-n", "0");
    (void)state;
    assert_int_equal(r.code, 0);
    assert_contains(r.err, "warning: --budget 48 is below 64, the least that is advised for a text of ");
    assert_true(strstr(r.err, "warning: ") < strstr(r.err, "  prompt "));
    program_free(&r);
    r = program_run("run", "-f", text, SMALL, "-n", "0", "--grace", "32");
    assert_contains(r.err, "warning: --budget 48 is below 64, the least that is advised for a text of ");
    program_free(&r);
    r = program_run("run", "-f", text, SMALL, "-n", "0", "-q");
    assert_string_equal(r.err, "");
    program_free(&r);
    r = program_run("run", "-p", SHORT, SMALL, "-n", "0");
    assert_lacks(r.err, "warning");
    program_free(&r);
}

/* Where a text has to fit, what it needs is named; and what a chunk of it needs, in test_run_guide.c. */
static void fault_35_full_policy_needs_room(void **state)
{
    (void)state;
    program_expect(2, "h2okv run: --policy full keeps every token: 7 in the text and 48 new ones need --budget 55\n", "run",
                   "-p", SHORT, SMALL, "--policy", "full", "-n", "48");
}

/* Cells are 256; a text that is longer from the start is read as one that grows beyond them is. */
static void fault_35_no_text_is_too_long(void **state)
{
    static char many[8192];
    program_result at_once, grown;
    json_t *a, *b;
    (void)state;
    for (int i = 0; i < 30; i++) strcat(many, "The lazy owner counted 17 cups, then slept.\n");
    at_once = program_run("run", "-p", many, SMALL, "-n", "0", "--json", "-q");
    grown = program_run("run", "-p", SHORT, SMALL, "-n", "300", "--ignore-eos", "--json", "-q");
    a = object_of(&at_once);
    b = object_of(&grown);
    assert_true(number(a, "prompt_tokens") > 300 && number(a, "positions") == number(a, "prompt_tokens"));
    assert_int_equal(number(b, "generated_tokens"), 300);
    assert_int_equal(number(a, "cells"), 256);
    assert_int_equal(number(b, "cells"), 256);
    assert_int_equal(number(a, "live"), 48);
    assert_int_equal(number(b, "live"), 48);
    json_decref(a);
    json_decref(b);
    program_free(&at_once);
    program_free(&grown);
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
    program_result r = program_run("run", "-f", text, SMALL, "-n", "40", "--ignore-eos", "--json", "-q");
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
    assert_string_equal(string(j, "policy"), "default");
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

/* What says how large the cache is does so whatever its type, and --print-config shows it. */
static void fault_38_sizes_hold_for_every_type(void **state)
{
    static const struct {
        const char *type, *line;
        int bytes; /* of 32 numbers */
    } types[] = { { "f16", "\nkv-type     f16\n", 64 }, { "q8_0", "\nkv-type     q8_0\n", 34 } };
    (void)state;
    for (size_t i = 0; i < 2; i++) {
        program_result r = program_run("run", "-f", text, MODEL, "--kv-type", types[i].type, "--budget", "100", "--ubatch",
                                       "30", "--recent", "60", "--sink", "3", "--prompt-budget", "110", "-n", "2", "--guide",
                                       "off", "--json", "--print-config");
        json_t *j = object_of(&r);
        static const char *const lines[] = { "\nbudget      100\n", "\nrecent      60\n", "\nsink        3\n",
                                             "\nubatch      30\n" };
        assert_int_equal(r.code, 0);
        for (size_t k = 0; k < sizeof lines / sizeof lines[0]; k++) assert_contains(r.err, lines[k]);
        assert_contains(r.err, types[i].line);
        assert_true(number(j, "budget") == 100 && number(j, "recent") == 60 && number(j, "sinks") == 3);
        assert_true(number(j, "ubatch") == 30 && number(j, "peak_live") == 140 && number(j, "live") == 100);
        assert_int_equal(number(j, "cells"), 256);
        assert_int_equal(number(j, "kv_bytes"), 256 * 30 * 3 * 2 * 64 / 32 * types[i].bytes); /* layers, heads, K and V */
        json_decref(j);
        program_free(&r);
    }
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
    assert_contains(r.err, "default, budget 48 = 24 recent + 24 heavy (4 sinks)\n  prompt   ");
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

static char *sample(const char *temp, const char *seed)
{
    program_result r = program_run("run", "-p", SHORT, SMALL, "-n", "16", "-q", "--temp", temp, "--seed", seed);
    assert_int_equal(r.code, 0);
    free(r.err);
    return r.out;
}

static void same_seed_same_text(void **state)
{
    char *a = sample("1.2", "7"), *again = sample("1.2", "7"), *b = sample("1.2", "8");
    (void)state;
    assert_string_equal(a, again);
    assert_string_not_equal(a, b);
    free(a);
    free(again);
    free(b);
}

static void hardly_any_temperature_is_none(void **state)
{
    char *cold = sample("1e-40", "7"), *none = sample("0", "0"); /* no normal number as a float */
    (void)state;
    assert_string_equal(cold, none);
    free(cold);
    free(none);
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
                                         "\nsink        0\n",      "\nubatch      16\n",
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

static void a_byte_order_mark_is_no_token(void **state)
{
    program_result plain = program_run("run", "-p", SHORT, SMALL, "-n", "8", "--json");
    program_result marked = program_run("run", "-f", program_file("\xef\xbb\xbf" SHORT, 3 + sizeof SHORT - 1), SMALL,
                                        "-n", "8", "--json");
    program_result piped = program_run_with((program_setup){ .input = "\xef\xbb\xbf" SHORT }, "run", "-", SMALL, "-n",
                                            "8", "--json");
    json_t *a = object_of(&plain), *b = object_of(&marked), *c = object_of(&piped);
    (void)state;
    assert_int_equal(number(b, "prompt_tokens"), number(a, "prompt_tokens"));
    assert_int_equal(number(c, "prompt_tokens"), number(a, "prompt_tokens"));
    assert_string_equal(string(b, "text"), string(a, "text"));
    json_decref(a);
    json_decref(b);
    json_decref(c);
    program_free(&plain);
    program_free(&marked);
    program_free(&piped);
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_cut_model_is_refused),
        cmocka_unit_test(a_model_without_vocabulary_is_refused),
        cmocka_unit_test(a_budget_larger_than_the_machine_is_refused),
        cmocka_unit_test(only_observe_mode_needs_room_for_weights),
        cmocka_unit_test(fault_26_a_small_budget_is_warned_of),
        cmocka_unit_test(fault_35_full_policy_needs_room),
        cmocka_unit_test(fault_35_no_text_is_too_long),
        cmocka_unit_test(the_models_file_is_read_or_mapped),
        cmocka_unit_test(json_keys_and_invariants),
        cmocka_unit_test(nothing_to_generate),
        cmocka_unit_test(attention_isa_and_types),
        cmocka_unit_test(fault_38_sizes_hold_for_every_type),
        cmocka_unit_test(text_and_report),
        cmocka_unit_test(same_seed_same_text),
        cmocka_unit_test(hardly_any_temperature_is_none),
        cmocka_unit_test(end_of_text),
        cmocka_unit_test(options_reach_the_cache),
        cmocka_unit_test(settings_in_effect),
        cmocka_unit_test(a_byte_order_mark_is_no_token),
        cmocka_unit_test(output_that_fails),
    };
    return cmocka_run_group_tests(tests, start, end);
}
