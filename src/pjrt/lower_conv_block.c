/* conv_block and its gradient, from the parts that it replaces, with nothing rounded in between. `saved` is 1 for the
 * elements of the convolution's result that dy reaches. */
#include "ops/ops.h"
#include "pjrt/lower_ops.h"

#include <string.h>

/* Returns the pooled result, and leaves only the first maximum of each window in *saved. */
static lk_hlo lower_block_max_pool(lk_lowering *l, const lk_geometry *g, lk_hlo conv, lk_hlo *saved)
{
    lk_hlo where, y = lk__hlo_max_pool(l, g, conv, &where), zero = lk__hlo_number(l, y.type, 0);
    lk_hlo ones = lk__hlo_fill(l, lk__hlo_number(l, y.type, 1), y);
    lk_hlo is_maximum = lk__hlo_compare(l, lk__hlo_max_pool_grad(l, g, ones, where), "GT", zero);
    *saved = lk__hlo_and(l, *saved, is_maximum);
    return y;
}

void lk__lower_conv_block(lk_lowering *l, const lk_call *call)
{
    const lk_conv_block_attrs *attrs = LK_ATTRS(call, lk_conv_block_attrs);
    lk_shape shape = call->out[1]->shape;
    lk_hlo x = lk__hlo_read(l, call->in[0]);
    lk_hlo y = lk__hlo_conv2d(l, x, lk__hlo_read(l, call->in[1]), call->in[2], &attrs->conv, shape);
    lk_hlo saved = lk__hlo_fill(l, lk__hlo_number(l, LK_HLO_BOOL, 1), y);
    if (attrs->relu) {
        saved = lk__hlo_compare(l, y, "GT", lk__hlo_number(l, y.type, 0));
        y = lk__hlo_relu(l, y);
    }
    if (attrs->pooling != LK_BLOCK_NO_POOL) {
        lk_geometry g = lk__geometry_of_pool(shape, call->out[0]->shape, &attrs->pool);
        bool is_max = attrs->pooling == LK_BLOCK_MAX_POOL;
        y = is_max ? lower_block_max_pool(l, &g, y, &saved) : lk__hlo_avg_pool(l, &g, y);
    }
    lk__hlo_write(l, call->out[0], y);
    lk__hlo_write(l, call->out[1], saved);
}

/* dy of the convolution: each element that dy reaches gets its window's share. */
static lk_hlo lower_block_dconv(lk_lowering *l, const lk_call *call)
{
    const lk_conv_block_attrs *attrs = LK_ATTRS(call, lk_conv_block_attrs);
    lk_hlo dy = lk__hlo_read_float(l, call->in[0]), saved = lk__hlo_read(l, call->in[1]);
    if (attrs->pooling != LK_BLOCK_NO_POOL) {
        lk_geometry g = lk__geometry_of_pool(call->in[1]->shape, call->in[0]->shape, &attrs->pool);
        dy = attrs->pooling == LK_BLOCK_AVG_POOL ? lk__hlo_pool_shares(l, &g, dy) : dy;
        dy = lk__hlo_pool_spread(l, &g, dy);
    }
    lk_hlo is_reached = lk__hlo_compare(l, saved, "NE", lk__hlo_integer(l, LK_U8, 0));
    return lk__hlo_select(l, is_reached, dy, lk__hlo_number(l, dy.type, 0));
}

void lk__lower_conv_block_grad(lk_lowering *l, const lk_call *call)
{
    const lk_conv_block_attrs *attrs = LK_ATTRS(call, lk_conv_block_attrs);
    lk_hlo dconv = lower_block_dconv(l, call);
    lk_hlo x = lk__hlo_read_float(l, call->in[2]), w = lk__hlo_read_float(l, call->in[3]);
    lk__hlo_write(l, call->out[0], lk__hlo_conv2d_weight_grad(l, dconv, x, &attrs->conv, call->in[3]->shape));
    if (attrs->bias)
        lk__hlo_write(l, call->out[1], lk__hlo_conv2d_bias_grad(l, dconv));
    if (attrs->input_grad)
        lk__hlo_write(l, call->out[1 + attrs->bias],
                      lk__hlo_conv2d_input_grad(l, dconv, w, &attrs->conv, call->in[2]->shape));
}
