/*
 * dtype.h - how a row of K or V (one head of one token, n numbers) is held in memory.
 *
 *   f32    n x 4 bytes
 *   f16    n x 2 bytes   sign 1, exponent 5, fraction 10
 *   bf16   n x 2 bytes   the upper half of an f32
 *   q8_0   n/32 blocks:  | f16 d | int8 q[32] |   34 bytes a block, value = d * q; ggml's block_q8_0
 *
 * Conversions round to nearest, ties to even (q in q8_0: ties away from zero, as ggml does). f16 and bf16
 * keep infinities, signed zeros and subnormals; a NaN stays a NaN. A q8_0 block with a NaN or an infinity in
 * it becomes NaN throughout: such a fault should be seen, and int8 has no place for it.
 */
#ifndef H2OKV_BASE_DTYPE_H
#define H2OKV_BASE_DTYPE_H

#include <stddef.h>
#include <stdint.h>

enum { H2OKV__Q8_0_BLOCK = 32, H2OKV__Q8_0_BYTES = 34 };

uint16_t h2okv__f16_of_f32(float value);
float h2okv__f32_of_f16(uint16_t half);
uint16_t h2okv__bf16_of_f32(float value);
float h2okv__f32_of_bf16(uint16_t half);

/* Bytes of a row of n numbers; 0 when the type is unknown or cannot hold rows of that length. */
size_t h2okv__row_bytes(uint32_t type, uint32_t n);

/* float [n] to a row and back; rows need no alignment. The type and n are ones that row_bytes accepts. */
void h2okv__row_encode(uint32_t type, const float *in, void *row, uint32_t n);
void h2okv__row_decode(uint32_t type, const void *row, float *out, uint32_t n);

#endif
