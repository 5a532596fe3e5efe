/*
 * test_bench.c - `h2okv bench` without a model: what it refuses, and what it makes of figures that are known.
 * tests/cli/test_bench_model.c measures.
 */
#include "program.h"
#include "xml.h"

#include "bench.h"
#include "h2okv/advanced.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- Refused ------------------------------------------------------------------------------------------ */

static void usage_errors(void **state)
{
    static const struct {
        const char *words[6], *says;
    } cases[] = {
        { { "now" }, "takes no argument, and 'now' is one" },
        { { "--contexts", "1k,,2k" }, "--contexts '' is no list of contexts such as 1k,2k,4096" },
        { { "--contexts", "1k," }, "--contexts '' is no list" },
        { { "--contexts", "1g" }, "--contexts '1g' is no list" },
        { { "--contexts", "k" }, "--contexts 'k' is no list" },
        { { "--contexts", "-1k" }, "--contexts '-1k' is no list" },
        { { "--contexts", "63" }, "--contexts 63 is out of range: 64 to " },
        { { "--contexts", "0k" }, "--contexts 0 is out of range: 1 to " },
        { { "--long", "4194304k" }, "--long 4194304 is out of range: 1 to " }, /* 2^32 */
        { { "--contexts", "64,65,66,67,68,69,70,71,72,73,74,75,76,77,78,79,80" }, "more than 16 contexts" },
        { { "--contexts", "none", "--long", "none" }, "no context is left to measure: give --contexts" },
        { { "--contexts", "64", "--new", "64" }, "--new 64 leaves no prompt in a context of 64" },
        { { "--systems", "llama", "--long", "2k" }, "--long is measured with fused alone" },
        { { "--systems", "lama" }, "--systems 'lama' is unknown; did you mean 'llama'?" },
        { { "--systems", "llama,ollama-serve" }, "is unknown; choose from llama-fa, llama, observe, " },
        { { "--isa", "sse9000" }, "--isa 'sse9000' is unknown; choose from scalar" },
        { { "--repeat", "0" }, "--repeat 0 is out of range: 1 to 99" },
        { { "--repeat", "100" }, "--repeat 100 is out of range: 1 to 99" },
        { { "--budget", "15" }, "--budget 15 is out of range: 16 to " },
        { { "--minutes", "nan" }, "--minutes 'nan' is not a number" },
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const char *words[8] = { "bench" };
        for (size_t k = 0; k < 6; k++) words[k + 1] = cases[i].words[k];
        program_expect_list(2, cases[i].says, words);
    }
}

static void instruction_sets(void **state)
{
    program_result r = program_run("bench", "--isa", "list");
    char line[64];
    (void)state;
    assert_int_equal(r.code, 0);
    for (uint32_t i = 0; h2okv_isa_name(i); i++) assert_contains(r.out, h2okv_isa_name(i));
    snprintf(line, sizeof line, "%-10s usable, the best here\n", h2okv_isa_best());
    assert_contains(r.out, line);
    assert_int_equal(count_of(r.out, "the best here"), 1);
    program_free(&r);
}

/* Nothing is measured that could not be kept, or from a text that is none. */
static void files_that_are_none(void **state)
{
    (void)state;
    program_expect(6, "/nowhere/a.csv: cannot write: No such file", "bench", "--systems", "none", "--csv",
                   "/nowhere/a.csv");
    program_expect(6, "/nowhere/a.svg: cannot write: No such file", "bench", "--systems", "none", "--svg",
                   "/nowhere/a.svg");
    program_expect(4, "/nowhere.txt: cannot open: No such file", "bench", "--systems", "none", "-f",
                   "/nowhere.txt");
    program_expect(4, ": is empty", "bench", "--systems", "none", "-f", program_file("", 0));
    program_expect(4, ": not a text: invalid UTF-8 at byte 3", "bench", "--systems", "none", "-f",
                   program_file("abc\xff", 4));
    program_clean();
}

static void kernels_alone(void **state)
{
    program_result r = program_run("bench", "--systems", "none", "--quick", "-t", "2", "-q");
    (void)state;
    assert_int_equal(r.code, 0);
    assert_string_equal(r.err, "");
    assert_contains(r.out, "decode kernel alone, ");
    assert_contains(r.out, "copy bandwidth ");
    assert_contains(r.out, "\n   65,536 ");
    assert_lacks(r.out, "context");
    program_free(&r);
}

#ifndef H2OKV_HAVE_LLAMA
static void without_llama(void **state)
{
    (void)state;
    program_expect(3, "this h2okv was built without llama.cpp", "bench");
}
#endif

/* ---- Figures that are known --------------------------------------------------------------------------- */

static bench_options options;

static bench_sample sample(double prompt_s, double token_s, uint64_t peak)
{
    return (bench_sample){ .prompt_s = prompt_s, .first_token_s = prompt_s, .token_s = token_s,
                           .kv_bytes = 1000, .peak_bytes = peak, .prompt_tokens = 1000, .cells = 1024,
                           .ubatch = 224 };
}

static void add(bench *b, enum bench_system system, uint32_t context, bench_sample s)
{
    b->point[b->n_points].system = system;
    b->point[b->n_points].context = context;
    b->point[b->n_points].sample[0] = s;
    b->point[b->n_points++].n = 1;
}

/* Every prompt has 1,000 tokens here, so prompt_s gives the speed. */
static bench known(void)
{
    bench b = { .options = &options, .point = calloc(16, sizeof *b.point), .source = "text" };
    options = (bench_options){ .threads = 2, .budget = 800, .n_new = 64 };
    snprintf(b.machine.cpu, sizeof b.machine.cpu, "A & B <fast> \xc3\xa9");
    snprintf(b.machine.engine, sizeof b.machine.engine, "llama.cpp 1");
    add(&b, BENCH_LLAMA_FA, 1024, sample(2.0, 1 / 100.0, 400));
    add(&b, BENCH_LLAMA, 1024, sample(1.6, 1 / 80.0, 400));
    add(&b, BENCH_FUSED, 1024, sample(1.25, 1 / 150.0, 300));
    add(&b, BENCH_LLAMA_FA, 4096, sample(4.0, 1 / 50.0, 500));
    add(&b, BENCH_FUSED, 4096, sample(1.0, 1 / 140.0, 300));
    add(&b, BENCH_FUSED_ALL, 4096, sample(3.0, 1 / 90.0, 500));
    add(&b, BENCH_LLAMA_FA, 8192, sample(8.0, 1 / 20.0, 600));
    add(&b, BENCH_FUSED, 8192, sample(2.0, 1 / 130.0, 300));
    add(&b, BENCH_FUSED, 32768, sample(1.6, 1 / 120.0, 300));
    b.kernels = (bench_kernels){ .isa = "scalar", .n = 3, .copy_gb_s = { 10, 9, 11 } };
    b.kernels.row[0].cells = 1024;
    b.kernels.row[0].share = 0.25; /* only from 8,192 cells on is it looked at */
    b.kernels.row[1].cells = 8192;
    b.kernels.row[1].share = 0.75;
    b.kernels.row[2].cells = 65536;
    b.kernels.row[2].share = 0.5;
    return b;
}

static void ratios(void **state)
{
    static const struct {
        const char *key, *text;
        double value;
    } right[] = {
        { "decode", "decode at 8k, fused / llama.cpp flash attention", 6.5 },
        { "decode_any_context",
          "decode, fused at any context (slowest at 32k) / llama.cpp flash attention at 1k", 1.2 },
        { "decode_all_kept", "decode at 4k, fused with nothing evicted / llama.cpp flash attention", 1.8 },
        { "first_token", "time to first token at 8k, llama.cpp flash attention / fused", 4.0 },
        { "prompt_any_context",
          "prompt speed, fused at any context (slowest at 8k) / llama.cpp without flash attention at 1k",
          0.8 },
        { "prompt_linear", "prompt speed, fused at 32k / fused at 4k", 0.625 },
        { "peak_rss", "peak memory at 8k, fused / llama.cpp flash attention", 0.5 },
        { "kernel_share", "decode kernel alone from 8k cells on, least / copy bandwidth", 0.5 },
    };
    bench b = known();
    bench_ratio got[BENCH_MOST_RATIOS];
    (void)state;
    assert_int_equal(bench_ratios(&b, got), sizeof right / sizeof right[0]);
    for (size_t i = 0; i < sizeof right / sizeof right[0]; i++) {
        assert_string_equal(got[i].key, right[i].key);
        assert_string_equal(got[i].text, right[i].text);
        if (fabs(got[i].value - right[i].value) > 1e-9) fail_msg("%s: %g", got[i].key, got[i].value);
    }
    b.point[6].n = 0; /* stopped before llama.cpp was measured at 8k: then 4k is the largest */
    assert_true(bench_ratios(&b, got) == 8 && strstr(got[0].text, "at 4k"));
    b.n_points = 0;
    b.kernels.n = 0;
    assert_int_equal(bench_ratios(&b, got), 0);
    free(b.point);
}

static void medians(void **state)
{
    double odd[] = { 3, 1, 2 }, even[] = { 4, 1, 2, 8 };
    bench_spread a = bench_spread_of(odd, 3), b = bench_spread_of(even, 4);
    (void)state;
    assert_true(a.median == 2 && a.least == 1 && a.most == 3);
    assert_true(b.median == 3 && b.least == 1 && b.most == 8);
}

/* Whatever the processor is called. */
static void chart(void **state)
{
    bench b = known();
    const char *path = program_file("", 0);
    char *svg;
    (void)state;
    assert_true(bench_write_svg(path, &b));
    svg = file_bytes(path);
    if (xml_fault(svg)) fail_msg("not well-formed at: %.80s", xml_fault(svg));
    assert_contains(svg, "A &#38; B &#60;fast&#62; ??, 2 threads");
    assert_contains(svg, "prefers-color-scheme: dark");
    assert_int_equal(count_of(svg, "<circle"), 9);
    assert_int_equal(count_of(svg, "<polyline"), 4);
    assert_contains(svg, ">llama.cpp without flash attention</text>");
    assert_lacks(svg, ">h2okv observe</text>");
    assert_contains(svg, "fused at 8k: 130.0 tok/s (130.0..130.0)");
    assert_lacks(svg, "nan");
    assert_int_equal(count_of(svg, "http"), 1); /* the namespace; nothing is loaded */
    free(svg);
    b.n_points = 0;
    assert_true(bench_write_svg(path, &b));
    svg = file_bytes(path);
    assert_null(xml_fault(svg));
    free(svg);
    free(b.point);
    program_clean();
}

static void csv(void **state)
{
    bench b = known();
    const char *path = program_file("", 0);
    char *text;
    (void)state;
    b.point[1].n = 2;
    b.point[1].sample[1] = sample(0.5, 1 / 40.0, 401);
    assert_true(bench_write_csv(path, &b));
    text = file_bytes(path);
    assert_int_equal(count_of(text, "\n"), 1 + 9 + 1);
    assert_contains(text, "round,system,context,prompt_tokens,prompt_tok_s,first_token_s,decode_tok_s,cells,"
                          "ubatch,kv_bytes,peak_rss_bytes,isa\n"
                          "1,llama-fa,1024,1000,500.000,2.000000,100.000,1024,224,1000,400,\n");
    assert_contains(text, "\n2,llama,1024,1000,2000.000,0.500000,40.000,1024,224,1000,401,\n");
    free(text);
    free(b.point);
    program_clean();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(usage_errors),
        cmocka_unit_test(instruction_sets),
        cmocka_unit_test(files_that_are_none),
        cmocka_unit_test(kernels_alone),
#ifndef H2OKV_HAVE_LLAMA
        cmocka_unit_test(without_llama),
#endif
        cmocka_unit_test(ratios),
        cmocka_unit_test(medians),
        cmocka_unit_test(chart),
        cmocka_unit_test(csv),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
