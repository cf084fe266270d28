/* What the files of ops/ share: checks with their error texts, and calls other than the usual one. */
#ifndef LK_OPS_SUPPORT_H
#define LK_OPS_SUPPORT_H

#include "base/mem.h"
#include "base/status.h"
#include "core/tensor.h"
#include "ops/ops.h"

/* --- checks: `op` and `operand` ("x") are for the message --------------------------------------------------------- */

/* "[32,1,28,28]" by value: lk__text(shape).string lives until the end of the full expression (C11 6.2.4p8). */
typedef struct lk_shape_text {
    char string[128];
} lk_shape_text;

lk_shape_text lk__text(lk_shape shape);

/* The dtype of what is made of operands of `dtype`, where attributes say `f32`. */
lk_dtype lk__result_dtype(lk_dtype dtype, bool f32);

/* A shape that a tensor can have. Errors: LK_ERR_SHAPE (too many axes, a negative size, a count beyond int64). */
lk_status lk__check_shape(const char *op, lk_shape shape);

/* `allowed` as in lk_kernel.dtypes. Errors: LK_ERR_DTYPE. */
lk_status lk__check_dtype(const char *op, const char *operand, lk_dtype dtype, unsigned allowed);

/* All of the call's inputs have the first one's dtype. */
lk_status lk__check_same_dtype(const lk_call *call);

lk_status lk__check_ndim(const char *op, const char *operand, const lk_tensor *x, int ndim);

/* x has dtype `like` and this shape. */
lk_status lk__check_like(const char *op, const char *operand, const lk_tensor *x, lk_dtype like, lk_shape shape);

/* `out`, which is to be written, is no expanded view. Errors: LK_ERR_ARGUMENT. */
lk_status lk__check_writable(const char *op, const lk_tensor *out);

/* How a window slides along one axis. */
typedef struct lk_window {
    int64_t kernel, stride, padding, dilation;
} lk_window;

/* *count = floor((size + 2 padding - dilation (kernel - 1) - 1) / stride) + 1. `axis`: "H" or "W".
 * Errors: LK_ERR_ARGUMENT (an option out of range), LK_ERR_SHAPE (the kernel does not fit). */
lk_status lk__window_count(const char *op, const char *axis, int64_t size, lk_window window, int64_t *count);

/* The shape of conv2d's y; only the batch may be empty. Options have every default filled in.
 * Errors: LK_ERR_SHAPE, LK_ERR_ARGUMENT (an option out of range). */
lk_status lk__conv2d_shape(const char *op, lk_shape x, lk_shape w, const lk_conv2d_opts *opts, lk_shape *y);

/* 2 N O H' W' C/groups KH KW, for the convolution and for either gradient. */
double lk__conv2d_flops(lk_shape y, lk_shape w);

/* The shape of a pooling's y; padding is at most half the kernel, so every window holds an element of x. */
lk_status lk__pool2d_shape(const char *op, lk_shape x, const lk_pool2d_opts *opts, lk_shape *y);

/* --- calls -------------------------------------------------------------------------------------------------------- */

/* LK_OK, or why the operator that should have made `x` gave NULL. */
lk_status lk__made(const lk_tensor *x);

/* Fails, unless an error is kept already, for a required argument of `op` that is NULL. */
lk_status lk__missing(const char *op, const char *argument);

/* One new output on `device`, wherever the inputs are. `dtype` selects the kernel. */
lk_tensor *lk__call_on(lk_place at, const lk_op *op, lk_device *device, lk_dtype dtype, lk_tensor *const *in, int n_in,
                       const void *attrs, size_t attrs_size);

/* An operator of one input along one axis: lk_axis_attrs. */
lk_tensor *lk__call_axis(lk_place at, const lk_op *op, lk_tensor *x, int axis);

/* Element by element into `out`, on its device. Not recorded. An input that overlaps `out` without being the same view
 * is copied first. Errors: LK_ERR_ARGUMENT (out repeats elements). */
lk_status lk__call_into(lk_place at, const lk_op *op, lk_tensor *out, lk_tensor *const *in, int n_in, const void *attrs,
                        size_t attrs_size);

/* Ends the scope that the caller began; `result` outlives it and goes to the scope around it. */
lk_tensor *lk__scope_return(lk_tensor *result);

/* lk_op.infer: the first input's dtype and shape. */
lk_status lk__infer_same(const lk_call *call, lk_meta *out);

/* lk_op.flops: one for each element of the first output, or of the first input. */
double lk__flops_output(const lk_call *call);
double lk__flops_input(const lk_call *call);

#endif
