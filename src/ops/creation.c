/* Tensors made without inputs: full, arange, uniform, normal. */
#include "core/shape.h"
#include "ops/support.h"

#include <math.h>

_Static_assert(sizeof(lk_full_attrs) <= LK_MAX_ATTRS, "attributes of full");
_Static_assert(sizeof(lk_random_attrs) <= LK_MAX_ATTRS, "attributes of uniform and normal");

static lk_status creation_full_infer(const lk_call *call, lk_meta *out)
{
    const lk_full_attrs *attrs = LK_ATTRS(call, lk_full_attrs);
    LK_TRY(lk__check_dtype(call->op->name, "the result", call->dtype, LK_ALL_DTYPES));
    LK_TRY(lk__check_shape(call->op->name, attrs->shape));
    out[0] = (lk_meta){call->dtype, attrs->shape};
    return LK_OK;
}

const lk_op lk__op_full = {.name = "full", .id = LK_OP_FULL, .infer = creation_full_infer};

lk_tensor *lk_full_at(lk_call_site at, lk_device *device, lk_dtype dtype, lk_shape shape, double value)
{
    lk_full_attrs attrs = {.shape = shape, .value = value};
    return lk__call_on(at, &lk__op_full, device, dtype, NULL, 0, &attrs, sizeof attrs);
}

static lk_status creation_arange_infer(const lk_call *call, lk_meta *out)
{
    const lk_arange_attrs *attrs = LK_ATTRS(call, lk_arange_attrs);
    LK_TRY(lk__check_dtype(call->op->name, "the result", call->dtype, LK_ALL_DTYPES));
    if (attrs->count < 0)
        LK_FAIL(LK_ERR_SHAPE, "arange: count is %lld; it must be 0 or more", (long long)attrs->count);
    out[0] = (lk_meta){call->dtype, LK_SHAPE(attrs->count)};
    return LK_OK;
}

const lk_op lk__op_arange = {.name = "arange", .id = LK_OP_ARANGE, .infer = creation_arange_infer};

lk_tensor *lk_arange_at(lk_call_site at, lk_device *device, lk_dtype dtype, int64_t count, double start, double step)
{
    lk_arange_attrs attrs = {.count = count, .start = start, .step = step};
    return lk__call_on(at, &lk__op_arange, device, dtype, NULL, 0, &attrs, sizeof attrs);
}

/* A stream has 2^32 blocks of four words, and an element takes one word. */
static const int64_t MAX_RANDOM = INT64_C(4) << 32;

static lk_status creation_random_infer(const lk_call *call, lk_meta *out)
{
    const lk_random_attrs *attrs = LK_ATTRS(call, lk_random_attrs);
    const char *op = call->op->name;
    LK_TRY(lk__check_dtype(op, "the result", call->dtype, LK_FLOATS));
    LK_TRY(lk__check_shape(op, *attrs->shape));
    int64_t count;
    LK_TRY(lk__shape_count(*attrs->shape, &count));
    if (count > MAX_RANDOM)
        LK_FAIL(LK_ERR_SHAPE, "%s: shape %s has %lld elements; one random stream has 2^34", op,
                lk__text(*attrs->shape).string, (long long)count);
    if (attrs->key.epoch > UINT32_MAX || attrs->key.sample > UINT32_MAX)
        LK_FAIL(LK_ERR_ARGUMENT, "%s: the key's epoch is %llu and its sample %llu; both must be below 2^32", op,
                (unsigned long long)attrs->key.epoch, (unsigned long long)attrs->key.sample);
    out[0] = (lk_meta){call->dtype, *attrs->shape};
    return LK_OK;
}

static lk_status creation_uniform_infer(const lk_call *call, lk_meta *out)
{
    const lk_random_attrs *attrs = LK_ATTRS(call, lk_random_attrs);
    if (!isfinite(attrs->a) || !isfinite(attrs->b) || !isfinite(attrs->b - attrs->a) || attrs->a > attrs->b)
        LK_FAIL(LK_ERR_ARGUMENT,
                "uniform: low is %g and high %g; they and high - low must be finite, and low not above high", attrs->a,
                attrs->b);
    return creation_random_infer(call, out);
}

static lk_status creation_normal_infer(const lk_call *call, lk_meta *out)
{
    const lk_random_attrs *attrs = LK_ATTRS(call, lk_random_attrs);
    if (!isfinite(attrs->a) || !isfinite(attrs->b) || attrs->b < 0)
        LK_FAIL(LK_ERR_ARGUMENT, "normal: mean is %g and std %g; they must be finite, and std not negative", attrs->a,
                attrs->b);
    return creation_random_infer(call, out);
}

const lk_op lk__op_uniform = {.name = "uniform", .id = LK_OP_UNIFORM, .infer = creation_uniform_infer};
const lk_op lk__op_normal = {.name = "normal", .id = LK_OP_NORMAL, .infer = creation_normal_infer};

static lk_tensor *creation_random_call(lk_call_site at, const lk_op *op, lk_device *device, lk_dtype dtype,
                                       const lk_shape *shape, double a, double b, lk_random_key key)
{
    lk_random_attrs attrs = {.shape = shape, .a = a, .b = b, .key = key};
    return lk__call_on(at, op, device, dtype, NULL, 0, &attrs, sizeof attrs);
}

lk_tensor *lk_uniform_at(lk_call_site at, lk_device *device, lk_dtype dtype, lk_shape shape, double low, double high,
                         lk_random_key key)
{
    return creation_random_call(at, &lk__op_uniform, device, dtype, &shape, low, high, key);
}

lk_tensor *lk_normal_at(lk_call_site at, lk_device *device, lk_dtype dtype, lk_shape shape, double mean, double std,
                        lk_random_key key)
{
    return creation_random_call(at, &lk__op_normal, device, dtype, &shape, mean, std, key);
}
