/* AVX-512 implementation of vector.h: sixteen lanes, 32 registers. */
#pragma once

#include "base/avx2.h"

#include <immintrin.h>
#include <stdint.h>

#define LK_F32_SUFFIX avx512

#define LK_REGISTERS 32

enum { LK_WIDTH = 16 };

typedef __m512 vec;
typedef __m512i vec_int;
typedef __mmask16 vec_mask;
typedef uint16_t vec_bits;

#define LK_MM(name) _mm512_##name

#include "cpu/vector/vector_x86.h"

LK_BODY vec vec_broadcast(const float *from)
{
    return _mm512_set1_ps(*from);
}

LK_BODY vec vec_pinned(vec a)
{
    __asm__("" : "+v"(a));
    return a;
}

LK_BODY vec vec_join(const __m256 halves[2])
{
    return _mm512_insertf32x8(_mm512_castps256_ps512(halves[0]), halves[1], 1);
}

LK_BODY __m256 vec_part(vec a, int i)
{
    return i == 0 ? _mm512_castps512_ps256(a) : _mm512_extractf32x8_ps(a, 1);
}

LK_BODY vec_mask mask_greater(vec a, vec b)
{
    return _mm512_cmp_ps_mask(a, b, _CMP_GT_OQ);
}

LK_BODY vec_mask mask_unless_not_greater(vec a, vec b)
{
    return _mm512_cmp_ps_mask(a, b, _CMP_NLE_UQ);
}

LK_BODY vec_mask mask_ordered(vec a)
{
    return _mm512_cmp_ps_mask(a, a, _CMP_ORD_Q);
}

LK_BODY vec_mask mask_and(vec_mask a, vec_mask b)
{
    return (vec_mask)(a & b);
}

LK_BODY vec_bits mask_bits(vec_mask m)
{
    return (vec_bits)m;
}

LK_BODY vec_mask mask_of_bits(vec_bits bits)
{
    return (vec_mask)bits;
}

LK_BODY vec_mask mask_first(int64_t n)
{
    return (vec_mask)(n < LK_WIDTH ? (1 << n) - 1 : 0xffff);
}

LK_BODY vec_mask mask_bytes_equal(const uint8_t *bytes, int n)
{
    __m128i all = _mm_loadu_si128((const __m128i *)(const void *)bytes);
    return _mm_cmpeq_epi8_mask(all, _mm_set1_epi8((char)n));
}

LK_BODY vec vec_where(vec_mask m, vec a)
{
    return _mm512_maskz_mov_ps(m, a);
}

LK_BODY vec vec_select(vec_mask m, vec a, vec b)
{
    return _mm512_mask_mov_ps(b, m, a);
}

LK_BODY vec_int int_select(vec_mask m, vec_int a, vec_int b)
{
    return _mm512_mask_mov_epi32(b, m, a);
}

LK_BODY void int_store_bytes(vec_int a, uint8_t *to)
{
    _mm_storeu_si128((__m128i *)(void *)to, _mm512_cvtepi32_epi8(a));
}

LK_BODY void vec_store_first(float *to, int64_t n, vec a)
{
    _mm512_mask_storeu_ps(to, mask_first(n), a);
}

/* Take parts of 128 bits of a, and the same of b: 0 and 2, or 1 and 3. */
LK_BODY vec vec_even_parts(vec a, vec b)
{
    return _mm512_shuffle_f32x4(a, b, 0x88);
}

LK_BODY vec vec_odd_parts(vec a, vec b)
{
    return _mm512_shuffle_f32x4(a, b, 0xdd);
}

LK_BODY void vec_transpose(vec rows[LK_WIDTH])
{
    vec r[LK_WIDTH];
    LK_UNROLL
    for (int i = 0; i < LK_WIDTH; i += 4) { /* four rows, in each part for itself */
        vec low_ab = _mm512_unpacklo_ps(rows[i], rows[i + 1]), high_ab = _mm512_unpackhi_ps(rows[i], rows[i + 1]),
            low_cd = _mm512_unpacklo_ps(rows[i + 2], rows[i + 3]),
            high_cd = _mm512_unpackhi_ps(rows[i + 2], rows[i + 3]);
        r[i] = _mm512_shuffle_ps(low_ab, low_cd, 0x44);
        r[i + 1] = _mm512_shuffle_ps(low_ab, low_cd, 0xee);
        r[i + 2] = _mm512_shuffle_ps(high_ab, high_cd, 0x44);
        r[i + 3] = _mm512_shuffle_ps(high_ab, high_cd, 0xee);
    }
    LK_UNROLL
    for (int i = 0; i < 4; i++) { /* the parts */
        vec even = vec_even_parts(r[i], r[i + 4]), even_rest = vec_even_parts(r[i + 8], r[i + 12]),
            odd = vec_odd_parts(r[i], r[i + 4]), odd_rest = vec_odd_parts(r[i + 8], r[i + 12]);
        rows[i] = vec_even_parts(even, even_rest);
        rows[i + 4] = vec_even_parts(odd, odd_rest);
        rows[i + 8] = vec_odd_parts(even, even_rest);
        rows[i + 12] = vec_odd_parts(odd, odd_rest);
    }
}
