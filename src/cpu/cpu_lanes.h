/* Operators on lanes.h' kernels. */
#ifndef LK_CPU_CPU_LANES_H
#define LK_CPU_CPU_LANES_H

#include "cpu/cpu_layout.h"
#include "ops/conv_problem.h"
#include "cpu/lanes.h"
#include "lockstep/ops.h"

/* As lk_device_implementations shows it; static. */
const char *lk__cpu_lanes_name(void);

/* The layout that lanes.h works in here. */
dnnl_format_tag_t lk__cpu_lanes_tag(void);

/* Whether there are images enough for lanes, on a processor that lanes.h is for. */
bool lk__cpu_lanes_fill(int64_t images);

/* Whether also channels fill no blocks. */
bool lk__cpu_lanes_want(int64_t images, int64_t channels);

/* Whether lanes.h can do a convolution of these shapes, and its gradients. */
bool lk__cpu_lanes_take_conv(lk_shape x, const lk_conv2d_opts *opts);

/* Whether they go there: neither number of channels fills oneDNN's blocks, which are as wide as vectors, and there are
 * at least eight images. */
bool lk__cpu_lanes_want_conv(lk_shape x, lk_shape w, const lk_conv2d_opts *opts);

/* The same for avg_pool2d and its gradient: the layout that such a convolution beside it has or will want. */
bool lk__cpu_lanes_want_pool(const lk_call *call);

/* A problem, of a dense convolution, as one for lanes.h; of a convolution alone without relu and pooling. */
lk_lanes_block lk__cpu_lanes_block_of(const lk_conv_problem *problem);

lk_lanes_pool lk__cpu_lanes_pool_of(lk_shape x, lk_shape y, const lk_pool2d_opts *opts);

/* The same two of conv_block and its gradient. */
bool lk__cpu_lanes_take_block(const lk_conv_problem *problem);
bool lk__cpu_lanes_want_block(const lk_conv_problem *problem);

/* Of calls that are taken. */
lk_status lk__cpu_lanes_conv2d(lk_call *call);
lk_status lk__cpu_lanes_conv2d_input_grad(lk_call *call);
lk_status lk__cpu_lanes_conv2d_weight_grad(lk_call *call);
lk_status lk__cpu_lanes_avg_pool2d(lk_call *call);
lk_status lk__cpu_lanes_avg_pool2d_grad(lk_call *call);

#endif
