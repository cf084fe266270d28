/* Element-wise operators. */
#include "core/shape.h"
#include "cuda/cuda_kernels.h"
#include "cuda/cuda_operands.h"
#include "cuda/cuda_state.h"
#include "cuda/cuda_tensors.h"
#include "ops/ops.h"
#include "cuda/cuda_together.h"
#include "ops/pairwise_sum.h"

#include <string.h>

/* --- relu and other activations ----------------------------------------------------------------------------------- */

lk_status lk__cuda_relu(lk_call *call)
{
    lk_cuda_scratch s = {.call = call};
    const void *layout = lk__cuda_common_layout(call, 1);
    const void *x = lk__cuda_as(&s, call->in[0], layout);
    void *y = lk__cuda_out_as(&s, 0, layout);
    if (s.status == LK_OK)
        s.status =
            LK_CUDA_LAUNCH(call, relu, .x = x, .y = y, .dtype = call->dtype, .count = lk_tensor_count(call->in[0]));
    return lk__cuda_end(&s);
}

lk_status lk__cuda_relu_grad(lk_call *call)
{
    lk_cuda_scratch s = {.call = call};
    const void *layout = lk__cuda_common_layout(call, 2);
    const void *dy = lk__cuda_as(&s, call->in[0], layout), *y = lk__cuda_as(&s, call->in[1], layout);
    void *dx = lk__cuda_out_as(&s, 0, layout);
    if (s.status == LK_OK)
        s.status = LK_CUDA_LAUNCH(call, relu_grad, .dy = dy, .y = y, .dx = dx, .dtype = call->dtype,
                                  .count = lk_tensor_count(call->in[0]));
    return lk__cuda_end(&s);
}

lk_status lk__cuda_activation(lk_call *call)
{
    lk_cuda_scratch s = {.call = call};
    const lk_activation_attrs *attrs = LK_ATTRS(call, lk_activation_attrs);
    const void *layout = lk__cuda_common_layout(call, 1);
    const void *x = lk__cuda_as(&s, call->in[0], layout);
    void *y = lk__cuda_out_as(&s, 0, layout);
    if (s.status == LK_OK)
        s.status =
            LK_CUDA_LAUNCH(call, activation, .x = x, .y = y, .dtype = call->dtype,
                           .count = lk_tensor_count(call->in[0]), .kind = (int)attrs->kind, .alpha = attrs->alpha);
    return lk__cuda_end(&s);
}

lk_status lk__cuda_activation_grad(lk_call *call)
{
    lk_cuda_scratch s = {.call = call};
    const lk_activation_attrs *attrs = LK_ATTRS(call, lk_activation_attrs);
    const void *layout = lk__cuda_common_layout(call, 3);
    const void *dy = lk__cuda_as(&s, call->in[0], layout), *x = lk__cuda_as(&s, call->in[1], layout);
    const void *y = lk__cuda_as(&s, call->in[2], layout);
    void *dx = lk__cuda_out_as(&s, 0, layout);
    if (s.status == LK_OK)
        s.status =
            LK_CUDA_LAUNCH(call, activation_grad, .dy = dy, .x = x, .y = y, .dx = dx, .dtype = call->dtype,
                           .count = lk_tensor_count(call->in[0]), .kind = (int)attrs->kind, .alpha = attrs->alpha);
    return lk__cuda_end(&s);
}

/* --- sums --------------------------------------------------------------------------------------------------------- */

_Static_assert((int)LK_GPU_MAX_PAIRWISE == (int)LK_MAX_PAIRWISE, "operands of pairwise_sum");

/* Sets *sum to what one launch can do with the sums of other calls: operands that lie at equal distances, in one order,
 * as those of merged shards do. False: it cannot. */
static bool cuda_elementwise_array_sum(lk_cuda_scratch *s, const lk_gpu_pairwise_sum *arguments, const void *layout,
                                       lk_gpu_array_sum *sum)
{
    const lk_call *call = s->call;
    const lk_tensor *out = call->out[0];
    int64_t size = (int64_t)lk_dtype_size(call->dtype),
            apart = (const char *)arguments->x[1] - (const char *)arguments->x[0];
    bool stays = call->free_layout && !call->plain_next;
    if (s->status != LK_OK || s->n > 0 || !lk__tensor_is_dense(out) || apart % size != 0)
        return false;
    *sum = (lk_gpu_array_sum){.x = arguments->x[0],
                              .step = apart / size,
                              .addends = (uint8_t)call->n_in,
                              .x_dtype = (uint8_t)call->dtype,
                              .y_dtype = (uint8_t)call->dtype};
    for (int i = 2; i < call->n_in; i++)
        if ((const char *)arguments->x[i] - (const char *)arguments->x[i - 1] != apart)
            return false;
    bool fits = lk__cuda_set_axes(sum, out->shape, layout != NULL, layout && stays);
    if (!fits || (call->dtype == LK_F64 && sum->a > 1))
        return false;
    sum->y = layout && stays ? lk__cuda_out_images(s, 0) : lk__cuda_out(s, 0);
    return s->n == 0;
}

/* Adds in the operands' order if they have the same. */
lk_status lk__cuda_pairwise_sum(lk_call *call)
{
    lk_cuda_scratch s = {.call = call};
    const void *layout = call->in[0]->storage->layout;
    lk_gpu_pairwise_sum arguments = {.n = call->n_in, .dtype = call->dtype, .count = lk_tensor_count(call->in[0])};
    lk_cuda *cuda = lk__cuda_of(call);
    lk_gpu_array_sum sum;
    for (int i = 1; i < call->n_in; i++)
        layout = call->in[i]->storage->layout == layout ? layout : NULL;
    for (int i = 0; i < call->n_in; i++)
        arguments.x[i] = lk__cuda_as(&s, call->in[i], layout);
    if (cuda_elementwise_array_sum(&s, &arguments, layout, &sum)) {
        if (s.status == LK_OK)
            s.status = lk__cuda_add_sum(cuda, &sum);
        return lk__cuda_end(&s);
    }
    arguments.y = lk__cuda_out_as(&s, 0, layout);
    if (s.status == LK_OK)
        s.status = lk__cuda_check(cuda->driver, cuda->driver->pairwise_sum(cuda->stream, &arguments));
    return lk__cuda_end(&s);
}

/* --- dropout ------------------------------------------------------------------------------------------------------ */

lk_status lk__cuda_dropout(lk_call *call)
{
    lk_cuda_scratch s = {.call = call};
    const lk_dropout_attrs *attrs = LK_ATTRS(call, lk_dropout_attrs);
    const lk_shape *shape = &call->in[0]->shape;
    const void *layout = lk__cuda_common_layout(call, 1);
    const void *x = lk__cuda_as(&s, call->in[0], layout), *indices = lk__cuda_plain(&s, call->in[1]);
    void *y = lk__cuda_out_as(&s, 0, layout);
    int64_t images = shape->dim[0], count = lk_tensor_count(call->in[0]), channels = layout ? shape->dim[1] : 1;
    if (s.status == LK_OK && count > 0)
        s.status =
            LK_CUDA_LAUNCH(call, dropout, .x = x, .y = y, .indices = indices, .dtype = call->dtype, .images = images,
                           .channels = channels, .pixels = count / images / channels, .channels_last = layout != NULL,
                           .rate = attrs->rate, .philox = lk__cuda_philox_of_step(call, &attrs->key));
    return lk__cuda_end(&s);
}

/* --- arithmetic --------------------------------------------------------------------------------------------------- */

/* The view of `x` as an operand of a call whose result is `out`. An operand that shares its memory with the result, but
 * has another order, is copied first: the kernel would overwrite elements that it has not read yet. */
static lk_gpu_view cuda_elementwise_arithmetic_operand(lk_cuda_scratch *s, const lk_tensor *x, const lk_tensor *out)
{
    lk_gpu_view own = lk__cuda_view(x), view;
    const void *layout = out->storage->layout;
    if (x->storage->data == out->storage->data && x->storage->layout != layout) {
        own.data = lk__cuda_as(s, x, layout);
        lk__cuda_strides(x->shape, layout, own.stride);
    }
    view = own;
    int missing = out->shape.ndim - x->shape.ndim;
    for (int i = 0; i < out->shape.ndim; i++) {
        bool repeated = i < missing || (x->shape.dim[i - missing] == 1 && out->shape.dim[i] != 1);
        view.stride[i] = repeated ? 0 : own.stride[i - missing];
    }
    return view;
}

/* Takes operands of any strides and layouts without copies; the result gets the layout of the first operand. */
lk_status lk__cuda_arithmetic(lk_call *call)
{
    static const lk_gpu_binary_op ops[LK_OP_COUNT] = {
        [LK_OP_ADD] = LK_GPU_ADD, [LK_OP_SUB] = LK_GPU_SUB, [LK_OP_MUL] = LK_GPU_MUL, [LK_OP_DIV] = LK_GPU_DIV};
    lk_cuda_scratch s = {.call = call};
    lk_tensor *out = call->out[0];
    const void *layout =
        call->free_layout && lk__shape_equal(call->in[0]->shape, out->shape) ? call->in[0]->storage->layout : NULL;
    LK_TRY(lk__storage_allocate(out->storage, out->storage->bytes, layout));
    lk_gpu_binary arguments = {.y = lk__cuda_view(out),
                               .a = cuda_elementwise_arithmetic_operand(&s, call->in[0], out),
                               .b = cuda_elementwise_arithmetic_operand(&s, call->in[1], out),
                               .ndim = out->shape.ndim,
                               .op = ops[call->op->id]};
    memcpy(arguments.dim, out->shape.dim, sizeof arguments.dim);
    const lk_cuda *cuda = lk__cuda_of(call);
    if (s.status == LK_OK)
        s.status = lk__cuda_check(cuda->driver, cuda->driver->binary(cuda->stream, &arguments));
    return lk__cuda_end(&s);
}
