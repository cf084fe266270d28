#include "train/trainer_sums.h"

#include "base/mem.h"
#include "base/status.h"
#include "dist/sum/shard_sum.h"
#include "lockstep/ops.h"
#include "nn/model.h"
#include "optim/optimizer.h"
#include "train/plan/class_weights.h"
#include "train/processes.h"
#include "train/replicas.h"
#include "train/step/groups.h"
#include "train/step/precise_bn.h"
#include "train/step/step.h"
#include "train/trainer.h"
#include "train/trainer_devices.h"

lk_status lk__trainer_sums_new(lk_trainer *trainer)
{
    const lk_plan *plan = &trainer->plan;
    lk_trainer_sums *sums = &trainer->sums;
    int metrics = lk__metric_count(trainer);
    sums->n_updated = trainer->n_parameters + lk_model_statistics_count(trainer->model);
    sums->n_values = sums->n_updated + metrics;
    size_t values = (size_t)trainer->n_devices * (size_t)sums->n_values;
    sums->results = lk__calloc(values, sizeof *sums->results);
    sums->accumulated = plan->accumulate > 1 ? lk__calloc(values, sizeof *sums->accumulated) : NULL;
    if (!sums->results || (plan->accumulate > 1 && !sums->accumulated))
        return LK_ERR_MEMORY;
    sums->train = lk_shard_sum_new(trainer->strategy, plan->shards, sums->n_values);
    sums->val = lk_shard_sum_new(trainer->strategy, plan->shards, metrics);
    if (!sums->train || !sums->val)
        return lk_error_status();
    /* Backward of its layer is the last to use a statistic, and so the first layer's come last of all. In front of the
     * gradients they would keep every bucket waiting. */
    int64_t bytes = lk__trainer_segment_bytes(trainer);
    lk__shard_sum_set_buckets(sums->train, trainer->n_parameters, bytes > 0 ? bytes : INT64_MAX);
    LK_TRY(lk__class_weights_place(trainer));
    LK_TRY(lk__plan_votes(trainer));
    LK_TRY(lk__plan_groups(trainer));
    return lk__plan_precise_statistics(trainer);
}

lk_status lk__trainer_sums_place(lk_trainer *trainer)
{
    lk_trainer_sums *sums = &trainer->sums;
    const lk_optimizer *optimizer = lk_replicas_optimizer(trainer->replicas, 0);
    if (!optimizer || trainer->server.has_optimizer || lk_strategy_ranks(trainer->strategy) > 1 ||
        trainer->plan.accumulate > 1 || lk_tensor_device(optimizer->gradients) != trainer->devices[0])
        return LK_OK;
    sums->places = lk__calloc((size_t)sums->n_values, sizeof *sums->places);
    if (!sums->places)
        return LK_ERR_MEMORY;
    for (int i = 0; i < optimizer->n; i++)
        sums->places[i] = optimizer->slices[i];
    lk__shard_sum_set_places(sums->train, sums->places);
    return LK_OK;
}

void lk__trainer_sums_release(lk_trainer *trainer)
{
    lk_trainer_sums *sums = &trainer->sums;
    lk__release_tensors(sums->seeds, trainer->n_devices);
    lk__release_tensors(sums->weights, trainer->n_devices);
    lk__release_tensors(sums->results, (int64_t)trainer->n_devices * sums->n_values);
    lk__release_tensors(sums->accumulated, (int64_t)trainer->n_devices * sums->n_values);
    lk__free(sums->places);
    lk__free(sums->results);
    lk__free(sums->accumulated);
    lk_shard_sum_release(sums->train);
    lk_shard_sum_release(sums->val);
    lk_shard_sum_release(sums->statistics);
    lk_shard_sum_release(sums->votes);
    lk_shard_sum_release(sums->sync);
    lk__free(sums->groups);
}

int lk__statistics_count(const lk_trainer *trainer)
{
    return trainer->sums.n_updated - trainer->n_parameters;
}

lk_status lk__trainer_sums_set_seeds(lk_trainer *trainer, int64_t samples)
{
    lk_trainer_sums *sums = &trainer->sums;
    if (sums->seed_count == samples)
        return LK_OK;
    sums->seed_count = 0;
    for (int r = 0; r < trainer->n_devices; r++) {
        lk_tensor_release(sums->seeds[r]);
        lk_scope_begin();
        sums->seeds[r] = lk_tensor_retain(lk_full(trainer->devices[r], LK_F32, LK_SCALAR, 1.0 / (double)samples));
        lk_scope_end();
        if (!sums->seeds[r])
            return lk_error_status();
    }
    sums->seed_count = samples;
    return LK_OK;
}

void lk__release_tensors(lk_tensor **tensors, int64_t n)
{
    for (int64_t i = 0; tensors && i < n; i++) {
        lk_tensor_release(tensors[i]);
        tensors[i] = NULL;
    }
}
