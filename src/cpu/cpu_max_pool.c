/* Maximum pooling and its gradient, on max_pool.h' loops. Both leave the layout as they find it. `where` is in y's. */
#include "core/backend.h"
#include "core/tensor.h"
#include "cpu/cpu_kernels.h"
#include "cpu/cpu_own.h"
#include "cpu/cpu_pool.h"
#include "cpu/cpu_state.h"
#include "cpu/max_pool.h"
#include "ops/ops.h"

#include <stdio.h>

/* The layout to work in, given the one that an input has. */
static dnnl_format_tag_t working_tag(const lk_call *call, const lk_tensor *input)
{
    return call->free_layout ? lk__tag_of(input) : dnnl_nchw;
}

static int64_t blocks_of(int64_t count, int64_t block)
{
    return (count + block - 1) / block;
}

static void set_vectors(lk_max_pool *pool, int64_t images, int64_t channels, dnnl_format_tag_t tag)
{
    int64_t lanes = lk__lanes_of_tag(tag), block = tag == dnnl_nChw16c  ? 16
                                                   : tag == dnnl_nChw8c ? 8
                                                   : tag == dnnl_nChw4c ? 4
                                                                        : 1;
    if (lanes > 0) {
        pool->n = channels * lanes;
        pool->groups = blocks_of(images, lanes);
    } else {
        pool->n = tag == dnnl_nhwc ? channels : block;
        pool->groups = images * (tag == dnnl_nhwc ? 1 : blocks_of(channels, block));
    }
}

static lk_max_pool pool_of(lk_shape x, lk_shape y, const lk_pool2d_opts *opts, dnnl_format_tag_t tag)
{
    lk_max_pool pool;
    set_vectors(&pool, x.dim[0], x.dim[1], tag);
    for (int i = 0; i < 2; i++) {
        pool.in[i] = x.dim[2 + i];
        pool.out[i] = y.dim[2 + i];
        pool.kernel[i] = opts->kernel[i];
        pool.stride[i] = opts->stride[i];
        pool.padding[i] = opts->padding[i];
    }
    return pool;
}

static void describe(lk_prepared *prepared, lk_shape x, const lk_pool2d_opts *opts)
{
    lk__pool_describe(prepared, x, opts);
    snprintf(prepared->implementation, sizeof prepared->implementation, "vectors");
}

/* --- forward ------------------------------------------------------------------------------------------------------ */

static lk_status prepare_forward(lk_cpu *cpu, const lk_call *call, lk_prepared *prepared)
{
    (void)cpu;
    lk_shape x = call->in[0]->shape, y = call->out[0]->shape;
    dnnl_format_tag_t tag = working_tag(call, call->in[0]);
    describe(prepared, x, LK_ATTRS(call, lk_pool2d_opts));
    LK_TRY(lk__layout_tagged(x, LK_F32, tag, &prepared->layouts_in[0]));
    LK_TRY(lk__layout_tagged(y, LK_F32, tag, &prepared->layouts_out[0]));
    return lk__layout_tagged(y, LK_I32, tag, &prepared->layouts_out[1]);
}

static void compute_forward(lk_call *call, const lk_converted *in, float *scratch)
{
    (void)scratch;
    const lk_tensor *y = call->out[0];
    lk_max_pool pool = pool_of(call->in[0]->shape, y->shape, LK_ATTRS(call, lk_pool2d_opts), lk__tag_of(y));
    lk__max_pool(&pool, in[0].data, y->storage->data, call->out[1]->storage->data);
}

lk_status lk__cpu_max_pool2d(lk_call *call)
{
    lk_key key;
    if (lk__cpu_is_empty(call))
        return lk__cpu_zero_outputs(call);
    lk__pool_key(&key, call, LK_ATTRS(call, lk_pool2d_opts));
    return lk__own_run(call, &key, prepare_forward, compute_forward);
}

/* --- gradient ----------------------------------------------------------------------------------------------------- */

/* dx goes to whatever made x, so the forward pass' layout is the one that is wanted next. */
static lk_status prepare_backward(lk_cpu *cpu, const lk_call *call, lk_prepared *prepared)
{
    (void)cpu;
    lk_shape x = call->out[0]->shape, y = call->in[0]->shape;
    dnnl_format_tag_t tag = working_tag(call, call->in[1]);
    describe(prepared, x, &LK_ATTRS(call, lk_pool2d_grad_attrs)->pool);
    LK_TRY(lk__layout_tagged(y, LK_F32, tag, &prepared->layouts_in[0]));
    LK_TRY(lk__layout_tagged(y, LK_I32, tag, &prepared->layouts_in[1]));
    return lk__layout_tagged(x, LK_F32, tag, &prepared->layouts_out[0]);
}

static void compute_backward(lk_call *call, const lk_converted *in, float *scratch)
{
    (void)scratch;
    const lk_tensor *dx = call->out[0];
    const lk_pool2d_opts *opts = &LK_ATTRS(call, lk_pool2d_grad_attrs)->pool;
    lk_max_pool pool = pool_of(dx->shape, call->in[0]->shape, opts, lk__tag_of(dx));
    lk__max_pool_grad(&pool, in[0].data, in[1].data, dx->storage->data);
}

lk_status lk__cpu_max_pool2d_grad(lk_call *call)
{
    lk_key key;
    if (lk__cpu_is_empty(call))
        return lk__cpu_zero_outputs(call);
    lk__pool_key(&key, call, &LK_ATTRS(call, lk_pool2d_grad_attrs)->pool);
    return lk__own_run(call, &key, prepare_backward, compute_backward);
}
