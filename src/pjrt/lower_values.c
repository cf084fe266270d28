#include "pjrt/lower_values.h"
#include "base/mem.h"
#include "base/status.h"
#include "core/backend.h"
#include "core/tensor.h"

#include <string.h>

/* --- storages ----------------------------------------------------------------------------------------------------- */

static lk_hlo_storage *lower_storage_find(lk_lowering *l, const lk_storage *storage)
{
    for (int64_t i = l->n_storages; i > 0; i--)
        if (l->storages[i - 1].storage == storage)
            return &l->storages[i - 1];
    return NULL;
}

static int64_t lower_storage_count(const lk_tensor *t)
{
    return (int64_t)(t->storage->bytes / lk_dtype_size(t->dtype));
}

/* Returns the storage's entry, which is new if this is its first use; NULL after a failure. */
static lk_hlo_storage *lower_storage_of(lk_lowering *l, const lk_tensor *tensor)
{
    lk_hlo_storage *entry = lower_storage_find(l, tensor->storage);
    if (entry && entry->dtype != tensor->dtype && l->body.status == LK_OK)
        l->body.status =
            lk__fail(LK_ERR_UNSUPPORTED, "lowering: a storage is used as %s and as %s; it must have one dtype",
                     lk_dtype_name(entry->dtype), lk_dtype_name(tensor->dtype));
    if (entry)
        return l->body.status == LK_OK ? entry : NULL;
    if (l->body.status == LK_OK)
        l->body.status = LK_GROW(l->storages, &l->storages_capacity, l->n_storages + 1);
    if (l->body.status != LK_OK)
        return NULL;
    entry = &l->storages[l->n_storages++];
    *entry = (lk_hlo_storage){
        .storage = tensor->storage,
        .dtype = tensor->dtype,
        .value = {.number = -1, .type = tensor->dtype, .rank = 1, .size = {lower_storage_count(tensor)}}};
    return entry;
}

static lk_hlo lower_storage_value(lk_lowering *l, lk_hlo_storage *entry)
{
    if (entry->value.number < 0) {
        entry->is_parameter = entry->value.is_parameter = true;
        entry->parameter = entry->value.number = l->parameters++;
    }
    return entry->value;
}

/* --- views -------------------------------------------------------------------------------------------------------- */

/* A view as a box in its storage: the elements, in the shape `factors`, hold the view's in the box that begins at
 * `begin` and has the size `size`. The box' elements in row-major order are the view's with its axes in the order
 * `axes`, the longest strides first, and without those that do not move through the storage. */
typedef struct view_box {
    int rank, n_axes;
    int64_t factors[LK_HLO_AXES], begin[LK_HLO_AXES], size[LK_HLO_AXES];
    int axes[LK_MAX_DIMS];
} view_box;

static void lower_view_sort_axes(const lk_tensor *t, view_box *box)
{
    for (int i = 0; i < t->shape.ndim; i++) {
        if (t->shape.dim[i] == 1 || t->strides[i] == 0)
            continue;
        int at = box->n_axes++;
        for (; at > 0 && t->strides[box->axes[at - 1]] < t->strides[i]; at--)
            box->axes[at] = box->axes[at - 1];
        box->axes[at] = i;
    }
}

static void lower_view_add(view_box *box, int64_t factor, int64_t begin, int64_t size)
{
    box->factors[box->rank] = factor;
    box->begin[box->rank] = begin;
    box->size[box->rank++] = size;
}

/* Returns false if the view, in a storage of `count` elements, is no box: strides do not divide each other, or a row of
 * it passes the end of a block. */
static bool lower_view_as_box(const lk_tensor *t, int64_t count, view_box *box)
{
    int64_t block = count, offset = t->offset, size = 1;
    *box = (view_box){0};
    lower_view_sort_axes(t, box);
    for (int i = 0; i < box->n_axes; i++) {
        int64_t stride = t->strides[box->axes[i]];
        size *= t->shape.dim[box->axes[i]];
        if (i + 1 < box->n_axes) {
            int next = box->axes[i + 1];
            if (stride == t->strides[next] * t->shape.dim[next])
                continue; /* the two axes are one */
        }
        if (block % stride != 0 || offset / stride + size > block / stride)
            return false;
        lower_view_add(box, block / stride, offset / stride, size);
        block = stride;
        offset %= stride;
        size = 1;
    }
    if (block > 1 || box->rank == 0)
        lower_view_add(box, block, offset, 1);
    return true;
}

/* The sizes of the box' axes in the order of box->axes, and in that of the tensor. */
static void lower_view_sizes(const lk_tensor *t, const view_box *box, int64_t *sorted, int64_t *natural, int *position)
{
    int n = 0;
    for (int i = 0; i < box->n_axes; i++)
        sorted[i] = t->shape.dim[box->axes[i]];
    for (int axis = 0; axis < t->shape.ndim; axis++)
        for (int i = 0; i < box->n_axes; i++)
            if (box->axes[i] == axis) {
                natural[n] = t->shape.dim[axis];
                position[n++] = i;
            }
}

static lk_hlo lower_view_read_box(lk_lowering *l, const lk_tensor *t, const view_box *box, lk_hlo x)
{
    int64_t end[LK_HLO_AXES], ones[LK_HLO_AXES], sorted[LK_MAX_DIMS], natural[LK_MAX_DIMS];
    int position[LK_MAX_DIMS] = {0};
    for (int i = 0; i < box->rank; i++) {
        end[i] = box->begin[i] + box->size[i];
        ones[i] = 1;
    }
    lower_view_sizes(t, box, sorted, natural, position);
    x = lk__hlo_slice(l, lk__hlo_reshape(l, x, box->rank, box->factors), box->begin, end, ones);
    return lk__hlo_transpose(l, lk__hlo_reshape(l, x, box->n_axes, sorted), position);
}

static lk_hlo lower_view_write_box(lk_lowering *l, const lk_tensor *t, const view_box *box, lk_hlo whole, lk_hlo x)
{
    int64_t sorted[LK_MAX_DIMS], natural[LK_MAX_DIMS];
    int position[LK_MAX_DIMS] = {0}, order[LK_MAX_DIMS] = {0};
    lower_view_sizes(t, box, sorted, natural, position);
    for (int i = 0; i < box->n_axes; i++)
        order[position[i]] = i;
    x = lk__hlo_transpose(l, lk__hlo_reshape(l, x, box->n_axes, natural), order);
    x = lk__hlo_reshape(l, x, box->rank, box->size);
    return lk__hlo_replace(l, lk__hlo_reshape(l, whole, box->rank, box->factors), x, box->begin);
}

/* Repeats x along the axes of the tensor whose stride is 0. */
static lk_hlo lower_view_repeat(lk_lowering *l, const lk_tensor *t, lk_hlo x)
{
    lk_hlo like = lk__hlo_like(LK_F32, t->shape);
    lk_shape shape = t->shape;
    int axes[LK_MAX_DIMS];
    bool repeats = false;
    for (int i = 0; i < shape.ndim; i++) {
        axes[i] = i;
        repeats |= t->strides[i] == 0 && shape.dim[i] != 1;
        shape.dim[i] = t->strides[i] == 0 ? 1 : shape.dim[i];
    }
    x = lk__hlo_reshape_as(l, x, shape);
    return repeats ? lk__hlo_broadcast(l, x, like, axes) : x;
}

/* Picks the elements of a view that is no box by their indices. */
static lk_hlo lower_view_gather(lk_lowering *l, const lk_tensor *t, lk_hlo whole)
{
    lk_hlo like = lk__hlo_like(LK_I64, t->shape);
    lk_hlo sum = lk__hlo_fill(l, lk__hlo_integer(l, LK_I64, t->offset), like);
    for (int i = 0; i < t->shape.ndim; i++) {
        lk_hlo stride = lk__hlo_integer(l, LK_I64, t->strides[i]);
        sum = lk__hlo_add(l, sum, lk__hlo_mul(l, lk__hlo_iota(l, LK_I64, like, i), stride));
    }
    lk_hlo flat = lk__hlo_reshape(l, whole, 1, (int64_t[]){lk__hlo_count(&whole)});
    lk_hlo indices = lk__hlo_reshape(l, sum, 2, (int64_t[]){lk_shape_count(t->shape), 1});
    lk_hlo picked = lk__hlo_windows(l, flat, indices, (int[]){0}, (int64_t[]){1}, (bool[]){true});
    return lk__hlo_reshape_as(l, picked, t->shape);
}

/* --- tensors ------------------------------------------------------------------------------------------------------ */

lk_hlo lk__hlo_read(lk_lowering *l, const lk_tensor *t)
{
    view_box box;
    lk_hlo_storage *entry = lower_storage_of(l, t);
    if (!entry || lk_shape_count(t->shape) == 0)
        return lk__hlo_fill(l, lk__hlo_number(l, t->dtype, 0), lk__hlo_like(t->dtype, t->shape));
    lk_hlo x = lower_storage_value(l, entry);
    if (lk__tensor_is_whole(t))
        return lk__hlo_reshape_as(l, x, t->shape);
    if (!lower_view_as_box(t, lk__hlo_count(&x), &box))
        return lower_view_gather(l, t, x);
    return lower_view_repeat(l, t, lower_view_read_box(l, t, &box, x));
}

bool lk__hlo_constants(lk_lowering *l, const lk_tensor *t, int64_t *values)
{
    const lk_offload *offload = t->storage->device->backend->offload;
    size_t bytes = (size_t)lk_tensor_count(t) * sizeof *values;
    if (!t->storage->data)
        l->body.status = lk__fail(LK_ERR_STATE, "a constant of a module was never written");
    else if (offload)
        l->body.status = offload->read(t->storage->device, lk__data(t), values, bytes);
    else
        memcpy(values, lk__data(t), bytes);
    return l->body.status == LK_OK;
}

int lk__hlo_compute_type(lk_dtype dtype)
{
    return dtype == LK_BF16 ? LK_F32 : (int)dtype;
}

lk_hlo lk__hlo_read_float(lk_lowering *l, const lk_tensor *tensor)
{
    return lk__hlo_convert(l, lk__hlo_read(l, tensor), lk__hlo_compute_type(tensor->dtype));
}

bool lk__hlo_can_write(const lk_tensor *t)
{
    view_box box;
    return lk_shape_count(t->shape) == 0 || lk__tensor_is_whole(t) ||
           lower_view_as_box(t, lower_storage_count(t), &box);
}

void lk__hlo_write(lk_lowering *l, const lk_tensor *t, lk_hlo value)
{
    view_box box;
    lk_hlo_storage *entry = lower_storage_of(l, t);
    if (!entry || (!lk__tensor_is_whole(t) && lk_shape_count(t->shape) == 0))
        return;
    value = lk__hlo_convert(l, value, t->dtype);
    if (lk__tensor_is_whole(t))
        entry->value = value;
    else if (lower_view_as_box(t, lower_storage_count(t), &box))
        entry->value = lower_view_write_box(l, t, &box, lower_storage_value(l, entry), value);
    entry->written = true;
}

lk_hlo lk__hlo_step(lk_lowering *l)
{
    l->takes_step = true;
    return (lk_hlo){.is_parameter = true, .number = -1, .type = LK_HLO_U64};
}
