#include "cpu/cpu_pool.h"

#include "core/shape.h"
#include "core/tensor.h"

#include <stdio.h>

void lk__pool_key(lk_key *key, const lk_call *call, const lk_pool2d_opts *opts)
{
    lk__key_call(key, call);
    lk__key_add(key, call->out[0]->shape.dim, 4);
    lk__key_add(key, opts->kernel, 2);
    lk__key_add(key, opts->stride, 2);
    lk__key_add(key, opts->padding, 2);
    lk__key_add(key, (int64_t[]){opts->count_include_pad}, 1);
}

void lk__pool_describe(lk_prepared *prepared, lk_dtype dtype, lk_shape x, const lk_pool2d_opts *opts)
{
    char shape[64];
    lk__shape_text(x, shape, sizeof shape);
    snprintf(prepared->problem, sizeof prepared->problem,
             "%s x%s kernel %lldx%lld stride %lldx%lld padding %lldx%lld%s", lk_dtype_name(dtype), shape,
             (long long)opts->kernel[0], (long long)opts->kernel[1], (long long)opts->stride[0],
             (long long)opts->stride[1], (long long)opts->padding[0], (long long)opts->padding[1],
             opts->count_include_pad ? " counted" : "");
}
