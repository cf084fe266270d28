/* The tables that each copy of the kernels exports. A copy for bf16 completes the one for f32 on the same vectors, and
 * a copy with tiles, which has no convolutions on vectors, completes both. */
#include "cpu/isa.h"
#include "cpu/lanes/lanes_tiles.h"
#include "cpu/vector/vector.h"

const lk_lanes_kernels LK_ISA(lk__lanes) = {
    .name = "lanes:" LK_ISA_NAME,
    .lanes = LK_WIDTH,
    .packed_bytes = lk__lanes_packed_bytes,
    .pack = lk__lanes_pack,
    .forward_bytes = lk__lanes_forward_bytes,
    .conv2d = lk__lanes_conv2d,
    .avg_pool = lk__lanes_avg_pool,
    .avg_pool_grad = lk__lanes_avg_pool_grad,
    .saved_bytes = lk__lanes_saved_bytes,
    .forward = lk__lanes_block_forward,
    .grad_bytes = lk__lanes_grad_bytes,
    .grad = lk__lanes_block_grad,
};

#if defined(LK_VECTOR_BF16)

static const lk_isa_kernels of_bf16 = {
    .direct = &LK_ISA_BF16(lk__block_direct),
    .winograd = &LK_ISA_BF16(lk__block_winograd),
    .dense = &LK_ISA(lk__dense),
    .lanes = &LK_ISA(lk__lanes),
};

const lk_isa LK_ISA(lk__isa) = {
    .name = LK_ISA_NAME,
    .width = LK_WIDTH,
    .f32 = &LK_ISA_F32(lk__isa_kernels),
    .bf16 = &of_bf16,
#if defined(LK_VECTOR_TILES)
    .tiles = &LK_ISA(lk__block_tiles),
#endif
};

#else

const lk_isa_kernels LK_ISA(lk__isa_kernels) = {
    .direct = &LK_ISA(lk__block_direct),
    .winograd = &LK_ISA(lk__block_winograd),
    .dense = &LK_ISA(lk__dense),
    .lanes = &LK_ISA(lk__lanes),
    .lanes_winograd = &LK_ISA(lk__lanes_winograd),
    .interleaver = &LK_ISA(lk__interleaver),
    .depthwise = &LK_ISA(lk__depthwise),
};

const lk_isa LK_ISA(lk__isa) = {.name = LK_ISA_NAME, .width = LK_WIDTH, .f32 = &LK_ISA(lk__isa_kernels)};

#endif
