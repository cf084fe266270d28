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

/* Memory for the first output, in the order that it is to have. */
static void *cuda_pool_out(lk_cuda_scratch *s, bool *is_plain)
{
    *is_plain = !s->call->free_layout || s->call->plain_next;
    return lk__cuda_out_as(s, 0, *is_plain ? NULL : lk__cuda_channels_last);
}

/* The gradient of pooled images, in the order that it has. */
static const void *cuda_pool_gradient_in(lk_cuda_scratch *s, const lk_tensor *dy, bool *is_plain)
{
    *is_plain = !dy->storage->layout;
    return lk__cuda_as(s, dy, *is_plain ? NULL : lk__cuda_channels_last);
}

lk_status lk__cuda_relu_max_pool2d(lk_call *call)
{
    lk_cuda_scratch s = {.call = call};
    bool is_plain;
    const void *x = lk__cuda_images(&s, call->in[0]);
    void *y = cuda_pool_out(&s, &is_plain), *where = lk__cuda_out_images(&s, 1);
    lk_geometry window = lk__geometry_of_pool(call->in[0]->shape, call->out[0]->shape, LK_ATTRS(call, lk_pool2d_opts));
    if (s.status == LK_OK)
        s.status = LK_CUDA_LAUNCH(call, relu_max_pool, .x = x, .y = y, .where = where, .dtype = call->dtype,
                                  .window = window, .y_is_plain = is_plain);
    return lk__cuda_end(&s);
}

lk_status lk__cuda_relu_max_pool2d_grad(lk_call *call)
{
    lk_cuda_scratch s = {.call = call};
    const lk_pool2d_opts *opts = &LK_ATTRS(call, lk_pool2d_grad_attrs)->pool;
    bool is_plain;
    const void *dy = cuda_pool_gradient_in(&s, call->in[0], &is_plain), *where = lk__cuda_images(&s, call->in[1]);
    void *dx = lk__cuda_out_images(&s, 0);
    lk_geometry window = lk__geometry_of_pool(call->out[0]->shape, call->in[0]->shape, opts);
    if (s.status == LK_OK)
        s.status = LK_CUDA_LAUNCH(call, relu_max_pool_grad, .dy = dy, .where = where, .dx = dx, .dtype = call->dtype,
                                  .window = window, .dy_is_plain = is_plain);
    return lk__cuda_end(&s);
}

static lk_status cuda_pool_average(lk_call *call, bool relu)
{
    lk_cuda_scratch s = {.call = call};
    bool is_plain;
    const void *x = lk__cuda_images(&s, call->in[0]);
    void *y = cuda_pool_out(&s, &is_plain);
    lk_geometry window = lk__geometry_of_pool(call->in[0]->shape, call->out[0]->shape, LK_ATTRS(call, lk_pool2d_opts));
    if (s.status == LK_OK)
        s.status = LK_CUDA_LAUNCH(call, avg_pool, .x = x, .y = y, .dtype = call->dtype, .window = window, .relu = relu,
                                  .y_is_plain = is_plain);
    return lk__cuda_end(&s);
}

lk_status lk__cuda_avg_pool2d(lk_call *call)
{
    return cuda_pool_average(call, false);
}

lk_status lk__cuda_relu_avg_pool2d(lk_call *call)
{
    return cuda_pool_average(call, true);
}

/* relu_x: NULL without relu. */
static lk_status cuda_pool_average_grad(lk_call *call, const lk_tensor *relu_x)
{
    lk_cuda_scratch s = {.call = call};
    const lk_pool2d_opts *opts = &LK_ATTRS(call, lk_pool2d_grad_attrs)->pool;
    bool is_plain;
    const void *dy = cuda_pool_gradient_in(&s, call->in[0], &is_plain), *x = lk__cuda_images(&s, relu_x);
    void *dx = lk__cuda_out_images(&s, 0);
    lk_geometry window = lk__geometry_of_pool(call->out[0]->shape, call->in[0]->shape, opts);
    if (s.status == LK_OK)
        s.status = LK_CUDA_LAUNCH(call, avg_pool_grad, .dy = dy, .relu_x = x, .dx = dx, .dtype = call->dtype,
                                  .window = window, .dy_is_plain = is_plain);
    return lk__cuda_end(&s);
}

lk_status lk__cuda_avg_pool2d_grad(lk_call *call)
{
    return cuda_pool_average_grad(call, NULL);
}

lk_status lk__cuda_relu_avg_pool2d_grad(lk_call *call)
{
    return cuda_pool_average_grad(call, call->in[1]);
}
