/* The running statistics become the mean over training batches with the current parameters. Training alone leaves a
 * mean over steps with older parameters; at a high rate the difference makes validation results swing. Source: Wu and
 * Johnson, "Rethinking 'Batch' in BatchNorm" (2021), section 3. */
#include "train/step/precise_bn.h"

#include "base/clock.h"
#include "base/mem.h"
#include "base/minmax.h"
#include "base/status.h"
#include "nn/model.h"
#include "train/processes.h"
#include "train/replicas.h"
#include "train/step/device_data.h"
#include "train/step/shard_programs.h"
#include "train/step/shard_run.h"
#include "train/step/step.h"
#include "train/step/step_program.h"
#include "train/step/sync_step.h"
#include "train/trainer.h"

lk_status lk__statistics_pass(lk_trainer *trainer, const lk_shard *shard, lk_tensor *seed, lk_tensor **values)
{
    (void)seed;
    lk_forward_opts opts = lk__training_opts(trainer, &trainer->progress.update);
    opts.indices = &shard->indices;
    opts.statistics = values;
    lk_tensor *const *variables = lk_trainer_variables(trainer, shard->replica);
    return lk_model_forward(trainer->model, variables, shard->images, &opts) ? LK_OK : lk_error_status();
}

static lk_status precise_bn_begin_shard(void *user, const lk_shard *shard, lk_tensor **values, lk_replay **replay)
{
    lk_trainer *trainer = user;
    return lk__begin_shard_pass(trainer, lk__statistics_pass, trainer->data.train_on_devices, shard, NULL,
                                lk__statistics_count(trainer), values, replay);
}

static lk_status precise_bn_sum_batch(lk_trainer *trainer, lk_batch *batch, lk_tensor **sums)
{
    lk_shard_sum *sum = trainer->sums.statistics;
    if (lk__runs_shards_together(trainer, sum, 0))
        return lk__run_statistics_together(trainer, batch, sum, sums);
    LK_TRY(lk__device_data_start(trainer->data.train_on_devices, batch->epoch));
    return lk__run_shards(sum, lk__statistics_count(trainer), trainer->data.train_set, batch, precise_bn_begin_shard,
                          trainer, lk__step_program_units(trainer, lk__statistics_pass), sums);
}

static lk_status precise_bn_run_batches(lk_trainer *trainer, int64_t n, lk_tensor **sums)
{
    double began = lk__seconds();
    int64_t n_sums = (int64_t)trainer->n_devices * lk__statistics_count(trainer);
    for (int64_t i = 0; i < n; i++) {
        lk_batch *batch;
        if (lk__is_interrupted(trainer))
            LK_FAIL(LK_ERR_INTERRUPTED, "batch-norm's statistics: interrupted after %lld of %lld batches", (long long)i,
                    (long long)n);
        LK_TRY(lk_loader_next(trainer->data.statistics_loader, &batch));
        lk_status status = precise_bn_sum_batch(trainer, batch, sums);
        /* mean of batches 0 … i = (mean of batches 0 … i - 1) + (batch i - that mean) / (i + 1) */
        if (status == LK_OK)
            status = lk__replicas_set_statistics(trainer->replicas, sums, batch->count, 1 / (1 + (double)batch->index));
        /* Wait, or this thread would push all batches ahead of the devices. */
        for (int64_t s = 0; s < n_sums && status == LK_OK; s++)
            status = sums[s] ? lk_tensor_wait(sums[s]) : LK_OK;
        lk_batch_release(batch);
        lk__release_tensors(sums, n_sums);
        LK_TRY(status);
        lk_eval_report report = {.epoch = trainer->progress.epoch,
                                 .step = i + 1,
                                 .steps = n,
                                 .seconds = lk__seconds() - began,
                                 .measures_statistics = true};
        LK_TRY(lk__callbacks_eval_step(&trainer->callbacks, trainer, &report));
    }
    return LK_OK;
}

lk_status lk__plan_precise_statistics(lk_trainer *trainer)
{
    const lk_plan *plan = &trainer->plan;
    if (plan->precise_batch_norm == 0 || lk__statistics_count(trainer) == 0)
        return LK_OK;
    trainer->sums.statistics = lk_shard_sum_new(trainer->strategy, plan->shards, lk__statistics_count(trainer));
    if (!trainer->sums.statistics)
        return lk_error_status();
    lk_loader_plan loader = {.dataset = trainer->data.train_set,
                             .data = trainer->data.train_on_devices,
                             .batch_size = plan->batch_size,
                             .training = true,
                             .workers = (int)trainer->config.data.workers};
    return lk__new_loader(trainer, &loader, &trainer->data.statistics_loader);
}

lk_status lk__measure_statistics(lk_trainer *trainer)
{
    int64_t n = lk__min(trainer->plan.precise_batch_norm, trainer->plan.steps_per_epoch);
    if (!trainer->sums.statistics)
        return LK_OK;
    int64_t n_sums = (int64_t)trainer->n_devices * lk__statistics_count(trainer);
    lk_tensor **sums = lk__calloc((size_t)n_sums, sizeof *sums);
    if (!sums)
        return LK_ERR_MEMORY;
    /* Dropout takes the masks of the last update, which a trainer that was resumed behind it has not run itself. */
    trainer->progress.update.number = trainer->progress.updates - 1;
    trainer->progress.in_pass = true;
    lk_status status = lk_loader_start(trainer->data.statistics_loader, trainer->progress.epoch - 1);
    if (status == LK_OK)
        status = lk__trainer_swap_average(trainer, LK_OK);
    if (status == LK_OK)
        status = lk__trainer_swap_average(trainer, precise_bn_run_batches(trainer, n, sums));
    trainer->progress.in_pass = false;
    lk__release_tensors(sums, n_sums);
    lk__free(sums);
    return status;
}
