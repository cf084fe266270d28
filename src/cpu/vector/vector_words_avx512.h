/* Elements and words of vector.h that are bf16 and pairs of them, on AVX512_BF16. */
#pragma once

#include "cpu/vector/vector_words_eight.h"

#include <string.h>

#define LK_BF16_SUFFIX avx512bf16
#if defined(LK_VECTOR_TILES)
#define LK_ISA_SUFFIX amxbf16
#else
#define LK_ISA_SUFFIX LK_BF16_SUFFIX
#endif

enum { LK_PER_WORD = 2 };

typedef __m512i vec_word;

/* Puts the elements of a vector into the lower halves of words. */
LK_BODY __m512i word_of_lower(__m256i elements)
{
    return _mm512_cvtepu16_epi32(elements);
}

LK_BODY vec_word word_of_halves(__m256i lower, __m256i upper)
{
    return _mm512_or_si512(word_of_lower(lower), _mm512_slli_epi32(word_of_lower(upper), 16));
}

/* Clears the lower halves of words. */
LK_BODY vec_word word_upper(vec_word a)
{
    return _mm512_and_si512(a, _mm512_set1_epi32((int)0xffff0000));
}

LK_BODY __m256i elements_load(const element *from)
{
    return _mm256_loadu_si256((const __m256i *)(const void *)from);
}

LK_BODY __m256i elements_round(vec a)
{
    return (__m256i)_mm512_cvtneps_pbh(a);
}

LK_BODY vec vec_widen(const element *from)
{
    return _mm512_castsi512_ps(_mm512_slli_epi32(word_of_lower(elements_load(from)), 16));
}

LK_BODY void vec_round(element *to, vec a)
{
    _mm256_storeu_si256((__m256i *)(void *)to, elements_round(a));
}

LK_BODY vec_word word_load(const element *from)
{
    return _mm512_load_si512(from);
}

LK_BODY vec_word word_loadu(const element *from)
{
    return _mm512_loadu_si512(from);
}

LK_BODY vec_word word_gather(const element *from, int step)
{
    const __m512i lanes = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    return _mm512_i32gather_epi32(_mm512_mullo_epi32(lanes, _mm512_set1_epi32(step)), from, sizeof *from);
}

LK_BODY void word_store(element *to, vec_word a)
{
    _mm512_store_si512(to, a);
}

LK_BODY void word_storeu(element *to, vec_word a)
{
    _mm512_storeu_si512(to, a);
}

LK_BODY vec_word word_broadcast(const element *from)
{
    int32_t word;
    memcpy(&word, from, sizeof word);
    return _mm512_set1_epi32(word);
}

LK_BODY vec_word word_broadcast_first(const element *from)
{
    return _mm512_set1_epi32(*from);
}

LK_BODY vec word_fmadd(vec_word a, vec_word b, vec c)
{
    return _mm512_dpbf16_ps(c, (__m512bh)a, (__m512bh)b);
}

LK_BODY vec_word word_join(const element *const from[LK_PER_WORD])
{
    return word_of_halves(elements_load(from[0]), elements_load(from[1]));
}

LK_BODY vec_word word_round(const vec a[LK_PER_WORD])
{
    return word_of_halves(elements_round(a[0]), elements_round(a[1]));
}

LK_BODY vec_word word_zero(void)
{
    return _mm512_setzero_si512();
}

LK_BODY vec_word word_pinned(vec_word a)
{
    __asm__("" : "+v"(a));
    return a;
}

LK_BODY vec word_part(vec_word a, int i)
{
    return _mm512_castsi512_ps(i == 0 ? _mm512_slli_epi32(a, 16) : word_upper(a));
}

LK_BODY vec_word word_where(const vec_mask masks[LK_PER_WORD], vec_word a)
{
    vec_word lower = _mm512_maskz_and_epi32(masks[0], a, _mm512_set1_epi32(0xffff));
    return _mm512_mask_or_epi32(lower, masks[1], lower, word_upper(a));
}

LK_BODY vec_word word_firsts(vec_word a, vec_word b)
{
    return _mm512_mask_blend_epi16(0xaaaaaaaa, a, _mm512_slli_epi32(b, 16));
}

LK_BODY vec_word word_seconds(vec_word a, vec_word b)
{
    return _mm512_mask_blend_epi16(0xaaaaaaaa, _mm512_srli_epi32(a, 16), b);
}

LK_BODY void word_store_first(element *to, int64_t n, vec_word a)
{
    _mm512_mask_storeu_epi32(to, mask_first(n), a);
}

LK_BODY vec word_bits(vec_word a)
{
    return _mm512_castsi512_ps(a);
}

LK_BODY void word_transpose(vec_word rows[LK_WIDTH])
{
    vec bits[LK_WIDTH];
    LK_UNROLL
    for (int i = 0; i < LK_WIDTH; i++)
        bits[i] = word_bits(rows[i]);
    vec_transpose(bits);
    LK_UNROLL
    for (int i = 0; i < LK_WIDTH; i++)
        rows[i] = _mm512_castps_si512(bits[i]);
}
