/* Operators that run on the kernels of lanes.h: conv2d, its gradients, and average pooling. */
#pragma once

#include "cpu/lanes/lanes.h"
#include "cpu/onednn/cpu_layout.h"
#include "ops/conv_problem.h"
#include "lockstep/ops.h"

/* The name that lk_device_implementations shows. Static. */
const char *lk__cpu_lanes_name(void);

/* The layout that the kernels of lk__isa() work in. */
dnnl_format_tag_t lk__cpu_lanes_tag(void);

/* Returns whether `images` images fill enough lanes, on a processor that lanes.h has kernels for. */
bool lk__cpu_lanes_fill(int64_t images);

/* The same, and `channels` do not fill blocks of channels. */
bool lk__cpu_lanes_want(int64_t images, int64_t channels);

/* Returns whether lanes.h can run a convolution of these shapes and its gradients. */
bool lk__cpu_lanes_take_conv(lk_shape x, const lk_conv2d_opts *opts);

/* Returns whether lanes.h should run them: there are at least eight images, and neither number of channels fills
 * oneDNN's blocks, which are as wide as vectors. */
bool lk__cpu_lanes_want_conv(lk_shape x, lk_shape w, const lk_conv2d_opts *opts);

/* Returns whether lanes.h should run avg_pool2d or its gradient: a convolution next to it has, or will want, the same
 * layout. */
bool lk__cpu_lanes_want_pool(const lk_call *call);

/* Each runs a call that lanes.h takes. */
lk_status lk__cpu_lanes_conv2d(lk_call *call);
lk_status lk__cpu_lanes_conv2d_input_grad(lk_call *call);
lk_status lk__cpu_lanes_conv2d_weight_grad(lk_call *call);
lk_status lk__cpu_lanes_avg_pool2d(lk_call *call);
lk_status lk__cpu_lanes_avg_pool2d_grad(lk_call *call);
