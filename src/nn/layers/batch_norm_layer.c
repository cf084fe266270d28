/* Batch normalization, over each shard or over groups of shards. */
#include "nn/layers/batch_norm_layer.h"
#include "base/mem.h"
#include "base/status.h"
#include "nn/forward.h"
#include "nn/layer.h"
#include "nn/model.h"
#include "nn/model_build.h"
#include "nn/model_text.h"
#include "lockstep/ops.h"

typedef struct batch_norm_config {
    double epsilon, momentum;
} batch_norm_config;

enum { GAMMA, BETA, RUNNING_MEAN, RUNNING_VAR };

static lk_status batch_norm_layer_build(lk_layer_builder *builder, const void *config, lk_shape in, lk_shape *out)
{
    (void)config;
    *out = in;
    const lk_init zeros = {.kind = LK_INIT_ZEROS}, ones = {.kind = LK_INIT_ONES};
    lk_shape channels = LK_SHAPE(in.dim[1]);
    LK_TRY(lk_layer_parameter(builder, "weight", channels, ones, in.dim[1], in.dim[1]));
    LK_TRY(lk_layer_parameter(builder, "bias", channels, zeros, in.dim[1], in.dim[1]));
    LK_TRY(lk_layer_buffer(builder, "running_mean", channels, zeros));
    LK_TRY(lk_layer_buffer(builder, "running_var", channels, ones));
    lk_layer_gradient_needs(builder, LK_NEEDS_INPUT, 0);
    lk_layer_flops(builder, 7 * (double)lk__layer_count(in));
    return lk__layer_statistics(builder, lk__layer_count(in) / in.dim[1]);
}

/* Hands the sums to the caller of the forward pass, if it asked for statistics. The reference outlives the scopes of
 * the layers around this one. */
static void batch_norm_layer_give_sums(const lk_layer_call *call, int shard, lk_tensor *sums)
{
    if (!call->opts->statistics)
        return;
    int64_t row = (int64_t)(call->first + shard) * call->model->statistics.n;
    lk_tensor **slot = &call->opts->statistics[row + call->layer->statistics];
    lk_tensor_release(*slot);
    *slot = lk_tensor_retain(sums);
}

static lk_status batch_norm_layer_each_shard(lk_layer_call *call, const batch_norm_config *c, lk_tensor *const *x,
                                             lk_tensor **y)
{
    for (int s = 0; s < call->n; s++) {
        lk_tensor *sums = NULL;
        y[s] = lk_batch_norm(x[s], lk__layer_master(call, s, GAMMA), lk__layer_master(call, s, BETA), c->epsilon,
                             call->opts->statistics ? &sums : NULL);
        if (!y[s])
            return lk_error_status();
        batch_norm_layer_give_sums(call, s, sums);
    }
    return LK_OK;
}

static lk_status batch_norm_layer_find_sums(const lk_layer_call *call, lk_tensor *const *x, lk_tensor **parts,
                                            lk_tensor **sums)
{
    for (int s = 0; s < call->n; s++) {
        parts[s] = lk_channel_sums(x[s]);
        if (!parts[s])
            return lk_error_status();
        batch_norm_layer_give_sums(call, s, parts[s]);
    }
    return call->opts->sync(call->opts->sync_user, parts, sums, call->n);
}

static lk_status batch_norm_layer_groups(lk_layer_call *call, const batch_norm_config *c, lk_tensor *const *x,
                                         lk_tensor **y)
{
    int n = call->n;
    lk_tensor **parts = lk__calloc(2 * (size_t)n, sizeof(lk_tensor *));
    if (!parts)
        return LK_ERR_MEMORY;
    lk_tensor **sums = parts + n;
    lk_status status = batch_norm_layer_find_sums(call, x, parts, sums);
    for (int s = 0; s < n && status == LK_OK; s++) {
        int64_t count = call->opts->group_samples[call->first + s] * call->layer->samples;
        y[s] = lk_batch_norm_with(x[s], lk__layer_master(call, s, GAMMA), lk__layer_master(call, s, BETA), sums[s],
                                  count, c->epsilon);
        status = y[s] ? LK_OK : lk_error_status();
    }
    lk__free(parts);
    return status;
}

static lk_status batch_norm_layer_inference(lk_layer_call *call, const batch_norm_config *c, lk_tensor *const *x,
                                            lk_tensor **y)
{
    for (int s = 0; s < call->n; s++) {
        y[s] = lk_batch_norm_inference(x[s], lk__layer_master(call, s, GAMMA), lk__layer_master(call, s, BETA),
                                       lk__layer_master(call, s, RUNNING_MEAN), lk__layer_master(call, s, RUNNING_VAR),
                                       c->epsilon);
        if (!y[s])
            return lk_error_status();
    }
    return LK_OK;
}

static lk_status batch_norm_layer_forward(lk_layer_call *call, const void *config, lk_tensor *const *x, lk_tensor **y)
{
    if (!call->opts->training || call->layer->statistics < 0)
        return batch_norm_layer_inference(call, config, x, y);
    return call->opts->sync ? batch_norm_layer_groups(call, config, x, y)
                            : batch_norm_layer_each_shard(call, config, x, y);
}

static void batch_norm_layer_describe(const void *config, lk_node *node)
{
    node->kind = LK_NODE_BATCH_NORM;
    node->epsilon = ((const batch_norm_config *)config)->epsilon;
}

static const lk_layer_table batch_norm_table = {.kind = "batch_norm",
                                                .build = batch_norm_layer_build,
                                                .forward_shards = batch_norm_layer_forward,
                                                .describe = batch_norm_layer_describe};

double lk__batch_norm_running(const lk_layer *layer, int *mean, int *variance)
{
    const batch_norm_config *c = layer->config;
    *mean = layer->variables[RUNNING_MEAN];
    *variance = layer->variables[RUNNING_VAR];
    return c->momentum;
}

lk_status lk__batch_norm_update(const lk_layer *layer, lk_tensor *const *variables, lk_tensor *sums, int64_t samples,
                                double momentum, lk_tensor *skip)
{
    const batch_norm_config *c = layer->config;
    return lk_batch_norm_update(variables[layer->variables[RUNNING_MEAN]], variables[layer->variables[RUNNING_VAR]],
                                sums, samples * layer->samples, momentum != 0 ? momentum : c->momentum, skip);
}

static void batch_norm_layer_write(const lk_layer *layer, lk_model_text *out)
{
    const batch_norm_config *c = layer->config;
    lk__model_text_put(out, "batch_norm");
    lk__model_text_put_real(out, "epsilon", c->epsilon);
    lk__model_text_put_real(out, "momentum", c->momentum);
}

lk_layer *lk_layer_batch_norm(const lk_batch_norm_layer_opts *opts)
{
    const batch_norm_config config = {.epsilon = opts && opts->epsilon != 0 ? opts->epsilon : 1e-5,
                                      .momentum = opts && opts->momentum != 0 ? opts->momentum : 0.1};
    const char *kind = batch_norm_table.kind;
    if (lk__layer_real_range(kind, "epsilon", config.epsilon, LK_LAYER_LEAST_REAL, LK_LAYER_MAX_REAL) != LK_OK ||
        lk__layer_real_range(kind, "momentum", config.momentum, LK_LAYER_LEAST_REAL, 1) != LK_OK)
        return NULL;
    return lk__layer_writes(lk_layer_new(&batch_norm_table, &config, sizeof config, NULL, 0), batch_norm_layer_write);
}
