#include "ops/matmul.h"
#include "ops/support.h"

static lk_status matmul_infer(const lk_call *call, lk_meta *out)
{
    const lk_tensor *a = call->in[0], *b = call->in[1];
    LK_TRY(lk__check_dtype("matmul", "a", a->dtype, LK_FLOATS));
    LK_TRY(lk__check_same_dtype(call));
    LK_TRY(lk__check_ndim("matmul", "a", a, 2));
    LK_TRY(lk__check_ndim("matmul", "b", b, 2));
    if (a->shape.dim[1] != b->shape.dim[0])
        LK_FAIL(LK_ERR_SHAPE, "matmul: a %s has %lld columns but b %s has %lld rows", lk__text(a->shape).string,
                (long long)a->shape.dim[1], lk__text(b->shape).string, (long long)b->shape.dim[0]);
    lk_dtype dtype = lk__result_dtype(a->dtype, LK_ATTRS(call, lk_matmul_attrs)->f32);
    out[0] = (lk_meta){dtype, LK_SHAPE(a->shape.dim[0], b->shape.dim[1])};
    return LK_OK;
}

/* da = dy b', db = a' dy */
static lk_status matmul_gradient(lk_gradient *g)
{
    if (!g->dout[0])
        return LK_OK;
    lk_call_site at = g->call->place;
    if (g->need[0]) {
        g->din[0] = lk__matmul(at, g->dout[0], lk_transpose_at(at, g->call->in[1], 0, 1), g->f32[0]);
        LK_TRY(lk__made(g->din[0]));
    }
    if (g->need[1]) {
        g->din[1] = lk__matmul(at, lk_transpose_at(at, g->call->in[0], 0, 1), g->dout[0], g->f32[1]);
        LK_TRY(lk__made(g->din[1]));
    }
    return LK_OK;
}

static double matmul_flops(const lk_call *call)
{
    return 2 * lk__flops_output(call) * (double)call->in[0]->shape.dim[1];
}

const lk_op lk__op_matmul = {
    .name = "matmul",
    .id = LK_OP_MATMUL,
    .infer = matmul_infer,
    .gradient = matmul_gradient,
    .flops = matmul_flops,
};

lk_tensor *lk__matmul(lk_call_site at, lk_tensor *a, lk_tensor *b, bool f32)
{
    lk_matmul_attrs attrs = {.f32 = f32};
    return lk__call_simple(at, &lk__op_matmul, (lk_tensor *[]){a, b}, 2, 2, &attrs, sizeof attrs);
}

lk_tensor *lk_matmul_at(lk_call_site at, lk_tensor *a, lk_tensor *b)
{
    return lk__matmul(at, a, b, false);
}
