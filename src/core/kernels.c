/*
 * kernels.c - the attention kernels' public face: which instruction sets there are, and one of them with the memory
 * that its calls share.
 *
 *   block: | h2okv_kernels (with the team) | scratch ... |
 */
#include "base/memory.h"
#include "h2okv/advanced.h"
#include "kernels/attention.h"

struct h2okv_kernels {
    h2okv__team team;
    const h2okv__isa *isa;
    void *scratch;
    size_t bytes;
    bool has_allocator;
    h2okv_allocator allocator;
};

const char *h2okv_isa_name(uint32_t index)
{
    const h2okv__isa *isa = h2okv__isa_at(index);
    return isa != NULL ? isa->name : NULL;
}

int h2okv_isa_usable(const char *name)
{
    const h2okv__isa *isa = h2okv__isa_find(name);
    return isa != NULL && h2okv__isa_usable(isa);
}

const char *h2okv_isa_best(void)
{
    return h2okv__isa_find(NULL)->name;
}

const char *h2okv_attention_unsupported(const h2okv_attention *attention)
{
    return h2okv__attention_unsupported(attention);
}

static int check(const h2okv__isa *isa, const char *name, const h2okv_attention *largest, uint32_t n_threads,
                 h2okv_error *error)
{
    if (isa == NULL) {
        return h2okv_error_set(error, H2OKV_E_INVALID, "isa", "isa is \"%s\": this build has none of that name",
                               name);
    }
    if (n_threads == 0) {
        return h2okv_error_set(error, H2OKV_E_INVALID, "n_threads", "n_threads is 0: there must be at least one");
    }
    if (!h2okv__isa_usable(isa)) {
        return h2okv_error_set(error, H2OKV_E_UNSUPPORTED, "isa",
                               "isa is \"%s\": this processor, or its operating system, cannot run it", isa->name);
    }
    const char *why = h2okv_attention_unsupported(largest);
    if (why != NULL) {
        return h2okv_error_set(error, H2OKV_E_UNSUPPORTED, "attention", "%s", why);
    }
    return H2OKV_OK;
}

int h2okv_kernels_create_batch(h2okv_kernels **out, const h2okv_attention *largest, uint32_t n_batch,
                               uint32_t n_threads, const char *isa_name, const h2okv_allocator *allocator,
                               h2okv_error *error)
{
    *out = NULL;
    const h2okv__isa *isa = h2okv__isa_find(isa_name);
    int status = check(isa, isa_name, largest, n_threads, error);
    if (status != H2OKV_OK) {
        return status;
    }
    h2okv__layout layout = {0, false};
    h2okv__place(&layout, 1, sizeof(h2okv_kernels));
    size_t scratch = h2okv__attention_scratch_bytes(isa, largest, n_batch, n_threads);
    size_t offset = h2okv__place(&layout, scratch, 1);
    h2okv_kernels *k = scratch == 0 || layout.overflow ? NULL : h2okv__alloc(allocator, layout.bytes);
    if (k == NULL) {
        return h2okv_error_set(error, H2OKV_E_NOMEM, "attention", "no memory for attention over %u cells",
                               largest->n_cells);
    }
    k->isa = isa;
    k->scratch = (char *)k + offset;
    k->bytes = layout.bytes;
    k->has_allocator = allocator != NULL;
    if (k->has_allocator) {
        k->allocator = *allocator;
    }
    *out = k;
    return H2OKV_OK;
}

int h2okv_kernels_create(h2okv_kernels **out, const h2okv_attention *largest, uint32_t n_threads, const char *isa_name,
                         const h2okv_allocator *allocator, h2okv_error *error)
{
    return h2okv_kernels_create_batch(out, largest, 1, n_threads, isa_name, allocator, error);
}

void h2okv_kernels_free(h2okv_kernels *k)
{
    if (k != NULL) {
        h2okv_allocator allocator = k->allocator; /* it lies in the block that goes */
        h2okv__release(k->has_allocator ? &allocator : NULL, k, k->bytes);
    }
}

const char *h2okv_kernels_isa(const h2okv_kernels *k)
{
    return k->isa->name;
}

void h2okv_kernels_attend(h2okv_kernels *k, const h2okv_attention *attention, uint32_t thread, uint32_t n_threads)
{
    h2okv__attend(k->isa, attention, &k->team, k->scratch, thread, n_threads);
}

void h2okv_kernels_attend_batch(h2okv_kernels *k, const h2okv_attention *attention, const h2okv_attention_batch *batch,
                                uint32_t thread, uint32_t n_threads)
{
    h2okv__attend_batch(k->isa, attention, batch, &k->team, k->scratch, thread, n_threads);
}
