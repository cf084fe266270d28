#include "cuda/cuda_together.h"

#include "cuda/cuda_operands.h"
#include "ops/ops.h"

enum { KIND_NONE, KIND_SUM = LK_KIND_ASIDE + 1, KIND_CAST, KIND_RUNNING };

static bool cuda_together_is_image(lk_dtype dtype)
{
    return dtype == LK_F32 || dtype == LK_BF16;
}

static bool cuda_together_all_dense(const lk_call *call)
{
    for (int i = 0; i < call->n_in; i++)
        if (call->in[i] && !lk__tensor_is_dense(call->in[i]))
            return false;
    return true;
}

int lk__cuda_kind(const lk_call *call)
{
    switch (call->op->id) {
    case LK_OP_MATMUL: /* gradients of a dense layer: of x, the weights and, a sum, the bias */
    case LK_OP_SUM:
        return call->parts > 0 ? LK_KIND_ASIDE : KIND_NONE;
    case LK_OP_PAIRWISE_SUM:
        return KIND_SUM;
    case LK_OP_CAST:
        return cuda_together_is_image(call->in[0]->dtype) && cuda_together_is_image(call->out[0]->dtype) ? KIND_CAST
                                                                                                         : KIND_NONE;
    case LK_OP_BATCH_NORM_UPDATE:
        return cuda_together_all_dense(call) ? KIND_RUNNING : KIND_NONE; /* others need temporaries */
    default:
        return KIND_NONE;
    }
}

static lk_status cuda_together_start_sums(lk_cuda *cuda)
{
    int n = cuda->sums.n;
    lk_gpu_status status = n > 0 ? cuda->driver->array_sums(cuda->stream, &cuda->sums) : LK_GPU_OK;
    cuda->sums.n = 0;
    return lk__cuda_check(cuda->driver, status);
}

static lk_status cuda_together_start_running(lk_cuda *cuda)
{
    int n = cuda->running.n;
    lk_gpu_status status = n > 0 ? cuda->driver->running_statistics(cuda->stream, &cuda->running) : LK_GPU_OK;
    cuda->running.n = 0;
    return lk__cuda_check(cuda->driver, status);
}

lk_status lk__cuda_together(lk_device *device, bool on)
{
    lk_cuda *cuda = device->state;
    cuda->is_together = on;
    if (on)
        return LK_OK;
    lk_status sums = cuda_together_start_sums(cuda), running = cuda_together_start_running(cuda);
    return sums == LK_OK ? running : sums;
}

lk_status lk__cuda_add_sum(lk_cuda *cuda, const lk_gpu_array_sum *sum)
{
    cuda->sums.sum[cuda->sums.n++] = *sum;
    return cuda->is_together && cuda->sums.n < LK_GPU_SUMS ? LK_OK : cuda_together_start_sums(cuda);
}

lk_status lk__cuda_add_running(lk_cuda *cuda, const lk_gpu_running_layer *layer)
{
    cuda->running.layer[cuda->running.n++] = *layer;
    return cuda->is_together && cuda->running.n < LK_GPU_RUNNING_LAYERS ? LK_OK : cuda_together_start_running(cuda);
}

bool lk__cuda_set_axes(lk_gpu_array_sum *sum, lk_shape shape, bool from_channels_last, bool to_channels_last)
{
    int64_t count = lk_shape_count(shape), channels, pixels;
    if (count > INT32_MAX)
        return false;
    sum->rows = sum->a = 1;
    sum->b = (int32_t)count;
    if (from_channels_last == to_channels_last || count == 0 || lk__cuda_orders_agree(shape))
        return true;
    channels = shape.dim[1];
    pixels = count / shape.dim[0] / channels;
    sum->rows = (int32_t)shape.dim[0];
    sum->a = (int32_t)(from_channels_last ? pixels : channels);
    sum->b = (int32_t)(from_channels_last ? channels : pixels);
    return true;
}
