#include "ops/support.h"

static lk_status dropout_infer(const lk_call *call, lk_meta *out)
{
    const lk_tensor *x = call->in[0], *indices = call->in[1];
    double rate = LK_ATTRS(call, lk_dropout_attrs)->rate;
    LK_TRY(lk__check_dtype("dropout", "x", x->dtype, LK_FLOATS));
    if (x->shape.ndim < 1)
        LK_FAIL(LK_ERR_SHAPE, "dropout: x has shape []; it must be [N, …]");
    LK_TRY(lk__check_like("dropout", "indices", indices, LK_I64, LK_SHAPE(x->shape.dim[0])));
    if (!(rate >= 0 && rate < 1))
        LK_FAIL(LK_ERR_ARGUMENT, "dropout: rate is %g; it must be at least 0 and less than 1", rate);
    return lk__infer_same(call, out);
}

/* dx is dy dropped out with the same key: a dropped element passes no gradient, a kept one the same multiple. */
static lk_status dropout_gradient(lk_gradient *g)
{
    return lk__gradient_call(g, &lk__op_dropout, (lk_tensor *[]){g->dout[0], g->call->in[1]}, 2);
}

static void dropout_set_step(lk_call *call, uint64_t step)
{
    ((lk_dropout_attrs *)(void *)call->attrs.bytes)->key.epoch = step;
}

const lk_op lk__op_dropout = {
    .name = "dropout",
    .id = LK_OP_DROPOUT,
    .flags = LK_OP_FREE_LAYOUT,
    .infer = dropout_infer,
    .gradient = dropout_gradient,
    .flops = lk__flops_output,
    .set_step = dropout_set_step,
};

lk_tensor *lk_dropout_at(lk_call_site at, lk_tensor *x, lk_tensor *indices, double rate, lk_random_key key)
{
    lk_dropout_attrs attrs = {.rate = rate, .key = key};
    attrs.key.sample = 0;
    return lk__call_simple(at, &lk__op_dropout, (lk_tensor *[]){x, indices}, 2, 2, &attrs, sizeof attrs);
}
