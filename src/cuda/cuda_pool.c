/* Pooling. The second output of max_pool2d, the positions of the maxima, has the layout of the first. */
#include "cuda/cuda_kernels.h"
#include "cuda/cuda_operands.h"
#include "cuda/cuda_state.h"
#include "ops/ops.h"

lk_status lk__cuda_max_pool2d(lk_call *call)
{
    lk_cuda_scratch s = {.call = call};
    const void *x = lk__cuda_images(&s, call->in[0]);
    void *y = lk__cuda_out_images(&s, 0), *where = lk__cuda_out_images(&s, 1);
    lk_geometry window = lk__geometry_of_pool(call->in[0]->shape, call->out[0]->shape, LK_ATTRS(call, lk_pool2d_opts));
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
    lk_geometry window = lk__geometry_of_pool(call->out[0]->shape, call->in[0]->shape, opts);
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
    lk_geometry window = lk__geometry_of_pool(call->in[0]->shape, call->out[0]->shape, LK_ATTRS(call, lk_pool2d_opts));
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
    lk_geometry window = lk__geometry_of_pool(call->out[0]->shape, call->in[0]->shape, opts);
    if (s.status == LK_OK)
        s.status = LK_CUDA_LAUNCH(call, avg_pool_grad, .dy = dy, .dx = dx, .dtype = call->dtype, .window = window);
    return lk__cuda_end(&s);
}
