/*
 * session.h - a sequence as bytes: what is in them, and how they are written and read. See session.c.
 */
#ifndef H2OKV_ADAPTER_SESSION_H
#define H2OKV_ADAPTER_SESSION_H

#include "adapter.h"

/* Bytes of the caller's own that go with a session. */
typedef struct h2okv__note {
    const void *data;
    size_t bytes;
} h2okv__note;

/* Where bytes go. `write` says false when it cannot; its errors are its own. */
typedef struct h2okv__sink {
    bool (*write)(void *user, const void *data, size_t bytes);
    void *user;
    uint64_t sum; /* of all bytes so far */
} h2okv__sink;

/* Write the sequence, with a note of the caller's. E_FILE: the sink would not take it. Nothing changes. */
int h2okv__session_write(h2okv_llama *h, const h2okv__sequence *s, h2okv__note note, h2okv__sink *sink);

/* Of a session of n bytes the first H2OKV__SESSION_START, or all when it has fewer: could it be one? E_FILE
 * otherwise. */
enum { H2OKV__SESSION_START = 20 };
int h2okv__session_check_start(h2okv_llama *h, const unsigned char *start, uint64_t n);

/* Check all of these bytes, then make the sequence what they say. On an error from the checks (E_FILE, E_INVALID,
 * E_NOMEM) nothing has changed; on E_ENGINE the sequence is empty. *note lies in the bytes. */
int h2okv__session_read(h2okv_llama *h, h2okv__sequence *s, const unsigned char *bytes, size_t n_bytes,
                        h2okv__note *note);

/* The same checks, and the note, but the sequence stays. */
int h2okv__session_check(h2okv_llama *h, const h2okv__sequence *s, const unsigned char *bytes, size_t n_bytes,
                         h2okv__note *note);

#endif
