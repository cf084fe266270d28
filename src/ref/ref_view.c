/* Views of operands, and the walk through them row by row. */
#include "core/shape.h"
#include "core/tensor.h"
#include "ref/ref.h"

#include <string.h>

lk_ref_view lk__ref_view(const lk_tensor *t)
{
    lk_ref_view view = {.data = lk__data(t), .dtype = t->dtype, .shape = t->shape};
    memcpy(view.strides, t->strides, sizeof view.strides);
    return view;
}

lk_ref_view lk__ref_broadcast(lk_ref_view view, lk_shape shape)
{
    lk_ref_view wide = {.data = view.data, .dtype = view.dtype, .shape = shape};
    int leading = shape.ndim - view.shape.ndim;
    for (int i = leading; i < shape.ndim; i++)
        wide.strides[i] = view.shape.dim[i - leading] == 1 ? 0 : view.strides[i - leading];
    return wide;
}

lk_ref_view lk__ref_dense(void *data, lk_dtype dtype, lk_shape shape)
{
    lk_ref_view view = {.data = data, .dtype = dtype, .shape = shape};
    lk__shape_strides(shape, view.strides);
    return view;
}

int64_t lk__ref_extent(lk_shape shape, int begin, int end)
{
    int64_t product = 1;
    for (int i = begin; i < end; i++)
        product *= shape.dim[i];
    return product;
}

int64_t lk__ref_count(lk_shape shape)
{
    return lk__ref_extent(shape, 0, shape.ndim);
}

bool lk__ref_is_dense(lk_ref_view view)
{
    int64_t stride = 1;
    for (int i = view.shape.ndim - 1; i >= 0; i--) {
        if (view.shape.dim[i] != 1 && view.strides[i] != stride)
            return false;
        stride *= view.shape.dim[i];
    }
    return true;
}

/* --- rows -------------------------------------------------------------------------------------------------------- */

/* Returns whether `axis` continues the last axis of `rows` evenly in all operands, so that the two can be merged. */
static bool ref_rows_step_evenly(const lk_ref_rows *rows, const lk_ref_view *views, int axis)
{
    if (rows->axes == 0)
        return false;
    for (int k = 0; k < rows->operands; k++) {
        int64_t whole = views[k].strides[axis] * views[k].shape.dim[axis] * (int64_t)lk_dtype_size(views[k].dtype);
        if (rows->stride[k][rows->axes - 1] != whole)
            return false;
    }
    return true;
}

static void ref_rows_add_axis(lk_ref_rows *rows, const lk_ref_view *views, int axis)
{
    int64_t size = views[0].shape.dim[axis];
    bool merged = ref_rows_step_evenly(rows, views, axis);
    int last = merged ? rows->axes - 1 : rows->axes++;
    rows->size[last] = merged ? rows->size[last] * size : size;
    for (int k = 0; k < rows->operands; k++)
        rows->stride[k][last] = views[k].strides[axis] * (int64_t)lk_dtype_size(views[k].dtype);
}

void lk__ref_rows_begin(lk_ref_rows *rows, const lk_ref_view *views, int n)
{
    *rows = (lk_ref_rows){.operands = n, .length = 1};
    for (int k = 0; k < n; k++)
        rows->row[k] = views[k].data;
    if (lk__ref_count(views[0].shape) == 0)
        return;
    for (int i = 0; i < views[0].shape.ndim; i++)
        if (views[0].shape.dim[i] != 1)
            ref_rows_add_axis(rows, views, i);
    if (rows->axes > 0) {
        int inner = --rows->axes;
        rows->length = rows->size[inner];
        for (int k = 0; k < n; k++)
            rows->step[k] = rows->stride[k][inner] / (int64_t)lk_dtype_size(views[k].dtype);
    }
    rows->left = 1;
    for (int i = 0; i < rows->axes; i++)
        rows->left *= rows->size[i];
}

void lk__ref_rows_next(lk_ref_rows *rows)
{
    rows->left--;
    for (int i = rows->axes - 1; i >= 0; i--) {
        bool carry = ++rows->index[i] == rows->size[i];
        if (carry)
            rows->index[i] = 0;
        for (int k = 0; k < rows->operands; k++)
            rows->row[k] += carry ? rows->stride[k][i] * (1 - rows->size[i]) : rows->stride[k][i];
        if (!carry)
            return;
    }
}
