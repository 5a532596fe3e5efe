/*
 * test_session_disk.c - session files and the file system: a disk that is full after any number of bytes, paths that
 * cannot be, links, rights. What fails leaves the file, or the sequence, as before, and nothing else behind.
 */
#define _XOPEN_SOURCE 700 /* setrlimit, mkfifo, lstat */
#include "session_rig.h"
#include "synth.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

enum { BUDGET = 8, RECENT = 3, UBATCH = 6, N = 100, NOTE = 4 };

static struct llama_model *model;
static llama_token text[N];

static int open_all(void **state)
{
    if (synth_open(state) != 0) {
        return -1;
    }
    synth_text(text, N, 51);
    model = synth_model(&(synth_shape){
        .layers = 1, .query_heads = 2, .kv_heads = 1, .k_dim = 32, .v_dim = 32, .seed = 9,
    });
    session_open_folder();
    return 0;
}

static int close_all(void **state)
{
    session_close_folder();
    llama_model_free(model);
    return synth_close(state);
}

static h2okv_llama *make(void)
{
    h2okv_options cache = synth_cache_options(BUDGET, RECENT);
    return synth_adapter(model, &cache, H2OKV_LANES_HEAD, UBATCH);
}

static void assert_file_is(const char *path, const session_bytes *expected)
{
    session_bytes now = session_load(path);
    assert_int_equal(now.n, expected->n);
    assert_memory_equal(now.data, expected->data, now.n);
    free(now.data);
}

/* The disk is full after any number of bytes: the old file stays, and nothing else is there. */
static void test_full_disk(void **state)
{
    (void)state;
    h2okv_llama *h = make();
    assert_int_equal(h2okv_llama_decode(h, text, 40), H2OKV_OK);
    assert_int_equal(h2okv_llama_seq_save(h, 0, session_path("good"), "note", NOTE), H2OKV_OK);
    session_bytes old = session_load(session_path("good"));
    assert_int_equal(h2okv_llama_decode(h, text, 10), H2OKV_OK);
    uint64_t before = session_digest(h, 0, true);
    uint32_t files = session_count_files();
    struct rlimit limit, none;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &none), 0);
    (void)signal(SIGXFSZ, SIG_IGN);
    for (size_t most = 0; most < old.n; most += most < 300 ? 13 : 101) {
        limit = none;
        limit.rlim_cur = most;
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
        int status = h2okv_llama_seq_save(h, 0, session_path("good"), "note", NOTE);
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &none), 0);
        synth_assert_failed(h, status, H2OKV_E_FILE, "path", strerror(EFBIG));
        assert_file_is(session_path("good"), &old);
        assert_int_equal(session_count_files(), files);
    }
    assert_true(session_digest(h, 0, true) == before);
    assert_int_equal(h2okv_llama_save(h, session_path("good")), H2OKV_OK);
    assert_int_equal(session_count_files(), files);
    free(old.data);
    h2okv_llama_free(h);
}

static void cannot_save(h2okv_llama *h, const char *path, int expected, const char *part)
{
    uint32_t files = session_count_files();
    synth_assert_failed(h, h2okv_llama_save(h, path), expected, "path", part);
    assert_int_equal(session_count_files(), files);
}

static void cannot_read(h2okv_llama *h, const char *path, int expected, const char *field, const char *part)
{
    uint64_t before = session_digest(h, 0, true);
    synth_assert_failed(h, h2okv_llama_restore(h, path), expected, field, part);
    assert_true(session_digest(h, 0, true) == before);
}

static void test_paths(void **state)
{
    (void)state;
    h2okv_llama *h = make();
    struct stat there;
    assert_int_equal(h2okv_llama_decode(h, text, 40), H2OKV_OK);
    assert_int_equal(mkfifo(session_path("fifo"), 0600), 0);
    assert_int_equal(mkdir(session_path("folder"), 0700), 0);
    session_store(session_path("file"), "", 0);
    cannot_save(h, session_path("none/a"), H2OKV_E_FILE, "cannot be saved: No such file or directory");
    cannot_save(h, session_path("file/a"), H2OKV_E_FILE, "cannot be saved: Not a directory");
    cannot_save(h, session_path("folder"), H2OKV_E_FILE, "taken by something that is no file");
    cannot_save(h, session_path("fifo"), H2OKV_E_FILE, "taken by something that is no file");
    cannot_save(h, "/dev/full", H2OKV_E_FILE, "taken by something that is no file");
    cannot_save(h, NULL, H2OKV_E_INVALID, "no path");
    cannot_save(h, "", H2OKV_E_INVALID, "no path");
    assert_true(stat("/dev/full", &there) == 0 && S_ISCHR(there.st_mode));
    cannot_read(h, session_path("none"), H2OKV_E_FILE, "path", "cannot be read: No such file or directory");
    cannot_read(h, session_path("folder"), H2OKV_E_FILE, "path", "the path is no file");
    cannot_read(h, session_path("fifo"), H2OKV_E_FILE, "path", "the path is no file");
    cannot_read(h, session_path("file"), H2OKV_E_FILE, "session", "this is no session");
    cannot_read(h, NULL, H2OKV_E_INVALID, "path", "no path");
    session_store(session_path("good"), "H2OKVSES\1\0\0\0\0\0\0\0\0\1\0\0", 20);
    assert_int_equal(truncate(session_path("good"), (off_t)1 << 40), 0); /* as long as it says, and all holes */
    assert_int_equal(truncate(session_path("good"), ((off_t)1 << 40) - 1), 0);
    cannot_read(h, session_path("good"), H2OKV_E_FILE, "session", "is cut"); /* without reading it all */
    synth_assert_failed(h, h2okv_llama_seq_save(h, 1, session_path("good"), NULL, 0), H2OKV_E_INVALID, "seq", "");
    synth_assert_failed(h, h2okv_llama_seq_restore(h, 1, session_path("good"), NULL, NULL), H2OKV_E_INVALID, "seq", "");
    h2okv_llama_free(h);
}

/* Through a link to what it leads to, which only the owner may read. */
static void test_links_and_rights(void **state)
{
    (void)state;
    h2okv_llama *h = make();
    struct stat there;
    assert_int_equal(h2okv_llama_decode(h, text, 40), H2OKV_OK);
    session_store(session_path("target"), "old", 3);
    assert_int_equal(symlink(session_path("target"), session_path("link")), 0);
    assert_int_equal(h2okv_llama_save(h, session_path("link")), H2OKV_OK);
    assert_true(lstat(session_path("link"), &there) == 0 && S_ISLNK(there.st_mode));
    assert_true(lstat(session_path("target"), &there) == 0 && S_ISREG(there.st_mode) && (there.st_mode & 0777) == 0600);
    assert_true(there.st_size > 1000);
    assert_int_equal(h2okv_llama_restore(h, session_path("link")), H2OKV_OK);
    h2okv_llama_free(h);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_full_disk),
        cmocka_unit_test(test_paths),
        cmocka_unit_test(test_links_and_rights),
    };
    return cmocka_run_group_tests(tests, open_all, close_all);
}
