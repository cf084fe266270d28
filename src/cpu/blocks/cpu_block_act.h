/* conv_block without pooling on the kernels of block_conv.h. */
#pragma once

#include "cpu/blocks/cpu_block_conv.h"

/* Returns whether they can run it, and which algorithm is worth it: the one that suits both the forward pass and the
 * gradient of the input. */
bool lk__cpu_blocks_take_act(const lk_conv_problem *problem);
bool lk__cpu_direct_act_is_worth(const lk_conv_problem *problem);
bool lk__cpu_winograd_act_is_worth(const lk_conv_problem *problem);
