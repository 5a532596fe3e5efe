/*
 * advanced.h - policies of your own, and a look into a lane without a copy, the one way in which the library
 * reports errors, and the instruction sets of the kernels. May change between minor versions.
 *
 * A policy only ranks. One selector protects sinks, recent tokens and tokens in grace, breaks ties and picks,
 * so that no policy can get these wrong. See src/policies/ for the built-in ones, which use nothing but this.
 */
#ifndef H2OKV_ADVANCED_H
#define H2OKV_ADVANCED_H

#include "h2okv.h"

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define H2OKV_PRINTF(text, first) __attribute__((format(printf, text, first)))
#else
#define H2OKV_PRINTF(text, first)
#endif

/* A lane as it is now; valid until the next call that changes the cache. */
typedef struct h2okv_lane_view {
    uint32_t lane;
    uint32_t cells;        /* length of pos and score */
    uint32_t live;         /* length of order */
    const int32_t *pos;    /* [cells], -1 for a hole */
    const double *score;   /* [cells], 0 for a hole */
    const uint32_t *order; /* [live], cells by rising position */
    uint64_t seed;         /* options.seed */
} h2okv_lane_view;

/* Errors: E_INVALID (no such lane). */
H2OKV_API int h2okv_cache_lane(const h2okv_cache *cache, uint32_t lane, h2okv_lane_view *out);

enum h2okv_policy_flags {
    H2OKV_POLICY_NEEDS_SCORES = 1, /* every lane must be observed in every pass */
    H2OKV_POLICY_KEEPS_ALL = 2,    /* never evicts: plan() is always empty */
};

struct h2okv_policy {
    uint32_t size; /* sizeof(h2okv_policy) */
    uint32_t flags;
    const char *name;
    const char *summary; /* one line for --help */

    /* Rank a lane's cells: the lowest ranks go first. Returns [cells], either `scratch` filled in or an array
     * of the view. Ranks of holes are not looked at. Must be a function of the view alone, so that a replay
     * gives the same sets. */
    const double *(*rank)(const h2okv_lane_view *lane, double *scratch);

    /* What the options stand for that the caller leaves open; 0 in all of them is plain H2O. A `size` that ends
     * before them is allowed. */
    double recent_share;  /* of the budget that H2OKV_AUTO for `recent` is, at most 1; 0: half */
    uint32_t sinks, pool; /* as in the options */
    double decay;         /* as in the options; 0: 1, none */
};

/* The engine gave up the pass that it was computing: take the last admit back, and all that was observed since, as if
 * neither had been; only peak_live stays. The engine must free the cells. Errors: E_ORDER (nothing admitted since the
 * last commit). */
H2OKV_API int h2okv_cache_abandon(h2okv_cache *cache);

/* The cells in use by rising engine position, the order of the `cell` of h2okv_cache_restore; arrays of at least live
 * entries, each may be NULL. Returns how many there are. */
H2OKV_API uint32_t h2okv_cache_engine_cells(const h2okv_cache *cache, int32_t *pos, uint32_t *cell);

/* FNV-1a with 64 bits over `bytes` more bytes, from H2OKV_CHECKSUM_START on: for an engine that saves K and V beside
 * the books. It notices damage, not malice. */
#define H2OKV_CHECKSUM_START 0xCBF29CE484222325u
H2OKV_API uint64_t h2okv_checksum(uint64_t sum, const void *data, size_t bytes);

/* Fill `error` (NULL is allowed) as printf does and return `status`: for engines and policies that report as the
 * library does, in one line: return h2okv_error_set(error, H2OKV_E_ENGINE, "field", "text"). */
H2OKV_API int h2okv_error_set(h2okv_error *error, int status, const char *field, const char *format, ...)
    H2OKV_PRINTF(4, 5);

/* The built-in policy of that name, or NULL. */
H2OKV_API const h2okv_policy *h2okv_policy_find(const char *name);

/* The instruction sets that the attention kernels of this build are written for, by index from 0, the plainest
 * ("scalar", which every machine runs) first; NULL past the last one. */
H2OKV_API const char *h2okv_isa_name(uint32_t index);

/* 1 when processor and operating system let this process use it, else 0 (also for an unknown name). For "amx" this
 * asks Linux for the permission to use tile registers, which the process then keeps. */
H2OKV_API int h2okv_isa_usable(const char *name);

/* The usable one that "auto" means. */
H2OKV_API const char *h2okv_isa_best(void);

#ifdef __cplusplus
}
#endif

#endif
