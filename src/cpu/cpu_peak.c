/* The peak speed of a core: multiply-adds in registers, with enough independent sums to hide their latency. The sums
 * start with numbers that the compiler does not know, since it would merge equal sums. */
#include "base/avx2.h"
#include "cpu/cpu.h"

enum { SUMS = 12 };

typedef struct numbers {
    float factor, term, begin[SUMS];
} numbers;

static numbers cpu_peak_unknown_numbers(void)
{
    volatile float half = 0.5F;
    numbers n = {.factor = half, .term = half};
    for (int i = 0; i < SUMS; i++)
        n.begin[i] = half * (float)i;
    return n;
}

static volatile float result;

#if defined(__x86_64__)

#include <immintrin.h>

LK_AVX2 static double multiply_adds_avx2(int64_t rounds)
{
    numbers n = cpu_peak_unknown_numbers();
    __m256 factor = _mm256_set1_ps(n.factor), term = _mm256_set1_ps(n.term), sums[SUMS];
    for (int i = 0; i < SUMS; i++)
        sums[i] = _mm256_set1_ps(n.begin[i]);
    for (int64_t r = 0; r < rounds; r++)
        for (int i = 0; i < SUMS; i++)
            sums[i] = _mm256_fmadd_ps(sums[i], factor, term);
    for (int i = 0; i < SUMS; i++)
        result = _mm256_cvtss_f32(sums[i]);
    return 2.0 * 8 * SUMS * (double)rounds;
}

__attribute__((target("avx512f"))) static double multiply_adds_avx512(int64_t rounds)
{
    numbers n = cpu_peak_unknown_numbers();
    __m512 factor = _mm512_set1_ps(n.factor), term = _mm512_set1_ps(n.term), sums[SUMS];
    for (int i = 0; i < SUMS; i++)
        sums[i] = _mm512_set1_ps(n.begin[i]);
    for (int64_t r = 0; r < rounds; r++)
        for (int i = 0; i < SUMS; i++)
            sums[i] = _mm512_fmadd_ps(sums[i], factor, term);
    for (int i = 0; i < SUMS; i++)
        result = _mm512_cvtss_f32(sums[i]);
    return 2.0 * 16 * SUMS * (double)rounds;
}

static double cpu_peak_widest_multiply_adds(int64_t rounds)
{
    return __builtin_cpu_supports("avx512f") ? multiply_adds_avx512(rounds) : multiply_adds_avx2(rounds);
}

#else

static double cpu_peak_widest_multiply_adds(int64_t rounds)
{
    (void)rounds;
    return 0;
}

#endif

double lk__cpu_multiply_adds(int64_t rounds)
{
    return lk__has_avx2() ? cpu_peak_widest_multiply_adds(rounds) : lk__multiply_adds(rounds);
}
