/* A tape identifies a tensor by its object, not by its memory. So each shard watches its own views of its replica's
 * parameters, and the gradients of different shards stay apart. */
#include "train/step/shard_pass.h"

#include "base/mem.h"
#include "base/status.h"
#include "train/step/device_data.h"
#include "train/step/shard_run.h"
#include "train/step/step.h"
#include "train/trainer.h"
#include "lockstep/autograd.h"
#include "lockstep/ops.h"

#include <string.h>

/* --- memory ------------------------------------------------------------------------------------------------------- */

static lk_tensor **shard_pass_take_slots(lk_tensor ***slots, int64_t count)
{
    lk_tensor **taken = *slots;
    *slots += count;
    return taken;
}

lk_status lk__shard_pass_init(lk_shard_pass *pass, lk_trainer *trainer, int64_t shards)
{
    int64_t p = trainer->n_parameters;
    *pass = (lk_shard_pass){.trainer = trainer};
    pass->shards = lk__calloc((size_t)shards, sizeof *pass->shards);
    pass->sets = lk__calloc((size_t)shards, sizeof *pass->sets);
    pass->memory = lk__calloc((size_t)(shards * (5 + 2 * p)), sizeof *pass->memory);
    if (!pass->shards || !pass->sets || !pass->memory)
        return LK_ERR_MEMORY;
    lk_tensor **slots = pass->memory;
    pass->images = shard_pass_take_slots(&slots, shards);
    pass->indices = shard_pass_take_slots(&slots, shards);
    pass->logits = shard_pass_take_slots(&slots, shards);
    pass->losses = shard_pass_take_slots(&slots, shards);
    pass->seeds = shard_pass_take_slots(&slots, shards);
    pass->watched = shard_pass_take_slots(&slots, shards * p);
    pass->gradients = shard_pass_take_slots(&slots, shards * p);
    return LK_OK;
}

void lk__shard_pass_free(lk_shard_pass *pass)
{
    lk__free(pass->shards);
    lk__free(pass->sets);
    lk__free(pass->memory);
}

/* --- shards ------------------------------------------------------------------------------------------------------- */

lk_status lk__view_variables(const lk_trainer *trainer, int replica, lk_tensor **views)
{
    lk_tensor *const *variables = lk_trainer_variables(trainer, replica);
    for (int i = 0; i < trainer->n_variables; i++) {
        bool watched = i < trainer->n_parameters;
        views[i] = watched ? lk_reshape(variables[i], lk_tensor_shape(variables[i])) : variables[i];
        if (!views[i])
            return lk_error_status();
    }
    return LK_OK;
}

void lk__shard_pass_start(lk_shard_pass *pass, const lk_update *update, lk_batch *batch)
{
    pass->update = update;
    pass->batch = batch;
    pass->n = 0;
}

static void shard_pass_append(lk_shard_pass *pass, const lk_shard *shard, lk_tensor *const *variables, lk_tensor *seed)
{
    int64_t p = pass->trainer->n_parameters;
    int i = pass->n++;
    pass->shards[i] = *shard;
    pass->images[i] = shard->images;
    pass->indices[i] = shard->indices;
    pass->seeds[i] = seed;
    pass->sets[i] = variables;
    memcpy(pass->watched + i * p, variables, (size_t)p * sizeof(lk_tensor *));
}

lk_status lk__shard_pass_add(lk_shard_pass *pass, int64_t index, int replica, lk_tensor *const *variables,
                             lk_tensor *seed)
{
    lk_trainer *trainer = pass->trainer;
    lk_range samples = lk_part(pass->batch->count, trainer->plan.shards, index);
    lk_shard shard = {.replica = replica, .index = index, .shards = trainer->plan.shards};
    if (samples.begin == samples.end)
        return LK_OK;
    LK_TRY(lk__shard_of_batch(trainer->data.train_set, pass->batch, samples, trainer->devices[replica], &shard));
    LK_TRY(lk__device_data_start(trainer->data.train_on_devices, pass->batch->epoch));
    LK_TRY(lk__device_data_prepare(trainer->data.train_on_devices,
                                   lk__device_data_epoch(trainer->data.train_on_devices, replica), &shard));
    shard_pass_append(pass, &shard, variables, seed);
    return LK_OK;
}

lk_status lk__shard_pass_add_blank(lk_shard_pass *pass, int64_t index, lk_tensor *const *variables, lk_tensor *seed)
{
    const lk_trainer *trainer = pass->trainer;
    const lk_dataset *set = trainer->data.train_set;
    lk_device *device = trainer->devices[0];
    lk_shape image = LK_SHAPE(1, lk_dataset_channels(set), lk_dataset_height(set), lk_dataset_width(set));
    lk_shard shard = {.index = index, .shards = trainer->plan.shards, .device = device};
    shard.images = lk_zeros(device, LK_F32, image);
    shard.labels = lk_zeros(device, LK_I32, LK_SHAPE(1));
    shard.indices = lk_zeros(device, LK_I64, LK_SHAPE(1));
    if (!shard.images || !shard.labels || !shard.indices)
        return lk_error_status();
    shard_pass_append(pass, &shard, variables, seed);
    return LK_OK;
}

/* --- the passes --------------------------------------------------------------------------------------------------- */

static lk_status shard_pass_sync(void *user, lk_tensor *const *parts, lk_tensor **sums, int n)
{
    (void)user;
    return lk_allreduce_recorded(parts, sums, n);
}

lk_forward_opts lk__shard_pass_opts(const lk_shard_pass *pass)
{
    lk_forward_opts opts = lk__training_opts(pass->trainer, pass->update);
    opts.indices = pass->indices;
    opts.global_batch = pass->batch->count;
    if (pass->trainer->plan.batch_norm == LK_BN_SYNC)
        opts.sync = shard_pass_sync;
    return opts;
}

lk_status lk__shard_pass_forward(lk_shard_pass *pass, const lk_forward_opts *opts)
{
    return lk_model_forward_shards(pass->trainer->model, pass->n, pass->sets, pass->images, opts, pass->logits);
}

lk_status lk__shard_pass_gradients(lk_shard_pass *pass, lk_status (*forward)(void *user), void *user)
{
    lk_tape *tape = lk_tape_begin(pass->watched, pass->n * pass->trainer->n_parameters);
    if (!tape)
        return lk_error_status();
    lk_status status = forward(user);
    if (status == LK_OK)
        status = lk_tape_gradients(tape, pass->losses, pass->seeds, pass->n, pass->gradients);
    lk_tape_release(tape);
    return status;
}
