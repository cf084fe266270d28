#include "nn/init.h"
#include "base/status.h"
#include "nn/model.h"

#include <math.h>

bool lk__init_is_deviation(double value)
{
    return value >= 0 && value <= LK_LAYER_MAX_REAL;
}

lk_status lk__init_check(const char *kind, const char *what, lk_init init)
{
    if (init.kind < 0 || init.kind >= LK_INIT_KIND_COUNT)
        LK_FAIL(LK_ERR_ARGUMENT, "%s: initializer %d of '%s' does not exist", kind, (int)init.kind, what);
    if (init.kind == LK_INIT_CONSTANT && !lk__init_is_deviation(fabs(init.value)))
        LK_FAIL(LK_ERR_ARGUMENT, "%s: '%s' starts with %g; it must be from -1e37 to 1e37", kind, what, init.value);
    if (init.kind == LK_INIT_NORMAL && !lk__init_is_deviation(init.value))
        LK_FAIL(LK_ERR_ARGUMENT, "%s: '%s' starts with a standard deviation of %g; it must be from 0 to 1e37", kind,
                what, init.value);
    return LK_OK;
}

lk_init lk__init_or(lk_init init, lk_init_kind kind)
{
    if (init.kind == LK_INIT_DEFAULT)
        init.kind = kind;
    return init;
}

const char *lk__init_name(lk_init_kind kind)
{
    static const char *const names[LK_INIT_KIND_COUNT] = {
        [LK_INIT_ZEROS] = "zeros",
        [LK_INIT_ONES] = "ones",
        [LK_INIT_GLOROT_UNIFORM] = "glorot_uniform",
        [LK_INIT_HE_NORMAL] = "he_normal",
        [LK_INIT_TORCH_UNIFORM] = "torch_uniform",
    };
    return names[kind];
}

static lk_tensor *nn_init_normal(const lk_variable_spec *spec, lk_device *device, double std, lk_random_key key)
{
    return std == 0 ? lk_zeros(device, LK_F32, spec->shape) : lk_normal(device, LK_F32, spec->shape, 0, std, key);
}

static lk_tensor *nn_init_uniform(const lk_variable_spec *spec, lk_device *device, double bound, lk_random_key key)
{
    return lk_uniform(device, LK_F32, spec->shape, -bound, bound, key);
}

lk_tensor *lk__initial_value(const lk_variable_spec *spec, lk_device *device, uint64_t seed)
{
    lk_random_key key = {.seed = seed, .purpose = lk_random_purpose(spec->name)};
    double fan_in = spec->fan_in > 0 ? (double)spec->fan_in : 1,
           fan_out = spec->fan_out > 0 ? (double)spec->fan_out : 1;
    switch (spec->init.kind) {
    case LK_INIT_NORMAL:
        return nn_init_normal(spec, device, spec->init.value, key);
    case LK_INIT_HE_NORMAL:
        return nn_init_normal(spec, device, sqrt(2 / fan_in), key);
    case LK_INIT_GLOROT_UNIFORM:
        return nn_init_uniform(spec, device, sqrt(6 / (fan_in + fan_out)), key);
    case LK_INIT_TORCH_UNIFORM:
        return nn_init_uniform(spec, device, 1 / sqrt(fan_in), key);
    case LK_INIT_CONSTANT:
        return lk_full(device, LK_F32, spec->shape, spec->init.value);
    case LK_INIT_ONES:
        return lk_ones(device, LK_F32, spec->shape);
    default:
        return lk_zeros(device, LK_F32, spec->shape);
    }
}
