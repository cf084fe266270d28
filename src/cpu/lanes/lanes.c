#include "cpu/lanes/lanes.h"

#include "cpu/isa.h"

const lk_lanes_kernels *lk__lanes(lk_dtype dtype)
{
    const lk_isa *isa = lk__isa();
    const lk_isa_kernels *kernels = !isa ? NULL : dtype == LK_BF16 ? isa->bf16 : isa->f32;
    return kernels ? kernels->lanes : NULL;
}

lk_lanes_block lk__lanes_block_of(const lk_lanes_conv *conv)
{
    return (lk_lanes_block){.conv = *conv,
                            .pool = {.images = conv->images,
                                     .channels = conv->out[2],
                                     .in = {conv->out[0], conv->out[1]},
                                     .out = {conv->out[0], conv->out[1]},
                                     .kernel = {1, 1},
                                     .stride = {1, 1}}};
}

lk_lanes_conv lk__lanes_input_grad_conv(const lk_lanes_block *block)
{
    lk_lanes_conv conv = {.images = block->conv.images};
    for (int i = 0; i < 2; i++) {
        conv.in[i] = lk__lanes_used(block, i);
        conv.out[i] = block->conv.in[i];
        conv.kernel[i] = block->conv.kernel[i];
        conv.padding[i] = block->conv.kernel[i] - 1 - block->conv.padding[i];
    }
    conv.in[2] = block->conv.out[2];
    conv.out[2] = block->conv.in[2];
    return conv;
}
