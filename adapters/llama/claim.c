/*
 * claim.c - cells of llama.cpp for tokens whose K and V are known already.
 *
 *   llama_decode of n tokens -> it chooses cells -> the tap reads which, and ends the computation right there
 *
 * Which tokens these are makes no difference: nothing of what is computed is kept. So the cell map is observed, as in a
 * pass, and no format of llama.cpp's own has to be known.
 *
 * Wanted are the cells of then: llama.cpp's sums over cells have their order, so in observe mode a restored sequence
 * only goes on with the same bits from the same cells. llama.cpp fills the lowest free cell first. Where a lower one
 * has to stay free for a later token, or for none, a token at an older position blocks it until its time has come:
 *
 *   wanted, by position      cell 3  4  1        blocked at first: 0 1 2, which older tokens held in their day as well,
 *                                                so that there are positions enough before the oldest
 *   then                     claim 3 4; free 1, claim it; free 0 2
 *
 * Should llama.cpp not choose these, or the context have fewer cells, any cells will do.
 */
#include "adapter.h"

#include <stdlib.h>
#include <string.h>

/* The next n cells, at most ubatch, from next_pos on, into fresh_cell. */
static int claim_some(h2okv_llama *h, h2okv__sequence *s, uint32_t n)
{
    h2okv__pass pass = {.sequence = s, .n = n};
    h->pass = &pass;
    h->n_pass = 1;
    h->pass_tokens = n;
    h->pass_admitted = false;
    h->pass_status = H2OKV_OK;
    h->batch.n_tokens = 0;
    for (uint32_t i = 0; i < n; i++) {
        h2okv__add_to_batch(h, s, 0, s->next_pos + (int32_t)i, false);
    }
    h->tap_mode = H2OKV__TAP_CLAIM;
    int result = llama_decode(h->context, h->batch);
    llama_synchronize(h->context);
    h->tap_mode = H2OKV__TAP_OFF;
    h->pass = NULL;
    h->n_pass = 0;
    if (h->pass_status != H2OKV_OK) {
        return h->pass_status;
    }
    if (result != 0 || !h->pass_admitted) {
        return h2okv__llama_fail(h, H2OKV_E_ENGINE, "cells", "llama.cpp would not take %u tokens at position %d (%d)",
                                 n, s->next_pos, result);
    }
    return H2OKV_OK;
}

static int claim(h2okv_llama *h, h2okv__sequence *s, uint32_t n, uint32_t *cell)
{
    int status = H2OKV_OK;
    for (uint32_t done = 0, some; done < n && status == H2OKV_OK; done += some) {
        some = n - done < h->ubatch ? n - done : h->ubatch;
        status = claim_some(h, s, some);
        if (status == H2OKV_OK) {
            memcpy(cell + done, s->fresh_cell, some * sizeof *cell);
            s->next_pos += (int32_t)some;
        }
    }
    return status;
}

/* ---- The cells that are wanted ---- */

/* Cells 0..top-1 are blocked at first, cell c by position first - top + c; later those that wait for a token, or stay
 * empty. A layout that cannot be (a cell twice) is noticed when llama.cpp chooses another cell. */
typedef struct layout {
    const uint32_t *wanted; /* [n] by position, from `first` on */
    uint32_t n, top;
    int32_t first;
    uint8_t *blocked;  /* [cells] */
    uint32_t *claimed; /* [cells] */
} layout;

/* A cell has to be blocked when a token comes before its own and lies higher. */
static bool plan_blocks(const h2okv_llama *h, layout *x)
{
    uint32_t reach = 0; /* all cells of the tokens so far are below it */
    for (uint32_t k = 0; k < x->n; k++) {
        uint32_t cell = x->wanted[k];
        if (cell >= h->cells) {
            return false;
        }
        x->blocked[cell] = cell < reach ? 2 : 1;
        reach = cell >= reach ? cell + 1 : reach;
    }
    for (uint32_t cell = 0; cell < reach; cell++) {
        x->blocked[cell] = x->blocked[cell] != 1;
        x->top = x->blocked[cell] != 0 ? cell + 1 : x->top;
    }
    return x->top <= (uint32_t)x->first;
}

static void unblock(h2okv_llama *h, const h2okv__sequence *s, layout *x, uint32_t cell)
{
    int32_t pos = x->first - (int32_t)(x->top - cell);
    llama_memory_seq_rm(llama_get_memory(h->context), (llama_seq_id)s->id, pos, pos + 1);
    x->blocked[cell] = 0;
}

/* Tokens whose cells rise can be claimed together. */
static uint32_t run_from(const layout *x, uint32_t k)
{
    uint32_t end = k + 1;
    while (end < x->n && x->wanted[end] > x->wanted[end - 1]) {
        end++;
    }
    return end - k;
}

static int claim_blocks(h2okv_llama *h, h2okv__sequence *s, layout *x)
{
    s->next_pos = x->first - (int32_t)x->top;
    int status = claim(h, s, x->top, x->claimed);
    for (uint32_t cell = 0; cell < x->top && status == H2OKV_OK; cell++) {
        if (x->claimed[cell] != cell) {
            return H2OKV_E_UNSUPPORTED;
        }
        if (x->blocked[cell] == 0) {
            unblock(h, s, x, cell);
        }
    }
    return status;
}

static int claim_layout(h2okv_llama *h, h2okv__sequence *s, layout *x)
{
    int status = claim_blocks(h, s, x);
    for (uint32_t k = 0, n; k < x->n && status == H2OKV_OK; k += n) {
        n = run_from(x, k);
        for (uint32_t i = k; i < k + n; i++) {
            if (x->blocked[x->wanted[i]] != 0) {
                unblock(h, s, x, x->wanted[i]);
            }
        }
        status = claim(h, s, n, x->claimed);
        if (status == H2OKV_OK && memcmp(x->claimed, x->wanted + k, n * sizeof *x->claimed) != 0) {
            return H2OKV_E_UNSUPPORTED;
        }
    }
    for (uint32_t cell = 0; cell < x->top && status == H2OKV_OK; cell++) {
        if (x->blocked[cell] != 0) {
            unblock(h, s, x, cell);
            h2okv__wipe_cell(h, s, cell); /* what was computed for it may be a NaN */
        }
    }
    return status;
}

/* E_UNSUPPORTED: it cannot be done here. */
static int claim_wanted(h2okv_llama *h, h2okv__sequence *s, uint32_t n, const uint32_t *wanted)
{
    layout x = {.wanted = wanted, .n = n, .first = s->next_pos};
    x.blocked = calloc(h->cells, sizeof *x.blocked);
    x.claimed = calloc(h->cells, sizeof *x.claimed);
    int status = H2OKV_E_UNSUPPORTED;
    if (x.blocked != NULL && x.claimed != NULL && plan_blocks(h, &x)) {
        status = claim_layout(h, s, &x);
    }
    free(x.blocked);
    free(x.claimed);
    return status;
}

int h2okv__claim(h2okv_llama *h, h2okv__sequence *s, uint32_t n, uint32_t *cell)
{
    int32_t first = s->next_pos;
    h2okv__forget(h, s);
    int status = claim_wanted(h, s, n, cell);
    if (status == H2OKV_E_UNSUPPORTED) {
        h2okv__forget(h, s);
        s->next_pos = first;
        status = claim(h, s, n, cell);
    }
    return status;
}
