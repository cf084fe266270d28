/* AVX2 implementation of vector.h: eight lanes, 16 registers. */
#pragma once

#include "cpu/vector/transpose.h"

#include <string.h>

#define LK_F32_SUFFIX avx2

#define LK_REGISTERS 16

enum { LK_WIDTH = 8 };

typedef __m256 vec;
typedef __m256i vec_int;
typedef __m256 vec_mask;
typedef uint8_t vec_bits;

#define LK_MM(name) _mm256_##name

#include "cpu/vector/vector_x86.h"

LK_BODY vec vec_broadcast(const float *from)
{
    return _mm256_broadcast_ss(from);
}

LK_BODY vec vec_pinned(vec a)
{
    __asm__("" : "+x"(a));
    return a;
}

LK_BODY vec vec_join(const __m256 *all)
{
    return all[0];
}

LK_BODY __m256 vec_part(vec a, int i)
{
    (void)i;
    return a;
}

LK_BODY vec_mask mask_greater(vec a, vec b)
{
    return _mm256_cmp_ps(a, b, _CMP_GT_OQ);
}

LK_BODY vec_mask mask_unless_not_greater(vec a, vec b)
{
    return _mm256_cmp_ps(a, b, _CMP_NLE_UQ);
}

LK_BODY vec_mask mask_ordered(vec a)
{
    return _mm256_cmp_ps(a, a, _CMP_ORD_Q);
}

LK_BODY vec_mask mask_and(vec_mask a, vec_mask b)
{
    return _mm256_and_ps(a, b);
}

LK_BODY vec_bits mask_bits(vec_mask m)
{
    return (vec_bits)_mm256_movemask_ps(m);
}

LK_BODY vec_mask mask_of_bits(vec_bits bits)
{
    __m256i lane = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
    return _mm256_castsi256_ps(_mm256_cmpeq_epi32(_mm256_and_si256(_mm256_set1_epi8((char)bits), lane), lane));
}

LK_BODY vec_mask mask_first(int64_t n)
{
    __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    return _mm256_castsi256_ps(_mm256_cmpgt_epi32(_mm256_set1_epi32(n < LK_WIDTH ? (int)n : LK_WIDTH), lane));
}

LK_BODY vec_mask mask_bytes_equal(const uint8_t *bytes, int n)
{
    __m256i all = _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)bytes));
    return _mm256_castsi256_ps(_mm256_cmpeq_epi32(all, _mm256_set1_epi32(n)));
}

LK_BODY vec vec_where(vec_mask m, vec a)
{
    return _mm256_and_ps(a, m);
}

LK_BODY vec vec_select(vec_mask m, vec a, vec b)
{
    return _mm256_blendv_ps(b, a, m);
}

LK_BODY vec_int int_select(vec_mask m, vec_int a, vec_int b)
{
    return _mm256_blendv_epi8(b, a, _mm256_castps_si256(m));
}

LK_BODY void int_store_bytes(vec_int a, uint8_t *to)
{
    __m128i words = _mm_packus_epi32(_mm256_castsi256_si128(a), _mm256_extracti128_si256(a, 1));
    _mm_storel_epi64((__m128i *)(void *)to, _mm_packus_epi16(words, words));
}

/* A masked store takes longer on some processors. */
LK_BODY void vec_store_first(float *to, int64_t n, vec a)
{
    __m128 four = _mm256_castps256_ps128(a);
    if (n >= 8) {
        _mm256_storeu_ps(to, a);
        return;
    }
    if (n >= 4) {
        _mm_storeu_ps(to, four);
        four = _mm256_extractf128_ps(a, 1);
    }
    if (n % 4 >= 2) {
        double two = _mm_cvtsd_f64(_mm_castps_pd(four));
        memcpy(to + n / 4 * 4, &two, sizeof two);
        four = _mm_movehl_ps(four, four);
    }
    if (n % 2 == 1) {
        float one = _mm_cvtss_f32(four);
        memcpy(to + n - 1, &one, sizeof one);
    }
}

LK_BODY void vec_transpose(vec rows[LK_WIDTH])
{
    float buffer[LK_WIDTH * LK_WIDTH];
    LK_UNROLL
    for (int i = 0; i < LK_WIDTH; i++)
        vec_storeu(buffer + i * LK_WIDTH, rows[i]);
    transpose_half(buffer, LK_WIDTH, rows);
    transpose_half(buffer + LK_WIDTH / 2, LK_WIDTH, rows + LK_WIDTH / 2);
}
