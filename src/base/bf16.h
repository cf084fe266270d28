/* bf16: the upper half of an f32. */
#ifndef LK_BASE_BF16_H
#define LK_BASE_BF16_H

#include <stdint.h>

/* Exact. */
void lk__bf16_widen(const uint16_t *from, float *to, int64_t count);

/* To nearest, ties to even; what is beyond the largest number becomes an infinity, NaN stays NaN, and quiet. */
void lk__bf16_round(const float *from, uint16_t *to, int64_t count);

/* The same for any processor; the two above take AVX2 where there is. */
void lk__bf16_widen_plain(const uint16_t *from, float *to, int64_t count);
void lk__bf16_round_plain(const float *from, uint16_t *to, int64_t count);

#endif
