/* conv_block without pooling on the kernels of block_conv.h. */
#pragma once

#include "cpu/blocks/cpu_block_conv.h"

/* Return whether block_conv.h can run conv_block and its gradient, and whether the direct or Winograd's algorithm is
 * the fastest way. Both use one algorithm, so it must suit y and dx; if it does not, the operators run separately. */
bool lk__cpu_blocks_take_act(const lk_conv_problem *problem);
bool lk__cpu_direct_act_is_worth(const lk_conv_problem *problem);
bool lk__cpu_winograd_act_is_worth(const lk_conv_problem *problem);
