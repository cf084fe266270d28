/* A tape identifies a tensor by its object, not by its memory. So each shard watches its own views of its replica's
 * parameters, and the gradients of different shards stay apart. */
#include "train/step/shard_pass.h"

#include "base/mem.h"
#include "base/minmax.h"
#include "base/status.h"
#include "core/op.h"
#include "dist/sum/tree.h"
#include "train/step/device_data.h"
#include "train/step/groups.h"
#include "train/step/shard_run.h"
#include "train/step/step.h"
#include "train/trainer.h"
#include "lockstep/autograd.h"
#include "lockstep/ops.h"

#include <string.h>

/* --- sums of groups ----------------------------------------------------------------------------------------------- */

/* Sets sums[i …] for the shards of the group that begins with shard i of the pass. Returns their number; 0: failure, as
 * lk_error_status() says. Shards without samples are absent from the group's tree. */
static int shard_pass_add_group(const lk_shard_pass *pass, lk_call_site at, int i, lk_tensor *const *parts,
                                lk_tensor **sums)
{
    lk_range group = lk__group_of(pass->trainer, pass->shards[i].index);
    int64_t leaves = group.end - group.begin;
    lk_tree_node *nodes = lk__calloc((size_t)leaves, sizeof *nodes);
    lk_tensor *sum;
    int n = 0;
    for (int64_t s = group.begin; s < group.end && nodes; s++) {
        bool present = i + n < pass->n && pass->shards[i + n].index == s;
        nodes[s - group.begin] = (lk_tree_node){.range = {s, s + 1}, .values = present ? parts + i + n : NULL};
        n += present;
    }
    lk_status status = nodes ? lk__tree_sum(at, pass->shards[i].device, &lk__transport_inproc, group, nodes, leaves, 0,
                                            (lk_range){0, -1}, &sum)
                             : LK_ERR_MEMORY;
    lk__free(nodes);
    for (int k = 0; k < n && status == LK_OK; k++) {
        sums[i + k] = lk_reshape_at(at, sum, lk_tensor_shape(sum));
        status = sums[i + k] ? LK_OK : lk_error_status();
    }
    return status == LK_OK ? n : 0;
}

static lk_status shard_pass_add_groups_here(lk_shard_pass *pass, lk_call_site at, lk_tensor *const *parts,
                                            lk_tensor **sums)
{
    for (int i = 0, n; i < pass->n; i += n) {
        n = shard_pass_add_group(pass, at, i, parts, sums);
        if (n == 0)
            return lk_error_status();
    }
    return LK_OK;
}

/* The gradient of this function is the same sum, of the outputs' gradients. */
static lk_status shard_pass_sync_recorded(void *user, lk_call_site at, lk_tensor *const *parts, lk_tensor **sums, int n)
{
    lk_shard_pass *pass = user;
    lk_recorder recorder = lk__recorder_set((lk_recorder){0});
    lk_status status = pass->add_groups(pass, at, parts, sums);
    lk__recorder_set(recorder);
    LK_TRY(status);
    lk_function function = {"allreduce", at, n, parts, sums, shard_pass_sync_recorded, user};
    return recorder.record_function ? recorder.record_function(recorder.self, &function) : LK_OK;
}

static lk_status shard_pass_sync(void *user, lk_tensor *const *parts, lk_tensor **sums, int n)
{
    return shard_pass_sync_recorded(user, LK_HERE, parts, sums, n);
}

/* --- memory ------------------------------------------------------------------------------------------------------- */

static lk_tensor **shard_pass_take_slots(lk_tensor ***slots, int64_t count)
{
    lk_tensor **taken = *slots;
    *slots += count;
    return taken;
}

lk_status lk__shard_pass_init(lk_shard_pass *pass, lk_trainer *trainer, int64_t shards)
{
    int64_t p = trainer->n_parameters, v = trainer->n_variables, t = lk__statistics_count(trainer);
    *pass = (lk_shard_pass){.trainer = trainer, .add_groups = shard_pass_add_groups_here};
    pass->shards = lk__calloc((size_t)shards, sizeof *pass->shards);
    pass->group_samples = lk__calloc((size_t)shards, sizeof *pass->group_samples);
    pass->sets = lk__calloc((size_t)shards, sizeof *pass->sets);
    pass->memory = lk__calloc((size_t)(shards * (5 + v + 2 * p + t)), sizeof *pass->memory);
    if (!pass->shards || !pass->group_samples || !pass->sets || !pass->memory)
        return LK_ERR_MEMORY;
    lk_tensor **slots = pass->memory;
    pass->images = shard_pass_take_slots(&slots, shards);
    pass->indices = shard_pass_take_slots(&slots, shards);
    pass->logits = shard_pass_take_slots(&slots, shards);
    pass->losses = shard_pass_take_slots(&slots, shards);
    pass->seeds = shard_pass_take_slots(&slots, shards);
    pass->views = shard_pass_take_slots(&slots, shards * v);
    pass->watched = shard_pass_take_slots(&slots, shards * p);
    pass->gradients = shard_pass_take_slots(&slots, shards * p);
    pass->statistics = shard_pass_take_slots(&slots, shards * t);
    return LK_OK;
}

void lk__shard_pass_free(lk_shard_pass *pass)
{
    lk__free(pass->shards);
    lk__free(pass->group_samples);
    lk__free(pass->sets);
    lk__free(pass->memory);
}

/* --- shards ------------------------------------------------------------------------------------------------------- */

void lk__shard_pass_start(lk_shard_pass *pass, const lk_update *update, lk_batch *batch, int64_t count)
{
    pass->update = update;
    pass->batch = batch;
    pass->count = count;
    pass->n = 0;
}

lk_status lk__shard_pass_take(lk_shard_pass *pass, const lk_shard *shard, lk_tensor *seed)
{
    const lk_trainer *trainer = pass->trainer;
    int64_t p = trainer->n_parameters, v = trainer->n_variables, i = pass->n++;
    lk_tensor *const *variables = lk_trainer_variables(trainer, shard->replica);
    lk_range group = lk__samples_of_shards(pass->count, shard->shards, lk__group_of(trainer, shard->index));
    pass->shards[i] = *shard;
    pass->group_samples[i] = lk__max(group.end - group.begin, 1); /* a blank shard's group may have none */
    pass->images[i] = shard->images;
    pass->indices[i] = shard->indices;
    pass->seeds[i] = seed;
    pass->sets[i] = pass->views + i * v;
    memcpy(pass->views + i * v, variables, (size_t)v * sizeof(lk_tensor *));
    for (int64_t k = i * v; k < i * v + p; k++) {
        pass->views[k] = lk_reshape(pass->views[k], lk_tensor_shape(pass->views[k]));
        if (!pass->views[k])
            return lk_error_status();
    }
    memcpy(pass->watched + i * p, pass->views + i * v, (size_t)p * sizeof(lk_tensor *));
    return LK_OK;
}

lk_status lk__shard_pass_add(lk_shard_pass *pass, int64_t index, int replica, lk_tensor *seed)
{
    lk_trainer *trainer = pass->trainer;
    lk_range samples = lk_part(pass->count, trainer->plan.shards, index);
    lk_shard shard = {.replica = replica, .index = index, .shards = trainer->plan.shards};
    if (samples.begin == samples.end)
        return LK_OK;
    LK_TRY(lk__shard_of_batch(trainer->data.train_set, pass->batch, samples, trainer->devices[replica], &shard));
    LK_TRY(lk__device_data_start(trainer->data.train_on_devices, pass->batch->epoch));
    LK_TRY(lk__device_data_prepare(trainer->data.train_on_devices,
                                   lk__device_data_epoch(trainer->data.train_on_devices, replica), &shard));
    return lk__shard_pass_take(pass, &shard, seed);
}

lk_status lk__shard_pass_add_blank(lk_shard_pass *pass, int64_t index, lk_tensor *seed)
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
    return lk__shard_pass_take(pass, &shard, seed);
}

/* --- the passes --------------------------------------------------------------------------------------------------- */

lk_forward_opts lk__shard_pass_opts(lk_shard_pass *pass)
{
    lk_forward_opts opts = lk__training_opts(pass->trainer, pass->update);
    opts.indices = pass->indices;
    opts.group_samples = pass->group_samples;
    if (pass->trainer->sums.groups) {
        opts.sync = shard_pass_sync;
        opts.sync_user = pass;
    }
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

lk_status lk__shard_pass_statistics(lk_shard_pass *pass)
{
    lk_forward_opts opts = lk__shard_pass_opts(pass);
    opts.statistics = pass->statistics;
    return lk__shard_pass_forward(pass, &opts);
}

typedef struct shard_pass_values {
    lk_shard_pass *pass;
    lk_tensor **values;
} shard_pass_values;

static lk_status shard_pass_forward_metrics(void *user)
{
    const shard_pass_values *v = user;
    const lk_trainer *trainer = v->pass->trainer;
    LK_TRY(lk__shard_pass_statistics(v->pass));
    for (int64_t i = 0; i < v->pass->n; i++) {
        lk_tensor **metrics = v->values + i * trainer->sums.n_values + trainer->sums.n_updated;
        LK_TRY(lk__metrics_of(trainer, v->pass->logits[i], &v->pass->shards[i], true, metrics));
        v->pass->losses[i] = metrics[0];
    }
    return LK_OK;
}

lk_status lk__shard_pass_train(lk_shard_pass *pass, lk_tensor **values)
{
    const lk_trainer *trainer = pass->trainer;
    int64_t p = trainer->n_parameters, t = lk__statistics_count(trainer);
    shard_pass_values v = {pass, values};
    LK_TRY(lk__shard_pass_gradients(pass, shard_pass_forward_metrics, &v));
    for (int64_t i = 0; i < pass->n; i++) {
        lk_tensor **its = values + i * trainer->sums.n_values;
        memcpy(its, pass->gradients + i * p, (size_t)p * sizeof(lk_tensor *));
        memcpy(its + p, pass->statistics + i * t, (size_t)t * sizeof(lk_tensor *));
    }
    return LK_OK;
}
