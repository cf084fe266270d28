/* conv2d and its gradients on the kernels of block_conv.h. */
#pragma once

#include "cpu/blocks/block_conv.h"
#include "cpu/onednn/cpu_layout.h"
#include "ops/conv_problem.h"
#include "lockstep/ops.h"

/* Returns whether block_conv.h can run a convolution of these shapes and its gradients: one group, and channels and
 * filters in whole blocks, which are as wide as vectors. */
bool lk__cpu_blocks_take_conv(lk_shape x, lk_shape w, const lk_conv2d_opts *opts);

/* Returns whether the direct algorithm should run a convolution that it takes, rather than oneDNN. */
bool lk__cpu_direct_is_worth(const lk_conv_problem *problem);

/* Returns whether the kernels of lk__isa() for bf16 have tiles, and can use them for a convolution that blocks take. */
bool lk__cpu_tiles_take(const lk_conv_problem *problem);

/* Returns whether Winograd's algorithm can be used, and whether it is faster. */
bool lk__cpu_winograd_takes(const lk_conv_problem *problem);
bool lk__cpu_winograd_is_worth(const lk_conv_problem *problem);

/* Returns the weights of a call that lk__own_run runs; `plain` are their elements. */
lk_block_weights lk__cpu_block_weights_of(const lk_call *call, const void *plain);

/* Computes the gradient of the weights into `dw`, which may be bf16. scratch: lk__cpu_block_gradient_bytes. */
size_t lk__cpu_block_gradient_bytes(const lk_call *call, const lk_geometry *conv);
void lk__cpu_block_gradient(const lk_call *call, const lk_geometry *conv, const void *dy, const void *x,
                            const lk_tensor *dw, float *scratch);

/* The algorithm of the alternative that was chosen for a call, and the layout in which it takes a tensor. */
const lk_block_algorithm *lk__cpu_block_algorithm(const lk_call *call);
lk_status lk__cpu_block_layout(const lk_call *call, const lk_tensor *x, const lk_layout **layout);

/* Each runs a call whose chosen alternative is an algorithm of block_conv.h. */
lk_status lk__cpu_block_conv2d(lk_call *call);
lk_status lk__cpu_block_conv2d_input_grad(lk_call *call);
lk_status lk__cpu_block_conv2d_weight_grad(lk_call *call);
lk_status lk__cpu_block_act(lk_call *call);
lk_status lk__cpu_block_act_grad(lk_call *call);
