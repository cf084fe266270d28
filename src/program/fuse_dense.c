/* A matrix product, the sum with a bias, and relu become dense_act. */
#include "ops/ops.h"
#include "program/rewrite.h"

#include <string.h>

static lk_tensor *output(const lk_rewrite *r, int call)
{
    return lk__rewrite_call(r, call)->out[0];
}

/* The call of operator `op` that alone reads the result of call i; else -1. */
static int only_reader(const lk_rewrite *r, int i, int op)
{
    int reader;
    if (lk__rewrite_readers(r, output(r, i), &reader, 1) != 1 || !lk__rewrite_is(r, reader, op) ||
        !lk__rewrite_is_between(r, output(r, i), &reader, 1))
        return -1;
    return reader;
}

lk_status lk__fuse_dense(lk_rewrite *r, int i)
{
    if (!lk__rewrite_is(r, i, LK_OP_MATMUL))
        return LK_OK;
    const lk_call *matmul = lk__rewrite_call(r, i);
    if (LK_ATTRS(matmul, lk_matmul_attrs)->f32)
        return LK_OK;
    int add = only_reader(r, i, LK_OP_ADD);
    if (matmul->out[0]->shape.ndim != 2 || add < 0 || lk__rewrite_call(r, add)->in[0] != matmul->out[0])
        return LK_OK;
    lk_tensor *bias = lk__rewrite_call(r, add)->in[1];
    if (bias->shape.ndim != 1 || bias->shape.dim[0] != matmul->out[0]->shape.dim[1])
        return LK_OK;
    int relu = only_reader(r, add, LK_OP_RELU), last = relu >= 0 ? relu : add;
    lk_dense_act_attrs attrs = {.relu = relu >= 0};
    lk_call call = {.op = &lk__op_dense_act,
                    .place = matmul->place,
                    .free_layout = lk__rewrite_call(r, last)->free_layout,
                    .n_in = 3,
                    .n_out = 1,
                    .in = {matmul->in[0], matmul->in[1], bias},
                    .out = {output(r, last)}};
    memcpy(call.attrs.bytes, &attrs, sizeof attrs);
    /* Where the last of them stood: the bias may be made after the product. */
    if (lk__rewrite_fits(r, &call))
        lk__rewrite_replace(r, last, &call, (int[]){i, relu >= 0 ? add : -1}, 2);
    return LK_OK;
}
