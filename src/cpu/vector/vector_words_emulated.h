/* Elements and words of vector.h that are bf16 and pairs of them, on AVX2, with the bits of AVX512_BF16. */
#pragma once

#include "cpu/vector/vector_words_eight.h"

#include <stddef.h>
#include <string.h>

#define LK_BF16_SUFFIX emulatedbf16
#if defined(LK_VECTOR_TILES)
#define LK_ISA_SUFFIX emulatedamxbf16
#else
#define LK_ISA_SUFFIX LK_BF16_SUFFIX
#endif

enum { LK_PER_WORD = 2 };

typedef vec_int vec_word;

/* --- eight lanes -------------------------------------------------------------------------------------------------- */

/* Returns all bits set for each lane below FLT_MIN. */
LK_BODY __m256i eight_are_tiny(__m256i bits)
{
    return _mm256_cmpeq_epi32(_mm256_and_si256(bits, _mm256_set1_epi32(0x7f800000)), _mm256_setzero_si256());
}

/* Makes numbers below FLT_MIN zeros of their sign. */
LK_BODY __m256 eight_flushed(__m256 a)
{
    __m256i bits = _mm256_castps_si256(a);
    __m256i number = _mm256_and_si256(eight_are_tiny(bits), _mm256_set1_epi32(0x7fffffff));
    return _mm256_castsi256_ps(_mm256_andnot_si256(number, bits));
}

LK_BODY __m256 eight_of_upper(__m256i words)
{
    return _mm256_castsi256_ps(_mm256_and_si256(words, _mm256_set1_epi32((int)0xffff0000)));
}

LK_BODY __m256 eight_fmadd(__m256 a, __m256 b, __m256 c)
{
    return eight_flushed(_mm256_fmadd_ps(eight_flushed(a), eight_flushed(b), c));
}

LK_BODY __m256 eight_fmadd_words(__m256i a, __m256i b, __m256 c)
{
    __m256 upper = eight_fmadd(eight_of_upper(a), eight_of_upper(b), eight_flushed(c));
    return eight_fmadd(eight_of_lower(a), eight_of_lower(b), upper);
}

/* Rounds to bf16 in the lower halves of words. Adds half of the last place that is kept, less one bit if that place is
 * even; the carry rounds up. NaN becomes quiet. */
LK_BODY __m256i eight_rounded(__m256 a)
{
    __m256i bits = _mm256_castps_si256(a), high = _mm256_srli_epi32(bits, 16);
    __m256i half = _mm256_add_epi32(_mm256_and_si256(high, _mm256_set1_epi32(1)), _mm256_set1_epi32(0x7fff));
    __m256i rounded = _mm256_srli_epi32(_mm256_add_epi32(bits, half), 16);
    __m256i quiet = _mm256_or_si256(high, _mm256_set1_epi32(0x40));
    __m256i zero = _mm256_and_si256(high, _mm256_set1_epi32(0x8000));
    rounded = _mm256_blendv_epi8(rounded, quiet, _mm256_castps_si256(_mm256_cmp_ps(a, a, _CMP_UNORD_Q)));
    return _mm256_blendv_epi8(rounded, zero, eight_are_tiny(bits));
}

LK_BODY __m256i eight_of_halves(__m256i lower, __m256i upper)
{
    return _mm256_or_si256(lower, _mm256_slli_epi32(upper, 16));
}

/* --- sixteen lanes ------------------------------------------------------------------------------------------------ */

LK_BODY vec vec_widen(const element *from)
{
    return (vec){{eight_of_lower(eight_load(from)), eight_of_lower(eight_load(from + 8))}};
}

LK_BODY void vec_round(element *to, vec a)
{
    __m256i packed = _mm256_packus_epi32(eight_rounded(a.half[0]), eight_rounded(a.half[1]));
    _mm256_storeu_si256((__m256i *)(void *)to, _mm256_permute4x64_epi64(packed, 0xd8));
}

LK_BODY vec_word word_load(const element *from)
{
    const __m256i *at = (const __m256i *)(const void *)from;
    return (vec_word){{_mm256_load_si256(at), _mm256_load_si256(at + 1)}};
}

LK_BODY vec_word word_loadu(const element *from)
{
    const __m256i *at = (const __m256i *)(const void *)from;
    return (vec_word){{_mm256_loadu_si256(at), _mm256_loadu_si256(at + 1)}};
}

LK_BODY void word_store(element *to, vec_word a)
{
    __m256i *at = (__m256i *)(void *)to;
    _mm256_store_si256(at, a.half[0]);
    _mm256_store_si256(at + 1, a.half[1]);
}

LK_BODY void word_storeu(element *to, vec_word a)
{
    __m256i *at = (__m256i *)(void *)to;
    _mm256_storeu_si256(at, a.half[0]);
    _mm256_storeu_si256(at + 1, a.half[1]);
}

LK_BODY vec_word word_broadcast(const element *from)
{
    int32_t word;
    memcpy(&word, from, sizeof word);
    return int_set(word);
}

LK_BODY vec_word word_broadcast_first(const element *from)
{
    return int_set(*from);
}

LK_BODY vec word_fmadd(vec_word a, vec_word b, vec c)
{
    return (vec){
        {eight_fmadd_words(a.half[0], b.half[0], c.half[0]), eight_fmadd_words(a.half[1], b.half[1], c.half[1])}};
}

LK_BODY vec_word word_gather(const element *from, int step)
{
    const __m256i at = _mm256_mullo_epi32(_mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7), _mm256_set1_epi32(step));
    const int *low = (const int *)(const void *)from, *high = (const int *)(const void *)(from + 8 * (ptrdiff_t)step);
    return (vec_word){{_mm256_i32gather_epi32(low, at, sizeof *from), _mm256_i32gather_epi32(high, at, sizeof *from)}};
}

LK_BODY vec_word word_join(const element *const from[LK_PER_WORD])
{
    return (vec_word){{eight_of_halves(eight_load(from[0]), eight_load(from[1])),
                       eight_of_halves(eight_load(from[0] + 8), eight_load(from[1] + 8))}};
}

LK_BODY vec_word word_round(const vec a[LK_PER_WORD])
{
    return (vec_word){{eight_of_halves(eight_rounded(a[0].half[0]), eight_rounded(a[1].half[0])),
                       eight_of_halves(eight_rounded(a[0].half[1]), eight_rounded(a[1].half[1]))}};
}

LK_BODY vec_word word_zero(void)
{
    return int_set(0);
}

LK_BODY vec_word word_pinned(vec_word a)
{
    return a;
}

LK_BODY vec word_part(vec_word a, int i)
{
    return i == 0 ? (vec){{eight_of_lower(a.half[0]), eight_of_lower(a.half[1])}}
                  : (vec){{eight_of_upper(a.half[0]), eight_of_upper(a.half[1])}};
}

/* The lower halves of a's words and the upper halves of b's. */
LK_BODY __m256i eight_blended(__m256i a, __m256i b)
{
    return _mm256_blend_epi16(a, b, 0xaa);
}

LK_BODY vec_word word_where(const vec_mask masks[LK_PER_WORD], vec_word a)
{
    vec_word chosen;
    for (int i = 0; i < 2; i++)
        chosen.half[i] = _mm256_and_si256(
            a.half[i], eight_blended(_mm256_castps_si256(masks[0].half[i]), _mm256_castps_si256(masks[1].half[i])));
    return chosen;
}

LK_BODY vec_word word_firsts(vec_word a, vec_word b)
{
    return (vec_word){{eight_blended(a.half[0], _mm256_slli_epi32(b.half[0], 16)),
                       eight_blended(a.half[1], _mm256_slli_epi32(b.half[1], 16))}};
}

LK_BODY vec_word word_seconds(vec_word a, vec_word b)
{
    return (vec_word){{eight_blended(_mm256_srli_epi32(a.half[0], 16), b.half[0]),
                       eight_blended(_mm256_srli_epi32(a.half[1], 16), b.half[1])}};
}

LK_BODY void word_store_first(element *to, int64_t n, vec_word a)
{
    memcpy(to, &a, (size_t)(n < LK_WIDTH ? n : LK_WIDTH) * sizeof(int32_t));
}

LK_BODY vec word_bits(vec_word a)
{
    vec bits;
    memcpy(&bits, &a, sizeof bits);
    return bits;
}

LK_BODY void word_transpose(vec_word rows[LK_WIDTH])
{
    vec bits[LK_WIDTH];
    memcpy(bits, rows, sizeof bits);
    vec_transpose(bits);
    memcpy(rows, bits, sizeof bits);
}
