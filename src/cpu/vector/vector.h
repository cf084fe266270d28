/* Vectors of floats of the width that a file is compiled for.
 *
 * LK_VECTOR_AVX512 gives sixteen lanes and 32 registers. LK_VECTOR_EMULATED makes the same sixteen lanes of two halves
 * of eight, so that any processor with AVX2 can test code for wide vectors. Without either, vectors are AVX2's: eight
 * lanes and 16 registers.
 *
 * A file that includes this header is compiled once for each width (cmake/kernels.cmake). It wraps every name that is
 * not static in LK_ISA, so that the copies can be linked together. Call its functions only through the table that
 * lk__isa() returns (cpu/isa.h): that table is one that the processor can run.
 *
 *   vec        floats                                   vec_mask   a truth value for each lane
 *   vec_int    32-bit integers                          vec_bits   an unsigned integer with a bit for each lane
 *
 *   vec_zero, vec_set(float), vec_broadcast(address)    vec_load, vec_store: aligned as a vector; vec_loadu, vec_storeu
 *   vec_add, vec_sub, vec_mul                           vec_fmadd: a b + c; vec_fmsub: a b - c; vec_fnmadd: c - a b
 *   vec_pinned(a): a, held in a register                vec_join(halves), vec_part(a, i): to and from eights of lanes
 *
 *   mask_greater(a, b): a > b                           mask_unless_not_greater(a, b): the same, or either is NaN
 *   mask_ordered(a): a is not NaN                       mask_and, mask_bits(m), mask_of_bits(bits)
 *   mask_first(n): the first n lanes, n >= 0            mask_bytes_equal(bytes, n): lane i where bytes[i] == n
 *   vec_where(m, a): a, or 0                            vec_select(m, a, b): a, or b
 *
 *   int_set(n), int_select(m, a, b)                     int_store_bytes(a, to): the lowest byte of each lane */
#pragma once

#include "base/avx2.h"

#include <immintrin.h>
#include <stdint.h>

#if defined(LK_VECTOR_AVX512)
#include "cpu/vector/vector_avx512.h"
#elif defined(LK_VECTOR_EMULATED)
#include "cpu/vector/vector_emulated.h"
#else
#include "cpu/vector/vector_avx2.h"
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

/* Unrolls the following loop completely. An array of vectors lives in registers only if every index is a constant. */
#if defined(__clang__)
#define LK_UNROLL _Pragma("clang loop unroll(full)")
#else
#define LK_UNROLL _Pragma("GCC unroll 32")
#endif

/* Expands X(n) for each number that a loop in steps of six can leave over. */
#define LK_UP_TO_FIVE(X) X(1) X(2) X(3) X(4) X(5)
