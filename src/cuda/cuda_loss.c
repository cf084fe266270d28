/* Losses. The host does not see labels before the call has returned, so a label out of range cannot fail the call; its
 * loss and gradient are NaN instead. */
#include "cuda/cuda_kernels.h"
#include "cuda/cuda_operands.h"
#include "cuda/cuda_state.h"
#include "ops/ops.h"

/* --- cross-entropy ------------------------------------------------------------------------------------------------ */

/* Fills in the arguments that depend on logits and labels. The call's first input, logits or dloss, has the dtype of
 * the loss. */
static lk_gpu_cross_entropy cuda_loss_cross_entropy_of(lk_cuda_scratch *s, const lk_tensor *logits,
                                                       const lk_tensor *labels)
{
    return (lk_gpu_cross_entropy){.logits = lk__cuda_plain(s, logits),
                                  .labels = lk__cuda_plain(s, labels),
                                  .dtype = logits->dtype,
                                  .loss_dtype = s->call->dtype,
                                  .labels_dtype = labels->dtype,
                                  .n = logits->shape.dim[0] / lk__cuda_parts(s->call),
                                  .classes = logits->shape.dim[1],
                                  .parts = s->call->parts,
                                  .scale = 1};
}

static lk_status cuda_loss_launch_cross_entropy(lk_cuda_scratch *s, const lk_gpu_cross_entropy *arguments)
{
    const lk_cuda *cuda = lk__cuda_of(s->call);
    if (s->status == LK_OK)
        s->status = lk__cuda_check(cuda->driver, cuda->driver->cross_entropy(cuda->stream, arguments));
    return lk__cuda_end(s);
}

static double cuda_loss_reduction_scale(const lk_cross_entropy_attrs *attrs, int64_t n)
{
    return attrs->reduction == LK_REDUCTION_MEAN ? 1 / (double)n : 1;
}

lk_status lk__cuda_sparse_softmax_cross_entropy(lk_call *call)
{
    lk_cuda_scratch s = {.call = call};
    const lk_cross_entropy_attrs *attrs = LK_ATTRS(call, lk_cross_entropy_attrs);
    lk_gpu_cross_entropy rows = cuda_loss_cross_entropy_of(&s, call->in[0], call->in[1]);
    rows.loss = lk__cuda_out(&s, 0);
    rows.sum = attrs->reduction != LK_REDUCTION_NONE;
    rows.workspace = rows.sum ? lk__cuda_new(&s, (size_t)lk_tensor_count(call->in[1]) * sizeof(float)) : NULL;
    rows.smoothing = attrs->smoothing;
    rows.scale = cuda_loss_reduction_scale(attrs, rows.n);
    return cuda_loss_launch_cross_entropy(&s, &rows);
}

lk_status lk__cuda_sparse_softmax_cross_entropy_grad(lk_call *call)
{
    lk_cuda_scratch s = {.call = call};
    const lk_cross_entropy_attrs *attrs = LK_ATTRS(call, lk_cross_entropy_attrs);
    lk_gpu_cross_entropy rows = cuda_loss_cross_entropy_of(&s, call->in[1], call->in[2]);
    rows.dloss = lk__cuda_plain(&s, call->in[0]);
    rows.dlogits = lk__cuda_out(&s, 0);
    rows.each = attrs->reduction == LK_REDUCTION_NONE;
    rows.smoothing = attrs->smoothing;
    rows.scale = cuda_loss_reduction_scale(attrs, rows.n);
    return cuda_loss_launch_cross_entropy(&s, &rows);
}

lk_status lk__cuda_cross_entropy_step(lk_call *call)
{
    lk_cuda_scratch s = {.call = call};
    const lk_cross_entropy_step_attrs *attrs = LK_ATTRS(call, lk_cross_entropy_step_attrs);
    lk_gpu_cross_entropy rows = cuda_loss_cross_entropy_of(&s, call->in[1], call->in[2]);
    rows.dloss = lk__cuda_plain(&s, call->in[0]);
    rows.loss = lk__cuda_out(&s, 0);
    rows.dlogits = lk__cuda_out(&s, 1);
    rows.hits = lk__cuda_out(&s, 2);
    rows.workspace = lk__cuda_new(&s, (size_t)lk_tensor_count(call->in[2]) * 2 * sizeof(float));
    rows.sum = true;
    rows.smoothing = attrs->smoothing;
    rows.k = attrs->k;
    return cuda_loss_launch_cross_entropy(&s, &rows);
}

lk_status lk__cuda_in_top_k(lk_call *call)
{
    lk_cuda_scratch s = {.call = call};
    lk_gpu_cross_entropy rows = cuda_loss_cross_entropy_of(&s, call->in[0], call->in[1]);
    rows.hits = lk__cuda_out(&s, 0);
    rows.k = LK_ATTRS(call, lk_top_k_attrs)->k;
    return cuda_loss_launch_cross_entropy(&s, &rows);
}

/* --- sigmoid cross-entropy ---------------------------------------------------------------------------------------- */

lk_status lk__cuda_sigmoid_cross_entropy(lk_call *call)
{
    lk_cuda_scratch s = {.call = call};
    const void *logits = lk__cuda_plain(&s, call->in[0]), *targets = lk__cuda_plain(&s, call->in[1]);
    void *loss = lk__cuda_out(&s, 0);
    if (s.status == LK_OK)
        s.status = LK_CUDA_LAUNCH(call, sigmoid_cross_entropy, .logits = logits, .targets = targets, .loss = loss,
                                  .dtype = call->dtype, .count = lk_tensor_count(call->in[0]));
    return lk__cuda_end(&s);
}

lk_status lk__cuda_sigmoid_cross_entropy_grad(lk_call *call)
{
    lk_cuda_scratch s = {.call = call};
    const void *dloss = lk__cuda_plain(&s, call->in[0]), *logits = lk__cuda_plain(&s, call->in[1]);
    const void *targets = lk__cuda_plain(&s, call->in[2]);
    void *dlogits = lk__cuda_out(&s, 0);
    if (s.status == LK_OK)
        s.status = LK_CUDA_LAUNCH(call, sigmoid_cross_entropy, .dloss = dloss, .logits = logits, .targets = targets,
                                  .dlogits = dlogits, .dtype = call->dtype, .count = lk_tensor_count(call->in[0]));
    return lk__cuda_end(&s);
}
