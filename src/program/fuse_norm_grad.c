/* A gradient of batch-norm takes in its neighbors: the sum of two gradients before it, and after it the sums over a
 * channel of its result, or of that sum of gradients. They are the gradients of convolutions' biases. */
#include "core/shape.h"
#include "core/tensor.h"
#include "ops/ops.h"
#include "program/rewrite.h"
#include "program/values.h"

static bool fuse_norm_grad_is_sum(const lk_rewrite *r, int i, const lk_tensor *d)
{
    if (!lk__rewrite_is(r, i, LK_OP_ADD) || !lk__rewrite_call(r, i)->free_layout)
        return false;
    for (int k = 0; k < 2; k++) {
        const lk_tensor *x = lk__rewrite_call(r, i)->in[k];
        if (x->dtype != d->dtype || !lk__shape_equal(x->shape, d->shape))
            return false;
    }
    return lk__rewrite_result(r, i) == d;
}

/* The sum stays a result, unless relu's mask makes the gradient of a residual of it and nothing else reads it. The
 * fused call takes its position: other calls may read the sum before they read anything else of the gradient. */
lk_status lk__fuse_gradient_sum(lk_rewrite *r, int i)
{
    if (!lk__rewrite_is(r, i, LK_OP_BATCH_NORM_ACT_GRAD) || lk__rewrite_call(r, i)->n_in > 6)
        return LK_OK;
    lk_call call = *lk__rewrite_call(r, i);
    bool beta = call.n_in == 6;
    lk_tensor *d = call.in[0];
    int sum = lk__rewrite_writer(r, d);
    if (call.n_out != (beta ? 3 : 4) || !call.free_layout || !fuse_norm_grad_is_sum(r, sum, d) ||
        (!beta && !lk__rewrite_is_between(r, d, &i, 1)))
        return LK_OK;
    if (beta)
        call.out[call.n_out++] = d;
    call.n_in = 7;
    call.in[0] = lk__rewrite_call(r, sum)->in[0];
    call.in[6] = lk__rewrite_call(r, sum)->in[1];
    if (lk__rewrite_fits(r, &call) && lk__rewrite_may_stand(r, sum, &call, &i, 1))
        lk__rewrite_replace(r, sum, &call, &i, 1);
    return LK_OK;
}

/* Returns which output of the gradient of a normalization gets the sums of d, its result or dresidual; -1: none. */
static int fuse_norm_grad_output_of_sums(const lk_call *norm, const lk_tensor *d)
{
    bool is_result = norm->out[0] == d;
    switch (norm->op->id) {
    case LK_OP_BATCH_NORM_ACT_GRAD:
        return is_result ? 4 : norm->n_in == 7 && norm->in[5] && norm->n_out > 3 && norm->out[3] == d ? 5 : -1;
    case LK_OP_BATCH_NORM_POOL_GRAD:
        return is_result ? 4 : -1;
    case LK_OP_BATCH_NORM_GRAD:
    case LK_OP_BATCH_NORM_DROP_GRAD:
        return is_result ? 3 : -1;
    default:
        return -1;
    }
}

lk_status lk__fuse_bias_gradient(lk_rewrite *r, int i)
{
    if (!lk__rewrite_is(r, i, LK_OP_CONV2D_WEIGHT_GRAD) || lk__rewrite_call(r, i)->n_out != 2)
        return LK_OK;
    lk_call weights = *lk__rewrite_call(r, i);
    int norm = lk__rewrite_writer(r, weights.in[0]);
    if (norm < 0 || weights.out[1]->dtype != LK_F32)
        return LK_OK;
    lk_call call = *lk__rewrite_call(r, norm);
    int at = fuse_norm_grad_output_of_sums(&call, weights.in[0]);
    if (at < 0 || (call.n_out > at && call.out[at]))
        return LK_OK;
    call.n_out = call.n_out > at ? call.n_out : at + 1;
    call.out[at] = weights.out[1];
    weights.n_out = 1;
    weights.out[1] = NULL;
    lk_conv2d_grad_attrs attrs = *LK_ATTRS(&weights, lk_conv2d_grad_attrs);
    attrs.bias = false;
    lk__call_set_attrs(&weights, &attrs, sizeof attrs);
    if (!lk__rewrite_fits(r, &call) || !lk__rewrite_fits(r, &weights) || !lk__rewrite_may_stand(r, norm, &call, &i, 1))
        return LK_OK;
    lk__rewrite_replace(r, norm, &call, NULL, 0);
    lk__rewrite_replace(r, i, &weights, NULL, 0);
    return LK_OK;
}
