/*
 * llama.h - h2okv for llama.cpp: a llama_context whose KV cache stays within a budget. Works with an
 * unmodified libllama through its public API.
 *
 *   h2okv_llama_options o;
 *   h2okv_llama_options_init(&o);
 *   h2okv_llama *h;
 *   h2okv_llama_create(&h, model, llama_context_default_params(), &o, &error);
 *   h2okv_llama_decode(h, tokens, n);                  any n: it is split into passes
 *   llama_get_logits_ith(h2okv_llama_context(h), -1);  logits of the last token, as after llama_decode
 *
 * The context has budget + ubatch cells (or room + ubatch, see options.room): that is the memory bound, however long
 * the text. After each pass of at most ubatch tokens every (layer, KV head) evicts down to the budget by itself.
 *
 * Several sequences (options.sequences), for instance conversations, share a context and are decoded together by
 * h2okv_llama_decode_batch. Each has its own cells, budget and books, and keeps what it would keep alone. Functions
 * that name no sequence mean sequence 0.
 *
 * Attention is computed by our kernels inside llama.cpp's graph where every layer lies in host memory and has a shape
 * that they know (fused), else by llama.cpp, whose weights are then read (observe): see h2okv_llama_attention.
 *
 * The one public header that includes llama.cpp's. Errors, threads and memory: see h2okv.h. A h2okv_llama
 * belongs to one thread at a time; llama.cpp's own threads work inside a call only.
 */
#ifndef H2OKV_LLAMA_H
#define H2OKV_LLAMA_H

#include "h2okv.h"

#include <llama.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct h2okv_llama h2okv_llama;

/* Which query and KV heads choose together. */
enum h2okv_llama_lanes {
    H2OKV_LANES_HEAD = 0,  /* each (layer, KV head) for itself: the paper's way, and the best quality */
    H2OKV_LANES_LAYER = 1, /* one choice a layer */
    H2OKV_LANES_ALL = 2,   /* one choice for the whole model */
};

/* How weights are got at. */
enum h2okv_llama_attention {
    H2OKV_ATTENTION_AUTO = 0,    /* fused where every layer allows it, else observe */
    H2OKV_ATTENTION_FUSED = 1,   /* our kernels in place of llama.cpp's flash attention; host memory only */
    H2OKV_ATTENTION_OBSERVE = 2, /* llama.cpp's attention without flash, its weights read after each layer */
};

typedef struct h2okv_llama_options {
    uint32_t size;   /* bytes of this struct that the caller knows */
    uint32_t lanes;  /* enum h2okv_llama_lanes; default head */
    uint32_t ubatch; /* most tokens in a pass; default H2OKV_AUTO: the least from 128 up for which
                        budget + ubatch is a multiple of 256, which llama.cpp computes in any case */
    const h2okv_options *cache; /* budget, recent, sinks, policy, ...; lanes and cells are set by the adapter
                                   and must be left at their defaults. NULL: defaults with a budget of 512 */
    uint32_t attention; /* enum h2okv_llama_attention; default auto */
    const char *isa;    /* instruction set of the kernels, from h2okv_isa_name; default NULL: the best here */
    uint32_t room;      /* the largest budget that h2okv_llama_set_budget may ask for; default 0: the budget */
    uint32_t sequences; /* that the context holds, numbered from 0; at most llama_max_parallel_sequences(); default 1,
                           and 0 means 1. Each has room + ubatch cells; the memory that llama.cpp computes in is that of
                           one, as a llama_decode gets ubatch tokens at most, or one of each sequence */
} h2okv_llama_options;

H2OKV_API void h2okv_llama_options_init_sized(h2okv_llama_options *options, uint32_t size);
static inline void h2okv_llama_options_init(h2okv_llama_options *options)
{
    h2okv_llama_options_init_sized(options, (uint32_t)sizeof *options);
}

/* Load ggml's backends, which a prebuilt llama.cpp keeps in files of their own: from `directory`, or when it
 * is NULL from where libllama itself lies. Call once, before a model is loaded. E_ENGINE: no CPU backend. */
H2OKV_API int h2okv_llama_load_backends(const char *directory);

/* H2OKV_OK, or E_UNSUPPORTED with `error` naming why this model is refused: recurrent, hybrid, encoder,
 * diffusion, multi-head latent attention, sliding windows of other models than Gemma 3; until each of them is tested.
 *
 * Gemma 3: lanes are those of the layers with full attention, which h2okv_llama_lane numbers without the others. Layers
 * with sliding windows stay llama.cpp's; as they need what they see, the budget has to be at least the window. A cut is
 * exact only as far as the windows still hold what the next token sees, which llama.cpp mostly gives up at once:
 * h2okv_llama_seq_trim says so. Sessions cannot be saved. */
H2OKV_API int h2okv_llama_check_model(const struct llama_model *model, h2okv_error *error);

/* Make a context for `model` (not owned; must outlive the result) and attach to it. Of `params` n_ctx, n_batch,
 * n_ubatch, n_seq_max, kv_unified and flash_attn_type are set by the adapter; cb_eval must be NULL. A probe pass
 * verifies that every layer is seen and laid out as expected. On failure *out is NULL. Errors: E_INVALID
 * (options), E_UNSUPPORTED (model), E_NOMEM, E_ENGINE (llama.cpp refused, or is not as required). */
H2OKV_API int h2okv_llama_create(h2okv_llama **out, struct llama_model *model, struct llama_context_params params,
                                 const h2okv_llama_options *options, h2okv_error *error);
H2OKV_API void h2okv_llama_free(h2okv_llama *h); /* NULL is allowed; frees the context */

/* The context, for logits, samplers' input and performance counters. Do not decode with it or change its
 * memory: the next h2okv call would return E_BROKEN. */
H2OKV_API struct llama_context *h2okv_llama_context(h2okv_llama *h);

/* Decode n tokens at the positions from h2okv_llama_next_pos on, evicting after each pass. Afterwards the
 * context holds the logits of the last token. Errors: E_INVALID (n = 0, a token outside the vocabulary:
 * nothing is decoded), E_STOPPED (the progress callback said so), E_ENGINE, E_NAN: the passes that were
 * complete count, the one that failed does not; next_pos says how far it came. */
H2OKV_API int h2okv_llama_decode(h2okv_llama *h, const llama_token *tokens, uint32_t n);

/* The same with the logits of every token: `on_logits` gets each token's [n_vocab] row as its pass ends. */
typedef void (*h2okv_llama_on_logits)(void *user, uint32_t index, const float *logits);
H2OKV_API int h2okv_llama_decode_each(h2okv_llama *h, const llama_token *tokens, uint32_t n,
                                      h2okv_llama_on_logits on_logits, void *user);

/* What one sequence reads in h2okv_llama_decode_batch. */
typedef struct h2okv_llama_input {
    uint32_t seq;
    uint32_t n; /* at least 1; inputs may differ */
    const llama_token *tokens;
    h2okv_llama_on_logits on_logits; /* gets the logits of every token; NULL: only the last one's are computed */
    void *user;
} h2okv_llama_input;

/* Decode tokens of several sequences, at most one input each. Each sequence has the passes that it would have alone, so
 * it keeps the same tokens whatever the others do; logits differ by rounding only, as llama.cpp multiplies several rows
 * in another order than one. Passes of equally many tokens go through llama.cpp together, as far as the sequences'
 * numbers are neighbours, and all their tokens together are no more than ubatch (or one each): so give the sequences
 * that are active the lowest numbers. What is read afterwards: h2okv_llama_logits.
 * Errors: as h2okv_llama_decode, and E_INVALID (no inputs, no such sequence, one named twice; nothing is decoded). A
 * pass that fails counts for none of the sequences in it; passes before it count: h2okv_llama_seq_next_pos says how far
 * each came. */
H2OKV_API int h2okv_llama_decode_batch(h2okv_llama *h, const h2okv_llama_input *inputs, uint32_t n_inputs);

/* Logits [n_vocab] of the last token that the last decode call of any kind read into this sequence; NULL when it read
 * none, or not to the end. Valid until the next decode call. */
H2OKV_API const float *h2okv_llama_logits(const h2okv_llama *h, uint32_t seq);

/* Guided reading: a long text is read with a question in mind (Corallo and Papotti 2024, "Finch", section 3). */
typedef struct h2okv_llama_guide {
    uint32_t size;             /* bytes of this struct that the caller knows */
    uint32_t n;                /* tokens of the guide; with `chunk` together at most ubatch */
    const llama_token *tokens; /* the question; need not be part of the text */
    uint32_t chunk;            /* tokens of text in a pass; default H2OKV_AUTO: 192, or what the guide leaves of
                                  ubatch if that is less; 0 means the same */
    uint32_t recent;           /* newest tokens always kept while reading; default H2OKV_AUTO: 16, or the cache's own
                                  where that is less; 0 means the same */
    uint32_t spread;           /* how many positions around what the guide attends to stay with it: see
                                  h2okv_cache_probe; default 8 */
} h2okv_llama_guide;

H2OKV_API void h2okv_llama_guide_init_sized(h2okv_llama_guide *guide, uint32_t size);
static inline void h2okv_llama_guide_init(h2okv_llama_guide *guide)
{
    h2okv_llama_guide_init_sized(guide, (uint32_t)sizeof *guide);
}

/* As h2okv_llama_decode, but the guide runs behind each chunk, in the same pass, and what its tokens attend to alone
 * decides what stays: see h2okv_cache_probe. It leaves no token behind; logits are those of the last token of text.
 * As long as all fits into the budget the guide is left out, but for the last chunk. With a policy that needs no
 * scores this is h2okv_llama_decode. When tokens are decoded afterwards their attention adds to the guide's scores.
 * Errors: as h2okv_llama_decode, and E_INVALID (no guide, or it does not fit; nothing is decoded). After an E_NAN from
 * a policy's rank (a custom one) the tokens are as before the pass, but their scores are the guide's. */
H2OKV_API int h2okv_llama_decode_guided(h2okv_llama *h, const llama_token *tokens, uint32_t n,
                                        const h2okv_llama_guide *guide);
H2OKV_API int h2okv_llama_seq_decode_guided(h2okv_llama *h, uint32_t seq, const llama_token *tokens, uint32_t n,
                                            const h2okv_llama_guide *guide);

/* Another budget, at most options.room; what is over it goes at once. `recent` may be H2OKV_AUTO. Until the next
 * such call or h2okv_llama_clear. Errors: E_INVALID, as in the options, and see h2okv_cache_set_budget; E_NAN (a custom
 * policy's rank): nothing has changed. */
H2OKV_API int h2okv_llama_set_budget(h2okv_llama *h, uint32_t budget, uint32_t recent);
H2OKV_API int h2okv_llama_seq_set_budget(h2okv_llama *h, uint32_t seq, uint32_t budget, uint32_t recent);

/* Always keep the tokens at positions first..end-1, those to come as well: see h2okv_cache_pin. Errors: E_INVALID. */
H2OKV_API int h2okv_llama_pin(h2okv_llama *h, int32_t first, int32_t end);
H2OKV_API int h2okv_llama_seq_pin(h2okv_llama *h, uint32_t seq, int32_t first, int32_t end);

/* Called after each pass of a decode with the tokens done so far, of all inputs; false stops the decode before its
 * next pass. NULL: no callback. */
typedef bool (*h2okv_llama_on_pass)(void *user, uint32_t done, uint32_t total);
H2OKV_API void h2okv_llama_set_progress(h2okv_llama *h, h2okv_llama_on_pass on_pass, void *user);

/* Drop the tokens at positions pos0 and above, so that the next one is decoded at pos0. Exact among the
 * `recent` newest (see h2okv_cache_trim). With n_lost NULL a cut that would not be exact is refused
 * (E_UNSUPPORTED); else it is made and *n_lost says how many tokens before it were given up at most. */
H2OKV_API int h2okv_llama_trim(h2okv_llama *h, int32_t pos0, uint32_t *n_lost);
H2OKV_API int h2okv_llama_seq_trim(h2okv_llama *h, uint32_t seq, int32_t pos0, uint32_t *n_lost);

/* Save a sequence to a file: K and V of the cells in use, positions, scores, pins, budgets, options, the model's
 * identity, the library's version, and a checksum. The file is written beside its place and renamed when it is whole
 * and on the disk: on any failure the old one stays, and nothing is left behind. It can be read by its owner only, as
 * it holds a conversation. The sequence is as before. note: bytes of the caller's own that go with it (for a chat:
 * its turns). Errors: E_FILE (the path cannot be written, or is taken by something that is no file), E_NOMEM,
 * E_INVALID (seq). */
H2OKV_API int h2okv_llama_save(h2okv_llama *h, const char *path);
H2OKV_API int h2okv_llama_seq_save(h2okv_llama *h, uint32_t seq, const char *path, const void *note,
                                   size_t note_bytes);

/* The sequence of a file, in place of the one there is: afterwards it goes on as the saved one would have, to the
 * last bit. Not so, but with logits that differ by rounding, when one was fused and the other is not; and in observe
 * mode when the context has fewer cells than then, as llama.cpp sums up over cells in their order. The context must
 * have been made with the same model, cache types, lanes, rope parameters and cache options; ubatch, room, sequences,
 * threads and attention may differ. Logits are not saved: decode one token at least before they are read. The call
 * needs memory for the whole file meanwhile. *note, when note is not NULL, is the note that was saved, the caller's
 * to free(). The model is known by its name, sizes, metadata, vocabulary, the weights of its norms and samples of its
 * embedding; LoRA adapters and control vectors are not looked at. Errors: E_FILE (unreadable, no session, cut,
 * damaged, of a newer format), E_INVALID (of another model or other options: `error` names the field and both
 * values), E_NOMEM: the sequence is as before. E_ENGINE: llama.cpp would not take the cells (for instance as an abort
 * callback said so), and the sequence is empty. */
H2OKV_API int h2okv_llama_restore(h2okv_llama *h, const char *path);
H2OKV_API int h2okv_llama_seq_restore(h2okv_llama *h, uint32_t seq, const char *path, void **note,
                                      size_t *note_bytes);

/* All that h2okv_llama_seq_restore checks, and the note, but nothing is restored. The sequence is as before. */
H2OKV_API int h2okv_llama_seq_read_note(h2okv_llama *h, uint32_t seq, const char *path, void **note,
                                        size_t *note_bytes);

/* Forget all tokens of the sequence; the next one has position 0. Budget and pins are those of the options again.
 * E_INVALID: no such sequence. */
H2OKV_API void h2okv_llama_clear(h2okv_llama *h);
H2OKV_API int h2okv_llama_seq_clear(h2okv_llama *h, uint32_t seq);

/* Fork: sequence `to` becomes what `from` is, tokens, K and V, scores, budget, pins and logits, and they go on
 * independently; what `to` held is forgotten. Costs a copy of one sequence's K and V. Errors: E_INVALID (no such
 * sequence). */
H2OKV_API int h2okv_llama_seq_copy(h2okv_llama *h, uint32_t from, uint32_t to);

/* Position of the next token = tokens decoded since create or clear, less those trimmed; -1: no such sequence. */
H2OKV_API int32_t h2okv_llama_next_pos(const h2okv_llama *h);
H2OKV_API int32_t h2okv_llama_seq_next_pos(const h2okv_llama *h, uint32_t seq);

typedef struct h2okv_llama_stats {
    h2okv_cache_stats cache;
    uint32_t budget, ubatch, cells;      /* budget: that of now; cells: what a sequence really has */
    uint32_t layers, lanes;              /* lanes over all layers */
    uint64_t kv_bytes;                   /* K and V tensors of the context: of all sequences */
    uint64_t kv_bytes_per_token;         /* so a full cache needs this times next_pos, and kv_bytes_window */
    uint64_t kv_bytes_window;            /* of kv_bytes those of sliding windows, which do not grow; mostly 0 */
    const char *isa;                     /* instruction set of the kernels; NULL in observe mode */
    const char *not_fused;               /* why fused attention was not possible, NULL when nothing was against it */
    uint64_t engine_us, bookkeeping_us;  /* time in llama_decode without ours, and in observe, plan, moves and
                                            commit, since create or clear; of the passes that the sequence had a part
                                            in, the others' parts included */
} h2okv_llama_stats;
H2OKV_API void h2okv_llama_get_stats(const h2okv_llama *h, h2okv_llama_stats *out);
H2OKV_API int h2okv_llama_seq_get_stats(const h2okv_llama *h, uint32_t seq, h2okv_llama_stats *out); /* E_INVALID */

/* The books, to read: h2okv_cache_kept of lane h2okv_llama_lane(h, layer, KV head); NULL: no such sequence. What the
 * cache options' on_event and on_mass get as lane is that + stats.lanes * the sequence. */
H2OKV_API const h2okv_cache *h2okv_llama_cache(const h2okv_llama *h);
H2OKV_API const h2okv_cache *h2okv_llama_seq_cache(const h2okv_llama *h, uint32_t seq);
H2OKV_API uint32_t h2okv_llama_lane(const h2okv_llama *h, uint32_t layer, uint32_t head);

/* What the last failed call on this handle had to say; its text is "" before the first failure. */
H2OKV_API const h2okv_error *h2okv_llama_last_error(const h2okv_llama *h);

#ifdef __cplusplus
}
#endif

#endif
