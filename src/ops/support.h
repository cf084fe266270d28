/* Shared by the files of ops/: checks with their error texts, and the less usual kinds of calls. */
#pragma once

#include "base/mem.h"
#include "base/status.h"
#include "core/shape.h"
#include "core/tensor.h"
#include "ops/ops.h"

/* --- checks; `op` and `operand` ("x") are for the message --------------------------------------------------------- */

/* The dtype of a result of operands of `dtype`, given the attribute `f32`: see ops.h. */
lk_dtype lk__result_dtype(lk_dtype dtype, bool f32);

/* Checks that a tensor can have this shape. Errors: LK_ERR_SHAPE (too many axes, a negative size, a count beyond
 * int64). */
lk_status lk__check_shape(const char *op, lk_shape shape);

/* `allowed`: bits as in lk_kernel.dtypes. Errors: LK_ERR_DTYPE. */
lk_status lk__check_dtype(const char *op, const char *operand, lk_dtype dtype, unsigned allowed);

/* Checks that all inputs have the first one's dtype. Errors: LK_ERR_DTYPE. */
lk_status lk__check_same_dtype(const lk_call *call);

lk_status lk__check_ndim(const char *op, const char *operand, const lk_tensor *x, int ndim);

/* Checks that x has dtype `like` and shape `shape`. Errors: LK_ERR_DTYPE, LK_ERR_SHAPE. */
lk_status lk__check_like(const char *op, const char *operand, const lk_tensor *x, lk_dtype like, lk_shape shape);

/* Checks that `out`, which is to be written, is no expanded view. Errors: LK_ERR_ARGUMENT. */
lk_status lk__check_writable(const char *op, const lk_tensor *out);

/* A window that slides along one axis. */
typedef struct lk_window {
    int64_t kernel, stride, padding, dilation;
} lk_window;

/* Sets *count to floor((size + 2 padding - dilation (kernel - 1) - 1) / stride) + 1. `axis`: "H" or "W".
 * Errors: LK_ERR_ARGUMENT (an option out of range), LK_ERR_SHAPE (the kernel does not fit). */
lk_status lk__window_count(const char *op, const char *axis, int64_t size, lk_window window, int64_t *count);

/* --- calls -------------------------------------------------------------------------------------------------------- */

/* LK_OK, or the error of the operator that should have made `x`. */
lk_status lk__made(const lk_tensor *x);

/* Reports that a required argument of `op` is NULL, unless the thread has an error already. Returns the thread's
 * error. */
lk_status lk__missing(const char *op, const char *argument);

/* lk__missing for functions that return a tensor: returns NULL. */
lk_tensor *lk__missing_tensor(const char *op, const char *argument);

/* lk__call for an operator with several new outputs, of which only the first is returned: the others are released
 * unless a tape keeps them. NULL on failure. */
lk_tensor *lk__call_first(lk_call *call);

/* lk__call that the open tape does not record. */
lk_status lk__call_unrecorded(lk_call *call);

/* A call with one new output on `device`, wherever the inputs are. `dtype` selects the kernel. */
lk_tensor *lk__call_on(lk_call_site at, const lk_op *op, lk_device *device, lk_dtype dtype, lk_tensor *const *in,
                       int n_in, const void *attrs, size_t attrs_size);

/* A call of an operator with one input and one axis: lk_axis_attrs. */
lk_tensor *lk__call_axis(lk_call_site at, const lk_op *op, lk_tensor *x, int axis);

/* Writes element by element into `out`, on its device. Not recorded. An input that overlaps `out` without being the
 * same view is copied first. Errors: LK_ERR_ARGUMENT (`out` repeats elements). */
lk_status lk__call_into(lk_call_site at, const lk_op *op, lk_tensor *out, lk_tensor *const *in, int n_in,
                        const void *attrs, size_t attrs_size);

/* The usual gradient rule: din[0] is the result of `op` for the inputs `in`, with the forward call's attributes. Does
 * nothing if the output did not contribute or din[0] is not wanted. */
lk_status lk__gradient_call(lk_gradient *g, const lk_op *op, lk_tensor *const *in, int n_in);

/* Ends the scope that the caller began and hands `result` to the scope around it. */
lk_tensor *lk__scope_return(lk_tensor *result);

/* An lk_op.infer: the first input's dtype and shape. */
lk_status lk__infer_same(const lk_call *call, lk_meta *out);

/* An lk_op.flops: one for each element of the first output, or of the first input. */
double lk__flops_output(const lk_call *call);
double lk__flops_input(const lk_call *call);
