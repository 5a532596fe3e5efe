/*
 * rows.c - K and V of cells as rows, whichever way the tensors have them.
 *
 *   rows   [n][kv_heads * dim], in the order of a list of cells
 */
#include "adapter.h"

#include <string.h>

size_t h2okv__cell_row_bytes(const struct ggml_tensor *tensor)
{
    return ggml_row_size(tensor->type, tensor->ne[0]);
}

/* One number of a row after the other; each one's cells are contiguous. `put`: into the tensor, else out of it. */
static void copy_transposed(const h2okv_llama *h, struct ggml_tensor *tensor, size_t at, const uint32_t *cell,
                            uint32_t n, char *rows, bool put)
{
    size_t element = ggml_type_size(tensor->type), row = h2okv__cell_row_bytes(tensor), line_bytes = element * h->cells;
    bool host = ggml_backend_buffer_is_host(tensor->buffer);
    for (size_t d = 0; d < (size_t)tensor->ne[0]; d++) {
        size_t line_at = at + d * line_bytes;
        char *line = host ? (char *)tensor->data + line_at : h->row_copy;
        if (!host) {
            ggml_backend_tensor_get(tensor, line, line_at, line_bytes);
        }
        for (uint32_t i = 0; i < n; i++) {
            char *there = line + cell[i] * element, *here = rows + i * row + d * element;
            memcpy(put ? there : here, put ? here : there, element);
        }
        if (!host && put) {
            ggml_backend_tensor_set(tensor, line, line_at, line_bytes);
        }
    }
}

void h2okv__get_rows(const h2okv_llama *h, const h2okv__sequence *s, struct ggml_tensor *tensor, bool transposed,
                     const uint32_t *cell, uint32_t n, char *rows)
{
    size_t at = s->id * tensor->nb[2], row = h2okv__cell_row_bytes(tensor);
    if (transposed) {
        copy_transposed(h, tensor, at, cell, n, rows, false);
        return;
    }
    for (uint32_t i = 0; i < n; i++) {
        ggml_backend_tensor_get(tensor, rows + i * row, at + cell[i] * tensor->nb[1], row);
    }
}

void h2okv__put_rows(const h2okv_llama *h, const h2okv__sequence *s, struct ggml_tensor *tensor, bool transposed,
                     const uint32_t *cell, uint32_t n, const char *rows)
{
    size_t at = s->id * tensor->nb[2], row = h2okv__cell_row_bytes(tensor);
    if (transposed) {
        copy_transposed(h, tensor, at, cell, n, (char *)(uintptr_t)rows, true);
        return;
    }
    for (uint32_t i = 0; i < n; i++) {
        ggml_backend_tensor_set(tensor, rows + i * row, at + cell[i] * tensor->nb[1], row);
    }
}
