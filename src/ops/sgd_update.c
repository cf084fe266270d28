#include "ops/support.h"

#include <math.h>

static lk_status sgd_update_infer(const lk_call *call, lk_meta *out)
{
    const lk_tensor *parameter = call->in[0];
    double rate = LK_ATTRS(call, lk_sgd_attrs)->rate;
    LK_TRY(
        lk__check_dtype("sgd_update", "the parameter", parameter->dtype, LK_DTYPE_BIT(LK_F32) | LK_DTYPE_BIT(LK_F64)));
    LK_TRY(lk__check_like("sgd_update", "the gradient", call->in[1], parameter->dtype, parameter->shape));
    if (!isfinite(parameter->dtype == LK_F32 ? (float)rate : rate))
        LK_FAIL(LK_ERR_ARGUMENT, "sgd_update: rate is %g; it must be finite in %s", rate,
                lk_dtype_name(parameter->dtype));
    return lk__infer_same(call, out);
}

static double sgd_update_flops(const lk_call *call)
{
    return 2 * lk__flops_output(call);
}

const lk_op lk__op_sgd_update = {
    .name = "sgd_update",
    .id = LK_OP_SGD_UPDATE,
    .infer = sgd_update_infer,
    .flops = sgd_update_flops,
};

lk_status lk_sgd_update_at(lk_call_site at, lk_tensor *parameter, lk_tensor *gradient, double rate)
{
    lk_sgd_attrs attrs = {.rate = rate};
    lk_tensor *in[] = {parameter, gradient};
    return lk__call_into(at, &lk__op_sgd_update, parameter, in, 2, &attrs, sizeof attrs);
}
