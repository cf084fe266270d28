#include "cpu/lanes/cpu_lanes_winograd.h"

#include "cpu/isa.h"
#include "cpu/lanes/cpu_lanes.h"
#include "cpu/lanes/cpu_lanes_block.h"

const lk_lanes_winograd *lk__lanes_winograd(void)
{
    return lk__isa()->f32->lanes_winograd;
}

const char *lk__cpu_lanes_winograd_name(void)
{
    return lk__isa() ? lk__lanes_winograd()->name : "lanes-winograd";
}

bool lk__cpu_lanes_winograd_takes(const lk_conv_problem *problem)
{
    lk_lanes_block block = lk__cpu_lanes_block_of(problem);
    return lk__lanes_winograd()->takes(&block);
}

/* Winograd saves work in proportion to the product of the two numbers of channels, while transforms cost in proportion
 * to their sum. */
static bool cpu_lanes_winograd_have_channels(const lk_lanes_conv *conv, double least)
{
    double in = (double)conv->in[2], out = (double)conv->out[2];
    return in * out >= least * (in + out);
}

/* Patches must be full enough, and numerous enough to outweigh transforming the kernels. */
static bool cpu_lanes_winograd_have_patches(const lk_lanes_block *block)
{
    enum { LEAST = 32 };
    const lk_lanes_conv *conv = &block->conv;
    const lk_geometry *pool = &block->pool;
    int64_t side = 7 - conv->kernel[0], patches = 1, used = 1;
    for (int i = 0; i < 2; i++) {
        int64_t size = pool->out[i] * pool->kernel[i];
        used *= size;
        patches *= (size + side - 1) / side;
    }
    return conv->images * patches >= LEAST && 3 * used >= 2 * patches * side * side;
}

static bool suits_winograd(const lk_lanes_block *block)
{
    return cpu_lanes_winograd_have_patches(block) && cpu_lanes_winograd_have_channels(&block->conv, 4.25);
}

/* With patches of 4x4 pixels dy is read again for each row of points, which is expensive unless a pooling makes it
 * small. */
bool lk__cpu_lanes_winograd_sums(const lk_lanes_block *block)
{
    bool pooled = block->pool.kernel[0] > 1;
    return cpu_lanes_winograd_have_patches(block) &&
           cpu_lanes_winograd_have_channels(&block->conv, block->conv.kernel[0] == 5 ? 6
                                                          : pooled                   ? 9
                                                                                     : 16);
}

bool lk__cpu_lanes_winograd_is_worth(const lk_conv_problem *problem)
{
    lk_lanes_block block = lk__cpu_lanes_block_of(problem);
    return problem->op == LK_OP_CONV2D_WEIGHT_GRAD ? lk__cpu_lanes_winograd_sums(&block) : suits_winograd(&block);
}
