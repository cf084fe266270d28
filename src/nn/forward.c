/* The forward pass: layer by layer, for all shards of a call.
 *
 * A sequential holds a layer's output only until the next layer has used it; a tape keeps what gradients need.
 * Inference therefore holds the activations of two layers, however deep the network is. */
#include "nn/forward.h"
#include "base/mem.h"
#include "base/status.h"
#include "core/scope.h"
#include "core/shape.h"
#include "nn/layers/batch_norm_layer.h"
#include "nn/model.h"

#include <string.h>

/* --- queries of a layer ------------------------------------------------------------------------------------------- */

int lk_layer_call_shards(const lk_layer_call *call)
{
    return call->n;
}

bool lk_layer_call_training(const lk_layer_call *call)
{
    return call->opts->training;
}

lk_tensor *lk__layer_master(const lk_layer_call *call, int shard, int variable)
{
    const lk_layer *layer = call->layer;
    if (shard < 0 || shard >= call->n || variable < 0 || variable >= layer->n_variables) {
        lk__fail(LK_ERR_ARGUMENT, "%s: there is no variable %d of shard %d; it has %d, for %d shards", layer->path,
                 variable, shard, layer->n_variables, call->n);
        return NULL;
    }
    return call->variables[call->first + shard][layer->variables[variable]];
}

lk_tensor *lk_layer_call_variable(const lk_layer_call *call, int shard, int variable)
{
    lk_tensor *master = lk__layer_master(call, shard, variable);
    bool cast =
        master && call->opts->dtype != LK_F32 && !call->model->variables[call->layer->variables[variable]].buffer;
    return cast ? lk_cast(master, call->opts->dtype) : master;
}

lk_status lk_layer_call_child(lk_layer_call *call, int child, lk_tensor *const *x, lk_tensor **y)
{
    if (child < 0 || child >= call->layer->n_children)
        LK_FAIL(LK_ERR_ARGUMENT, "%s: there is no child %d; there are %d", call->layer->path, child,
                call->layer->n_children);
    if ((lk_tensor *const *)y == x)
        LK_FAIL(LK_ERR_ARGUMENT, "%s: child %d has one array for its input and its output", call->layer->path, child);
    return lk__layer_run(call, call->layer->children[child], x, y);
}

/* --- one layer ---------------------------------------------------------------------------------------------------- */

static lk_status layer_forward_check_made(const lk_layer *layer, const lk_tensor *y)
{
    if (y)
        return LK_OK;
    if (lk_error_status() == LK_OK)
        LK_FAIL(LK_ERR_ARGUMENT, "%s: its forward pass gave nothing", layer->path);
    return lk_error_status();
}

static lk_status layer_forward_each_shard(const lk_layer_call *call, lk_tensor *const *x, lk_tensor **y)
{
    for (int s = 0; s < call->n; s++) {
        lk_layer_call one = *call;
        one.first += s;
        one.n = 1;
        y[s] = call->layer->table->forward(&one, call->layer->config, x[s]);
        LK_TRY(layer_forward_check_made(call->layer, y[s]));
    }
    return LK_OK;
}

static lk_status layer_forward_together(lk_layer_call *call, lk_tensor *const *x, lk_tensor **y)
{
    lk_status status = call->layer->table->forward_shards(call, call->layer->config, x, y);
    if (status != LK_OK && lk_error_status() == LK_OK)
        LK_FAIL(status, "%s: its forward pass failed: %s", call->layer->path, lk_status_name(status));
    LK_TRY(status);
    for (int s = 0; s < call->n; s++)
        LK_TRY(layer_forward_check_made(call->layer, y[s]));
    return LK_OK;
}

lk_status lk__layer_run(const lk_layer_call *call, const lk_layer *layer, lk_tensor *const *x, lk_tensor **y)
{
    lk_layer_call own = *call;
    own.layer = layer;
    memset(y, 0, (size_t)call->n * sizeof(lk_tensor *));
    LK_TRY(layer->table->forward ? layer_forward_each_shard(&own, x, y) : layer_forward_together(&own, x, y));
    if (!call->opts->visit || lk__layer_is_container(layer))
        return LK_OK;
    for (int s = 0; s < call->n; s++)
        call->opts->visit(call->opts->visit_user, layer->path, call->first + s, y[s]);
    return LK_OK;
}

/* --- the model ---------------------------------------------------------------------------------------------------- */

static lk_status model_forward_check_images(const lk_model *model, const lk_tensor *x)
{
    lk_model_input want = model->input;
    if (!x)
        LK_FAIL(LK_ERR_ARGUMENT, "%s: the images are NULL", model->name);
    lk_shape shape = lk_tensor_shape(x);
    if (shape.ndim == 4 && shape.dim[1] == want.channels && shape.dim[2] == want.height && shape.dim[3] == want.width)
        return LK_OK;
    LK_FAIL(LK_ERR_SHAPE, "%s: images %s; they must be [N,%lld,%lld,%lld]", model->name, lk__text(shape).string,
            (long long)want.channels, (long long)want.height, (long long)want.width);
}

static lk_status model_forward_check(const lk_layer_call *call, lk_tensor *const *x)
{
    const lk_model *model = call->model;
    const lk_forward_opts *opts = call->opts;
    if (opts->dtype != LK_F32 && opts->dtype != LK_BF16)
        LK_FAIL(LK_ERR_DTYPE, "%s: a forward pass in %s; it must be in f32 or bf16", model->name,
                lk_dtype_name(opts->dtype));
    for (int s = 0; s < call->n; s++) {
        if (opts->training && opts->sync && !(opts->group_samples && opts->group_samples[s] >= 1))
            LK_FAIL(LK_ERR_ARGUMENT, "%s: group_samples must be with sync, and at least 1 for shard %d", model->name,
                    s);
        LK_TRY(model_forward_check_images(model, x[s]));
        for (int i = 0; i < model->n_variables; i++)
            if (!call->variables[s][i])
                LK_FAIL(LK_ERR_ARGUMENT, "%s: variable '%s' is NULL", model->name, model->variables[i].name);
    }
    return LK_OK;
}

static lk_status model_forward_cast(int n, lk_tensor *const *x, lk_dtype dtype, lk_tensor **y)
{
    for (int s = 0; s < n; s++) {
        y[s] = lk_cast(x[s], dtype);
        if (!y[s])
            return lk_error_status();
    }
    return LK_OK;
}

static lk_status model_forward_run_root(const lk_layer_call *call, lk_tensor *const *x, lk_tensor **logits)
{
    if (call->opts->dtype == LK_F32)
        return lk__layer_run(call, call->model->root, x, logits);
    lk_tensor **images = lk__calloc((size_t)call->n, sizeof(lk_tensor *));
    if (!images)
        return LK_ERR_MEMORY;
    lk_status status = model_forward_cast(call->n, x, call->opts->dtype, images);
    if (status == LK_OK)
        status = lk__layer_run(call, call->model->root, images, logits);
    if (status == LK_OK)
        status = model_forward_cast(call->n, logits, LK_F32, logits);
    lk__free(images);
    return status;
}

static lk_status model_forward_run(const lk_layer_call *call, lk_tensor *const *x, lk_tensor **logits)
{
    lk_tensor **statistics = call->opts->training ? call->opts->statistics : NULL;
    int64_t n = statistics ? (int64_t)call->n * call->model->statistics.n : 0;
    for (int64_t i = 0; i < n; i++)
        statistics[i] = NULL;
    lk_scope_begin();
    lk_status status = model_forward_run_root(call, x, logits);
    /* The logits leave this scope with a reference each, and are then adopted by the caller's. */
    for (int s = 0; s < call->n; s++)
        logits[s] = status == LK_OK ? lk_tensor_retain(logits[s]) : NULL;
    lk_scope_end();
    if (n > 0)
        status = lk__scope_adopt_all(statistics, n, status);
    return lk__scope_adopt_all(logits, call->n, status);
}

lk_status lk_model_forward_shards(const lk_model *model, int n, lk_tensor *const *const *variables, lk_tensor *const *x,
                                  const lk_forward_opts *opts, lk_tensor **logits)
{
    const lk_forward_opts inference = {0};
    const lk_layer_call call = {
        .model = model, .opts = opts ? opts : &inference, .n = n, .variables = variables, .layer = model->root};
    if (n < 1)
        LK_FAIL(LK_ERR_ARGUMENT, "%s: %d shards; there must be at least 1", model->name, n);
    memset(logits, 0, (size_t)n * sizeof(lk_tensor *));
    LK_TRY(model_forward_check(&call, x));
    return model_forward_run(&call, x, logits);
}

lk_tensor *lk_model_forward(const lk_model *model, lk_tensor *const *variables, lk_tensor *x,
                            const lk_forward_opts *opts)
{
    lk_tensor *logits = NULL;
    lk_model_forward_shards(model, 1, &variables, &x, opts, &logits);
    return logits;
}

lk_status lk_model_update_statistics(const lk_model *model, lk_tensor *const *variables, lk_tensor *const *sums,
                                     int64_t samples, double momentum, lk_tensor *skip)
{
    for (int i = 0; i < model->statistics.n; i++)
        LK_TRY(lk__batch_norm_update(model->statistics.layers[i], variables, sums[i], samples, momentum, skip));
    return LK_OK;
}
