/* A matrix product, the sum with a bias, and relu become dense_act. */
#include "ops/ops.h"
#include "program/rewrite.h"

lk_status lk__fuse_dense(lk_rewrite *r, int i)
{
    if (!lk__rewrite_is(r, i, LK_OP_MATMUL))
        return LK_OK;
    const lk_call *matmul = lk__rewrite_call(r, i);
    if (LK_ATTRS(matmul, lk_matmul_attrs)->f32)
        return LK_OK;
    int add = lk__rewrite_only_reader(r, i);
    if (matmul->out[0]->shape.ndim != 2 || !lk__rewrite_is(r, add, LK_OP_ADD) ||
        lk__rewrite_call(r, add)->in[0] != matmul->out[0])
        return LK_OK;
    lk_tensor *bias = lk__rewrite_call(r, add)->in[1];
    if (bias->shape.ndim != 1 || bias->shape.dim[0] != matmul->out[0]->shape.dim[1])
        return LK_OK;
    int reader = lk__rewrite_only_reader(r, add);
    bool relu = lk__rewrite_is(r, reader, LK_OP_RELU);
    int last = relu ? reader : add;
    lk_dense_act_attrs attrs = {.relu = relu};
    lk_call call = {.op = &lk__op_dense_act,
                    .place = matmul->place,
                    .free_layout = lk__rewrite_call(r, last)->free_layout,
                    .n_in = 3,
                    .n_out = 1,
                    .in = {matmul->in[0], matmul->in[1], bias},
                    .out = {lk__rewrite_result(r, last)}};
    lk__call_set_attrs(&call, &attrs, sizeof attrs);
    /* The fused call runs where the last one did: the bias may be made after the product. */
    const int gone[] = {i, relu ? add : -1};
    if (lk__rewrite_fits(r, &call) && lk__rewrite_may_stand(r, last, &call, gone, 2))
        lk__rewrite_replace(r, last, &call, gone, 2);
    return LK_OK;
}
