#include "train/replicas.h"

#include "base/mem.h"
#include "base/status.h"
#include "core/backend.h"
#include "dist/collectives/slices.h"
#include "dist/strategy.h"
#include "dist/sum/stored.h"
#include "nn/layers/batch_norm_layer.h"
#include "ops/support.h"
#include "optim/optimizer.h"
#include "optim/optimizer_step.h"
#include "train/checkpoint/checkpoint.h"
#include "train/checkpoint/replicas_state.h"
#include "train/trainer.h"
#include "train/update_program.h"

struct lk_replicas {
    lk_strategy *strategy;
    const lk_model *model;
    int n_devices, n_owners, n_parameters, n_variables, n_statistics;
    lk_tensor **variables; /* [replica * n_variables + i]: read by passes */
    lk_tensor **owned;  /* [owner * n_variables + i]: written by updates; `variables` if every replica owns its own */
    lk_tensor **packed; /* [owner]: the parameters, packed by lk_pack */
    lk_optimizer **optimizers;   /* [owner]; NULL: none */
    lk_slices *slices;           /* of `packed`, which the owners update; NULL: each owner updates all of them */
    lk_update_programs *updates; /* of devices that compile */
    float *kept;                 /* by lk_replicas_keep: all variables, one after the other; NULL: nothing is kept */
    lk_tensor *skipped; /* of devices that compile: whether the first owner's last update was skipped; may be NULL */
    lk_stored *stored;  /* how the replicas read the variables that one device stores; NULL: each has its own */
};

/* Returns whether the owners' devices compile programs and run nothing else fast. */
static bool replicas_compile(const lk_replicas *replicas)
{
    return lk_tensor_device(replicas->owned[0])->backend->modules;
}

static lk_status replicas_init_variables(lk_replicas *replicas, uint64_t seed)
{
    lk_tensor **initial = lk__calloc((size_t)replicas->n_variables, sizeof *initial);
    if (!initial)
        return LK_ERR_MEMORY;
    lk_scope_begin();
    lk_status status = lk_model_init(replicas->model, lk_strategy_device(replicas->strategy, 0), seed, initial);
    if (status == LK_OK)
        status = lk_strategy_distribute(replicas->strategy, initial, replicas->n_variables, replicas->owned);
    lk_scope_end();
    lk__free(initial);
    return status;
}

/* Packs tensors[0 … n). *packed: a reference to the packed tensor, which no scope owns. */
static lk_status replicas_pack(lk_tensor **tensors, int n, lk_tensor **packed)
{
    lk_scope_begin();
    lk_status status = lk_pack(tensors, n, packed);
    *packed = status == LK_OK ? lk_tensor_retain(*packed) : NULL;
    lk_scope_end();
    return status;
}

static lk_status replicas_make_stored(lk_replicas *replicas)
{
    lk_device *devices[LK_MAX_DEVICES];
    for (int r = 0; r < replicas->n_devices; r++)
        devices[r] = lk_strategy_device(replicas->strategy, r);
    /* Buffers are packed as well, because replicas fetch the stored variables piece by piece. */
    int n = replicas->n_parameters, buffers = replicas->n_variables - n;
    lk_tensor *packed = NULL;
    if (buffers > 0)
        LK_TRY(replicas_pack(replicas->owned + n, buffers, &packed));
    lk_tensor_release(packed); /* the buffers keep its memory */
    return lk__stored_new(replicas->owned, replicas->n_variables, devices, replicas->n_devices, replicas->variables,
                          &replicas->stored);
}

static lk_status replicas_make_optimizer(lk_replicas *replicas, const lk_optimizer_opts *opts, int owner)
{
    lk_tensor *packed = replicas->packed[owner], *own = packed;
    int64_t begin = 0;
    if (replicas->slices) {
        begin = lk__slices_range(replicas->slices, owner).begin;
        own = lk__slices_own(replicas->slices, owner);
    }
    replicas->optimizers[owner] =
        lk__optimizer_new_slice(opts, packed, lk__replicas_owned(replicas, owner), replicas->n_parameters, own, begin);
    if (!replicas->optimizers[owner])
        return lk_error_status();
    return replicas_compile(replicas) ? lk__optimizer_prepare_recording(replicas->optimizers[owner]) : LK_OK;
}

static lk_status replicas_make_optimizers(lk_replicas *replicas, const lk_optimizer_opts *opts)
{
    replicas->optimizers = lk__calloc((size_t)replicas->n_owners, sizeof(lk_optimizer *));
    if (!replicas->optimizers)
        return LK_ERR_MEMORY;
    for (int o = 0; o < replicas->n_owners; o++)
        LK_TRY(replicas_pack(replicas->owned + (int64_t)o * replicas->n_variables, replicas->n_parameters,
                             &replicas->packed[o]));
    if (replicas->strategy->sharded && replicas->strategy->ranks > 1)
        LK_TRY(lk__slices_new(replicas->strategy, replicas->packed, &replicas->slices));
    for (int o = 0; o < replicas->n_owners; o++)
        LK_TRY(replicas_make_optimizer(replicas, opts, o));
    return LK_OK;
}

static lk_status replicas_build(lk_replicas *replicas, const lk_optimizer_opts *opts, uint64_t seed)
{
    size_t k = (size_t)replicas->n_devices;
    bool is_central = lk_strategy_storage(replicas->strategy);
    replicas->variables = lk__calloc(k * (size_t)replicas->n_variables, sizeof(lk_tensor *));
    replicas->owned = is_central ? lk__calloc((size_t)replicas->n_variables, sizeof(lk_tensor *)) : replicas->variables;
    replicas->packed = lk__calloc((size_t)replicas->n_owners, sizeof(lk_tensor *));
    if (!replicas->variables || !replicas->owned || !replicas->packed)
        return LK_ERR_MEMORY;
    LK_TRY(replicas_init_variables(replicas, seed));
    if (opts)
        LK_TRY(replicas_make_optimizers(replicas, opts));
    return is_central ? replicas_make_stored(replicas) : LK_OK;
}

lk_replicas *lk_replicas_new(lk_strategy *strategy, const lk_model *model, const lk_optimizer_opts *opts, uint64_t seed)
{
    lk_replicas *replicas = lk__calloc(1, sizeof *replicas);
    if (!replicas)
        return NULL;
    replicas->strategy = strategy;
    replicas->model = model;
    replicas->n_devices = lk_strategy_num_replicas(strategy);
    replicas->n_owners = lk_strategy_owners(strategy);
    replicas->n_parameters = lk_model_parameter_count(model);
    replicas->n_variables = lk_model_variable_count(model);
    replicas->n_statistics = lk_model_statistics_count(model);
    if (replicas_build(replicas, opts, seed) == LK_OK)
        return replicas;
    lk_replicas_release(replicas);
    return NULL;
}

void lk_replicas_release(lk_replicas *replicas)
{
    if (!replicas)
        return;
    lk__stored_release(replicas->stored);
    lk__update_programs_release(replicas->updates);
    lk_tensor_release(replicas->skipped);
    for (int o = 0; replicas->optimizers && o < replicas->n_owners; o++)
        lk_optimizer_release(replicas->optimizers[o]);
    lk__slices_release(replicas->slices);
    lk__release_tensors(replicas->packed, replicas->n_owners);
    lk__release_tensors(replicas->variables, (int64_t)replicas->n_devices * replicas->n_variables);
    if (replicas->owned != replicas->variables) {
        lk__release_tensors(replicas->owned, replicas->n_variables);
        lk__free(replicas->owned);
    }
    LK_FREE_ALL(replicas->kept, replicas->optimizers, replicas->packed, replicas->variables, replicas);
}

lk_tensor *const *lk_replicas_variables(const lk_replicas *replicas, int replica)
{
    if (replica < 0 || replica >= replicas->n_devices)
        return NULL;
    return replicas->variables + (int64_t)replica * replicas->n_variables;
}

lk_tensor *const *lk__replicas_stored(const lk_replicas *replicas)
{
    return replicas->stored ? replicas->owned : NULL;
}

const lk_model *lk__replicas_model(const lk_replicas *replicas)
{
    return replicas->model;
}

lk_optimizer *lk_replicas_optimizer(const lk_replicas *replicas, int replica)
{
    if (!replicas->optimizers || replica < 0 || replica >= replicas->n_devices)
        return NULL;
    return replicas->optimizers[replicas->n_owners == 1 ? 0 : replica];
}

/* --- averages and kept variables ---------------------------------------------------------------------------------- */

lk_status lk_replicas_swap_average(lk_replicas *replicas)
{
    if (!replicas->optimizers || !replicas->optimizers[0]->average)
        LK_FAIL(LK_ERR_STATE, "replicas: there is no average of the parameters (lk_optimizer_opts.average)");
    LK_TRY(lk__replicas_begin_update(replicas));
    for (int o = 0; o < replicas->n_owners; o++)
        LK_TRY(lk__optimizer_swap_average(replicas->optimizers[o]));
    if (replicas->slices)
        LK_TRY(lk__slices_gather(replicas->slices));
    return lk__replicas_end_update(replicas);
}

float *lk__replicas_kept(lk_replicas *replicas, bool make)
{
    int64_t elements = 0;
    for (int i = 0; i < replicas->n_variables; i++)
        elements += lk_shape_count(lk_model_variable_shape(replicas->model, i));
    if (!replicas->kept && make)
        replicas->kept = lk__calloc((size_t)elements, sizeof *replicas->kept);
    return replicas->kept;
}

lk_status lk_replicas_keep(lk_replicas *replicas)
{
    float *kept = lk__replicas_kept(replicas, true);
    return kept ? lk__replicas_read(replicas, kept) : LK_ERR_MEMORY;
}

lk_status lk_replicas_take_back(lk_replicas *replicas)
{
    if (!replicas->kept)
        LK_FAIL(LK_ERR_STATE, "replicas: nothing is kept to take back");
    const float **values = lk__calloc((size_t)replicas->n_variables, sizeof *values), *at = replicas->kept;
    if (!values)
        return LK_ERR_MEMORY;
    for (int i = 0; i < replicas->n_variables; i++) {
        values[i] = at;
        at += lk_shape_count(lk_model_variable_shape(replicas->model, i));
    }
    lk_status status = lk__replicas_write(replicas, values);
    lk__free((void *)values);
    return status;
}

/* --- updates ------------------------------------------------------------------------------------------------------ */

int lk__replicas_owners(const lk_replicas *replicas)
{
    return replicas->n_owners;
}

lk_tensor *const *lk__replicas_owned(const lk_replicas *replicas, int owner)
{
    return replicas->owned + (int64_t)owner * replicas->n_variables;
}

const lk_slices *lk__replicas_slices(const lk_replicas *replicas)
{
    return replicas->slices;
}

lk_status lk__replicas_begin_update(lk_replicas *replicas)
{
    return replicas->stored ? lk__stored_begin_update(replicas->stored) : LK_OK;
}

lk_status lk__replicas_end_update(lk_replicas *replicas)
{
    return replicas->stored ? lk__stored_end_update(replicas->stored) : LK_OK;
}

/* Updates an owner's running statistics, unless its optimizer has skipped the update. */
static lk_status replicas_update_statistics(lk_replicas *replicas, int owner, lk_tensor *const *sums, int64_t samples)
{
    if (replicas->n_statistics == 0)
        return LK_OK;
    return lk_model_update_statistics(replicas->model, lk__replicas_owned(replicas, owner),
                                      sums + replicas->n_parameters, samples, 0,
                                      lk_optimizer_skipped(replicas->optimizers[owner]));
}

static lk_status replicas_push_update(lk_replicas *replicas, int owner, lk_tensor *const *sums, int loss,
                                      int64_t samples, double rate)
{
    LK_TRY(lk__optimizer_step(LK_HERE, replicas->optimizers[owner], sums, loss < 0 ? NULL : sums[loss], rate));
    return replicas_update_statistics(replicas, owner, sums, samples);
}

static lk_status replicas_run_update(lk_replicas *replicas, int owner, lk_tensor *const *sums, int loss,
                                     int64_t samples, double rate)
{
    lk_tensor *skipped = NULL;
    LK_TRY(lk__update_program_run(&replicas->updates, replicas, owner, sums,
                                  replicas->n_parameters + replicas->n_statistics, loss, samples, rate, &skipped));
    if (owner > 0) {
        lk_tensor_release(skipped);
        return LK_OK;
    }
    lk_tensor_release(replicas->skipped);
    replicas->skipped = skipped;
    return LK_OK;
}

lk_tensor *lk__replicas_skipped(const lk_replicas *replicas)
{
    return replicas_compile(replicas) ? replicas->skipped : lk_optimizer_skipped(lk_replicas_optimizer(replicas, 0));
}

/* Checks the sums for an owner's update. */
static lk_status replicas_check_sums(const lk_replicas *replicas, int owner, lk_tensor *const *sums, int64_t samples,
                                     double rate)
{
    lk_tensor *const *variables = lk__replicas_owned(replicas, owner);
    LK_TRY(lk__optimizer_check_step(replicas->optimizers[owner], sums, rate));
    for (int i = 0; i < replicas->n_statistics; i++) {
        const lk_tensor *have = sums[replicas->n_parameters + i];
        int mean, variance;
        lk__batch_norm_running(replicas->model->statistics.layers[i], &mean, &variance);
        if (!have)
            LK_FAIL(LK_ERR_ARGUMENT, "replicas: statistics %d of batch-norm are NULL", i);
        LK_TRY(lk__check_like("replicas", "a sum of batch-norm", have, LK_F64,
                              LK_SHAPE(2, lk_tensor_shape(variables[mean]).dim[0])));
        if (lk_tensor_device(have) != lk_tensor_device(variables[mean]))
            LK_FAIL(LK_ERR_DEVICE, "replicas: statistics %d of batch-norm are on %s; the variables are on %s", i,
                    lk_device_name(lk_tensor_device(have)), lk_device_name(lk_tensor_device(variables[mean])));
    }
    if (replicas->n_statistics > 0 && samples < 1)
        LK_FAIL(LK_ERR_ARGUMENT, "replicas: %lld samples; there must be at least 1", (long long)samples);
    return LK_OK;
}

lk_status lk__replicas_apply(lk_replicas *replicas, lk_tensor *const *sums, int stride, int loss, int64_t samples,
                             double rate)
{
    if (!replicas->optimizers)
        LK_FAIL(LK_ERR_STATE, "replicas: there is no optimizer to apply gradients with");
    /* All are checked before the first owner's update, because an error must not leave replicas that differ. */
    for (int o = 0; o < replicas->n_owners; o++)
        LK_TRY(replicas_check_sums(replicas, o, sums + (int64_t)o * stride, samples, rate));
    LK_TRY(lk__replicas_begin_update(replicas));
    for (int o = 0; o < replicas->n_owners; o++) {
        lk_tensor *const *values = sums + (int64_t)o * stride;
        LK_TRY(replicas_compile(replicas) ? replicas_run_update(replicas, o, values, loss, samples, rate)
                                          : replicas_push_update(replicas, o, values, loss, samples, rate));
    }
    if (replicas->slices)
        LK_TRY(lk__slices_gather(replicas->slices));
    return lk__replicas_end_update(replicas);
}

lk_status lk__replicas_record(lk_replicas *replicas, int owner, lk_tensor *const *sums, int loss, int64_t samples,
                              lk_tensor *rates)
{
    LK_TRY(lk__optimizer_record(LK_HERE, replicas->optimizers[owner], sums, loss < 0 ? NULL : sums[loss], rates));
    return replicas_update_statistics(replicas, owner, sums, samples);
}

lk_status lk__replicas_set_statistics(lk_replicas *replicas, lk_tensor *const *sums, int64_t samples, double momentum)
{
    LK_TRY(lk__replicas_begin_update(replicas));
    for (int o = 0; o < replicas->n_owners; o++)
        LK_TRY(lk_model_update_statistics(replicas->model, lk__replicas_owned(replicas, o),
                                          sums + (int64_t)o * replicas->n_statistics, samples, momentum, NULL));
    return lk__replicas_end_update(replicas);
}

lk_status lk_replicas_apply(lk_replicas *replicas, lk_tensor *const *sums, int stride, int64_t samples, double rate)
{
    return lk__replicas_apply(replicas, sums, stride, -1, samples, rate);
}
