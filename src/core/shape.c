#include "core/shape.h"
#include "base/mem.h"

#include <stdio.h>

/* Strides skip sizes of 0, so the others must not overflow either. */
int64_t lk_shape_count(lk_shape shape)
{
    int64_t count = 1;
    bool is_empty = false;
    if (shape.ndim < 0 || shape.ndim > LK_MAX_DIMS)
        return -1;
    for (int i = 0; i < shape.ndim; i++) {
        is_empty |= shape.dim[i] == 0;
        if (shape.dim[i] < 0 || !lk__mul_i64(count, shape.dim[i] ? shape.dim[i] : 1, &count))
            return -1;
    }
    return is_empty ? 0 : count;
}

lk_status lk__shape_count(lk_shape shape, int64_t *count)
{
    if (shape.ndim < 0 || shape.ndim > LK_MAX_DIMS)
        LK_FAIL(LK_ERR_SHAPE, "shape: %d dimensions, where 0 to %d are possible", shape.ndim, LK_MAX_DIMS);
    for (int i = 0; i < shape.ndim; i++)
        if (shape.dim[i] < 0)
            LK_FAIL(LK_ERR_SHAPE, "shape: size %lld of dimension %d is negative", (long long)shape.dim[i], i);
    *count = lk_shape_count(shape);
    if (*count < 0)
        LK_FAIL(LK_ERR_SHAPE, "shape: more elements than 64 bits can count");
    return LK_OK;
}

lk_status lk__shape_bytes(lk_shape shape, lk_dtype dtype, size_t *bytes)
{
    int64_t count, total;
    if ((unsigned)dtype >= LK_DTYPE_COUNT)
        LK_FAIL(LK_ERR_DTYPE, "dtype %d does not exist", (int)dtype);
    LK_TRY(lk__shape_count(shape, &count));
    if (!lk__mul_i64(count, (int64_t)lk_dtype_size(dtype), &total))
        LK_FAIL(LK_ERR_SHAPE, "shape: more bytes than 64 bits can count");
    *bytes = (size_t)total;
    return LK_OK;
}

bool lk__shape_equal(lk_shape a, lk_shape b)
{
    if (a.ndim != b.ndim)
        return false;
    for (int i = 0; i < a.ndim; i++)
        if (a.dim[i] != b.dim[i])
            return false;
    return true;
}

void lk__shape_strides(lk_shape shape, int64_t *strides)
{
    int64_t stride = 1;
    for (int i = shape.ndim - 1; i >= 0; i--) {
        strides[i] = stride;
        stride *= shape.dim[i] > 0 ? shape.dim[i] : 1;
    }
}

void lk__shape_text(lk_shape shape, char *text, size_t size)
{
    size_t used = 0;
    if (size == 0)
        return;
    text[0] = '\0';
    for (int i = 0; i <= shape.ndim && used < size; i++) {
        int n = i < shape.ndim ? snprintf(text + used, size - used, "%c%lld", i ? ',' : '[', (long long)shape.dim[i])
                               : snprintf(text + used, size - used, i ? "]" : "[]");
        used += n > 0 ? (size_t)n : 0;
    }
}

lk_shape_text lk__text(lk_shape shape)
{
    lk_shape_text text;
    lk__shape_text(shape, text.string, sizeof text.string);
    return text;
}

lk_status lk__axis(const char *op, int axis, int ndim, int *normal)
{
    if (axis < -ndim || axis >= ndim)
        LK_FAIL(LK_ERR_SHAPE, "%s: axis %d of a tensor with %d dimension%s", op, axis, ndim, ndim == 1 ? "" : "s");
    *normal = axis < 0 ? axis + ndim : axis;
    return LK_OK;
}
