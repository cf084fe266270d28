#include "base/status.h"
#include "nn/init.h"
#include "nn/layer.h"
#include "nn/model_build.h"
#include "nn/model_text.h"
#include "lockstep/ops.h"

#include <inttypes.h>

typedef struct dense_config {
    int64_t units;
    bool bias;
    lk_init weight_init, bias_init;
} dense_config;

static lk_status dense_layer_build(lk_layer_builder *builder, const void *config, lk_shape in, lk_shape *out)
{
    const dense_config *c = config;
    LK_TRY(lk__layer_check_ndim(builder, in, 2, "[N, K]"));
    int64_t k = in.dim[1];
    *out = LK_SHAPE(1, c->units);
    LK_TRY(lk_layer_parameter(builder, "weight", LK_SHAPE(k, c->units), c->weight_init, k, c->units));
    if (c->bias)
        LK_TRY(lk_layer_parameter(builder, "bias", LK_SHAPE(c->units), c->bias_init, k, c->units));
    lk_layer_flops(builder, 2 * (double)k * (double)c->units + (c->bias ? (double)c->units : 0));
    lk_layer_gradient_needs(builder, LK_NEEDS_INPUT, 0);
    return LK_OK;
}

static lk_tensor *dense_layer_forward(lk_layer_call *call, const void *config, lk_tensor *x)
{
    const dense_config *c = config;
    lk_tensor *y = lk_matmul(x, lk_layer_call_variable(call, 0, 0));
    return c->bias ? lk_add(y, lk_layer_call_variable(call, 0, 1)) : y;
}

static void dense_layer_describe(const void *config, lk_node *node)
{
    (void)config;
    node->kind = LK_NODE_DENSE;
}

static void dense_layer_write(const lk_layer *layer, lk_model_text *out)
{
    const dense_config *c = layer->config;
    lk__model_text_put(out, "dense %" PRId64 " bias=%s", c->units, c->bias ? "yes" : "no");
    lk__model_text_put_init(out, "init", c->weight_init);
    lk__model_text_put_init(out, "bias_init", c->bias_init);
}

static const lk_layer_table dense_table = {
    .kind = "dense", .build = dense_layer_build, .forward = dense_layer_forward, .describe = dense_layer_describe};

lk_layer *lk_layer_dense(int64_t units, const lk_dense_layer_opts *opts)
{
    const lk_dense_layer_opts defaults = {0};
    const lk_dense_layer_opts *o = opts ? opts : &defaults;
    const dense_config config = {.units = units,
                                 .bias = !o->no_bias,
                                 .weight_init = lk__init_or(o->weight, LK_INIT_GLOROT_UNIFORM),
                                 .bias_init = lk__init_or(o->bias, LK_INIT_ZEROS)};
    if (lk__layer_range("dense", "number of units", units, 1, LK_LAYER_MAX_SIZE) != LK_OK ||
        lk__init_check("dense", "weight", config.weight_init) != LK_OK ||
        lk__init_check("dense", "bias", config.bias_init) != LK_OK)
        return NULL;
    return lk__layer_writes(lk_layer_new(&dense_table, &config, sizeof config, NULL, 0), dense_layer_write);
}
