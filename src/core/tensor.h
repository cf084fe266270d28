/* Tensors inside the library: making them, and reaching their elements from a kernel. */
#pragma once

#include "core/op.h"

/* Makes a plain tensor with one reference, the caller's; no scope adopts it. */
lk_status lk__tensor_new(lk_device *device, lk_dtype dtype, lk_shape shape, lk_tensor **tensor);

/* Returns a new tensor over `storage`, to which it takes a reference, with the dtype, shape, strides and offset of
 * `like`. NULL: no memory. */
lk_tensor *lk__tensor_over(lk_storage *storage, const lk_tensor *like);

/* Releases n tensors. The array may be NULL, and so may its entries. */
static inline void lk__tensors_release(lk_tensor *const *tensors, int64_t n)
{
    for (int64_t i = 0; tensors && i < n; i++)
        lk_tensor_release(tensors[i]);
}

/* Returns whether the elements are row-major without gaps. */
bool lk__tensor_is_dense(const lk_tensor *tensor);

/* Goes through the rows of a view, the runs along its last axis, in row-major order: moves `offset`, in elements, to
 * the next row. `index`, LK_MAX_DIMS long, and `offset` begin as 0. Returns false behind the last row. */
bool lk__tensor_next_row(const lk_tensor *tensor, int64_t *index, int64_t *offset);

/* Returns whether the tensor is dense and covers all of its storage. */
bool lk__tensor_is_whole(const lk_tensor *tensor);

/* Returns whether two tensors have the same storage, offset, shape and strides. */
bool lk__tensor_same_view(const lk_tensor *a, const lk_tensor *b);

/* Returns a copy of the struct for a kernel to change, without the reference counts, which other threads may be
 * changing. */
lk_tensor lk__tensor_alias(const lk_tensor *tensor);

/* Returns an element of `dtype` as a double, which is exact except for large i64. `data` need not be aligned. */
double lk__element_value(lk_dtype dtype, const void *data);

/* Returns the first element. On the device's thread, inside a kernel, and only for plain storage. */
void *lk__data(const lk_tensor *tensor);

/* For kernels with LK_KERNEL_LAYOUTS: allocates an output in the plain layout. */
lk_status lk__output_plain(lk_tensor *out);

/* Pushes a conversion to the plain layout if the storage may have another. */
lk_status lk__tensor_make_plain(lk_tensor *tensor);
