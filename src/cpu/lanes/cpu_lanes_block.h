/* conv_block and its gradient on the kernels of lanes.h. */
#pragma once

#include "cpu/lanes/cpu_lanes.h"

/* Describes a problem, which is not dilated, strided or grouped, for lanes.h. A plain convolution becomes a block
 * without relu and pooling. */
lk_lanes_block lk__cpu_lanes_block_of(const lk_conv_problem *problem);

/* Returns whether lanes.h can run conv_block and its gradient, and whether it should. */
bool lk__cpu_lanes_take_block(const lk_conv_problem *problem);
bool lk__cpu_lanes_want_block(const lk_conv_problem *problem);
