/* Reductions over axes, and softmax along one axis. */
#include "core/shape.h"
#include "cuda/cuda_kernels.h"
#include "cuda/cuda_operands.h"
#include "cuda/cuda_state.h"
#include "ops/ops.h"

/* --- reductions --------------------------------------------------------------------------------------------------- */

/* If the first axis is reduced, the parts of a merged call are one more axis that is kept. */
static lk_gpu_axes cuda_reduce_split_axes(const lk_call *call, lk_shape shape, const int64_t *strides, unsigned reduced)
{
    lk_gpu_axes axes = {.n_kept = 0};
    if (call->parts > 0 && reduced & 1) {
        shape.dim[0] /= call->parts;
        axes.kept[0] = call->parts;
        axes.kept_stride[0] = shape.dim[0] * strides[0];
        axes.n_kept = 1;
    }
    for (int i = 0; i < shape.ndim; i++) {
        bool is_reduced = reduced >> i & 1;
        int at = is_reduced ? axes.n_reduced++ : axes.n_kept++;
        (is_reduced ? axes.reduced : axes.kept)[at] = shape.dim[i];
        (is_reduced ? axes.reduced_stride : axes.kept_stride)[at] = strides[i];
    }
    return axes;
}

/* The workspace that lk_gpu_reduce asks for; NULL if it needs none. */
static void *reduce_workspace(lk_cuda_scratch *s, const lk_gpu_axes *axes)
{
    int64_t line = 1, lines = 1;
    for (int i = 0; i < axes->n_reduced; i++)
        line *= axes->reduced[i];
    for (int i = 0; i < axes->n_kept; i++)
        lines *= axes->kept[i];
    int64_t chunks = (line + LK_GPU_REDUCE_CHUNK - 1) / LK_GPU_REDUCE_CHUNK;
    return chunks > 1 ? lk__cuda_new(s, (size_t)(lines * chunks) * 16) : NULL;
}

/* Takes an operand of any strides and layout without a copy. */
static lk_status launch_reduce(lk_call *call, lk_gpu_reduction op, unsigned reduced)
{
    lk_cuda_scratch s = {.call = call};
    lk_gpu_view x = lk__cuda_view(call->in[0]);
    lk_gpu_axes axes = cuda_reduce_split_axes(call, call->in[0]->shape, x.stride, reduced);
    void *y = lk__cuda_out(&s, 0), *workspace = reduce_workspace(&s, &axes);
    if (s.status == LK_OK)
        s.status = LK_CUDA_LAUNCH(call, reduce, .x = x.data, .y = y, .workspace = workspace, .dtype = x.dtype,
                                  .y_dtype = call->out[0]->dtype, .op = op, .axes = axes);
    return lk__cuda_end(&s);
}

lk_status lk__cuda_sum(lk_call *call)
{
    return launch_reduce(call, LK_GPU_SUM, LK_ATTRS(call, lk_reduce_attrs)->axes);
}

lk_status lk__cuda_mean(lk_call *call)
{
    return launch_reduce(call, LK_GPU_MEAN, LK_ATTRS(call, lk_reduce_attrs)->axes);
}

lk_status lk__cuda_max(lk_call *call)
{
    return launch_reduce(call, LK_GPU_MAX, LK_ATTRS(call, lk_reduce_attrs)->axes);
}

lk_status lk__cuda_argmax(lk_call *call)
{
    return launch_reduce(call, LK_GPU_ARGMAX, 1u << LK_ATTRS(call, lk_axis_attrs)->axis);
}

lk_status lk__cuda_max_grad(lk_call *call)
{
    lk_cuda_scratch s = {.call = call};
    int64_t strides[LK_MAX_DIMS];
    lk__shape_strides(call->in[1]->shape, strides);
    const void *dy = lk__cuda_plain(&s, call->in[0]), *x = lk__cuda_plain(&s, call->in[1]);
    const void *y = lk__cuda_plain(&s, call->in[2]);
    void *dx = lk__cuda_out(&s, 0);
    if (s.status == LK_OK)
        s.status = LK_CUDA_LAUNCH(
            call, max_grad, .dy = dy, .x = x, .y = y, .dx = dx, .dtype = call->dtype,
            .axes = cuda_reduce_split_axes(call, call->in[1]->shape, strides, LK_ATTRS(call, lk_reduce_attrs)->axes));
    return lk__cuda_end(&s);
}

/* --- softmax ------------------------------------------------------------------------------------------------------ */

/* The product of x's dimensions [begin, end). */
static int64_t cuda_reduce_count_axes(const lk_tensor *x, int begin, int end)
{
    int64_t count = 1;
    for (int i = begin; i < end; i++)
        count *= x->shape.dim[i];
    return count;
}

static lk_status cuda_reduce_launch_softmax(lk_call *call, bool log)
{
    lk_cuda_scratch s = {.call = call};
    const lk_tensor *in = call->in[0];
    int axis = LK_ATTRS(call, lk_axis_attrs)->axis;
    const void *x = lk__cuda_plain(&s, in);
    void *y = lk__cuda_out(&s, 0);
    if (s.status == LK_OK)
        s.status = LK_CUDA_LAUNCH(call, softmax, .x = x, .y = y, .dtype = call->dtype,
                                  .outer = cuda_reduce_count_axes(in, 0, axis), .n = in->shape.dim[axis],
                                  .inner = cuda_reduce_count_axes(in, axis + 1, in->shape.ndim), .log = log);
    return lk__cuda_end(&s);
}

lk_status lk__cuda_softmax(lk_call *call)
{
    return cuda_reduce_launch_softmax(call, false);
}

lk_status lk__cuda_log_softmax(lk_call *call)
{
    return cuda_reduce_launch_softmax(call, true);
}

static lk_status cuda_reduce_launch_softmax_grad(lk_call *call, bool log)
{
    lk_cuda_scratch s = {.call = call};
    const lk_tensor *in = call->in[0];
    int axis = LK_ATTRS(call, lk_axis_attrs)->axis;
    const void *dy = lk__cuda_plain(&s, in), *y = lk__cuda_plain(&s, call->in[1]);
    void *dx = lk__cuda_out(&s, 0);
    if (s.status == LK_OK)
        s.status = LK_CUDA_LAUNCH(call, softmax_grad, .dy = dy, .y = y, .dx = dx, .dtype = call->dtype,
                                  .outer = cuda_reduce_count_axes(in, 0, axis), .n = in->shape.dim[axis],
                                  .inner = cuda_reduce_count_axes(in, axis + 1, in->shape.ndim), .log = log);
    return lk__cuda_end(&s);
}

lk_status lk__cuda_softmax_grad(lk_call *call)
{
    return cuda_reduce_launch_softmax_grad(call, false);
}

lk_status lk__cuda_log_softmax_grad(lk_call *call)
{
    return cuda_reduce_launch_softmax_grad(call, true);
}
