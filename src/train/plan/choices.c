#include "train/plan/choices.h"

#include "base/log.h"
#include "base/minmax.h"
#include "base/status.h"
#include "core/tensor.h"
#include "core/tuning.h"
#include "program/fuse.h"
#include "program/program.h"
#include "train/resume.h"
#include "train/step/shard_programs.h"
#include "train/step/step.h"
#include "train/trainer.h"
#include "lockstep/program.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

/* --- the choice --------------------------------------------------------------------------------------------------- */

static lk_status choices_use(lk_trainer *trainer, lk_algorithms algorithms, lk_tuning *tuning)
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
    const char *name = trainer->config.execution.algorithms;
    if (strcmp(name, "fast") == 0)
        return choices_use(trainer, LK_ALGORITHMS_FAST, NULL);
    if (strcmp(name, "direct") == 0)
        return choices_use(trainer, LK_ALGORITHMS_DIRECT, NULL);
    if (lk__resume_implementations(trainer))
        name = lk__resume_implementations(trainer);
    if (access(name, F_OK) != 0)
        LK_FAIL(LK_ERR_IO, "tuning %s: cannot be read: %s; must be fast, direct or the file of a tuning", name,
                strerror(errno));
    lk_tuning *tuning = lk_tuning_read(name);
    if (!tuning)
        return lk_error_status();
    lk_status status = choices_use(trainer, LK_ALGORITHMS_FAST, tuning);
    lk_tuning_release(tuning);
    return status;
}

/* --- the list ----------------------------------------------------------------------------------------------------- */

lk_status lk__make_shard(const lk_trainer *trainer, int64_t samples, lk_shard *shard)
{
    const lk_dataset *data = trainer->data.train_set;
    lk_device *device = trainer->devices[0];
    lk_shape images = LK_SHAPE(samples, lk_dataset_channels(data), lk_dataset_height(data), lk_dataset_width(data));
    *shard = (lk_shard){.shards = trainer->plan.shards, .device = device};
    LK_TRY(lk__tensor_new(device, LK_F32, images, &shard->images));
    LK_TRY(lk__tensor_new(device, LK_I32, LK_SHAPE(samples), &shard->labels));
    return lk__tensor_new(device, LK_I64, LK_SHAPE(samples), &shard->indices);
}

/* Only programs are fused, neither operators that run one by one nor passes over groups of shards. */
static bool choices_is_fused(const lk_trainer *trainer, bool training)
{
    bool is_group = training && trainer->sums.groups;
    return trainer->programs.shard && trainer->config.execution.fuse == LK_FUSE_ON && !is_group;
}

lk_program *lk__record_pass(lk_trainer *trainer, bool training, int64_t samples, const lk_program_opts *opts)
{
    lk_shard shard = {0};
    lk_tensor *seed = NULL;
    lk_program *program = NULL;
    lk_status status = lk__make_shard(trainer, samples, &shard);
    if (status == LK_OK && training)
        status = lk__tensor_new(trainer->devices[0], LK_F32, LK_SCALAR, &seed);
    if (status == LK_OK)
        program = lk__shard_program_record(trainer, training ? lk__training_pass : lk__evaluation_pass, NULL, &shard,
                                           seed, training ? trainer->sums.n_values : lk__metric_count(trainer), opts);
    lk__release_tensors((lk_tensor *[]){shard.images, shard.labels, shard.indices, seed}, 4);
    return program;
}

static lk_status choices_add_pass(lk_trainer *trainer, bool training, int64_t samples, lk_tuning *choices)
{
    lk_program_opts opts = {.fuse = choices_is_fused(trainer, training)};
    lk_program *program = lk__record_pass(trainer, training, samples, &opts);
    if (!program)
        return lk_error_status();
    lk_status status = LK_OK;
    for (int i = 0; status == LK_OK && i < program->n_calls; i++)
        status = lk__tuning_add_call(choices, &program->calls[i]);
    lk_program_release(program);
    return status;
}

/* The pieces of a shard have at most two sizes. */
static lk_status choices_add_shard(lk_trainer *trainer, bool training, int64_t samples, lk_tuning *choices)
{
    int64_t size = training ? trainer->plan.micro_batch : trainer->plan.val_micro_batch;
    if (size == 0 || samples <= size)
        return choices_add_pass(trainer, training, samples, choices);
    LK_TRY(choices_add_pass(trainer, training, size, choices));
    return samples % size > 0 ? choices_add_pass(trainer, training, samples % size, choices) : LK_OK;
}

/* The shards of a batch have at most two sizes. A shard without samples has no pass. */
static lk_status choices_add_batch(lk_trainer *trainer, bool training, int64_t samples, lk_tuning *choices)
{
    int64_t shards = trainer->plan.shards, small = samples / shards, large = lk__divide_up(samples, shards);
    if (large > 0)
        LK_TRY(choices_add_shard(trainer, training, large, choices));
    return small > 0 && small < large ? choices_add_shard(trainer, training, small, choices) : LK_OK;
}

/* The batches of an epoch have at most two sizes. */
static lk_status choices_add_epoch(lk_trainer *trainer, bool training, int64_t samples, int64_t batch_size,
                                   lk_tuning *choices)
{
    if (samples >= batch_size)
        LK_TRY(choices_add_batch(trainer, training, batch_size, choices));
    return choices_add_batch(trainer, training, samples % batch_size, choices);
}

lk_status lk__list_choices(lk_trainer *trainer, lk_tuning *choices)
{
    const lk_plan *plan = &trainer->plan;
    if (!lk__tuning_backend(choices)->choices)
        return LK_OK;
    LK_TRY(choices_add_epoch(trainer, true, plan->train_samples, plan->batch_size, choices));
    if (!trainer->data.val_set)
        return LK_OK;
    return choices_add_epoch(trainer, false, plan->val_samples, plan->val_batch_size, choices);
}

/* GPUs of different models may round differently, so the bits depend on which GPU has which shard. Warns of that, and
 * returns a hash of `seed` and the other models; without other models, `seed`. */
static uint64_t choices_hash_devices(const lk_trainer *trainer, uint64_t seed)
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

/* Hashes everything that decides the bits: the implementations, fusion (of programs only), TF32, NCCL's sums and
 * compression. */
static uint64_t choices_hash(const lk_trainer *trainer)
{
    char executor[64], reduction[64] = "", text[160];
    uint64_t seed = choices_hash_devices(trainer, lk_tuning_hash(trainer->implementations));
    if (!trainer->programs.shard)
        snprintf(executor, sizeof executor, "eager");
    else if (trainer->config.execution.fuse == LK_FUSE_OFF)
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

/* Warns if the tuning has no problem of this training, so that only built-in choices run. Call it when all problems
 * have been looked up. */
static void choices_warn_if_unused(const lk_trainer *trainer)
{
    const lk_tuning *tuning = trainer->devices[0]->tuning;
    int n = tuning ? lk_tuning_count(tuning) : 0;
    if (n > 0 && !lk__tuning_was_used(tuning))
        lk__log(LK_LOG_WARNING,
                "none of the %d problems of %s occurs in this training: it is for shards of other sizes", n,
                trainer->config.execution.algorithms);
}

lk_status lk__list_implementations(lk_trainer *trainer)
{
    trainer->implementations = lk_tuning_new(lk_device_kind(trainer->devices[0]));
    if (!trainer->implementations)
        return lk_error_status();
    LK_TRY(lk__list_choices(trainer, trainer->implementations));
    choices_warn_if_unused(trainer);
    trainer->plan.implementations = choices_hash(trainer);
    return LK_OK;
}
