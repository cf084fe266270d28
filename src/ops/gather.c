#include "ops/support.h"

static lk_status gather_infer(const lk_call *call, lk_meta *out)
{
    const lk_tensor *x = call->in[0], *indices = call->in[1];
    if (x->shape.ndim < 1)
        LK_FAIL(LK_ERR_SHAPE, "gather: x has shape []; it must be [N, …]");
    LK_TRY(lk__check_dtype("gather", "indices", indices->dtype, LK_DTYPE_BIT(LK_I64)));
    LK_TRY(lk__check_ndim("gather", "indices", indices, 1));
    out[0] = (lk_meta){x->dtype, x->shape};
    out[0].shape.dim[0] = indices->shape.dim[0];
    return lk__check_shape("gather", out[0].shape);
}

const lk_op lk__op_gather = {
    .name = "gather",
    .id = LK_OP_GATHER,
    .flags = LK_OP_PICKS,
    .infer = gather_infer,
};

lk_tensor *lk_gather_at(lk_call_site at, lk_tensor *x, lk_tensor *indices)
{
    return lk__call_simple(at, &lk__op_gather, (lk_tensor *[]){x, indices}, 2, 2, NULL, 0);
}
