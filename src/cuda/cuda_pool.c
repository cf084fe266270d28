/* Pooling. The second output of max_pool2d, the positions of the maxima, has the layout of the first. */
#include "cuda/cuda_kernels.h"
#include "cuda/cuda_operands.h"
#include "cuda/cuda_state.h"
#include "ops/ops.h"

lk_gpu_window lk__cuda_window(const lk_pool2d_opts *opts, lk_shape x, lk_shape y)
{
    lk_gpu_window window = {.images = x.dim[0], .channels = x.dim[1], .count_padding = opts->count_include_pad};
    for (int axis = 0; axis < 2; axis++) {
        window.size[axis] = x.dim[2 + axis];
        window.out_size[axis] = y.dim[2 + axis];
        window.kernel[axis] = opts->kernel[axis];
        window.stride[axis] = opts->stride[axis];
        window.padding[axis] = opts->padding[axis];
    }
    return window;
}

lk_status lk__cuda_max_pool2d(lk_call *call)
{
    lk_cuda_scratch s = {.call = call};
    const void *x = lk__cuda_images(&s, call->in[0]);
    void *y = lk__cuda_out_images(&s, 0), *where = lk__cuda_out_images(&s, 1);
    lk_gpu_window window = lk__cuda_window(LK_ATTRS(call, lk_pool2d_opts), call->in[0]->shape, call->out[0]->shape);
    if (s.status == LK_OK)
        s.status =
            LK_CUDA_LAUNCH(call, max_pool, .x = x, .y = y, .where = where, .dtype = call->dtype, .window = window);
    return lk__cuda_end(&s);
}

lk_status lk__cuda_max_pool2d_grad(lk_call *call)
{
    lk_cuda_scratch s = {.call = call};
    const lk_pool2d_opts *opts = &LK_ATTRS(call, lk_pool2d_grad_attrs)->pool;
    const void *dy = lk__cuda_images(&s, call->in[0]), *where = lk__cuda_images(&s, call->in[1]);
    void *dx = lk__cuda_out_images(&s, 0);
    lk_gpu_window window = lk__cuda_window(opts, call->out[0]->shape, call->in[0]->shape);
    if (s.status == LK_OK)
        s.status = LK_CUDA_LAUNCH(call, max_pool_grad, .dy = dy, .where = where, .dx = dx, .dtype = call->dtype,
                                  .window = window);
    return lk__cuda_end(&s);
}

lk_status lk__cuda_avg_pool2d(lk_call *call)
{
    lk_cuda_scratch s = {.call = call};
    const void *x = lk__cuda_images(&s, call->in[0]);
    void *y = lk__cuda_out_images(&s, 0);
    lk_gpu_window window = lk__cuda_window(LK_ATTRS(call, lk_pool2d_opts), call->in[0]->shape, call->out[0]->shape);
    if (s.status == LK_OK)
        s.status = LK_CUDA_LAUNCH(call, avg_pool, .x = x, .y = y, .dtype = call->dtype, .window = window);
    return lk__cuda_end(&s);
}

lk_status lk__cuda_avg_pool2d_grad(lk_call *call)
{
    lk_cuda_scratch s = {.call = call};
    const lk_pool2d_opts *opts = &LK_ATTRS(call, lk_pool2d_grad_attrs)->pool;
    const void *dy = lk__cuda_images(&s, call->in[0]);
    void *dx = lk__cuda_out_images(&s, 0);
    lk_gpu_window window = lk__cuda_window(opts, call->out[0]->shape, call->in[0]->shape);
    if (s.status == LK_OK)
        s.status = LK_CUDA_LAUNCH(call, avg_pool_grad, .dy = dy, .dx = dx, .dtype = call->dtype, .window = window);
    return lk__cuda_end(&s);
}
