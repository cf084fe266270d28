/* Every shard runs forward and backward on its device, independently of the others. The tree sums gradients, batch-norm
 * statistics, loss and hits over shards; every replica then applies the same sums.
 *
 * The loss is a sum over samples, and backward starts with 1 / (samples of the whole update): nothing else is divided.
 * With accumulation an update has several batches, whose sums are added in their order. */
#include "train/step/step.h"

#include "base/minmax.h"
#include "base/status.h"
#include "train/replicas.h"
#include "train/step/device_data.h"
#include "train/step/micro_batch.h"
#include "train/step/shard_programs.h"
#include "train/step/shard_run.h"
#include "train/step/step_program.h"
#include "train/step/sync_step.h"
#include "train/trainer.h"
#include "lockstep/autograd.h"
#include "lockstep/ops.h"

/* --- forward and backward ----------------------------------------------------------------------------------------- */

int lk__metric_count(const lk_trainer *trainer)
{
    return trainer->plan.top_k > 0 ? 3 : 2;
}

static lk_tensor *train_step_count_hits(lk_tensor *logits, lk_tensor *labels, int64_t k)
{
    return lk_sum(lk_in_top_k(logits, labels, (int)k), NULL);
}

lk_tensor *lk__training_loss(const lk_trainer *trainer, lk_tensor *logits, const lk_shard *shard,
                             lk_reduction reduction)
{
    lk_tensor *weights = trainer->sums.weights[shard->replica];
    lk_reduction first = weights ? LK_REDUCTION_NONE : reduction;
    lk_tensor *loss = lk_smoothed_cross_entropy(logits, shard->labels, trainer->plan.label_smoothing, first);
    if (weights)
        loss = lk_mul(loss, lk_gather(weights, shard->indices));
    return first == reduction ? loss : lk_sum(loss, NULL);
}

lk_status lk__metrics_of(const lk_trainer *trainer, lk_tensor *logits, const lk_shard *shard, bool training,
                         lk_tensor **metrics)
{
    lk_tensor *labels = shard->labels;
    metrics[0] = training ? lk__training_loss(trainer, logits, shard, LK_REDUCTION_SUM)
                          : lk_smoothed_cross_entropy(logits, labels, 0, LK_REDUCTION_SUM);
    metrics[1] = train_step_count_hits(logits, labels, 1);
    lk_tensor *last = metrics[1];
    if (trainer->plan.top_k > 0)
        last = metrics[2] = train_step_count_hits(logits, labels, trainer->plan.top_k);
    return metrics[0] && metrics[1] && last ? LK_OK : lk_error_status();
}

lk_forward_opts lk__training_opts(const lk_trainer *trainer, const lk_update *update)
{
    return (lk_forward_opts){
        .training = true, .dtype = trainer->plan.dtype, .seed = trainer->plan.seed, .step = update->number};
}

static lk_status train_step_training_piece(lk_trainer *trainer, const lk_shard *shard, lk_tensor *seed,
                                           lk_tensor **values)
{
    int n = trainer->n_parameters;
    lk_tensor *const *variables = lk_trainer_variables(trainer, shard->replica),
                     **metrics = values + trainer->sums.n_updated;
    lk_forward_opts opts = lk__training_opts(trainer, &trainer->progress.update);
    opts.indices = &shard->indices;
    opts.statistics = trainer->sums.n_updated > n ? values + n : NULL;
    lk_tape *tape = lk_tape_begin(variables, n);
    if (!tape)
        return lk_error_status();
    lk_tensor *logits = lk_model_forward(trainer->model, variables, shard->images, &opts);
    lk_status status = lk__metrics_of(trainer, logits, shard, true, metrics);
    if (status == LK_OK)
        status = lk_tape_gradient(tape, metrics[0], seed, values);
    lk_tape_release(tape);
    return status;
}

lk_status lk__training_pass(lk_trainer *trainer, const lk_shard *shard, lk_tensor *seed, lk_tensor **values)
{
    return lk__run_pieces(trainer, trainer->plan.micro_batch, train_step_training_piece, shard, seed,
                          trainer->sums.n_values, values);
}

static lk_status train_step_evaluation_piece(lk_trainer *trainer, const lk_shard *shard, lk_tensor *seed,
                                             lk_tensor **values)
{
    (void)seed;
    lk_tensor *const *variables = lk_trainer_variables(trainer, shard->replica);
    lk_tensor *logits =
        lk_model_forward(trainer->model, variables, shard->images, &(lk_forward_opts){.dtype = trainer->plan.dtype});
    return lk__metrics_of(trainer, logits, shard, false, values);
}

lk_status lk__evaluation_pass(lk_trainer *trainer, const lk_shard *shard, lk_tensor *seed, lk_tensor **values)
{
    return lk__run_pieces(trainer, trainer->plan.val_micro_batch, train_step_evaluation_piece, shard, seed,
                          lk__metric_count(trainer), values);
}

static lk_status train_step_begin_training(void *user, const lk_shard *shard, lk_tensor **values, lk_replay **replay)
{
    lk_trainer *trainer = user;
    lk_tensor *seed = trainer->sums.seeds[shard->replica];
    return lk__begin_shard_pass(trainer, lk__training_pass, trainer->data.train_on_devices, shard, seed,
                                trainer->sums.n_values, values, replay);
}

static lk_status train_step_begin_evaluation(void *user, const lk_shard *shard, lk_tensor **values, lk_replay **replay)
{
    lk_trainer *trainer = user;
    return lk__begin_shard_pass(trainer, lk__evaluation_pass, trainer->data.val_on_devices, shard, NULL,
                                lk__metric_count(trainer), values, replay);
}

/* --- the update --------------------------------------------------------------------------------------------------- */

/* into[i] = into[i] + values[i]; if one is NULL, into[i] becomes the other. The first n_own, which nothing else refers
 * to, are added in place. */
static lk_status train_step_add_values(lk_tensor **into, lk_tensor *const *values, int n_own, int n)
{
    for (int i = 0; i < n; i++) {
        if (i < n_own && into[i] && values[i]) {
            LK_TRY(lk_add_into(into[i], into[i], values[i]));
            continue;
        }
        lk_scope_begin();
        lk_tensor *sum = into[i] && values[i] ? lk_add(into[i], values[i]) : into[i] ? into[i] : values[i];
        bool failed = !sum && values[i];
        if (sum && sum != into[i]) {
            lk_tensor_retain(sum);
            lk_tensor_release(into[i]);
            into[i] = sum;
        }
        lk_scope_end();
        if (failed)
            return lk_error_status();
    }
    return LK_OK;
}

/* Adds the batch's sums to those of the update's earlier batches. The update needs no metric but the loss. */
static lk_status train_step_accumulate(lk_trainer *trainer)
{
    int stride = trainer->sums.n_values;
    for (int64_t r = 0; r < trainer->n_devices; r++)
        LK_TRY(train_step_add_values(trainer->sums.accumulated + r * stride, trainer->sums.results + r * stride,
                                     trainer->n_parameters, trainer->sums.n_updated + 1));
    return LK_OK;
}

static lk_status train_step_finish(lk_trainer *trainer, const lk_batch *batch)
{
    const lk_update *update = &trainer->progress.update;
    bool last = batch->index + 1 == update->first + update->batches;
    lk_tensor **sums = trainer->sums.results;
    if (update->batches > 1) {
        LK_TRY(train_step_accumulate(trainer));
        sums = trainer->sums.accumulated;
    }
    if (last) {
        LK_TRY(lk__replicas_apply(trainer->replicas, sums, trainer->sums.n_values, trainer->sums.n_updated,
                                  update->samples, update->rate));
        trainer->progress.updates++;
        if (update->batches > 1)
            lk__release_tensors(trainer->sums.accumulated, (int64_t)trainer->n_devices * trainer->sums.n_values);
    }
    lk_pending_step *pending = lk__pending_append(trainer, trainer->sums.results + trainer->sums.n_updated, batch);
    if (last)
        pending->skipped = lk_tensor_retain(lk__replicas_skipped(trainer->replicas));
    pending->update = *update;
    trainer->progress.steps++;
    return LK_OK;
}

/* --- a step ------------------------------------------------------------------------------------------------------- */

/* The update that the batch is part of. */
static lk_update train_step_find_update(const lk_trainer *trainer, const lk_batch *batch, double rate)
{
    const lk_plan *plan = &trainer->plan;
    int64_t first = batch->index - batch->index % plan->accumulate,
            end = lk__min(first + plan->accumulate, plan->steps_per_epoch);
    return (lk_update){.epoch = batch->epoch,
                       .number = trainer->progress.updates,
                       .first = first,
                       .batches = end - first,
                       .samples = lk__min(end * plan->batch_size, plan->train_samples) - first * plan->batch_size,
                       .rate = rate};
}

/* Runs a step that is one program, which includes the update. */
static lk_status train_step_run_program(lk_trainer *trainer, lk_batch *batch)
{
    lk_tensor *results;
    lk_scope_begin();
    lk_status status = lk__run_training_program(trainer, batch, &results);
    if (status == LK_OK) {
        lk_pending_step *pending = lk__pending_append(trainer, NULL, batch);
        pending->results = lk_tensor_retain(results);
        pending->update = trainer->progress.update;
        trainer->progress.updates++;
        trainer->progress.steps++;
    }
    lk_scope_end();
    return status;
}

/* Pushes the passes of the sum's shards, from shard `first` of the batch on. */
static lk_status train_step_run_shards(lk_trainer *trainer, lk_shard_sum *sum, int64_t first, lk_batch *batch,
                                       lk_tensor **sums)
{
    if (lk__runs_shards_together(trainer, sum, first))
        return lk__run_shards_together(trainer, sum, first, batch, sums);
    return lk__run_shards_of(sum, first, trainer->plan.shards, trainer->sums.n_values, trainer->data.train_set, batch,
                             train_step_begin_training, trainer, lk__step_program_units(trainer, lk__training_pass),
                             sums);
}

lk_status lk__train_step(lk_trainer *trainer, lk_batch *batch, double rate)
{
    trainer->progress.update = train_step_find_update(trainer, batch, rate);
    LK_TRY(lk__trainer_sums_set_seeds(trainer, trainer->progress.update.samples));
    LK_TRY(lk__device_data_start(trainer->data.train_on_devices, batch->epoch));
    if (lk__step_is_one_program(trainer))
        return train_step_run_program(trainer, batch);
    LK_TRY(train_step_run_shards(trainer, trainer->sums.train, 0, batch, trainer->sums.results));
    lk_status status = train_step_finish(trainer, batch);
    lk__release_tensors(trainer->sums.results, (int64_t)trainer->n_devices * trainer->sums.n_values);
    return status;
}

lk_status lk__run_training_shards(lk_trainer *trainer, lk_shard_sum *sum, int64_t first, lk_batch *batch,
                                  lk_tensor **sums)
{
    LK_TRY(lk__trainer_sums_set_seeds(trainer, trainer->progress.update.samples));
    LK_TRY(lk__device_data_start(trainer->data.train_on_devices, batch->epoch));
    return train_step_run_shards(trainer, sum, first, batch, sums);
}

lk_status lk__evaluate_step(lk_trainer *trainer, lk_batch *batch)
{
    int n = lk__metric_count(trainer);
    LK_TRY(lk__device_data_start(trainer->data.val_on_devices, batch->epoch));
    LK_TRY(lk__run_shards(trainer->sums.val, n, trainer->data.val_set, batch, train_step_begin_evaluation, trainer,
                          lk__step_program_units(trainer, lk__evaluation_pass), trainer->sums.results));
    lk__pending_append(trainer, trainer->sums.results, batch);
    lk__release_tensors(trainer->sums.results, (int64_t)trainer->n_devices * n);
    return LK_OK;
}
