/* Pooling over windows and over the whole image. */
#include "base/status.h"
#include "nn/layer.h"
#include "nn/model_build.h"
#include "nn/model_text.h"
#include "lockstep/ops.h"

#include <inttypes.h>

/* --- windows ------------------------------------------------------------------------------------------------------ */

/* Max pooling keeps the index of each window's largest element for backward. */
static const int64_t index_bytes = sizeof(int32_t);

typedef struct pool_config {
    int64_t kernel, stride, padding;
    bool max;
} pool_config;

static lk_status pool_layer_build(lk_layer_builder *builder, const void *config, lk_shape in, lk_shape *out)
{
    const pool_config *c = config;
    LK_TRY(lk__layer_check_ndim(builder, in, 4, "[N, C, H, W]"));
    *out = in;
    LK_TRY(lk__layer_window(builder, "H", in.dim[2], c->kernel, c->stride, c->padding, &out->dim[2]));
    LK_TRY(lk__layer_window(builder, "W", in.dim[3], c->kernel, c->stride, c->padding, &out->dim[3]));
    int64_t count = lk__layer_count(*out);
    lk_layer_flops(builder, (double)count * (double)c->kernel * (double)c->kernel);
    lk_layer_gradient_needs(builder, LK_NEEDS_NOTHING, c->max ? count * index_bytes : 0);
    return LK_OK;
}

static lk_tensor *pool_layer_forward(lk_layer_call *call, const void *config, lk_tensor *x)
{
    (void)call;
    const pool_config *c = config;
    const lk_pool2d_opts opts = {
        .kernel = {c->kernel, c->kernel}, .stride = {c->stride, c->stride}, .padding = {c->padding, c->padding}};
    return c->max ? lk_max_pool2d(x, &opts) : lk_avg_pool2d(x, &opts);
}

static void pool_layer_describe(const void *config, lk_node *node)
{
    const pool_config *c = config;
    node->kind = c->max ? LK_NODE_MAX_POOL : LK_NODE_AVG_POOL;
    node->kernel = c->kernel;
    node->stride = c->stride;
    node->padding = c->padding;
}

static void pool_layer_write(const lk_layer *layer, lk_model_text *out)
{
    const pool_config *c = layer->config;
    lk__model_text_put(out, "%s %" PRId64 " stride=%" PRId64 " padding=%" PRId64, layer->table->kind, c->kernel,
                       c->stride, c->padding);
}

static const lk_layer_table max_pool_table = {
    .kind = "max_pool", .build = pool_layer_build, .forward = pool_layer_forward, .describe = pool_layer_describe};
static const lk_layer_table avg_pool_table = {
    .kind = "avg_pool", .build = pool_layer_build, .forward = pool_layer_forward, .describe = pool_layer_describe};

static lk_layer *pool_layer_new(const lk_layer_table *table, int64_t kernel, const lk_pool_layer_opts *opts)
{
    const pool_config config = {.kernel = kernel,
                                .stride = opts && opts->stride ? opts->stride : kernel,
                                .padding = opts ? opts->padding : 0,
                                .max = table == &max_pool_table};
    if (lk__layer_range(table->kind, "kernel", kernel, 1, LK_LAYER_MAX_KERNEL) != LK_OK ||
        lk__layer_range(table->kind, "stride", config.stride, 1, LK_LAYER_MAX_KERNEL) != LK_OK ||
        lk__layer_range(table->kind, "padding", config.padding, 0, kernel / 2) != LK_OK)
        return NULL;
    return lk__layer_writes(lk_layer_new(table, &config, sizeof config, NULL, 0), pool_layer_write);
}

lk_layer *lk_layer_max_pool(int64_t kernel, const lk_pool_layer_opts *opts)
{
    return pool_layer_new(&max_pool_table, kernel, opts);
}

lk_layer *lk_layer_avg_pool(int64_t kernel, const lk_pool_layer_opts *opts)
{
    return pool_layer_new(&avg_pool_table, kernel, opts);
}

/* --- the whole image ---------------------------------------------------------------------------------------------- */

static lk_status pool_layer_global_build(lk_layer_builder *builder, lk_shape in, lk_shape *out, int64_t bytes)
{
    LK_TRY(lk__layer_check_ndim(builder, in, 4, "[N, C, H, W]"));
    *out = LK_SHAPE(1, in.dim[1]);
    lk_layer_flops(builder, (double)lk__layer_count(in));
    lk_layer_gradient_needs(builder, LK_NEEDS_NOTHING, in.dim[1] * bytes);
    return LK_OK;
}

static lk_status pool_layer_global_max_build(lk_layer_builder *builder, const void *config, lk_shape in, lk_shape *out)
{
    (void)config;
    return pool_layer_global_build(builder, in, out, index_bytes);
}

static lk_status pool_layer_global_avg_build(lk_layer_builder *builder, const void *config, lk_shape in, lk_shape *out)
{
    (void)config;
    return pool_layer_global_build(builder, in, out, 0);
}

static lk_tensor *pool_layer_global_max_forward(lk_layer_call *call, const void *config, lk_tensor *x)
{
    (void)call;
    (void)config;
    return lk_flatten(lk_global_max_pool2d(x));
}

static lk_tensor *pool_layer_global_avg_forward(lk_layer_call *call, const void *config, lk_tensor *x)
{
    (void)call;
    (void)config;
    return lk_flatten(lk_global_avg_pool2d(x));
}

static void pool_layer_global_max_describe(const void *config, lk_node *node)
{
    (void)config;
    node->kind = LK_NODE_GLOBAL_MAX_POOL;
}

static void pool_layer_global_avg_describe(const void *config, lk_node *node)
{
    (void)config;
    node->kind = LK_NODE_GLOBAL_AVG_POOL;
}

static const lk_layer_table global_max_table = {.kind = "global_max_pool",
                                                .build = pool_layer_global_max_build,
                                                .forward = pool_layer_global_max_forward,
                                                .describe = pool_layer_global_max_describe};
static const lk_layer_table global_avg_table = {.kind = "global_avg_pool",
                                                .build = pool_layer_global_avg_build,
                                                .forward = pool_layer_global_avg_forward,
                                                .describe = pool_layer_global_avg_describe};

lk_layer *lk_layer_global_max_pool(void)
{
    return lk__layer_writes_kind(lk_layer_new(&global_max_table, NULL, 0, NULL, 0));
}

lk_layer *lk_layer_global_avg_pool(void)
{
    return lk__layer_writes_kind(lk_layer_new(&global_avg_table, NULL, 0, NULL, 0));
}
