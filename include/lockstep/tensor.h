/* Tensors: a dtype, a shape and strides over reference-counted storage on a device.
 *
 *     lk_device *device = lk_device_open("cpu");
 *     lk_tensor *x = lk_tensor_from(device, LK_F32, LK_SHAPE(2, 3), data);
 *     lk_tensor *y = lk_relu(x);                  (lockstep/ops.h)
 *     lk_tensor_read(y, result, sizeof result);   waits for y
 *
 * Operators return at once; the device writes a tensor's elements later. Reading on the host waits. If an operator
 * fails on the device, its outputs are poisoned: waiting for them, or for tensors made from them, gives the error,
 * which names the operator, its shapes and the line of source that called it.
 *
 * Ownership: a function that returns a new tensor returns one reference. It belongs to the calling thread's innermost
 * open scope, which releases it when the scope ends; without a scope it belongs to the caller. Arguments are borrowed.
 * A NULL tensor argument gives NULL and keeps the first error, so calls can be chained. */
#ifndef LOCKSTEP_TENSOR_H
#define LOCKSTEP_TENSOR_H

#include "lockstep/device.h"
#include "lockstep/status.h"

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#ifdef __cplusplus
#include <initializer_list>

extern "C" {
#endif

typedef enum lk_dtype { LK_F32, LK_BF16, LK_F64, LK_I32, LK_I64, LK_U8, LK_DTYPE_COUNT } lk_dtype;

/* The bytes of an element, and a name such as "f32". */
LK_API size_t lk_dtype_size(lk_dtype dtype);
LK_API const char *lk_dtype_name(lk_dtype dtype);

#define LK_MAX_DIMS 6

/* Sizes, outermost axis first; they may be 0. ndim 0: a scalar. */
typedef struct lk_shape {
    int ndim;
    int64_t dim[LK_MAX_DIMS];
} lk_shape;

/* LK_SHAPE(256, 1, 28, 28) */
#ifdef __cplusplus
#define LK_SHAPE(...) (lk_shape{(int)std::initializer_list<int64_t>{__VA_ARGS__}.size(), {__VA_ARGS__}})
#define LK_SCALAR (lk_shape{})
#else
#define LK_SHAPE(...) \
    ((lk_shape){.ndim = (int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), .dim = {__VA_ARGS__}})
#define LK_SCALAR ((lk_shape){.ndim = 0})
#endif

/* The number of elements; -1: ndim or a size is out of range, or 64 bits do not hold the number. */
LK_API int64_t lk_shape_count(lk_shape shape);

typedef struct lk_tensor lk_tensor;

/* Scopes nest. lk_scope_end releases what was returned to this thread since the matching lk_scope_begin. To keep a
 * tensor beyond that, take a reference of your own with lk_tensor_retain. */
LK_API void lk_scope_begin(void);
LK_API void lk_scope_end(void);

/* retain returns its argument; release(NULL) is fine. Memory is freed when the last use on any device has run. */
LK_API lk_tensor *lk_tensor_retain(lk_tensor *tensor);
LK_API void lk_tensor_release(lk_tensor *tensor);

/* A tensor without values. Errors: LK_ERR_SHAPE (negative or too large), LK_ERR_ARGUMENT (no device), LK_ERR_MEMORY. */
LK_API lk_tensor *lk_tensor_new(lk_device *device, lk_dtype dtype, lk_shape shape);

/* A new tensor with a copy of `data`, which is row-major without gaps and may be changed as soon as the call returns.
 * Errors: those of lk_tensor_new. */
LK_API lk_tensor *lk_tensor_from(lk_device *device, lk_dtype dtype, lk_shape shape, const void *data);

/* A new tensor over the caller's memory, which is row-major without gaps, aligned to its elements, and must not be
 * changed or freed until `release(user)` is called. That happens once, when the last use has run, in any thread, even a
 * device's; so `release` must not push work. It is not called on failure. Devices with memory of their own copy the
 * elements when they are first used. Errors: LK_ERR_ARGUMENT (not aligned; no device), LK_ERR_SHAPE, LK_ERR_MEMORY. */
LK_API lk_tensor *lk_tensor_wrap(lk_device *device, lk_dtype dtype, lk_shape shape, void *data,
                                 void (*release)(void *user), void *user);

LK_API lk_dtype lk_tensor_dtype(const lk_tensor *tensor);
LK_API lk_shape lk_tensor_shape(const lk_tensor *tensor);
LK_API int64_t lk_tensor_count(const lk_tensor *tensor); /* elements */
LK_API lk_device *lk_tensor_device(const lk_tensor *tensor);

/* Waits until the tensor's elements are written. Errors: that of the operator that should have written them. */
LK_API lk_status lk_tensor_wait(lk_tensor *tensor);

/* Waits, then copies all elements to `data`, row-major without gaps; `bytes` must be their exact size. Errors: those of
 * lk_tensor_wait; LK_ERR_ARGUMENT (bytes); LK_ERR_STATE (nothing was written to the tensor). */
LK_API lk_status lk_tensor_read(lk_tensor *tensor, void *data, size_t bytes);

/* Waits for earlier uses, then replaces all elements by those at `data`, row-major without gaps; `bytes` must be their
 * exact size. Views of the same storage change too. */
LK_API lk_status lk_tensor_write(lk_tensor *tensor, const void *data, size_t bytes);

/* Waits, then sets *value to the only element of a tensor. Errors: LK_ERR_SHAPE (not one element), those of
 * lk_tensor_wait. */
LK_API lk_status lk_tensor_item(lk_tensor *tensor, double *value);

/* Waits, then prints the tensor as NumPy's print() does, and a newline. */
LK_API lk_status lk_tensor_print(lk_tensor *tensor, FILE *file);

/* The same, and a line that says dtype, shape and device: "<f32[20] on cpu:0>". */
LK_API lk_status lk_tensor_show(lk_tensor *tensor, FILE *file);

/* Waits, then gives the text of lk_tensor_print without the newline; free it with lk_free. NULL on failure. */
LK_API char *lk_tensor_text(lk_tensor *tensor);

/* Frees memory that a function of this library says to free with it. NULL is fine. */
LK_API void lk_free(void *memory);

#ifdef __cplusplus
}
#endif

#endif
