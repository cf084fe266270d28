/* conv2d, relu and pooling become conv_block; their gradients become conv_block_grad. */
#include "ops/ops.h"
#include "program/rewrite.h"

/* The numbers of the calls that match; -1: no such call. */
typedef struct pattern {
    int conv, relu, pool;
    int pool_grad, relu_grad, weight_grad, input_grad; /* relu_grad -1: no gradient is asked for */
} pattern;

static int fuse_conv_pool_kind(const lk_rewrite *r, int i)
{
    return lk__rewrite_is(r, i, LK_OP_AVG_POOL2D)   ? LK_BLOCK_AVG_POOL
           : lk__rewrite_is(r, i, LK_OP_MAX_POOL2D) ? LK_BLOCK_MAX_POOL
                                                    : LK_BLOCK_NO_POOL;
}

static bool fuse_conv_pool_overlaps(const lk_call *pool)
{
    const lk_pool2d_opts *opts = LK_ATTRS(pool, lk_pool2d_opts);
    return opts->kernel[0] > opts->stride[0] || opts->kernel[1] > opts->stride[1];
}

static bool fuse_conv_find_forward(const lk_rewrite *r, int i, pattern *p)
{
    if (!lk__rewrite_is(r, i, LK_OP_CONV2D))
        return false;
    p->conv = i;
    p->relu = lk__rewrite_only_reader(r, i);
    if (!lk__rewrite_is(r, p->relu, LK_OP_RELU))
        return false;
    /* relu's result goes to the pooling and to relu's own gradient; without pooling, it may go anywhere. */
    enum { MOST = 8 };
    int after[MOST], n = lk__rewrite_readers(r, lk__rewrite_result(r, p->relu), after, MOST);
    p->pool = p->relu_grad = -1;
    for (int k = 0; k < n && k < MOST; k++) {
        if (lk__rewrite_is(r, after[k], LK_OP_RELU_GRAD) && p->relu_grad < 0)
            p->relu_grad = after[k];
        else if (fuse_conv_pool_kind(r, after[k]) != LK_BLOCK_NO_POOL && p->pool < 0 &&
                 !fuse_conv_pool_overlaps(lk__rewrite_call(r, after[k])))
            p->pool = after[k];
    }
    if (p->pool >= 0 && !lk__rewrite_is_between(r, lk__rewrite_result(r, p->relu), (int[]){p->pool, p->relu_grad}, 2))
        p->pool = -1;
    return n <= MOST;
}

/* relu's gradient must be read by the convolution's two gradients alone. */
static bool fuse_conv_find_gradients(const lk_rewrite *r, pattern *p)
{
    const lk_call *conv = lk__rewrite_call(r, p->conv);
    int readers[2], n = lk__rewrite_readers(r, lk__rewrite_result(r, p->relu_grad), readers, 2);
    p->weight_grad = p->input_grad = -1;
    for (int k = 0; k < n && k < 2; k++) {
        const lk_call *call = lk__rewrite_call(r, readers[k]);
        if (lk__rewrite_is(r, readers[k], LK_OP_CONV2D_WEIGHT_GRAD) && call->in[1] == conv->in[0])
            p->weight_grad = readers[k];
        else if (lk__rewrite_is(r, readers[k], LK_OP_CONV2D_INPUT_GRAD) && call->in[1] == conv->in[1])
            p->input_grad = readers[k];
    }
    return p->weight_grad >= 0 &&
           lk__rewrite_is_between(r, lk__rewrite_result(r, p->relu_grad), (int[]){p->weight_grad, p->input_grad}, 2);
}

/* Returns true also if there is no gradient to fuse. Only calls that are fused may read max pooling's indices, since
 * the fused call does not make them. */
static bool fuse_conv_find_backward(const lk_rewrite *r, pattern *p)
{
    p->pool_grad = p->weight_grad = p->input_grad = -1;
    if (p->relu_grad < 0)
        return p->pool < 0 || !lk__rewrite_is(r, p->pool, LK_OP_MAX_POOL2D) ||
               lk__rewrite_is_between(r, lk__rewrite_call(r, p->pool)->out[1], NULL, 0);
    const lk_call *relu_grad = lk__rewrite_call(r, p->relu_grad);
    if (relu_grad->in[1] != lk__rewrite_result(r, p->relu) || !fuse_conv_find_gradients(r, p))
        return false;
    if (p->pool < 0)
        return true;
    bool max = lk__rewrite_is(r, p->pool, LK_OP_MAX_POOL2D);
    p->pool_grad = lk__rewrite_writer(r, relu_grad->in[0]);
    if (!lk__rewrite_is(r, p->pool_grad, max ? LK_OP_MAX_POOL2D_GRAD : LK_OP_AVG_POOL2D_GRAD) ||
        !lk__rewrite_is_between(r, relu_grad->in[0], &p->relu_grad, 1))
        return false;
    return !max || lk__rewrite_is_between(r, lk__rewrite_call(r, p->pool)->out[1], &p->pool_grad, 1);
}

static lk_conv_block_attrs fuse_conv_attributes(const lk_rewrite *r, const pattern *p)
{
    lk_conv_block_attrs attrs = {.conv = *LK_ATTRS(lk__rewrite_call(r, p->conv), lk_conv2d_opts),
                                 .pooling = LK_BLOCK_NO_POOL,
                                 .relu = true,
                                 .input_grad = p->input_grad >= 0};
    if (p->pool >= 0) {
        attrs.pooling = (lk_block_pool)fuse_conv_pool_kind(r, p->pool);
        attrs.pool = *LK_ATTRS(lk__rewrite_call(r, p->pool), lk_pool2d_opts);
    }
    if (p->weight_grad < 0)
        return attrs;
    const lk_call *weight_grad = lk__rewrite_call(r, p->weight_grad);
    attrs.bias = weight_grad->n_out > 1;
    attrs.f32 = LK_ATTRS(weight_grad, lk_conv2d_grad_attrs)->f32;
    return attrs;
}

static lk_call fuse_conv_forward_call(const lk_rewrite *r, const pattern *p, const lk_conv_block_attrs *attrs)
{
    const lk_call *conv = lk__rewrite_call(r, p->conv), *last = lk__rewrite_call(r, p->pool >= 0 ? p->pool : p->relu);
    lk_call call = {.op = &lk__op_conv_block,
                    .place = conv->place,
                    .free_layout = last->free_layout,
                    .n_in = 3,
                    .n_out = 2,
                    .in = {conv->in[0], conv->in[1], conv->in[2]},
                    .out = {last->out[0]}};
    lk__call_set_attrs(&call, attrs, sizeof *attrs);
    return call;
}

static lk_call fuse_conv_backward_call(const lk_rewrite *r, const pattern *p, const lk_conv_block_attrs *attrs,
                                       lk_tensor *saved)
{
    const lk_call *conv = lk__rewrite_call(r, p->conv), *weight_grad = lk__rewrite_call(r, p->weight_grad);
    const lk_call *first = lk__rewrite_call(r, p->pool_grad >= 0 ? p->pool_grad : p->relu_grad);
    lk_call call = {.op = &lk__op_conv_block_grad,
                    .place = conv->place,
                    .free_layout = weight_grad->free_layout,
                    .n_in = 4,
                    .in = {first->in[0], saved, conv->in[0], conv->in[1]}};
    call.out[call.n_out++] = weight_grad->out[0];
    if (attrs->bias)
        call.out[call.n_out++] = weight_grad->out[1];
    if (attrs->input_grad)
        call.out[call.n_out++] = lk__rewrite_result(r, p->input_grad);
    lk__call_set_attrs(&call, attrs, sizeof *attrs);
    return call;
}

static lk_status fuse_conv_try_pattern(lk_rewrite *r, pattern p, bool *fused)
{
    *fused = false;
    if (!fuse_conv_find_backward(r, &p))
        return LK_OK;
    lk_conv_block_attrs attrs = fuse_conv_attributes(r, &p);
    lk_call forward = fuse_conv_forward_call(r, &p, &attrs), backward = {0};
    lk_tensor *saved;
    if (!lk__rewrite_fits(r, &forward))
        return LK_OK;
    LK_TRY(lk__rewrite_output(&forward, 1, &saved));
    forward.out[1] = saved;
    const int gone[] = {p.relu, p.pool}, gone_grads[] = {p.pool_grad, p.relu_grad, p.weight_grad, p.input_grad};
    int first = p.pool_grad >= 0 ? p.pool_grad : p.relu_grad;
    bool fits = lk__rewrite_may_stand(r, p.conv, &forward, gone, 2);
    if (first >= 0) {
        backward = fuse_conv_backward_call(r, &p, &attrs, saved);
        fits = fits && lk__rewrite_fits(r, &backward) && lk__rewrite_may_stand(r, first, &backward, gone_grads, 4);
    }
    if (fits)
        lk__rewrite_replace(r, p.conv, &forward, gone, 2);
    if (fits && first >= 0)
        lk__rewrite_replace(r, first, &backward, gone_grads, 4);
    *fused = fits;
    lk_tensor_release(saved);
    return LK_OK;
}

/* Tries to fuse with the pooling, and if that fails, without it. */
lk_status lk__fuse_conv_block(lk_rewrite *r, int i)
{
    pattern p;
    bool fused;
    if (!fuse_conv_find_forward(r, i, &p))
        return LK_OK;
    LK_TRY(fuse_conv_try_pattern(r, p, &fused));
    if (fused || p.pool < 0)
        return LK_OK;
    p.pool = -1;
    return fuse_conv_try_pattern(r, p, &fused);
}
