/* --precise-bn: batch-norm's running statistics as the mean over training batches with the parameters as they are. What
 * training leaves instead is a mean over steps whose parameters were still others, and at a high rate validation swings
 * with the difference. Source: Wu and Johnson, "Rethinking 'Batch' in BatchNorm" (2021), section 3. */
#include "train/trainer.h"

#include "base/mem.h"
#include "base/status.h"
#include "nn/model.h"

#include <time.h>

static int statistics_count(const lk_trainer *trainer)
{
    return trainer->n_updated - trainer->n_parameters;
}

static lk_status statistics_pass(lk_trainer *trainer, const lk_shard *shard, lk_tensor *seed, lk_tensor **values)
{
    (void)seed;
    lk_forward_opts opts = lk__training_opts(trainer, &trainer->update);
    opts.indices = &shard->indices;
    opts.statistics = values;
    lk_tensor *const *variables = lk_trainer_variables(trainer, shard->replica);
    return lk_model_forward(trainer->model, variables, shard->images, &opts) ? LK_OK : lk_error_status();
}

static lk_status begin_shard(void *user, const lk_shard *shard, lk_tensor **values, lk_replay **replay)
{
    lk_trainer *trainer = user;
    return lk__begin_shard_pass(trainer, statistics_pass, trainer->train_data, shard, NULL, statistics_count(trainer),
                                values, replay);
}

static lk_status add_up_batch(lk_trainer *trainer, lk_batch *batch, lk_tensor **sums)
{
    lk_shard_sum *sum = trainer->statistics_sum;
    if (trainer->plan.batch_norm == LK_BN_SYNC)
        return lk__run_statistics_together(trainer, batch, sum, sums);
    LK_TRY(lk__device_data_start(trainer->train_data, batch->epoch));
    return lk__run_shards(sum, statistics_count(trainer), trainer->train_set, batch, begin_shard, trainer,
                          trainer->step_programs != NULL, sums);
}

/* The mean of batches 0 … i is that of those before it and 1 / (i + 1) of what batch i differs from it. The caller's
 * thread waits for every batch: it would else run ahead of the devices by all of them. */
static lk_status add_batch(lk_trainer *trainer, lk_batch *batch, lk_tensor **sums)
{
    double share = 1 / (1 + (double)batch->index);
    LK_TRY(add_up_batch(trainer, batch, sums));
    LK_TRY(lk__replicas_set_statistics(trainer->replicas, sums, batch->count, share));
    for (int r = 0; r < trainer->n_devices; r++)
        LK_TRY(lk_device_sync(trainer->devices[r]));
    return LK_OK;
}

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

static lk_status run_batches(lk_trainer *trainer, int64_t n, lk_tensor **sums)
{
    double began = now();
    for (int64_t i = 0; i < n; i++) {
        lk_batch *batch;
        if (lk__is_interrupted(trainer) && lk__end_interruption(trainer))
            LK_FAIL(LK_ERR_INTERRUPTED, "batch-norm's statistics: interrupted after %lld of %lld batches", (long long)i,
                    (long long)n);
        LK_TRY(lk_loader_next(trainer->statistics_loader, &batch));
        lk_status status = add_batch(trainer, batch, sums);
        lk_batch_release(batch);
        lk__release_tensors(sums, (int64_t)trainer->n_devices * statistics_count(trainer));
        LK_TRY(status);
        lk_eval_report report = {
            .epoch = trainer->epoch, .step = i + 1, .steps = n, .seconds = now() - began, .measures_statistics = true};
        LK_TRY(lk__callbacks_eval_step(&trainer->callbacks, trainer, &report));
    }
    return LK_OK;
}

lk_status lk__plan_precise_statistics(lk_trainer *trainer)
{
    const lk_plan *plan = &trainer->plan;
    if (plan->precise_batch_norm == 0 || statistics_count(trainer) == 0)
        return LK_OK;
    trainer->statistics_sum = lk_shard_sum_new(trainer->strategy, plan->shards, statistics_count(trainer));
    if (!trainer->statistics_sum)
        return lk_error_status();
    lk__loader_plan loader = {.dataset = trainer->train_set,
                              .data = trainer->train_data,
                              .batch_size = plan->batch_size,
                              .training = true,
                              .workers = (int)trainer->config.workers};
    return lk__new_loader(trainer, &loader, &trainer->statistics_loader);
}

lk_status lk__measure_statistics(lk_trainer *trainer)
{
    const lk_plan *plan = &trainer->plan;
    int64_t n = plan->precise_batch_norm < plan->steps_per_epoch ? plan->precise_batch_norm : plan->steps_per_epoch;
    if (!trainer->statistics_sum)
        return LK_OK;
    int64_t n_sums = (int64_t)trainer->n_devices * statistics_count(trainer);
    lk_tensor **sums = lk__calloc((size_t)n_sums, sizeof *sums);
    if (!sums)
        return LK_ERR_MEMORY;
    lk_status status = lk_loader_start(trainer->statistics_loader, trainer->epoch - 1);
    if (status == LK_OK)
        status = run_batches(trainer, n, sums);
    lk__release_tensors(sums, n_sums);
    lk__free(sums);
    return status;
}
