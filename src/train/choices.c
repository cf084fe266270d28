/* Which implementations run a training: asked for, and listed. */
#include "train/trainer.h"

#include "base/log.h"
#include "base/status.h"
#include "core/tensor.h"
#include "core/tuning.h"
#include "lockstep/program.h"
#include "program/program.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

/* --- asked for ---------------------------------------------------------------------------------------------------- */

static lk_status use(lk_trainer *trainer, lk_algorithms algorithms, lk_tuning *tuning)
{
    for (int i = 0; i < trainer->n_devices; i++) {
        lk_device *device = trainer->devices[i];
        if (trainer->plan.tf32 && lk_device_set_tf32(device, true) != LK_OK) {
            lk_error_clear();
            LK_FAIL(LK_ERR_ARGUMENT, "--tf32: must be with --devices cuda: %s has no such arithmetic",
                    lk_device_name(device));
        }
        lk_device_set_algorithms(device, algorithms);
        LK_TRY(lk_device_set_tuning(trainer->devices[i], tuning));
    }
    return LK_OK;
}

lk_status lk__use_algorithms(lk_trainer *trainer)
{
    const char *name = trainer->config.algorithms;
    if (strcmp(name, "fast") == 0)
        return use(trainer, LK_ALGORITHMS_FAST, NULL);
    if (strcmp(name, "direct") == 0)
        return use(trainer, LK_ALGORITHMS_DIRECT, NULL);
    if (lk__resume_implementations(trainer))
        name = lk__resume_implementations(trainer);
    if (access(name, F_OK) != 0)
        LK_FAIL(LK_ERR_IO, "tuning %s: cannot be read: %s; must be fast, direct or the file of a tuning", name,
                strerror(errno));
    lk_tuning *tuning = lk_tuning_read(name);
    if (!tuning)
        return lk_error_status();
    lk_status status = use(trainer, LK_ALGORITHMS_FAST, tuning);
    lk_tuning_release(tuning);
    return status;
}

/* --- listed ------------------------------------------------------------------------------------------------------- */

lk_status lk__make_shard(const lk_trainer *trainer, int64_t samples, lk_shard *shard)
{
    const lk_dataset *data = trainer->train_set;
    lk_device *device = trainer->devices[0];
    lk_shape images = LK_SHAPE(samples, lk_dataset_channels(data), lk_dataset_height(data), lk_dataset_width(data));
    *shard = (lk_shard){.shards = trainer->plan.shards, .device = device};
    LK_TRY(lk__tensor_new(device, LK_F32, images, &shard->images));
    LK_TRY(lk__tensor_new(device, LK_I32, LK_SHAPE(samples), &shard->labels));
    return lk__tensor_new(device, LK_I64, LK_SHAPE(samples), &shard->indices);
}

/* What runs operator by operator is not fused. */
static bool is_fused(const lk_trainer *trainer, bool training)
{
    bool together = training && trainer->plan.batch_norm == LK_BN_SYNC && lk_model_has_batch_norm(trainer->model);
    return trainer->programs && trainer->config.fuse == LK_FUSE_ON && !together;
}

static lk_program *record(lk_trainer *trainer, bool training, const lk_shard *shard, lk_tensor *seed)
{
    lk_program_opts opts = {.fuse = is_fused(trainer, training)};
    if (training)
        return lk__shard_program_record(trainer, lk__training_pass, NULL, shard, seed, trainer->n_values, &opts);
    return lk__shard_program_record(trainer, lk__evaluation_pass, NULL, shard, NULL, lk__metric_count(trainer), &opts);
}

static lk_status add_program(const lk_program *program, lk_tuning *choices)
{
    for (int i = 0; i < program->n_calls; i++)
        LK_TRY(lk__tuning_add_call(choices, &program->calls[i]));
    return LK_OK;
}

static lk_status add_pass(lk_trainer *trainer, bool training, int64_t samples, lk_tuning *choices)
{
    lk_shard shard;
    lk_tensor *seed = NULL;
    lk_program *program = NULL;
    lk_status status = lk__make_shard(trainer, samples, &shard);
    if (status == LK_OK)
        status = lk__tensor_new(trainer->devices[0], LK_F32, LK_SCALAR, &seed);
    if (status == LK_OK)
        program = record(trainer, training, &shard, seed);
    if (status == LK_OK)
        status = program ? add_program(program, choices) : lk_error_status();
    lk_program_release(program);
    lk__release_tensors((lk_tensor *[]){shard.images, shard.labels, shard.indices, seed}, 4);
    return status;
}

/* Pieces of a shard have two sizes at most. */
static lk_status add_shard(lk_trainer *trainer, bool training, int64_t samples, lk_tuning *choices)
{
    int64_t size = training ? trainer->plan.micro_batch : trainer->plan.val_micro_batch;
    if (size == 0 || samples <= size)
        return add_pass(trainer, training, samples, choices);
    LK_TRY(add_pass(trainer, training, size, choices));
    return samples % size > 0 ? add_pass(trainer, training, samples % size, choices) : LK_OK;
}

/* Shards of a batch have two sizes at most; one without samples has no pass. */
static lk_status add_batch(lk_trainer *trainer, bool training, int64_t samples, lk_tuning *choices)
{
    int64_t shards = trainer->plan.shards, small = samples / shards, large = (samples + shards - 1) / shards;
    if (large > 0)
        LK_TRY(add_shard(trainer, training, large, choices));
    return small > 0 && small < large ? add_shard(trainer, training, small, choices) : LK_OK;
}

/* Batches have two sizes at most. */
static lk_status add_epoch(lk_trainer *trainer, bool training, int64_t samples, int64_t batch_size, lk_tuning *choices)
{
    if (samples >= batch_size)
        LK_TRY(add_batch(trainer, training, batch_size, choices));
    return add_batch(trainer, training, samples % batch_size, choices);
}

lk_status lk__list_choices(lk_trainer *trainer, lk_tuning *choices)
{
    const lk_plan *plan = &trainer->plan;
    if (!lk__tuning_backend(choices)->choices)
        return LK_OK;
    LK_TRY(add_epoch(trainer, true, plan->train_samples, plan->batch_size, choices));
    if (!trainer->val_set)
        return LK_OK;
    return add_epoch(trainer, false, plan->val_samples, plan->val_batch_size, choices);
}

/* GPUs of several models round in several ways: bits then depend on which of them has which shard. */
static uint64_t add_other_devices(const lk_trainer *trainer, uint64_t seed)
{
    char first[256], other[256];
    const lk_choices *choices = trainer->devices[0]->backend->choices;
    if (!choices)
        return seed;
    choices->describe(trainer->devices[0], first, sizeof first);
    for (int i = 0; i < trainer->n_devices; i++) {
        const lk_device *device = trainer->devices[i];
        if (device->backend != trainer->devices[0]->backend)
            continue;
        choices->describe(device, other, sizeof other);
        if (strcmp(first, other) == 0)
            continue;
        lk__log(LK_LOG_WARNING, "%s is %s, and %s is %s: results depend on which device has which shard", device->name,
                other, trainer->devices[0]->name, first);
        seed = XXH3_64bits_withSeed(other, strlen(other), seed);
    }
    return seed;
}

/* Of what runs: fusion, TF32 and NCCL's sums give other bits with the same implementations, and fusion is for programs
 * alone. */
static uint64_t hash(const lk_trainer *trainer)
{
    char executor[64], reduction[64] = "", text[160];
    uint64_t seed = add_other_devices(trainer, lk_tuning_hash(trainer->implementations));
    if (!trainer->programs)
        snprintf(executor, sizeof executor, "eager");
    else if (trainer->config.fuse == LK_FUSE_OFF)
        snprintf(executor, sizeof executor, "program");
    else
        snprintf(executor, sizeof executor, "program, fusion %d", LK_FUSION_VERSION);
    if (trainer->plan.reduce == LK_REDUCE_NCCL)
        snprintf(reduction, sizeof reduction, ", %s over %d", trainer->plan.transport, trainer->plan.devices);
    else if (trainer->plan.compressed)
        snprintf(reduction, sizeof reduction, ", bf16 over %d", trainer->plan.devices);
    int length = snprintf(text, sizeof text, "%s%s%s", executor, trainer->plan.tf32 ? ", tf32" : "", reduction);
    return XXH3_64bits_withSeed(text, (size_t)length, seed);
}

/* Listing has asked for every problem. Without any the built-in choices run, for which nobody would name a file. */
static void warn_of_other_problems(const lk_trainer *trainer)
{
    const lk_tuning *tuning = trainer->devices[0]->tuning;
    int n = tuning ? lk_tuning_count(tuning) : 0;
    if (n > 0 && !lk__tuning_was_used(tuning))
        lk__log(LK_LOG_WARNING,
                "none of the %d problems of %s occurs in this training: it is for shards of other sizes", n,
                trainer->config.algorithms);
}

lk_status lk__list_implementations(lk_trainer *trainer)
{
    trainer->implementations = lk_tuning_new(lk_device_kind(trainer->devices[0]));
    if (!trainer->implementations)
        return lk_error_status();
    LK_TRY(lk__list_choices(trainer, trainer->implementations));
    warn_of_other_problems(trainer);
    trainer->plan.implementations = hash(trainer);
    return LK_OK;
}
