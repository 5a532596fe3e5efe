/* isa.c - the instruction sets of the attention kernels, as advanced.h shows them. */
#include "h2okv/advanced.h"
#include "kernels/isa.h"

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
