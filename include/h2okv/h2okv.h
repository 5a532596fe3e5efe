/*
 * h2okv.h - a KV cache that never grows past a budget: the stable API.
 *
 * The cache keeps the most recent tokens and the heavy hitters, the tokens that attention keeps coming back
 * to (H2O: Zhang et al. 2023, "H2O: Heavy-Hitter Oracle for Efficient Generative Inference of Large Language
 * Models", section 4). It decides; an engine (llama.cpp, your own, or the store below) holds K and V and moves
 * them. No K or V pointer enters an h2okv_cache.
 *
 *            cell 0   cell 1   cell 2   cell 3   ...        one row a lane, one column a cell
 *   lane 0 | pos 0  | pos 7  | hole   | pos 9  |            lane: one independent choice, i.e. a (layer, KV head)
 *   lane 1 | pos 3  | pos 7  | hole   | pos 9  |            cell: a physical place that all lanes share
 *
 * Invariant: a cell is a hole in every lane or in none; every lane holds as many tokens as every other.
 *
 * One pass:   admit -> observe (each lane) -> plan -> the engine applies the plan -> commit
 *
 * Units: positions are a token's true place in its sequence, from 0. Sizes are counts unless a name says bytes.
 * Errors: functions return H2OKV_OK or a negative status. Above -100 the object is as it was before the call;
 *         at -100 and below it may only be freed.
 * Threads: a handle belongs to one thread at a time; different handles are independent. There are no globals.
 * Memory: a create call allocates all that its object will ever use; later calls cannot fail for memory.
 */
#ifndef H2OKV_H
#define H2OKV_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define H2OKV_API __attribute__((visibility("default")))
#else
#define H2OKV_API
#endif

#define H2OKV_VERSION_MAJOR 0
#define H2OKV_VERSION_MINOR 1
#define H2OKV_VERSION_PATCH 0
#define H2OKV_VERSION "0.1.0"

/* The version of the library that is loaded, as "major.minor.patch". */
H2OKV_API const char *h2okv_version(void);

/* ---- Status ------------------------------------------------------------------------------------------- */

#define H2OKV_STATUS_MAP(X)                                                                       \
    X(OK, 0, "success")                                                                           \
    X(E_INVALID, -1, "argument outside its range")                                                \
    X(E_ORDER, -2, "call out of order")                                                           \
    X(E_STALE, -3, "plan is not the cache's newest")                                              \
    X(E_FULL, -4, "no free cell: plan and commit first, or give the cache more cells")            \
    X(E_NOMEM, -5, "out of memory")                                                               \
    X(E_ENGINE, -6, "engine does not behave as required")                                         \
    X(E_NAN, -7, "a weight or mass is NaN or infinite, or a rank is NaN")                                     \
    X(E_UNSUPPORTED, -8, "not supported")                                                         \
    X(E_STOPPED, -9, "stopped by the caller")                                                     \
    X(E_FILE, -10, "a file cannot be read or written, or is damaged")                             \
    X(E_BROKEN, -100, "engine and cache disagree; the object may only be freed")

enum h2okv_status {
#define H2OKV_STATUS_ENUM(name, value, text) H2OKV_##name = (value),
    H2OKV_STATUS_MAP(H2OKV_STATUS_ENUM)
#undef H2OKV_STATUS_ENUM
};

/* True when the object that returned `status` may only be freed. */
#define H2OKV_IS_FATAL(status) ((status) <= -100)

/* A fixed English text for a status; never NULL, also for unknown numbers. */
H2OKV_API const char *h2okv_strerror(int status);

/* What went wrong, for people. Functions that take one accept NULL; it is written only on failure. */
typedef struct h2okv_error {
    int32_t status;
    char field[32]; /* the option or argument at fault, or "" */
    char text[256]; /* names the field, its value and what to do */
} h2okv_error;

/* ---- Options ------------------------------------------------------------------------------------------ */

typedef struct h2okv_policy h2okv_policy; /* advanced.h */

/* Memory hook. `alloc` returns memory aligned as malloc's, or NULL; `free` gets the size that was asked for. */
typedef struct h2okv_allocator {
    void *(*alloc)(void *user, size_t bytes);
    void (*free)(void *user, void *memory, size_t bytes);
    void *user;
} h2okv_allocator;

enum h2okv_event_kind {
    H2OKV_EVENT_EVICT = 1, /* a lane gave a token up to stay within the budget */
    H2OKV_EVENT_TRIM = 2,  /* a token was dropped by h2okv_cache_trim */
};

/* Something that a commit did to one token of one lane. */
typedef struct h2okv_event {
    uint32_t kind;
    uint32_t lane;
    uint32_t cell;
    int32_t pos;
    double score;  /* at that moment */
    uint64_t pass; /* commits before this one */
} h2okv_event;

/* How the weights of the query heads that share a lane become one mass. */
enum h2okv_heads {
    H2OKV_HEADS_SUM = 0,
    H2OKV_HEADS_MEAN = 1,
};

#define H2OKV_AUTO UINT32_MAX /* for `recent`, `sinks` and `pool`: the policy's own */

typedef struct h2okv_options {
    uint32_t size;       /* bytes of this struct that the caller knows; newer fields get their defaults */
    uint32_t lanes;      /* independent choices; default 1 */
    uint32_t cells;      /* physical places, shared by all lanes; at least the budget */
    uint32_t budget;     /* tokens kept after a pass = recent + heavy */
    uint32_t recent;     /* newest tokens always kept, counted by position; default H2OKV_AUTO, with most policies half
                            of the budget. With 0 the one newest token is still kept and counts among the heavy */
    uint32_t sinks;      /* tokens at positions 0..sinks-1 always kept; they count in heavy; default H2OKV_AUTO: the
                            policy's, or what `recent` leaves of the budget if that is less */
    uint32_t grace;      /* passes for which a new token beyond `recent` is kept before ranks decide, as far as
                            the budget allows; at most 65536, default 0 */
    uint32_t count_self; /* whether a token's weight on itself counts; default 1 */
    uint32_t heads;      /* enum h2okv_heads; default sum */
    uint32_t parts;      /* times each lane is observed after an admit, for a lane that spans several layers;
                            default 1 */
    double decay;        /* factor on old scores per token, in (0, 1]; 1: none; default 0: the policy's */
    uint64_t seed;       /* for policies that draw numbers; default 0 */
    const char *policy;  /* a name that h2okv_policy_name lists; default "h2o" */
    const h2okv_policy *custom_policy;  /* from advanced.h; used instead of `policy` when not NULL. It is
                                           copied, its functions must outlive the cache */
    const h2okv_allocator *allocator;   /* NULL: malloc and free. It is copied */
    void (*on_event)(void *user, const h2okv_event *event); /* called by commit; NULL: nothing is called */
    void *event_user;
    uint32_t pool;       /* a token ranks as the best of its lane's tokens at most so many positions away from it, so
                            that the neighbours of a heavy hitter stay with it (Li et al. 2024, "SnapKV", section 4);
                            default H2OKV_AUTO: the policy's */
    void (*on_mass)(void *user, uint32_t lane, const double *mass); /* called by observe with the mass [cells] that it
                            adds to the lane's scores, before it does; NULL: nothing is called */
    void *mass_user;
} h2okv_options;

/* Use h2okv_options_init. It is inline so that `size` is the caller's, not the library's. */
H2OKV_API void h2okv_options_init_sized(h2okv_options *options, uint32_t size);
static inline void h2okv_options_init(h2okv_options *options)
{
    h2okv_options_init_sized(options, (uint32_t)sizeof *options);
}

/* H2OKV_OK, or H2OKV_E_INVALID with `error` naming the field, its value and what to do. */
H2OKV_API int h2okv_options_check(const h2okv_options *options, h2okv_error *error);

/* The same, and *out gets the options as a cache reads them: nothing in them is H2OKV_AUTO or left to the policy. */
H2OKV_API int h2okv_options_resolve(const h2okv_options *options, h2okv_options *out, h2okv_error *error);

/* Built-in policies by index from 0; NULL past the last one. */
H2OKV_API const char *h2okv_policy_name(uint32_t index);
H2OKV_API const char *h2okv_policy_summary(uint32_t index);

/* ---- The cache ---------------------------------------------------------------------------------------- */

typedef struct h2okv_cache h2okv_cache;

/* Attention weights of one pass for one lane: softmax rows, [heads][queries][columns], a column being
 * contiguous with the next. `queries` are the tokens that the pass admitted, in order. */
typedef struct h2okv_weights {
    uint32_t heads, queries, columns;
    const float *data;
    size_t head_stride, query_stride; /* in floats */
    const uint32_t *cell_of_column;   /* [columns], no cell twice; NULL: column i is cell i */
} h2okv_weights;

typedef struct h2okv_move {
    uint32_t lane, from, to; /* copy the lane's K and V of cell `from` over cell `to` */
} h2okv_move;

/* What the engine has to do; the cache's own memory, valid until the next call that changes the cache.
 * Moves come by rising lane, and in a lane any order is safe: no `to` is a `from`. Apply them, then free the
 * cells. Freed cells are those whose engine positions are the oldest (trim: the newest), so that an engine
 * that knows only its own positions always holds an unbroken window of them. */
typedef struct h2okv_plan {
    uint32_t n_moves, n_freed;
    const h2okv_move *moves;
    const uint32_t *freed_cell; /* [n_freed], the same for every lane */
    const int32_t *freed_pos;   /* [n_freed], the positions at which the engine put tokens into those cells */
    uint32_t n_lost;            /* trim only: the most tokens before the cut that a lane has to give up */
    uint64_t epoch;
} h2okv_plan;

typedef struct h2okv_cache_stats {
    uint32_t live;      /* tokens each lane holds now */
    uint32_t peak_live; /* the most it ever held; at most the budget + the tokens of the largest pass */
    int32_t newest;     /* highest position held, -1 when empty */
    uint64_t admitted, evicted, moves, passes; /* tokens, tokens per lane, moves over all lanes, commits */
} h2okv_cache_stats;

/* Bytes that h2okv_cache_create will allocate for these options. */
H2OKV_API int h2okv_cache_bytes(const h2okv_options *options, size_t *bytes);

/* On success *out is the caller's, to be freed by h2okv_cache_free. On failure *out is NULL. */
H2OKV_API int h2okv_cache_create(h2okv_cache **out, const h2okv_options *options, h2okv_error *error);
H2OKV_API void h2okv_cache_free(h2okv_cache *cache); /* NULL is allowed */
H2OKV_API void h2okv_cache_clear(h2okv_cache *cache); /* as just created */

/* The options in effect: nothing in them is H2OKV_AUTO or left to the policy, budget and recent are those of now. */
H2OKV_API void h2okv_cache_get_options(const h2okv_cache *cache, h2okv_options *out);

/* Another budget from the next plan on, at most `cells`; `recent` may be H2OKV_AUTO. The tokens held stay until then:
 * an engine that wants them gone now plans and commits at once. Errors: E_INVALID, as in the options, and when pinned
 * tokens do not fit; E_ORDER (tokens are admitted and not yet committed). */
H2OKV_API int h2okv_cache_set_budget(h2okv_cache *cache, uint32_t budget, uint32_t recent, h2okv_error *error);

/* Always keep the tokens at positions first..end-1, those to come as well, as sinks are kept; they count in the
 * budget. Overlapping and neighbouring ranges become one. A trim cuts ranges off at its pos0, unless it drops exactly
 * a probe, and clear() removes them. Errors: E_INVALID (first < 0, end <= first, a position that
 * some lane has given up, more than H2OKV_MOST_PINS ranges, or sinks +
 * pinned + recent over the budget). */
#define H2OKV_MOST_PINS 16
H2OKV_API int h2okv_cache_pin(h2okv_cache *cache, int32_t first, int32_t end, h2okv_error *error);

/* The engine put n new tokens into these cells. Positions rise strictly, are past every one in the cache and
 * below INT32_MAX; cells are free. Scores start at 0. Errors: E_INVALID (position or cell), E_FULL, E_ORDER
 * (n = 0, or the tokens admitted before were not observed in every lane and the policy needs scores). */
H2OKV_API int h2okv_cache_admit(h2okv_cache *cache, const uint32_t *cell, const int32_t *pos, uint32_t n);

/* Add to a lane's scores the attention that each cell received from the tokens just admitted:
 *     score = score * decay^n + sum over heads and queries q of weight[q][cell] * decay^(n - 1 - q)
 * (Zhang et al. 2023, section 4.2, accumulated scores; the decay is ours). Once for each lane and admit, or
 * options.parts times, of which the first applies the decay. Weights of holes are not read as attention; with
 * cell_of_column, cells not named receive nothing. Sums are double, in a fixed order. Errors: E_INVALID (shape,
 * or, without cell_of_column, fewer columns than a live cell needs), E_NAN, E_ORDER (nothing admitted, or
 * observed already). */
H2OKV_API int h2okv_cache_observe(h2okv_cache *cache, uint32_t lane, const h2okv_weights *weights);

/* The same from a mass that a fused kernel has summed already, [cells]; NULL: no cell received attention.
 * The kernel has to weigh queries by age when decay < 1, to leave out self weights if they don't count, and with a
 * probe to leave out all other queries. */
H2OKV_API int h2okv_cache_observe_mass(h2okv_cache *cache, uint32_t lane, const float *mass);

/* Guided reading (Corallo and Papotti 2024, "Finch", section 3): the last n of the tokens just admitted are a probe,
 * for instance the question that a text is read for. What the probe's queries alone give becomes the scores, each query
 * with weight 1; old scores and the other new queries do not count. When a lane's last observe is done, each score
 * becomes the sum of the square roots of those at most `spread` positions away, its own included, the probe's and the
 * sinks' left out, so that a fact stays whole (ours; 0: scores stay as they are; 8 suits sentences). Call it before
 * the first observe; then observe each lane, drop the probe by h2okv_cache_trim at its first position and commit, plan
 * and commit. The trim ends a pass, which counts for `grace`. Errors: E_ORDER (nothing admitted, or a lane observed
 * already), E_INVALID (n is 0 or more than were admitted). */
H2OKV_API int h2okv_cache_probe(h2okv_cache *cache, uint32_t n, uint32_t spread);

/* What has to go so that the cache is within its budget; a plan with n_freed = 0 when nothing has to.
 * Per lane: sinks, pinned tokens and the `recent` highest positions stay, then tokens in grace, then the highest
 * ranks; of equal ranks the higher position stays (Zhang et al. 2023, algorithm 1). The newest token always stays.
 * Errors: E_ORDER (a lane was not observed and the policy needs scores), E_NAN (a policy's rank). */
H2OKV_API int h2okv_cache_plan(h2okv_cache *cache, const h2okv_plan **out);

/* Drop the tokens at positions pos0 and above. Exact while all of them are among the `recent` newest. Further back
 * lanes hold different numbers of them, and each lane gives up others, plan->n_lost at most, so that all stay equally
 * long: the lowest ranked first, then those in grace, then recent ones, and sinks and pinned ones last. A cut before
 * the engine's oldest position empties the cache. Scores keep what the dropped tokens' queries added. Errors:
 * E_INVALID (pos0 < 0), E_NAN. */
H2OKV_API int h2okv_cache_trim(h2okv_cache *cache, int32_t pos0, const h2okv_plan **out);

/* The engine has applied the plan. Without a commit the plan never happened. A commit ends a pass, also with
 * an empty plan. Errors: E_STALE (not this cache's newest plan). */
H2OKV_API int h2okv_cache_commit(h2okv_cache *cache, const h2okv_plan *plan);

/* Fork: `to` gets from's tokens, scores, pins, budget, recent and counters, cell for cell; the engine copies K
 * and V into the same cells of its own. Both were created with equal options; `parts`, memory and callbacks may differ
 * and stay to's own. All or nothing. Errors: E_INVALID (`error` names the option that differs and both values), E_ORDER
 * (one of them has tokens that are admitted and not yet committed). */
H2OKV_API int h2okv_cache_copy(h2okv_cache *to, const h2okv_cache *from, h2okv_error *error);

/* The books as a block of bytes, the same on every machine: tokens, scores, pins, counters, budget, recent and pool of
 * now, and the options at create; K and V are the engine's to save. `bytes`: at least h2okv_cache_state_bytes, which is
 * what is written. Errors: E_INVALID (bytes), E_ORDER (tokens are admitted and not yet committed). */
H2OKV_API size_t h2okv_cache_state_bytes(const h2okv_cache *cache);
H2OKV_API int h2okv_cache_save(const h2okv_cache *cache, void *buffer, size_t bytes, h2okv_error *error);

/* The books of a block of exactly `bytes`, in place of the cache's own. The cache was created with options equal to
 * those of the one saved; cells, parts, memory and callbacks may differ.
 *   cell   [live] where the engine has the tokens now, by rising engine position; NULL: in the cells of then
 * All or nothing, and all is checked: length, version, checksum, and that the books are such as calls lead to.
 * Errors: E_INVALID (`error` names the option that differs and both values, or says what is wrong with the block; or
 * `cell`), E_ORDER (as in save). */
H2OKV_API int h2okv_cache_restore(h2okv_cache *cache, const void *state, size_t bytes, const uint32_t *cell,
                                  h2okv_error *error);

/* The same checks, but for the cells, and nothing is restored: so an engine knows how many cells to take, and for
 * which of its positions. cell: NULL, or gets the [live] cells of then, by rising engine position; room for as many
 * as the cache has cells. */
typedef struct h2okv_state_info {
    uint32_t live;          /* tokens in each lane */
    uint32_t budget;        /* of then */
    int32_t oldest, newest; /* the engine's positions of the first and the last cell; -1: none */
} h2okv_state_info;
H2OKV_API int h2okv_cache_check_state(const h2okv_cache *cache, const void *state, size_t bytes, h2okv_state_info *info,
                                      uint32_t *cell, h2okv_error *error);

H2OKV_API uint32_t h2okv_cache_live(const h2okv_cache *cache);

/* How many positions from 0 on every lane still holds the tokens of. A text that begins with the same tokens need not
 * read these again: a trim to there gives up no token before it, as long as the engine's oldest position is not behind
 * it (live tokens before the next one's); then it empties the cache. Past the result there are gaps, and to go on from
 * there is to accept them. */
H2OKV_API uint32_t h2okv_cache_whole(const h2okv_cache *cache);
H2OKV_API void h2okv_cache_get_stats(const h2okv_cache *cache, h2okv_cache_stats *out);

/* A lane's tokens by rising position, into arrays of at least live entries; any of them may be NULL.
 * Returns how many there are; 0 for a lane that does not exist. */
H2OKV_API uint32_t h2okv_cache_kept(const h2okv_cache *cache, uint32_t lane, int32_t *pos, double *score,
                                    uint32_t *cell);

/* ---- The store: an engine of its own ------------------------------------------------------------------ */

/*
 * K and V of `batch` independent sequences and `layers` layers. Each sequence keeps within the budget in each
 * layer, by its own scores. New tokens come in one of two ways, which may take turns between passes:
 *
 *   append, attend   for engines: from q, K and V the store computes attention, sums up what each token received,
 *                    and evicts. A pass may hold many tokens. Needs shape.max_pass.
 *   update           for one token whose attention weights are known already: the class that the H2O demonstration
 *                    code defines, in C.
 *
 *   for each pass of n tokens, at most max_pass (a longer prompt is read in several passes):
 *       for each layer:  h2okv_store_append(store, layer, n, k, v);    k, v: this layer's, rotated and all
 *                        h2okv_store_attend(store, layer, q, out);     out: over what is kept + the new tokens
 *
 * All sequences of a store go forward together, by the same n. Those that come and go on their own get a store each
 * (batch 1); different stores may be used by different threads at once.
 */
typedef struct h2okv_store h2okv_store;

enum h2okv_type { /* how K and V are held */
    H2OKV_TYPE_F32 = 0,
    H2OKV_TYPE_F16 = 1,
    H2OKV_TYPE_BF16 = 2,
    H2OKV_TYPE_Q8_0 = 3, /* blocks of 32: an f16 scale and 32 int8; head_dim must be a multiple of 32. A block
                            with a NaN or an infinity in it becomes NaN */
};

typedef struct h2okv_shape {
    uint32_t size;     /* bytes of this struct that the caller knows */
    uint32_t batch;    /* sequences; default 1 */
    uint32_t layers;   /* default 1 */
    uint32_t heads;    /* KV heads of a layer */
    uint32_t group;    /* query heads that share a KV head; default 1 */
    uint32_t head_dim; /* numbers in a head's K or V */
    uint32_t type_k, type_v; /* enum h2okv_type; default f32 */
    uint32_t lane_per_head;  /* 0 (default): one choice for all heads of a layer; 1: each KV head its own, the
                                paper's mode, recommended with append and attend */
    /* for append and attend; they need a head_dim of 32..256 in steps of 8 */
    uint32_t max_pass; /* tokens of the largest append; 0 (default): there will be none */
    uint32_t threads;  /* that may work on one attend together; default 1 */
    float scale;       /* logit = scale * q.k; 0 (default): 1 / sqrt(head_dim) */
    float softcap;     /* 0 (default): none; else logit = softcap * tanh(logit / softcap) */
    const char *isa;   /* a name that h2okv_isa_name lists (advanced.h); NULL (default): the best that is usable
                          here. Not needed after create */
} h2okv_shape;

H2OKV_API void h2okv_shape_init_sized(h2okv_shape *shape, uint32_t size);
static inline void h2okv_shape_init(h2okv_shape *shape)
{
    h2okv_shape_init_sized(shape, (uint32_t)sizeof *shape);
}

/* `options` are those of each sequence in each layer. lanes and parts must be left at 1; cells 0 means the budget
 * + the largest pass, max_pass or 1, which is the least that there may be (policy "full": cells is the longest text).
 * count_self matters to attend only: update() is given no self weights. on_event gets the lane
 * (sequence * layers + layer) * lanes + lane of the layer.
 * bytes: exactly what create asks of the allocator, all together; with max_pass it depends on the processor.
 * Errors: E_INVALID, E_NOMEM, E_UNSUPPORTED (max_pass with a shape that the attention kernels cannot do, or an isa
 * that is not usable here). */
H2OKV_API int h2okv_store_bytes(const h2okv_shape *shape, const h2okv_options *options, size_t *bytes);
H2OKV_API int h2okv_store_create(h2okv_store **out, const h2okv_shape *shape, const h2okv_options *options,
                                 h2okv_error *error);
H2OKV_API void h2okv_store_free(h2okv_store *store); /* NULL is allowed */
H2OKV_API void h2okv_store_clear(h2okv_store *store);

/* The K and V of the next n tokens of each sequence, for the attend that must follow: until then nothing else has
 * changed. Copied; positions are h2okv_store_next_pos and up.
 *   key, value  [batch][n][heads][head_dim]
 * Errors: E_UNSUPPORTED (max_pass is 0), E_INVALID (n is 0 or over max_pass, no such layer, NULL), E_ORDER (the
 * layer's last append was not attended), E_NAN (a number that is not finite, or too large for type_k or type_v),
 * E_FULL (policy "full", or 2^31 tokens). To take an append back: h2okv_store_trim(store, next position). */
H2OKV_API int h2okv_store_append(h2okv_store *store, uint32_t layer, uint32_t n, const float *key,
                                 const float *value);

/* Attention of the n tokens that were just appended, over all that the layer has kept and over themselves, causally;
 * then eviction down to the budget. Query head h reads KV head h / group.
 *   q, out  [batch][n][heads * group][head_dim]; they must not overlap
 *   out   = softmax(scale * q k^T) v (Vaswani et al. 2017, section 3.2.1)
 *   score = score * decay^n + what the token received from the n queries, the later ones weighing more when
 *           decay < 1: see h2okv_cache_observe (Zhang et al. 2023, section 4.2)
 *   kept  : see h2okv_cache_plan (Zhang et al. 2023, algorithm 1); at most the budget
 * Eviction comes last: `out` has seen the tokens that go.
 * All or nothing: on an error no sequence has changed and the append still waits; what is in `out` means nothing.
 * Errors: E_UNSUPPORTED (max_pass is 0), E_INVALID, E_ORDER (no append before it), E_NAN (q is not finite, the products
 * overflow, update() has put such K or V, or a custom policy's rank). */
H2OKV_API int h2okv_store_attend(h2okv_store *store, uint32_t layer, const float *q, float *out);

/* The same by n_threads threads (1 to shape.threads) together: each makes this call with the same arguments and its
 * own number from 0, and gets the same status. `out` is complete when one of them has returned; the store may be used
 * again when all have. Scores, and so what is kept, have the same bits for any number of threads. */
H2OKV_API int h2okv_store_attend_thread(h2okv_store *store, uint32_t layer, const float *q, float *out,
                                        uint32_t thread, uint32_t n_threads);

/* One new token in each sequence of a layer, then eviction down to the budget.
 *   key, value  [batch][heads][head_dim]
 *   weights     [batch][heads * group][h2okv_store_size]: what the new token's query gave each earlier token.
 *               Column i is the i-th token by rising position, in the lane of that query head; with
 *               lane_per_head the tokens of a column differ from lane to lane. NULL is allowed while the
 *               layer is empty, and with policies that need no scores.
 * The new token starts at score 0 and its position is h2okv_store_next_pos.
 * All or nothing: on an error no sequence has changed. Errors: E_INVALID, E_ORDER (an append waits for its attend),
 * E_NAN (a weight), E_FULL (policy "full", or 2^31 tokens), E_BROKEN (a custom policy's rank was NaN when the token
 * was in). */
H2OKV_API int h2okv_store_update(h2okv_store *store, uint32_t layer, const float *key, const float *value,
                                 const float *weights);

/* Drop positions pos0 and above in every sequence and layer, and every append that waits for its attend; the next token
 * then gets position pos0, if that many were seen. So an engine that gives up a pass trims to its first position,
 * however many layers have had it. Evicted tokens do not come back, and past the `recent` newest others are lost
 * too: see h2okv_cache_trim. All or nothing. Errors: E_INVALID (pos0 < 0), E_NAN (a custom policy's rank), E_BROKEN
 * (as in update). */
H2OKV_API int h2okv_store_trim(h2okv_store *store, int32_t pos0);

/* All sequences of a layer hold equally many tokens. 0 for a layer that does not exist. */
H2OKV_API uint32_t h2okv_store_size(const h2okv_store *store, uint32_t layer);    /* tokens held now */
H2OKV_API uint32_t h2okv_store_max_size(const h2okv_store *store);                /* the most after an update */
H2OKV_API int32_t h2okv_store_next_pos(const h2okv_store *store, uint32_t layer); /* of the next token */

/* Copies by rising position, of one sequence and layer, into the caller's arrays; values are converted to
 * float. Errors: E_INVALID (no such sequence or layer, or out is NULL).
 *   keys, values   [heads][size][head_dim]    size = h2okv_store_size
 *   positions      [lanes][size]              lanes = lane_per_head ? heads : 1
 *   scores         [lanes][size] */
H2OKV_API int h2okv_store_keys(const h2okv_store *store, uint32_t sequence, uint32_t layer, float *out);
H2OKV_API int h2okv_store_values(const h2okv_store *store, uint32_t sequence, uint32_t layer, float *out);
H2OKV_API int h2okv_store_positions(const h2okv_store *store, uint32_t sequence, uint32_t layer, int32_t *out);
H2OKV_API int h2okv_store_scores(const h2okv_store *store, uint32_t sequence, uint32_t layer, double *out);

#ifdef __cplusplus
}
#endif

#endif
