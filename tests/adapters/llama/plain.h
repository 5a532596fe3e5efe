/*
 * plain.h - plain llama.cpp beside the adapter: one batch of one sequence.
 */
#ifndef H2OKV_TEST_LLAMA_PLAIN_H
#define H2OKV_TEST_LLAMA_PLAIN_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <llama.h>

/* Decodes n tokens from position pos0 on; the last one's logits can be read. */
static inline void plain_decode(struct llama_context *context, const llama_token *token, int32_t pos0, uint32_t n)
{
    struct llama_batch batch = llama_batch_init((int32_t)n, 0, 1);
    batch.n_tokens = (int32_t)n;
    for (uint32_t i = 0; i < n; i++) {
        batch.token[i] = token[i];
        batch.pos[i] = pos0 + (int32_t)i;
        batch.n_seq_id[i] = 1;
        batch.seq_id[i][0] = 0;
        batch.logits[i] = i + 1 == n;
    }
    assert_int_equal(llama_decode(context, batch), 0);
    llama_batch_free(batch);
}

#endif
