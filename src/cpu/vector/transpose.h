/* Blocks of 8x8 floats, rows to columns, on AVX2. Bits are only copied, so that words of other types may pass too. */
#pragma once

#include "base/avx2.h"

#include <immintrin.h>
#include <stdint.h>

/* Four elements of one row and four of another. */
LK_BODY LK_AVX2 __m256 transpose_two_rows(const float *first, const float *second)
{
    return _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_loadu_ps(first)), _mm_loadu_ps(second), 1);
}

/* Turns the first four columns of eight rows, which lie `stride` floats apart, into four rows. */
LK_BODY LK_AVX2 void transpose_half(const float *from, int64_t stride, __m256 to[4])
{
    __m256 r0 = transpose_two_rows(from, from + 4 * stride), r1 = transpose_two_rows(from + stride, from + 5 * stride),
           r2 = transpose_two_rows(from + 2 * stride, from + 6 * stride),
           r3 = transpose_two_rows(from + 3 * stride, from + 7 * stride);
    __m256 low01 = _mm256_unpacklo_ps(r0, r1), high01 = _mm256_unpackhi_ps(r0, r1), low23 = _mm256_unpacklo_ps(r2, r3),
           high23 = _mm256_unpackhi_ps(r2, r3);
    to[0] = _mm256_shuffle_ps(low01, low23, _MM_SHUFFLE(1, 0, 1, 0));
    to[1] = _mm256_shuffle_ps(low01, low23, _MM_SHUFFLE(3, 2, 3, 2));
    to[2] = _mm256_shuffle_ps(high01, high23, _MM_SHUFFLE(1, 0, 1, 0));
    to[3] = _mm256_shuffle_ps(high01, high23, _MM_SHUFFLE(3, 2, 3, 2));
}
