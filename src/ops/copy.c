/* copy, which may be between devices, and cast. */
#include "core/scope.h"
#include "ops/support.h"

static lk_status copy_gradient(lk_gradient *g)
{
    if (!g->dout[0] || !g->need[0])
        return LK_OK;
    g->din[0] = lk_copy_at(g->call->place, g->dout[0], lk_tensor_device(g->call->in[0]));
    return lk__made(g->din[0]);
}

const lk_op lk__op_copy = {
    .name = "copy",
    .id = LK_OP_COPY,
    .infer = lk__infer_same,
    .gradient = copy_gradient,
};

lk_tensor *lk_copy_at(lk_call_site at, lk_tensor *x, lk_device *device)
{
    if (!x)
        return lk__missing_tensor("copy", "x");
    return lk__call_on(at, &lk__op_copy, device, x->dtype, &x, 1, NULL, 0);
}

lk_status lk_copy_into_at(lk_call_site at, lk_tensor *destination, lk_tensor *source)
{
    return lk__call_into(at, &lk__op_copy, destination, &source, 1, NULL, 0);
}

static lk_status copy_cast_infer(const lk_call *call, lk_meta *out)
{
    lk_dtype dtype = LK_ATTRS(call, lk_cast_attrs)->dtype;
    LK_TRY(lk__check_dtype("cast", "the result", dtype, LK_ALL_DTYPES));
    out[0] = (lk_meta){dtype, call->in[0]->shape};
    return LK_OK;
}

static lk_status cast_gradient(lk_gradient *g)
{
    lk_dtype from = g->call->in[0]->dtype;
    lk_tensor *dy = g->dout[0];
    if (!dy || !g->need[0] || !lk__dtype_is_float(from) || !lk__dtype_is_float(dy->dtype))
        return LK_OK;
    /* The tape accumulates the gradients of a cast from f32 to bf16 in f32, so dy may have x's dtype already. */
    g->din[0] = dy->dtype == from ? lk__scope_adopt(lk_tensor_retain(dy)) : lk_cast_at(g->call->place, dy, from);
    return lk__made(g->din[0]);
}

const lk_op lk__op_cast = {
    .name = "cast",
    .id = LK_OP_CAST,
    .flags = LK_OP_FREE_LAYOUT,
    .infer = copy_cast_infer,
    .gradient = cast_gradient,
};

lk_tensor *lk_cast_at(lk_call_site at, lk_tensor *x, lk_dtype dtype)
{
    lk_cast_attrs attrs = {.dtype = dtype};
    return lk__call_simple(at, &lk__op_cast, &x, 1, 1, &attrs, sizeof attrs);
}
