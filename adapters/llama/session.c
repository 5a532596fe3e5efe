/*
 * session.c - a sequence as bytes: its books, and K and V of the cells in use.
 *
 *   | head | layers | note | books | K of layer 0 | V of layer 0 | K of layer 1 | ... | checksum |
 *     magic  [n_layers] the      h2okv_   [live][kv_heads * dim]                        of all
 *     ...    shapes     caller's cache_   by rising engine position, in the tensors'    before
 *     next_pos                   save     own types, V never transposed
 *
 * Numbers are little-endian; K and V are as ggml has them in memory. Nothing here depends on where llama.cpp put a
 * token, nor on the mode: what fused attention wrote observe mode reads, as long as the types are the same.
 *
 * Reading checks all before it changes anything. Then the sequence is emptied, llama.cpp is made to take as many cells
 * (claim.c), and these get their K and V.
 */
#include "session.h"

#include <stdlib.h>
#include <string.h>

static const unsigned char magic[8] = {'H', '2', 'O', 'K', 'V', 'S', 'E', 'S'};

enum {
    FORMAT = 1,
    LIBRARY_BYTES = 16,
    DESCRIPTION_BYTES = 64,
    HEAD_BYTES = 8 + 4 + 8 + LIBRARY_BYTES          /* magic, format, length, version of the library */
                 + 8 + DESCRIPTION_BYTES            /* model */
                 + 8 * H2OKV__N_ROPE                /* what the context does to positions */
                 + 4 + 4 + 4 + 4                    /* lanes, layers, next_pos, live */
                 + 8 + 8,                           /* lengths of note and books */
    LAYER_COUNTS = 5,
    LAYER_BYTES = 4 * LAYER_COUNTS,
    SUM_BYTES = 8,
};

typedef struct session {
    uint64_t bytes, model;
    char library[LIBRARY_BYTES + 1], description[DESCRIPTION_BYTES + 1];
    double rope[H2OKV__N_ROPE];
    uint32_t lanes_mode, n_layers, live;
    int32_t next_pos;
    uint64_t note_bytes, books_bytes;
    const unsigned char *layers, *note, *books, *rows;
} session;

/* ---- Numbers ---- */

static unsigned char *put(unsigned char *at, uint64_t value, unsigned bytes)
{
    for (unsigned i = 0; i < bytes; i++) {
        at[i] = (unsigned char)(value >> (8 * i));
    }
    return at + bytes;
}

static uint64_t get(const unsigned char **at, unsigned bytes)
{
    uint64_t value = 0;
    for (unsigned i = 0; i < bytes; i++) {
        value |= (uint64_t)(*at)[i] << (8 * i);
    }
    *at += bytes;
    return value;
}

static uint32_t get32(const unsigned char **at)
{
    return (uint32_t)get(at, 4);
}

static unsigned char *put_text(unsigned char *at, const char *text, size_t bytes)
{
    size_t length = strlen(text);
    memset(at, 0, bytes);
    memcpy(at, text, length < bytes ? length : bytes);
    return at + bytes;
}

/* `out` has room for the end too. */
static void get_text(const unsigned char **at, char *out, size_t bytes)
{
    memcpy(out, *at, bytes);
    out[bytes] = '\0';
    *at += bytes;
}

/* ---- Sizes ---- */

static void layer_counts(const h2okv__layer *l, uint32_t *count)
{
    count[0] = l->kv_heads;
    count[1] = l->k_dim;
    count[2] = l->v_dim;
    count[3] = (uint32_t)l->k->type;
    count[4] = (uint32_t)l->v->type;
}

/* K and V of one cell, all layers. */
static uint64_t cell_bytes(const h2okv_llama *h)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < h->n_layers; i++) {
        bytes += h2okv__cell_row_bytes(h->layer[i].k) + h2okv__cell_row_bytes(h->layer[i].v);
    }
    return bytes;
}

static uint64_t bytes_before_rows(const session *x)
{
    return HEAD_BYTES + (uint64_t)LAYER_BYTES * x->n_layers + x->note_bytes + x->books_bytes;
}

static uint64_t session_bytes(const h2okv_llama *h, const session *x)
{
    return bytes_before_rows(x) + x->live * cell_bytes(h) + SUM_BYTES;
}

/* ---- Out ---- */

static bool sink(h2okv__sink *out, const void *data, size_t bytes)
{
    out->sum = h2okv_checksum(out->sum, data, bytes);
    return bytes == 0 || out->write(out->user, data, bytes);
}

static session describe(const h2okv_llama *h, const h2okv__sequence *s, h2okv__note note)
{
    session x = {
        .model = h2okv__model_identity(h),
        .library = H2OKV_VERSION,
        .lanes_mode = h->lanes_mode,
        .n_layers = h->n_layers,
        .live = h2okv_cache_live(s->cache),
        .next_pos = s->next_pos,
        .note_bytes = note.bytes,
        .books_bytes = h2okv_cache_state_bytes(s->cache),
    };
    llama_model_desc(h->model, x.description, sizeof x.description);
    memcpy(x.rope, h->rope, sizeof x.rope);
    x.bytes = session_bytes(h, &x);
    return x;
}

static unsigned char *put_head(unsigned char *at, const session *x)
{
    memcpy(at, magic, sizeof magic);
    at = put(at + sizeof magic, FORMAT, 4);
    at = put(at, x->bytes, 8);
    at = put_text(at, x->library, LIBRARY_BYTES);
    at = put(at, x->model, 8);
    at = put_text(at, x->description, DESCRIPTION_BYTES);
    for (uint32_t i = 0; i < H2OKV__N_ROPE; i++) {
        uint64_t bits;
        memcpy(&bits, &x->rope[i], sizeof bits);
        at = put(at, bits, 8);
    }
    const uint32_t count[] = {x->lanes_mode, x->n_layers, (uint32_t)x->next_pos, x->live};
    for (size_t i = 0; i < sizeof count / sizeof count[0]; i++) {
        at = put(at, count[i], 4);
    }
    at = put(at, x->note_bytes, 8);
    return put(at, x->books_bytes, 8);
}

static unsigned char *put_layers(unsigned char *at, const h2okv_llama *h)
{
    for (uint32_t i = 0; i < h->n_layers; i++) {
        uint32_t count[LAYER_COUNTS];
        layer_counts(&h->layer[i], count);
        for (uint32_t c = 0; c < LAYER_COUNTS; c++) {
            at = put(at, count[c], 4);
        }
    }
    return at;
}

/* All up to K and V. */
static int write_front(h2okv_llama *h, const h2okv__sequence *s, const session *x, h2okv__note note,
                       h2okv__sink *out)
{
    size_t bytes = (size_t)(bytes_before_rows(x) - x->note_bytes), front = HEAD_BYTES + LAYER_BYTES * h->n_layers;
    unsigned char *block = malloc(bytes);
    if (block == NULL) {
        return h2okv__llama_fail(h, H2OKV_E_NOMEM, "session", "no memory for the books of a session");
    }
    h2okv_error error;
    int status = h2okv_cache_save(s->cache, block + front, (size_t)x->books_bytes, &error);
    if (status != H2OKV_OK) {
        free(block);
        return h2okv__llama_fail(h, status, error.field, "%s", error.text);
    }
    (void)put_layers(put_head(block, x), h);
    bool written = sink(out, block, front) && sink(out, note.data, (size_t)x->note_bytes) &&
                   sink(out, block + front, (size_t)x->books_bytes);
    free(block);
    return written ? H2OKV_OK : H2OKV_E_FILE;
}

/* Room for the cells' numbers and the longest rows of a tensor, in one block. */
static uint32_t *allocate_rows(const h2okv_llama *h, uint32_t live, char **rows)
{
    size_t longest = 0;
    for (uint32_t i = 0; i < h->n_layers; i++) {
        size_t k = h2okv__cell_row_bytes(h->layer[i].k), v = h2okv__cell_row_bytes(h->layer[i].v);
        longest = k > longest ? k : longest;
        longest = v > longest ? v : longest;
    }
    uint32_t *cell = malloc((size_t)live * (sizeof *cell + longest) + 1);
    *rows = (char *)(cell + live);
    return cell;
}

static int write_rows(h2okv_llama *h, const h2okv__sequence *s, const session *x, h2okv__sink *out)
{
    char *rows;
    uint32_t *cell = allocate_rows(h, x->live, &rows);
    if (cell == NULL) {
        return h2okv__llama_fail(h, H2OKV_E_NOMEM, "session", "no memory for a layer of a session");
    }
    (void)h2okv_cache_engine_cells(s->cache, NULL, cell);
    bool written = true;
    for (uint32_t i = 0; i < h->n_layers && written; i++) {
        const h2okv__layer *l = &h->layer[i];
        h2okv__get_rows(h, s, l->k, false, cell, x->live, rows);
        written = sink(out, rows, x->live * h2okv__cell_row_bytes(l->k));
        if (written) {
            h2okv__get_rows(h, s, l->v, l->v_transposed, cell, x->live, rows);
            written = sink(out, rows, x->live * h2okv__cell_row_bytes(l->v));
        }
    }
    free(cell);
    return written ? H2OKV_OK : H2OKV_E_FILE;
}

int h2okv__session_write(h2okv_llama *h, const h2okv__sequence *s, h2okv__note note, h2okv__sink *out)
{
    session x = describe(h, s, note);
    out->sum = H2OKV_CHECKSUM_START;
    int status = write_front(h, s, &x, note, out);
    status = status != H2OKV_OK ? status : write_rows(h, s, &x, out);
    unsigned char sum[SUM_BYTES];
    (void)put(sum, out->sum, sizeof sum);
    return status != H2OKV_OK || out->write(out->user, sum, sizeof sum) ? status : H2OKV_E_FILE;
}

/* ---- In: checks ---- */

static const unsigned char *get_head(session *x, const unsigned char *at)
{
    at += sizeof magic + 4;
    x->bytes = get(&at, 8);
    get_text(&at, x->library, LIBRARY_BYTES);
    x->model = get(&at, 8);
    get_text(&at, x->description, DESCRIPTION_BYTES);
    for (uint32_t i = 0; i < H2OKV__N_ROPE; i++) {
        uint64_t bits = get(&at, 8);
        memcpy(&x->rope[i], &bits, sizeof bits);
    }
    x->lanes_mode = get32(&at);
    x->n_layers = get32(&at);
    x->next_pos = (int32_t)get32(&at);
    x->live = get32(&at);
    x->note_bytes = get(&at, 8);
    x->books_bytes = get(&at, 8);
    return at;
}

int h2okv__session_check_start(h2okv_llama *h, const unsigned char *start, uint64_t n)
{
    const unsigned char *at = start + sizeof magic;
    if (n < HEAD_BYTES + SUM_BYTES || memcmp(start, magic, sizeof magic) != 0) {
        bool cut = n >= sizeof magic && memcmp(start, magic, sizeof magic) == 0;
        return h2okv__llama_fail(h, H2OKV_E_FILE, "session", cut ? "the session is cut: its head is not all there"
                                                                 : "this is no session of h2okv");
    }
    uint32_t format = get32(&at);
    if (format != FORMAT) {
        return h2okv__llama_fail(h, H2OKV_E_FILE, "session", "the session has format %u: this library (%s) reads "
                                 "format %d", format, H2OKV_VERSION, FORMAT);
    }
    uint64_t length = get(&at, 8);
    if (length != n) {
        return h2okv__llama_fail(h, H2OKV_E_FILE, "session", "the session is %s: it has %llu bytes, and should have "
                                 "%llu", n < length ? "cut" : "damaged", (unsigned long long)n,
                                 (unsigned long long)length);
    }
    return H2OKV_OK;
}

/* Is it a session, and is it whole? */
static int check_whole(h2okv_llama *h, const unsigned char *bytes, size_t n)
{
    int status = h2okv__session_check_start(h, bytes, n);
    if (status != H2OKV_OK) {
        return status;
    }
    const unsigned char *at = bytes + n - SUM_BYTES;
    if (get(&at, 8) != h2okv_checksum(H2OKV_CHECKSUM_START, bytes, n - SUM_BYTES)) {
        return h2okv__llama_fail(h, H2OKV_E_FILE, "session", "the session is damaged: its checksum is another");
    }
    return H2OKV_OK;
}

static int check_model(h2okv_llama *h, const session *x)
{
    char description[DESCRIPTION_BYTES + 1];
    llama_model_desc(h->model, description, sizeof description);
    if (strcmp(x->description, description) != 0) {
        return h2okv__llama_fail(h, H2OKV_E_INVALID, "model", "the session is of the model %s, and this is %s: load "
                                 "that model", x->description, description);
    }
    if (x->model != h2okv__model_identity(h)) {
        return h2okv__llama_fail(h, H2OKV_E_INVALID, "model", "the session is of another model of the kind %s: its "
                                 "metadata, vocabulary or weights differ", description);
    }
    return H2OKV_OK;
}

static int check_rope(h2okv_llama *h, const session *x)
{
    static const char *const name[H2OKV__N_ROPE] = {
        "rope_scaling_type", "rope_freq_base", "rope_freq_scale", "yarn_ext_factor",
        "yarn_attn_factor",  "yarn_beta_fast", "yarn_beta_slow",  "yarn_orig_ctx",
    };
    for (uint32_t i = 0; i < H2OKV__N_ROPE; i++) {
        if (memcmp(&x->rope[i], &h->rope[i], sizeof h->rope[i]) != 0) {
            return h2okv__llama_fail(h, H2OKV_E_INVALID, name[i], "%s is %g in the session and %g here: make the "
                                     "context with that", name[i], x->rope[i], h->rope[i]);
        }
    }
    return H2OKV_OK;
}

static int check_layers(h2okv_llama *h, const session *x)
{
    static const char *const name[LAYER_COUNTS] = {"kv_heads", "k_dim", "v_dim", "type_k", "type_v"};
    const unsigned char *at = x->layers;
    for (uint32_t i = 0; i < h->n_layers; i++) {
        uint32_t count[LAYER_COUNTS];
        layer_counts(&h->layer[i], count);
        for (uint32_t c = 0; c < LAYER_COUNTS; c++) {
            uint32_t theirs = get32(&at);
            if (theirs != count[c]) {
                bool type = c >= 3;
                return h2okv__llama_fail(h, H2OKV_E_INVALID, name[c], "%s of layer %u is %u%s%s%s in the session and "
                                         "%u%s%s%s here", name[c], i, theirs, type ? " (" : "",
                                         type && theirs < GGML_TYPE_COUNT ? ggml_type_name((enum ggml_type)theirs) : "",
                                         type ? ")" : "", count[c], type ? " (" : "",
                                         type ? ggml_type_name((enum ggml_type)count[c]) : "", type ? ")" : "");
            }
        }
    }
    return H2OKV_OK;
}

static int parts_wrong(h2okv_llama *h)
{
    return h2okv__llama_fail(h, H2OKV_E_FILE, "session", "the session is damaged: its parts do not make up the whole");
}

/* Lanes and layers, the list of which comes first; only then lengths can be right. */
static int check_shape(h2okv_llama *h, session *x, const unsigned char *lists)
{
    if (x->lanes_mode != h->lanes_mode) {
        return h2okv__llama_fail(h, H2OKV_E_INVALID, "lanes", "lanes is %u in the session and %u here", x->lanes_mode,
                                 h->lanes_mode);
    }
    if (x->n_layers != h->n_layers || (uint64_t)LAYER_BYTES * x->n_layers > x->bytes - HEAD_BYTES - SUM_BYTES) {
        return parts_wrong(h);
    }
    x->layers = lists;
    int status = check_layers(h, x);
    if (status != H2OKV_OK) {
        return status;
    }
    if (x->note_bytes > x->bytes || x->books_bytes > x->bytes || session_bytes(h, x) != x->bytes) {
        return parts_wrong(h);
    }
    x->note = x->layers + (size_t)LAYER_BYTES * x->n_layers;
    x->books = x->note + x->note_bytes;
    x->rows = x->books + x->books_bytes;
    return H2OKV_OK;
}

/* The engine's positions are the newest before next_pos, in one piece: it could hold no others. */
static int check_books(h2okv_llama *h, const h2okv__sequence *s, const session *x, uint32_t *cell)
{
    h2okv_error error;
    h2okv_state_info info;
    int status = h2okv_cache_check_state(s->cache, x->books, (size_t)x->books_bytes, &info, cell, &error);
    if (status != H2OKV_OK) {
        bool damaged = strcmp(error.field, "state") == 0;
        return damaged ? h2okv__llama_fail(h, H2OKV_E_FILE, "session", "%s", error.text)
                       : h2okv__llama_fail(h, status, error.field, "%s", error.text);
    }
    bool in_one_piece = info.live == x->live && x->next_pos >= 0 &&
                        (info.live == 0 || (info.newest == x->next_pos - 1 &&
                                            info.oldest == x->next_pos - (int32_t)info.live));
    if (!in_one_piece) {
        return h2okv__llama_fail(h, H2OKV_E_FILE, "session", "the session is damaged: its positions are not those "
                                 "before its end");
    }
    if (info.budget > h->room || info.live > h->room) {
        return h2okv__llama_fail(h, H2OKV_E_INVALID, "room", "the session holds %u tokens with a budget of %u, and "
                                 "there is room for %u: give options.room more", info.live, info.budget, h->room);
    }
    return H2OKV_OK;
}

/* `cell` [cells] gets the cells of then. */
static int read_session(h2okv_llama *h, const h2okv__sequence *s, session *x, const unsigned char *bytes, size_t n,
                        uint32_t *cell)
{
    int status = check_whole(h, bytes, n);
    if (status != H2OKV_OK) {
        return status;
    }
    const unsigned char *lists = get_head(x, bytes);
    status = check_model(h, x);
    status = status != H2OKV_OK ? status : check_rope(h, x);
    status = status != H2OKV_OK ? status : check_shape(h, x, lists);
    return status != H2OKV_OK ? status : check_books(h, s, x, cell);
}

/* ---- In ---- */

static void put_all_rows(const h2okv_llama *h, const h2okv__sequence *s, const session *x, const uint32_t *cell)
{
    const char *rows = (const char *)x->rows;
    for (uint32_t i = 0; i < h->n_layers; i++) {
        const h2okv__layer *l = &h->layer[i];
        h2okv__put_rows(h, s, l->k, false, cell, x->live, rows);
        rows += x->live * h2okv__cell_row_bytes(l->k);
        h2okv__put_rows(h, s, l->v, l->v_transposed, cell, x->live, rows);
        rows += x->live * h2okv__cell_row_bytes(l->v);
    }
}

static int fill_sequence(h2okv_llama *h, h2okv__sequence *s, const session *x, uint32_t *cell)
{
    s->next_pos = x->next_pos - (int32_t)x->live;
    int status = h2okv__claim(h, s, x->live, cell);
    if (status != H2OKV_OK) {
        return status;
    }
    put_all_rows(h, s, x, cell);
    h2okv_error error;
    if (h2okv_cache_restore(s->cache, x->books, (size_t)x->books_bytes, cell, &error) != H2OKV_OK) {
        return h2okv__llama_fail(h, H2OKV_E_ENGINE, "cells", "llama.cpp's cells cannot be: %s", error.text);
    }
    return h2okv__check_engine(h, s);
}

/* What has been checked; a sequence that llama.cpp has not taken is empty. */
static int take_session(h2okv_llama *h, h2okv__sequence *s, const session *x, uint32_t *cell)
{
    h2okv__save_logits(h); /* other sequences' */
    s->has_logits = false;
    int status = fill_sequence(h, s, x, cell);
    if (status != H2OKV_OK && !h->broken) {
        h2okv__forget(h, s);
        h2okv_cache_clear(s->cache);
        s->next_pos = 0;
    }
    return status;
}

static h2okv__note note_of(const session *x)
{
    return (h2okv__note){.data = x->note, .bytes = (size_t)x->note_bytes};
}

/* Check, and with `into` restore it there. */
static int read_checked(h2okv_llama *h, const h2okv__sequence *s, h2okv__sequence *into, const unsigned char *bytes,
                        size_t n, h2okv__note *note)
{
    session x;
    uint32_t *cell = malloc(h->cells * sizeof *cell);
    if (cell == NULL) {
        return h2okv__llama_fail(h, H2OKV_E_NOMEM, "session", "out of memory");
    }
    int status = read_session(h, s, &x, bytes, n, cell);
    if (status == H2OKV_OK) {
        *note = note_of(&x);
        status = into != NULL ? take_session(h, into, &x, cell) : H2OKV_OK;
    }
    free(cell);
    return status;
}

int h2okv__session_read(h2okv_llama *h, h2okv__sequence *s, const unsigned char *bytes, size_t n, h2okv__note *note)
{
    return read_checked(h, s, s, bytes, n, note);
}

int h2okv__session_check(h2okv_llama *h, const h2okv__sequence *s, const unsigned char *bytes, size_t n,
                         h2okv__note *note)
{
    return read_checked(h, s, NULL, bytes, n, note);
}
