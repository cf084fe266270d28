/* Conversions between f32 and bf16, which is the upper half of an f32. */
#pragma once

#include "base/avx2.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

/* Widens bf16 to f32, exactly. */
void lk__bf16_widen(const uint16_t *from, float *to, int64_t count);

/* Rounds to the nearest bf16, ties to even. Numbers beyond the largest bf16 become infinities; NaN becomes a quiet
 * NaN. */
void lk__bf16_round(const float *from, uint16_t *to, int64_t count);

/* The same on any processor. The two functions above use AVX2 or AVX-512 if the processor has it. */
void lk__bf16_widen_plain(const uint16_t *from, float *to, int64_t count);
void lk__bf16_round_plain(const float *from, uint16_t *to, int64_t count);

/* The bits of one element. They are moved by memcpy of single words, which compilers vectorize. */
LK_BODY float lk__bf16_wide(uint16_t element)
{
    uint32_t bits = (uint32_t)element << 16;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* Adds half of the last place that is kept, less one bit if that place is even; the carry rounds up. */
LK_BODY uint16_t lk__bf16_rounded(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    uint32_t high = bits >> 16, rounded = (bits + 0x7FFFu + (high & 1u)) >> 16;
    bool nan = (bits & 0x7FFFFFFFu) > 0x7F800000u;
    return (uint16_t)(nan ? high | 0x40u : rounded);
}

/* Read and write element `at` of an array of bf16 or else of f32, in loops that are compiled for both: `bf16` is a
 * constant in each. */
LK_BODY float lk__element(const void *from, int64_t at, bool bf16)
{
    return bf16 ? lk__bf16_wide(((const uint16_t *)from)[at]) : ((const float *)from)[at];
}

LK_BODY void lk__element_set(void *to, int64_t at, float value, bool bf16)
{
    if (bf16)
        ((uint16_t *)to)[at] = lk__bf16_rounded(value);
    else
        ((float *)to)[at] = value;
}
