#include "base/bf16.h"

#include "base/avx2.h"

#include <string.h>

/* Bits are moved by memcpy of single words, which compilers vectorize. */

LK_BODY void bf16_widen_body(const uint16_t *restrict from, float *restrict to, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        uint32_t bits = (uint32_t)from[i] << 16;
        memcpy(&to[i], &bits, sizeof bits);
    }
}

/* Adds half of the last place that is kept, less one bit if that place is even; the carry rounds up. */
LK_BODY uint16_t bf16_round_bits(uint32_t bits)
{
    uint32_t high = bits >> 16, rounded = (bits + 0x7FFFu + (high & 1u)) >> 16;
    bool nan = (bits & 0x7FFFFFFFu) > 0x7F800000u;
    return (uint16_t)(nan ? high | 0x40u : rounded);
}

LK_BODY void bf16_round_body(const float *restrict from, uint16_t *restrict to, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        uint32_t bits;
        memcpy(&bits, &from[i], sizeof bits);
        to[i] = bf16_round_bits(bits);
    }
}

void lk__bf16_widen_plain(const uint16_t *from, float *to, int64_t count)
{
    bf16_widen_body(from, to, count);
}

void lk__bf16_round_plain(const float *from, uint16_t *to, int64_t count)
{
    bf16_round_body(from, to, count);
}

LK_AVX2 static void bf16_widen_avx2(const uint16_t *from, float *to, int64_t count)
{
    bf16_widen_body(from, to, count);
}

LK_AVX2 static void bf16_round_avx2(const float *from, uint16_t *to, int64_t count)
{
    bf16_round_body(from, to, count);
}

void lk__bf16_widen(const uint16_t *from, float *to, int64_t count)
{
    (lk__has_avx2() ? bf16_widen_avx2 : lk__bf16_widen_plain)(from, to, count);
}

void lk__bf16_round(const float *from, uint16_t *to, int64_t count)
{
    (lk__has_avx2() ? bf16_round_avx2 : lk__bf16_round_plain)(from, to, count);
}
