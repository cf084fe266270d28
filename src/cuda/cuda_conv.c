/* conv2d, conv_block and their gradients. Images are channels-last, and so are weights while they are convolved and
 * gradients of weights until they have been added up over shards.
 *
 * If cuDNN has no engine for bf16 the convolution runs in f32. With tensor cores, to which a bf16 value is exact, that
 * adds up the same products. */
#include "cuda/cuda_graph.h"
#include "cuda/cuda_kernels.h"
#include "cuda/cuda_library_operands.h"
#include "cuda/cuda_operands.h"
#include "ops/ops.h"

typedef lk_status (*convolve_fn)(lk_cuda_scratch *s, lk_dtype dtype);

static lk_status conv_in_dtype(lk_call *call, convolve_fn run, lk_dtype dtype)
{
    lk_cuda_scratch s = {.call = call};
    s.status = run(&s, dtype);
    return lk__cuda_end(&s);
}

static lk_status conv_with_fallback(lk_call *call, convolve_fn run)
{
    lk_status status = conv_in_dtype(call, run, call->dtype);
    if (status != LK_ERR_UNSUPPORTED || call->dtype != LK_BF16)
        return status;
    lk_error_clear();
    return conv_in_dtype(call, run, LK_F32);
}

/* x and y are images of all parts, w is [O, I / groups, KH, KW]. */
static lk_gpu_conv_shape cuda_conv_shape_of(const lk_call *call, const lk_conv2d_opts *opts, lk_shape x, lk_shape w,
                                            lk_shape y, lk_dtype dtype)
{
    x.dim[0] /= lk__cuda_parts(call);
    return (lk_gpu_conv_shape){.geometry = lk__geometry_of_conv(x, w, y, opts),
                               .parts = call->parts,
                               .dtype = dtype,
                               .tf32 = call->dtype == LK_BF16 || call->tf32,
                               .direct = call->algorithms == LK_ALGORITHMS_DIRECT};
}

bool lk__cuda_conv_choice(const lk_call *call, lk_dtype dtype, lk_gpu_choice *choice)
{
    const lk_tensor *first = call->in[0], *second = call->in[1], *out = call->out[0];
    const lk_conv2d_opts *conv =
        call->op->id == LK_OP_CONV2D ? LK_ATTRS(call, lk_conv2d_opts) : &LK_ATTRS(call, lk_conv2d_grad_attrs)->conv;
    *choice = (lk_gpu_choice){.kernel = LK_GPU_CONV};
    if (lk_tensor_count(first) == 0 || lk_tensor_count(out) == 0)
        return false;
    if (call->op->id == LK_OP_CONV2D) {
        choice->conv = cuda_conv_shape_of(call, conv, first->shape, second->shape, out->shape, dtype);
        choice->bias = call->in[2] != NULL;
    } else if (call->op->id == LK_OP_CONV2D_INPUT_GRAD) {
        choice->kernel = LK_GPU_CONV_INPUT_GRAD;
        choice->conv = cuda_conv_shape_of(call, conv, out->shape, second->shape, first->shape, dtype);
    } else {
        choice->kernel = LK_GPU_CONV_WEIGHT_GRAD;
        choice->conv = cuda_conv_shape_of(call, conv, second->shape, out->shape, first->shape, dtype);
        choice->dw_dtype = dtype == call->dtype ? out->dtype : dtype;
    }
    if (call->tuning)
        choice->conv.engine = lk__cuda_tuned_engine(call->tuning, choice);
    return true;
}

static const void *cuda_conv_images_in(lk_cuda_scratch *s, const lk_tensor *x, lk_dtype dtype)
{
    return lk__cuda_library_in(s, x, lk__cuda_channels_last, dtype);
}

static lk_cuda_result cuda_conv_images_out(lk_cuda_scratch *s, int i, lk_dtype dtype)
{
    return lk__cuda_library_out(s, i, lk__cuda_channels_last, lk__cuda_channels_last, dtype);
}

/* --- forward ------------------------------------------------------------------------------------------------------ */

static lk_status cuda_conv_launch_forward(lk_cuda_scratch *s, lk_dtype dtype)
{
    const lk_call *call = s->call;
    const lk_tensor *x = call->in[0], *w = call->in[1];
    const void *images = cuda_conv_images_in(s, x, dtype), *weights = cuda_conv_images_in(s, w, dtype);
    const void *bias = lk__cuda_library_in(s, call->in[2], NULL, dtype);
    lk_cuda_result y = cuda_conv_images_out(s, 0, dtype);
    lk_gpu_choice problem;
    if (s->status == LK_OK && lk__cuda_conv_choice(call, dtype, &problem))
        s->status =
            LK_CUDA_LAUNCH(call, conv, .x = images, .w = weights, .bias = bias, .y = y.data, .shape = problem.conv);
    lk__cuda_library_written(s, 0, &y);
    return s->status;
}

lk_status lk__cuda_conv2d(lk_call *call)
{
    return conv_with_fallback(call, cuda_conv_launch_forward);
}

/* --- gradient of the images --------------------------------------------------------------------------------------- */

static lk_status cuda_conv_launch_input_grad(lk_cuda_scratch *s, lk_dtype dtype)
{
    const lk_call *call = s->call;
    const lk_tensor *dy = call->in[0], *w = call->in[1];
    const void *results = cuda_conv_images_in(s, dy, dtype), *weights = cuda_conv_images_in(s, w, dtype);
    lk_cuda_result dx = cuda_conv_images_out(s, 0, dtype);
    lk_gpu_choice problem;
    if (s->status == LK_OK && lk__cuda_conv_choice(call, dtype, &problem))
        s->status =
            LK_CUDA_LAUNCH(call, conv_input_grad, .dy = results, .w = weights, .dx = dx.data, .shape = problem.conv);
    lk__cuda_library_written(s, 0, &dx);
    return s->status;
}

lk_status lk__cuda_conv2d_input_grad(lk_call *call)
{
    return conv_with_fallback(call, cuda_conv_launch_input_grad);
}

/* --- gradients of weights and bias -------------------------------------------------------------------------------- */

static lk_status cuda_conv_fill_with_zeros(const lk_call *call, void *y, const lk_tensor *like)
{
    return LK_CUDA_LAUNCH(call, fill, .y = y, .dtype = like->dtype, .count = lk_tensor_count(like));
}

/* Sums dy over rows. `results` is dy, images of shape `y`, in memory a matrix [rows, channels]. */
static lk_status cuda_conv_launch_bias_grad(lk_cuda_scratch *s, const void *results, lk_shape y, lk_dtype dtype)
{
    const lk_call *call = s->call;
    const lk_tensor *out = call->out[1];
    int64_t parts = lk__cuda_parts(call), channels = y.dim[1], rows = y.dim[0] / parts * y.dim[2] * y.dim[3];
    void *sums = lk__cuda_out(s, 1);
    double *workspace = lk__cuda_new(s, (size_t)(parts * lk_gpu_sums_workspace(rows, channels, 1)) * sizeof *workspace);
    if (s->status != LK_OK)
        return s->status;
    return LK_CUDA_LAUNCH(call, column_sums, .x = results, .sums = sums, .workspace = workspace, .dtype = dtype,
                          .sums_dtype = out->dtype, .rows = rows, .columns = channels, .parts = call->parts);
}

/* Launches the gradients of the weights and, if `bias`, of the bias. */
static lk_status cuda_conv_launch_few_inputs_grad(lk_cuda_scratch *s, lk_gpu_conv_weight_grad gradient, bool bias)
{
    const lk_call *call = s->call;
    int64_t doubles = lk__cuda_parts(call) * lk_gpu_weight_grad_workspace(&gradient.shape);
    gradient.workspace = lk__cuda_new(s, (size_t)doubles * sizeof *gradient.workspace);
    gradient.dbias = bias ? lk__cuda_out(s, 1) : NULL;
    if (s->status != LK_OK)
        return s->status;
    return lk__cuda_check(lk__cuda_of(call)->driver,
                          lk__cuda_of(call)->driver->conv_weight_grad(lk__cuda_of(call)->stream, &gradient));
}

/* The lane of a part. Parts follow each other in lanes 1, 2, …, 0; with a bias, whose two launches are in lane 1, the
 * first ones skip that. */
static int cuda_conv_lane_of_part(int64_t part, bool bias)
{
    enum { LAUNCHES = 2 };
    int64_t others = LK_PARTS_AT_ONCE - 1, skipping = bias ? LAUNCHES * others : 0;
    return (int)(part < skipping ? (part % others + 2) % LK_PARTS_AT_ONCE : (part - skipping + 1) % LK_PARTS_AT_ONCE);
}

/* Launches the gradients of the weights of each part and of the bias, in lanes: one alone fills few multiprocessors. */
static lk_status cuda_conv_launch_parts_grad(lk_cuda_scratch *s, lk_gpu_conv_weight_grad part, bool bias)
{
    const lk_call *call = s->call;
    lk_cuda *cuda = lk__cuda_of(call);
    const lk_geometry *g = &part.shape.geometry;
    size_t size = lk_dtype_size(part.shape.dtype), dw_size = lk_dtype_size(part.dw_dtype);
    const char *dy = part.dy, *x = part.x;
    char *dw = part.dw;
    bool has_lanes = call->parts > 1 && cuda->stream == cuda->trunk;
    lk_status status = bias && has_lanes ? lk__cuda_fork(cuda, 1) : LK_OK; /* before the trunk gets a part */
    part.shape.parts = 0;
    for (int64_t i = 0; i < lk__cuda_parts(call) && status == LK_OK; i++) {
        part.dy = dy + (size_t)(i * lk__geometry_y_count(g)) * size;
        part.x = x + (size_t)(i * lk__geometry_x_count(g)) * size;
        part.dw = dw + (size_t)(i * lk__geometry_w_count(g)) * dw_size;
        status = has_lanes ? lk__cuda_fork(cuda, cuda_conv_lane_of_part(i, bias)) : LK_OK;
        if (status == LK_OK)
            status = lk__cuda_check(cuda->driver, cuda->driver->conv_weight_grad(cuda->stream, &part));
    }
    if (status == LK_OK && bias && has_lanes)
        status = lk__cuda_fork(cuda, 1);
    if (status == LK_OK && bias)
        status = cuda_conv_launch_bias_grad(s, dy, call->in[0]->shape, part.shape.dtype);
    lk_status joined = has_lanes ? lk__cuda_join(cuda) : LK_OK;
    return status == LK_OK ? joined : status;
}

static lk_status cuda_conv_launch_weight_grad(lk_cuda_scratch *s, lk_dtype dtype)
{
    const lk_call *call = s->call;
    const void *dy = cuda_conv_images_in(s, call->in[0], dtype), *x = cuda_conv_images_in(s, call->in[1], dtype);
    bool bias = LK_ATTRS(call, lk_conv2d_grad_attrs)->bias;
    lk_gpu_choice problem;
    if (!lk__cuda_conv_choice(call, dtype, &problem))
        return s->status;
    lk_cuda_result dw = cuda_conv_images_out(s, 0, problem.dw_dtype);
    lk_gpu_conv_weight_grad gradient = {
        .dy = dy, .x = x, .dw = dw.data, .dw_dtype = problem.dw_dtype, .shape = problem.conv};
    if (s->status == LK_OK)
        s->status = lk_gpu_has_few_inputs(&problem.conv) ? cuda_conv_launch_few_inputs_grad(s, gradient, bias)
                                                         : cuda_conv_launch_parts_grad(s, gradient, bias);
    lk__cuda_library_written(s, 0, &dw);
    return s->status;
}

/* A batch of no images: all gradients are zero. */
static lk_status cuda_conv_zero_gradients(lk_call *call)
{
    lk_cuda_scratch s = {.call = call};
    for (int i = 0; i < call->n_out; i++) {
        void *y = lk__cuda_out(&s, i);
        if (s.status == LK_OK)
            s.status = cuda_conv_fill_with_zeros(call, y, call->out[i]);
    }
    return lk__cuda_end(&s);
}

lk_status lk__cuda_conv2d_weight_grad(lk_call *call)
{
    return lk_tensor_count(call->in[0]) > 0 ? conv_with_fallback(call, cuda_conv_launch_weight_grad)
                                            : cuda_conv_zero_gradients(call);
}

/* --- conv_block --------------------------------------------------------------------------------------------------- */

/* Runs the kernels of the operators that a conv_block replaces, in f32 whatever the operands' dtype, so that nothing is
 * rounded between them. `saved` is 1 for the elements of the convolution's result that dy reaches, otherwise 0. */

static float *cuda_conv_new_images(lk_cuda_scratch *s, lk_shape shape)
{
    return lk__cuda_new(s, (size_t)lk_shape_count(shape) * sizeof(float));
}

/* conv = relu(conv2d(x, w, bias)), or conv2d(x, w, bias) without attrs->relu. */
static lk_status convolve_and_rectify(lk_cuda_scratch *s, const lk_conv_block_attrs *attrs, float *conv)
{
    const lk_call *call = s->call;
    const lk_tensor *x = call->in[0], *w = call->in[1], *saved = call->out[1];
    const void *images = cuda_conv_images_in(s, x, LK_F32), *weights = cuda_conv_images_in(s, w, LK_F32);
    const void *bias = lk__cuda_library_in(s, call->in[2], NULL, LK_F32);
    if (s->status != LK_OK)
        return s->status;
    LK_TRY(LK_CUDA_LAUNCH(call, conv, .x = images, .w = weights, .bias = bias, .y = conv,
                          .shape = cuda_conv_shape_of(call, &attrs->conv, x->shape, w->shape, saved->shape, LK_F32)));
    if (!attrs->relu)
        return LK_OK;
    return LK_CUDA_LAUNCH(call, relu, .x = conv, .y = conv, .dtype = LK_F32, .count = lk_tensor_count(saved));
}

/* Also sets `chosen` to 1 at the first maximum of each window, and to 0 at the other elements. */
static lk_status cuda_conv_block_max_pool(lk_cuda_scratch *s, lk_geometry window, const float *conv, float *y,
                                          float *chosen)
{
    const lk_call *call = s->call;
    int64_t count = lk_tensor_count(call->out[0]);
    int32_t *where = lk__cuda_new(s, (size_t)count * sizeof *where);
    float *ones = cuda_conv_new_images(s, call->out[0]->shape);
    if (s->status != LK_OK)
        return s->status;
    LK_TRY(LK_CUDA_LAUNCH(call, max_pool, .x = conv, .y = y, .where = where, .dtype = LK_F32, .window = window));
    LK_TRY(LK_CUDA_LAUNCH(call, fill, .y = ones, .dtype = LK_F32, .count = count, .value = 1));
    return LK_CUDA_LAUNCH(call, max_pool_grad, .dy = ones, .where = where, .dx = chosen, .dtype = LK_F32,
                          .window = window);
}

/* Pools the convolution's result to y (without pooling it is in y already), and writes `saved`. */
static lk_status cuda_conv_pool_and_note(lk_cuda_scratch *s, const lk_conv_block_attrs *attrs, const float *conv,
                                         float *y, float *saved)
{
    const lk_call *call = s->call;
    lk_shape shape = call->out[1]->shape;
    int64_t count = lk_shape_count(shape);
    lk_geometry window = lk__geometry_of_pool(shape, call->out[0]->shape, &attrs->pool);
    if (attrs->pooling == LK_BLOCK_MAX_POOL)
        LK_TRY(cuda_conv_block_max_pool(s, window, conv, y, saved));
    else
        LK_TRY(LK_CUDA_LAUNCH(call, fill, .y = saved, .dtype = LK_F32, .count = count, .value = 1));
    if (attrs->pooling == LK_BLOCK_AVG_POOL)
        LK_TRY(LK_CUDA_LAUNCH(call, avg_pool, .x = conv, .y = y, .dtype = LK_F32, .window = window));
    if (!attrs->relu)
        return LK_OK;
    return LK_CUDA_LAUNCH(call, relu_grad, .dy = saved, .y = conv, .dx = saved, .dtype = LK_F32, .count = count);
}

lk_status lk__cuda_conv_block(lk_call *call)
{
    lk_cuda_scratch s = {.call = call};
    const lk_conv_block_attrs *attrs = LK_ATTRS(call, lk_conv_block_attrs);
    lk_cuda_result y = cuda_conv_images_out(&s, 0, LK_F32), saved = cuda_conv_images_out(&s, 1, LK_F32);
    float *conv = attrs->pooling == LK_BLOCK_NO_POOL ? y.data : cuda_conv_new_images(&s, call->out[1]->shape);
    if (s.status == LK_OK && lk_tensor_count(call->out[1]) > 0) {
        s.status = convolve_and_rectify(&s, attrs, conv);
        if (s.status == LK_OK)
            s.status = cuda_conv_pool_and_note(&s, attrs, conv, y.data, saved.data);
    }
    lk__cuda_library_written(&s, 0, &y);
    lk__cuda_library_written(&s, 1, &saved);
    return lk__cuda_end(&s);
}

/* Writes the gradient of the convolution's result. Max pooling of `saved` finds the first 1 of each window, the element
 * that gets all of the window's dy; in a window without a 1 relu_grad drops the dy. */
static lk_status cuda_conv_gradient_of_result(lk_cuda_scratch *s, const lk_conv_block_attrs *attrs, const void *dy,
                                              float *dconv)
{
    const lk_call *call = s->call;
    lk_shape y = call->in[0]->shape, shape = call->in[1]->shape;
    const float *saved = cuda_conv_images_in(s, call->in[1], LK_F32), *before = dy;
    lk_geometry window = lk__geometry_of_pool(shape, y, &attrs->pool);
    if (attrs->pooling == LK_BLOCK_MAX_POOL) {
        int32_t *where = lk__cuda_new(s, (size_t)lk_shape_count(y) * sizeof *where);
        float *greatest = cuda_conv_new_images(s, y);
        if (s->status != LK_OK)
            return s->status;
        LK_TRY(LK_CUDA_LAUNCH(call, max_pool, .x = saved, .y = greatest, .where = where, .dtype = LK_F32,
                              .window = window));
        LK_TRY(LK_CUDA_LAUNCH(call, max_pool_grad, .dy = dy, .where = where, .dx = dconv, .dtype = LK_F32,
                              .window = window));
        before = dconv;
    } else if (attrs->pooling == LK_BLOCK_AVG_POOL && s->status == LK_OK) {
        LK_TRY(LK_CUDA_LAUNCH(call, avg_pool_grad, .dy = dy, .dx = dconv, .dtype = LK_F32, .window = window));
        before = dconv;
    }
    if (s->status != LK_OK)
        return s->status;
    return LK_CUDA_LAUNCH(call, relu_grad, .dy = before, .y = saved, .dx = dconv, .dtype = LK_F32,
                          .count = lk_shape_count(shape));
}

/* Uses TF32 only if the call allows it, also for bf16: an element's share of an average is not exact in bf16, and TF32
 * would round it. */
static lk_gpu_conv_shape cuda_conv_block_shape(const lk_call *call, const lk_conv_block_attrs *attrs)
{
    lk_gpu_conv_shape shape =
        cuda_conv_shape_of(call, &attrs->conv, call->in[2]->shape, call->in[3]->shape, call->in[1]->shape, LK_F32);
    shape.tf32 = call->tf32;
    return shape;
}

static lk_status cuda_conv_block_weight_grad(lk_cuda_scratch *s, const lk_conv_block_attrs *attrs, const float *dconv)
{
    const lk_call *call = s->call;
    const void *images = cuda_conv_images_in(s, call->in[2], LK_F32);
    lk_cuda_result dw = cuda_conv_images_out(s, 0, LK_F32);
    if (s->status == LK_OK)
        s->status = LK_CUDA_LAUNCH(call, conv_weight_grad, .dy = dconv, .x = images, .dw = dw.data, .dw_dtype = LK_F32,
                                   .shape = cuda_conv_block_shape(call, attrs));
    lk__cuda_library_written(s, 0, &dw);
    return s->status == LK_OK && attrs->bias ? cuda_conv_launch_bias_grad(s, dconv, call->in[1]->shape, LK_F32)
                                             : s->status;
}

static lk_status cuda_conv_block_input_grad(lk_cuda_scratch *s, const lk_conv_block_attrs *attrs, const float *dconv)
{
    const lk_call *call = s->call;
    int out = 1 + attrs->bias;
    const void *weights = cuda_conv_images_in(s, call->in[3], LK_F32);
    lk_cuda_result dx = cuda_conv_images_out(s, out, LK_F32);
    if (s->status == LK_OK)
        s->status = LK_CUDA_LAUNCH(call, conv_input_grad, .dy = dconv, .w = weights, .dx = dx.data,
                                   .shape = cuda_conv_block_shape(call, attrs));
    lk__cuda_library_written(s, out, &dx);
    return s->status;
}

lk_status lk__cuda_conv_block_grad(lk_call *call)
{
    lk_cuda_scratch s = {.call = call};
    const lk_conv_block_attrs *attrs = LK_ATTRS(call, lk_conv_block_attrs);
    if (lk_tensor_count(call->in[1]) == 0)
        return cuda_conv_zero_gradients(call);
    const void *dy = cuda_conv_images_in(&s, call->in[0], LK_F32);
    float *dconv = cuda_conv_new_images(&s, call->in[1]->shape);
    s.status = cuda_conv_gradient_of_result(&s, attrs, dy, dconv);
    if (s.status == LK_OK)
        s.status = cuda_conv_block_weight_grad(&s, attrs, dconv);
    if (s.status == LK_OK && attrs->input_grad)
        s.status = cuda_conv_block_input_grad(&s, attrs, dconv);
    return lk__cuda_end(&s);
}
