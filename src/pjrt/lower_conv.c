/* Products of matrices, and convolutions with their gradients. */
#include "ops/geometry.h"
#include "ops/ops.h"
#include "pjrt/lower_ops.h"

#include <string.h>

/* --- matrices ----------------------------------------------------------------------------------------------------- */

void lk__lower_matmul(lk_lowering *l, const lk_call *call)
{
    lk_hlo a = lk__hlo_read(l, call->in[0]);
    lk__hlo_write(l, call->out[0], lk__hlo_dot(l, a, lk__hlo_read(l, call->in[1])));
}

void lk__lower_dense_act(lk_lowering *l, const lk_call *call)
{
    lk_hlo x = lk__hlo_read(l, call->in[0]);
    lk_hlo y = lk__hlo_dot(l, x, lk__hlo_read(l, call->in[1]));
    if (call->in[2])
        y = lk__hlo_add(l, y, lk__hlo_read_float(l, call->in[2]));
    if (LK_ATTRS(call, lk_dense_act_attrs)->relu)
        y = lk__hlo_relu(l, y);
    lk__hlo_write(l, call->out[0], y);
}

/* --- convolutions ------------------------------------------------------------------------------------------------- */

/* bias [C], to be added to images [N, C, H, W]. */
static lk_hlo lower_conv_bias(lk_lowering *l, const lk_tensor *bias)
{
    return lk__hlo_reshape(l, lk__hlo_read_float(l, bias), 3, (int64_t[]){bias->shape.dim[0], 1, 1});
}

lk_hlo lk__hlo_conv2d(lk_lowering *l, lk_hlo x, lk_hlo w, const lk_tensor *bias, const lk_conv2d_opts *opts, lk_shape y)
{
    lk_hlo_conv conv = {.numbers = "[b, f, 0, 1]x[o, i, 0, 1]->[b, f, 0, 1]",
                        .x_dilation = {1, 1},
                        .feature_groups = opts->groups,
                        .batch_groups = 1};
    memcpy(conv.size, y.dim, sizeof conv.size);
    for (int i = 0; i < 2; i++) {
        conv.stride[i] = opts->stride[i];
        conv.low[i] = conv.high[i] = opts->padding[i];
        conv.w_dilation[i] = opts->dilation[i];
    }
    lk_hlo sum = lk__hlo_convolution(l, x, w, &conv);
    return bias ? lk__hlo_add(l, sum, lower_conv_bias(l, bias)) : sum;
}

void lk__lower_conv2d(lk_lowering *l, const lk_call *call)
{
    lk_hlo x = lk__hlo_read(l, call->in[0]), w = lk__hlo_read(l, call->in[1]);
    lk_hlo y = lk__hlo_conv2d(l, x, w, call->in[2], LK_ATTRS(call, lk_conv2d_opts), call->out[0]->shape);
    lk__hlo_write(l, call->out[0], y);
}

/* The groups of w [O, I, KH, KW] change sides: [O / groups, groups I, KH, KW]. */
static lk_hlo lower_conv_exchange_groups(lk_lowering *l, lk_hlo w, int64_t groups)
{
    int64_t o = w.size[0] / groups, i = w.size[1], kh = w.size[2], kw = w.size[3];
    if (groups == 1)
        return w;
    w = lk__hlo_reshape(l, w, 5, (int64_t[]){groups, o, i, kh, kw});
    w = lk__hlo_transpose(l, w, (int[]){1, 0, 2, 3, 4});
    return lk__hlo_reshape(l, w, 4, (int64_t[]){o, groups * i, kh, kw});
}

/* dx is the convolution of dy, spread by the stride, with the reversed w. */
lk_hlo lk__hlo_conv2d_input_grad(lk_lowering *l, lk_hlo dy, lk_hlo w, const lk_conv2d_opts *opts, lk_shape x)
{
    lk_hlo_conv conv = {.numbers = "[b, f, 0, 1]x[i, o, 0, 1]->[b, f, 0, 1]",
                        .stride = {1, 1},
                        .feature_groups = opts->groups,
                        .batch_groups = 1};
    memcpy(conv.size, x.dim, sizeof conv.size);
    for (int i = 0; i < 2; i++) {
        int64_t reach = opts->dilation[i] * (w.size[2 + i] - 1), spread = (dy.size[2 + i] - 1) * opts->stride[i] + 1;
        conv.low[i] = reach - opts->padding[i];
        conv.high[i] = x.dim[2 + i] + reach - conv.low[i] - spread;
        conv.x_dilation[i] = opts->stride[i];
        conv.w_dilation[i] = opts->dilation[i];
    }
    w = lk__hlo_reverse(l, lk__hlo_reverse(l, w, 2), 3); /* as XLA's fast convolutions on processors need it */
    return lk__hlo_convolution(l, dy, lower_conv_exchange_groups(l, w, opts->groups), &conv);
}

/* How far windows reach beyond x at an axis' end, which is negative if they leave a rest. */
static int64_t lower_conv_high(const lk_conv2d_opts *opts, int axis, int64_t taps, int64_t out, int64_t in)
{
    return opts->dilation[axis] * (taps - 1) + (out - 1) * opts->stride[axis] + 1 - in - opts->padding[axis];
}

/* The elements of x that the weight at `tap` meets, images of dy's height and width. */
static lk_hlo lower_conv_tap(lk_lowering *l, lk_hlo padded, lk_hlo dy, const lk_conv2d_opts *opts, const int64_t *tap)
{
    int64_t begin[4] = {0}, end[4] = {padded.size[0], padded.size[1]}, step[4] = {1, 1};
    for (int i = 0; i < 2; i++) {
        begin[2 + i] = tap[i] * opts->dilation[i];
        end[2 + i] = begin[2 + i] + (dy.size[2 + i] - 1) * opts->stride[i] + 1;
        step[2 + i] = opts->stride[i];
    }
    return lk__hlo_slice(l, padded, begin, end, step);
}

/* Images [N, C, H, W] as a matrix [C, N H W]. */
static lk_hlo lower_conv_rows(lk_lowering *l, lk_hlo x)
{
    x = lk__hlo_transpose(l, x, (int[]){1, 0, 2, 3});
    return lk__hlo_reshape(l, x, 2, (int64_t[]){x.size[0], x.size[1] * x.size[2] * x.size[3]});
}

enum {
    FEW_CHANNELS = 8, /* fewer input channels are too few for XLA's convolutions */
    MAX_TAPS = 64,
};

/* dw as a product of matrices, dy and the elements of x that each weight meets. A convolution of few images, as which
 * the channels count, took libtpu minutes to compile. */
static lk_hlo lower_conv_weight_grad_by_taps(lk_lowering *l, lk_hlo dy, lk_hlo x, const lk_conv2d_opts *opts,
                                             lk_shape w)
{
    int64_t low[4] = {0}, high[4] = {0}, n_taps = w.dim[2] * w.dim[3];
    lk_hlo taps[MAX_TAPS];
    for (int i = 0; i < 2; i++) {
        low[2 + i] = opts->padding[i];
        high[2 + i] = lower_conv_high(opts, i, w.dim[2 + i], dy.size[2 + i], x.size[2 + i]);
    }
    x = lk__hlo_pad(l, x, lk__hlo_number(l, x.type, 0), low, high, (int64_t[4]){0});
    for (int64_t i = 0; i < n_taps; i++)
        taps[i] = lower_conv_tap(l, x, dy, opts, (int64_t[]){i / w.dim[3], i % w.dim[3]});
    lk_hlo met = lower_conv_rows(l, lk__hlo_concat(l, taps, (int)n_taps, 1));
    lk_hlo dw = lk__hlo_dot(l, lower_conv_rows(l, dy), lk__hlo_transpose(l, met, (int[]){1, 0}));
    dw = lk__hlo_reshape(l, dw, 3, (int64_t[]){w.dim[0], n_taps, w.dim[1]});
    return lk__hlo_reshape(l, lk__hlo_transpose(l, dw, (int[]){0, 2, 1}), 4, w.dim);
}

/* dw is the convolution of x with dy, spread by the stride, where channels count as images and images as channels. */
lk_hlo lk__hlo_conv2d_weight_grad(lk_lowering *l, lk_hlo dy, lk_hlo x, const lk_conv2d_opts *opts, lk_shape w)
{
    lk_hlo_conv conv = {.numbers = "[f, b, 0, 1]x[i, o, 0, 1]->[f, b, 0, 1]",
                        .x_dilation = {1, 1},
                        .feature_groups = 1,
                        .batch_groups = opts->groups};
    if (opts->groups == 1 && w.dim[1] < FEW_CHANNELS && w.dim[2] * w.dim[3] <= MAX_TAPS)
        return lower_conv_weight_grad_by_taps(l, dy, x, opts, w);
    memcpy(conv.size, w.dim, sizeof conv.size);
    for (int i = 0; i < 2; i++) {
        conv.stride[i] = opts->dilation[i];
        conv.low[i] = opts->padding[i];
        conv.high[i] = lower_conv_high(opts, i, w.dim[2 + i], dy.size[2 + i], x.size[2 + i]);
        conv.w_dilation[i] = opts->stride[i];
    }
    return lk__hlo_convolution(l, x, dy, &conv);
}

lk_hlo lk__hlo_conv2d_bias_grad(lk_lowering *l, lk_hlo dy)
{
    return lk__hlo_reduce(l, "add", dy, 1u << 0 | 1u << 2 | 1u << 3);
}

void lk__lower_conv2d_input_grad(lk_lowering *l, const lk_call *call)
{
    lk_hlo dy = lk__hlo_read(l, call->in[0]), w = lk__hlo_read(l, call->in[1]);
    const lk_conv2d_grad_attrs *attrs = LK_ATTRS(call, lk_conv2d_grad_attrs);
    lk__hlo_write(l, call->out[0], lk__hlo_conv2d_input_grad(l, dy, w, &attrs->conv, call->out[0]->shape));
}

void lk__lower_conv2d_weight_grad(lk_lowering *l, const lk_call *call)
{
    lk_hlo dy = lk__hlo_read(l, call->in[0]), x = lk__hlo_read(l, call->in[1]);
    const lk_conv2d_grad_attrs *attrs = LK_ATTRS(call, lk_conv2d_grad_attrs);
    lk__hlo_write(l, call->out[0], lk__hlo_conv2d_weight_grad(l, dy, x, &attrs->conv, call->out[0]->shape));
    if (attrs->bias)
        lk__hlo_write(l, call->out[1],
                      lk__hlo_conv2d_bias_grad(l, lk__hlo_convert(l, dy, lk__hlo_compute_type(call->in[0]->dtype))));
}
