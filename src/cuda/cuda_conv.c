/* conv2d and its gradients. Images and, while they are convolved, weights are channels-last; gradients of weights are
 * made plain, for they are added up over shards.
 *
 * What cuDNN has no engine for in bf16 it does in f32. With tensor cores, for which bf16 is exact, that is the same sum
 * of the same products. */
#include "cuda/cuda_kernels.h"
#include "cuda/cuda_library_operands.h"
#include "ops/ops.h"

typedef lk_status (*convolve_fn)(lk_cuda_scratch *s, lk_dtype dtype);

static lk_status convolve_as(lk_call *call, convolve_fn run, lk_dtype dtype)
{
    lk_cuda_scratch s = {.call = call};
    return lk__cuda_end(&s, run(&s, dtype));
}

static lk_status convolve(lk_call *call, convolve_fn run)
{
    lk_status status = convolve_as(call, run, call->dtype);
    return status == LK_ERR_UNSUPPORTED && call->dtype == LK_BF16 ? convolve_as(call, run, LK_F32) : status;
}

/* x and y: images; w: [O, I / groups, KH, KW]. */
static lk_gpu_conv_shape shape_of(const lk_call *call, const lk_conv2d_opts *opts, lk_shape x, lk_shape w, lk_shape y,
                                  lk_dtype dtype)
{
    lk_gpu_conv_shape s = {.images = x.dim[0],
                           .channels = x.dim[1],
                           .out_channels = w.dim[0],
                           .groups = opts->groups,
                           .dtype = dtype,
                           .tf32 = call->dtype == LK_BF16 || call->tf32,
                           .direct = call->algorithms == LK_ALGORITHMS_DIRECT};
    for (int i = 0; i < 2; i++) {
        s.size[i] = x.dim[2 + i];
        s.out_size[i] = y.dim[2 + i];
        s.kernel[i] = w.dim[2 + i];
        s.stride[i] = opts->stride[i];
        s.padding[i] = opts->padding[i];
        s.dilation[i] = opts->dilation[i];
    }
    return s;
}

static const void *images_in(lk_cuda_scratch *s, const lk_tensor *x, lk_dtype dtype)
{
    return lk__cuda_library_in(s, x, lk__cuda_channels_last, dtype);
}

static lk_cuda_result images_out(lk_cuda_scratch *s, lk_dtype dtype)
{
    return lk__cuda_library_out(s, 0, lk__cuda_channels_last, lk__cuda_channels_last, dtype);
}

/* --- forward ------------------------------------------------------------------------------------------------------ */

static lk_status forward(lk_cuda_scratch *s, lk_dtype dtype)
{
    const lk_call *call = s->call;
    const lk_tensor *x = call->in[0], *w = call->in[1];
    const void *images = images_in(s, x, dtype), *weights = images_in(s, w, dtype);
    const void *bias = lk__cuda_library_in(s, call->in[2], NULL, dtype);
    lk_cuda_result y = images_out(s, dtype);
    if (s->status == LK_OK && lk_tensor_count(x) > 0)
        s->status = LK_CUDA_LAUNCH(
            call, conv, .x = images, .w = weights, .bias = bias, .y = y.data,
            .shape = shape_of(call, LK_ATTRS(call, lk_conv2d_opts), x->shape, w->shape, call->out[0]->shape, dtype));
    lk__cuda_library_written(s, 0, &y);
    return s->status;
}

lk_status lk__cuda_conv2d(lk_call *call)
{
    return convolve(call, forward);
}

/* --- gradient of the images --------------------------------------------------------------------------------------- */

static lk_status input_grad(lk_cuda_scratch *s, lk_dtype dtype)
{
    const lk_call *call = s->call;
    const lk_tensor *dy = call->in[0], *w = call->in[1], *out = call->out[0];
    const void *results = images_in(s, dy, dtype), *weights = images_in(s, w, dtype);
    lk_cuda_result dx = images_out(s, dtype);
    if (s->status == LK_OK && lk_tensor_count(out) > 0)
        s->status = LK_CUDA_LAUNCH(call, conv_input_grad, .dy = results, .w = weights, .dx = dx.data,
                                   .shape = shape_of(call, &LK_ATTRS(call, lk_conv2d_grad_attrs)->conv, out->shape,
                                                     w->shape, dy->shape, dtype));
    lk__cuda_library_written(s, 0, &dx);
    return s->status;
}

lk_status lk__cuda_conv2d_input_grad(lk_call *call)
{
    return convolve(call, input_grad);
}

/* --- gradients of weights and bias -------------------------------------------------------------------------------- */

static lk_status fill_with_zeros(const lk_call *call, void *y, const lk_tensor *like)
{
    return LK_CUDA_LAUNCH(call, fill, .y = y, .dtype = like->dtype, .count = lk_tensor_count(like));
}

/* The sum of dy, [rows, channels] in memory, over rows. */
static lk_status bias_grad(lk_cuda_scratch *s, const void *results, lk_dtype dtype)
{
    const lk_call *call = s->call;
    const lk_tensor *dy = call->in[0], *out = call->out[1];
    int64_t channels = dy->shape.dim[1], rows = lk_tensor_count(dy) / channels;
    void *sums = lk__cuda_out(s, 1);
    double *workspace = lk__cuda_new(s, (size_t)lk_gpu_sums_workspace(rows, channels) * sizeof *workspace);
    if (s->status != LK_OK)
        return s->status;
    return LK_CUDA_LAUNCH(call, column_sums, .x = results, .sums = sums, .workspace = workspace, .dtype = dtype,
                          .sums_dtype = out->dtype, .rows = rows, .columns = channels);
}

static lk_status weight_grad(lk_cuda_scratch *s, lk_dtype dtype)
{
    const lk_call *call = s->call;
    const lk_conv2d_grad_attrs *attrs = LK_ATTRS(call, lk_conv2d_grad_attrs);
    const lk_tensor *dy = call->in[0], *x = call->in[1], *out = call->out[0];
    const void *results = images_in(s, dy, dtype), *images = images_in(s, x, dtype);
    lk_dtype made = dtype == call->dtype ? out->dtype : dtype;
    lk_cuda_result dw = lk__cuda_library_out(s, 0, NULL, lk__cuda_channels_last, made);
    if (s->status == LK_OK)
        s->status = LK_CUDA_LAUNCH(call, conv_weight_grad, .dy = results, .x = images, .dw = dw.data, .dw_dtype = made,
                                   .shape = shape_of(call, &attrs->conv, x->shape, out->shape, dy->shape, dtype));
    lk__cuda_library_written(s, 0, &dw);
    return s->status == LK_OK && attrs->bias ? bias_grad(s, results, dtype) : s->status;
}

/* Of no images. */
static lk_status no_gradients(lk_call *call)
{
    lk_cuda_scratch s = {.call = call};
    for (int i = 0; i < call->n_out; i++) {
        void *y = lk__cuda_out(&s, i);
        if (s.status == LK_OK)
            s.status = fill_with_zeros(call, y, call->out[i]);
    }
    return lk__cuda_end(&s, LK_OK);
}

lk_status lk__cuda_conv2d_weight_grad(lk_call *call)
{
    return lk_tensor_count(call->in[0]) > 0 ? convolve(call, weight_grad) : no_gradients(call);
}

/* --- what runs it ------------------------------------------------------------------------------------------------- */

bool lk__cuda_conv_choice(const lk_call *call, lk_dtype dtype, lk_gpu_choice *choice)
{
    const lk_tensor *first = call->in[0], *second = call->in[1], *out = call->out[0];
    const lk_conv2d_opts *conv =
        call->op->id == LK_OP_CONV2D ? LK_ATTRS(call, lk_conv2d_opts) : &LK_ATTRS(call, lk_conv2d_grad_attrs)->conv;
    *choice = (lk_gpu_choice){.kernel = LK_GPU_CONV};
    if (lk_tensor_count(first) == 0 || lk_tensor_count(out) == 0)
        return false;
    if (call->op->id == LK_OP_CONV2D) {
        choice->conv = shape_of(call, conv, first->shape, second->shape, out->shape, dtype);
        choice->bias = call->in[2] != NULL;
    } else if (call->op->id == LK_OP_CONV2D_INPUT_GRAD) {
        choice->kernel = LK_GPU_CONV_INPUT_GRAD;
        choice->conv = shape_of(call, conv, out->shape, second->shape, first->shape, dtype);
    } else {
        choice->kernel = LK_GPU_CONV_WEIGHT_GRAD;
        choice->conv = shape_of(call, conv, second->shape, out->shape, first->shape, dtype);
        choice->dw_dtype = dtype == call->dtype ? out->dtype : dtype;
    }
    return true;
}
