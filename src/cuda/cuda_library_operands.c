#include "cuda/cuda_library_operands.h"

static bool is_aligned(const void *data)
{
    return (uintptr_t)data % LK_GPU_LIBRARY_ALIGNMENT == 0;
}

static size_t bytes_of(const lk_tensor *x, lk_dtype dtype)
{
    return (size_t)lk_tensor_count(x) * lk_dtype_size(dtype);
}

static lk_gpu_view view_in(void *data, lk_dtype dtype, lk_shape shape, const void *layout)
{
    lk_gpu_view view = {.data = data, .dtype = dtype};
    lk__cuda_strides(shape, layout, view.stride);
    return view;
}

const void *lk__cuda_aligned(lk_cuda_scratch *scratch, const void *data, size_t bytes)
{
    if (is_aligned(data))
        return data;
    const lk_cuda *cuda = lk__cuda_of(scratch->call);
    void *copy = lk__cuda_new(scratch, bytes);
    if (copy)
        scratch->status =
            lk__cuda_check(cuda->driver, cuda->driver->copy(cuda->stream, copy, data, bytes, LK_GPU_TO_GPU));
    return copy;
}

const void *lk__cuda_library_in(lk_cuda_scratch *scratch, const lk_tensor *x, const void *layout, lk_dtype dtype)
{
    if (!x)
        return NULL;
    if (x->dtype == dtype)
        return lk__cuda_aligned(scratch, lk__cuda_as(scratch, x, layout), bytes_of(x, dtype));
    void *data = lk__cuda_new(scratch, bytes_of(x, dtype));
    if (data)
        scratch->status =
            lk__cuda_convert(scratch->call, x->shape, view_in(data, dtype, x->shape, layout), lk__cuda_view(x));
    return data;
}

/* Plain and channels-last are the same order. */
static bool is_in_either_order(lk_shape shape)
{
    return shape.ndim != 4 || shape.dim[1] == 1 || shape.dim[2] * shape.dim[3] == 1;
}

lk_cuda_result lk__cuda_library_out(lk_cuda_scratch *scratch, int i, const void *lies, const void *layout,
                                    lk_dtype dtype)
{
    const lk_tensor *out = scratch->call->out[i];
    lk_cuda_result result = {.data = lk__cuda_out_as(scratch, i, lies)};
    bool is_direct = dtype == out->dtype && (lies == layout || is_in_either_order(out->shape));
    if (!result.data || (is_direct && is_aligned(result.data)))
        return result;
    result.to = view_in(result.data, out->dtype, out->shape, lies);
    result.data = lk__cuda_new(scratch, bytes_of(out, dtype));
    result.from = view_in(result.data, dtype, out->shape, layout);
    return result;
}

void lk__cuda_library_written(lk_cuda_scratch *scratch, int i, const lk_cuda_result *result)
{
    if (scratch->status == LK_OK && result->from.data)
        scratch->status = lk__cuda_convert(scratch->call, scratch->call->out[i]->shape, result->to, result->from);
}
