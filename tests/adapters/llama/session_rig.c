/* session_rig.c - see session_rig.h. */
#define _XOPEN_SOURCE 700 /* mkdtemp */
#include "session_rig.h"

#include "adapter.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MOST_KEPT = 2048, MOST_DIM = 256, PATHS = 8 };

static char folder[64];

void session_open_folder(void)
{
    strcpy(folder, "/tmp/h2okv-session-XXXXXX");
    assert_non_null(mkdtemp(folder));
}

uint32_t session_count_files(void)
{
    uint32_t n = 0;
    DIR *d = opendir(folder);
    assert_non_null(d);
    for (struct dirent *e; (e = readdir(d)) != NULL;) {
        n += e->d_name[0] != '.';
    }
    closedir(d);
    return n;
}

void session_close_folder(void)
{
    DIR *d = opendir(folder);
    assert_non_null(d);
    for (struct dirent *e; (e = readdir(d)) != NULL;) {
        char path[400];
        snprintf(path, sizeof path, "%s/%s", folder, e->d_name);
        if (e->d_name[0] != '.' && unlink(path) != 0) {
            (void)rmdir(path);
        }
    }
    closedir(d);
    assert_int_equal(rmdir(folder), 0);
}

const char *session_path(const char *name)
{
    static char path[PATHS][256];
    static unsigned next;
    char *p = path[next++ % PATHS];
    snprintf(p, sizeof path[0], "%s/%s", folder, name);
    return p;
}

session_bytes session_load(const char *path)
{
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    assert_int_equal(fseek(file, 0, SEEK_END), 0);
    session_bytes b = {.n = (size_t)ftell(file)};
    b.data = malloc(b.n + 1);
    assert_non_null(b.data);
    rewind(file);
    assert_int_equal(fread(b.data, 1, b.n, file), b.n);
    fclose(file);
    return b;
}

void session_store(const char *path, const void *data, size_t n)
{
    (void)remove(path); /* some file systems write a file that was emptied to the disk at once */
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(data, 1, n, file), n);
    assert_int_equal(fclose(file), 0);
}

void session_sign(session_bytes *b)
{
    uint64_t sum = h2okv_checksum(H2OKV_CHECKSUM_START, b->data, b->n - 8);
    for (unsigned i = 0; i < 8; i++) {
        b->data[b->n - 8 + i] = (unsigned char)(sum >> (8 * i));
    }
}

static uint64_t digest_kv(const h2okv_llama *h, uint32_t seq, uint32_t layer, uint32_t head, uint32_t cell, uint64_t sum)
{
    unsigned char k[4 * MOST_DIM], v[4 * MOST_DIM];
    const h2okv__layer *l = &h->layer[layer];
    h2okv__read_kv(h, seq, layer, head, cell, k, v);
    sum = h2okv_checksum(sum, k, ggml_row_size(l->k->type, l->k_dim));
    return h2okv_checksum(sum, v, ggml_row_size(l->v->type, l->v_dim));
}

uint64_t session_digest(h2okv_llama *h, uint32_t seq, bool scores)
{
    static int32_t pos[MOST_KEPT];
    static double score[MOST_KEPT];
    static uint32_t cell[MOST_KEPT];
    int32_t next = h2okv_llama_seq_next_pos(h, seq);
    uint64_t sum = h2okv_checksum(H2OKV_CHECKSUM_START, &next, sizeof next);
    for (uint32_t layer = 0; layer < h->n_layers; layer++) {
        for (uint32_t head = 0; head < h->layer[layer].kv_heads; head++) {
            uint32_t lane = h2okv_llama_lane(h, layer, head);
            uint32_t n = h2okv_cache_kept(h2okv_llama_seq_cache(h, seq), lane, pos, score, cell);
            sum = h2okv_checksum(sum, pos, n * sizeof *pos);
            sum = scores ? h2okv_checksum(sum, score, n * sizeof *score) : sum;
            for (uint32_t i = 0; i < n; i++) {
                sum = digest_kv(h, seq, layer, head, cell[i], sum);
            }
        }
    }
    return sum;
}
