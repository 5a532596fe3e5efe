/*
 * cpu.c - the tables of this build, and which of them the processor and the operating system let us run. A processor
 * that lists an instruction set is not enough: the system must save its registers (XGETBV), and for AMX's tiles the
 * process must have asked Linux (arch_prctl), else the first tile instruction ends it with SIGILL.
 */
#include "kernels/tables.h"

#include <string.h>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

static const h2okv__isa *const tables[] = {
    &h2okv__isa_scalar,
#if defined(__x86_64__)
    &h2okv__isa_avx2,
    &h2okv__isa_avx512,
    &h2okv__isa_amx,
#elif defined(__aarch64__)
    &h2okv__isa_neon,
#endif
};

enum { N_TABLES = sizeof tables / sizeof tables[0] };

#if defined(__x86_64__)

enum { EAX, EBX, ECX, EDX };

static void cpuid(uint32_t leaf, uint32_t subleaf, uint32_t out[4])
{
    if (!__get_cpuid_count(leaf, subleaf, &out[EAX], &out[EBX], &out[ECX], &out[EDX])) {
        memset(out, 0, 4 * sizeof *out);
    }
}

static bool bit(uint32_t word, uint32_t index)
{
    return word >> index & 1u;
}

/* Whether the system saves these parts of the registers; bits of XCR0. */
static bool system_saves(uint32_t parts)
{
    uint32_t leaf1[4], low, high;
    cpuid(1, 0, leaf1);
    if (!bit(leaf1[ECX], 27)) { /* OSXSAVE */
        return false;
    }
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return (low & parts) == parts;
}

static bool has_avx2(void)
{
    uint32_t leaf1[4], leaf7[4];
    cpuid(1, 0, leaf1);
    cpuid(7, 0, leaf7);
    return bit(leaf1[ECX], 12) && bit(leaf1[ECX], 28) && bit(leaf1[ECX], 29) && /* FMA, AVX, F16C */
           bit(leaf7[EBX], 5) && system_saves(0x06);
}

static bool has_avx512(void)
{
    uint32_t leaf7[4];
    cpuid(7, 0, leaf7);
    return has_avx2() && bit(leaf7[EBX], 16) && bit(leaf7[EBX], 17) && bit(leaf7[EBX], 30) && bit(leaf7[EBX], 31) &&
           system_saves(0xe6); /* F, DQ, BW, VL */
}

static bool tiles_permitted(void)
{
#if defined(__linux__)
    enum { SYS_ARCH_PRCTL = 158, ARCH_REQ_XCOMP_PERM = 0x1023, XFEATURE_XTILEDATA = 18 };
    long result = SYS_ARCH_PRCTL;
    __asm__ volatile("syscall"
                     : "+a"(result)
                     : "D"((long)ARCH_REQ_XCOMP_PERM), "S"((long)XFEATURE_XTILEDATA)
                     : "rcx", "r11", "memory");
    return result == 0;
#else
    return false;
#endif
}

static bool has_amx(void)
{
    uint32_t leaf7[4], leaf7_1[4];
    cpuid(7, 0, leaf7);
    cpuid(7, 1, leaf7_1);
    return has_avx512() && bit(leaf7[EDX], 22) && bit(leaf7[EDX], 24) && bit(leaf7_1[EAX], 5) && /* AMX-BF16, -TILE */
           system_saves(0x600e6) && tiles_permitted();                                  /* AVX512-BF16 */
}

bool h2okv__isa_usable(const h2okv__isa *isa)
{
    return isa == &h2okv__isa_scalar || (isa == &h2okv__isa_avx2 && has_avx2()) ||
           (isa == &h2okv__isa_avx512 && has_avx512()) || (isa == &h2okv__isa_amx && has_amx());
}

#else

bool h2okv__isa_usable(const h2okv__isa *isa)
{
    return isa != NULL; /* NEON is part of every AArch64 */
}

#endif

const h2okv__isa *h2okv__isa_at(uint32_t index)
{
    return index < N_TABLES ? tables[index] : NULL;
}

static const h2okv__isa *best(void)
{
    const h2okv__isa *found = tables[0];
    for (uint32_t i = 1; i < N_TABLES; i++) {
        found = h2okv__isa_usable(tables[i]) ? tables[i] : found;
    }
    return found;
}

const h2okv__isa *h2okv__isa_find(const char *name)
{
    if (name == NULL || strcmp(name, "auto") == 0) {
        return best();
    }
    for (uint32_t i = 0; i < N_TABLES; i++) {
        if (strcmp(tables[i]->name, name) == 0) {
            return tables[i];
        }
    }
    return NULL;
}
