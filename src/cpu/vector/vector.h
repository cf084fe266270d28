/* Vectors of floats of the width that a file is compiled for, and of the elements that lie in memory.
 *
 * LK_VECTOR_AVX512 gives sixteen lanes and 32 registers. LK_VECTOR_EMULATED makes the same sixteen lanes of two halves
 * of eight, so that any processor with AVX2 can test code for wide vectors. Without either, vectors are AVX2's: eight
 * lanes and 16 registers.
 *
 * LK_VECTOR_BF16, which needs sixteen lanes, makes an element in memory a bf16. Then a word of 32 bits holds a pair of
 * neighboring elements, and AVX512_BF16 adds the two products of a pair of words to a float. Otherwise an element is a
 * float, and so is a word. Sums are floats in either case.
 *
 * LK_VECTOR_TILES, which needs LK_VECTOR_BF16, adds the tiles of tile.h.
 *
 * A file that includes this header is compiled once for each width and element (cmake/kernels.cmake). It wraps every
 * name that is not static in LK_ISA, so that the copies can be linked together. Call its functions only through the
 * table that lk__isa() returns (cpu/isa.h): that table is one that the processor can run.
 *
 *   vec        floats                                   vec_mask   a truth value for each lane
 *   vec_int    32-bit integers                          vec_bits   an unsigned integer with a bit for each lane
 *
 *   vec_zero, vec_set(float), vec_broadcast(address)    vec_load, vec_store: aligned as a vector; vec_loadu, vec_storeu
 *   vec_add, vec_sub, vec_mul, vec_div                  vec_fmadd: a b + c; vec_fmsub: a b - c; vec_fnmadd: c - a b
 *   vec_pinned(a): a, held in a register                vec_join(halves), vec_part(a, i): to and from eights of lanes
 *
 *   mask_greater(a, b): a > b                           mask_unless_not_greater(a, b): the same, or either is NaN
 *   mask_ordered(a): a is not NaN                       mask_and, mask_bits(m), mask_of_bits(bits)
 *   mask_first(n): the first n lanes, n >= 0            mask_bytes_equal(bytes, n): lane i where bytes[i] == n
 *   vec_where(m, a): a, or 0                            vec_select(m, a, b): a, or b
 *   vec_store_first(address, n, a): the first n lanes   vec_transpose(rows): rows of LK_WIDTH vectors to columns
 *
 *   int_set(n), int_select(m, a, b)                     int_store_bytes(a, to): the lowest byte of each lane
 *
 *   element    an element in memory, float or uint16_t  vec_word   a vector of words; each has LK_PER_WORD elements
 *
 *   vec_widen(address): LK_WIDTH elements               vec_round(address, a): to LK_WIDTH elements
 *   word_load, word_store: aligned; word_loadu, _storeu word_broadcast(address): the word that begins there
 *   word_gather(address, step), for pairs: the words that begin at every step-th element
 *   word_store_first(address, n, a), word_transpose(rows), for pairs: as vec_store_first and vec_transpose
 *   word_fmadd(a, b, c): c + the products of a and b    word_join(addresses), word_round(vecs): see below
 *   word_zero, word_pinned(a)                           word_part(a, i): element i of each word, widened
 *   word_bits(a): the words themselves as floats
 *   word_broadcast_first(address): the element there, and zero for the others of the word
 *   word_where(masks, a): element i of a where masks[i] is true, or 0
 *   word_firsts(a, b), word_seconds(a, b), for pairs: words of the first, or second, elements of a and of b
 *   eight_widen(address): eight elements as floats      element_widen(e): one
 *
 * word_join and word_round make words of LK_PER_WORD rows of LK_WIDTH elements, one element from each row: the rows lie
 * at these addresses, or are these vectors, which are rounded.
 *
 * With bf16, word_fmadd is VDPBF16PS as Intel's manual defines it: it adds first the product of the second elements and
 * then that of the first ones, each by a fused multiply-add rounded to nearest even, and takes numbers below FLT_MIN
 * for zeros of their sign in operands and results. Rounding is VCVTNEPS2BF16: to nearest even, numbers below FLT_MIN to
 * zeros. The emulation has the same bits, except those of NaN. */
#pragma once

#include "base/avx2.h"

#include <immintrin.h>
#include <stdint.h>

/* Unrolls the following loop completely. An array of vectors lives in registers only if every index is a constant. */
#if defined(__clang__)
#define LK_UNROLL _Pragma("clang loop unroll(full)")
#else
#define LK_UNROLL _Pragma("GCC unroll 32")
#endif

#if defined(LK_VECTOR_AVX512)
#include "cpu/vector/vector_avx512.h"
#elif defined(LK_VECTOR_EMULATED)
#include "cpu/vector/vector_emulated.h"
#else
#include "cpu/vector/vector_avx2.h"
#endif

#if !defined(LK_VECTOR_BF16)
#include "cpu/vector/vector_words_f32.h"
#elif defined(LK_VECTOR_AVX512)
#include "cpu/vector/vector_words_avx512.h"
#else
#include "cpu/vector/vector_words_emulated.h"
#endif

/* name_avx2, name_avx512, name_emulated, name_avx512bf16, name_emulatedbf16, name_amxbf16, name_emulatedamxbf16.
 * LK_ISA_F32 gives the same without bf16, and LK_ISA_BF16 without tiles: the names of the copies for floats, and for
 * bf16, on the same vectors. */
#define LK_ISA(name) LK_ISA_PASTE(name, LK_ISA_SUFFIX)
#define LK_ISA_BF16(name) LK_ISA_PASTE(name, LK_BF16_SUFFIX)
#define LK_ISA_F32(name) LK_ISA_PASTE(name, LK_F32_SUFFIX)
#define LK_ISA_PASTE(name, suffix) LK_ISA_PASTE_NOW(name, suffix)
#define LK_ISA_PASTE_NOW(name, suffix) name##_##suffix

/* "avx2", "avx512" and so on */
#define LK_ISA_NAME LK_ISA_TEXT(LK_ISA_SUFFIX)
#define LK_ISA_TEXT(suffix) LK_ISA_TEXT_NOW(suffix)
#define LK_ISA_TEXT_NOW(suffix) #suffix

enum { LK_EIGHTS = LK_WIDTH / 8 };

/* Expands X(n) for each number that a loop in steps of six can leave over. */
#define LK_UP_TO_FIVE(X) X(1) X(2) X(3) X(4) X(5)
#define LK_UP_TO_SIX(X) LK_UP_TO_FIVE(X) X(6)
