/*
 * test_dtype.c - f16 and bf16 are checked over all of their values and all midpoints between them, against
 * what the formats mean in double arithmetic; q8_0 against bytes worked out by hand and its error bound.
 */
#include "support/check.h"

#include <math.h>
#include <string.h>

#include "h2okv/h2okv.h"
#include "base/dtype.h"
#include "support/rng.h"

/* What a 16-bit float means: sign, `exponent_bits` exponent, the rest fraction. Not for infinity and NaN. */
static double meaning(uint32_t half, int exponent_bits)
{
    int fraction_bits = 15 - exponent_bits;
    int bias = (1 << (exponent_bits - 1)) - 1;
    int exponent = (int)(half & 0x7fffu) >> fraction_bits;
    double fraction = (double)(half & ((1u << fraction_bits) - 1)) / (double)(1u << fraction_bits);
    double size = exponent == 0 ? ldexp(fraction, 1 - bias) : ldexp(1.0 + fraction, exponent - bias);
    return half & 0x8000u ? -size : size;
}

typedef struct format {
    const char *name;
    int exponent_bits;
    uint32_t infinity;
    uint16_t (*encode)(float);
    float (*decode)(uint16_t);
} format;

static const format f16 = {"f16", 5, 0x7c00u, h2okv__f16_of_f32, h2okv__f32_of_f16};
static const format bf16 = {"bf16", 8, 0x7f80u, h2okv__bf16_of_f32, h2okv__f32_of_bf16};

/* Every value there and back; the bits too, so that -0 is not 0. */
static void check_all_values(const format *f)
{
    for (uint32_t half = 0; half < 0x10000u; half++) {
        uint32_t size = half & 0x7fffu;
        float value = f->decode((uint16_t)half);
        check_context("%s %04x", f->name, half);
        if (size > f->infinity) {
            CHECK(isnan(value) && (f->encode(value) & 0x7fffu) > f->infinity);
            continue;
        }
        CHECK(size == f->infinity ? isinf(value) : (double)value == meaning(half, f->exponent_bits));
        CHECK(!signbit(value) == !(half & 0x8000u));
        CHECK(f->encode(value) == half);
    }
}

/* Halfway between neighbours the even one wins; a step off halfway, the nearer one. 2^16 (f16) and 2^128
 * (bf16) stand for infinity here, as IEEE 754 rounds. */
static void check_all_midpoints(const format *f)
{
    for (uint32_t low = 0; low < f->infinity; low++) {
        double above = meaning(low + 1, f->exponent_bits);
        float middle = (float)((meaning(low, f->exponent_bits) + above) / 2.0);
        uint32_t even = low & 1u ? low + 1 : low;
        check_context("%s %04x", f->name, low);
        CHECK(f->encode(middle) == even && f->encode(-middle) == (even | 0x8000u));
        CHECK(f->encode(nextafterf(middle, 0.0f)) == low);
        CHECK(f->encode(nextafterf(middle, INFINITY)) == low + 1);
    }
}

static void f16_holds_every_value(void **state)
{
    (void)state;
    check_all_values(&f16);
}

static void bf16_holds_every_value(void **state)
{
    (void)state;
    check_all_values(&bf16);
}

static void f16_rounds_to_nearest_even(void **state)
{
    (void)state;
    check_all_midpoints(&f16);
}

static void bf16_rounds_to_nearest_even(void **state)
{
    (void)state;
    check_all_midpoints(&bf16);
}

static float float_of_bits(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* Values that are written down elsewhere too, and the ends of the ranges. */
static void known_halves(void **state)
{
    (void)state;
    CHECK(h2okv__f16_of_f32(1.0f) == 0x3c00 && h2okv__f16_of_f32(-2.0f) == 0xc000);
    CHECK(h2okv__f16_of_f32(0.1f) == 0x2e66 && h2okv__f16_of_f32(65504.0f) == 0x7bff);
    CHECK(h2okv__f16_of_f32(0x1p-24f) == 0x0001 && h2okv__f16_of_f32(0x1p-25f) == 0x0000);
    CHECK(h2okv__f16_of_f32(65520.0f) == 0x7c00 && h2okv__f16_of_f32(3e38f) == 0x7c00);
    CHECK(h2okv__f16_of_f32(-1e-45f) == 0x8000 && h2okv__f16_of_f32(-INFINITY) == 0xfc00);
    CHECK(h2okv__bf16_of_f32(1.0f) == 0x3f80 && h2okv__bf16_of_f32(-0.0f) == 0x8000);
    CHECK(h2okv__bf16_of_f32(3.4028235e38f) == 0x7f80 && h2okv__bf16_of_f32(INFINITY) == 0x7f80);
}

/* A NaN whose payload lies only in the bits that are cut off would become infinity. */
static void nan_with_low_payload_stays_nan(void **state)
{
    (void)state;
    for (uint32_t payload = 1; payload < 0x800000u; payload <<= 1) {
        for (uint32_t sign = 0; sign < 2; sign++) {
            float nan = float_of_bits(sign << 31 | 0x7f800000u | payload);
            check_context("payload %x", payload);
            CHECK((h2okv__f16_of_f32(nan) & 0x7fffu) > 0x7c00u);
            CHECK((h2okv__bf16_of_f32(nan) & 0x7fffu) > 0x7f80u);
            CHECK(isnan(h2okv__f32_of_bf16(h2okv__bf16_of_f32(nan))));
        }
    }
}

/* ---- q8_0 --------------------------------------------------------------------------------------------- */

enum { BLOCK = 32 };

static void q8_0_bytes_by_hand(void **state)
{
    (void)state;
    float in[BLOCK] = {127.0f, 63.5f, -63.5f, -127.0f, 0.49f, -0.51f, 1.0f, 2.5f}, out[BLOCK];
    const int8_t levels[BLOCK] = {127, 64, -64, -127, 0, -1, 1, 3}; /* ties away from zero */
    uint16_t scale;
    unsigned char block[34];
    h2okv__row_encode(H2OKV_TYPE_Q8_0, in, block, BLOCK);
    memcpy(&scale, block, sizeof scale);
    CHECK(scale == 0x3c00); /* 127 / 127 = 1 */
    CHECK(memcmp(block + 2, levels, BLOCK) == 0);
    h2okv__row_decode(H2OKV_TYPE_Q8_0, block, out, BLOCK);
    for (int i = 0; i < BLOCK; i++) {
        CHECK((double)out[i] == (double)levels[i]);
    }
}

/* A level is off by half a step; the f16 scale by 2^-11 of itself, or by 2^-25 when it is subnormal. */
static void q8_0_error_is_bounded(void **state)
{
    (void)state;
    rng r = {7};
    float in[BLOCK], out[BLOCK];
    unsigned char block[34];
    for (int round = 0; round < 2000; round++) {
        double most = 0.0, spread = ldexp(1.0, (int)rng_below(&r, 24) - 8);
        for (int i = 0; i < BLOCK; i++) {
            in[i] = (float)((2.0 * rng_float(&r) - 1.0) * spread);
            most = fmax(most, fabs((double)in[i]));
        }
        h2okv__row_encode(H2OKV_TYPE_Q8_0, in, block, BLOCK);
        h2okv__row_decode(H2OKV_TYPE_Q8_0, block, out, BLOCK);
        for (int i = 0; i < BLOCK; i++) {
            check_context("%g in a block of at most %g became %g", (double)in[i], most, (double)out[i]);
            double of_scale = fmax(most * 0x1p-11, 127.0 * 0x1p-25);
            CHECK(fabs((double)in[i] - (double)out[i]) <= most / 254.0 * 1.0001 + of_scale);
        }
    }
}

static void encode_decode_two_blocks(const float *in, float *out)
{
    unsigned char row[68];
    h2okv__row_encode(H2OKV_TYPE_Q8_0, in, row, 2 * BLOCK);
    h2okv__row_decode(H2OKV_TYPE_Q8_0, row, out, 2 * BLOCK);
}

/* NaN and infinity show in their own block and nowhere else; zeros and what f16 cannot scale become 0. */
static void q8_0_extremes(void **state)
{
    (void)state;
    const float odd[] = {NAN, INFINITY, -INFINITY};
    float in[2 * BLOCK], out[2 * BLOCK];
    for (size_t i = 0; i < sizeof odd / sizeof odd[0]; i++) {
        for (int j = 0; j < 2 * BLOCK; j++) {
            in[j] = j < BLOCK ? 1.0f : 127.0f;
        }
        in[5] = odd[i];
        encode_decode_two_blocks(in, out);
        for (int j = 0; j < BLOCK; j++) {
            CHECK(isnan(out[j]) && out[BLOCK + j] == 127.0f);
        }
    }
    const float tiny[] = {0.0f, 1e-45f, 1e-40f, 1e-38f, -1e-30f};
    for (size_t i = 0; i < sizeof tiny / sizeof tiny[0]; i++) {
        for (int j = 0; j < 2 * BLOCK; j++) {
            in[j] = tiny[i];
        }
        encode_decode_two_blocks(in, out);
        for (int j = 0; j < 2 * BLOCK; j++) {
            CHECK(fabsf(out[j]) == 0.0f);
        }
    }
}

/* ---- Rows --------------------------------------------------------------------------------------------- */

static void row_sizes(void **state)
{
    (void)state;
    const struct {
        uint32_t type, n;
        size_t bytes;
    } rows[] = {
        {H2OKV_TYPE_F32, 5, 20},   {H2OKV_TYPE_F16, 5, 10},    {H2OKV_TYPE_BF16, 64, 128},
        {H2OKV_TYPE_Q8_0, 32, 34}, {H2OKV_TYPE_Q8_0, 96, 102}, {H2OKV_TYPE_Q8_0, 48, 0},
        {4, 32, 0},                {UINT32_MAX, 32, 0},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        check_context("type %u, n %u", rows[i].type, rows[i].n);
        CHECK(h2okv__row_bytes(rows[i].type, rows[i].n) == rows[i].bytes);
    }
}

/* A row is written within its bytes, at any address, and is the numbers' own conversion one by one. */
static void rows_at_odd_addresses(void **state)
{
    (void)state;
    enum { N = 64 };
    float in[N], out[N];
    unsigned char memory[N * 4 + 2];
    rng r = {3};
    for (int i = 0; i < N; i++) {
        in[i] = 8.0f * rng_float(&r) - 4.0f;
    }
    for (uint32_t type = H2OKV_TYPE_F32; type <= H2OKV_TYPE_Q8_0; type++) {
        size_t bytes = h2okv__row_bytes(type, N);
        memset(memory, 0xee, sizeof memory);
        h2okv__row_encode(type, in, memory + 1, N);
        CHECK(memory[0] == 0xee && memory[1 + bytes] == 0xee);
        h2okv__row_decode(type, memory + 1, out, N);
        for (int i = 0; i < N; i++) {
            float exact = type == H2OKV_TYPE_F16    ? h2okv__f32_of_f16(h2okv__f16_of_f32(in[i]))
                          : type == H2OKV_TYPE_BF16 ? h2okv__f32_of_bf16(h2okv__bf16_of_f32(in[i]))
                                                    : in[i];
            check_context("type %u, number %d", type, i);
            CHECK(type == H2OKV_TYPE_Q8_0 ? fabsf(out[i] - exact) < 0.05f : out[i] == exact);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(f16_holds_every_value),
        cmocka_unit_test(bf16_holds_every_value),
        cmocka_unit_test(f16_rounds_to_nearest_even),
        cmocka_unit_test(bf16_rounds_to_nearest_even),
        cmocka_unit_test(known_halves),
        cmocka_unit_test(nan_with_low_payload_stays_nan),
        cmocka_unit_test(q8_0_bytes_by_hand),
        cmocka_unit_test(q8_0_error_is_bounded),
        cmocka_unit_test(q8_0_extremes),
        cmocka_unit_test(row_sizes),
        cmocka_unit_test(rows_at_odd_addresses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
