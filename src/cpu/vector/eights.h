/* Vectors of eight f32 or bf16 elements, and of as many doubles, for bodies that are compiled for any processor and for
 * AVX2 (base/avx2.h). They are passed by address, because how a vector is passed depends on the processor that a
 * function is compiled for. They need no alignment: a row-major tensor may lie in memory of a caller. */
#pragma once

#include "base/bf16.h"

enum { LK_EIGHT = 8, LK_FOUR = 4 };

typedef float lk_floats __attribute__((vector_size(LK_EIGHT * sizeof(float)), aligned(sizeof(float)), may_alias));
typedef uint32_t lk_words
    __attribute__((vector_size(LK_EIGHT * sizeof(uint32_t)), aligned(sizeof(uint32_t)), may_alias));
typedef uint16_t lk_shorts
    __attribute__((vector_size(LK_EIGHT * sizeof(uint16_t)), aligned(sizeof(uint16_t)), may_alias));
typedef float lk_four_floats __attribute__((vector_size(LK_FOUR * sizeof(float)), aligned(sizeof(float)), may_alias));
typedef double lk_doubles __attribute__((vector_size(LK_FOUR * sizeof(double)), aligned(sizeof(double)), may_alias));

typedef struct lk_wide { /* eight doubles */
    lk_doubles low, high;
} lk_wide;

/* Load and store eight elements from element `at` on. To widen them, they are named one by one: compilers turn that
 * into one instruction, and do worse with __builtin_convertvector. */
LK_BODY void eight_load(lk_floats *to, const void *from, int64_t at, bool bf16)
{
    if (bf16) {
        lk_shorts s = *(const lk_shorts *)((const uint16_t *)from + at);
        *to = (lk_floats)((lk_words){s[0], s[1], s[2], s[3], s[4], s[5], s[6], s[7]} << 16);
    } else {
        *to = *(const lk_floats *)((const float *)from + at);
    }
}

/* Rounds to bf16 as lk__bf16_rounded does. */
LK_BODY void eight_store(void *to, int64_t at, const lk_floats *from, bool bf16)
{
    if (bf16) {
        lk_words bits = (lk_words)*from, half = (bits >> 16 & 1) + 0x7FFF;
        lk_words nan = (lk_words)(*from != *from); /* NOLINT(misc-redundant-expression) */
        bits = (bits + (half & ~nan)) | (nan & 0x400000);
        *(lk_shorts *)((uint16_t *)to + at) = __builtin_convertvector(bits >> 16, lk_shorts);
    } else {
        *(lk_floats *)((float *)to + at) = *from;
    }
}

LK_BODY void eight_widen(lk_wide *to, const lk_floats *from)
{
    lk_floats x = *from;
    to->low = (lk_doubles){x[0], x[1], x[2], x[3]};
    to->high = (lk_doubles){x[4], x[5], x[6], x[7]};
}

LK_BODY void eight_narrow(lk_floats *to, const lk_wide *from)
{
    lk_four_floats low = __builtin_convertvector(from->low, lk_four_floats);
    lk_four_floats high = __builtin_convertvector(from->high, lk_four_floats);
    *to = (lk_floats){low[0], low[1], low[2], low[3], high[0], high[1], high[2], high[3]};
}

/* The same as loading and widening, and as narrowing and storing. For f32 halves that stay in memory or go there take
 * fewer instructions. */
LK_BODY void eight_load_wide(lk_wide *to, const void *from, int64_t at, bool bf16)
{
    if (bf16) {
        lk_floats x;
        eight_load(&x, from, at, true);
        eight_widen(to, &x);
    } else {
        lk_four_floats low = *(const lk_four_floats *)((const float *)from + at);
        lk_four_floats high = *(const lk_four_floats *)((const float *)from + at + LK_FOUR);
        to->low = (lk_doubles){low[0], low[1], low[2], low[3]};
        to->high = (lk_doubles){high[0], high[1], high[2], high[3]};
    }
}

LK_BODY void eight_store_narrow(void *to, int64_t at, const lk_wide *from, bool bf16)
{
    if (bf16) {
        lk_floats x;
        eight_narrow(&x, from);
        eight_store(to, at, &x, true);
    } else {
        *(lk_four_floats *)((float *)to + at) = __builtin_convertvector(from->low, lk_four_floats);
        *(lk_four_floats *)((float *)to + at + LK_FOUR) = __builtin_convertvector(from->high, lk_four_floats);
    }
}
