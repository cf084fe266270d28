/* A trained factor for each channel: layer scale. */
#include "base/status.h"
#include "nn/forward.h"
#include "nn/init.h"
#include "nn/layer.h"
#include "nn/model_text.h"
#include "lockstep/ops.h"

static lk_status scale_layer_build(lk_layer_builder *builder, const void *config, lk_shape in, lk_shape *out)
{
    const lk_init initial = {.kind = LK_INIT_CONSTANT, .value = *(const double *)config};
    *out = in;
    LK_TRY(lk_layer_parameter(builder, "weight", LK_SHAPE(in.dim[1]), initial, in.dim[1], in.dim[1]));
    lk_layer_gradient_needs(builder, LK_NEEDS_INPUT, 0);
    lk_layer_flops(builder, (double)lk__layer_count(in));
    return LK_OK;
}

static lk_tensor *scale_layer_forward(lk_layer_call *call, const void *config, lk_tensor *x)
{
    (void)config;
    lk_tensor *factors = lk_layer_call_variable(call, 0, 0);
    if (!x || !factors)
        return NULL;
    lk_shape shape = lk_tensor_shape(x);
    for (int i = 0; i < shape.ndim; i++)
        shape.dim[i] = i == 1 ? shape.dim[i] : 1;
    return lk_mul(x, lk_reshape(factors, shape));
}

static void scale_layer_describe(const void *config, lk_node *node)
{
    (void)config;
    node->kind = LK_NODE_SCALE;
}

static void scale_layer_write(const lk_layer *layer, lk_model_text *out)
{
    lk__model_text_put(out, "%s", layer->table->kind);
    lk__model_text_put_real(out, "initial", *(const double *)layer->config);
}

static const lk_layer_table scale_table = {
    .kind = "scale", .build = scale_layer_build, .forward = scale_layer_forward, .describe = scale_layer_describe};

lk_layer *lk_layer_scale(double initial)
{
    if (lk__init_check(scale_table.kind, "weight", (lk_init){.kind = LK_INIT_CONSTANT, .value = initial}) != LK_OK)
        return NULL;
    return lk__layer_writes(lk_layer_new(&scale_table, &initial, sizeof initial, NULL, 0), scale_layer_write);
}
