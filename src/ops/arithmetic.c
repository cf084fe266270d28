/* add, sub, mul, div with broadcasting. */
#include "ops/broadcast.h"
#include "ops/support.h"

static lk_status arithmetic_infer(const lk_call *call, lk_meta *out)
{
    LK_TRY(lk__check_same_dtype(call));
    out[0].dtype = call->in[0]->dtype;
    return lk__broadcast(call->op->name, call->in[0]->shape, call->in[1]->shape, &out[0].shape);
}

/* din[i] = t, summed over the axes along which broadcasting repeated input i. */
static lk_status arithmetic_set_summed(lk_gradient *g, int i, lk_tensor *t)
{
    LK_TRY(lk__made(t));
    g->din[i] = lk__sum_to(g->call->place, t, g->call->in[i]->shape, g->f32[i]);
    return lk__made(g->din[i]);
}

static lk_status add_gradient(lk_gradient *g)
{
    if (!g->dout[0])
        return LK_OK;
    for (int i = 0; i < 2; i++) {
        if (g->need[i])
            LK_TRY(arithmetic_set_summed(g, i, g->dout[0]));
    }
    return LK_OK;
}

/* da = dy, db = -dy */
static lk_status sub_gradient(lk_gradient *g)
{
    if (!g->dout[0])
        return LK_OK;
    if (g->need[0])
        LK_TRY(arithmetic_set_summed(g, 0, g->dout[0]));
    if (!g->need[1])
        return LK_OK;
    LK_TRY(arithmetic_set_summed(g, 1, g->dout[0]));
    g->din[1] = lk_mul_scalar_at(g->call->place, g->din[1], -1);
    return lk__made(g->din[1]);
}

/* da = dy b, db = dy a */
static lk_status mul_gradient(lk_gradient *g)
{
    if (!g->dout[0])
        return LK_OK;
    for (int i = 0; i < 2; i++) {
        if (g->need[i])
            LK_TRY(arithmetic_set_summed(g, i, lk_mul_at(g->call->place, g->dout[0], g->call->in[1 - i])));
    }
    return LK_OK;
}

/* da = dy / b, db = -(dy / b) y */
static lk_status div_gradient(lk_gradient *g)
{
    if (!g->dout[0] || (!g->need[0] && !g->need[1]))
        return LK_OK;
    lk_call_site at = g->call->place;
    lk_tensor *quotient = lk_div_at(at, g->dout[0], g->call->in[1]);
    if (g->need[0])
        LK_TRY(arithmetic_set_summed(g, 0, quotient));
    if (!g->need[1])
        return LK_OK;
    LK_TRY(arithmetic_set_summed(g, 1, lk_mul_at(at, quotient, g->call->out[0])));
    g->din[1] = lk_mul_scalar_at(at, g->din[1], -1);
    return lk__made(g->din[1]);
}

const lk_op lk__op_add = {
    .name = "add",
    .id = LK_OP_ADD,
    .flags = LK_OP_FREE_LAYOUT,
    .infer = arithmetic_infer,
    .gradient = add_gradient,
    .flops = lk__flops_output,
};

const lk_op lk__op_sub = {
    .name = "sub",
    .id = LK_OP_SUB,
    .flags = LK_OP_FREE_LAYOUT,
    .infer = arithmetic_infer,
    .gradient = sub_gradient,
    .flops = lk__flops_output,
};

const lk_op lk__op_mul = {
    .name = "mul",
    .id = LK_OP_MUL,
    .flags = LK_OP_FREE_LAYOUT,
    .infer = arithmetic_infer,
    .gradient = mul_gradient,
    .flops = lk__flops_output,
};

const lk_op lk__op_div = {
    .name = "div",
    .id = LK_OP_DIV,
    .infer = arithmetic_infer,
    .gradient = div_gradient,
    .flops = lk__flops_output,
};

static lk_tensor *arithmetic_call(lk_call_site at, const lk_op *op, lk_tensor *a, lk_tensor *b)
{
    return lk__call_simple(at, op, (lk_tensor *[]){a, b}, 2, 2, NULL, 0);
}

lk_tensor *lk_add_at(lk_call_site at, lk_tensor *a, lk_tensor *b)
{
    return arithmetic_call(at, &lk__op_add, a, b);
}

lk_tensor *lk_sub_at(lk_call_site at, lk_tensor *a, lk_tensor *b)
{
    return arithmetic_call(at, &lk__op_sub, a, b);
}

lk_tensor *lk_mul_at(lk_call_site at, lk_tensor *a, lk_tensor *b)
{
    return arithmetic_call(at, &lk__op_mul, a, b);
}

lk_tensor *lk_div_at(lk_call_site at, lk_tensor *a, lk_tensor *b)
{
    return arithmetic_call(at, &lk__op_div, a, b);
}

static lk_tensor *arithmetic_with_scalar(lk_call_site at, const lk_op *op, lk_tensor *x, double value)
{
    if (!x)
        return lk__missing_tensor(op->name, "x");
    lk_scope_begin();
    lk_tensor *scalar = lk_full_at(at, lk_tensor_device(x), x->dtype, LK_SCALAR, value);
    return lk__scope_return(arithmetic_call(at, op, x, scalar));
}

lk_tensor *lk_add_scalar_at(lk_call_site at, lk_tensor *x, double value)
{
    return arithmetic_with_scalar(at, &lk__op_add, x, value);
}

lk_tensor *lk_mul_scalar_at(lk_call_site at, lk_tensor *x, double value)
{
    return arithmetic_with_scalar(at, &lk__op_mul, x, value);
}

lk_status lk_add_into_at(lk_call_site at, lk_tensor *out, lk_tensor *a, lk_tensor *b)
{
    return lk__call_into(at, &lk__op_add, out, (lk_tensor *[]){a, b}, 2, NULL, 0);
}
