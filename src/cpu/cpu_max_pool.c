/* Maximum pooling and its gradient, on the loops of max_pool.h. Both keep the layout that they find; `where` has that
 * of y. */
#include "core/backend.h"
#include "core/tensor.h"
#include "cpu/cpu_kernels.h"
#include "cpu/cpu_own.h"
#include "cpu/cpu_pool.h"
#include "cpu/max_pool.h"
#include "cpu/onednn/cpu_state.h"
#include "ops/ops.h"

#include <stdio.h>

static int64_t cpu_pool_blocks_of(int64_t count, int64_t block)
{
    return (count + block - 1) / block;
}

static lk_geometry max_pool_of(lk_shape x, lk_shape y, const lk_pool2d_opts *opts, dnnl_format_tag_t tag)
{
    lk_geometry pool = lk__geometry_of_pool(x, y, opts);
    int64_t lanes = lk__lanes_of_tag(tag), block = tag == dnnl_nChw16c  ? 16
                                                   : tag == dnnl_nChw8c ? 8
                                                   : tag == dnnl_nChw4c ? 4
                                                                        : 1;
    if (lanes > 0) {
        pool.channels *= lanes;
        pool.images = cpu_pool_blocks_of(pool.images, lanes);
    } else if (tag != dnnl_nhwc) {
        pool.images *= cpu_pool_blocks_of(pool.channels, block);
        pool.channels = block;
    }
    return pool;
}

/* plane: elements of a plane of the output. */
static void max_pool_describe(lk_prepared *prepared, const lk_call *call, lk_shape x, const lk_pool2d_opts *opts,
                              int64_t plane)
{
    prepared->scratch_bytes = call->dtype == LK_BF16 ? (size_t)plane * sizeof(float) : 0;
    lk__pool_describe(prepared, call->dtype, x, opts);
    snprintf(prepared->implementation, sizeof prepared->implementation, "vectors");
}

/* --- forward ------------------------------------------------------------------------------------------------------ */

static lk_status max_pool_prepare_forward(lk_cpu *cpu, const lk_call *call, lk_prepared *prepared)
{
    (void)cpu;
    lk_shape x = call->in[0]->shape, y = call->out[0]->shape;
    dnnl_format_tag_t tag = lk__own_tag(call, call->in[0]);
    const lk_pool2d_opts *opts = LK_ATTRS(call, lk_pool2d_opts);
    lk_geometry pool = max_pool_of(x, y, opts, tag);
    max_pool_describe(prepared, call, x, opts, pool.out[0] * pool.out[1] * pool.channels);
    LK_TRY(lk__layout_tagged(x, LK_F32, tag, &prepared->layouts_in[0]));
    LK_TRY(lk__layout_tagged(y, LK_F32, tag, &prepared->layouts_out[0]));
    return lk__layout_tagged(y, LK_I32, tag, &prepared->layouts_out[1]);
}

static void max_pool_compute_forward(lk_call *call, const lk_converted *in, float *scratch)
{
    const lk_tensor *y = call->out[0];
    lk_geometry pool = max_pool_of(call->in[0]->shape, y->shape, LK_ATTRS(call, lk_pool2d_opts), lk__tag_of(y));
    lk__max_pool(&pool, y->dtype == LK_BF16, in[0].data, y->storage->data, call->out[1]->storage->data, scratch);
}

lk_status lk__cpu_max_pool2d(lk_call *call)
{
    lk_key key;
    if (lk__cpu_is_empty(call))
        return lk__cpu_zero_outputs(call);
    lk__pool_key(&key, call, LK_ATTRS(call, lk_pool2d_opts));
    return lk__own_run_tagged(call, &key, max_pool_prepare_forward, max_pool_compute_forward);
}

/* --- gradient ----------------------------------------------------------------------------------------------------- */

/* dx goes to the operator that made x, so the layout of the forward pass suits it best. */
static lk_status max_pool_prepare_backward(lk_cpu *cpu, const lk_call *call, lk_prepared *prepared)
{
    (void)cpu;
    lk_shape x = call->out[0]->shape, y = call->in[0]->shape;
    dnnl_format_tag_t tag = lk__own_tag(call, call->in[1]);
    const lk_pool2d_opts *opts = &LK_ATTRS(call, lk_pool2d_grad_attrs)->pool;
    lk_geometry pool = max_pool_of(x, y, opts, tag);
    max_pool_describe(prepared, call, x, opts, pool.in[0] * pool.in[1] * pool.channels);
    LK_TRY(lk__layout_tagged(y, LK_F32, tag, &prepared->layouts_in[0]));
    LK_TRY(lk__layout_tagged(y, LK_I32, tag, &prepared->layouts_in[1]));
    return lk__layout_tagged(x, LK_F32, tag, &prepared->layouts_out[0]);
}

static void max_pool_compute_backward(lk_call *call, const lk_converted *in, float *scratch)
{
    const lk_tensor *dx = call->out[0];
    const lk_pool2d_opts *opts = &LK_ATTRS(call, lk_pool2d_grad_attrs)->pool;
    lk_geometry pool = max_pool_of(dx->shape, call->in[0]->shape, opts, lk__tag_of(dx));
    lk__max_pool_grad(&pool, dx->dtype == LK_BF16, in[0].data, in[1].data, dx->storage->data, scratch);
}

lk_status lk__cpu_max_pool2d_grad(lk_call *call)
{
    lk_key key;
    if (lk__cpu_is_empty(call))
        return lk__cpu_zero_outputs(call);
    lk__pool_key(&key, call, &LK_ATTRS(call, lk_pool2d_grad_attrs)->pool);
    return lk__own_run_tagged(call, &key, max_pool_prepare_backward, max_pool_compute_backward);
}
