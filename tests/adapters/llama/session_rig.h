/*
 * session_rig.h - for the tests of sessions: a folder of their own, files as bytes, and what a sequence holds as one
 * number.
 */
#ifndef H2OKV_TEST_LLAMA_SESSION_RIG_H
#define H2OKV_TEST_LLAMA_SESSION_RIG_H

#include "h2okv/advanced.h"
#include "h2okv/llama.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

typedef struct session_bytes {
    unsigned char *data;
    size_t n;
} session_bytes;

void session_open_folder(void);
void session_close_folder(void); /* and all in it */

/* A path in the folder, valid for the next few calls. */
const char *session_path(const char *name);
uint32_t session_count_files(void);

session_bytes session_load(const char *path);
void session_store(const char *path, const void *data, size_t n);
void session_sign(session_bytes *b); /* make the checksum right again */

/* Everything that a restore has to bring back, wherever llama.cpp put it: next position, and each lane's positions and
 * scores with the K and V that lie in their cells; the newest tokens' cells have their own. `scores` false: without. */
uint64_t session_digest(h2okv_llama *h, uint32_t seq, bool scores);

#endif
