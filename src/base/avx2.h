/* AVX2 and AVX-512 code in files that are compiled for any processor. Call a function marked LK_AVX2 only if
 * lk__has_avx2(), and one marked LK_AVX512 only if lk__has_avx512(). */
#pragma once

#include <stdbool.h>

#if defined(__x86_64__)

#define LK_AVX2 __attribute__((target("avx2,fma")))
#define LK_AVX512 __attribute__((target("avx2,fma,avx512f,avx512vl,avx512bw,avx512dq")))

static inline bool lk__has_avx2(void)
{
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
}

static inline bool lk__has_avx512(void)
{
    return lk__has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
           __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq");
}

#else

#define LK_AVX2
#define LK_AVX512

static inline bool lk__has_avx2(void)
{
    return false;
}

static inline bool lk__has_avx512(void)
{
    return false;
}

#endif

/* Marks a body that is compiled both into LK_AVX2 or LK_AVX512 functions and into one for any processor. All give the
 * same bits: the operations and their order are the same, and nothing is contracted. */
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
