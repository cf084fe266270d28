/* When convolutions with images in the vector lanes go to lanes_winograd.h. */
#ifndef LK_CPU_CPU_LANES_WINOGRAD_H
#define LK_CPU_CPU_LANES_WINOGRAD_H

#include "cpu/lanes_winograd.h"
#include "ops/conv_problem.h"

/* Those of lk__isa(), which there has to be. */
const lk_lanes_winograd *lk__lanes_winograd(void);

/* As lk_device_implementations shows it; static. */
const char *lk__cpu_lanes_winograd_name(void);

/* Whether they can do what lanes.h can. */
bool lk__cpu_lanes_winograd_takes(const lk_conv_problem *problem);

/* Whether they are faster: a function of the shape. Of conv_block it is that of what convolves, y and dx. */
bool lk__cpu_lanes_winograd_is_worth(const lk_conv_problem *problem);

/* Of conv_block, whether dw is summed by them too. */
bool lk__cpu_lanes_winograd_sums(const lk_lanes_block *block);

#endif
