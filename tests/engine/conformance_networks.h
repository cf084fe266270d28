/* Cases of convolution, pooling and relu. */
#pragma once

#include "conformance_tensors.h"
#include "ops/conv_block.h"

/* --- convolution ------------------------------------------------------------------------------------------------- */

typedef struct conv_parameters {
    int64_t n, c, h, w, o, kh, kw;
    lk_conv2d_opts opts;
    bool bias;
} conv_parameters;

static inline lk_conv2d_opts conv_opts(const conv_parameters *p)
{
    lk_conv2d_opts opts = p->opts;
    for (int i = 0; i < 2; i++) {
        opts.stride[i] = opts.stride[i] ? opts.stride[i] : 1;
        opts.dilation[i] = opts.dilation[i] ? opts.dilation[i] : 1;
    }
    opts.groups = opts.groups ? opts.groups : 1;
    return opts;
}

static inline lk_shape conv_weight_shape(const conv_parameters *p)
{
    return LK_SHAPE(p->o, p->c / conv_opts(p).groups, p->kh, p->kw);
}

static inline int64_t window_count(int64_t size, int64_t kernel, int64_t stride, int64_t padding, int64_t dilation)
{
    return (size + 2 * padding - dilation * (kernel - 1) - 1) / stride + 1;
}

static inline lk_shape conv_output_shape(const conv_parameters *p)
{
    lk_conv2d_opts o = conv_opts(p);
    return LK_SHAPE(p->n, p->o, window_count(p->h, p->kh, o.stride[0], o.padding[0], o.dilation[0]),
                    window_count(p->w, p->kw, o.stride[1], o.padding[1], o.dilation[1]));
}

static inline lk_tensor *conv2d_case(trial *t, const void *parameters)
{
    const conv_parameters *p = parameters;
    t->scale = SCALE_ABSOLUTE;
    t->terms = count_of(conv_weight_shape(p)) / p->o + 1;
    lk_tensor *x = floats(t, LK_SHAPE(p->n, p->c, p->h, p->w));
    lk_tensor *w = floats(t, conv_weight_shape(p));
    return lk_conv2d(x, w, p->bias ? floats(t, LK_SHAPE(p->o)) : NULL, &p->opts);
}

static inline lk_tensor *conv2d_input_grad_case(trial *t, const void *parameters)
{
    const conv_parameters *p = parameters;
    lk_conv2d_grad_attrs attrs = {.conv = conv_opts(p), .size = {p->n, p->c, p->h, p->w}};
    t->scale = SCALE_ABSOLUTE;
    t->terms = p->o * p->kh * p->kw;
    lk_tensor *dy = floats(t, conv_output_shape(p));
    lk_tensor *w = floats(t, conv_weight_shape(p));
    return call_op(&lk__op_conv2d_input_grad, (lk_tensor *[]){dy, w}, 2, 1, &attrs, sizeof attrs, NULL);
}

/* The gradients of weights and bias, concatenated. */
static inline lk_tensor *conv_parameter_gradients(trial *t, const conv_parameters *p, bool f32)
{
    lk_shape size = conv_weight_shape(p), out = conv_output_shape(p);
    lk_conv2d_grad_attrs attrs = {.conv = conv_opts(p), .bias = p->bias, .f32 = f32};
    memcpy(attrs.size, size.dim, sizeof attrs.size);
    t->scale = SCALE_ABSOLUTE;
    t->terms = p->n * out.dim[2] * out.dim[3];
    lk_tensor *dy = floats(t, out), *dbias = NULL;
    lk_tensor *x = floats(t, LK_SHAPE(p->n, p->c, p->h, p->w));
    lk_tensor *dw =
        call_op(&lk__op_conv2d_weight_grad, (lk_tensor *[]){dy, x}, 2, p->bias ? 2 : 1, &attrs, sizeof attrs, &dbias);
    if (!dw || !p->bias)
        return dw;
    return lk_concat((lk_tensor *[]){lk_reshape(dw, LK_SHAPE(-1)), dbias}, 2, 0);
}

static inline lk_tensor *conv2d_weight_grad_case(trial *t, const void *parameters)
{
    return conv_parameter_gradients(t, parameters, false);
}

static inline lk_tensor *conv2d_weight_grad_f32_case(trial *t, const void *parameters)
{
    return conv_parameter_gradients(t, parameters, true);
}

typedef struct chain_parameters {
    int64_t batch, size, channels[2], kernel[2];
} chain_parameters;

/* The features after two convolutions, each followed by 2x2 pooling. */
static inline int64_t chain_features(const chain_parameters *p)
{
    int64_t size = ((p->size - p->kernel[0] + 1) / 2 - p->kernel[1] + 1) / 2;
    return p->channels[1] * size * size;
}

/* Private layouts pass from operator to operator. */
static inline lk_tensor *chain_case(trial *t, const void *parameters)
{
    const chain_parameters *p = parameters;
    int64_t c0 = p->channels[0], c1 = p->channels[1], k0 = p->kernel[0], k1 = p->kernel[1];
    t->scale = SCALE_ABSOLUTE;
    t->terms = k0 * k0 + c0 * k1 * k1 + chain_features(p) + 7;
    t->roundings = 6;
    lk_tensor *x = floats(t, LK_SHAPE(p->batch, 1, p->size, p->size));
    lk_tensor *y = lk_conv2d(x, floats(t, LK_SHAPE(c0, 1, k0, k0)), floats(t, LK_SHAPE(c0)), NULL);
    y = lk_max_pool2d(lk_relu(y), &(lk_pool2d_opts){.kernel = {2, 2}});
    y = lk_conv2d(y, floats(t, LK_SHAPE(c1, c0, k1, k1)), floats(t, LK_SHAPE(c1)), NULL);
    y = lk_avg_pool2d(lk_relu(y), &(lk_pool2d_opts){.kernel = {2, 2}});
    y = lk_matmul(lk_flatten(y), floats(t, LK_SHAPE(chain_features(p), 10)));
    return lk_add(y, floats(t, LK_SHAPE(10)));
}

typedef struct residual_parameters {
    int64_t batch, channels;
} residual_parameters;

/* A residual block: two operators and views use one private layout. */
static inline lk_tensor *residual_case(trial *t, const void *parameters)
{
    const residual_parameters *p = parameters;
    t->scale = SCALE_ABSOLUTE;
    t->terms = 2 * (16 * 9 + 1) + 8;
    t->roundings = 6;
    lk_conv2d_opts same = {.padding = {1, 1}};
    lk_tensor *x = floats(t, LK_SHAPE(p->batch, p->channels, 9, 7));
    lk_tensor *w = floats(t, LK_SHAPE(p->channels, p->channels, 3, 3));
    lk_tensor *y = lk_relu(lk_conv2d(x, w, NULL, &same));
    lk_tensor *z = lk_add(lk_conv2d(y, w, NULL, &same), y);
    lk_tensor *part = lk_add(lk_slice(z, 1, 3, 8), lk_slice(y, 1, 0, 5));
    return lk_add(part, lk_global_avg_pool2d(lk_slice(z, 1, 0, 5)));
}

/* --- pooling ----------------------------------------------------------------------------------------------------- */

typedef struct pool_parameters {
    int64_t n, c, h, w;
    lk_pool2d_opts opts; /* kernel 0: global */
} pool_parameters;

static inline lk_pool2d_opts pool_opts(const pool_parameters *p)
{
    lk_pool2d_opts opts = p->opts;
    if (!opts.kernel[0])
        opts.kernel[0] = p->h, opts.kernel[1] = p->w;
    for (int i = 0; i < 2; i++)
        opts.stride[i] = opts.stride[i] ? opts.stride[i] : opts.kernel[i];
    return opts;
}

static inline lk_shape pool_output_shape(const pool_parameters *p)
{
    lk_pool2d_opts o = pool_opts(p);
    return LK_SHAPE(p->n, p->c, window_count(p->h, o.kernel[0], o.stride[0], o.padding[0], 1),
                    window_count(p->w, o.kernel[1], o.stride[1], o.padding[1], 1));
}

static inline lk_tensor *max_pool2d_case(trial *t, const void *parameters)
{
    const pool_parameters *p = parameters;
    lk_tensor *x = floats(t, LK_SHAPE(p->n, p->c, p->h, p->w));
    return p->opts.kernel[0] ? lk_max_pool2d(x, &p->opts) : lk_global_max_pool2d(x);
}

/* NaN, infinities and equal numbers below rows of -infinity, which fill the first row's windows. The average pooling
 * before gives x the layout of pooling. */
static inline lk_tensor *pooled_specials(trial *t, const pool_parameters *p, lk_tensor **where)
{
    lk_pool2d_opts opts = pool_opts(p), one = {.kernel = {1, 1}, .stride = {1, 1}};
    lk_tensor *x = specials(t, LK_SHAPE(p->n, p->c, p->h, p->w));
    lk_tensor *lowest = lk_full(t->device, t->dtype, LK_SHAPE(p->n, p->c, opts.kernel[0], p->w), -INFINITY);
    x = lk_avg_pool2d(lk_concat((lk_tensor *[]){lowest, x}, 2, 2), &one);
    return call_op(&lk__op_max_pool2d, &x, 1, 2, &opts, sizeof opts, where);
}

static inline lk_tensor *max_pool2d_specials_case(trial *t, const void *parameters)
{
    return pooled_specials(t, parameters, NULL);
}

static inline lk_tensor *max_pool2d_where_case(trial *t, const void *parameters)
{
    lk_tensor *where = NULL;
    return pooled_specials(t, parameters, &where) ? where : NULL;
}

/* Half of x is 0, as after a relu. The first of equal maxima gets the gradient. */
static inline lk_tensor *max_pool2d_grad_case(trial *t, const void *parameters)
{
    const pool_parameters *p = parameters;
    lk_pool2d_opts opts = pool_opts(p);
    lk_pool2d_grad_attrs attrs = {.pool = opts, .height = p->h, .width = p->w};
    t->scale = SCALE_ONE;
    t->terms = opts.kernel[0] * opts.kernel[1] * opts.kernel[0] * opts.kernel[1];
    lk_tensor *x = lk_relu(floats(t, LK_SHAPE(p->n, p->c, p->h, p->w))), *where = NULL;
    lk_tensor *dy = floats(t, pool_output_shape(p));
    if (!call_op(&lk__op_max_pool2d, &x, 1, 2, &opts, sizeof opts, &where))
        return NULL;
    return call_op(&lk__op_max_pool2d_grad, (lk_tensor *[]){dy, where}, 2, 1, &attrs, sizeof attrs, NULL);
}

static inline lk_tensor *avg_pool2d_case(trial *t, const void *parameters)
{
    const pool_parameters *p = parameters;
    lk_pool2d_opts opts = pool_opts(p);
    t->scale = SCALE_ABSOLUTE;
    t->terms = opts.kernel[0] * opts.kernel[1];
    lk_tensor *x = floats(t, LK_SHAPE(p->n, p->c, p->h, p->w));
    return p->opts.kernel[0] ? lk_avg_pool2d(x, &p->opts) : lk_global_avg_pool2d(x);
}

static inline lk_tensor *avg_pool2d_grad_case(trial *t, const void *parameters)
{
    const pool_parameters *p = parameters;
    lk_pool2d_opts opts = pool_opts(p);
    lk_pool2d_grad_attrs attrs = {.pool = opts, .height = p->h, .width = p->w};
    t->scale = SCALE_ABSOLUTE;
    t->terms = opts.kernel[0] * opts.kernel[1];
    lk_tensor *dy = floats(t, pool_output_shape(p));
    return call_op(&lk__op_avg_pool2d_grad, &dy, 1, 1, &attrs, sizeof attrs, NULL);
}

/* The gradient, of x's shape, with `gradient`. */
static inline lk_tensor *relu_avg_pool2d(trial *t, const pool_parameters *p, bool gradient)
{
    lk_pool2d_opts opts = pool_opts(p);
    lk_pool2d_grad_attrs attrs = {.pool = opts, .height = p->h, .width = p->w};
    t->scale = SCALE_ABSOLUTE;
    t->terms = opts.kernel[0] * opts.kernel[1];
    lk_tensor *x = floats(t, LK_SHAPE(p->n, p->c, p->h, p->w));
    if (!gradient)
        return call_op(&lk__op_relu_avg_pool2d, &x, 1, 1, &opts, sizeof opts, NULL);
    lk_tensor *dy = floats(t, pool_output_shape(p));
    return call_op(&lk__op_relu_avg_pool2d_grad, (lk_tensor *[]){dy, x}, 2, 1, &attrs, sizeof attrs, NULL);
}

static inline lk_tensor *relu_avg_pool2d_case(trial *t, const void *parameters)
{
    return relu_avg_pool2d(t, parameters, false);
}

static inline lk_tensor *relu_avg_pool2d_grad_case(trial *t, const void *parameters)
{
    return relu_avg_pool2d(t, parameters, true);
}

static inline lk_tensor *relu_max_pool2d(const pool_parameters *p, lk_tensor *x, lk_tensor **where)
{
    lk_pool2d_opts opts = pool_opts(p);
    return call_op(&lk__op_relu_max_pool2d, &x, 1, 2, &opts, sizeof opts, where);
}

static inline lk_tensor *relu_max_pool2d_case(trial *t, const void *parameters)
{
    const pool_parameters *p = parameters;
    return relu_max_pool2d(p, floats(t, LK_SHAPE(p->n, p->c, p->h, p->w)), NULL);
}

static inline lk_tensor *relu_max_pool2d_specials_case(trial *t, const void *parameters)
{
    const pool_parameters *p = parameters;
    return relu_max_pool2d(p, specials(t, LK_SHAPE(p->n, p->c, p->h, p->w)), NULL);
}

static inline lk_tensor *relu_max_pool2d_where_case(trial *t, const void *parameters)
{
    const pool_parameters *p = parameters;
    lk_tensor *where = NULL;
    return relu_max_pool2d(p, specials(t, LK_SHAPE(p->n, p->c, p->h, p->w)), &where) ? where : NULL;
}

static inline lk_tensor *relu_max_pool2d_grad_case(trial *t, const void *parameters)
{
    const pool_parameters *p = parameters;
    lk_pool2d_grad_attrs attrs = {.pool = pool_opts(p), .height = p->h, .width = p->w};
    lk_tensor *x = floats(t, LK_SHAPE(p->n, p->c, p->h, p->w)), *dy = floats(t, pool_output_shape(p)), *where = NULL;
    if (!relu_max_pool2d(p, x, &where))
        return NULL;
    return call_op(&lk__op_relu_max_pool2d_grad, (lk_tensor *[]){dy, where}, 2, 1, &attrs, sizeof attrs, NULL);
}

/* --- relu -------------------------------------------------------------------------------------------------------- */

static inline lk_tensor *relu_case(trial *t, const void *shape)
{
    return lk_relu(floats(t, *(const lk_shape *)shape));
}

static inline lk_tensor *relu_specials_case(trial *t, const void *shape)
{
    return lk_relu(specials(t, *(const lk_shape *)shape));
}

static inline lk_tensor *relu_grad_case(trial *t, const void *shape)
{
    lk_tensor *dy = floats(t, *(const lk_shape *)shape);
    lk_tensor *y = lk_relu(floats(t, *(const lk_shape *)shape));
    return call_op(&lk__op_relu_grad, (lk_tensor *[]){dy, y}, 2, 1, "", 0, NULL);
}

/* --- convolution, relu and pooling as one ------------------------------------------------------------------------ */

typedef struct block_parameters {
    conv_parameters conv;
    lk_block_pool pooling;
    lk_pool2d_opts pool;
    bool relu;
} block_parameters;

static inline lk_conv_block_attrs block_attrs(const block_parameters *p)
{
    lk_conv_block_attrs attrs = {.conv = conv_opts(&p->conv), .pool = p->pool, .pooling = p->pooling, .relu = p->relu};
    for (int i = 0; i < 2; i++)
        attrs.pool.stride[i] = attrs.pool.stride[i] ? attrs.pool.stride[i] : attrs.pool.kernel[i];
    return attrs;
}

static inline lk_tensor *conv_block_case(trial *t, const void *parameters)
{
    const block_parameters *p = parameters;
    const conv_parameters *c = &p->conv;
    lk_conv_block_attrs attrs = block_attrs(p);
    t->scale = SCALE_ABSOLUTE;
    t->terms = count_of(conv_weight_shape(c)) / c->o + 8;
    lk_tensor *x = floats(t, LK_SHAPE(c->n, c->c, c->h, c->w));
    lk_tensor *w = floats(t, conv_weight_shape(c));
    return lk__conv_block(LK_HERE, x, w, c->bias ? floats(t, LK_SHAPE(c->o)) : NULL, &attrs);
}

/* The gradient's results, concatenated. */
static inline lk_tensor *block_gradients(lk_tensor *dy, lk_tensor *saved, lk_tensor *x, lk_tensor *w,
                                         const lk_conv_block_attrs *attrs)
{
    int n = 1 + attrs->bias + attrs->input_grad;
    lk_tensor *flat[3];
    lk_call call = {.op = &lk__op_conv_block_grad, .place = LK_HERE, .n_in = 4, .n_out = n, .in = {dy, saved, x, w}};
    memcpy(call.attrs.bytes, attrs, sizeof *attrs);
    if (!dy || lk__call(&call) != LK_OK)
        return NULL;
    for (int i = 0; i < n; i++)
        flat[i] = lk_reshape(call.out[i], LK_SHAPE(-1));
    return lk_concat(flat, n, 0);
}

/* The saved tensors come from the forward pass on the same device, as with a tape. */
static inline lk_tensor *conv_block_grad_case(trial *t, const void *parameters)
{
    const block_parameters *p = parameters;
    const conv_parameters *c = &p->conv;
    lk_conv_block_attrs attrs = block_attrs(p);
    attrs.bias = attrs.input_grad = c->bias;
    /* Kernels for bf16 round the gradient of the convolution's result, which is exact unless an average divides it. */
    bool average = p->pooling == LK_BLOCK_AVG_POOL;
    t->scale = average ? SCALE_ABSOLUTE : SCALE_ONE;
    t->roundings = average ? 2 : 1;
    t->terms = c->n * c->h * c->w + count_of(conv_weight_shape(c));
    lk_tensor *x = floats(t, LK_SHAPE(c->n, c->c, c->h, c->w));
    lk_tensor *w = floats(t, conv_weight_shape(c)), *bias = floats(t, LK_SHAPE(c->o));
    lk_call call = {.op = &lk__op_conv_block, .place = LK_HERE, .n_in = 3, .n_out = 2, .in = {x, w, bias}};
    memcpy(call.attrs.bytes, &attrs, sizeof attrs);
    if (!x || !w || !bias || lk__call(&call) != LK_OK)
        return NULL;
    lk_tensor *dy = floats(t, lk_tensor_shape(call.out[0]));
    return block_gradients(dy, call.out[1], x, w, &attrs);
}
