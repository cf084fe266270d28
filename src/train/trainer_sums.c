#include "train/trainer_sums.h"

#include "base/mem.h"
#include "base/status.h"
#include "dist/process/group.h"
#include "dist/strategy.h"
#include "dist/sum/bucket_plan.h"
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

/* On one machine buckets do not taper. There an exchange uses the memory and cores that compute, so backward hides
 * little of it, and each bucket costs a meeting. Compressed buckets do not either, since their bits depend on the
 * buckets. */
static bool trainer_sums_taper(const lk_trainer *trainer)
{
    const lk_group *group = trainer->strategy->group;
    return group && lk__group_spans_machines(group) && !trainer->plan.compressed;
}

static lk_status trainer_sums_plan_buckets(lk_trainer *trainer)
{
    lk_trainer_sums *sums = &trainer->sums;
    int n = trainer->n_parameters;
    int64_t full = lk__trainer_segment_bytes(trainer);
    int64_t *bytes = lk__calloc((size_t)n, sizeof *bytes);
    sums->buckets = lk__calloc((size_t)sums->n_values, sizeof *sums->buckets);
    if (bytes && sums->buckets) {
        for (int i = 0; i < n; i++)
            bytes[i] = lk_shape_count(lk_model_variable_shape(trainer->model, i)) * (int64_t)sizeof(float);
        sums->n_buckets = lk__bucket_plan(bytes, n, full > 0 ? full : INT64_MAX,
                                          full > 0 && trainer_sums_taper(trainer), sums->buckets);
        for (int i = n; i < sums->n_values; i++)
            sums->buckets[i] = sums->n_buckets - 1;
    }
    lk__free(bytes);
    return bytes && sums->buckets ? LK_OK : LK_ERR_MEMORY;
}

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
    LK_TRY(trainer_sums_plan_buckets(trainer));
    lk__shard_sum_set_buckets(sums->train, trainer->n_parameters, sums->buckets);
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
    lk__free(sums->buckets);
    lk_shard_sum_release(sums->val);
    lk_shard_sum_release(sums->statistics);
    lk_shard_sum_release(sums->votes);
    lk_shard_sum_release(sums->sync);
    lk__free(sums->groups);
}

void lk__trainer_sums_cut(const lk_trainer *trainer, lk_program_opts *opts)
{
    if (trainer->strategy->group) {
        opts->buckets = trainer->sums.buckets;
        opts->n_quantities = trainer->sums.n_values;
    } else {
        opts->segment_bytes = (size_t)lk__trainer_segment_bytes(trainer);
    }
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
