/* Group normalization, of images in channels-last order. Each pixel of an image with statistics of its own is an image
 * of one pixel. */
#include "cuda/cuda_kernels.h"
#include "cuda/cuda_operands.h"
#include "cuda/cuda_state.h"
#include "ops/ops.h"

typedef struct extent {
    int64_t images, pixels, channels;
} extent;

static extent cuda_gn_extent(const lk_tensor *x, const lk_group_norm_opts *opts)
{
    int64_t channels = x->shape.dim[1], samples = x->shape.dim[0], pixels = 1;
    for (int i = 2; i < x->shape.ndim; i++)
        pixels *= x->shape.dim[i];
    return opts->each_pixel ? (extent){samples * pixels, 1, channels} : (extent){samples, pixels, channels};
}

lk_status lk__cuda_group_norm(lk_call *call)
{
    lk_cuda_scratch s = {.call = call};
    const lk_group_norm_opts *opts = LK_ATTRS(call, lk_group_norm_opts);
    extent e = cuda_gn_extent(call->in[0], opts);
    const void *x = lk__cuda_images(&s, call->in[0]);
    const float *gamma = lk__cuda_plain(&s, call->in[1]), *beta = lk__cuda_plain(&s, call->in[2]);
    void *y = lk__cuda_out_images(&s, 0);
    if (s.status == LK_OK)
        s.status = LK_CUDA_LAUNCH(call, group_norm, .x = x, .gamma = gamma, .beta = beta, .y = y, .dtype = call->dtype,
                                  .images = e.images, .pixels = e.pixels, .channels = e.channels,
                                  .groups = opts->groups, .epsilon = opts->epsilon);
    return lk__cuda_end(&s);
}

lk_status lk__cuda_group_norm_grad(lk_call *call)
{
    lk_cuda_scratch s = {.call = call};
    const lk_group_norm_opts *opts = LK_ATTRS(call, lk_group_norm_opts);
    extent e = cuda_gn_extent(call->in[1], opts);
    int64_t doubles = lk_gpu_group_norm_workspace(e.images, e.pixels, e.channels, opts->groups);
    const void *dy = lk__cuda_images(&s, call->in[0]), *x = lk__cuda_images(&s, call->in[1]);
    const float *gamma = lk__cuda_plain(&s, call->in[2]);
    double *workspace = lk__cuda_new(&s, (size_t)doubles * sizeof(double));
    void *dx = lk__cuda_out_images(&s, 0);
    float *dgamma = lk__cuda_out(&s, 1), *dbeta = lk__cuda_out(&s, 2);
    if (s.status == LK_OK)
        s.status = LK_CUDA_LAUNCH(call, group_norm_grad, .dy = dy, .x = x, .gamma = gamma, .dx = dx, .dgamma = dgamma,
                                  .dbeta = dbeta, .workspace = workspace, .dtype = call->dtype, .images = e.images,
                                  .pixels = e.pixels, .channels = e.channels, .groups = opts->groups,
                                  .epsilon = opts->epsilon);
    return lk__cuda_end(&s);
}
