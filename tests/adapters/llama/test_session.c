/*
 * test_session.c - a sequence that was saved and restored, into another context, goes on as the one that was not: tokens
 * kept, scores, K and V; in each mode and from one mode to the other, whatever had been done to it.
 */
#include "session_rig.h"
#include "synth.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { BUDGET = 40, RECENT = 12, UBATCH = 16, MORE = 60, GUIDE = 5, N = 400, MOST_KEPT = 256 };

static llama_token text[N], question[GUIDE];

static int open_all(void **state)
{
    if (synth_open(state) != 0) {
        return -1;
    }
    synth_text(text, N, 41);
    synth_text(question, GUIDE, 42);
    session_open_folder();
    return 0;
}

static int close_all(void **state)
{
    session_close_folder();
    return synth_close(state);
}

/* Where a session is made, or restored to. */
typedef struct place {
    uint32_t attention, lanes, ubatch, room, sequences, seq;
    enum ggml_type type_k, type_v;
    const char *policy;
} place;

static h2okv_llama *make(struct llama_model *model, const place *p)
{
    h2okv_options cache;
    h2okv_options_init(&cache);
    cache.budget = BUDGET;
    cache.recent = RECENT;
    cache.policy = p->policy;
    h2okv_llama_options o;
    h2okv_llama_options_init(&o);
    o.cache = &cache;
    o.attention = p->attention;
    o.lanes = p->lanes;
    o.ubatch = p->ubatch;
    o.room = p->room;
    o.sequences = p->sequences;
    struct llama_context_params params = synth_params(0, 0);
    params.type_k = p->type_k;
    params.type_v = p->type_v;
    h2okv_llama *h = NULL;
    h2okv_error error = {0};
    if (h2okv_llama_create(&h, model, params, &o, &error) != H2OKV_OK) {
        fail_msg("create: %s", error.text);
    }
    return h;
}

static void decode(h2okv_llama *h, uint32_t seq, const llama_token *tokens, uint32_t n)
{
    h2okv_llama_input input = {.seq = seq, .n = n, .tokens = tokens};
    if (h2okv_llama_decode_batch(h, &input, 1) != H2OKV_OK) {
        fail_msg("decode: %s", h2okv_llama_last_error(h)->text);
    }
}

/* Evictions, a cut, pins that came and pins to come, a question, another budget. */
static void live(h2okv_llama *h, const place *p)
{
    uint32_t n_lost, seq = p->seq;
    h2okv_llama_guide guide;
    h2okv_llama_guide_init(&guide);
    guide.tokens = question;
    guide.n = GUIDE;
    assert_int_equal(h2okv_llama_seq_pin(h, seq, 3, 5), H2OKV_OK);
    decode(h, seq, text, 90);
    assert_int_equal(h2okv_llama_seq_trim(h, seq, 80, &n_lost), H2OKV_OK);
    assert_int_equal(h2okv_llama_seq_decode_guided(h, seq, text + 90, 70, &guide), H2OKV_OK);
    assert_int_equal(h2okv_llama_seq_set_budget(h, seq, BUDGET + 6, RECENT + 2), H2OKV_OK);
    assert_int_equal(h2okv_llama_seq_pin(h, seq, 152, 155), H2OKV_OK);
    for (uint32_t i = 0; i < 20; i++) {
        decode(h, seq, text + 160 + i, 1);
    }
}

/* Positions exactly, scores to 1e-3 of the largest. */
static void assert_books_alike(const h2okv_llama *a, uint32_t seq_a, const h2okv_llama *b, uint32_t seq_b)
{
    h2okv_llama_stats stats;
    h2okv_llama_get_stats(a, &stats);
    for (uint32_t lane = 0; lane < stats.lanes; lane++) {
        int32_t pos_a[MOST_KEPT], pos_b[MOST_KEPT];
        double score_a[MOST_KEPT], score_b[MOST_KEPT], most = 0.0;
        uint32_t n = h2okv_cache_kept(h2okv_llama_seq_cache(a, seq_a), lane, pos_a, score_a, NULL);
        assert_int_equal(h2okv_cache_kept(h2okv_llama_seq_cache(b, seq_b), lane, pos_b, score_b, NULL), n);
        assert_memory_equal(pos_a, pos_b, n * sizeof *pos_a);
        for (uint32_t i = 0; i < n; i++) {
            most = fabs(score_a[i]) > most ? fabs(score_a[i]) : most;
        }
        for (uint32_t i = 0; i < n; i++) {
            assert_true(fabs(score_a[i] - score_b[i]) <= 1e-3 * most);
        }
    }
}

static void assert_stats_same(const h2okv_llama *a, uint32_t seq_a, const h2okv_llama *b, uint32_t seq_b)
{
    h2okv_cache_stats x, y;
    h2okv_options ox, oy;
    h2okv_cache_get_stats(h2okv_llama_seq_cache(a, seq_a), &x);
    h2okv_cache_get_stats(h2okv_llama_seq_cache(b, seq_b), &y);
    h2okv_cache_get_options(h2okv_llama_seq_cache(a, seq_a), &ox);
    h2okv_cache_get_options(h2okv_llama_seq_cache(b, seq_b), &oy);
    assert_true(x.live == y.live && x.newest == y.newest && x.admitted == y.admitted && x.evicted == y.evicted);
    assert_true(ox.budget == oy.budget && ox.recent == oy.recent && ox.pool == oy.pool);
}

/* One goes on, the other is restored and goes on. `exact`: to the last bit, else nearly. */
static void check_goes_on(h2okv_llama *a, const place *from, h2okv_llama *b, const place *to, bool exact)
{
    const char *path = session_path("a.session");
    uint64_t before = session_digest(a, from->seq, true);
    assert_int_equal(h2okv_llama_seq_save(a, from->seq, path, NULL, 0), H2OKV_OK);
    assert_true(session_digest(a, from->seq, true) == before);
    if (h2okv_llama_seq_restore(b, to->seq, path, NULL, NULL) != H2OKV_OK) {
        fail_msg("restore: %s", h2okv_llama_last_error(b)->text);
    }
    assert_true(session_digest(b, to->seq, true) == before);
    assert_stats_same(a, from->seq, b, to->seq);
    assert_null(h2okv_llama_logits(b, to->seq));
    for (uint32_t i = 0; i < MORE; i++) {
        uint32_t n = i % 7 == 3 ? 5 : 1;
        decode(a, from->seq, text + 200 + i, n);
        decode(b, to->seq, text + 200 + i, n);
        if (exact) {
            assert_memory_equal(h2okv_llama_logits(a, from->seq), h2okv_llama_logits(b, to->seq),
                                SYNTH_VOCAB * sizeof(float));
        }
        assert_books_alike(a, from->seq, b, to->seq);
    }
    assert_true(!exact || session_digest(a, from->seq, true) == session_digest(b, to->seq, true));
    assert_stats_same(a, from->seq, b, to->seq);
}

static void round_trip(struct llama_model *model, place from, place to, bool exact)
{
    h2okv_llama *a = make(model, &from), *b = make(model, &to);
    live(a, &from);
    decode(b, to.seq, text + 300, 77); /* something to be replaced */
    check_goes_on(a, &from, b, &to, exact);
    h2okv_llama_free(a);
    h2okv_llama_free(b);
}

enum { FUSED = H2OKV_ATTENTION_FUSED, OBSERVE = H2OKV_ATTENTION_OBSERVE };

static place default_place(uint32_t attention)
{
    return (place){.attention = attention, .ubatch = UBATCH, .room = 60, .sequences = 1, .type_k = GGML_TYPE_F16,
                   .type_v = GGML_TYPE_F16, .policy = "h2o"};
}

static struct llama_model *plain_model(void)
{
    return synth_model(&(synth_shape){
        .layers = 3, .query_heads = 4, .kv_heads = 2, .k_dim = 32, .v_dim = 32, .seed = 5, .spread = 0.5f,
    });
}

/* To the last bit, and for long: fused attention adds up in the order of positions, and llama.cpp's own in the order of
 * cells, which are those of then. */
static void test_each_mode_and_policy(void **state)
{
    (void)state;
    static const char *const policy[] = {"h2o", "default", "snapkv", "lifetime", "streaming", "random"};
    struct llama_model *model = plain_model();
    for (uint32_t i = 0; i < sizeof policy / sizeof policy[0]; i++) {
        for (uint32_t lanes = H2OKV_LANES_HEAD; lanes <= H2OKV_LANES_ALL; lanes++) {
            place fused = default_place(FUSED), observe = default_place(OBSERVE);
            fused.policy = observe.policy = policy[i];
            fused.lanes = observe.lanes = lanes;
            round_trip(model, fused, fused, true);
            round_trip(model, observe, observe, true);
        }
    }
    llama_model_free(model);
}

/* ubatch, room and so the number of cells may differ. */
static void test_other_sizes(void **state)
{
    (void)state;
    struct llama_model *model = plain_model();
    for (uint32_t mode = FUSED; mode <= OBSERVE; mode++) {
        place from = default_place(mode), to = default_place(mode);
        to.ubatch = 9;
        to.room = 46;
        round_trip(model, from, to, true);
        round_trip(model, to, from, true);
    }
    llama_model_free(model);
}

static void test_from_one_mode_to_the_other(void **state)
{
    (void)state;
    struct llama_model *model = plain_model();
    for (uint32_t lanes = H2OKV_LANES_HEAD; lanes <= H2OKV_LANES_ALL; lanes++) {
        place fused = default_place(FUSED), observe = default_place(OBSERVE);
        fused.lanes = observe.lanes = lanes;
        round_trip(model, fused, observe, false);
        round_trip(model, observe, fused, false);
    }
    llama_model_free(model);
}

/* Each of ggml's types that a cache may have, heads of other sizes, and heads whose K and V differ in size. */
static void test_types_and_shapes(void **state)
{
    (void)state;
    static const synth_key latent[] = {
        {"attention.kv_lora_rank", SYNTH_HIDDEN_U32, 48, {0}},
        {"rope.dimension_count", SYNTH_U32, 32, {0}},
        {NULL, SYNTH_U32, 0, {0}},
    };
    static const struct {
        uint32_t attention, kv_heads, k_dim, v_dim;
        enum ggml_type type_k, type_v;
        const char *architecture;
        const synth_key *keys;
    } shape[] = {
        {FUSED, 2, 96, 96, GGML_TYPE_F16, GGML_TYPE_Q8_0, NULL, NULL},
        {FUSED, 2, 64, 64, GGML_TYPE_BF16, GGML_TYPE_BF16, NULL, NULL},
        {FUSED, 4, 32, 32, GGML_TYPE_Q8_0, GGML_TYPE_F16, NULL, NULL},
        {OBSERVE, 1, 64, 64, GGML_TYPE_F32, GGML_TYPE_F32, NULL, NULL},
        {OBSERVE, 2, 64, 64, GGML_TYPE_Q8_0, GGML_TYPE_F16, NULL, NULL},
        {OBSERVE, 4, 96, 64, GGML_TYPE_F16, GGML_TYPE_F16, "plm", latent},
        {OBSERVE, 4, 64, 96, GGML_TYPE_Q8_0, GGML_TYPE_F32, "plm", latent},
    };
    for (uint32_t i = 0; i < sizeof shape / sizeof shape[0]; i++) {
        struct llama_model *model = synth_model(&(synth_shape){
            .architecture = shape[i].architecture, .layers = 2, .query_heads = 4, .kv_heads = shape[i].kv_heads,
            .k_dim = shape[i].k_dim, .v_dim = shape[i].v_dim, .seed = 6 + i, .spread = 0.5f, .keys = shape[i].keys,
        });
        place p = default_place(shape[i].attention);
        p.type_k = shape[i].type_k;
        p.type_v = shape[i].type_v;
        round_trip(model, p, p, true);
        llama_model_free(model);
    }
}

/* One of several sequences into another place among several, whose neighbours keep all that they have. */
static void test_among_several(void **state)
{
    (void)state;
    struct llama_model *model = plain_model();
    for (uint32_t mode = FUSED; mode <= OBSERVE; mode++) {
        place from = default_place(mode), to = default_place(mode);
        from.sequences = 3;
        from.seq = 2;
        to.sequences = 2;
        to.seq = 1;
        h2okv_llama *a = make(model, &from), *b = make(model, &to);
        decode(a, 0, text + 50, 100);
        live(a, &from);
        decode(a, 1, text + 20, 33);
        decode(b, 0, text + 100, 50);
        h2okv_llama_input both[] = {{.seq = 0, .n = 11, .tokens = text + 150}, {.seq = 1, .n = 9, .tokens = text}};
        assert_int_equal(h2okv_llama_decode_batch(b, both, 2), H2OKV_OK);
        assert_non_null(h2okv_llama_logits(b, 1));
        uint64_t neighbour = session_digest(b, 0, true);
        float logits[SYNTH_VOCAB];
        memcpy(logits, h2okv_llama_logits(b, 0), sizeof logits);
        assert_int_equal(h2okv_llama_seq_save(a, 2, session_path("a.session"), NULL, 0), H2OKV_OK);
        assert_int_equal(h2okv_llama_seq_restore(b, 1, session_path("a.session"), NULL, NULL), H2OKV_OK);
        assert_memory_equal(logits, h2okv_llama_logits(b, 0), sizeof logits);
        assert_null(h2okv_llama_logits(b, 1));
        check_goes_on(a, &from, b, &to, true);
        assert_true(session_digest(b, 0, true) == neighbour);
        decode(b, 0, text, 30);
        h2okv_llama_free(a);
        h2okv_llama_free(b);
    }
    llama_model_free(model);
}

/* What llama.cpp computes for cells that it only lends may be a NaN, which would spoil sums even where it is masked. */
static void test_token_that_is_nan(void **state)
{
    (void)state;
    struct llama_model *model = synth_nan_model(0.5f);
    for (uint32_t mode = FUSED; mode <= OBSERVE; mode++) {
        place p = default_place(mode);
        h2okv_llama *a = make(model, &p), *b = make(model, &p);
        live(a, &p);
        decode(a, 0, text + 180, UBATCH); /* leaves as many holes, which one token does not fill */
        check_goes_on(a, &p, b, &p, true);
        h2okv_llama_free(a);
        h2okv_llama_free(b);
    }
    llama_model_free(model);
}

/* Into fewer cells than the highest that was in use: others have to do. */
static void test_fewer_cells(void **state)
{
    (void)state;
    struct llama_model *model = plain_model();
    for (uint32_t mode = FUSED; mode <= OBSERVE; mode++) {
        place from = default_place(mode), to = default_place(mode);
        from.ubatch = 330;
        h2okv_llama *a = make(model, &from), *b = make(model, &to);
        decode(a, 0, text, 330);
        decode(b, 0, text + 300, 77);
        check_goes_on(a, &from, b, &to, mode == FUSED);
        h2okv_llama_free(a);
        h2okv_llama_free(b);
    }
    llama_model_free(model);
}

/* Nothing yet; and nothing left, at a position that is not the first. */
static void test_empty(void **state)
{
    (void)state;
    struct llama_model *model = plain_model();
    place p = default_place(FUSED);
    h2okv_llama *a = make(model, &p), *b = make(model, &p);
    const char *path = session_path("a.session");
    uint32_t n_lost;
    decode(b, 0, text, 70);
    assert_int_equal(h2okv_llama_save(a, path), H2OKV_OK);
    assert_int_equal(h2okv_llama_restore(b, path), H2OKV_OK);
    assert_int_equal(h2okv_llama_next_pos(b), 0);
    synth_assert_books_match_engine(b);
    check_goes_on(a, &p, b, &p, true);
    assert_int_equal(h2okv_llama_trim(a, 20, &n_lost), H2OKV_OK); /* before the oldest that llama.cpp holds */
    assert_int_equal(h2okv_cache_live(h2okv_llama_cache(a)), 0);
    assert_int_equal(h2okv_llama_save(a, path), H2OKV_OK);
    assert_int_equal(h2okv_llama_restore(b, path), H2OKV_OK);
    assert_int_equal(h2okv_llama_next_pos(b), 20);
    check_goes_on(a, &p, b, &p, true);
    h2okv_llama_free(a);
    h2okv_llama_free(b);
    llama_model_free(model);
}

/* A budget of now that there is no room for, or just. */
static void test_room(void **state)
{
    (void)state;
    struct llama_model *model = plain_model();
    place from = default_place(FUSED), to = default_place(FUSED);
    from.room = 80;
    to.room = 70;
    h2okv_llama *a = make(model, &from), *b = make(model, &to);
    const char *path = session_path("a.session");
    decode(b, 0, text, 50);
    uint64_t before = session_digest(b, 0, true);
    assert_int_equal(h2okv_llama_set_budget(a, 71, H2OKV_AUTO), H2OKV_OK);
    decode(a, 0, text, 30);
    assert_int_equal(h2okv_llama_save(a, path), H2OKV_OK);
    synth_assert_failed(b, h2okv_llama_restore(b, path), H2OKV_E_INVALID, "room",
                        "holds 30 tokens with a budget of 71, and there is room for 70");
    assert_true(session_digest(b, 0, true) == before);
    assert_int_equal(h2okv_llama_set_budget(a, 70, H2OKV_AUTO), H2OKV_OK);
    decode(a, 0, text + 30, 100);
    check_goes_on(a, &from, b, &to, true);
    h2okv_llama_free(a);
    h2okv_llama_free(b);
    llama_model_free(model);
}

/* With "full" nothing is evicted, and a session may hold more tokens than its budget, if there is room for them. */
static void test_full(void **state)
{
    (void)state;
    struct llama_model *model = plain_model();
    place p = default_place(FUSED);
    p.policy = "full";
    p.room = 200;
    h2okv_llama *a = make(model, &p), *b = make(model, &p);
    decode(a, 0, text, 120);
    assert_int_equal(h2okv_cache_live(h2okv_llama_cache(a)), 120);
    check_goes_on(a, &p, b, &p, true);
    h2okv_llama_free(b);
    p.room = 100;
    b = make(model, &p);
    assert_int_equal(h2okv_llama_save(a, session_path("a.session")), H2OKV_OK);
    synth_assert_failed(b, h2okv_llama_restore(b, session_path("a.session")), H2OKV_E_INVALID, "room",
                        "there is room for 100");
    h2okv_llama_free(a);
    h2okv_llama_free(b);
    llama_model_free(model);
}

static void test_note(void **state)
{
    (void)state;
    struct llama_model *model = plain_model();
    place p = default_place(FUSED);
    h2okv_llama *a = make(model, &p);
    const char *path = session_path("a.session");
    char turns[5000];
    memset(turns, 'x', sizeof turns);
    turns[4999] = 'y';
    decode(a, 0, text, 77);
    uint64_t before = session_digest(a, 0, true);
    static const size_t length[] = {0, 1, 5000};
    for (uint32_t i = 0; i < 3; i++) {
        void *note = NULL;
        size_t n = 7;
        assert_int_equal(h2okv_llama_seq_save(a, 0, path, turns + 5000 - length[i], length[i]), H2OKV_OK);
        decode(a, 0, text, 3);
        uint64_t later = session_digest(a, 0, true);
        assert_int_equal(h2okv_llama_seq_read_note(a, 0, path, &note, &n), H2OKV_OK);
        assert_int_equal(n, length[i]);
        assert_memory_equal(note, turns + 5000 - length[i], n);
        assert_true(session_digest(a, 0, true) == later); /* nothing was restored */
        free(note);
        assert_int_equal(h2okv_llama_seq_restore(a, 0, path, &note, &n), H2OKV_OK);
        assert_int_equal(n, length[i]);
        assert_memory_equal(note, turns + 5000 - length[i], n);
        assert_true(session_digest(a, 0, true) == before);
        free(note);
    }
    h2okv_llama_free(a);
    llama_model_free(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_mode_and_policy),
        cmocka_unit_test(test_other_sizes),
        cmocka_unit_test(test_from_one_mode_to_the_other),
        cmocka_unit_test(test_types_and_shapes),
        cmocka_unit_test(test_among_several),
        cmocka_unit_test(test_token_that_is_nan),
        cmocka_unit_test(test_fewer_cells),
        cmocka_unit_test(test_empty),
        cmocka_unit_test(test_room),
        cmocka_unit_test(test_full),
        cmocka_unit_test(test_note),
    };
    return cmocka_run_group_tests(tests, open_all, close_all);
}
