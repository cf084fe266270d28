/* Vectors of floats, as wide as a file is compiled for: sixteen lanes and 32 registers with LK_VECTOR_AVX512; the same
 * made of halves of eight with LK_VECTOR_EMULATED, which lets any processor with AVX2 test code for sixteen lanes; or
 * else AVX2's eight lanes and 16 registers.
 *
 * A file that includes this is compiled for each of them (cmake/kernels.cmake), and gives whatever is not static a name
 * of its own with LK_ISA. Its functions run only where lk__isa() says so (cpu/isa.h).
 *
 *   vec        floats                                   vec_mask   a truth value for each lane
 *   vec_int    32-bit integers                          vec_bits   an unsigned integer with a bit for each lane
 *
 *   vec_zero, vec_set(float), vec_broadcast(address)    vec_load, vec_store: aligned as a vector; vec_loadu, vec_storeu
 *   vec_add, vec_sub, vec_mul                           vec_fmadd: a b + c; vec_fmsub: a b - c; vec_fnmadd: c - a b
 *   vec_pinned(a): a, held in a register                vec_join(halves), vec_part(a, i): to and from eights of lanes
 *
 *   mask_greater(a, b): a > b                           mask_unless_not_greater(a, b): the same, or either is NaN
 *   mask_ordered(a): a is no NaN                        mask_and, mask_bits(m), mask_of_bits(bits)
 *   mask_first(n): the first n lanes, 0 or more         mask_bytes_equal(bytes, n): lane i where bytes[i] == n
 *   vec_where(m, a): a, or 0                            vec_select(m, a, b): a, or b
 *
 *   int_set(n), int_select(m, a, b)                     int_store_bytes(a, to): the lowest byte of each lane */
#ifndef LK_CPU_VECTOR_H
#define LK_CPU_VECTOR_H

#include "base/avx2.h"

#include <immintrin.h>
#include <stdint.h>

#if defined(LK_VECTOR_AVX512)
#include "cpu/vector_avx512.h"
#elif defined(LK_VECTOR_EMULATED)
#include "cpu/vector_emulated.h"
#else
#include "cpu/vector_avx2.h"
#endif

/* name_avx2, name_avx512, name_emulated */
#define LK_ISA(name) LK_ISA_PASTE(name, LK_ISA_SUFFIX)
#define LK_ISA_PASTE(name, suffix) LK_ISA_PASTE_NOW(name, suffix)
#define LK_ISA_PASTE_NOW(name, suffix) name##_##suffix

/* "avx2", "avx512", "emulated" */
#define LK_ISA_NAME LK_ISA_TEXT(LK_ISA_SUFFIX)
#define LK_ISA_TEXT(suffix) LK_ISA_TEXT_NOW(suffix)
#define LK_ISA_TEXT_NOW(suffix) #suffix

enum { LK_EIGHTS = LK_WIDTH / 8 };

/* Before a loop over an array of vectors, whose count is constant: without any loop left, these live in registers. */
#if defined(__clang__)
#define LK_UNROLL _Pragma("clang loop unroll(full)")
#else
#define LK_UNROLL _Pragma("GCC unroll 32")
#endif

#endif
