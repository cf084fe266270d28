/* A dense layer as one operator: a matrix product, a bias, relu. */
#include "ops/broadcast.h"
#include "ops/matmul.h"
#include "ops/support.h"

static lk_status dense_act_infer(const lk_call *call, lk_meta *out)
{
    const lk_tensor *x = call->in[0], *w = call->in[1], *bias = call->in[2];
    LK_TRY(lk__check_dtype("dense_act", "x", x->dtype, LK_FLOATS));
    LK_TRY(lk__check_ndim("dense_act", "x", x, 2));
    LK_TRY(lk__check_ndim("dense_act", "w", w, 2));
    LK_TRY(lk__check_like("dense_act", "w", w, x->dtype, LK_SHAPE(x->shape.dim[1], w->shape.dim[1])));
    if (bias)
        LK_TRY(lk__check_like("dense_act", "bias", bias, x->dtype, LK_SHAPE(w->shape.dim[1])));
    out[0] = (lk_meta){x->dtype, LK_SHAPE(x->shape.dim[0], w->shape.dim[1])};
    return LK_OK;
}

/* Returns dz, the gradient of z = x w + bias, to which relu may have been applied. */
static lk_tensor *dense_act_before_relu(lk_gradient *g)
{
    if (!LK_ATTRS(g->call, lk_dense_act_attrs)->relu)
        return g->dout[0];
    lk_tensor *in[] = {g->dout[0], g->call->out[0]};
    return lk__call_simple(g->call->place, &lk__op_relu_grad, in, 2, 2, NULL, 0);
}

/* dx = dz w', dw = x' dz, dbias = the sum of dz over samples */
static lk_status dense_act_gradient(lk_gradient *g)
{
    lk_call_site at = g->call->place;
    lk_tensor *const *in = g->call->in;
    if (!g->dout[0])
        return LK_OK;
    lk_tensor *dz = dense_act_before_relu(g);
    LK_TRY(lk__made(dz));
    if (g->need[0]) {
        g->din[0] = lk__matmul(at, dz, lk_transpose_at(at, in[1], 0, 1), g->f32[0]);
        LK_TRY(lk__made(g->din[0]));
    }
    if (g->need[1]) {
        g->din[1] = lk__matmul(at, lk_transpose_at(at, in[0], 0, 1), dz, g->f32[1]);
        LK_TRY(lk__made(g->din[1]));
    }
    if (in[2] && g->need[2]) {
        g->din[2] = lk__sum_to(at, dz, in[2]->shape, g->f32[2]);
        LK_TRY(lk__made(g->din[2]));
    }
    return LK_OK;
}

/* Counts the matrix product, the sum with the bias, and relu. */
static double dense_act_flops(const lk_call *call)
{
    double each = 2 * (double)call->in[0]->shape.dim[1];
    each += call->in[2] ? 1 : 0;
    each += LK_ATTRS(call, lk_dense_act_attrs)->relu ? 1 : 0;
    return each * lk__flops_output(call);
}

const lk_op lk__op_dense_act = {
    .name = "dense_act",
    .id = LK_OP_DENSE_ACT,
    .infer = dense_act_infer,
    .gradient = dense_act_gradient,
    .flops = dense_act_flops,
};
