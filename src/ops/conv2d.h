/* conv2d's shapes and gradients, for the operators that contain a convolution. */
#pragma once

#include "ops/ops.h"
#include "ops/support.h"

/* Sets *y to the shape of conv2d's result; only the batch may be empty. Every default of the options is filled in.
 * Errors: LK_ERR_SHAPE, LK_ERR_ARGUMENT (an option out of range). */
lk_status lk__conv2d_shape(const char *op, lk_shape x, lk_shape w, const lk_conv2d_opts *opts, lk_shape *y);

/* 2 N O H' W' C/groups KH KW, for the convolution and for each of its gradients. */
double lk__conv2d_flops(lk_shape y, lk_shape w);

/* Return dx and dw; lk__conv2d_weight_grad also sets *dbias unless dbias is NULL. An lk_shape `x` or `w` is the shape
 * of the result. `conv` has every default filled in. f32: see ops.h. NULL on failure. */
lk_tensor *lk__conv2d_input_grad(lk_call_site at, lk_tensor *dy, lk_tensor *w, lk_shape x, const lk_conv2d_opts *conv);
lk_tensor *lk__conv2d_weight_grad(lk_call_site at, lk_tensor *dy, lk_tensor *x, lk_shape w, const lk_conv2d_opts *conv,
                                  bool f32, lk_tensor **dbias);
