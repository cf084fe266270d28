/* Modules: their beginning, the table of the operators, and their end. */
#include "pjrt/lower.h"
#include "base/mem.h"
#include "base/status.h"
#include "ops/ops.h"
#include "pjrt/lower_ops.h"

static const lk_lower_fn functions[LK_OP_COUNT] = {
    [LK_OP_FULL] = lk__lower_full,
    [LK_OP_ARANGE] = lk__lower_arange,
    [LK_OP_UNIFORM] = lk__lower_uniform,
    [LK_OP_NORMAL] = lk__lower_normal,
    [LK_OP_COPY] = lk__lower_copy,
    [LK_OP_CAST] = lk__lower_copy,
    [LK_OP_CONCAT] = lk__lower_concat,
    [LK_OP_GATHER] = lk__lower_gather,
    [LK_OP_PREPARE_IMAGES] = lk__lower_prepare_images,
    [LK_OP_ADD] = lk__lower_arithmetic,
    [LK_OP_SUB] = lk__lower_arithmetic,
    [LK_OP_MUL] = lk__lower_arithmetic,
    [LK_OP_DIV] = lk__lower_arithmetic,
    [LK_OP_PAIRWISE_SUM] = lk__lower_pairwise_sum,
    [LK_OP_MATMUL] = lk__lower_matmul,
    [LK_OP_DENSE_ACT] = lk__lower_dense_act,
    [LK_OP_CONV2D] = lk__lower_conv2d,
    [LK_OP_CONV2D_INPUT_GRAD] = lk__lower_conv2d_input_grad,
    [LK_OP_CONV2D_WEIGHT_GRAD] = lk__lower_conv2d_weight_grad,
    [LK_OP_MAX_POOL2D] = lk__lower_max_pool2d,
    [LK_OP_MAX_POOL2D_GRAD] = lk__lower_max_pool2d_grad,
    [LK_OP_AVG_POOL2D] = lk__lower_avg_pool2d,
    [LK_OP_AVG_POOL2D_GRAD] = lk__lower_avg_pool2d_grad,
    [LK_OP_CONV_BLOCK] = lk__lower_conv_block,
    [LK_OP_CONV_BLOCK_GRAD] = lk__lower_conv_block_grad,
    [LK_OP_RELU] = lk__lower_relu,
    [LK_OP_RELU_GRAD] = lk__lower_relu_grad,
    [LK_OP_ACTIVATION] = lk__lower_activation,
    [LK_OP_ACTIVATION_GRAD] = lk__lower_activation_grad,
    [LK_OP_DROPOUT] = lk__lower_dropout,
    [LK_OP_CHANNEL_SUMS] = lk__lower_channel_sums,
    [LK_OP_CHANNEL_SUMS_GRAD] = lk__lower_channel_sums_grad,
    [LK_OP_BATCH_NORM] = lk__lower_batch_norm,
    [LK_OP_BATCH_NORM_GRAD] = lk__lower_batch_norm_grad,
    [LK_OP_BATCH_NORM_WITH] = lk__lower_batch_norm_with,
    [LK_OP_BATCH_NORM_WITH_GRAD] = lk__lower_batch_norm_with_grad,
    [LK_OP_BATCH_NORM_INFERENCE] = lk__lower_batch_norm_inference,
    [LK_OP_BATCH_NORM_INFERENCE_GRAD] = lk__lower_batch_norm_inference_grad,
    [LK_OP_BATCH_NORM_UPDATE] = lk__lower_batch_norm_update,
    [LK_OP_BATCH_NORM_ACT] = lk__lower_batch_norm,
    [LK_OP_BATCH_NORM_ACT_GRAD] = lk__lower_batch_norm_act_grad,
    [LK_OP_BATCH_NORM_DROP] = lk__lower_batch_norm_drop,
    [LK_OP_BATCH_NORM_DROP_GRAD] = lk__lower_batch_norm_drop_grad,
    [LK_OP_BATCH_NORM_INFERENCE_ACT] = lk__lower_batch_norm_inference,
    [LK_OP_GROUP_NORM] = lk__lower_group_norm,
    [LK_OP_GROUP_NORM_GRAD] = lk__lower_group_norm_grad,
    [LK_OP_SUM] = lk__lower_sum,
    [LK_OP_MEAN] = lk__lower_mean,
    [LK_OP_MAX] = lk__lower_max,
    [LK_OP_MAX_GRAD] = lk__lower_max_grad,
    [LK_OP_ARGMAX] = lk__lower_argmax,
    [LK_OP_SOFTMAX] = lk__lower_softmax,
    [LK_OP_SOFTMAX_GRAD] = lk__lower_softmax_grad,
    [LK_OP_LOG_SOFTMAX] = lk__lower_log_softmax,
    [LK_OP_LOG_SOFTMAX_GRAD] = lk__lower_log_softmax_grad,
    [LK_OP_SPARSE_SOFTMAX_CROSS_ENTROPY] = lk__lower_cross_entropy,
    [LK_OP_SPARSE_SOFTMAX_CROSS_ENTROPY_GRAD] = lk__lower_cross_entropy_grad,
    [LK_OP_CROSS_ENTROPY_STEP] = lk__lower_cross_entropy_step,
    [LK_OP_SIGMOID_CROSS_ENTROPY] = lk__lower_sigmoid_cross_entropy,
    [LK_OP_SIGMOID_CROSS_ENTROPY_GRAD] = lk__lower_sigmoid_cross_entropy_grad,
    [LK_OP_IN_TOP_K] = lk__lower_in_top_k,
    [LK_OP_SGD_UPDATE] = lk__lower_sgd_update,
    [LK_OP_MOMENTUM_UPDATE] = lk__lower_momentum_update,
    [LK_OP_ADAM_UPDATE] = lk__lower_adam_update,
    [LK_OP_LARS_UPDATE] = lk__lower_lars_update,
    [LK_OP_SQUARED_NORMS] = lk__lower_squared_norms,
    [LK_OP_UPDATE_SCALES] = lk__lower_update_scales,
};

lk_lowering *lk__lowering_new(void)
{
    return lk__calloc(1, sizeof(lk_lowering));
}

void lk__lowering_free(lk_lowering *l)
{
    if (l)
        LK_FREE_ALL(l->body.data, l->storages, l);
}

/* --- calls -------------------------------------------------------------------------------------------------------- */

bool lk__lowers(const lk_call *call)
{
    if (call->op->flags & LK_OP_VIEW)
        return true;
    bool lowers = call->op->id < LK_OP_COUNT && functions[call->op->id];
    for (int i = 0; i < call->n_out && lowers; i++)
        lowers = !call->out[i] || lk__hlo_can_write(call->out[i]);
    return lowers;
}

lk_status lk__lower_call(lk_lowering *l, const lk_call *call)
{
    char text[256];
    if (call->op->flags & LK_OP_VIEW)
        return LK_OK;
    if (!lk__lowers(call)) {
        lk__call_describe(call, text, sizeof text);
        LK_FAIL(LK_ERR_UNSUPPORTED, "%s has no lowering to StableHLO", text);
    }
    functions[call->op->id](l, call);
    return l->body.status;
}

/* --- the end ------------------------------------------------------------------------------------------------------ */

static lk_status lower_allocate_lists(const lk_lowering *l, lk_lowered *lowered)
{
    size_t n = (size_t)l->n_storages + 1;
    lowered->parameters = lk__calloc(n, sizeof *lowered->parameters);
    lowered->results = lk__calloc(n, sizeof *lowered->results);
    lowered->parameter_dtypes = lk__calloc(n, sizeof *lowered->parameter_dtypes);
    lowered->result_dtypes = lk__calloc(n, sizeof *lowered->result_dtypes);
    lowered->parameter_counts = lk__calloc(n, sizeof *lowered->parameter_counts);
    lowered->result_counts = lk__calloc(n, sizeof *lowered->result_counts);
    bool ok = lowered->parameters && lowered->results && lowered->parameter_dtypes && lowered->result_dtypes &&
              lowered->parameter_counts && lowered->result_counts;
    return ok ? LK_OK : LK_ERR_MEMORY;
}

/* Appends "(%p0: type, …) -> (type, …) {". */
static void lower_put_signature(const lk_lowering *l, const lk_lowered *lowered, lk_hlo_text *text)
{
    for (int i = 0; i < lowered->n_parameters; i++) {
        lk_hlo type = {.type = lowered->parameter_dtypes[i], .rank = 1, .size = {lowered->parameter_counts[i]}};
        lk__hlo_put(text, "%s%%p%d: ", i ? ", " : "", i);
        lk__hlo_put_type(text, &type);
        for (int r = 0; r < lowered->n_results; r++)
            if (lowered->results[r] == lowered->parameters[i])
                lk__hlo_put(text, " {tf.aliasing_output = %d : i32}", r);
    }
    if (l->takes_step)
        lk__hlo_put(text, "%s%%step: tensor<ui64>", lowered->n_parameters ? ", " : "");
    lk__hlo_put(text, ") -> (");
    for (int i = 0; i < lowered->n_results; i++) {
        lk_hlo type = {.type = lowered->result_dtypes[i], .rank = 1, .size = {lowered->result_counts[i]}};
        lk__hlo_put(text, i ? ", " : "");
        lk__hlo_put_type(text, &type);
    }
    lk__hlo_put(text, ") {\n");
}

static void lower_put_return(const lk_lowered *lowered, const lk_hlo *values, lk_hlo_text *text)
{
    int n = lowered->n_results;
    lk__hlo_put(text, n ? "    return " : "    return");
    for (int i = 0; i < n; i++) {
        lk__hlo_put(text, i ? ", " : "");
        lk__hlo_put_name(text, &values[i]);
    }
    for (int i = 0; i < n; i++) {
        lk__hlo_put(text, i ? ", " : " : ");
        lk__hlo_put_type(text, &values[i]);
    }
    lk__hlo_put(text, "\n  }\n}\n");
}

/* Fills the lists of parameters and results. `values` receives the results, flat. */
static void lower_list_storages(lk_lowering *l, bool (*keep)(void *user, lk_storage *storage), void *user,
                                lk_lowered *lowered, lk_hlo *values)
{
    lowered->n_parameters = l->parameters;
    for (int64_t i = 0; i < l->n_storages; i++) {
        const lk_hlo_storage *entry = &l->storages[i];
        int64_t count = lk__hlo_count(&entry->value);
        if (entry->is_parameter) {
            lowered->parameters[entry->parameter] = entry->storage;
            lowered->parameter_dtypes[entry->parameter] = entry->dtype;
            lowered->parameter_counts[entry->parameter] = count;
        }
        if (!entry->written || !keep(user, entry->storage))
            continue;
        int r = lowered->n_results++;
        lowered->results[r] = entry->storage;
        lowered->result_dtypes[r] = entry->dtype;
        lowered->result_counts[r] = count;
        values[r] = lk__hlo_reshape(l, entry->value, 1, &count);
    }
}

lk_status lk__lowering_end(lk_lowering *l, bool (*keep)(void *user, lk_storage *storage), void *user,
                           lk_lowered *lowered)
{
    lk_hlo_text text = {0};
    *lowered = (lk_lowered){.takes_step = l->takes_step};
    lk_hlo *values = lk__calloc((size_t)l->n_storages + 1, sizeof *values);
    lk_status status = values ? lower_allocate_lists(l, lowered) : LK_ERR_MEMORY;
    if (status == LK_OK) {
        lower_list_storages(l, keep, user, lowered, values);
        lk__hlo_put(&text, "module @lockstep {\n  func.func @main(");
        lower_put_signature(l, lowered, &text);
        lk__hlo_put(&text, "%s", l->body.data ? l->body.data : "");
        lower_put_return(lowered, values, &text);
        status = l->body.status != LK_OK ? l->body.status : text.status;
    }
    lk__free(values);
    lowered->text = text.data;
    lowered->size = (size_t)text.size;
    if (status != LK_OK)
        lk__lowered_free(lowered);
    return status;
}

void lk__lowered_free(lk_lowered *lowered)
{
    LK_FREE_ALL(lowered->text, lowered->parameters, lowered->results, lowered->parameter_dtypes, lowered->result_dtypes,
                lowered->parameter_counts, lowered->result_counts);
    *lowered = (lk_lowered){0};
}
