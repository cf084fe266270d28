/* Tensors: a dtype, a shape and strides over reference-counted storage on a device.
 *
 * Operators return at once; a tensor's elements arrive when its device gets there. Reading on the host waits by itself.
 * Where an operator fails on the device, what it would have written is poisoned: waiting for it, or for anything made
 * from it, gives back the error with the operator, its shapes and the place in the source that asked for it.
 *
 * Ownership. A function that returns a new tensor returns one reference. It belongs to the innermost open scope of the
 * calling thread, which releases it when it ends; where no scope is open it belongs to the caller. Arguments are
 * borrowed. NULL as a tensor argument gives NULL back and keeps the first error, so calls chain. */
#ifndef LOCKSTEP_TENSOR_H
#define LOCKSTEP_TENSOR_H

#include "lockstep/device.h"
#include "lockstep/status.h"

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum lk_dtype { LK_F32, LK_BF16, LK_F64, LK_I32, LK_I64, LK_U8, LK_DTYPE_COUNT } lk_dtype;

/* Bytes an element, and "f32". */
LK_API size_t lk_dtype_size(lk_dtype dtype);
LK_API const char *lk_dtype_name(lk_dtype dtype);

#define LK_MAX_DIMS 6

/* Sizes, outermost first. ndim 0 is a scalar. Sizes may be 0. */
typedef struct lk_shape {
    int ndim;
    int64_t dim[LK_MAX_DIMS];
} lk_shape;

/* LK_SHAPE(256, 1, 28, 28) */
#define LK_SHAPE(...) \
    ((lk_shape){.ndim = (int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), .dim = {__VA_ARGS__}})
#define LK_SCALAR ((lk_shape){.ndim = 0})

/* Elements; -1 where ndim or a size is out of range, or 64 bits cannot count them. */
LK_API int64_t lk_shape_count(lk_shape shape);

typedef struct lk_tensor lk_tensor;

/* Scopes nest. lk_scope_end releases what was returned to this thread since the matching lk_scope_begin. To keep a
 * tensor beyond that, take a reference of your own with lk_tensor_retain. */
LK_API void lk_scope_begin(void);
LK_API void lk_scope_end(void);

/* retain gives back its argument; release(NULL) is fine. Memory is freed when the last use on any device has run. */
LK_API lk_tensor *lk_tensor_retain(lk_tensor *tensor);
LK_API void lk_tensor_release(lk_tensor *tensor);

/* A tensor whose elements are not set. Errors: LK_ERR_SHAPE (negative size, too many bytes), LK_ERR_MEMORY. */
LK_API lk_tensor *lk_tensor_new(lk_device *device, lk_dtype dtype, lk_shape shape);

/* A tensor with a copy of `data`, plain and row-major. `data` may be changed as soon as the call returns. */
LK_API lk_tensor *lk_tensor_from(lk_device *device, lk_dtype dtype, lk_shape shape, const void *data);

/* A tensor over memory of the caller's, plain, row-major, aligned to its elements, that the caller leaves alone until
 * `release(user)` is called: once, from any thread (a device's own included: it must not push work), when the last use
 * has run. On failure it is not called. A device with memory of its own copies the elements there when their turn
 * comes. Errors: LK_ERR_ARGUMENT (not aligned), LK_ERR_SHAPE, LK_ERR_MEMORY. */
LK_API lk_tensor *lk_tensor_wrap(lk_device *device, lk_dtype dtype, lk_shape shape, void *data,
                                 void (*release)(void *user), void *user);

LK_API lk_dtype lk_tensor_dtype(const lk_tensor *tensor);
LK_API lk_shape lk_tensor_shape(const lk_tensor *tensor);
LK_API int64_t lk_tensor_count(const lk_tensor *tensor); /* elements */
LK_API lk_device *lk_tensor_device(const lk_tensor *tensor);

/* Waits until the tensor's elements are there. Gives back the error of whatever was to write them. */
LK_API lk_status lk_tensor_wait(lk_tensor *tensor);

/* Waits, then copies all elements to `data`, plain and row-major; `bytes` must be their exact size. */
LK_API lk_status lk_tensor_read(lk_tensor *tensor, void *data, size_t bytes);

/* Waits for earlier uses, then replaces all elements with those at `data`. Views of the same storage see it. */
LK_API lk_status lk_tensor_write(lk_tensor *tensor, const void *data, size_t bytes);

/* The only element of a tensor, as a double. Waits. Errors: LK_ERR_SHAPE (not one element). */
LK_API lk_status lk_tensor_item(lk_tensor *tensor, double *value);

/* Prints as NumPy's print() does, and a newline. Waits. */
LK_API lk_status lk_tensor_print(lk_tensor *tensor, FILE *file);

/* The same text without the newline, to be freed with lk_free. NULL on failure. */
LK_API char *lk_tensor_text(lk_tensor *tensor);

LK_API void lk_free(void *memory);

#ifdef __cplusplus
}
#endif

#endif
