/* A trainer is built from a plan: devices, data, model, sums, replicas, programs. */
#include "train/trainer.h"

#include "base/heartbeat.h"
#include "base/mem.h"
#include "base/status.h"
#include "core/backend.h"
#include "dist/process/group.h"
#include "nn/model.h"
#include "optim/optimizer.h"
#include "train/audit.h"
#include "train/parameter_server/ps_chief.h"
#include "train/plan/agreement.h"
#include "train/plan/choices.h"
#include "train/plan/gpu_memory.h"
#include "train/plan/host_memory.h"
#include "train/plan/plan.h"
#include "train/resume.h"
#include "train/step/device_data.h"
#include "train/step/micro_batch.h"
#include "train/trainer_devices.h"

#include "lockstep/checkpoint.h"

/* The caller may have given a model that was built for other images. */
static lk_status trainer_check_model(const lk_model *model, lk_model_input data)
{
    lk_model_input have = lk_model_get_input(model);
    if (have.channels == data.channels && have.height == data.height && have.width == data.width &&
        have.classes == data.classes)
        return LK_OK;
    LK_FAIL(LK_ERR_SHAPE,
            "model %s is for images of %lldx%lldx%lld in %lld classes, the data are %lldx%lldx%lld in %lld",
            lk_model_name(model), (long long)have.channels, (long long)have.height, (long long)have.width,
            (long long)have.classes, (long long)data.channels, (long long)data.height, (long long)data.width,
            (long long)data.classes);
}

static lk_status trainer_make_model(lk_trainer *trainer)
{
    const lk_dataset *data = trainer->data.train_set;
    lk_plan *plan = &trainer->plan;
    lk_model_input input = {lk_dataset_channels(data), lk_dataset_height(data), lk_dataset_width(data),
                            lk_dataset_classes(data)};
    if (!trainer->model)
        trainer->model = lk_model_new(trainer->config.model, input);
    if (!trainer->model)
        return lk_error_status();
    LK_TRY(trainer_check_model(trainer->model, input));
    LK_TRY(lk_model_freeze(trainer->model, trainer->config.freeze));
    plan->model = lk_model_name(trainer->model);
    trainer->n_parameters = lk_model_parameter_count(trainer->model);
    trainer->n_variables = lk_model_variable_count(trainer->model);
    for (int i = 0; i < trainer->n_variables && !trainer->model->variables[i].buffer; i++) {
        int64_t count = lk_shape_count(lk_model_variable_shape(trainer->model, i));
        plan->parameters += count;
        plan->frozen += i < trainer->n_parameters ? 0 : count;
    }
    if (trainer->n_parameters == 0)
        LK_FAIL(LK_ERR_ARGUMENT, "%s %s: nothing is left to train; it must leave at least one parameter of model %s",
                trainer->config.freeze ? "--freeze" : "model", trainer->config.freeze ? trainer->config.freeze : "",
                plan->model);
    if (plan->optimizer_opts.average > 0 && trainer->server.has_optimizer)
        LK_FAIL(LK_ERR_UNSUPPORTED,
                "--ema: servers of strategy parameter-server keep no average of what they hold; the other strategies "
                "do");
    if (plan->frozen > 0 && trainer->server.has_optimizer)
        LK_FAIL(LK_ERR_UNSUPPORTED,
                "--strategy parameter-server: servers hold the parameters that change, and workers would not get the "
                "frozen ones; the other strategies train with them");
    for (int i = 0; i < lk_model_layer_count(trainer->model); i++)
        plan->step_flops += 3 * (double)plan->batch_size * lk_model_layer(trainer->model, i).flops;
    plan->assumed_rate = trainer->devices[0]->backend->offload ? 5e12 : 5e10;
    return lk__plan_micro_batches(trainer);
}

static lk_status trainer_build(lk_trainer *trainer)
{
    const lk_train_config *config = &trainer->config;
    /* Cheap checks come before data are read or fetched. */
    const char *name = trainer->model ? lk_model_name(trainer->model) : config->model;
    LK_TRY(lk__plan_numbers(config, name, &trainer->plan));
    const char *skip = config->checkpoints.weights_skip, *weights = config->checkpoints.weights;
    if (skip && *skip && !(weights && *weights))
        LK_FAIL(LK_ERR_ARGUMENT, "--weights-skip %s: must be with --weights", skip);
    if (!trainer->model)
        LK_TRY(lk_model_check(name));
    LK_TRY(lk__ps_find_role(trainer));
    LK_TRY(lk__resume_open(trainer));
    LK_TRY(lk__ps_open(trainer));
    LK_TRY(lk__trainer_devices_open(trainer));
    LK_TRY(lk__trainer_data_open(trainer));
    LK_TRY(lk__plan_schedule(config, name, &trainer->plan));
    LK_TRY(trainer_make_model(trainer));
    LK_TRY(lk__check_host_memory(trainer));
    LK_TRY(lk__device_data_open(trainer));
    LK_TRY(lk__trainer_data_make_loaders(trainer));
    LK_TRY(lk__trainer_sums_new(trainer));
    trainer->replicas = lk_replicas_new(trainer->strategy, trainer->model,
                                        trainer->server.role == LK_TRAIN_WORKER ? NULL : &trainer->plan.optimizer_opts,
                                        trainer->plan.seed);
    if (!trainer->replicas)
        return lk_error_status();
    LK_TRY(lk__trainer_sums_place(trainer));
    LK_TRY(lk__trainer_programs_new(trainer));
    LK_TRY(lk__plan_audit(trainer));
    LK_TRY(lk__list_implementations(trainer));
    if (config->checkpoints.weights && *config->checkpoints.weights && !trainer->resumed &&
        trainer->server.role != LK_TRAIN_WORKER)
        LK_TRY(
            lk_replicas_load_weights(trainer->replicas, config->checkpoints.weights, config->checkpoints.weights_skip));
    LK_TRY(lk__resume_restore(trainer));
    LK_TRY(lk__agree_on_work(trainer));
    LK_TRY(lk__check_gpu_memory(trainer));
    return lk__ps_start(trainer);
}

/* Takes `model`; NULL: builds config->model. */
static lk_trainer *trainer_make(const lk_train_config *config, lk_model *model)
{
    lk__heartbeat_begin();
    lk_trainer *trainer = lk__calloc(1, sizeof *trainer);
    if (!trainer) {
        lk_model_release(model);
        return NULL;
    }
    trainer->config = *config;
    trainer->model = model;
    atomic_init(&trainer->progress.interrupted, false);
    lk_status status = trainer_build(trainer);
    if (status == LK_OK)
        return trainer;
    lk__processes_give_up(status);
    lk_trainer_release(trainer);
    return NULL;
}

lk_trainer *lk_trainer_new(const lk_train_config *config)
{
    return trainer_make(config, NULL);
}

lk_trainer *lk_trainer_new_with(const lk_train_config *config, lk_model *model)
{
    if (model)
        return trainer_make(config, model);
    if (lk_error_status() == LK_OK)
        lk__fail(LK_ERR_ARGUMENT, "trainer: a NULL model");
    return NULL;
}

void lk_trainer_release(lk_trainer *trainer)
{
    if (!trainer)
        return;
    lk__callbacks_release(&trainer->callbacks);
    lk__ps_release(trainer->server.chief);
    lk__free(trainer->scaling);
    lk__pending_drop(trainer);
    lk__trainer_programs_release(&trainer->programs);
    lk__trainer_sums_release(trainer);
    lk_replicas_release(trainer->replicas);
    lk__trainer_data_release(&trainer->data);
    lk_checkpoint_release(trainer->resumed);
    lk_model_release(trainer->model);
    lk_strategy_release(trainer->strategy);
    lk_tuning_release(trainer->implementations);
    lk_devices_release(trainer->devices, trainer->n_devices);
    lk__free(trainer);
}

const lk_plan *lk_trainer_plan(const lk_trainer *trainer)
{
    return &trainer->plan;
}

const lk_train_config *lk_trainer_config(const lk_trainer *trainer)
{
    return &trainer->config;
}

const lk_tuning *lk_trainer_implementations(const lk_trainer *trainer)
{
    return trainer->implementations;
}

lk_strategy *lk_trainer_strategy(const lk_trainer *trainer)
{
    return trainer->strategy;
}

const lk_model *lk_trainer_model(const lk_trainer *trainer)
{
    return trainer->model;
}

const lk_dataset *lk_trainer_dataset(const lk_trainer *trainer, lk_split split)
{
    return split == LK_SPLIT_TRAIN ? trainer->data.train_set : trainer->data.val_set;
}

lk_tensor *const *lk_trainer_variables(const lk_trainer *trainer, int replica)
{
    return lk_replicas_variables(trainer->replicas, replica);
}

lk_tensor *const *lk_trainer_gradients(const lk_trainer *trainer)
{
    const lk_optimizer *optimizer = lk_replicas_optimizer(trainer->replicas, 0);
    return optimizer && !trainer->server.has_optimizer ? lk_optimizer_gradients(optimizer) : NULL;
}

lk_status lk_trainer_add(lk_trainer *trainer, lk_callback callback)
{
    trainer->is_unrepeatable |= callback.rate != NULL;
    return lk__callbacks_add(&trainer->callbacks, callback);
}

lk_status lk__trainer_swap_average(lk_trainer *trainer, lk_status status)
{
    if (trainer->plan.optimizer_opts.average == 0)
        return status;
    lk_status swapped = lk_replicas_swap_average(trainer->replicas);
    trainer->progress.averaged = !trainer->progress.averaged;
    return status == LK_OK ? swapped : status;
}

void lk_trainer_interrupt(lk_trainer *trainer)
{
    atomic_store(&trainer->progress.interrupted, true);
}
