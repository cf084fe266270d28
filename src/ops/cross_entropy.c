/* Operators that compare logits with labels or targets: sparse_softmax_cross_entropy, sigmoid_cross_entropy, in_top_k,
 * and cross_entropy_step, which computes the loss, its gradient and the hits of a training step in one pass. */
#include "ops/support.h"

static lk_status cross_entropy_check_labels(const char *op, const lk_tensor *logits, const lk_tensor *labels)
{
    LK_TRY(lk__check_dtype(op, "logits", logits->dtype, LK_FLOATS));
    LK_TRY(lk__check_dtype(op, "labels", labels->dtype, LK_DTYPE_BIT(LK_I32) | LK_DTYPE_BIT(LK_I64)));
    if (logits->shape.ndim != 2 || logits->shape.dim[1] < 1)
        LK_FAIL(LK_ERR_SHAPE, "%s: logits have shape %s; it must be [N, C] with C at least 1", op,
                lk__text(logits->shape).string);
    if (labels->shape.ndim != 1 || labels->shape.dim[0] != logits->shape.dim[0])
        LK_FAIL(LK_ERR_SHAPE, "%s: labels have shape %s; logits %s need [%lld]", op, lk__text(labels->shape).string,
                lk__text(logits->shape).string, (long long)logits->shape.dim[0]);
    return LK_OK;
}

static lk_status cross_entropy_shape(const char *op, const lk_tensor *logits, lk_reduction reduction, lk_shape *loss)
{
    int64_t n = logits->shape.dim[0];
    switch (reduction) {
    case LK_REDUCTION_NONE:
        *loss = LK_SHAPE(n);
        return LK_OK;
    case LK_REDUCTION_MEAN:
        if (n == 0)
            LK_FAIL(LK_ERR_SHAPE, "%s: the mean over no samples: logits have shape %s", op,
                    lk__text(logits->shape).string);
        *loss = LK_SCALAR;
        return LK_OK;
    case LK_REDUCTION_SUM:
        *loss = LK_SCALAR;
        return LK_OK;
    }
    LK_FAIL(LK_ERR_ARGUMENT, "%s: reduction %d; it must be one of none, sum, mean", op, (int)reduction);
}

static lk_status cross_entropy_check_smoothing(const char *op, double smoothing)
{
    if (!(smoothing >= 0 && smoothing <= 1))
        LK_FAIL(LK_ERR_ARGUMENT, "%s: smoothing is %g; it must be between 0 and 1", op, smoothing);
    return LK_OK;
}

static lk_status cross_entropy_top_k_check(const char *op, const lk_tensor *logits, int k)
{
    if (k < 1 || k > logits->shape.dim[1])
        LK_FAIL(LK_ERR_ARGUMENT, "%s: k is %d; with logits %s it must be between 1 and %lld", op, k,
                lk__text(logits->shape).string, (long long)logits->shape.dim[1]);
    return LK_OK;
}

/* The checks that the loss and its gradient share. Sets *loss to the loss' shape. */
static lk_status cross_entropy_check(const lk_call *call, const lk_tensor *logits, const lk_tensor *labels,
                                     lk_shape *loss)
{
    const char *op = call->op->name;
    const lk_cross_entropy_attrs *attrs = LK_ATTRS(call, lk_cross_entropy_attrs);
    LK_TRY(cross_entropy_check_labels(op, logits, labels));
    LK_TRY(cross_entropy_check_smoothing(op, attrs->smoothing));
    return cross_entropy_shape(op, logits, attrs->reduction, loss);
}

static lk_status cross_entropy_infer(const lk_call *call, lk_meta *out)
{
    out[0].dtype = call->in[0]->dtype;
    return cross_entropy_check(call, call->in[0], call->in[1], &out[0].shape);
}

static lk_status cross_entropy_grad_infer(const lk_call *call, lk_meta *out)
{
    const lk_tensor *dloss = call->in[0], *logits = call->in[1], *labels = call->in[2];
    lk_shape loss;
    LK_TRY(cross_entropy_check(call, logits, labels, &loss));
    LK_TRY(lk__check_like(call->op->name, "dloss", dloss, logits->dtype, loss));
    out[0] = (lk_meta){logits->dtype, logits->shape};
    return LK_OK;
}

/* softmax - smoothed onehot, times dloss */
static lk_status cross_entropy_gradient(lk_gradient *g)
{
    return lk__gradient_call(g, &lk__op_sparse_softmax_cross_entropy_grad,
                             (lk_tensor *[]){g->dout[0], g->call->in[0], g->call->in[1]}, 3);
}

/* The softmax takes five for each logit. */
static double cross_entropy_flops(const lk_call *call)
{
    return 5 * lk__flops_input(call);
}

static double cross_entropy_grad_flops(const lk_call *call)
{
    return 6 * lk__flops_output(call);
}

const lk_op lk__op_sparse_softmax_cross_entropy = {
    .name = "sparse_softmax_cross_entropy",
    .id = LK_OP_SPARSE_SOFTMAX_CROSS_ENTROPY,
    .infer = cross_entropy_infer,
    .gradient = cross_entropy_gradient,
    .flops = cross_entropy_flops,
};

const lk_op lk__op_sparse_softmax_cross_entropy_grad = {
    .name = "sparse_softmax_cross_entropy_grad",
    .id = LK_OP_SPARSE_SOFTMAX_CROSS_ENTROPY_GRAD,
    .infer = cross_entropy_grad_infer,
    .flops = cross_entropy_grad_flops,
};

lk_tensor *lk_sparse_softmax_cross_entropy_at(lk_call_site at, lk_tensor *logits, lk_tensor *labels,
                                              lk_reduction reduction)
{
    return lk_smoothed_cross_entropy_at(at, logits, labels, 0, reduction);
}

lk_tensor *lk_smoothed_cross_entropy_at(lk_call_site at, lk_tensor *logits, lk_tensor *labels, double smoothing,
                                        lk_reduction reduction)
{
    lk_cross_entropy_attrs attrs = {.reduction = reduction, .smoothing = smoothing};
    lk_tensor *in[] = {logits, labels};
    return lk__call_simple(at, &lk__op_sparse_softmax_cross_entropy, in, 2, 2, &attrs, sizeof attrs);
}

/* --- sigmoid_cross_entropy ---------------------------------------------------------------------------------------- */

static lk_status sigmoid_cross_entropy_infer(const lk_call *call, lk_meta *out)
{
    const lk_tensor *logits = call->in[0];
    LK_TRY(lk__check_dtype("sigmoid_cross_entropy", "logits", logits->dtype, LK_FLOATS));
    LK_TRY(lk__check_like("sigmoid_cross_entropy", "targets", call->in[1], logits->dtype, logits->shape));
    return lk__infer_same(call, out);
}

static lk_status sigmoid_cross_entropy_grad_infer(const lk_call *call, lk_meta *out)
{
    const char *op = "sigmoid_cross_entropy_grad";
    const lk_tensor *dloss = call->in[0];
    LK_TRY(lk__check_dtype(op, "dloss", dloss->dtype, LK_FLOATS));
    LK_TRY(lk__check_like(op, "logits", call->in[1], dloss->dtype, dloss->shape));
    LK_TRY(lk__check_like(op, "targets", call->in[2], dloss->dtype, dloss->shape));
    return lk__infer_same(call, out);
}

/* Exponential, logarithm, multiply, and three sums. */
static double sigmoid_cross_entropy_flops(const lk_call *call)
{
    return 6 * lk__flops_output(call);
}

const lk_op lk__op_sigmoid_cross_entropy_grad = {
    .name = "sigmoid_cross_entropy_grad",
    .id = LK_OP_SIGMOID_CROSS_ENTROPY_GRAD,
    .infer = sigmoid_cross_entropy_grad_infer,
    .flops = sigmoid_cross_entropy_flops,
};

/* The logits' gradient is sigmoid(z) - t and the targets' is -z, both times dloss. */
static lk_status sigmoid_cross_entropy_gradient(lk_gradient *g)
{
    lk_call_site at = g->call->place;
    lk_tensor *dloss = g->dout[0], *logits = g->call->in[0], *targets = g->call->in[1];
    if (dloss && g->need[0]) {
        lk_tensor *in[] = {dloss, logits, targets};
        g->din[0] = lk__call_simple(at, &lk__op_sigmoid_cross_entropy_grad, in, 3, 3, NULL, 0);
        LK_TRY(lk__made(g->din[0]));
    }
    if (dloss && g->need[1]) {
        g->din[1] = lk_mul_scalar_at(at, lk_mul_at(at, dloss, logits), -1);
        LK_TRY(lk__made(g->din[1]));
    }
    return LK_OK;
}

const lk_op lk__op_sigmoid_cross_entropy = {
    .name = "sigmoid_cross_entropy",
    .id = LK_OP_SIGMOID_CROSS_ENTROPY,
    .infer = sigmoid_cross_entropy_infer,
    .gradient = sigmoid_cross_entropy_gradient,
    .flops = sigmoid_cross_entropy_flops,
};

lk_tensor *lk_sigmoid_cross_entropy_at(lk_call_site at, lk_tensor *logits, lk_tensor *targets)
{
    return lk__call_simple(at, &lk__op_sigmoid_cross_entropy, (lk_tensor *[]){logits, targets}, 2, 2, NULL, 0);
}

/* --- in_top_k ----------------------------------------------------------------------------------------------------- */

static lk_status cross_entropy_in_top_k_infer(const lk_call *call, lk_meta *out)
{
    int k = LK_ATTRS(call, lk_top_k_attrs)->k;
    const lk_tensor *logits = call->in[0];
    LK_TRY(cross_entropy_check_labels("in_top_k", logits, call->in[1]));
    LK_TRY(cross_entropy_top_k_check("in_top_k", logits, k));
    out[0] = (lk_meta){LK_F32, LK_SHAPE(logits->shape.dim[0])};
    return LK_OK;
}

const lk_op lk__op_in_top_k = {
    .name = "in_top_k",
    .id = LK_OP_IN_TOP_K,
    .infer = cross_entropy_in_top_k_infer,
    .flops = lk__flops_input,
};

lk_tensor *lk_in_top_k_at(lk_call_site at, lk_tensor *logits, lk_tensor *labels, int k)
{
    lk_top_k_attrs attrs = {.k = k};
    return lk__call_simple(at, &lk__op_in_top_k, (lk_tensor *[]){logits, labels}, 2, 2, &attrs, sizeof attrs);
}

/* --- cross_entropy_step ------------------------------------------------------------------------------------------- */

static lk_status cross_entropy_step_infer(const lk_call *call, lk_meta *out)
{
    const char *op = call->op->name;
    const lk_cross_entropy_step_attrs *attrs = LK_ATTRS(call, lk_cross_entropy_step_attrs);
    const lk_tensor *dloss = call->in[0], *logits = call->in[1];
    LK_TRY(cross_entropy_check_labels(op, logits, call->in[2]));
    LK_TRY(cross_entropy_check_smoothing(op, attrs->smoothing));
    bool is_wide = logits->dtype == LK_BF16 && dloss->dtype == LK_F32;
    LK_TRY(lk__check_like(op, "dloss", dloss, is_wide ? LK_F32 : logits->dtype, LK_SCALAR));
    out[0] = (lk_meta){dloss->dtype, LK_SCALAR};
    out[1] = (lk_meta){logits->dtype, logits->shape};
    out[2] = (lk_meta){LK_F32, LK_SCALAR};
    return call->n_out == 3 ? cross_entropy_top_k_check(op, logits, attrs->k) : LK_OK;
}

/* For each logit: 5 for the loss, 6 for its gradient and 1 for the hits. */
static double cross_entropy_step_flops(const lk_call *call)
{
    return (call->n_out == 3 ? 12 : 11) * (double)lk_tensor_count(call->in[1]);
}

const lk_op lk__op_cross_entropy_step = {
    .name = "cross_entropy_step",
    .id = LK_OP_CROSS_ENTROPY_STEP,
    .infer = cross_entropy_step_infer,
    .flops = cross_entropy_step_flops,
};
