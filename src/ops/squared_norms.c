/* squared_norms, and update_scales, which derives the factors of an update from them. */
#include "ops/squared_norms.h"
#include "ops/fused_update.h"
#include "ops/support.h"
#include "ops/update.h"

lk_status lk__check_segments(const char *op, const int64_t *offsets, int64_t n, int64_t count)
{
    for (int64_t i = 0; i < n; i++)
        if (offsets[i] < 0 || offsets[i] > offsets[i + 1] || offsets[i + 1] > count)
            LK_FAIL(LK_ERR_ARGUMENT, "%s: segment %lld is [%lld, %lld); segments ascend within [0, %lld)", op,
                    (long long)i, (long long)offsets[i], (long long)offsets[i + 1], (long long)count);
    return LK_OK;
}

/* --- squared_norms ------------------------------------------------------------------------------------------------ */

static lk_status squared_norms_infer(const lk_call *call, lk_meta *out)
{
    const lk_tensor *x = call->in[0], *offsets = call->in[1];
    const char *op = call->op->name;
    LK_TRY(lk__check_flat(op, "x", x));
    LK_TRY(lk__check_dtype(op, "offsets", offsets->dtype, LK_DTYPE_BIT(LK_I64)));
    LK_TRY(lk__check_ndim(op, "offsets", offsets, 1));
    if (offsets->shape.dim[0] < 1)
        LK_FAIL(LK_ERR_SHAPE, "%s: offsets is empty; n segments have n + 1 offsets", op);
    out[0] = (lk_meta){LK_F64, LK_SHAPE(offsets->shape.dim[0] - 1)};
    return LK_OK;
}

static double squared_norms_flops(const lk_call *call)
{
    return 2 * lk__flops_input(call);
}

const lk_op lk__op_squared_norms = {
    .name = "squared_norms",
    .id = LK_OP_SQUARED_NORMS,
    .infer = squared_norms_infer,
    .flops = squared_norms_flops,
};

lk_tensor *lk__squared_norms(lk_call_site at, lk_tensor *x, lk_tensor *offsets)
{
    lk_tensor *in[] = {x, offsets};
    return lk__call_simple(at, &lk__op_squared_norms, in, 2, 2, NULL, 0);
}

/* --- update_scales ------------------------------------------------------------------------------------------------ */

_Static_assert(sizeof(lk_update_scales_attrs) <= LK_MAX_ATTRS, "attributes of update_scales");

static lk_status squared_norms_update_scales_infer(const lk_call *call, lk_meta *out)
{
    const char *op = call->op->name;
    const lk_tensor *gradients = call->in[1], *parameters = call->in[2], *loss = call->in[4];
    LK_TRY(lk__check_like(op, "skip", call->in[0], LK_F32, LK_SCALAR));
    LK_TRY(lk__check_dtype(op, "the gradients' norms", gradients->dtype, LK_DTYPE_BIT(LK_F64)));
    LK_TRY(lk__check_ndim(op, "the gradients' norms", gradients, 1));
    if (loss)
        LK_TRY(lk__check_like(op, "the loss", loss, LK_F32, LK_SCALAR));
    out[0] = (lk_meta){LK_F32, LK_SCALAR};
    out[1] = (lk_meta){LK_F32, LK_SCALAR};
    out[2] = (lk_meta){LK_F64, LK_SCALAR};
    out[3] = (lk_meta){LK_F32, gradients->shape};
    if (!parameters)
        return LK_OK;
    LK_TRY(lk__check_like(op, "the parameters' norms", parameters, LK_F64, gradients->shape));
    return lk__check_like(op, "adapted", call->in[3], LK_F32, gradients->shape);
}

const lk_op lk__op_update_scales = {
    .name = "update_scales",
    .id = LK_OP_UPDATE_SCALES,
    .infer = squared_norms_update_scales_infer,
};

lk_status lk__update_scales(lk_call_site at, const lk_update_norms *norms, const lk_update_scales_attrs *attrs,
                            lk_update_scales *scales)
{
    lk_call call = {.op = &lk__op_update_scales,
                    .place = at,
                    .n_in = 5,
                    .n_out = norms->parameters ? 4 : 3,
                    .in = {norms->skip, norms->gradients, norms->parameters, norms->adapted, norms->loss},
                    .out = {scales->skip, scales->scale, scales->norm}};
    if (!norms->skip || !norms->gradients || (norms->parameters && !norms->adapted))
        return lk__missing(call.op->name, "an operand");
    lk__call_set_attrs(&call, attrs, sizeof *attrs);
    LK_TRY(lk__call(&call));
    *scales = (lk_update_scales){call.out[0], call.out[1], call.out[2], call.out[3]};
    return LK_OK;
}
