/* bf16 elements of vector.h, eight at a time, on AVX2. */
#pragma once

#include <string.h>

typedef uint16_t element;

/* Loads eight elements into the lower halves of words. */
LK_BODY __m256i eight_load(const element *from)
{
    return _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)(const void *)from));
}

LK_BODY __m256 eight_of_lower(__m256i words)
{
    return _mm256_castsi256_ps(_mm256_slli_epi32(words, 16));
}

LK_BODY __m256 eight_widen(const element *from)
{
    return eight_of_lower(eight_load(from));
}

LK_BODY float element_widen(element e)
{
    uint32_t bits = (uint32_t)e << 16;
    float wide;
    memcpy(&wide, &bits, sizeof wide);
    return wide;
}
