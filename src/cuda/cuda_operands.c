#include "cuda/cuda_operands.h"

#include "core/hold.h"
#include "core/shape.h"
#include "cuda/cuda.h"
#include "cuda/cuda_state.h"

#include <string.h>

const char lk__cuda_channels_last[1] = {0};

/* --- temporaries -------------------------------------------------------------------------------------------------- */

void *lk__cuda_new(lk_cuda_scratch *scratch, size_t bytes)
{
    lk_block *block;
    if (scratch->status == LK_OK)
        scratch->status = lk__device_take(scratch->call->device, bytes, &block);
    if (scratch->status != LK_OK)
        return NULL;
    scratch->blocks[scratch->n++] = block;
    return block->data;
}

/* --- conversions -------------------------------------------------------------------------------------------------- */

void lk__cuda_strides(lk_shape shape, const void *layout, int64_t *strides)
{
    lk__shape_strides(shape, strides);
    if (!layout)
        return;
    for (int axis = 2; axis < shape.ndim; axis++)
        strides[axis] *= shape.dim[1];
    strides[1] = 1;
}

/* The first element. In any layout an offset skips whole items of the first axis: a part of merged shards. */
static void *cuda_operands_first(const lk_tensor *x)
{
    return (char *)x->storage->data + (size_t)x->offset * lk_dtype_size(x->dtype);
}

lk_gpu_view lk__cuda_view(const lk_tensor *x)
{
    lk_gpu_view view = {.dtype = x->dtype};
    const void *layout = x->storage->layout;
    view.data = cuda_operands_first(x);
    if (layout)
        lk__cuda_strides(x->shape, layout, view.stride);
    else
        memcpy(view.stride, x->strides, sizeof view.stride);
    return view;
}

lk_status lk__cuda_convert(const lk_call *call, lk_shape shape, lk_gpu_view y, lk_gpu_view x)
{
    lk_gpu_convert arguments = {.y = y, .x = x, .ndim = shape.ndim};
    memcpy(arguments.dim, shape.dim, sizeof arguments.dim);
    const lk_cuda *cuda = lk__cuda_of(call);
    return lk__cuda_check(cuda->driver, cuda->driver->convert(cuda->stream, &arguments));
}

lk_gpu_view lk__cuda_dense_view(void *data, lk_dtype dtype, lk_shape shape, const void *layout)
{
    lk_gpu_view view = {.data = data, .dtype = dtype};
    lk__cuda_strides(shape, layout, view.stride);
    return view;
}

lk_status lk__cuda_to_plain(lk_device *device, const lk_tensor *x, void *plain)
{
    lk_call call = {.device = device};
    return lk__cuda_convert(&call, x->shape, lk__cuda_dense_view(plain, x->dtype, x->shape, NULL), lk__cuda_view(x));
}

/* --- inputs ------------------------------------------------------------------------------------------------------- */

bool lk__cuda_orders_agree(lk_shape shape)
{
    int64_t channels = shape.ndim > 2 ? shape.dim[1] : 1, pixels = 1;
    for (int axis = 2; axis < shape.ndim; axis++)
        pixels *= shape.dim[axis];
    return channels == 1 || pixels == 1;
}

/* Returns whether x's memory has its elements in the order of `layout`, without gaps. */
static bool cuda_operands_has_order(const lk_tensor *x, const void *layout)
{
    if (!x->storage->layout)
        return lk__tensor_is_dense(x) && (!layout || lk__cuda_orders_agree(x->shape));
    return layout || lk__cuda_orders_agree(x->shape);
}

void *lk__cuda_as(lk_cuda_scratch *scratch, const lk_tensor *x, const void *layout)
{
    if (!x)
        return NULL;
    if (cuda_operands_has_order(x, layout))
        return cuda_operands_first(x);
    void *data = lk__cuda_new(scratch, (size_t)lk_tensor_count(x) * lk_dtype_size(x->dtype));
    if (data)
        scratch->status = lk__cuda_convert(scratch->call, x->shape,
                                           lk__cuda_dense_view(data, x->dtype, x->shape, layout), lk__cuda_view(x));
    return data;
}

void *lk__cuda_plain(lk_cuda_scratch *scratch, const lk_tensor *x)
{
    return lk__cuda_as(scratch, x, NULL);
}

void *lk__cuda_images(lk_cuda_scratch *scratch, const lk_tensor *x)
{
    return lk__cuda_as(scratch, x, lk__cuda_channels_last);
}

const void *lk__cuda_common_layout(const lk_call *call, int n)
{
    if (!call->free_layout || call->out[0]->shape.ndim != 4)
        return NULL;
    for (int i = 0; i < n; i++)
        if (call->in[i] && call->in[i]->storage->layout)
            return lk__cuda_channels_last;
    return NULL;
}

/* --- outputs ------------------------------------------------------------------------------------------------------ */

static void *cuda_operands_take_output(lk_cuda_scratch *scratch, lk_tensor *out, const void *layout)
{
    if (scratch->status == LK_OK)
        scratch->status = lk__storage_allocate(out->storage, out->storage->bytes, layout);
    if (scratch->status != LK_OK)
        return NULL;
    return layout ? out->storage->data : lk__data(out);
}

/* A temporary from which lk__cuda_end writes the output. */
static void *cuda_operands_temporary_output(lk_cuda_scratch *scratch, int i, const void *layout)
{
    const lk_tensor *out = scratch->call->out[i];
    void *data = lk__cuda_new(scratch, (size_t)lk_tensor_count(out) * lk_dtype_size(out->dtype));
    scratch->out[i] = data;
    scratch->out_layout[i] = layout;
    return data;
}

void *lk__cuda_out_as(lk_cuda_scratch *scratch, int i, const void *layout)
{
    if (i >= scratch->call->n_out || !scratch->call->out[i])
        return NULL;
    lk_tensor *out = scratch->call->out[i];
    if (!layout || lk__cuda_orders_agree(out->shape))
        return lk__tensor_is_dense(out) ? cuda_operands_take_output(scratch, out, NULL)
                                        : cuda_operands_temporary_output(scratch, i, NULL);
    bool stays = scratch->call->free_layout && !(i == 0 && scratch->call->plain_next);
    return stays ? cuda_operands_take_output(scratch, out, layout) : cuda_operands_temporary_output(scratch, i, layout);
}

void *lk__cuda_out(lk_cuda_scratch *scratch, int i)
{
    return lk__cuda_out_as(scratch, i, NULL);
}

void *lk__cuda_out_images(lk_cuda_scratch *scratch, int i)
{
    return lk__cuda_out_as(scratch, i, lk__cuda_channels_last);
}

static lk_status cuda_operands_write_output(lk_cuda_scratch *scratch, int i)
{
    lk_tensor *out = scratch->call->out[i];
    if (!scratch->out[i])
        return LK_OK;
    LK_TRY(lk__output_plain(out));
    return lk__cuda_convert(scratch->call, out->shape, lk__cuda_view(out),
                            lk__cuda_dense_view(scratch->out[i], out->dtype, out->shape, scratch->out_layout[i]));
}

lk_status lk__cuda_end(lk_cuda_scratch *scratch)
{
    lk_status status = scratch->status;
    for (int i = 0; i < scratch->call->n_out && status == LK_OK; i++)
        status = cuda_operands_write_output(scratch, i);
    for (int i = 0; i < scratch->n; i++)
        lk__device_put(scratch->call->device, scratch->blocks[i]);
    return status;
}
