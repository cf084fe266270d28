/* Creates tensors, and copies them to other layouts, dtypes and tensors. */
#include "cuda/cuda_tensors.h"

#include "base/philox.h"
#include "cuda/cuda_graph.h"
#include "cuda/cuda_kernels.h"
#include "cuda/cuda_operands.h"
#include "cuda/cuda_state.h"
#include "cuda/cuda_together.h"
#include "ops/ops.h"

#include <string.h>

/* --- creation ----------------------------------------------------------------------------------------------------- */

lk_status lk__cuda_full(lk_call *call)
{
    lk_cuda_scratch s = {.call = call};
    void *y = lk__cuda_out(&s, 0);
    if (s.status == LK_OK)
        s.status =
            LK_CUDA_LAUNCH(call, fill, .y = y, .dtype = call->out[0]->dtype, .count = lk_tensor_count(call->out[0]),
                           .value = LK_ATTRS(call, lk_full_attrs)->value);
    return lk__cuda_end(&s);
}

lk_status lk__cuda_arange(lk_call *call)
{
    lk_cuda_scratch s = {.call = call};
    const lk_arange_attrs *attrs = LK_ATTRS(call, lk_arange_attrs);
    void *y = lk__cuda_out(&s, 0);
    if (s.status == LK_OK)
        s.status = LK_CUDA_LAUNCH(call, arange, .y = y, .dtype = call->out[0]->dtype,
                                  .count = lk_tensor_count(call->out[0]), .start = attrs->start, .step = attrs->step);
    return lk__cuda_end(&s);
}

lk_gpu_philox lk__cuda_philox(const lk_random_key *key)
{
    lk_gpu_philox philox = {.epoch = NULL};
    lk__philox_start(key, philox.key, philox.counter);
    return philox;
}

lk_gpu_philox lk__cuda_philox_of_step(const lk_call *call, const lk_random_key *key)
{
    lk_gpu_philox philox = lk__cuda_philox(key);
    const lk_cuda *cuda = lk__cuda_of(call);
    philox.epoch = cuda->is_capturing ? cuda->step : NULL;
    return philox;
}

static lk_status cuda_tensors_launch_random(lk_call *call, bool normal)
{
    lk_cuda_scratch s = {.call = call};
    const lk_random_attrs *attrs = LK_ATTRS(call, lk_random_attrs);
    void *y = lk__cuda_out(&s, 0);
    if (s.status == LK_OK)
        s.status =
            LK_CUDA_LAUNCH(call, random, .y = y, .dtype = call->out[0]->dtype, .count = lk_tensor_count(call->out[0]),
                           .a = attrs->a, .b = attrs->b, .normal = normal, .philox = lk__cuda_philox(&attrs->key));
    return lk__cuda_end(&s);
}

lk_status lk__cuda_uniform(lk_call *call)
{
    return cuda_tensors_launch_random(call, false);
}

lk_status lk__cuda_normal(lk_call *call)
{
    return cuda_tensors_launch_random(call, true);
}

/* --- copies ------------------------------------------------------------------------------------------------------- */

/* Returns whether x and y, of one shape, have their elements in the same order, without gaps. */
static bool cuda_tensors_have_same_order(const lk_tensor *y, const lk_tensor *x)
{
    if (x->storage->layout || y->storage->layout)
        return x->storage->layout == y->storage->layout;
    return lk__tensor_is_dense(x) && lk__tensor_is_dense(y);
}

static lk_status cuda_tensors_copy_bytes(const lk_call *call, void *to, const void *from, size_t bytes)
{
    const lk_cuda *cuda = lk__cuda_of(call);
    if (to == from || bytes == 0)
        return LK_OK;
    return lk__cuda_check(cuda->driver, cuda->driver->copy(cuda->stream, to, from, bytes, LK_GPU_TO_GPU));
}

/* Copies or casts from any strides and dtype. The result gets `layout` if the call leaves its layout to the kernel. */
static lk_status cuda_tensors_copy_or_convert(lk_call *call, const void *layout)
{
    const lk_tensor *x = call->in[0];
    lk_tensor *y = call->out[0];
    LK_TRY(lk__storage_allocate(y->storage, y->storage->bytes, call->free_layout ? layout : NULL));
    lk_gpu_view to = lk__cuda_view(y), from = lk__cuda_view(x);
    if (x->dtype == y->dtype && cuda_tensors_have_same_order(y, x))
        return cuda_tensors_copy_bytes(call, to.data, from.data, (size_t)lk_tensor_count(x) * lk_dtype_size(x->dtype));
    return lk__cuda_convert(call, x->shape, to, from);
}

/* Returns whether one launch can do the cast with others, and sets *sum. */
static bool cuda_tensors_array_sum(const lk_call *call, const void *layout, lk_gpu_array_sum *sum)
{
    const lk_tensor *x = call->in[0], *y = call->out[0];
    bool is_dense = x->storage->layout || lk__tensor_is_dense(x);
    if (!is_dense || !lk__tensor_is_dense(y))
        return false;
    *sum = (lk_gpu_array_sum){
        .x = lk__cuda_view(x).data, .addends = 1, .x_dtype = (uint8_t)x->dtype, .y_dtype = (uint8_t)y->dtype};
    return lk__cuda_set_axes(sum, x->shape, x->storage->layout != NULL, call->free_layout && layout);
}

lk_status lk__cuda_copy(lk_call *call)
{
    return cuda_tensors_copy_or_convert(call, call->in[0]->storage->layout);
}

/* A cast to bf16 of a 4-D tensor makes images or weights for a convolution, so it writes them channels-last. A cast to
 * the tensor's own dtype also makes weights for a convolution: see LK_KERNEL_LAYS_OUT_WEIGHTS. */
lk_status lk__cuda_cast(lk_call *call)
{
    const lk_tensor *x = call->in[0];
    lk_dtype dtype = call->out[0]->dtype;
    bool is_for_images = x->shape.ndim == 4 && (dtype == LK_BF16 || dtype == x->dtype);
    const void *layout = is_for_images ? lk__cuda_channels_last : x->storage->layout;
    lk_gpu_array_sum sum;
    if (!lk__cuda_of(call)->is_together || !cuda_tensors_array_sum(call, layout, &sum))
        return cuda_tensors_copy_or_convert(call, layout);
    LK_TRY(
        lk__storage_allocate(call->out[0]->storage, call->out[0]->storage->bytes, call->free_layout ? layout : NULL));
    sum.y = lk__cuda_view(call->out[0]).data;
    return lk__cuda_add_sum(lk__cuda_of(call), &sum);
}

/* Returns whether y is its parts, one after the other. */
static bool cuda_tensors_are_in_sequence(const lk_call *call, int axis)
{
    bool are = lk__tensor_is_dense(call->out[0]);
    for (int a = 0; a < axis; a++)
        are = are && call->out[0]->shape.dim[a] == 1;
    for (int i = 0; i < call->n_in; i++)
        are = are && !call->in[i]->storage->layout && lk__tensor_is_dense(call->in[i]);
    return are;
}

static lk_status cuda_tensors_copy_in_sequence(const lk_call *call)
{
    lk_graph_copy copies[LK_MAX_INPUTS];
    char *to = lk__data(call->out[0]);
    for (int i = 0; i < call->n_in; i++) {
        size_t bytes = (size_t)lk_tensor_count(call->in[i]) * lk_dtype_size(call->in[i]->dtype);
        copies[i] = (lk_graph_copy){to, lk__data(call->in[i]), bytes};
        to += bytes;
    }
    return lk__cuda_copy_all(call->device, copies, call->n_in, NULL);
}

lk_status lk__cuda_concat(lk_call *call)
{
    int axis = LK_ATTRS(call, lk_concat_attrs)->axis;
    lk_tensor *y = call->out[0];
    LK_TRY(lk__output_plain(y));
    if (cuda_tensors_are_in_sequence(call, axis))
        return cuda_tensors_copy_in_sequence(call);
    lk_gpu_view part = lk__cuda_view(y);
    for (int i = 0; i < call->n_in; i++) {
        const lk_tensor *x = call->in[i];
        LK_TRY(lk__cuda_convert(call, x->shape, part, lk__cuda_view(x)));
        part.data = (char *)part.data + (size_t)(x->shape.dim[axis] * part.stride[axis]) * lk_dtype_size(y->dtype);
    }
    return LK_OK;
}

lk_status lk__cuda_gather(lk_call *call)
{
    lk_cuda_scratch s = {.call = call};
    const lk_tensor *x = call->in[0];
    int64_t rows = x->shape.dim[0], n = call->out[0]->shape.dim[0], count = lk_tensor_count(call->out[0]);
    const void *data = lk__cuda_plain(&s, x), *indices = lk__cuda_plain(&s, call->in[1]);
    void *y = lk__cuda_out(&s, 0);
    if (s.status == LK_OK && count > 0)
        s.status = LK_CUDA_LAUNCH(call, gather, .x = data, .indices = indices, .y = y, .size = lk_dtype_size(x->dtype),
                                  .n = n, .rows = rows, .row = count / n);
    return lk__cuda_end(&s);
}
