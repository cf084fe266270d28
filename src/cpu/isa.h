/* Instruction sets that own kernels are compiled for (vector.h), and the choice between them. */
#ifndef LK_CPU_ISA_H
#define LK_CPU_ISA_H

#include "base/status.h"
#include "cpu/block_conv.h"
#include "cpu/lanes.h"
#include "cpu/lanes_winograd.h"

#include <stdbool.h>

typedef struct lk_isa {
    const char *name; /* "avx2" */
    int width;        /* floats in a vector: images in the lanes, or channels of a block */
    const lk_block_algorithm *direct, *winograd;
    const lk_lanes_kernels *lanes;
    const lk_lanes_winograd *lanes_winograd;
} lk_isa;

/* Emulated are sixteen lanes on AVX2: linked into tests alone. */
extern const lk_isa lk__isa_avx2, lk__isa_avx512, lk__isa_emulated;

/* Whether this processor has what the kernels' code is made of. */
bool lk__isa_runs(const lk_isa *isa);

/* What kernels run on: the widest that the processor has and oneDNN uses too, since layouts follow from it; with
 * LOCKSTEP_ISA=avx2 in the environment no more than that, and oneDNN is held to it as well, which gives the bits of a
 * processor that has nothing wider. NULL: none. */
const lk_isa *lk__isa(void);

/* Errors: LK_ERR_ARGUMENT, LK_ERR_UNSUPPORTED (LOCKSTEP_ISA names no instruction set, or one that the processor lacks),
 * LK_ERR_BACKEND (oneDNN was at work before and cannot be held to it). */
lk_status lk__isa_check(void);

/* For tests: lk__isa() from now on; NULL: what it was. Only while no device is open. */
void lk__isa_force(const lk_isa *isa);

#endif
