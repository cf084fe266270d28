/* Group and layer normalization: statistics of one sample, so training and inference are alike. */
#include "base/status.h"
#include "nn/forward.h"
#include "nn/layer.h"
#include "nn/model_text.h"
#include "lockstep/ops.h"

#include <inttypes.h>

enum { GAMMA, BETA };

static lk_status group_norm_layer_build(lk_layer_builder *builder, const void *config, lk_shape in, lk_shape *out)
{
    const lk_group_norm_opts *c = config;
    *out = in;
    if (in.dim[1] % c->groups != 0)
        return lk_layer_fail(builder, LK_ERR_SHAPE, "gets %lld channels; expected a multiple of its %lld groups",
                             (long long)in.dim[1], (long long)c->groups);
    const lk_init zeros = {.kind = LK_INIT_ZEROS}, ones = {.kind = LK_INIT_ONES};
    lk_shape channels = LK_SHAPE(in.dim[1]);
    LK_TRY(lk_layer_parameter(builder, "weight", channels, ones, in.dim[1], in.dim[1]));
    LK_TRY(lk_layer_parameter(builder, "bias", channels, zeros, in.dim[1], in.dim[1]));
    lk_layer_gradient_needs(builder, LK_NEEDS_INPUT, 0);
    lk_layer_flops(builder, 7 * (double)lk__layer_count(in));
    return LK_OK;
}

static lk_tensor *group_norm_layer_forward(lk_layer_call *call, const void *config, lk_tensor *x)
{
    return lk_group_norm(x, lk__layer_master(call, 0, GAMMA), lk__layer_master(call, 0, BETA), config);
}

static void group_norm_layer_describe(const void *config, lk_node *node)
{
    const lk_group_norm_opts *c = config;
    node->kind = LK_NODE_GROUP_NORM;
    node->groups = c->groups;
    node->each_pixel = c->each_pixel;
    node->epsilon = c->epsilon;
}

static void group_norm_layer_write(const lk_layer *layer, lk_model_text *out)
{
    const lk_group_norm_opts *c = layer->config;
    lk__model_text_put(out, "%s", layer->table->kind);
    if (!c->each_pixel)
        lk__model_text_put(out, " %" PRId64, c->groups);
    lk__model_text_put_real(out, "epsilon", c->epsilon);
}

static const lk_layer_table group_norm_table = {.kind = "group_norm",
                                                .build = group_norm_layer_build,
                                                .forward = group_norm_layer_forward,
                                                .describe = group_norm_layer_describe};
static const lk_layer_table layer_norm_table = {.kind = "layer_norm",
                                                .build = group_norm_layer_build,
                                                .forward = group_norm_layer_forward,
                                                .describe = group_norm_layer_describe};

static lk_layer *group_norm_layer_new(const lk_layer_table *table, int64_t groups, const lk_norm_layer_opts *opts)
{
    const lk_group_norm_opts config = {.groups = groups,
                                       .each_pixel = table == &layer_norm_table,
                                       .epsilon = opts && opts->epsilon != 0 ? opts->epsilon : 1e-5};
    if (lk__layer_real_range(table->kind, "epsilon", config.epsilon, LK_LAYER_LEAST_REAL, LK_LAYER_MAX_REAL) != LK_OK ||
        lk__layer_range(table->kind, "number of groups", groups, 1, LK_LAYER_MAX_SIZE) != LK_OK)
        return NULL;
    return lk__layer_writes(lk_layer_new(table, &config, sizeof config, NULL, 0), group_norm_layer_write);
}

lk_layer *lk_layer_group_norm(int64_t groups, const lk_norm_layer_opts *opts)
{
    return group_norm_layer_new(&group_norm_table, groups, opts);
}

lk_layer *lk_layer_layer_norm(const lk_norm_layer_opts *opts)
{
    return group_norm_layer_new(&layer_norm_table, 1, opts);
}
