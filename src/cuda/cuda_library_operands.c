#include "cuda/cuda_library_operands.h"

#include "cuda/cuda_operands.h"

static bool cuda_library_operands_is_aligned(const void *data)
{
    return (uintptr_t)data % LK_GPU_LIBRARY_ALIGNMENT == 0;
}

static size_t cuda_library_operands_dense_bytes(const lk_tensor *x, lk_dtype dtype)
{
    return (size_t)lk_tensor_count(x) * lk_dtype_size(dtype);
}

const void *lk__cuda_aligned(lk_cuda_scratch *scratch, const void *data, size_t bytes)
{
    if (cuda_library_operands_is_aligned(data))
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
        return lk__cuda_aligned(scratch, lk__cuda_as(scratch, x, layout), cuda_library_operands_dense_bytes(x, dtype));
    void *data = lk__cuda_new(scratch, cuda_library_operands_dense_bytes(x, dtype));
    if (data)
        scratch->status = lk__cuda_convert(scratch->call, x->shape, lk__cuda_dense_view(data, dtype, x->shape, layout),
                                           lk__cuda_view(x));
    return data;
}

lk_cuda_result lk__cuda_library_out(lk_cuda_scratch *scratch, int i, const void *wanted, const void *layout,
                                    lk_dtype dtype)
{
    const lk_tensor *out = scratch->call->out[i];
    lk_cuda_result result = {.data = lk__cuda_out_as(scratch, i, wanted)};
    bool is_direct = dtype == out->dtype && (wanted == layout || lk__cuda_orders_agree(out->shape));
    if (!result.data || (is_direct && cuda_library_operands_is_aligned(result.data)))
        return result;
    result.to = lk__cuda_dense_view(result.data, out->dtype, out->shape, wanted);
    result.data = lk__cuda_new(scratch, cuda_library_operands_dense_bytes(out, dtype));
    result.from = lk__cuda_dense_view(result.data, dtype, out->shape, layout);
    return result;
}

void lk__cuda_library_written(lk_cuda_scratch *scratch, int i, const lk_cuda_result *result)
{
    if (scratch->status == LK_OK && result->from.data)
        scratch->status = lk__cuda_convert(scratch->call, scratch->call->out[i]->shape, result->to, result->from);
}
