#include "base/status.h"
#include "nn/layer.h"
#include "lockstep/ops.h"

/* The defaults of Keras; for leaky_relu darknet's. */
static const double leaky_alpha = 0.2, elu_alpha = 1;

static lk_tensor *activation_layer_relu(lk_tensor *x)
{
    return lk_relu(x);
}

static lk_tensor *activation_layer_leaky_relu(lk_tensor *x)
{
    return lk_leaky_relu(x, leaky_alpha);
}

static lk_tensor *activation_layer_elu(lk_tensor *x)
{
    return lk_elu(x, elu_alpha);
}

static lk_tensor *activation_layer_sigmoid(lk_tensor *x)
{
    return lk_sigmoid(x);
}

static lk_tensor *activation_layer_tanh(lk_tensor *x)
{
    return lk_tanh(x);
}

static lk_tensor *activation_layer_silu(lk_tensor *x)
{
    return lk_silu(x);
}

static lk_tensor *activation_layer_gelu(lk_tensor *x)
{
    return lk_gelu(x);
}

static lk_tensor *activation_layer_softplus(lk_tensor *x)
{
    return lk_softplus(x);
}

static lk_tensor *(*const functions[LK_ACTIVATION_COUNT])(lk_tensor *x) = {
    [LK_RELU] = activation_layer_relu, [LK_LEAKY_RELU] = activation_layer_leaky_relu,
    [LK_ELU] = activation_layer_elu,   [LK_SIGMOID] = activation_layer_sigmoid,
    [LK_TANH] = activation_layer_tanh, [LK_SILU] = activation_layer_silu,
    [LK_GELU] = activation_layer_gelu, [LK_SOFTPLUS] = activation_layer_softplus,
};

static lk_status activation_layer_build(lk_layer_builder *builder, const void *config, lk_shape in, lk_shape *out)
{
    bool simple = *(const lk_activation *)config == LK_RELU;
    *out = in;
    lk_layer_gradient_needs(builder, simple ? LK_NEEDS_OUTPUT : LK_NEEDS_INPUT | LK_NEEDS_OUTPUT, 0);
    lk_layer_flops(builder, (simple ? 1 : 4) * (double)lk__layer_count(in));
    return LK_OK;
}

static lk_tensor *activation_layer_forward(lk_layer_call *call, const void *config, lk_tensor *x)
{
    (void)call;
    return functions[*(const lk_activation *)config](x);
}

static void activation_layer_describe(const void *config, lk_node *node)
{
    node->kind = LK_NODE_ACTIVATION;
    node->activation = *(const lk_activation *)config;
    if (node->activation == LK_LEAKY_RELU)
        node->alpha = leaky_alpha;
    else if (node->activation == LK_ELU)
        node->alpha = elu_alpha;
}

#define ACTIVATION(name)                                                                    \
    {                                                                                       \
        .kind = name, .build = activation_layer_build, .forward = activation_layer_forward, \
        .describe = activation_layer_describe                                               \
    }

static const lk_layer_table tables[LK_ACTIVATION_COUNT] = {
    [LK_RELU] = ACTIVATION("relu"), [LK_LEAKY_RELU] = ACTIVATION("leaky_relu"),
    [LK_ELU] = ACTIVATION("elu"),   [LK_SIGMOID] = ACTIVATION("sigmoid"),
    [LK_TANH] = ACTIVATION("tanh"), [LK_SILU] = ACTIVATION("silu"),
    [LK_GELU] = ACTIVATION("gelu"), [LK_SOFTPLUS] = ACTIVATION("softplus"),
};

lk_layer *lk_layer_activation(lk_activation activation)
{
    if ((unsigned)activation >= LK_ACTIVATION_COUNT) {
        lk__fail(LK_ERR_ARGUMENT, "activation: %d does not exist; there are 0 to %d", (int)activation,
                 LK_ACTIVATION_COUNT - 1);
        return NULL;
    }
    return lk__layer_writes_kind(lk_layer_new(&tables[activation], &activation, sizeof activation, NULL, 0));
}
