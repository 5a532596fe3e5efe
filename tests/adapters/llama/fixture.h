/*
 * fixture.h - the real model and a real text, for the adapter's tests; and plain llama.cpp beside it, to compare.
 */
#ifndef H2OKV_TEST_LLAMA_FIXTURE_H
#define H2OKV_TEST_LLAMA_FIXTURE_H

#include "h2okv/advanced.h"
#include "h2okv/llama.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

enum { FIXTURE_TOKENS = 2048 };

extern struct llama_model *fixture_model;
extern llama_token fixture_token[FIXTURE_TOKENS]; /* prose: the GPL's text */
extern int fixture_n_vocab;
extern uint32_t fixture_attention; /* of the adapters that fixture_adapter makes; observe, which can equal plain
                                      llama.cpp bit for bit */

/* cmocka group set-up and tear-down: load the model and tokenize the text once. */
int fixture_open(void **state);
int fixture_close(void **state);

/* Context parameters that make two runs comparable: fixed threads. */
struct llama_context_params fixture_params(void);

/* An adapter with these cache options; fails the test when it cannot be made. */
h2okv_llama *fixture_adapter(const h2okv_options *cache, uint32_t lanes, uint32_t ubatch);

/* Plain llama.cpp without flash attention, with as many cells and the same ubatch. */
struct llama_context *fixture_plain(uint32_t cells, uint32_t ubatch);

/* Cache options with a policy, a budget and `recent`. */
h2okv_options fixture_options(const char *policy, uint32_t budget, uint32_t recent);

void fixture_assert_same_logits(struct llama_context *a, struct llama_context *b, const char *where, int32_t at);

#endif
