/*
 * adapter.h - what the adapter's files share. One pass goes through them in this order:
 *
 *   decode.c  the tokens of each sequence -> passes of at most ubatch tokens; equal ones of neighbours go together
 *   guided.c  or passes of text with a probe behind it
 *   pass.c    a batch -> llama_decode
 *   tap.c       llama.cpp tells of each graph node: cells taken -> admit, softmax rows -> observe
 *   fused.c     or its flash attention nodes become calls of our kernels, and their mass -> observe
 *   cells.c   plan -> copy rows between cells of the K and V tensors -> llama_memory_seq_rm -> commit
 *
 * fork.c copies a sequence, sequence.c is what else a caller asks of a sequence: cut, clear, budget, pins, numbers.
 * options.c reads what the caller wants, model.c refuses models that are not tested, attach.c makes the context and
 * verifies its layout by a probe pass.
 */
#ifndef H2OKV_ADAPTER_H
#define H2OKV_ADAPTER_H

#include "h2okv/advanced.h"
#include "h2okv/attention.h"
#include "h2okv/llama.h"

/* One attention layer's cache tensors and how they are laid out; in each, sequence after sequence.
 *   k                  [kv_heads * k_dim, cells]                     a token's K is contiguous
 *   v, not transposed  [kv_heads * v_dim, cells]                     as K
 *   v, transposed      [cells, kv_heads * v_dim] in the same memory  a number's cells are contiguous */
typedef struct h2okv__layer {
    struct ggml_tensor *k, *v;
    bool v_transposed;
    bool seen_weights;
    bool has_position_bias; /* ALiBi: weights depend on llama.cpp's own positions */
    uint32_t kv_heads, query_heads;
    uint32_t k_dim, v_dim;
} h2okv__layer;

enum h2okv__tap_mode {
    H2OKV__TAP_OFF,   /* look at nothing */
    H2OKV__TAP_PROBE, /* learn the layers */
    H2OKV__TAP_PASS,  /* admit and observe */
    H2OKV__TAP_CANCEL, /* stop at the first node */
    H2OKV__TAP_CLAIM,  /* read which cells the tokens take, and stop there */
};

/* One sequence: its books, and what it has in the pass that is under way. */
typedef struct h2okv__sequence {
    uint32_t id; /* llama.cpp's, and its place in the tensors' outermost dimension, llama.cpp's streams */
    h2okv_cache *cache;
    int32_t next_pos;
    uint64_t engine_us, bookkeeping_us; /* of the passes that it took part in */

    /* the decode call that is under way, or the last */
    const h2okv_llama_input *input; /* NULL: it has no part in it */
    uint32_t done;                  /* tokens of the input */
    int32_t logits_row;             /* of the last token, in the context; -1: none there */
    float *logits;                  /* [n_vocab] a copy, for when the context needs its own again; NULL: one sequence */
    bool has_logits;                /* there is one */

    /* the pass */
    uint32_t *fresh_cell;   /* [ubatch] */
    int32_t *fresh_pos;     /* [ubatch] */
    const h2okv_plan *plan; /* made, not yet applied */

    h2okv_options caller;   /* whose callbacks get lanes counted over all sequences */
    uint32_t first_lane;
} h2okv__sequence;

/* A sequence's tokens for one llama_decode: `n` of text, then a probe, which leaves no token behind. Together at most
 * ubatch. */
typedef struct h2okv__pass {
    h2okv__sequence *sequence;
    const llama_token *text, *probe;
    uint32_t n, n_probe, spread;
    bool last; /* the logits of the last token of text are wanted, when not all are */
    h2okv_llama_on_logits on_logits; /* NULL: not all are */
    void *user;
    uint32_t index; /* of text[0], for on_logits */
} h2okv__pass;

enum { H2OKV__N_ROPE = 8 };

struct h2okv_llama {
    struct llama_model *model;
    uint64_t weights_sum;        /* of the norms that the probe saw; see identity.c */
    double rope[H2OKV__N_ROPE];  /* what the context's parameters say about positions; see session.c */
    struct llama_context *context;
    struct llama_batch batch;
    h2okv_error error;
    bool broken;
    bool needs_scores;

    uint32_t lanes_mode; /* enum h2okv_llama_lanes */
    uint32_t lanes, ubatch, cells, room; /* of each sequence */
    uint32_t most_tokens;                /* in one llama_decode */
    uint32_t wanted_cells; /* that the context is asked for */
    uint32_t n_layers;
    h2okv__layer *layer; /* [n_layers] those with lanes: of full attention */
    uint32_t n_all_layers;
    uint32_t *place;     /* [n_all_layers] the index in `layer`; UINT32_MAX: a sliding window, left to llama.cpp */

    /* models with sliding windows */
    uint32_t window;     /* tokens that such a layer sees; 0: there is none */
    uint64_t window_bytes;              /* their K and V */
    ggml_backend_buffer_t window_buffer; /* where their K lies */
    bool window_scattered;              /* not all of it in one place */
    uint32_t n_sequences;
    h2okv__sequence *sequence; /* [n_sequences] */

    /* the pass that is under way */
    enum h2okv__tap_mode tap_mode;
    const h2okv__pass *pass; /* [n_pass], of sequences with rising numbers without a gap */
    uint32_t n_pass;
    uint32_t pass_tokens; /* of each, the probe's included */
    uint32_t pass_probe, pass_spread; /* see h2okv_cache_probe */
    bool pass_admitted;
    uint32_t cancelled_cell; /* counted over all sequences, that a cancelled graph may have written; UINT32_MAX: none */
    int pass_status; /* first failure inside the tap */
    uint64_t pass_bookkeeping_us;

    /* fused mode; see fused.c */
    bool fused;
    bool refused;          /* the probe found what no mode can do */
    const char *not_fused; /* why a layer cannot be, found by the probe; NULL: nothing against it */
    h2okv_kernels *kernels;
    uint32_t max_threads;
    float *mass;             /* [sequences][layers][kv_heads][cells] */
    size_t mass_layer_stride;
    uint32_t *live_cell;     /* [sequences][cells] */
    uint32_t *n_live_cells;  /* [sequences] */
    float *query_weight_memory; /* [ubatch] */
    const float *query_weight;  /* that, or NULL: 1 each */
    bool count_self, mean_heads;
    double decay;
    uint32_t layers_attended; /* in this pass */
    int32_t custom_params[GGML_MAX_OP_PARAMS / sizeof(int32_t)];

    /* host copies, for tensors that lie elsewhere; NULL while none does */
    float *weights_copy; /* softmax rows of one layer */
    size_t weights_copy_bytes;
    void *row_copy; /* one lane's K or V of one cell, or one row of transposed V */

    h2okv__pass *round; /* [n_sequences] the passes that come next */
    h2okv_llama_on_pass on_pass;
    void *on_pass_user;
};

/* options.c: a caller's struct that begins with its own size, over the defaults in `known`, of a library that may be
 * older: what it does not know must be 0. E_INVALID, naming `field`, otherwise. */
int h2okv__read_struct(void *known, uint32_t known_size, const void *given, const char *field, h2okv_error *error);

/* options.c: everything that can be said without the model. `cache` is complete but for lanes and parts. */
int h2okv__llama_options_read(h2okv_llama_options *out, h2okv_options *cache, const h2okv_llama_options *given,
                              h2okv_error *error);

/* model.c: does a head's K have another size than its V? */
/* E_INVALID: the budget is less than what sliding-window layers see. error may be NULL. */
int h2okv__check_window(const struct llama_model *model, uint32_t budget, h2okv_error *error);
bool h2okv__is_window_layer(const struct llama_model *model, uint32_t layer);
bool h2okv__k_and_v_differ(const struct llama_model *model);

/* tap.c: llama.cpp's ggml_backend_sched_eval_callback; `user` is the h2okv_llama. */
bool h2okv__tap(struct ggml_tensor *node, bool ask, void *user);

/* "<prefix><number>" -> number; -1 when the name is another. */
int h2okv__layer_of_name(const char *name, const char *prefix);

/* fused.c: learn a layer from its flash attention node; make one node ours; what a node of ours
 * looks like, and all memory (false, E_NOMEM); how much each query of a pass counts; what a sequence's tokens see; and
 * their mass into its books. */
void h2okv__learn_flash(h2okv_llama *h, h2okv__layer *layer, const struct ggml_tensor *node);
void h2okv__exchange(h2okv_llama *h, struct ggml_tensor *node, int layer);
bool h2okv__make_pattern(h2okv_llama *h);
int h2okv__make_fused(h2okv_llama *h, const char *isa, h2okv_error *error);
void h2okv__free_fused(h2okv_llama *h);
void h2okv__weigh_queries(h2okv_llama *h);
void h2okv__list_live_cells(h2okv_llama *h, const h2okv__sequence *s);
int h2okv__observe_fused(h2okv_llama *h, h2okv__sequence *s);

/* cells.c: bring a sequence down to its budget, in two steps (only plan can fail for other reasons than E_BROKEN) or in
 * one; drop its positions from pos0 on; take a failed pass back, books included; make its cells, or one, as new; and
 * whether books and context agree at all (E_BROKEN when the context was used past the handle). */
int h2okv__check_engine(h2okv_llama *h, const h2okv__sequence *s);
int h2okv__plan_eviction(h2okv_llama *h, h2okv__sequence *s);
int h2okv__apply_eviction(h2okv_llama *h, h2okv__sequence *s);
int h2okv__evict(h2okv_llama *h, h2okv__sequence *s);
void h2okv__forget(h2okv_llama *h, h2okv__sequence *s);
void h2okv__wipe_cell(const h2okv_llama *h, const h2okv__sequence *s, uint32_t cell);
int h2okv__abandon(h2okv_llama *h, h2okv__sequence *s);
int h2okv__cut(h2okv_llama *h, h2okv__sequence *s, int32_t pos0, uint32_t *n_lost);

/* The (layer, head) rectangle that a lane stands for. */
typedef struct h2okv__lane_span {
    uint32_t layer_first, layer_end;
    uint32_t head_first, head_end;
} h2okv__lane_span;
h2okv__lane_span h2okv__span_of_lane(const h2okv_llama *h, uint32_t lane);

/* Copy of one head's K ([k_dim]) and V ([v_dim]) of one cell in the tensors' own types; either may be NULL. */
void h2okv__read_kv(const h2okv_llama *h, uint32_t seq, uint32_t layer, uint32_t head, uint32_t cell, void *k,
                    void *v);

/* pass.c: passes of n sequences whose numbers are neighbours, with equally many tokens, in one llama_decode: all or
 * nothing. A probe only in one alone. */
int h2okv__decode_passes(h2okv_llama *h, const h2okv__pass *pass, uint32_t n);

/* pass.c: one more token for llama_decode; and a copy of the logits that it would forget, those of sequences that are
 * done. */
void h2okv__add_to_batch(h2okv_llama *h, const h2okv__sequence *s, llama_token token, int32_t pos, bool logits);
void h2okv__save_logits(h2okv_llama *h);
size_t h2okv__logits_bytes(const h2okv_llama *h);

/* decode.c: what begins a decode call; checks; and the progress callback (E_STOPPED when it says so). */
void h2okv__begin_decode(h2okv_llama *h);
int h2okv__find_sequence(h2okv_llama *h, uint32_t seq, h2okv__sequence **out);
int h2okv__check_handle(h2okv_llama *h, const h2okv__sequence *s);
int h2okv__check_tokens(h2okv_llama *h, const h2okv__sequence *s, const char *field, const llama_token *tokens,
                        uint32_t n);
int h2okv__report_progress(h2okv_llama *h, uint32_t done, uint32_t total);

/* The options in effect. */
static inline h2okv_options h2okv__options(const h2okv__sequence *s)
{
    h2okv_options options;
    h2okv_cache_get_options(s->cache, &options);
    return options;
}

/* claim.c: a sequence that holds n tokens from its next_pos on and nothing else; next_pos goes up by n. `cell` [n]
 * has the cells that are wanted and gets those that it has, by rising position. Their K and V are whatever they are.
 * E_ENGINE: llama.cpp took some or none. rows.c: K or V of n cells of a sequence, row after row, in the tensor's own
 * type. */
int h2okv__claim(h2okv_llama *h, h2okv__sequence *s, uint32_t n, uint32_t *cell);
size_t h2okv__cell_row_bytes(const struct ggml_tensor *tensor);
void h2okv__get_rows(const h2okv_llama *h, const h2okv__sequence *s, struct ggml_tensor *tensor, bool transposed,
                     const uint32_t *cell, uint32_t n, char *rows);
void h2okv__put_rows(const h2okv_llama *h, const h2okv__sequence *s, struct ggml_tensor *tensor, bool transposed,
                     const uint32_t *cell, uint32_t n, const char *rows);

/* identity.c: the probe's part in it, node by node; and the model's number, which takes a look at its vocabulary. */
void h2okv__learn_weights(h2okv_llama *h, const struct ggml_tensor *node);
uint64_t h2okv__model_identity(const h2okv_llama *h);

/* sequence.c: another budget from the next plan on. */
int h2okv__set_budget(h2okv_llama *h, h2okv__sequence *s, uint32_t budget, uint32_t recent);

/* decode.c: note a failure on the handle and return its status; the second names the sequence where there are several,
 * for failures of a batch. */
int h2okv__llama_fail(h2okv_llama *h, int status, const char *field, const char *format, ...) H2OKV_PRINTF(4, 5);
int h2okv__sequence_fail(h2okv_llama *h, const h2okv__sequence *s, int status, const char *field, const char *format,
                         ...) H2OKV_PRINTF(5, 6);

#endif
