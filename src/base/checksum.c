/* checksum.c - FNV-1a with 64 bits (Fowler, Noll, Vo; draft-eastlake-fnv), over what is saved. */
#include "h2okv/advanced.h"

/* Each step is a bijection of the sum for a given byte, and differs for different bytes: so no change of a single byte
 * can go unnoticed, and of any other change one in 2^64 does. */
uint64_t h2okv_checksum(uint64_t sum, const void *data, size_t bytes)
{
    const unsigned char *at = data;
    for (size_t i = 0; i < bytes; i++) {
        sum = (sum ^ at[i]) * 0x100000001B3u;
    }
    return sum;
}
