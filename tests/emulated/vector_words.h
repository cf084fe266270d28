/* The operations of vector.h on elements and words of bf16, compiled for two instruction sets. */
#pragma once

#include <stdint.h>

/* Arrays are aligned to a cache line. A word is two uint16_t. */
typedef struct vector_words {
    void (*widen)(const uint16_t from[16], float to[16]);
    void (*round)(const float from[16], uint16_t to[16]);
    void (*round_two)(const float from[2][16], uint16_t to[32]);
    void (*join_two)(const uint16_t from[2][16], uint16_t to[32]);
    /* sum += the products of a and b; the second function uses the first word of a in all lanes, the third a and 0. */
    void (*multiply)(const uint16_t a[32], const uint16_t b[32], float sum[16]);
    void (*multiply_one)(const uint16_t a[2], const uint16_t b[32], float sum[16]);
    void (*multiply_first)(const uint16_t a[1], const uint16_t b[32], float sum[16]);
    void (*parts)(const uint16_t from[32], float to[2][16]);
    /* masks: a bit for each lane, for first and second elements. */
    void (*where)(const uint16_t masks[2], const uint16_t from[32], uint16_t to[32]);
    void (*regroup)(const uint16_t a[32], const uint16_t b[32], uint16_t firsts[32], uint16_t seconds[32]);
} vector_words;

extern const vector_words vector_words_avx512bf16, vector_words_emulatedbf16;
