/* Pooling over windows and over the whole image. */
#include "base/status.h"
#include "nn/layer.h"
#include "nn/model_build.h"
#include "nn/model_text.h"
#include "lockstep/ops.h"

/* --- windows ------------------------------------------------------------------------------------------------------ */

/* Max pooling keeps the index of each window's largest element for backward. */
static const int64_t index_bytes = sizeof(int32_t);

typedef struct pool_config {
    int64_t kernel[2], stride[2], padding[2]; /* along H and W */
    bool max;
} pool_config;

static lk_status pool_layer_build(lk_layer_builder *builder, const void *config, lk_shape in, lk_shape *out)
{
    const pool_config *c = config;
    LK_TRY(lk__layer_check_ndim(builder, in, 4, "[N, C, H, W]"));
    *out = in;
    for (int i = 0; i < 2; i++)
        LK_TRY(lk__layer_window(builder, i ? "W" : "H", in.dim[2 + i], c->kernel[i], c->stride[i], c->padding[i],
                                &out->dim[2 + i]));
    int64_t count = lk__layer_count(*out);
    lk_layer_flops(builder, (double)count * (double)c->kernel[0] * (double)c->kernel[1]);
    lk_layer_gradient_needs(builder, LK_NEEDS_NOTHING, c->max ? count * index_bytes : 0);
    return LK_OK;
}

static lk_tensor *pool_layer_forward(lk_layer_call *call, const void *config, lk_tensor *x)
{
    (void)call;
    const pool_config *c = config;
    const lk_pool2d_opts opts = {.kernel = {c->kernel[0], c->kernel[1]},
                                 .stride = {c->stride[0], c->stride[1]},
                                 .padding = {c->padding[0], c->padding[1]}};
    return c->max ? lk_max_pool2d(x, &opts) : lk_avg_pool2d(x, &opts);
}

static void pool_layer_describe(const void *config, lk_node *node)
{
    const pool_config *c = config;
    node->kind = c->max ? LK_NODE_MAX_POOL : LK_NODE_AVG_POOL;
    for (int i = 0; i < 2; i++) {
        node->kernel[i] = c->kernel[i];
        node->stride[i] = c->stride[i];
        node->padding[i] = c->padding[i];
    }
}

static void pool_layer_write(const lk_layer *layer, lk_model_text *out)
{
    const pool_config *c = layer->config;
    lk__model_text_put(out, "%s", layer->table->kind);
    lk__model_text_put_pair(out, " ", c->kernel);
    lk__model_text_put_pair(out, " stride=", c->stride);
    lk__model_text_put_pair(out, " padding=", c->padding);
}

static const lk_layer_table max_pool_table = {
    .kind = "max_pool", .build = pool_layer_build, .forward = pool_layer_forward, .describe = pool_layer_describe};
static const lk_layer_table avg_pool_table = {
    .kind = "avg_pool", .build = pool_layer_build, .forward = pool_layer_forward, .describe = pool_layer_describe};

static lk_layer *pool_layer_new(const lk_layer_table *table, int64_t kernel, const lk_pool_layer_opts *opts)
{
    const lk_pool_layer_opts defaults = {0};
    const lk_pool_layer_opts *o = opts ? opts : &defaults;
    bool two = o->rectangular;
    pool_config config = {.kernel = {kernel, two ? o->kernel_width : kernel},
                          .stride = {o->stride, two ? o->stride_width : o->stride},
                          .padding = {o->padding, two ? o->padding_width : o->padding},
                          .max = table == &max_pool_table};
    for (int i = 0; i < 2; i++) {
        config.stride[i] = config.stride[i] ? config.stride[i] : config.kernel[i];
        if (lk__layer_range(table->kind, "kernel", config.kernel[i], 1, LK_LAYER_MAX_KERNEL) != LK_OK ||
            lk__layer_range(table->kind, "stride", config.stride[i], 1, LK_LAYER_MAX_KERNEL) != LK_OK ||
            lk__layer_range(table->kind, "padding", config.padding[i], 0, config.kernel[i] / 2) != LK_OK)
            return NULL;
    }
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
