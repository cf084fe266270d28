/* Gets a call's operands into the order in memory that a kernel needs. */
#pragma once

#include "cuda/cuda_state.h"

/* The layout of images that are channels-last. Only its address matters. A NULL layout is plain (row-major) order. */
extern const char lk__cuda_channels_last[];

/* A temporary of `bytes` bytes, which lk__cuda_end frees. NULL after this or an earlier failure. */
void *lk__cuda_new(lk_cuda_scratch *scratch, size_t bytes);

/* The elements of x in row-major order: x's own memory if it has that order, otherwise a temporary. NULL for x NULL,
 * and after a failure. */
void *lk__cuda_plain(lk_cuda_scratch *scratch, const lk_tensor *x);

/* The same for images [N, C, H, W], or anything [N, C, …], in channels-last order. */
void *lk__cuda_images(lk_cuda_scratch *scratch, const lk_tensor *x);

/* The same in the order of `layout`, NULL or lk__cuda_channels_last. */
void *lk__cuda_as(lk_cuda_scratch *scratch, const lk_tensor *x, const void *layout);

/* Memory to write out[i] to in row-major order; NULL if there is no such output, and after a failure. If the output is
 * a view with gaps, the memory is a temporary, from which lk__cuda_end writes the output. */
void *lk__cuda_out(lk_cuda_scratch *scratch, int i);

/* The same for images in channels-last order, and in the order of `layout`. An order other than row-major needs a
 * temporary unless the call leaves the layout to its kernel. */
void *lk__cuda_out_images(lk_cuda_scratch *scratch, int i);
void *lk__cuda_out_as(lk_cuda_scratch *scratch, int i, const void *layout);

/* The layout that needs the fewest conversions, for a kernel that takes its first n inputs and its output in any common
 * order: channels-last if one of the inputs has it and the output may have it. */
const void *lk__cuda_common_layout(const lk_call *call, int n);

/* Ends a call whose launches have been made: writes the outputs that have temporaries, frees all temporaries, and
 * returns the first failure of the call, including those of these steps. */
lk_status lk__cuda_end(lk_cuda_scratch *scratch);

/* Strides of a dense tensor of shape `shape` in `layout`, for each axis in the logical order. */
void lk__cuda_strides(lk_shape shape, const void *layout, int64_t *strides);

/* Returns whether plain and channels-last order of `shape` are the same. */
bool lk__cuda_orders_agree(lk_shape shape);

/* Starts y = x with any dtypes; both have the shape `shape`. */
lk_status lk__cuda_convert(const lk_call *call, lk_shape shape, lk_gpu_view y, lk_gpu_view x);

/* Views of x in the order that it has, and of dense elements at `data` in the order of `layout`. */
lk_gpu_view lk__cuda_view(const lk_tensor *x);
lk_gpu_view lk__cuda_dense_view(void *data, lk_dtype dtype, lk_shape shape, const void *layout);
