/*
 * fork.c - a sequence becomes a copy of another: books, cells, K and V.
 *
 *   llama_memory_seq_cp    copies the cells' positions now, and notes that K and V are to be copied
 *   next llama_decode      copies them, before it computes anything
 *
 * Until then every move of ours would be undone, or copied, by that. So there is a llama_decode at once: of one token
 * whose graph the tap cancels after its first node, and whose cell is freed again.
 */
#include "adapter.h"

#include <string.h>

static int copy_now(h2okv_llama *h, h2okv__sequence *to)
{
    h->batch.n_tokens = 0;
    h2okv__add_to_batch(h, to, 0, to->next_pos, false);
    h->tap_mode = H2OKV__TAP_CANCEL;
    h->cancelled_cell = UINT32_MAX;
    int result = llama_decode(h->context, h->batch);
    llama_synchronize(h->context);
    h->tap_mode = H2OKV__TAP_OFF;
    llama_memory_seq_rm(llama_get_memory(h->context), (llama_seq_id)to->id, to->next_pos, -1);
    if (h->cancelled_cell != UINT32_MAX) {
        h2okv__wipe_cell(h, to, h->cancelled_cell - to->id * h->cells);
    }
    if (result < -1 || result > -1) {
        return h2okv__check_engine(h, to); /* no cell for the token, or broken off: K and V were copied before that */
    }
    h->broken = true;
    return h2okv__llama_fail(h, H2OKV_E_BROKEN, "to", "llama.cpp would not copy sequence %u", to->id);
}

static void copy_logits(h2okv_llama *h, const h2okv__sequence *from, h2okv__sequence *to)
{
    h2okv__save_logits(h);
    to->has_logits = from->has_logits;
    if (from->has_logits) {
        memcpy(to->logits, from->logits, h2okv__logits_bytes(h));
    }
}

int h2okv_llama_seq_copy(h2okv_llama *h, uint32_t from_seq, uint32_t to_seq)
{
    h2okv__sequence *from, *to;
    h2okv_error error;
    int status = h2okv__find_sequence(h, from_seq, &from);
    status = status != H2OKV_OK ? status : h2okv__find_sequence(h, to_seq, &to);
    status = status != H2OKV_OK ? status : h2okv__check_handle(h, from);
    status = status != H2OKV_OK ? status : h2okv__check_handle(h, to);
    if (status != H2OKV_OK || from == to) {
        return status;
    }
    if (h2okv_cache_copy(to->cache, from->cache, &error) != H2OKV_OK) {
        return h2okv__llama_fail(h, error.status, error.field, "%s", error.text);
    }
    to->next_pos = from->next_pos;
    to->engine_us = to->bookkeeping_us = 0;
    copy_logits(h, from, to);
    llama_memory_seq_cp(llama_get_memory(h->context), (llama_seq_id)from->id, (llama_seq_id)to->id, -1, -1);
    return copy_now(h, to);
}
