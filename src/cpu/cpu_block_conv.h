/* conv2d and its gradients on block_conv.h' kernels. */
#ifndef LK_CPU_CPU_BLOCK_CONV_H
#define LK_CPU_CPU_BLOCK_CONV_H

#include "cpu/block_conv.h"
#include "ops/conv_problem.h"
#include "lockstep/ops.h"

/* Whether block_conv.h can do a convolution of these shapes, and its gradients: one group, channels and filters in
 * whole blocks, which are as wide as vectors. */
bool lk__cpu_blocks_take_conv(lk_shape x, lk_shape w, const lk_conv2d_opts *opts);

/* Of tensors of these shapes. */
lk_block_conv lk__cpu_block_conv_of(lk_shape x, lk_shape w, lk_shape y, const lk_conv2d_opts *opts);

/* Of those, whether the direct algorithm is faster than oneDNN: with AVX2 it is. */
bool lk__cpu_direct_is_worth(const lk_conv_problem *problem);

/* Whether Winograd's algorithm can be used, and whether it is faster. */
bool lk__cpu_winograd_takes(const lk_conv_problem *problem);
bool lk__cpu_winograd_is_worth(const lk_conv_problem *problem);

/* The same of conv_block, without pooling: worth it where both passes are as fast by one algorithm. */
bool lk__cpu_blocks_take_act(const lk_conv_problem *problem);
bool lk__cpu_direct_act_is_worth(const lk_conv_problem *problem);
bool lk__cpu_winograd_act_is_worth(const lk_conv_problem *problem);

/* The weights of a call that lk__own_run runs, of which `plain` are the elements. */
lk_block_weights lk__cpu_block_weights_of(const lk_call *call, const float *plain);

/* Of calls for which an alternative with block_conv.h' algorithm was chosen. */
lk_status lk__cpu_block_conv2d(lk_call *call);
lk_status lk__cpu_block_conv2d_input_grad(lk_call *call);
lk_status lk__cpu_block_conv2d_weight_grad(lk_call *call);
lk_status lk__cpu_block_act(lk_call *call);
lk_status lk__cpu_block_act_grad(lk_call *call);

#endif
