/* Tensors inside the library: making them, reaching their elements from a kernel. */
#ifndef LK_CORE_TENSOR_H
#define LK_CORE_TENSOR_H

#include "core/op.h"

/* *count = product of sizes, *bytes = that times the dtype's size; checked. */
lk_status lk__shape_count(lk_shape shape, int64_t *count);
lk_status lk__shape_bytes(lk_shape shape, lk_dtype dtype, size_t *bytes);
bool lk__shape_equal(lk_shape a, lk_shape b);
void lk__shape_strides(lk_shape shape, int64_t *strides); /* row-major */

/* "[32,1,28,28]" */
void lk__shape_text(lk_shape shape, char *text, size_t size);

/* Axis in [0, ndim), counting a negative one from the end. */
lk_status lk__axis(const char *op, int axis, int ndim, int *normal);

/* A new plain tensor, with no scope's reference: the caller's alone. */
lk_status lk__tensor_new(lk_device *device, lk_dtype dtype, lk_shape shape, lk_tensor **tensor);

/* The same over `storage`, which it holds: of like's dtype, shape, strides and offset. NULL: no memory. */
lk_tensor *lk__tensor_over(lk_storage *storage, const lk_tensor *like);

/* Hands the caller's reference to the innermost scope, if one is open. Gives back the tensor, or NULL (released) when
 * the scope could not grow. */
lk_tensor *lk__scope_adopt(lk_tensor *tensor);

/* For functions that return several tensors: given `status` of making them and a reference to each, hands them to the
 * open scope, or, on failure, releases them and sets every entry to NULL. NULL entries stay. Gives back the status. */
lk_status lk__scope_adopt_all(lk_tensor **tensors, int64_t n, lk_status status);

/* Row-major without gaps. */
bool lk__tensor_is_dense(const lk_tensor *tensor);

/* Dense, and all of its storage. */
bool lk__tensor_is_whole(const lk_tensor *tensor);

/* The struct's copy, for a kernel to change, without its references: other threads may be counting those meanwhile. */
lk_tensor lk__tensor_alias(const lk_tensor *tensor);

/* First element. On the device's thread, inside a kernel, of plain storage. */
void *lk__data(const lk_tensor *tensor);

/* For kernels with LK_KERNEL_LAYOUTS: allocates an output as plain. */
lk_status lk__output_plain(lk_tensor *out);

/* Pushes a conversion to the plain layout where the storage might have another. */
lk_status lk__tensor_make_plain(lk_tensor *tensor);

#endif
