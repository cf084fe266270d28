/* group_norm and its gradient. No statistic passes from one sample to another, so none is summed over shards. */
#include "ops/batch_norm.h"
#include "ops/support.h"

#include <math.h>

static lk_status group_norm_check(const lk_call *call, const lk_tensor *x)
{
    const char *op = call->op->name;
    const lk_group_norm_opts *opts = LK_ATTRS(call, lk_group_norm_opts);
    LK_TRY(lk__check_channels(op, x));
    if (opts->groups < 1 || x->shape.dim[1] % opts->groups != 0)
        LK_FAIL(LK_ERR_ARGUMENT, "%s: %lld groups for x %s; they must divide the channels, axis 1", op,
                (long long)opts->groups, lk__text(x->shape).string);
    if (!(opts->epsilon >= 0) || !isfinite(opts->epsilon))
        LK_FAIL(LK_ERR_ARGUMENT, "%s: epsilon is %g; it must be finite and at least 0", op, opts->epsilon);
    return LK_OK;
}

static lk_status group_norm_grad_infer(const lk_call *call, lk_meta *out)
{
    const lk_tensor *dy = call->in[0], *x = call->in[1];
    LK_TRY(group_norm_check(call, x));
    LK_TRY(lk__check_like("group_norm_grad", "dy", dy, x->dtype, x->shape));
    LK_TRY(lk__check_meta("group_norm_grad", "gamma", call->in[2], lk__channel_vector_meta(x)));
    out[0] = (lk_meta){x->dtype, x->shape};
    out[1] = out[2] = lk__channel_vector_meta(x);
    return LK_OK;
}

/* Statistics and x normalized again, two sums, and the products with gamma and the statistics. */
static double group_norm_grad_flops(const lk_call *call)
{
    return 14 * lk__flops_input(call);
}

const lk_op lk__op_group_norm_grad = {
    .name = "group_norm_grad",
    .id = LK_OP_GROUP_NORM_GRAD,
    .flags = LK_OP_FREE_LAYOUT,
    .infer = group_norm_grad_infer,
    .flops = group_norm_grad_flops,
};

static lk_status group_norm_infer(const lk_call *call, lk_meta *out)
{
    const lk_tensor *x = call->in[0];
    LK_TRY(group_norm_check(call, x));
    LK_TRY(lk__check_meta("group_norm", "gamma", call->in[1], lk__channel_vector_meta(x)));
    LK_TRY(lk__check_meta("group_norm", "beta", call->in[2], lk__channel_vector_meta(x)));
    return lk__infer_same(call, out);
}

static lk_status group_norm_gradient(lk_gradient *g)
{
    const lk_call *forward = g->call;
    if (!g->dout[0])
        return LK_OK;
    lk_call call = {.op = &lk__op_group_norm_grad,
                    .place = forward->place,
                    .n_in = 3,
                    .n_out = 3,
                    .in = {g->dout[0], forward->in[0], forward->in[1]}};
    lk__call_set_attrs(&call, LK_ATTRS(forward, lk_group_norm_opts), sizeof(lk_group_norm_opts));
    LK_TRY(lk__call(&call));
    for (int i = 0; i < call.n_out; i++)
        g->din[i] = call.out[i];
    return LK_OK;
}

/* Three for the statistics, and four to subtract, divide, multiply by gamma and add beta. */
static double group_norm_flops(const lk_call *call)
{
    return 7 * lk__flops_input(call);
}

const lk_op lk__op_group_norm = {
    .name = "group_norm",
    .id = LK_OP_GROUP_NORM,
    .flags = LK_OP_FREE_LAYOUT,
    .infer = group_norm_infer,
    .gradient = group_norm_gradient,
    .flops = group_norm_flops,
};

lk_tensor *lk_group_norm_at(lk_call_site at, lk_tensor *x, lk_tensor *gamma, lk_tensor *beta,
                            const lk_group_norm_opts *opts)
{
    lk_group_norm_opts attrs = opts ? *opts : (lk_group_norm_opts){0};
    attrs.groups = attrs.groups == 0 ? 1 : attrs.groups;
    attrs.epsilon = attrs.epsilon == 0 ? 1e-5 : attrs.epsilon;
    return lk__call_simple(at, &lk__op_group_norm, (lk_tensor *[]){x, gamma, beta}, 3, 3, &attrs, sizeof attrs);
}
