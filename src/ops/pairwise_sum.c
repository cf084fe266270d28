#include "ops/pairwise_sum.h"
#include "ops/support.h"

static lk_status pairwise_sum_infer(const lk_call *call, lk_meta *out)
{
    const lk_tensor *x = call->in[0];
    int n = call->n_in;
    if (n < 2 || (n & (n - 1)) != 0)
        LK_FAIL(LK_ERR_ARGUMENT, "pairwise_sum: %d tensors; there must be 2, 4, 8 or 16", n);
    LK_TRY(lk__check_dtype("pairwise_sum", "x", x->dtype, LK_DTYPE_BIT(LK_F32) | LK_DTYPE_BIT(LK_F64)));
    for (int i = 1; i < n; i++)
        LK_TRY(lk__check_like("pairwise_sum", "an operand", call->in[i], x->dtype, x->shape));
    out[0] = (lk_meta){x->dtype, x->shape};
    return LK_OK;
}

static double pairwise_sum_flops(const lk_call *call)
{
    return (call->n_in - 1) * lk__flops_output(call);
}

const lk_op lk__op_pairwise_sum = {
    .name = "pairwise_sum",
    .id = LK_OP_PAIRWISE_SUM,
    .flags = LK_OP_FREE_LAYOUT,
    .infer = pairwise_sum_infer,
    .flops = pairwise_sum_flops,
};

lk_tensor *lk__pairwise_sum(lk_call_site at, lk_tensor *const *x, int n)
{
    return lk__call_simple(at, &lk__op_pairwise_sum, x, n, n, NULL, 0);
}
