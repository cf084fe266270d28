/* Views: reshape, flatten, transpose, slice, expand. They have neither a kernel nor lk_op.infer: each function computes
 * shape and strides itself. */
#include "core/shape.h"
#include "ops/broadcast.h"
#include "ops/support.h"

/* --- reshape ------------------------------------------------------------------------------------------------------ */

/* Replaces the one size of -1 in `shape` so that it has x's count, and checks that it does. */
static lk_status view_reshape_resolve(const lk_tensor *x, lk_shape *shape)
{
    lk_shape asked = *shape;
    int unknown = -1;
    if (asked.ndim >= 0 && asked.ndim <= LK_MAX_DIMS) {
        for (int i = 0; i < asked.ndim; i++) {
            if (asked.dim[i] != -1)
                continue;
            if (unknown >= 0)
                LK_FAIL(LK_ERR_SHAPE, "reshape: %s has more than one size of -1", lk__text(asked).string);
            unknown = i;
            shape->dim[i] = 1;
        }
    }
    LK_TRY(lk__check_shape("reshape", *shape));
    int64_t have, want;
    LK_TRY(lk__shape_count(x->shape, &have));
    LK_TRY(lk__shape_count(*shape, &want));
    if (unknown >= 0 && want == 0)
        LK_FAIL(LK_ERR_SHAPE, "reshape: the size of -1 in %s is not determined, since another size is 0",
                lk__text(asked).string);
    if (unknown >= 0 && have % want == 0) {
        shape->dim[unknown] = have / want;
        want = have;
    }
    if (have != want)
        LK_FAIL(LK_ERR_SHAPE, "reshape: shape %s has %lld elements, which %s does not hold", lk__text(x->shape).string,
                (long long)have, lk__text(asked).string);
    return LK_OK;
}

/* Lists the axes of x with sizes other than 1, outermost first. */
static int view_reshape_strip_ones(const lk_tensor *x, int64_t *dim, int64_t *stride)
{
    int n = 0;
    for (int i = 0; i < x->shape.ndim; i++) {
        if (x->shape.dim[i] == 1)
            continue;
        dim[n] = x->shape.dim[i];
        stride[n++] = x->strides[i];
    }
    return n;
}

/* Sets the strides of x's elements seen as `shape`, of the same count; false if no strides do it. NumPy's rule: cut
 * both shapes into the shortest runs of axes with equal products; within a run, x's axes must be contiguous to each
 * other. */
static bool view_reshape_strides(const lk_tensor *x, lk_shape shape, int64_t *strides)
{
    if (lk_tensor_count(x) == 0) {
        lk__shape_strides(shape, strides);
        return true;
    }
    int64_t dim[LK_MAX_DIMS] = {0}, stride[LK_MAX_DIMS] = {0};
    int n = view_reshape_strip_ones(x, dim, stride);
    int from = 0, to = 0;
    while (from < n && to < shape.ndim) {
        int from_end = from + 1, to_end = to + 1;
        int64_t have = dim[from], want = shape.dim[to];
        while (have != want) {
            if (have < want)
                have *= dim[from_end++];
            else
                want *= shape.dim[to_end++];
        }
        for (int i = from; i < from_end - 1; i++) {
            if (stride[i] != stride[i + 1] * dim[i + 1])
                return false;
        }
        strides[to_end - 1] = stride[from_end - 1];
        for (int i = to_end - 1; i > to; i--)
            strides[i - 1] = strides[i] * shape.dim[i];
        from = from_end;
        to = to_end;
    }
    for (; to < shape.ndim; to++)
        strides[to] = 1; /* sizes of 1 */
    return true;
}

/* dx is dy with x's shape. */
static lk_status reshape_gradient(lk_gradient *g)
{
    if (!g->dout[0] || !g->need[0])
        return LK_OK;
    g->din[0] = lk_reshape_at(g->call->place, g->dout[0], g->call->in[0]->shape);
    return lk__made(g->din[0]);
}

const lk_op lk__op_reshape = {
    .name = "reshape",
    .id = LK_OP_RESHAPE,
    .flags = LK_OP_VIEW,
    .gradient = reshape_gradient,
};

static lk_tensor *reshape_view(lk_call_site at, lk_tensor *x, lk_shape shape, const int64_t *strides)
{
    lk_view_attrs attrs = {0};
    return lk__view(at, &lk__op_reshape, x, shape, strides, x->offset, &attrs, sizeof attrs);
}

lk_tensor *lk_reshape_at(lk_call_site at, lk_tensor *x, lk_shape shape)
{
    if (!x)
        return lk__missing_tensor("reshape", "x");
    if (view_reshape_resolve(x, &shape) != LK_OK)
        return NULL;
    int64_t strides[LK_MAX_DIMS] = {0};
    if (view_reshape_strides(x, shape, strides))
        return reshape_view(at, x, shape, strides);

    lk_scope_begin();
    lk_tensor *dense = lk_copy_at(at, x, lk_tensor_device(x));
    lk__shape_strides(shape, strides);
    return lk__scope_return(dense ? reshape_view(at, dense, shape, strides) : NULL);
}

lk_tensor *lk_flatten_at(lk_call_site at, lk_tensor *x)
{
    if (!x)
        return lk__missing_tensor("flatten", "x");
    if (x->shape.ndim == 0) {
        lk__fail(LK_ERR_SHAPE, "flatten: x is a scalar; it must have at least one axis");
        return NULL;
    }
    int64_t rest = 1;
    for (int i = 1; i < x->shape.ndim; i++) {
        if (!lk__mul_i64(rest, x->shape.dim[i], &rest)) {
            lk__fail(LK_ERR_SHAPE, "flatten: rows of %s have more than 2^63 - 1 elements", lk__text(x->shape).string);
            return NULL;
        }
    }
    return lk_reshape_at(at, x, LK_SHAPE(x->shape.dim[0], rest));
}

/* --- transpose ---------------------------------------------------------------------------------------------------- */

static lk_status transpose_gradient(lk_gradient *g)
{
    if (!g->dout[0] || !g->need[0])
        return LK_OK;
    const lk_view_attrs *attrs = LK_ATTRS(g->call, lk_view_attrs);
    g->din[0] = lk_transpose_at(g->call->place, g->dout[0], attrs->axis, attrs->axis1);
    return lk__made(g->din[0]);
}

const lk_op lk__op_transpose = {
    .name = "transpose",
    .id = LK_OP_TRANSPOSE,
    .flags = LK_OP_VIEW,
    .gradient = transpose_gradient,
};

static void view_swap_int64(int64_t *a, int64_t *b)
{
    int64_t old = *a;
    *a = *b;
    *b = old;
}

lk_tensor *lk_transpose_at(lk_call_site at, lk_tensor *x, int axis0, int axis1)
{
    if (!x)
        return lk__missing_tensor("transpose", "x");
    lk_view_attrs attrs = {0};
    if (lk__axis("transpose", axis0, x->shape.ndim, &attrs.axis) != LK_OK ||
        lk__axis("transpose", axis1, x->shape.ndim, &attrs.axis1) != LK_OK)
        return NULL;
    lk_shape shape = x->shape;
    int64_t strides[LK_MAX_DIMS];
    for (int i = 0; i < LK_MAX_DIMS; i++)
        strides[i] = x->strides[i];
    view_swap_int64(&shape.dim[attrs.axis], &shape.dim[attrs.axis1]);
    view_swap_int64(&strides[attrs.axis], &strides[attrs.axis1]);
    return lk__view(at, &lk__op_transpose, x, shape, strides, x->offset, &attrs, sizeof attrs);
}

/* --- slice -------------------------------------------------------------------------------------------------------- */

/* dx is zeros, with dy in the slice. */
static lk_status slice_gradient(lk_gradient *g)
{
    if (!g->dout[0] || !g->need[0])
        return LK_OK;
    lk_call_site at = g->call->place;
    const lk_view_attrs *attrs = LK_ATTRS(g->call, lk_view_attrs);
    lk_tensor *dy = g->dout[0];
    lk_tensor *dx = lk_full_at(at, lk_tensor_device(dy), dy->dtype, g->call->in[0]->shape, 0);
    LK_TRY(lk_copy_into_at(at, lk_slice_at(at, dx, attrs->axis, attrs->begin, attrs->end), dy));
    g->din[0] = dx;
    return LK_OK;
}

const lk_op lk__op_slice = {
    .name = "slice",
    .id = LK_OP_SLICE,
    .flags = LK_OP_VIEW,
    .gradient = slice_gradient,
};

lk_tensor *lk_slice_at(lk_call_site at, lk_tensor *x, int axis, int64_t begin, int64_t end)
{
    if (!x)
        return lk__missing_tensor("slice", "x");
    lk_view_attrs attrs = {.begin = begin, .end = end};
    if (lk__axis("slice", axis, x->shape.ndim, &attrs.axis) != LK_OK)
        return NULL;
    lk_shape shape = x->shape;
    if (begin < 0 || begin > end || end > shape.dim[attrs.axis]) {
        lk__fail(LK_ERR_SHAPE, "slice: [%lld, %lld) is not within axis %d of %s; 0 <= begin <= end <= %lld",
                 (long long)begin, (long long)end, attrs.axis, lk__text(shape).string,
                 (long long)shape.dim[attrs.axis]);
        return NULL;
    }
    shape.dim[attrs.axis] = end - begin;
    int64_t offset = x->offset + begin * x->strides[attrs.axis];
    return lk__view(at, &lk__op_slice, x, shape, x->strides, offset, &attrs, sizeof attrs);
}

/* --- expand ------------------------------------------------------------------------------------------------------- */

static lk_status expand_gradient(lk_gradient *g)
{
    if (!g->dout[0] || !g->need[0])
        return LK_OK;
    g->din[0] = lk__sum_to(g->call->place, g->dout[0], g->call->in[0]->shape, g->f32[0]);
    return lk__made(g->din[0]);
}

const lk_op lk__op_expand = {
    .name = "expand",
    .id = LK_OP_EXPAND,
    .flags = LK_OP_VIEW,
    .gradient = expand_gradient,
};

static lk_status view_expand_strides(const lk_tensor *x, lk_shape shape, int64_t *strides)
{
    LK_TRY(lk__check_shape("expand", shape));
    int leading = shape.ndim - x->shape.ndim;
    if (leading < 0)
        LK_FAIL(LK_ERR_SHAPE, "expand: %s has more axes than %s", lk__text(x->shape).string, lk__text(shape).string);
    for (int i = 0; i < shape.ndim; i++) {
        int64_t size = i < leading ? 1 : x->shape.dim[i - leading];
        if (size == shape.dim[i])
            strides[i] = i < leading ? 0 : x->strides[i - leading];
        else if (size == 1)
            strides[i] = 0;
        else
            LK_FAIL(LK_ERR_SHAPE, "expand: %s does not repeat to %s: only sizes of 1 do, and axis %d has %lld",
                    lk__text(x->shape).string, lk__text(shape).string, i - leading, (long long)size);
    }
    return LK_OK;
}

lk_tensor *lk_expand_at(lk_call_site at, lk_tensor *x, lk_shape shape)
{
    if (!x)
        return lk__missing_tensor("expand", "x");
    int64_t strides[LK_MAX_DIMS] = {0};
    if (view_expand_strides(x, shape, strides) != LK_OK)
        return NULL;
    lk_view_attrs attrs = {0};
    return lk__view(at, &lk__op_expand, x, shape, strides, x->offset, &attrs, sizeof attrs);
}
