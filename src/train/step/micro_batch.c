/* The pieces of a shard run one after the other, and their values are added in that order. Without batch-norm a
 * sample's contribution does not depend on other samples; the plan fixes how contributions are grouped, and so the
 * bits. */
#include "train/step/micro_batch.h"

#include "base/mem.h"
#include "base/minmax.h"
#include "base/status.h"
#include "core/scope.h"
#include "core/tensor.h"
#include "program/record.h"
#include "train/step/shard_programs.h"
#include "train/trainer.h"
#include "lockstep/ops.h"

/* --- the plan ----------------------------------------------------------------------------------------------------- */

/* The time to record a pass grows with the square of the number of pieces. */
enum { MOST_PIECES = 128 };

/* The activations of a few samples stay in a cache until backward reads them, but each piece adds gradients of all
 * parameters. So pieces are for models with many activations and few parameters. docs/performance.md has measurements.
 */
static int64_t micro_batch_fastest(const lk_model *model)
{
    enum { SIZE = 16, LEAST_RATIO = 8 };
    double activations = 0, parameters = 0; /* activations of a sample */
    for (int i = 0; i < lk_model_layer_count(model); i++)
        activations += (double)lk_shape_count(lk_model_layer(model, i).output);
    for (int i = 0; i < lk_model_parameter_count(model); i++)
        parameters += (double)lk_shape_count(lk_model_variable_shape(model, i));
    bool much = SIZE * activations >= LEAST_RATIO * parameters;
    return much && !lk_model_has_batch_norm(model) ? SIZE : 0;
}

static lk_status micro_batch_check(const lk_model *model, int64_t size, int64_t shard)
{
    if (lk_model_has_batch_norm(model))
        LK_FAIL(LK_ERR_ARGUMENT, "--micro-batch %lld: model %s has batch-norm, which looks at a whole shard",
                (long long)size, lk_model_name(model));
    if (lk__divide_up(shard, size) > MOST_PIECES)
        LK_FAIL(LK_ERR_ARGUMENT, "--micro-batch %lld: a shard of %lld samples has at most %d pieces; %lld or more",
                (long long)size, (long long)shard, MOST_PIECES, (long long)lk__divide_up(shard, MOST_PIECES));
    return LK_OK;
}

/* Returns `size`, raised so that a shard has at most MOST_PIECES pieces; 0 if the shard is one piece. */
static int64_t micro_batch_fit(int64_t size, int64_t shard)
{
    if (size > 0)
        size = lk__max(size, lk__divide_up(shard, MOST_PIECES));
    return size < shard ? size : 0;
}

lk_status lk_plan_micro_batch(const lk_model *model, int64_t shard, int64_t asked, int64_t *size)
{
    *size = 0;
    if (asked > 0)
        LK_TRY(micro_batch_check(model, asked, shard));
    *size = micro_batch_fit(asked < 0 ? micro_batch_fastest(model) : asked, shard);
    return LK_OK;
}

/* Validation has its own shard size, so the settings of the evaluation do not change the training. */
lk_status lk__plan_micro_batches(lk_trainer *trainer)
{
    lk_plan *plan = &trainer->plan;
    int64_t asked = trainer->config.execution.micro_batch,
            val_shard = lk__divide_up(plan->val_batch_size, plan->shards);
    LK_TRY(
        lk_plan_micro_batch(trainer->model, lk__divide_up(plan->batch_size, plan->shards), asked, &plan->micro_batch));
    plan->val_micro_batch = micro_batch_fit(asked < 0 ? micro_batch_fastest(trainer->model) : asked, val_shard);
    return LK_OK;
}

/* --- the pieces --------------------------------------------------------------------------------------------------- */

/* sums[i] += values[i], in place; if one is NULL, sums[i] becomes the other. */
static lk_status micro_batch_add_values(lk_tensor **sums, lk_tensor *const *values, int n)
{
    for (int i = 0; i < n; i++) {
        if (sums[i] && values[i])
            LK_TRY(lk_add_into(sums[i], sums[i], values[i]));
        else if (values[i])
            sums[i] = lk_tensor_retain(values[i]);
    }
    return LK_OK;
}

typedef struct pieces {
    lk_trainer *trainer;
    lk__shard_pass_fn pass;
    const lk_shard *shard;
    lk_tensor *seed;
    int n;
    lk_tensor **values; /* of one piece */
} pieces;

static lk_status micro_batch_run_piece(const pieces *p, int64_t begin, int64_t end, lk_tensor **sums)
{
    lk_shard piece = *p->shard;
    lk__program_next_piece();
    for (int i = 0; i < p->n; i++)
        p->values[i] = NULL;
    lk_scope_begin();
    piece.images = lk_slice(p->shard->images, 0, begin, end);
    piece.labels = lk_slice(p->shard->labels, 0, begin, end);
    piece.indices = lk_slice(p->shard->indices, 0, begin, end);
    lk_status status = piece.images && piece.labels && piece.indices ? LK_OK : lk_error_status();
    if (status == LK_OK)
        status = p->pass(p->trainer, &piece, p->seed, p->values);
    if (status == LK_OK)
        status = micro_batch_add_values(sums, p->values, p->n);
    lk_scope_end();
    return status;
}

lk_status lk__run_pieces(lk_trainer *trainer, int64_t size, lk__shard_pass_fn pass, const lk_shard *shard,
                         lk_tensor *seed, int n, lk_tensor **values)
{
    int64_t samples = lk_tensor_count(shard->labels);
    if (size == 0 || samples <= size)
        return pass(trainer, shard, seed, values);
    pieces p = {trainer, pass, shard, seed, n, lk__calloc((size_t)n, sizeof *p.values)};
    lk_status status = p.values ? LK_OK : LK_ERR_MEMORY;
    for (int64_t begin = 0; begin < samples && status == LK_OK; begin += size)
        status = micro_batch_run_piece(&p, begin, lk__min(begin + size, samples), values);
    lk__free(p.values);
    return lk__scope_adopt_all(values, n, status);
}
