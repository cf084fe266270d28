/* Conversions between f32 and bf16, which is the upper half of an f32. */
#pragma once

#include <stdint.h>

/* Widens bf16 to f32, exactly. */
void lk__bf16_widen(const uint16_t *from, float *to, int64_t count);

/* Rounds to the nearest bf16, ties to even. Numbers beyond the largest bf16 become infinities; NaN becomes a quiet
 * NaN. */
void lk__bf16_round(const float *from, uint16_t *to, int64_t count);

/* The same on any processor. The two functions above use AVX2 if the processor has it. */
void lk__bf16_widen_plain(const uint16_t *from, float *to, int64_t count);
void lk__bf16_round_plain(const float *from, uint16_t *to, int64_t count);
