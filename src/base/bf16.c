#include "base/bf16.h"

LK_BODY void bf16_widen_body(const uint16_t *restrict from, float *restrict to, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        to[i] = lk__bf16_wide(from[i]);
}

LK_BODY void bf16_round_body(const float *restrict from, uint16_t *restrict to, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        to[i] = lk__bf16_rounded(from[i]);
}

void lk__bf16_widen_plain(const uint16_t *from, float *to, int64_t count)
{
    bf16_widen_body(from, to, count);
}

void lk__bf16_round_plain(const float *from, uint16_t *to, int64_t count)
{
    bf16_round_body(from, to, count);
}

LK_AVX2 static void bf16_widen_avx2(const uint16_t *from, float *to, int64_t count)
{
    bf16_widen_body(from, to, count);
}

LK_AVX2 static void bf16_round_avx2(const float *from, uint16_t *to, int64_t count)
{
    bf16_round_body(from, to, count);
}

LK_AVX512 static void bf16_widen_avx512(const uint16_t *from, float *to, int64_t count)
{
    bf16_widen_body(from, to, count);
}

LK_AVX512 static void bf16_round_avx512(const float *from, uint16_t *to, int64_t count)
{
    bf16_round_body(from, to, count);
}

void lk__bf16_widen(const uint16_t *from, float *to, int64_t count)
{
    (lk__has_avx512() ? bf16_widen_avx512 : lk__has_avx2() ? bf16_widen_avx2 : lk__bf16_widen_plain)(from, to, count);
}

void lk__bf16_round(const float *from, uint16_t *to, int64_t count)
{
    (lk__has_avx512() ? bf16_round_avx512 : lk__has_avx2() ? bf16_round_avx2 : lk__bf16_round_plain)(from, to, count);
}
