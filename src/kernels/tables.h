/* tables.h - the tables that files of this folder define; cpu.c alone knows which of them a build has. */
#ifndef H2OKV_KERNELS_TABLES_H
#define H2OKV_KERNELS_TABLES_H

#include "kernels/isa.h"

extern const h2okv__isa h2okv__isa_scalar;
extern const h2okv__isa h2okv__isa_avx2;
extern const h2okv__isa h2okv__isa_avx512;
extern const h2okv__isa h2okv__isa_amx;
extern const h2okv__isa h2okv__isa_neon;

#endif
