/* Flatten and reshape: views. */
#include "core/shape.h"
#include "nn/layer.h"
#include "nn/model_text.h"
#include "lockstep/ops.h"

#include <inttypes.h>

static lk_status flatten_layer_build(lk_layer_builder *builder, const void *config, lk_shape in, lk_shape *out)
{
    (void)config;
    *out = LK_SHAPE(1, lk__layer_count(in));
    lk_layer_gradient_needs(builder, LK_MAKES_VIEW, 0);
    return LK_OK;
}

static lk_tensor *flatten_layer_forward(lk_layer_call *call, const void *config, lk_tensor *x)
{
    (void)call;
    (void)config;
    return lk_flatten(x);
}

static void reshape_layer_describe(const void *config, lk_node *node)
{
    (void)config;
    node->kind = LK_NODE_RESHAPE;
}

static const lk_layer_table flatten_table = {.kind = "flatten",
                                             .build = flatten_layer_build,
                                             .forward = flatten_layer_forward,
                                             .describe = reshape_layer_describe};

lk_layer *lk_layer_flatten(void)
{
    return lk__layer_writes_kind(lk_layer_new(&flatten_table, NULL, 0, NULL, 0));
}

typedef struct reshape_config {
    int64_t channels, height, width;
} reshape_config;

static lk_status reshape_layer_build(lk_layer_builder *builder, const void *config, lk_shape in, lk_shape *out)
{
    const reshape_config *c = config;
    *out = LK_SHAPE(1, c->channels, c->height, c->width);
    if ((double)c->channels * (double)c->height * (double)c->width != (double)lk__layer_count(in))
        return lk_layer_fail(builder, LK_ERR_SHAPE,
                             "gets %s, %lld elements a sample; expected as many as [N,%lld,%lld,%lld] has",
                             lk__text(in).string, (long long)lk__layer_count(in), (long long)c->channels,
                             (long long)c->height, (long long)c->width);
    lk_layer_gradient_needs(builder, LK_MAKES_VIEW, 0);
    return LK_OK;
}

static lk_tensor *reshape_layer_forward(lk_layer_call *call, const void *config, lk_tensor *x)
{
    (void)call;
    const reshape_config *c = config;
    return x ? lk_reshape(x, LK_SHAPE(lk_tensor_shape(x).dim[0], c->channels, c->height, c->width)) : NULL;
}

static void reshape_layer_write(const lk_layer *layer, lk_model_text *out)
{
    const reshape_config *c = layer->config;
    lk__model_text_put(out, "reshape channels=%" PRId64 " height=%" PRId64 " width=%" PRId64, c->channels, c->height,
                       c->width);
}

static const lk_layer_table reshape_table = {.kind = "reshape",
                                             .build = reshape_layer_build,
                                             .forward = reshape_layer_forward,
                                             .describe = reshape_layer_describe};

lk_layer *lk_layer_reshape(int64_t channels, int64_t height, int64_t width)
{
    const reshape_config config = {channels, height, width};
    if (lk__layer_range("reshape", "number of channels", channels, 1, LK_LAYER_MAX_SIZE) != LK_OK ||
        lk__layer_range("reshape", "height", height, 1, LK_LAYER_MAX_SIZE) != LK_OK ||
        lk__layer_range("reshape", "width", width, 1, LK_LAYER_MAX_SIZE) != LK_OK)
        return NULL;
    return lk__layer_writes(lk_layer_new(&reshape_table, &config, sizeof config, NULL, 0), reshape_layer_write);
}
