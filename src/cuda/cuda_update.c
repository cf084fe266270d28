/* Updates of parameters, and the norms they need. The operands of fused updates are dense, so the memory that a kernel
 * writes as an output is the memory of the input that it updates. */
#include "cuda/cuda_kernels.h"
#include "cuda/cuda_operands.h"
#include "cuda/cuda_state.h"
#include "ops/ops.h"
#include "ops/update.h"

_Static_assert((int)LK_GPU_NORM_BLOCK == (int)LK_NORM_BLOCK, "squared_norms needs the same blocks");

/* in[0 … 3) are the skip flag, the scale and the rates. */
static lk_gpu_control cuda_update_control_of(lk_cuda_scratch *s, lk_tensor *const *in)
{
    return (lk_gpu_control){
        .skip = lk__cuda_plain(s, in[0]), .scale = lk__cuda_plain(s, in[1]), .rates = lk__cuda_plain(s, in[2])};
}

lk_status lk__cuda_sgd_update(lk_call *call)
{
    lk_cuda_scratch s = {.call = call};
    const float *w = lk__cuda_plain(&s, call->in[0]), *g = lk__cuda_plain(&s, call->in[1]);
    float *y = lk__cuda_out(&s, 0);
    if (s.status == LK_OK)
        s.status = LK_CUDA_LAUNCH(call, sgd_update, .w = w, .g = g, .y = y, .count = lk_tensor_count(call->in[0]),
                                  .rate = (float)LK_ATTRS(call, lk_sgd_attrs)->rate);
    return lk__cuda_end(&s);
}

lk_status lk__cuda_momentum_update(lk_call *call)
{
    lk_cuda_scratch s = {.call = call};
    const lk_momentum_attrs *attrs = LK_ATTRS(call, lk_momentum_attrs);
    float *w = lk__cuda_out(&s, 0), *v = lk__cuda_out(&s, 1);
    const float *g = lk__cuda_plain(&s, call->in[1]);
    lk_gpu_control control = cuda_update_control_of(&s, call->in + 3);
    if (s.status == LK_OK)
        s.status = LK_CUDA_LAUNCH(call, momentum_update, .w = w, .v = v, .g = g, .count = lk_tensor_count(call->in[0]),
                                  .control = control, .rate = (float)attrs->rate, .momentum = (float)attrs->momentum,
                                  .weight_decay = (float)attrs->weight_decay, .nesterov = attrs->nesterov);
    return lk__cuda_end(&s);
}

lk_status lk__cuda_adam_update(lk_call *call)
{
    lk_cuda_scratch s = {.call = call};
    const lk_adam_attrs *attrs = LK_ATTRS(call, lk_adam_attrs);
    float *w = lk__cuda_out(&s, 0), *m = lk__cuda_out(&s, 1), *v = lk__cuda_out(&s, 2);
    const float *g = lk__cuda_plain(&s, call->in[1]);
    lk_gpu_control control = cuda_update_control_of(&s, call->in + 4);
    if (s.status == LK_OK)
        s.status =
            LK_CUDA_LAUNCH(call, adam_update, .w = w, .m = m, .v = v, .g = g, .count = lk_tensor_count(call->in[0]),
                           .control = control, .beta1 = (float)attrs->beta1, .rest1 = (float)attrs->rest1,
                           .beta2 = (float)attrs->beta2, .rest2 = (float)attrs->rest2, .step = (float)attrs->step,
                           .unbias = (float)attrs->unbias, .epsilon = (float)attrs->epsilon,
                           .weight_decay = (float)attrs->weight_decay, .keep = (float)attrs->keep);
    return lk__cuda_end(&s);
}

lk_status lk__cuda_lars_update(lk_call *call)
{
    lk_cuda_scratch s = {.call = call};
    const lk_lars_attrs *attrs = LK_ATTRS(call, lk_lars_attrs);
    float *w = lk__cuda_out(&s, 0), *v = lk__cuda_out(&s, 1);
    const float *g = lk__cuda_plain(&s, call->in[1]);
    const int64_t *offsets = lk__cuda_plain(&s, call->in[3]);
    const float *ratios = lk__cuda_plain(&s, call->in[4]), *adapted = lk__cuda_plain(&s, call->in[5]);
    lk_gpu_control control = cuda_update_control_of(&s, call->in + 6);
    if (s.status == LK_OK)
        s.status = LK_CUDA_LAUNCH(
            call, lars_update, .w = w, .v = v, .g = g, .ratios = ratios, .adapted = adapted, .offsets = offsets,
            .count = lk_tensor_count(call->in[0]), .segments = lk_tensor_count(call->in[4]), .control = control,
            .rate = (float)attrs->rate, .momentum = (float)attrs->momentum, .weight_decay = (float)attrs->weight_decay);
    return lk__cuda_end(&s);
}

/* --- norms -------------------------------------------------------------------------------------------------------- */

lk_status lk__cuda_squared_norms(lk_call *call)
{
    lk_cuda_scratch s = {.call = call};
    int64_t count = lk_tensor_count(call->in[0]), segments = lk_tensor_count(call->out[0]);
    const float *x = lk__cuda_plain(&s, call->in[0]);
    const int64_t *offsets = lk__cuda_plain(&s, call->in[1]);
    double *norms = lk__cuda_out(&s, 0);
    double *workspace = lk__cuda_new(&s, (size_t)(count / LK_GPU_NORM_BLOCK + segments) * sizeof *workspace);
    if (s.status == LK_OK)
        s.status = LK_CUDA_LAUNCH(call, squared_norms, .x = x, .offsets = offsets, .norms = norms,
                                  .workspace = workspace, .count = count, .segments = segments);
    return lk__cuda_end(&s);
}

lk_status lk__cuda_update_scales(lk_call *call)
{
    lk_cuda_scratch s = {.call = call};
    const lk_update_scales_attrs *attrs = LK_ATTRS(call, lk_update_scales_attrs);
    const float *skip = lk__cuda_plain(&s, call->in[0]), *adapted = lk__cuda_plain(&s, call->in[3]);
    const double *gradients = lk__cuda_plain(&s, call->in[1]), *parameters = lk__cuda_plain(&s, call->in[2]);
    const float *loss = lk__cuda_plain(&s, call->in[4]);
    float *new_skip = lk__cuda_out(&s, 0), *scale = lk__cuda_out(&s, 1), *ratios = lk__cuda_out(&s, 3);
    double *norm = lk__cuda_out(&s, 2);
    if (s.status == LK_OK)
        s.status = LK_CUDA_LAUNCH(
            call, update_scales, .skip = skip, .adapted = adapted, .loss = loss, .gradients = gradients,
            .parameters = parameters, .new_skip = new_skip, .scale = scale, .ratios = ratios, .norm = norm,
            .segments = lk_tensor_count(call->in[1]), .clip_norm = attrs->clip_norm, .trust = attrs->trust,
            .weight_decay = attrs->weight_decay, .skip_nonfinite = attrs->skip_nonfinite, .sticky = attrs->sticky);
    return lk__cuda_end(&s);
}
