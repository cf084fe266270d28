#include "base/status.h"
#include "nn/init.h"
#include "nn/layer.h"
#include "nn/model_build.h"
#include "nn/model_text.h"
#include "lockstep/ops.h"

#include <inttypes.h>

typedef struct conv2d_config {
    int64_t filters, groups;
    int64_t kernel[2], stride[2], padding[2], dilation[2]; /* along H and W */
    bool bias;
    lk_init weight_init, bias_init;
} conv2d_config;

static lk_status conv2d_layer_build(lk_layer_builder *builder, const void *config, lk_shape in, lk_shape *out)
{
    const conv2d_config *c = config;
    LK_TRY(lk__layer_check_ndim(builder, in, 4, "[N, C, H, W]"));
    if (in.dim[1] % c->groups != 0)
        return lk_layer_fail(builder, LK_ERR_SHAPE, "gets %lld channels; expected a multiple of its %lld groups",
                             (long long)in.dim[1], (long long)c->groups);
    int64_t channels = in.dim[1] / c->groups, area = c->kernel[0] * c->kernel[1];
    *out = LK_SHAPE(1, c->filters, 0, 0);
    for (int i = 0; i < 2; i++) {
        int64_t span = c->dilation[i] * (c->kernel[i] - 1) + 1;
        if (c->dilation[i] > 1 && span > in.dim[2 + i] + 2 * c->padding[i])
            return lk_layer_fail(
                builder, LK_ERR_SHAPE,
                "a kernel of %lld with dilation %lld spans %lld pixels, more than %s = %lld with padding "
                "%lld; expected smaller ones, or larger images, as --resize makes them",
                (long long)c->kernel[i], (long long)c->dilation[i], (long long)span, i ? "W" : "H",
                (long long)in.dim[2 + i], (long long)c->padding[i]);
        LK_TRY(lk__layer_window(builder, i ? "W" : "H", in.dim[2 + i], span, c->stride[i], c->padding[i],
                                &out->dim[2 + i]));
    }
    int64_t fan_in = channels * area, fan_out = c->filters * area; /* as in PyTorch and Keras, whatever the groups */
    LK_TRY(lk_layer_parameter(builder, "weight", LK_SHAPE(c->filters, channels, c->kernel[0], c->kernel[1]),
                              c->weight_init, fan_in, fan_out));
    if (c->bias)
        LK_TRY(lk_layer_parameter(builder, "bias", LK_SHAPE(c->filters), c->bias_init, fan_in, fan_out));
    lk_layer_gradient_needs(builder, LK_NEEDS_INPUT, 0);
    double outputs = (double)c->filters * (double)out->dim[2] * (double)out->dim[3];
    lk_layer_flops(builder, 2 * outputs * (double)fan_in);
    return LK_OK;
}

static lk_tensor *conv2d_layer_forward(lk_layer_call *call, const void *config, lk_tensor *x)
{
    const conv2d_config *c = config;
    lk_tensor *weight = lk_layer_call_variable(call, 0, 0);
    lk_tensor *bias = c->bias ? lk_layer_call_variable(call, 0, 1) : NULL;
    const lk_conv2d_opts opts = {.stride = {c->stride[0], c->stride[1]},
                                 .padding = {c->padding[0], c->padding[1]},
                                 .dilation = {c->dilation[0], c->dilation[1]},
                                 .groups = c->groups};
    return lk_conv2d(x, weight, bias, &opts);
}

static void conv2d_layer_describe(const void *config, lk_node *node)
{
    const conv2d_config *c = config;
    node->kind = LK_NODE_CONV2D;
    for (int i = 0; i < 2; i++) {
        node->kernel[i] = c->kernel[i];
        node->stride[i] = c->stride[i];
        node->padding[i] = c->padding[i];
        node->dilation[i] = c->dilation[i];
    }
    node->groups = c->groups;
}

static void conv2d_layer_write(const lk_layer *layer, lk_model_text *out)
{
    const conv2d_config *c = layer->config;
    lk__model_text_put(out, "conv2d %" PRId64, c->filters);
    lk__model_text_put_pair(out, " kernel=", c->kernel);
    lk__model_text_put_pair(out, " stride=", c->stride);
    lk__model_text_put_pair(out, " padding=", c->padding);
    lk__model_text_put(out, " bias=%s", c->bias ? "yes" : "no");
    if (c->dilation[0] > 1 || c->dilation[1] > 1)
        lk__model_text_put_pair(out, " dilation=", c->dilation);
    if (c->groups > 1)
        lk__model_text_put(out, " groups=%" PRId64, c->groups);
    lk__model_text_put_init(out, "init", c->weight_init);
    lk__model_text_put_init(out, "bias_init", c->bias_init);
}

static const lk_layer_table conv2d_table = {
    .kind = "conv2d", .build = conv2d_layer_build, .forward = conv2d_layer_forward, .describe = conv2d_layer_describe};

static lk_status conv2d_layer_check_axis(const conv2d_config *c, int axis, bool same, int64_t padding)
{
    LK_TRY(lk__layer_range("conv2d", "kernel", c->kernel[axis], 1, LK_LAYER_MAX_KERNEL));
    LK_TRY(lk__layer_range("conv2d", "stride", c->stride[axis], 1, LK_LAYER_MAX_KERNEL));
    LK_TRY(lk__layer_range("conv2d", "padding", padding, 0, LK_LAYER_MAX_KERNEL));
    LK_TRY(lk__layer_range("conv2d", "dilation", c->dilation[axis], 1, LK_LAYER_MAX_KERNEL));
    if (same && padding > 0)
        LK_FAIL(LK_ERR_ARGUMENT, "conv2d: padding %lld and same: give one of them", (long long)padding);
    if (same && c->kernel[axis] % 2 == 0)
        LK_FAIL(LK_ERR_ARGUMENT, "conv2d: kernel %lld is even; with same it must be odd", (long long)c->kernel[axis]);
    return LK_OK;
}

static lk_status conv2d_layer_check(const conv2d_config *c, bool same, const int64_t padding[2])
{
    LK_TRY(lk__layer_range("conv2d", "number of filters", c->filters, 1, LK_LAYER_MAX_SIZE));
    LK_TRY(lk__layer_range("conv2d", "number of groups", c->groups, 1, LK_LAYER_MAX_SIZE));
    for (int i = 0; i < 2; i++)
        LK_TRY(conv2d_layer_check_axis(c, i, same, padding[i]));
    if (c->filters % c->groups != 0)
        LK_FAIL(LK_ERR_ARGUMENT, "conv2d: %lld filters; they must be a multiple of the %lld groups",
                (long long)c->filters, (long long)c->groups);
    LK_TRY(lk__init_check("conv2d", "weight", c->weight_init));
    return lk__init_check("conv2d", "bias", c->bias_init);
}

static int64_t conv2d_layer_or_one(int64_t size)
{
    return size ? size : 1;
}

lk_layer *lk_layer_conv2d(int64_t filters, int64_t kernel, const lk_conv2d_layer_opts *opts)
{
    const lk_conv2d_layer_opts defaults = {0};
    const lk_conv2d_layer_opts *o = opts ? opts : &defaults;
    bool two = o->rectangular;
    const int64_t padding[2] = {o->padding, two ? o->padding_width : o->padding};
    conv2d_config config = {
        .filters = filters,
        .groups = conv2d_layer_or_one(o->groups),
        .kernel = {kernel, two ? o->kernel_width : kernel},
        .stride = {conv2d_layer_or_one(o->stride), conv2d_layer_or_one(two ? o->stride_width : o->stride)},
        .dilation = {conv2d_layer_or_one(o->dilation), conv2d_layer_or_one(two ? o->dilation_width : o->dilation)},
        .bias = !o->no_bias,
        .weight_init = lk__init_or(o->weight, LK_INIT_GLOROT_UNIFORM),
        .bias_init = lk__init_or(o->bias, LK_INIT_ZEROS),
    };
    if (conv2d_layer_check(&config, o->same, padding) != LK_OK)
        return NULL;
    for (int i = 0; i < 2; i++)
        config.padding[i] = o->same ? config.dilation[i] * (config.kernel[i] - 1) / 2 : padding[i];
    return lk__layer_writes(lk_layer_new(&conv2d_table, &config, sizeof config, NULL, 0), conv2d_layer_write);
}
