/* Code for AVX2 beside code for any processor: a function marked LK_AVX2 is only called where lk__has_avx2. */
#ifndef LK_BASE_AVX2_H
#define LK_BASE_AVX2_H

#include <stdbool.h>

#if defined(__x86_64__)

#define LK_AVX2 __attribute__((target("avx2,fma")))

static inline bool lk__has_avx2(void)
{
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
}

#else

#define LK_AVX2

static inline bool lk__has_avx2(void)
{
    return false;
}

#endif

/* A body that is compiled into an LK_AVX2 function and into one for any processor. The same operations in the same
 * order, without contraction: the same bits. */
#define LK_BODY static inline __attribute__((always_inline))

/* Before a loop whose turns may take any order, since none reads what another one writes: it becomes vectors without
 * asking whether arrays overlap, and so also where a result takes the place of an operand. Checks of a sanitizer keep
 * it from that, of which clang would warn. */
#if !defined(__clang__)
#define LK_ANY_ORDER _Pragma("GCC ivdep")
#elif __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) || __has_feature(undefined_behavior_sanitizer)
#define LK_ANY_ORDER
#else
#define LK_ANY_ORDER _Pragma("clang loop vectorize(assume_safety)")
#endif

#endif
