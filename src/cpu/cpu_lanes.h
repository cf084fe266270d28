/* Operators on lanes.h' kernels. */
#ifndef LK_CPU_CPU_LANES_H
#define LK_CPU_CPU_LANES_H

#include "core/op.h"
#include "cpu/lanes.h"
#include "lockstep/ops.h"

/* Whether images fill a vector and channels no blocks, on a processor that lanes.h is for. */
bool lk__cpu_lanes_want(int64_t images, int64_t channels);

/* Whether a convolution of these shapes, and its gradients, go to lanes.h: neither number of channels fills oneDNN's
 * blocks of eight, and images fill at least one vector. Measured on AVX2 alone; with AVX-512 the choice is oneDNN's. */
bool lk__cpu_lanes_want_conv(lk_shape x, lk_shape w, const lk_conv2d_opts *opts);

/* The same for avg_pool2d and its gradient: the layout that such a convolution beside it has or will want. */
bool lk__cpu_lanes_want_pool(const lk_call *call);

lk_lanes_pool lk__cpu_lanes_pool_of(lk_shape x, lk_shape y, const lk_pool2d_opts *opts);

/* Of calls that are wanted. */
lk_status lk__cpu_lanes_conv2d(lk_call *call);
lk_status lk__cpu_lanes_conv2d_input_grad(lk_call *call);
lk_status lk__cpu_lanes_conv2d_weight_grad(lk_call *call);
lk_status lk__cpu_lanes_avg_pool2d(lk_call *call);
lk_status lk__cpu_lanes_avg_pool2d_grad(lk_call *call);

#endif
