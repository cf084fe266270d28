#include "core/shape.h"
#include "ops/support.h"

#include <stdio.h>

static lk_status concat_check(const lk_tensor *first, const lk_tensor *x, int i, int axis)
{
    lk_shape other = x->shape;
    other.dim[axis] = first->shape.dim[axis];
    if (x->dtype != first->dtype)
        LK_FAIL(LK_ERR_DTYPE, "concat: x[0] is %s and x[%d] %s; they must have one dtype (lk_cast converts)",
                lk_dtype_name(first->dtype), i, lk_dtype_name(x->dtype));
    if (!lk__shape_equal(other, first->shape))
        LK_FAIL(LK_ERR_SHAPE, "concat: x[0] has shape %s and x[%d] %s; they may differ in axis %d only",
                lk__text(first->shape).string, i, lk__text(x->shape).string, axis);
    return LK_OK;
}

/* lk_concat_at has checked the operands. */
static lk_status concat_infer(const lk_call *call, lk_meta *out)
{
    int axis = LK_ATTRS(call, lk_concat_attrs)->axis;
    lk_shape first = call->in[0]->shape, joined = first;
    for (int i = 1; i < call->n_in; i++) {
        int64_t size = call->in[i]->shape.dim[axis];
        if (size > INT64_MAX - joined.dim[axis])
            LK_FAIL(LK_ERR_SHAPE, "concat: axis %d would be longer than 2^63 - 1", axis);
        joined.dim[axis] += size;
    }
    out[0] = (lk_meta){call->in[0]->dtype, joined};
    return LK_OK;
}

static lk_status concat_gradient(lk_gradient *g)
{
    if (!g->dout[0])
        return LK_OK;
    int axis = LK_ATTRS(g->call, lk_concat_attrs)->axis;
    int64_t begin = 0;
    for (int i = 0; i < g->call->n_in; i++) {
        int64_t end = begin + g->call->in[i]->shape.dim[axis];
        if (g->need[i]) {
            g->din[i] = lk_slice_at(g->call->place, g->dout[0], axis, begin, end);
            LK_TRY(lk__made(g->din[i]));
        }
        begin = end;
    }
    return LK_OK;
}

const lk_op lk__op_concat = {
    .name = "concat",
    .id = LK_OP_CONCAT,
    .infer = concat_infer,
    .gradient = concat_gradient,
};

/* A call takes at most LK_MAX_INPUTS tensors. More are first joined in that many parts. */
static lk_tensor *concat_parts(lk_call_site at, lk_tensor *const *x, int n, int axis)
{
    lk_concat_attrs attrs = {.axis = axis};
    if (n <= LK_MAX_INPUTS)
        return lk__call_simple(at, &lk__op_concat, x, n, n, &attrs, sizeof attrs);

    lk_tensor *parts[LK_MAX_INPUTS];
    int begin = 0;
    lk_scope_begin();
    for (int i = 0; i < LK_MAX_INPUTS; i++) {
        int end = (int)((int64_t)n * (i + 1) / LK_MAX_INPUTS);
        parts[i] = concat_parts(at, x + begin, end - begin, axis);
        begin = end;
    }
    return lk__scope_return(
        lk__call_simple(at, &lk__op_concat, parts, LK_MAX_INPUTS, LK_MAX_INPUTS, &attrs, sizeof attrs));
}

lk_tensor *lk_concat_at(lk_call_site at, lk_tensor *const *x, int n, int axis)
{
    if (n < 1) {
        lk__fail(LK_ERR_ARGUMENT, "concat: %d tensors; it takes at least 1", n);
        return NULL;
    }
    for (int i = 0; i < n; i++) {
        char argument[32];
        snprintf(argument, sizeof argument, "x[%d]", i);
        if (!x || !x[i])
            return lk__missing_tensor("concat", argument);
    }
    int normal;
    if (lk__axis("concat", axis, x[0]->shape.ndim, &normal) != LK_OK)
        return NULL;
    for (int i = 1; i < n; i++)
        if (concat_check(x[0], x[i], i, normal) != LK_OK)
            return NULL;
    return concat_parts(at, x, n, normal);
}
