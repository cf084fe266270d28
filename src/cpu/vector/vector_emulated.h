/* Implementation of vector.h with sixteen lanes made of two AVX2 vectors. It serves tests only: the processor has half
 * the registers that such code counts on, so it is slow. */
#pragma once

#include "base/avx2.h"

#include <immintrin.h>
#include <stdint.h>
#include <string.h>

#define LK_F32_SUFFIX emulated

#define LK_REGISTERS 32

enum { LK_WIDTH = 16 };

typedef struct vec {
    __m256 half[2];
} vec;

typedef struct vec_int {
    __m256i half[2];
} vec_int;

/* A lane that is true has all bits set. */
typedef vec vec_mask;

typedef uint16_t vec_bits;

LK_BODY vec vec_zero(void)
{
    return (vec){{_mm256_setzero_ps(), _mm256_setzero_ps()}};
}

LK_BODY vec vec_set(float a)
{
    return (vec){{_mm256_set1_ps(a), _mm256_set1_ps(a)}};
}

LK_BODY vec vec_broadcast(const float *from)
{
    return (vec){{_mm256_broadcast_ss(from), _mm256_broadcast_ss(from)}};
}

LK_BODY vec vec_load(const float *from)
{
    return (vec){{_mm256_load_ps(from), _mm256_load_ps(from + 8)}};
}

LK_BODY vec vec_loadu(const float *from)
{
    return (vec){{_mm256_loadu_ps(from), _mm256_loadu_ps(from + 8)}};
}

LK_BODY void vec_store(float *to, vec a)
{
    _mm256_store_ps(to, a.half[0]);
    _mm256_store_ps(to + 8, a.half[1]);
}

LK_BODY void vec_storeu(float *to, vec a)
{
    _mm256_storeu_ps(to, a.half[0]);
    _mm256_storeu_ps(to + 8, a.half[1]);
}

LK_BODY vec vec_add(vec a, vec b)
{
    return (vec){{_mm256_add_ps(a.half[0], b.half[0]), _mm256_add_ps(a.half[1], b.half[1])}};
}

LK_BODY vec vec_sub(vec a, vec b)
{
    return (vec){{_mm256_sub_ps(a.half[0], b.half[0]), _mm256_sub_ps(a.half[1], b.half[1])}};
}

LK_BODY vec vec_mul(vec a, vec b)
{
    return (vec){{_mm256_mul_ps(a.half[0], b.half[0]), _mm256_mul_ps(a.half[1], b.half[1])}};
}

LK_BODY vec vec_div(vec a, vec b)
{
    return (vec){{_mm256_div_ps(a.half[0], b.half[0]), _mm256_div_ps(a.half[1], b.half[1])}};
}

LK_BODY vec vec_fmadd(vec a, vec b, vec c)
{
    return (vec){{_mm256_fmadd_ps(a.half[0], b.half[0], c.half[0]), _mm256_fmadd_ps(a.half[1], b.half[1], c.half[1])}};
}

LK_BODY vec vec_fmsub(vec a, vec b, vec c)
{
    return (vec){{_mm256_fmsub_ps(a.half[0], b.half[0], c.half[0]), _mm256_fmsub_ps(a.half[1], b.half[1], c.half[1])}};
}

LK_BODY vec vec_fnmadd(vec a, vec b, vec c)
{
    return (vec){
        {_mm256_fnmadd_ps(a.half[0], b.half[0], c.half[0]), _mm256_fnmadd_ps(a.half[1], b.half[1], c.half[1])}};
}

LK_BODY vec vec_pinned(vec a)
{
    return a;
}

LK_BODY vec vec_join(const __m256 halves[2])
{
    return (vec){{halves[0], halves[1]}};
}

LK_BODY __m256 vec_part(vec a, int i)
{
    return a.half[i];
}

LK_BODY vec_mask mask_greater(vec a, vec b)
{
    return (vec){{_mm256_cmp_ps(a.half[0], b.half[0], _CMP_GT_OQ), _mm256_cmp_ps(a.half[1], b.half[1], _CMP_GT_OQ)}};
}

LK_BODY vec_mask mask_unless_not_greater(vec a, vec b)
{
    return (vec){{_mm256_cmp_ps(a.half[0], b.half[0], _CMP_NLE_UQ), _mm256_cmp_ps(a.half[1], b.half[1], _CMP_NLE_UQ)}};
}

LK_BODY vec_mask mask_ordered(vec a)
{
    return (vec){{_mm256_cmp_ps(a.half[0], a.half[0], _CMP_ORD_Q), _mm256_cmp_ps(a.half[1], a.half[1], _CMP_ORD_Q)}};
}

LK_BODY vec_mask mask_and(vec_mask a, vec_mask b)
{
    return (vec){{_mm256_and_ps(a.half[0], b.half[0]), _mm256_and_ps(a.half[1], b.half[1])}};
}

LK_BODY vec_bits mask_bits(vec_mask m)
{
    return (vec_bits)(_mm256_movemask_ps(m.half[0]) | _mm256_movemask_ps(m.half[1]) << 8);
}

LK_BODY __m256 mask_of_byte(int bits)
{
    __m256i lane = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
    return _mm256_castsi256_ps(_mm256_cmpeq_epi32(_mm256_and_si256(_mm256_set1_epi32(bits), lane), lane));
}

LK_BODY vec_mask mask_of_bits(vec_bits bits)
{
    return (vec_mask){{mask_of_byte(bits), mask_of_byte(bits >> 8)}};
}

LK_BODY vec_mask mask_first(int64_t n)
{
    return mask_of_bits((vec_bits)(n < LK_WIDTH ? (1 << n) - 1 : 0xffff));
}

LK_BODY __m256 mask_of_eight_bytes(const uint8_t *bytes, int n)
{
    __m256i all = _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)bytes));
    return _mm256_castsi256_ps(_mm256_cmpeq_epi32(all, _mm256_set1_epi32(n)));
}

LK_BODY vec_mask mask_bytes_equal(const uint8_t *bytes, int n)
{
    return (vec_mask){{mask_of_eight_bytes(bytes, n), mask_of_eight_bytes(bytes + 8, n)}};
}

LK_BODY vec vec_where(vec_mask m, vec a)
{
    return (vec){{_mm256_and_ps(a.half[0], m.half[0]), _mm256_and_ps(a.half[1], m.half[1])}};
}

LK_BODY vec vec_select(vec_mask m, vec a, vec b)
{
    return (vec){
        {_mm256_blendv_ps(b.half[0], a.half[0], m.half[0]), _mm256_blendv_ps(b.half[1], a.half[1], m.half[1])}};
}

LK_BODY vec_int int_set(int n)
{
    return (vec_int){{_mm256_set1_epi32(n), _mm256_set1_epi32(n)}};
}

LK_BODY vec_int int_select(vec_mask m, vec_int a, vec_int b)
{
    return (vec_int){{_mm256_blendv_epi8(b.half[0], a.half[0], _mm256_castps_si256(m.half[0])),
                      _mm256_blendv_epi8(b.half[1], a.half[1], _mm256_castps_si256(m.half[1]))}};
}

LK_BODY void store_eight_bytes(__m256i a, uint8_t *to)
{
    __m128i words = _mm_packus_epi32(_mm256_castsi256_si128(a), _mm256_extracti128_si256(a, 1));
    _mm_storel_epi64((__m128i *)(void *)to, _mm_packus_epi16(words, words));
}

LK_BODY void int_store_bytes(vec_int a, uint8_t *to)
{
    store_eight_bytes(a.half[0], to);
    store_eight_bytes(a.half[1], to + 8);
}

LK_BODY void vec_store_first(float *to, int64_t n, vec a)
{
    memcpy(to, &a, (size_t)(n < LK_WIDTH ? n : LK_WIDTH) * sizeof *to);
}

LK_BODY void vec_transpose(vec rows[LK_WIDTH])
{
    float from[LK_WIDTH][LK_WIDTH], to[LK_WIDTH][LK_WIDTH];
    memcpy(from, rows, sizeof from);
    for (int i = 0; i < LK_WIDTH; i++)
        for (int j = 0; j < LK_WIDTH; j++)
            to[j][i] = from[i][j];
    memcpy(rows, to, sizeof to);
}
