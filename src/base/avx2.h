/* AVX2 code in files that are compiled for any processor. Call a function marked LK_AVX2 only if lk__has_avx2(). */
#pragma once

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

/* Marks a body that is compiled both into an LK_AVX2 function and into one for any processor. Both give the same bits:
 * the operations and their order are the same, and nothing is contracted. */
#define LK_BODY static inline __attribute__((always_inline))

/* Marks a loop whose iterations may run in any order, since none reads what another writes. The compiler vectorizes it
 * without checking whether arrays overlap, also if the result replaces an operand. Sanitizers prevent that
 * vectorization, about which clang would warn, so there it is empty. */
#if !defined(__clang__)
#define LK_ANY_ORDER _Pragma("GCC ivdep")
#elif __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) || __has_feature(undefined_behavior_sanitizer)
#define LK_ANY_ORDER
#else
#define LK_ANY_ORDER _Pragma("clang loop vectorize(assume_safety)")
#endif
