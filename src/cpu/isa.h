/* The instruction sets that own kernels are compiled for (vector.h), and the choice of one at run time. */
#pragma once

#include "base/status.h"
#include "cpu/blocks/block_conv.h"
#include "cpu/dense/dense.h"
#include "cpu/depthwise/depthwise.h"
#include "cpu/lanes/lanes.h"
#include "cpu/lanes/lanes_winograd.h"
#include "cpu/vector/interleave.h"

#include <stdbool.h>

/* The kernels for operands of one dtype; NULL: there are none. The interleaver, for f32 only, takes both. bf16 runs on
 * the depthwise kernels for f32. */
typedef struct lk_isa_kernels {
    const lk_block_algorithm *direct, *winograd;
    const lk_dense_kernels *dense;
    const lk_lanes_kernels *lanes;
    const lk_lanes_winograd *lanes_winograd;
    const lk_interleaver *interleaver;
    const lk_depthwise_kernels *depthwise;
} lk_isa_kernels;

typedef struct lk_isa {
    const char *name; /* "avx2" */
    int width;        /* floats of a vector: images in the lanes, or channels of a block */
    const lk_isa_kernels *f32;
    const lk_isa_kernels *bf16;      /* NULL: bf16 runs on kernels for f32 (cpu_bf16.h) */
    const lk_block_algorithm *tiles; /* direct convolution of bf16 on tiles; NULL: there are none */
} lk_isa;

/* The emulated ones have sixteen lanes on AVX2, and are linked into tests only. Those with bf16 share the f32 kernels
 * of AVX-512 or of `emulated`; those with AMX also share bf16 kernels of AVX512_BF16 or of `emulatedbf16`. */
extern const lk_isa lk__isa_avx2, lk__isa_avx512, lk__isa_avx512bf16, lk__isa_amxbf16, lk__isa_emulated,
    lk__isa_emulatedbf16, lk__isa_emulatedamxbf16;

extern const lk_isa_kernels lk__isa_kernels_avx512, lk__isa_kernels_emulated;

/* Returns whether this processor can run code for `isa`, and the system lets it. For AMX, asks Linux for the permission
 * to use tiles, which is the process's: all its threads have it. */
bool lk__isa_runs(const lk_isa *isa);

/* Returns whether AVX512_BF16 does more products than AVX-512 in f32: AMD's processors start VDPBF16PS as often as an
 * f32 multiply-add, Intel's a quarter as often (docs/lab/bf16.md). */
bool lk__isa_pairs_are_fast(void);

/* Returns the instruction set that kernels run on: the widest that both the processor and oneDNN use, since layouts
 * depend on it. LOCKSTEP_ISA=avx2 in the environment limits it to AVX2, and oneDNN too, which gives the bits of a
 * processor without anything wider; LOCKSTEP_ISA=avx512bf16 leaves out AMX, and LOCKSTEP_ISA=avx512 AVX512_BF16 too.
 * NULL: none. */
const lk_isa *lk__isa(void);

/* Checks LOCKSTEP_ISA. Errors: LK_ERR_ARGUMENT (it names no instruction set), LK_ERR_UNSUPPORTED (the processor lacks
 * it, or the system does not permit it), LK_ERR_BACKEND (oneDNN has generated code already and cannot be limited). */
lk_status lk__isa_check(void);

/* For tests: lk__isa() returns `isa` from now on; NULL undoes that. Call it only while no device is open. */
void lk__isa_force(const lk_isa *isa);
