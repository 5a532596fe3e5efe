/*
 * test_session_file.c - session files: cut or changed anywhere, forged, of other models and options; and an engine that
 * stops. What is refused leaves the sequence as before.
 */
#include "session_rig.h"
#include "synth.h"

#include "support/rng.h"

#include <stdlib.h>
#include <string.h>

enum { BUDGET = 8, RECENT = 3, UBATCH = 6, N = 100 };

/* Where things lie in the file. */
enum {
    AT_FORMAT = 8, AT_LENGTH = 12, AT_LIBRARY = 20, AT_MODEL = 36, AT_NAME = 44, AT_ROPE = 108, AT_LANES = 172,
    AT_LAYERS = 176, AT_NEXT_POS = 180, AT_LIVE = 184, AT_NOTE_BYTES = 188, AT_BOOKS_BYTES = 196, AT_LAYER = 204,
    AT_NOTE = AT_LAYER + 20, NOTE = 4, AT_BOOKS = AT_NOTE + NOTE
};

static struct llama_model *model;
static llama_token text[N];
static uint32_t calls_left = UINT32_MAX; /* of the abort callback before it aborts */

static struct llama_model *make_model(uint64_t seed, uint32_t layers, const synth_key *keys)
{
    return synth_model(&(synth_shape){
        .layers = layers, .query_heads = 2, .kv_heads = 1, .k_dim = 32, .v_dim = 32, .seed = seed, .keys = keys,
    });
}

static int open_all(void **state)
{
    if (synth_open(state) != 0) {
        return -1;
    }
    synth_text(text, N, 51);
    model = make_model(9, 1, NULL);
    session_open_folder();
    return 0;
}

static int close_all(void **state)
{
    session_close_folder();
    llama_model_free(model);
    return synth_close(state);
}

static bool abort_when_asked(void *user)
{
    (void)user;
    return calls_left == 0 || (calls_left != UINT32_MAX && --calls_left == 0);
}

/* Options that tests change. */
typedef struct setting {
    struct llama_model *model;
    h2okv_options cache;
    struct llama_context_params params;
    uint32_t lanes;
} setting;

static setting defaults(void)
{
    setting s = {.model = model, .cache = synth_cache_options(BUDGET, RECENT), .params = synth_params(0, 0)};
    s.params.abort_callback = abort_when_asked;
    return s;
}

static h2okv_llama *make_with(const setting *s)
{
    h2okv_llama_options o;
    h2okv_llama_options_init(&o);
    o.cache = &s->cache;
    o.ubatch = UBATCH;
    o.lanes = s->lanes;
    h2okv_llama *h = NULL;
    h2okv_error error = {0};
    if (h2okv_llama_create(&h, s->model, s->params, &o, &error) != H2OKV_OK) {
        fail_msg("create: %s", error.text);
    }
    return h;
}

static h2okv_llama *make(void)
{
    setting s = defaults();
    return make_with(&s);
}

static session_bytes saved(h2okv_llama *h)
{
    assert_int_equal(h2okv_llama_seq_save(h, 0, session_path("good"), "note", NOTE), H2OKV_OK);
    return session_load(session_path("good"));
}

/* A sequence of another text, and what it holds, so that any change shows. */
typedef struct victim {
    h2okv_llama *h;
    uint64_t digest;
} victim;

static victim make_victim(h2okv_llama *h)
{
    assert_int_equal(h2okv_llama_decode(h, text + 40, 30), H2OKV_OK);
    return (victim){h, session_digest(h, 0, true)};
}

static void refused(const victim *v, const void *data, size_t n, int expected, const char *field, const char *part)
{
    session_store(session_path("bad"), data, n);
    void *note = NULL;
    size_t note_bytes = 0;
    synth_assert_failed(v->h, h2okv_llama_restore(v->h, session_path("bad")), expected, field, part);
    assert_true(session_digest(v->h, 0, true) == v->digest);
    synth_assert_failed(v->h, h2okv_llama_seq_read_note(v->h, 0, session_path("bad"), &note, &note_bytes), expected,
                        field, part);
    assert_null(note);
    assert_true(session_digest(v->h, 0, true) == v->digest);
}

static void test_cut_or_changed_anywhere(void **state)
{
    (void)state;
    h2okv_llama *h = make();
    assert_int_equal(h2okv_llama_decode(h, text, 40), H2OKV_OK);
    session_bytes b = saved(h);
    victim v = make_victim(make());
    for (size_t n = 0; n < b.n; n++) {
        refused(&v, b.data, n, H2OKV_E_FILE, "session", n < 8 ? "no session" : "is cut");
    }
    b.data[b.n] = 0; /* there is room for one more */
    refused(&v, b.data, b.n + 1, H2OKV_E_FILE, "session", "is damaged");
    for (size_t at = 0; at < b.n; at++) {
        static const unsigned char change[] = {1, 0x80, 0xFF};
        for (uint32_t c = 0; c < sizeof change; c++) {
            b.data[at] ^= change[c];
            refused(&v, b.data, b.n, H2OKV_E_FILE, "session", "");
            b.data[at] ^= change[c];
        }
    }
    session_store(session_path("bad"), b.data, b.n);
    assert_int_equal(h2okv_llama_restore(v.h, session_path("bad")), H2OKV_OK);
    assert_true(session_digest(v.h, 0, true) == session_digest(h, 0, true));
    free(b.data);
    h2okv_llama_free(v.h);
    h2okv_llama_free(h);
}

static void put(unsigned char *at, uint64_t value, unsigned bytes)
{
    for (unsigned i = 0; i < bytes; i++) {
        at[i] = (unsigned char)(value >> (8 * i));
    }
}

/* All is as it should be but for one thing, and the checksum is right. */
static void test_forged(void **state)
{
    (void)state;
    static const struct {
        size_t at;
        unsigned bytes;
        uint64_t value;
        int status;
        const char *field, *text;
    } forged[] = {
        {0, 1, 'h', H2OKV_E_FILE, "session", "this is no session of h2okv"},
        {AT_FORMAT, 4, 2, H2OKV_E_FILE, "session", "has format 2"},
        {AT_LENGTH, 8, 100, H2OKV_E_FILE, "session", "is damaged: it has"},
        {AT_LENGTH, 8, 1 << 20, H2OKV_E_FILE, "session", "is cut: it has"},
        {AT_MODEL, 8, 1, H2OKV_E_INVALID, "model", "of another model of the kind llama"},
        {AT_NAME, 1, 'L', H2OKV_E_INVALID, "model", "the session is of the model Llama"},
        {AT_ROPE, 8, 1, H2OKV_E_INVALID, "rope_scaling_type", "rope_scaling_type is "},
        {AT_ROPE + 7 * 8, 8, 1, H2OKV_E_INVALID, "yarn_orig_ctx", "in the session and 0 here"},
        {AT_LANES, 4, 1, H2OKV_E_INVALID, "lanes", "lanes is 1 in the session and 0 here"},
        {AT_LAYERS, 4, 2, H2OKV_E_FILE, "session", "its parts do not make up the whole"},
        {AT_LAYERS, 4, UINT32_MAX, H2OKV_E_FILE, "session", "its parts do not"},
        {AT_LIVE, 4, BUDGET - 1, H2OKV_E_FILE, "session", "its parts do not"},
        {AT_LIVE, 4, UINT32_MAX, H2OKV_E_FILE, "session", "its parts do not"},
        {AT_NOTE_BYTES, 8, 0, H2OKV_E_FILE, "session", "its parts do not"},
        {AT_NOTE_BYTES, 8, UINT64_MAX - 3, H2OKV_E_FILE, "session", "its parts do not"},
        {AT_BOOKS_BYTES, 8, UINT64_MAX, H2OKV_E_FILE, "session", "its parts do not"},
        {AT_NEXT_POS, 4, 41, H2OKV_E_FILE, "session", "its positions are not those before its end"},
        {AT_NEXT_POS, 4, 39, H2OKV_E_FILE, "session", "its positions are not"},
        {AT_NEXT_POS, 4, UINT32_MAX, H2OKV_E_FILE, "session", "its positions are not"},
        {AT_NEXT_POS, 4, 0, H2OKV_E_FILE, "session", "its positions are not"},
        {AT_LAYER, 4, 2, H2OKV_E_INVALID, "kv_heads", "kv_heads of layer 0 is 2 in the session and 1 here"},
        {AT_LAYER + 4, 4, 64, H2OKV_E_INVALID, "k_dim", "k_dim of layer 0 is 64 in the session and 32 here"},
        {AT_LAYER + 8, 4, 16, H2OKV_E_INVALID, "v_dim", "v_dim of layer 0 is 16"},
        {AT_LAYER + 12, 4, 0, H2OKV_E_INVALID, "type_k", "type_k of layer 0 is 0 (f32) in the session and 1 (f16) here"},
        {AT_LAYER + 16, 4, 70000, H2OKV_E_INVALID, "type_v", "type_v of layer 0 is 70000"},
        {AT_BOOKS + 60, 1, 77, H2OKV_E_FILE, "session", "the saved books are damaged: their checksum"},
        {AT_BOOKS + 8, 1, 9, H2OKV_E_FILE, "session", "the saved books have format 9"},
    };
    h2okv_llama *h = make();
    assert_int_equal(h2okv_llama_decode(h, text, 40), H2OKV_OK);
    session_bytes b = saved(h);
    victim v = make_victim(make());
    for (uint32_t i = 0; i < sizeof forged / sizeof forged[0]; i++) {
        unsigned char before[8];
        memcpy(before, b.data + forged[i].at, sizeof before);
        put(b.data + forged[i].at, forged[i].value, forged[i].bytes);
        session_sign(&b);
        refused(&v, b.data, b.n, forged[i].status, forged[i].field, forged[i].text);
        memcpy(b.data + forged[i].at, before, sizeof before);
    }
    put(b.data + AT_LIBRARY, 'X', 1); /* of whatever version, as long as the format is this one */
    session_sign(&b);
    session_store(session_path("bad"), b.data, b.n);
    assert_int_equal(h2okv_llama_restore(v.h, session_path("bad")), H2OKV_OK);
    free(b.data);
    h2okv_llama_free(v.h);
    h2okv_llama_free(h);
}

/* Several things changed so that they fit together. */
static void test_forged_in_step(void **state)
{
    (void)state;
    enum { CELL_BYTES = 2 * 32 * 2, FRONT = AT_LAYER, SUM = 8 };
    h2okv_llama *h = make();
    victim v = make_victim(make());
    session_bytes empty = saved(h);
    put(empty.data + AT_NEXT_POS, UINT32_MAX, 4);
    session_sign(&empty);
    refused(&v, empty.data, empty.n, H2OKV_E_FILE, "session", "its positions are not");
    assert_int_equal(h2okv_llama_decode(h, text, 40), H2OKV_OK);
    session_bytes b = saved(h), part = {malloc(b.n), b.n - CELL_BYTES};
    assert_non_null(part.data);
    memcpy(part.data, b.data, b.n); /* one cell's K and V fewer than the books have */
    put(part.data + AT_LENGTH, part.n, 8);
    put(part.data + AT_LIVE, BUDGET - 1, 4);
    session_sign(&part);
    refused(&v, part.data, part.n, H2OKV_E_FILE, "session", "its positions are not");
    memcpy(part.data, b.data, b.n); /* no layers, and their list is part of the note */
    part.n = b.n;
    put(part.data + AT_LAYERS, 0, 4);
    put(part.data + AT_NOTE_BYTES, 20 + NOTE, 8);
    session_sign(&part);
    refused(&v, part.data, part.n, H2OKV_E_FILE, "session", "its parts do not");
    memcpy(part.data, b.data, b.n); /* lengths whose sum overflows to the right one */
    part.data[AT_NOTE_BYTES + 7] = part.data[AT_BOOKS_BYTES + 7] = 0x80;
    session_sign(&part);
    refused(&v, part.data, part.n, H2OKV_E_FILE, "session", "its parts do not");
    free(part.data);
    part = (session_bytes){malloc(FRONT + SUM), FRONT + SUM}; /* ends where the list of layers should begin */
    assert_non_null(part.data);
    memcpy(part.data, b.data, FRONT);
    put(part.data + AT_LENGTH, part.n, 8);
    session_sign(&part);
    refused(&v, part.data, part.n, H2OKV_E_FILE, "session", "its parts do not");
    free(part.data);
    free(b.data);
    free(empty.data);
    h2okv_llama_free(v.h);
    h2okv_llama_free(h);
}

/* Books that name a cell twice: llama.cpp cannot have put tokens there, so it chooses, and what was tried is forgotten. */
static void test_cells_that_cannot_be(void **state)
{
    (void)state;
    h2okv_llama *h = make();
    assert_int_equal(h2okv_llama_decode(h, text, 40), H2OKV_OK);
    session_bytes b = saved(h), books = {b.data + AT_BOOKS, h2okv_cache_state_bytes(h2okv_llama_cache(h))};
    victim v = make_victim(make());
    unsigned char *engine = books.data + books.n - 8 - BUDGET * 16 - BUDGET * 8; /* one lane, and no pins or grace */
    memcpy(engine + (BUDGET - 1) * 8, engine + 8, 4);
    session_sign(&books);
    session_sign(&b);
    session_store(session_path("bad"), b.data, b.n);
    assert_int_equal(h2okv_llama_restore(v.h, session_path("bad")), H2OKV_OK);
    synth_assert_books_match_engine(v.h);
    assert_true(session_digest(v.h, 0, true) == session_digest(h, 0, true));
    assert_int_equal(h2okv_llama_decode(v.h, text, 20), H2OKV_OK);
    assert_int_equal(h2okv_llama_decode(h, text, 20), H2OKV_OK);
    assert_true(session_digest(v.h, 0, true) == session_digest(h, 0, true)); /* in fused mode cells make no difference */
    free(b.data);
    h2okv_llama_free(v.h);
    h2okv_llama_free(h);
}

/* Random bytes of head and books, both checksums right: refused, or a sequence that works. */
static void test_forged_at_random(void **state)
{
    (void)state;
    h2okv_llama *h = make();
    assert_int_equal(h2okv_llama_decode(h, text, 40), H2OKV_OK);
    session_bytes b = saved(h), books;
    size_t books_bytes = h2okv_cache_state_bytes(h2okv_llama_cache(h));
    unsigned char *good = malloc(b.n);
    assert_non_null(good);
    memcpy(good, b.data, b.n);
    victim v = make_victim(make());
    rng random = {5};
    uint32_t taken = 0;
    for (uint32_t i = 0; i < 3000; i++) {
        memcpy(b.data, good, b.n);
        for (uint32_t k = rng_range(&random, 1, 3); k > 0; k--) {
            uint32_t at = rng_range(&random, i % 4 ? AT_BOOKS + 100 : AT_LANES, AT_BOOKS + (uint32_t)books_bytes - 9);
            b.data[at] = (unsigned char)rng_below(&random, i % 3 ? 12 : 256);
        }
        books = (session_bytes){b.data + AT_BOOKS, books_bytes};
        session_sign(&books);
        session_sign(&b);
        session_store(session_path("bad"), b.data, b.n);
        int status = h2okv_llama_restore(v.h, session_path("bad"));
        if (status == H2OKV_OK) {
            taken++;
            synth_assert_books_match_engine(v.h);
            assert_int_equal(h2okv_llama_decode(v.h, text, 1 + i % 9), H2OKV_OK);
            v.digest = session_digest(v.h, 0, true);
        }
        assert_true(status == H2OKV_OK || status == H2OKV_E_FILE || status == H2OKV_E_INVALID);
        assert_true(session_digest(v.h, 0, true) == v.digest);
    }
    assert_true(taken > 100);
    free(good);
    free(b.data);
    h2okv_llama_free(v.h);
    h2okv_llama_free(h);
}

static void refused_here(const setting *s, const session_bytes *b, const char *field, const char *part)
{
    victim v = make_victim(make_with(s));
    refused(&v, b->data, b->n, H2OKV_E_INVALID, field, part);
    h2okv_llama_free(v.h);
}

static void test_other_options(void **state)
{
    (void)state;
    h2okv_llama *h = make();
    assert_int_equal(h2okv_llama_decode(h, text, 40), H2OKV_OK);
    session_bytes b = saved(h);
    setting s = defaults();
    s.cache.budget = 9;
    refused_here(&s, &b, "budget", "budget is 8 where the books come from and 9 here");
    s = defaults();
    s.cache.policy = "snapkv";
    refused_here(&s, &b, "policy", "policy is \"h2o\" where the books come from and \"snapkv\" here");
    s = defaults();
    s.cache.decay = 0.5;
    refused_here(&s, &b, "decay", "decay is 1 where");
    s = defaults();
    s.lanes = H2OKV_LANES_ALL;
    refused_here(&s, &b, "lanes", "lanes is 0 in the session and 2 here");
    s = defaults();
    s.params.type_k = GGML_TYPE_Q8_0;
    refused_here(&s, &b, "type_k", "type_k of layer 0 is 1 (f16) in the session and 8 (q8_0) here");
    s = defaults();
    s.params.type_v = GGML_TYPE_BF16;
    refused_here(&s, &b, "type_v", "type_v of layer 0 is 1 (f16) in the session and 30 (bf16) here");
    s = defaults();
    s.params.rope_freq_base = 5000.0f;
    refused_here(&s, &b, "rope_freq_base", "rope_freq_base is 0 in the session and 5000 here");
    s = defaults();
    s.params.rope_freq_scale = 0.5f;
    refused_here(&s, &b, "rope_freq_scale", "rope_freq_scale is 0 in the session and 0.5 here");
    free(b.data);
    h2okv_llama_free(h);
}

/* Alike but for the weights, for a line of metadata, for the number of layers. */
static void test_other_models(void **state)
{
    (void)state;
    static const synth_key other_key[] = {
        {"rope.freq_base", SYNTH_F32, 20000.0, {0}},
        {NULL, SYNTH_U32, 0, {0}},
    };
    h2okv_llama *h = make();
    assert_int_equal(h2okv_llama_decode(h, text, 40), H2OKV_OK);
    session_bytes b = saved(h);
    struct llama_model *same = make_model(9, 1, NULL);
    struct llama_model *other[] = {make_model(10, 1, NULL), make_model(9, 1, other_key), make_model(9, 2, NULL)};
    setting s = defaults();
    for (uint32_t i = 0; i < 3; i++) {
        s.model = other[i];
        refused_here(&s, &b, "model", "of another model of the kind llama");
        llama_model_free(other[i]);
    }
    s.model = same;
    victim v = make_victim(make_with(&s));
    assert_int_equal(h2okv_llama_restore(v.h, session_path("good")), H2OKV_OK);
    h2okv_llama_free(v.h);
    llama_model_free(same);
    free(b.data);
    h2okv_llama_free(h);
}

/* llama.cpp breaks off, sooner or later: the sequence is empty, and works. */
static void test_engine_that_stops(void **state)
{
    (void)state;
    h2okv_llama *h = make();
    assert_int_equal(h2okv_llama_decode(h, text, 40), H2OKV_OK);
    uint64_t before = session_digest(h, 0, true);
    uint32_t failed = 0;
    int status = H2OKV_E_ENGINE;
    assert_int_equal(h2okv_llama_save(h, session_path("good")), H2OKV_OK);
    while (status != H2OKV_OK) {
        assert_int_equal(h2okv_llama_decode(h, text, 30), H2OKV_OK);
        calls_left = failed + 1;
        status = h2okv_llama_restore(h, session_path("good"));
        calls_left = UINT32_MAX;
        if (status != H2OKV_OK) {
            failed++;
            synth_assert_failed(h, status, H2OKV_E_ENGINE, "cells", "would not take");
            assert_int_equal(h2okv_llama_next_pos(h), 0);
            synth_assert_books_match_engine(h);
        }
    }
    assert_true(failed > 4);
    assert_true(session_digest(h, 0, true) == before);
    llama_memory_clear(llama_get_memory(h2okv_llama_context(h)), true); /* behind our back */
    synth_assert_failed(h, h2okv_llama_save(h, session_path("good")), H2OKV_E_BROKEN, "memory", "used past this handle");
    synth_assert_failed(h, h2okv_llama_restore(h, session_path("good")), H2OKV_E_BROKEN, "handle", "free this handle");
    h2okv_llama_free(h);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cut_or_changed_anywhere),
        cmocka_unit_test(test_forged),
        cmocka_unit_test(test_forged_in_step),
        cmocka_unit_test(test_cells_that_cannot_be),
        cmocka_unit_test(test_forged_at_random),
        cmocka_unit_test(test_other_options),
        cmocka_unit_test(test_other_models),
        cmocka_unit_test(test_engine_that_stops),
    };
    return cmocka_run_group_tests(tests, open_all, close_all);
}
