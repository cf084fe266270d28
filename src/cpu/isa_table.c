/* What a copy of the kernels exports. */
#include "cpu/isa.h"
#include "cpu/vector.h"

const lk_isa LK_ISA(lk__isa) = {
    .name = LK_ISA_NAME,
    .width = LK_WIDTH,
    .direct = &LK_ISA(lk__block_direct),
    .winograd = &LK_ISA(lk__block_winograd),
};
