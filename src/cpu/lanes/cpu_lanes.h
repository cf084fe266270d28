/* Operators that run on the kernels of lanes.h: conv2d, its gradients, and average pooling. */
#pragma once

#include "cpu/lanes/lanes.h"
#include "cpu/onednn/cpu_convert.h"
#include "cpu/onednn/cpu_layout.h"
#include "ops/conv_problem.h"
#include "lockstep/ops.h"

/* The names that lk_device_implementations shows, for f32 and bf16; there must be kernels for bf16. Static. */
const char *lk__cpu_lanes_name(void);
const char *lk__cpu_lanes_bf16_name(void);

/* Finds or adds the layout that the kernels of lk__isa() work in, for a tensor of shape `shape`. */
lk_status lk__cpu_lanes_layout(lk_shape shape, lk_dtype dtype, const lk_layout **layout);

/* Returns whether `images` images fill enough lanes, on a processor that lanes.h has kernels for. */
bool lk__cpu_lanes_fill(int64_t images);

/* The same, and `channels` do not fill blocks of channels. */
bool lk__cpu_lanes_want(int64_t images, int64_t channels);

/* Returns whether lanes.h can run a convolution of these shapes and its gradients. */
bool lk__cpu_lanes_take_conv(lk_shape x, const lk_conv2d_opts *opts);

/* Returns whether lanes.h should run them: there are at least eight images, and neither number of channels fills
 * oneDNN's blocks, which are as wide as vectors. */
bool lk__cpu_lanes_want_conv(lk_shape x, lk_shape w, const lk_conv2d_opts *opts);

/* Returns whether lanes.h should run avg_pool2d or its gradient, f32 or bf16: a convolution next to it has, or will
 * want, the same layout. */
bool lk__cpu_lanes_want_pool(const lk_call *call);

/* The kernels take a bias, and give gradients of parameters, in f32. A bf16 call has these in its scratch memory.
 *
 * Returns the bytes for `parameter`, an input or an output; 0 if it is f32 or NULL. */
size_t lk__cpu_lanes_wide_bytes(const lk_tensor *parameter);
/* Returns the elements of input `i` in f32, widened into `memory` if it is bf16. NULL: the input is absent. */
const float *lk__cpu_lanes_widened(const lk_call *call, const lk_converted *in, int i, void *memory);
/* Returns where a kernel writes `parameter`, an output; lk__cpu_lanes_round then rounds it, unless it is f32. */
float *lk__cpu_lanes_wide(const lk_tensor *parameter, void *memory);
void lk__cpu_lanes_round(const lk_tensor *parameter, const float *wide);

/* Each runs a call that lanes.h takes. */
lk_status lk__cpu_lanes_conv2d(lk_call *call);
lk_status lk__cpu_lanes_conv2d_input_grad(lk_call *call);
lk_status lk__cpu_lanes_conv2d_weight_grad(lk_call *call);
lk_status lk__cpu_lanes_avg_pool2d(lk_call *call);
lk_status lk__cpu_lanes_avg_pool2d_grad(lk_call *call);
