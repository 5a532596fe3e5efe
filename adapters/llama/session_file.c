/*
 * session_file.c - sessions in files: there whole or not at all.
 *
 *   save      PATH.XXXXXX, in the same folder -> written, on the disk, renamed: PATH      a failure leaves nothing
 *   restore   PATH -> memory, all of it -> checked -> restored
 */
#define _XOPEN_SOURCE 700 /* mkstemp, fsync, realpath */
#include "session.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int file_failure(h2okv_llama *h, const char *what, int number)
{
    return h2okv__llama_fail(h, H2OKV_E_FILE, "path", "the session cannot be %s: %s", what, strerror(number));
}

static int check_call(h2okv_llama *h, uint32_t seq, const char *path, h2okv__sequence **s)
{
    int status = h2okv__find_sequence(h, seq, s);
    status = status != H2OKV_OK ? status : h2okv__check_handle(h, *s);
    if (status == H2OKV_OK && (path == NULL || path[0] == '\0')) {
        return h2okv__llama_fail(h, H2OKV_E_INVALID, "path", "there is no path");
    }
    if (status == H2OKV_OK && h->window > 0) {
        return h2okv__llama_fail(h, H2OKV_E_UNSUPPORTED, "model",
                                 "sessions of a model with sliding windows cannot be saved yet");
    }
    return status;
}

/* ---- Save ---- */

typedef struct saving {
    char *path, *temporary;
    int fd;
    int failure; /* errno of the first write that failed */
} saving;

static bool write_all(void *user, const void *data, size_t bytes)
{
    saving *f = user;
    const char *at = data;
    while (bytes > 0) {
        ssize_t n = write(f->fd, at, bytes);
        if (n < 0 && errno != EINTR) {
            f->failure = errno;
            return false;
        }
        at += n > 0 ? n : 0;
        bytes -= n > 0 ? (size_t)n : 0;
    }
    return true;
}

/* Where the file goes: through a link, and only over a file. */
static int find_place(h2okv_llama *h, saving *f, const char *path)
{
    struct stat there;
    bool exists = stat(path, &there) == 0;
    if (exists && !S_ISREG(there.st_mode)) {
        return h2okv__llama_fail(h, H2OKV_E_FILE, "path", "the session cannot be saved: the path is taken by something "
                                 "that is no file");
    }
    f->path = exists ? realpath(path, NULL) : strdup(path);
    size_t length = f->path != NULL ? strlen(f->path) : 0;
    f->temporary = f->path != NULL ? malloc(length + sizeof ".XXXXXX") : NULL;
    if (f->temporary == NULL) {
        return h2okv__llama_fail(h, H2OKV_E_NOMEM, "path", "out of memory");
    }
    memcpy(f->temporary, f->path, length);
    memcpy(f->temporary + length, ".XXXXXX", sizeof ".XXXXXX");
    f->fd = mkstemp(f->temporary);
    return f->fd >= 0 ? H2OKV_OK : file_failure(h, "saved", errno);
}

/* The name is on the disk when the folder is. A file system that cannot do this has done what it can. */
static void sync_folder(const char *path)
{
    char folder[4096];
    const char *slash = strrchr(path, '/');
    size_t length = slash != NULL ? (size_t)(slash - path) + 1 : 0;
    if (length >= sizeof folder) {
        return;
    }
    memcpy(folder, path, length);
    memcpy(folder + length, ".", 2);
    int fd = open(folder, O_RDONLY);
    if (fd >= 0) {
        (void)fsync(fd);
        (void)close(fd);
    }
}

static int keep(h2okv_llama *h, saving *f)
{
    bool kept = fsync(f->fd) == 0;
    kept = close(f->fd) == 0 && kept;
    f->fd = -1;
    kept = kept && rename(f->temporary, f->path) == 0;
    if (!kept) {
        int failure = errno;
        (void)unlink(f->temporary);
        return file_failure(h, "saved", failure);
    }
    sync_folder(f->path);
    return H2OKV_OK;
}

static void drop(saving *f)
{
    if (f->fd >= 0) {
        (void)close(f->fd);
        (void)unlink(f->temporary);
    }
}

int h2okv_llama_seq_save(h2okv_llama *h, uint32_t seq, const char *path, const void *note, size_t note_bytes)
{
    h2okv__sequence *s;
    int status = check_call(h, seq, path, &s);
    if (status != H2OKV_OK) {
        return status;
    }
    saving f = {.fd = -1};
    h2okv__sink sink = {.write = write_all, .user = &f};
    status = find_place(h, &f, path);
    if (status == H2OKV_OK) {
        status = h2okv__session_write(h, s, (h2okv__note){note, note_bytes}, &sink);
        if (status == H2OKV_E_FILE) {
            (void)file_failure(h, "saved", f.failure);
        }
    }
    status = status == H2OKV_OK ? keep(h, &f) : status;
    drop(&f);
    free(f.temporary);
    free(f.path);
    return status;
}

int h2okv_llama_save(h2okv_llama *h, const char *path)
{
    return h2okv_llama_seq_save(h, 0, path, NULL, 0);
}

/* ---- Restore ---- */

/* Up to n bytes; fewer when the file ends before. */
static int read_some(h2okv_llama *h, int fd, unsigned char *bytes, size_t n, size_t *done)
{
    for (*done = 0; *done < n;) {
        ssize_t some = read(fd, bytes + *done, n - *done);
        if (some < 0 && errno != EINTR) {
            return file_failure(h, "read", errno);
        }
        if (some == 0) {
            break;
        }
        *done += some > 0 ? (size_t)some : 0;
    }
    return H2OKV_OK;
}

/* All of the file, once its start says that it is a session of that length; *bytes is the caller's to free. */
static int read_all(h2okv_llama *h, int fd, unsigned char **bytes, size_t *n)
{
    unsigned char start[H2OKV__SESSION_START] = {0};
    struct stat file;
    if (fstat(fd, &file) != 0) {
        return file_failure(h, "read", errno);
    }
    if (!S_ISREG(file.st_mode)) {
        return h2okv__llama_fail(h, H2OKV_E_FILE, "path", "the session cannot be read: the path is no file");
    }
    int status = read_some(h, fd, start, sizeof start, n);
    status = status != H2OKV_OK ? status : h2okv__session_check_start(h, start, (uint64_t)file.st_size);
    if (status != H2OKV_OK) {
        return status;
    }
    *bytes = malloc((size_t)file.st_size);
    if (*bytes == NULL) {
        return h2okv__llama_fail(h, H2OKV_E_NOMEM, "session", "no memory for a session of %lld bytes",
                                 (long long)file.st_size);
    }
    memcpy(*bytes, start, sizeof start);
    status = read_some(h, fd, *bytes + sizeof start, (size_t)file.st_size - sizeof start, n);
    *n += sizeof start; /* fewer than there were: the checks will see it */
    return status;
}

/* The note goes to the front of the block that it lies in, which is then the caller's. */
static void *keep_note(unsigned char *bytes, h2okv__note found)
{
    memmove(bytes, found.data, found.bytes);
    void *smaller = realloc(bytes, found.bytes + 1);
    return smaller != NULL ? smaller : bytes;
}

/* The whole file, the caller's to free; and the sequence that it is for. */
static int read_file(h2okv_llama *h, uint32_t seq, const char *path, h2okv__sequence **s, unsigned char **bytes,
                     size_t *n)
{
    *bytes = NULL;
    *n = 0;
    int status = check_call(h, seq, path, s);
    if (status != H2OKV_OK) {
        return status;
    }
    int fd = open(path, O_RDONLY | O_NONBLOCK);
    if (fd < 0) {
        return file_failure(h, "read", errno);
    }
    status = read_all(h, fd, bytes, n);
    (void)close(fd);
    return status;
}

/* The note is the caller's when it was asked for and all went well. */
static int give_note(int status, unsigned char *bytes, h2okv__note found, void **note, size_t *note_bytes)
{
    if (status != H2OKV_OK || note == NULL) {
        free(bytes);
        return status;
    }
    *note = keep_note(bytes, found);
    *note_bytes = found.bytes;
    return H2OKV_OK;
}

static int read_session(h2okv_llama *h, uint32_t seq, const char *path, bool restore, void **note, size_t *note_bytes)
{
    h2okv__sequence *s;
    unsigned char *bytes;
    size_t n;
    h2okv__note found = {NULL, 0};
    int status = read_file(h, seq, path, &s, &bytes, &n);
    if (status == H2OKV_OK) {
        status = restore ? h2okv__session_read(h, s, bytes, n, &found) : h2okv__session_check(h, s, bytes, n, &found);
    }
    return give_note(status, bytes, found, note, note_bytes);
}

int h2okv_llama_seq_restore(h2okv_llama *h, uint32_t seq, const char *path, void **note, size_t *note_bytes)
{
    return read_session(h, seq, path, true, note, note_bytes);
}

int h2okv_llama_seq_read_note(h2okv_llama *h, uint32_t seq, const char *path, void **note, size_t *note_bytes)
{
    return read_session(h, seq, path, false, note, note_bytes);
}

int h2okv_llama_restore(h2okv_llama *h, const char *path)
{
    return h2okv_llama_seq_restore(h, 0, path, NULL, NULL);
}
