/* Dropout of elements, and of whole samples: stochastic depth. */
#include "base/status.h"
#include "nn/layer.h"
#include "nn/model_text.h"
#include "lockstep/ops.h"

static lk_status dropout_layer_build(lk_layer_builder *builder, const void *config, lk_shape in, lk_shape *out)
{
    *out = in;
    bool identity = *(const double *)config == 0;
    lk_layer_flops(builder, identity ? 0 : (double)lk__layer_count(in));
    lk_layer_gradient_needs(builder, identity ? LK_MAKES_VIEW : LK_NEEDS_NOTHING, 0);
    return LK_OK;
}

/* Drops elements of x. The random numbers are keyed by the layer's path, so two dropouts of one network drop different
 * elements. */
static lk_tensor *dropout_layer_drop(const lk_layer_call *call, double rate, lk_tensor *x)
{
    const lk_forward_opts *opts = call->opts;
    lk_tensor *indices = opts->indices ? opts->indices[call->first] : NULL;
    if (!indices) {
        lk__fail(LK_ERR_ARGUMENT, "%s: %s needs to know which samples these are: lk_forward_opts.indices",
                 call->layer->path, call->layer->table->kind);
        return NULL;
    }
    const lk_random_key key = {
        .seed = opts->seed, .purpose = lk_random_purpose(call->layer->path), .epoch = (uint64_t)opts->step};
    return lk_dropout(x, indices, rate, key);
}

static lk_tensor *dropout_layer_forward(lk_layer_call *call, const void *config, lk_tensor *x)
{
    double rate = *(const double *)config;
    return call->opts->training && rate > 0 ? dropout_layer_drop(call, rate, x) : x;
}

/* Multiplies each sample by a number of its own, which is dropped, or 1 / (1 - rate). */
static lk_tensor *dropout_layer_forward_path(lk_layer_call *call, const void *config, lk_tensor *x)
{
    double rate = *(const double *)config;
    if (!call->opts->training || rate == 0 || !x)
        return x;
    lk_shape each = lk_tensor_shape(x);
    for (int i = 1; i < each.ndim; i++)
        each.dim[i] = 1;
    lk_tensor *ones = lk_full(lk_tensor_device(x), lk_tensor_dtype(x), each, 1.0);
    lk_tensor *factors = ones ? dropout_layer_drop(call, rate, ones) : NULL;
    return factors ? lk_mul(x, factors) : NULL;
}

static void dropout_layer_describe(const void *config, lk_node *node)
{
    (void)config;
    node->kind = LK_NODE_IDENTITY;
}

static void dropout_layer_write(const lk_layer *layer, lk_model_text *out)
{
    lk__model_text_put(out, "%s", layer->table->kind);
    lk__model_text_put_real(out, "rate", *(const double *)layer->config);
}

static const lk_layer_table dropout_table = {.kind = "dropout",
                                             .build = dropout_layer_build,
                                             .forward = dropout_layer_forward,
                                             .describe = dropout_layer_describe};

static const lk_layer_table drop_path_table = {.kind = "drop_path",
                                               .build = dropout_layer_build,
                                               .forward = dropout_layer_forward_path,
                                               .describe = dropout_layer_describe};

static lk_layer *dropout_layer_new(const lk_layer_table *table, double rate)
{
    if (!(rate >= 0 && rate < 1)) {
        lk__fail(LK_ERR_ARGUMENT, "%s: rate is %g; it must be at least 0 and below 1", table->kind, rate);
        return NULL;
    }
    return lk__layer_writes(lk_layer_new(table, &rate, sizeof rate, NULL, 0), dropout_layer_write);
}

lk_layer *lk_layer_dropout(double rate)
{
    return dropout_layer_new(&dropout_table, rate);
}

lk_layer *lk_layer_drop_path(double rate)
{
    return dropout_layer_new(&drop_path_table, rate);
}
