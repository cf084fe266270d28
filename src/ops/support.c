#include "ops/support.h"
#include "base/minmax.h"
#include "core/scope.h"
#include "core/text.h"

lk_dtype lk__result_dtype(lk_dtype dtype, bool f32)
{
    return f32 && dtype == LK_BF16 ? LK_F32 : dtype;
}

lk_status lk__check_shape(const char *op, lk_shape shape)
{
    if (shape.ndim < 0 || shape.ndim > LK_MAX_DIMS)
        LK_FAIL(LK_ERR_SHAPE, "%s: %d axes; a tensor has 0 to %d", op, shape.ndim, LK_MAX_DIMS);
    for (int i = 0; i < shape.ndim; i++) {
        if (shape.dim[i] < 0)
            LK_FAIL(LK_ERR_SHAPE, "%s: shape %s has a negative size; sizes start at 0", op, lk__text(shape).string);
    }
    /* A size of 0 must not hide an overflow of the others: strides and reductions multiply those. */
    int64_t count = 1;
    for (int i = 0; i < shape.ndim; i++) {
        if (shape.dim[i] > 0 && !lk__mul_i64(count, shape.dim[i], &count))
            LK_FAIL(LK_ERR_SHAPE, "%s: shape %s has more than 2^63 - 1 elements", op, lk__text(shape).string);
    }
    return LK_OK;
}

/* "f32, bf16 or f64" */
static void support_dtype_list_text(unsigned dtypes, char *text, size_t size)
{
    text[0] = '\0';
    for (int i = 0; i < LK_DTYPE_COUNT; i++) {
        if (!(dtypes & LK_DTYPE_BIT(i)))
            continue;
        bool last = dtypes >> (i + 1) == 0;
        lk__text_append(text, size, !*text ? "" : last ? " or " : ", ");
        lk__text_append(text, size, lk_dtype_name((lk_dtype)i));
    }
}

lk_status lk__check_dtype(const char *op, const char *operand, lk_dtype dtype, unsigned allowed)
{
    char list[64];
    bool exists = (unsigned)dtype < LK_DTYPE_COUNT;
    if (exists && (allowed & LK_DTYPE_BIT(dtype)))
        return LK_OK;
    support_dtype_list_text(allowed, list, sizeof list);
    if (!exists)
        LK_FAIL(LK_ERR_DTYPE, "%s: %s has dtype %d, which is none; it must be %s", op, operand, (int)dtype, list);
    LK_FAIL(LK_ERR_DTYPE, "%s: %s is %s; it must be %s", op, operand, lk_dtype_name(dtype), list);
}

lk_status lk__check_same_dtype(const lk_call *call)
{
    lk_dtype dtype = call->in[0]->dtype;
    for (int i = 1; i < call->n_in; i++) {
        if (call->in[i] && call->in[i]->dtype != dtype)
            LK_FAIL(LK_ERR_DTYPE, "%s: operands are %s and %s; they must have one dtype (lk_cast converts)",
                    call->op->name, lk_dtype_name(dtype), lk_dtype_name(call->in[i]->dtype));
    }
    return LK_OK;
}

lk_status lk__check_ndim(const char *op, const char *operand, const lk_tensor *x, int ndim)
{
    if (x->shape.ndim != ndim)
        LK_FAIL(LK_ERR_SHAPE, "%s: %s has shape %s; it must have %d axes", op, operand, lk__text(x->shape).string,
                ndim);
    return LK_OK;
}

lk_status lk__check_like(const char *op, const char *operand, const lk_tensor *x, lk_dtype like, lk_shape shape)
{
    LK_TRY(lk__check_dtype(op, operand, x->dtype, LK_DTYPE_BIT(like)));
    if (!lk__shape_equal(x->shape, shape))
        LK_FAIL(LK_ERR_SHAPE, "%s: %s has shape %s; it must be %s", op, operand, lk__text(x->shape).string,
                lk__text(shape).string);
    return LK_OK;
}

lk_status lk__window_count(const char *op, const char *axis, int64_t size, lk_window window, int64_t *count)
{
    if (window.kernel < 1)
        LK_FAIL(LK_ERR_ARGUMENT, "%s: kernel of %lld along %s; it must be at least 1", op, (long long)window.kernel,
                axis);
    /* Kernels compute positions of int64 with these, and libraries those of int32. */
    if (window.dilation < 1 || window.dilation > INT32_MAX)
        LK_FAIL(LK_ERR_ARGUMENT, "%s: dilation of %lld along %s; it must be at least 1 and below 2^31", op,
                (long long)window.dilation, axis);
    if (window.padding < 0 || window.padding > (INT32_MAX - lk__min(size, INT32_MAX)) / 2)
        LK_FAIL(LK_ERR_ARGUMENT, "%s: padding of %lld along %s; it must be at least 0, and %s with padding below 2^31",
                op, (long long)window.padding, axis, axis);
    int64_t padded = size + 2 * window.padding;
    if (window.stride < 1 || window.stride > INT32_MAX - lk__min(padded, INT32_MAX / 2))
        LK_FAIL(LK_ERR_ARGUMENT,
                "%s: stride of %lld along %s; it must be at least 1, and together with %s and its padding below 2^31",
                op, (long long)window.stride, axis, axis);
    int64_t span;
    if (!lk__mul_i64(window.dilation, window.kernel - 1, &span) || span >= padded)
        LK_FAIL(LK_ERR_SHAPE,
                "%s: a kernel of %lld with dilation %lld does not fit into %s = %lld with padding %lld on both sides",
                op, (long long)window.kernel, (long long)window.dilation, axis, (long long)size,
                (long long)window.padding);
    *count = (padded - span - 1) / window.stride + 1;
    return LK_OK;
}

lk_status lk__made(const lk_tensor *x)
{
    return x ? LK_OK : lk_error_status();
}

lk_status lk__missing(const char *op, const char *argument)
{
    lk__fail(LK_ERR_ARGUMENT, "%s: %s is NULL", op, argument);
    return lk_error_status();
}

lk_tensor *lk__missing_tensor(const char *op, const char *argument)
{
    lk__missing(op, argument);
    return NULL;
}

lk_tensor *lk__call_first(lk_call *call)
{
    lk_scope_begin();
    lk_status status = lk__call(call);
    return lk__scope_return(status == LK_OK ? call->out[0] : NULL);
}

lk_status lk__call_unrecorded(lk_call *call)
{
    lk_recorder recorder = lk__recorder_set((lk_recorder){0});
    lk_status status = lk__call(call);
    lk__recorder_set(recorder);
    return status;
}

lk_tensor *lk__call_on(lk_call_site at, const lk_op *op, lk_device *device, lk_dtype dtype, lk_tensor *const *in,
                       int n_in, const void *attrs, size_t attrs_size)
{
    if (!device)
        return lk__missing_tensor(op->name, "device");
    lk_call call = {.op = op, .place = at, .device = device, .dtype = dtype, .n_in = n_in, .n_out = 1};
    for (int i = 0; i < n_in; i++)
        call.in[i] = in[i];
    lk__call_set_attrs(&call, attrs, attrs_size);
    return lk__call(&call) == LK_OK ? call.out[0] : NULL;
}

lk_tensor *lk__call_axis(lk_call_site at, const lk_op *op, lk_tensor *x, int axis)
{
    lk_axis_attrs attrs;
    if (!x)
        return lk__missing_tensor(op->name, "x");
    if (lk__axis(op->name, axis, x->shape.ndim, &attrs.axis) != LK_OK)
        return NULL;
    return lk__call_simple(at, op, &x, 1, 1, &attrs, sizeof attrs);
}

lk_status lk__gradient_call(lk_gradient *g, const lk_op *op, lk_tensor *const *in, int n_in)
{
    const lk_call *call = g->call;
    if (!g->dout[0] || !g->need[0])
        return LK_OK;
    size_t attrs_size = (size_t)(LK_MAX_ATTRS - call->attrs_unused);
    g->din[0] = lk__call_simple(call->place, op, in, n_in, n_in, call->attrs.bytes, attrs_size);
    return lk__made(g->din[0]);
}

/* The position of the last element in the storage. */
static int64_t support_tensor_last_element(const lk_tensor *x)
{
    int64_t last = x->offset;
    for (int i = 0; i < x->shape.ndim; i++)
        last += (x->shape.dim[i] - 1) * x->strides[i];
    return last;
}

/* Returns whether writing `out` element by element could change an element of `x` before it is read. */
static bool support_tensors_overlap(const lk_tensor *out, const lk_tensor *x)
{
    if (out->storage != x->storage || lk__tensor_same_view(out, x) || lk_tensor_count(out) == 0 ||
        lk_tensor_count(x) == 0)
        return false;
    return out->offset <= support_tensor_last_element(x) && x->offset <= support_tensor_last_element(out);
}

lk_status lk__check_writable(const char *op, const lk_tensor *out)
{
    for (int i = 0; i < out->shape.ndim; i++) {
        if (out->shape.dim[i] > 1 && out->strides[i] == 0)
            LK_FAIL(LK_ERR_ARGUMENT,
                    "%s: the tensor to write to, %s, is an expanded view: its elements are not its own", op,
                    lk__text(out->shape).string);
    }
    return LK_OK;
}

/* Only a copy reads from another device. */
static lk_status support_call_into_check_devices(const lk_call *call)
{
    for (int i = 0; i < call->n_in && call->op->id != LK_OP_COPY; i++) {
        lk_device *device = lk_tensor_device(call->in[i]);
        if (device != call->device)
            LK_FAIL(LK_ERR_DEVICE,
                    "%s: an operand on %s is to be written into a tensor on %s; copy it with lk_copy first",
                    call->op->name, lk_device_name(device), lk_device_name(call->device));
    }
    return LK_OK;
}

static lk_status support_call_into(lk_call *call)
{
    lk_tensor *out = call->out[0];
    LK_TRY(support_call_into_check_devices(call));
    for (int i = 0; i < call->n_in; i++) {
        if (support_tensors_overlap(out, call->in[i])) {
            call->in[i] = lk_copy_at(call->place, call->in[i], call->device);
            LK_TRY(lk__made(call->in[i]));
        }
    }
    return lk__call(call);
}

lk_status lk__call_into(lk_call_site at, const lk_op *op, lk_tensor *out, lk_tensor *const *in, int n_in,
                        const void *attrs, size_t attrs_size)
{
    if (!out)
        return lk__missing(op->name, "the tensor to write to");
    lk_call call = {.op = op, .place = at, .device = lk_tensor_device(out), .n_in = n_in, .n_out = 1, .out = {out}};
    for (int i = 0; i < n_in; i++) {
        if (!in[i])
            return lk__missing(op->name, "an operand");
        call.in[i] = in[i];
    }
    LK_TRY(lk__check_writable(op->name, out));
    call.dtype = in[0]->dtype;
    lk__call_set_attrs(&call, attrs, attrs_size);

    lk_recorder recorder = lk__recorder_set((lk_recorder){0});
    lk_scope_begin();
    lk_status status = support_call_into(&call);
    lk_scope_end();
    lk__recorder_set(recorder);
    return status;
}

lk_tensor *lk__scope_return(lk_tensor *result)
{
    lk_tensor_retain(result);
    lk_scope_end();
    return result ? lk__scope_adopt(result) : NULL;
}

lk_status lk__infer_same(const lk_call *call, lk_meta *out)
{
    out[0] = (lk_meta){call->in[0]->dtype, call->in[0]->shape};
    return LK_OK;
}

double lk__flops_output(const lk_call *call)
{
    return (double)lk_tensor_count(call->out[0]);
}

double lk__flops_input(const lk_call *call)
{
    return (double)lk_tensor_count(call->in[0]);
}
