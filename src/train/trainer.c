/* A trainer is built from a plan: data, devices, model, replicas, loaders. */
#include "train/trainer.h"

#include "base/heartbeat.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/status.h"
#include "data/dataset.h"
#include "dist/group.h"
#include "lockstep/checkpoint.h"
#include "nn/model.h"
#include "optim/optimizer.h"

#include <stdio.h>
#include <string.h>

/* --- data --------------------------------------------------------------------------------------------------------- */

/* The loader's threads; nothing else runs while pictures are decoded, so there may be one for each core. */
static int decoding_threads(const lk_train_config *config)
{
    int cores = lk_device_available("cpu");
    return config->workers > 0 && config->workers < cores ? cores : (int)config->workers;
}

lk_dataset_opts lk_train_dataset_opts(const lk_train_config *config)
{
    return (lk_dataset_opts){.dir = config->data_dir,
                             .resize = config->resize,
                             .channels = config->channels,
                             .val_split = config->val_split,
                             .shape = config->image_shape,
                             .label_column = config->label_column,
                             .skip_bad = config->skip_bad,
                             .threads = decoding_threads(config),
                             .cache_dir = config->data_cache,
                             .progress = config->data_progress,
                             .progress_user = config->data_progress_user};
}

static lk_status open_split(const char *name, lk_split split, const lk_train_config *config, int64_t limit,
                            lk_dataset **dataset)
{
    lk_dataset_opts opts = lk_train_dataset_opts(config);
    opts.limit = limit > 0 ? limit : 0;
    return lk_dataset_open(name, split, &opts, dataset);
}

static lk_status check_name(const char *name)
{
    if (strcmp(name, "auto") != 0 && !lk_dataset_is_known(name))
        LK_FAIL(LK_ERR_ARGUMENT, "--data %s: must be one of %s, auto, or the path of a folder or file", name,
                lk_dataset_names());
    return LK_OK;
}

/* "auto" falls back only where the data are nowhere to be had: a damaged file is still an error. */
static lk_status open_train_set(lk_trainer *trainer)
{
    const lk_train_config *config = &trainer->config;
    lk_plan *plan = &trainer->plan;
    bool automatic = strcmp(config->data, "auto") == 0;
    plan->data = automatic ? "fashion-mnist" : config->data;
    lk_status status = open_split(plan->data, LK_SPLIT_TRAIN, config, config->limit_train, &trainer->train_set);
    if (!automatic || status != LK_ERR_NOT_FOUND)
        return status;
    lk__log(LK_LOG_WARNING, "%s", lk_error_message());
    lk_error_clear();
    plan->fell_back = true;
    plan->data = "synthetic";
    return open_split(plan->data, LK_SPLIT_TRAIN, config, config->limit_train, &trainer->train_set);
}

lk_status lk__check_images(const lk_trainer *trainer, const lk_dataset *dataset, lk_status error)
{
    const lk_dataset *train = trainer->train_set;
    long long c = lk_dataset_channels(train), h = lk_dataset_height(train), w = lk_dataset_width(train);
    if (lk_dataset_channels(dataset) == c && lk_dataset_height(dataset) == h && lk_dataset_width(dataset) == w)
        return LK_OK;
    LK_FAIL(error, "%s: images of %lldx%lldx%lld, expected %lldx%lldx%lld as in %s", lk_dataset_source(dataset),
            (long long)lk_dataset_channels(dataset), (long long)lk_dataset_height(dataset),
            (long long)lk_dataset_width(dataset), c, h, w, lk_dataset_source(train));
}

/* What has no image cannot be learned. Where limit_train is the reason that may be meant so, to try things. */
static lk_status check_classes(const lk_dataset *train, int64_t limit, lk_plan *plan)
{
    int64_t first, empty;
    plan->classes = lk_dataset_classes(train);
    LK_TRY(lk__dataset_empty_classes(train, false, &plan->empty_classes, &first));
    if (plan->empty_classes == 0)
        return LK_OK;
    LK_TRY(lk__dataset_empty_classes(train, true, &empty, &first));
    if (empty == 0) {
        lk__log(LK_LOG_WARNING,
                "%lld of %lld classes have no training image, and will not be learned: --limit-train %lld is too small",
                (long long)plan->empty_classes, (long long)plan->classes, (long long)limit);
        return LK_OK;
    }
    const char *name = lk_dataset_class_name(train, first);
    if (!name && empty == 1 && first == 0) {
        lk__log(LK_LOG_WARNING,
                "%s: labels begin with 1: of %lld classes the first, 0, has no image and will not be learned",
                lk_dataset_source(train), (long long)plan->classes);
        return LK_OK;
    }
    LK_FAIL(LK_ERR_FORMAT, "%s: class %lld%s%s%s has no image; training needs some of each of the %lld classes",
            lk_dataset_source(train), (long long)first, name ? " (" : "", name ? name : "", name ? ")" : "",
            (long long)plan->classes);
}

static lk_status open_data(lk_trainer *trainer)
{
    const lk_train_config *config = &trainer->config;
    lk_plan *plan = &trainer->plan;
    LK_TRY(check_name(config->data));
    LK_TRY(open_train_set(trainer));
    LK_TRY(check_classes(trainer->train_set, config->limit_train, plan));
    if (plan->top_k > plan->classes)
        LK_FAIL(LK_ERR_ARGUMENT, "--top-k %lld: there are %lld classes", (long long)plan->top_k,
                (long long)plan->classes);
    if (config->limit_val != 0) {
        LK_TRY(open_split(plan->data, LK_SPLIT_TEST, config, config->limit_val, &trainer->val_set));
        LK_TRY(lk__check_images(trainer, trainer->val_set, LK_ERR_FORMAT));
    }
    plan->source = lk_dataset_source(trainer->train_set);
    plan->train_samples = lk_dataset_count(trainer->train_set);
    plan->val_samples = trainer->val_set ? lk_dataset_count(trainer->val_set) : 0;
    plan->steps_per_epoch = (plan->train_samples + plan->batch_size - 1) / plan->batch_size;
    plan->updates_per_epoch = (plan->steps_per_epoch + plan->accumulate - 1) / plan->accumulate;
    plan->schedule.updates_per_epoch = plan->updates_per_epoch;
    if (plan->augment.center || plan->augment.standardize)
        return lk_dataset_moments(trainer->train_set, &trainer->moments);
    return LK_OK;
}

/* Of all devices of this process. */
static lk_range own_shards(const lk_trainer *trainer)
{
    int ranks = lk_strategy_ranks(trainer->strategy), first = lk_strategy_first_rank(trainer->strategy);
    return (lk_range){lk_part(trainer->plan.shards, ranks, first).begin,
                      lk_part(trainer->plan.shards, ranks, first + trainer->n_devices - 1).end};
}

lk_range lk__own_samples(const lk_trainer *trainer, int64_t count)
{
    lk_range own = own_shards(trainer);
    int64_t shards = trainer->plan.shards;
    return (lk_range){lk_part(count, shards, own.begin).begin, lk_part(count, shards, own.end - 1).end};
}

/* Without images there is nothing to prepare ahead. */
lk_status lk__new_loader(const lk_trainer *trainer, const lk__loader_plan *plan, lk_loader **loader)
{
    lk_range own = own_shards(trainer);
    bool is_part = !plan->all_shards && trainer->plan.processes > 1;
    lk_loader_opts opts = {.batch_size = plan->batch_size,
                           .seed = trainer->plan.seed,
                           .shuffle = plan->training,
                           .workers = plan->data ? 0 : plan->workers,
                           .no_images = plan->data != NULL,
                           .augment = &trainer->plan.augment,
                           .moments = trainer->moments.channels ? &trainer->moments : NULL,
                           .evaluation = !plan->training,
                           .shards = is_part ? trainer->plan.shards : 0,
                           .first_shard = own.begin,
                           .end_shard = own.end};
    return lk_loader_new(plan->dataset, &opts, loader);
}

static lk_status make_loaders(lk_trainer *trainer)
{
    const lk_plan *plan = &trainer->plan;
    lk__loader_plan train = {.dataset = trainer->train_set,
                             .data = trainer->train_data,
                             .batch_size = plan->batch_size,
                             .training = true,
                             .workers = trainer->role == LK_TRAIN_WORKER ? 0 : (int)trainer->config.workers};
    lk__loader_plan val = {.dataset = trainer->val_set,
                           .data = trainer->val_data,
                           .batch_size = plan->val_batch_size,
                           .workers = (int)trainer->config.workers};
    LK_TRY(lk__new_loader(trainer, &train, &trainer->train_loader));
    LK_TRY(lk_ledger_new(plan->train_samples, &trainer->train_ledger));
    if (!trainer->val_set)
        return LK_OK;
    LK_TRY(lk__new_loader(trainer, &val, &trainer->val_loader));
    return lk_ledger_new(plan->val_samples, &trainer->val_ledger);
}

/* --- devices ------------------------------------------------------------------------------------------------------ */

static lk_status plan_reduction(lk_trainer *trainer)
{
    char reason[512];
    trainer->plan.compressed = trainer->config.compress != 0;
    LK_TRY(lk_strategy_set_compression(trainer->strategy, trainer->plan.compressed));
    trainer->plan.reduce = (lk_reduce)trainer->config.reduce;
    if (lk_strategy_set_reduce(trainer->strategy, trainer->plan.reduce) == LK_OK)
        return LK_OK;
    snprintf(reason, sizeof reason, "%s", lk_error_message());
    lk_error_clear();
    LK_FAIL(LK_ERR_ARGUMENT, "--reduce nccl: %s", reason);
}

/* A physical device that computes stores with the same queue. */
static lk_device *open_storage(const lk_trainer *trainer)
{
    lk_device *device = lk_device_open(trainer->config.storage);
    for (int d = 0; device && d < trainer->n_devices; d++) {
        if (strcmp(lk_device_name(trainer->devices[d]), lk_device_name(device)) != 0)
            continue;
        lk_device_release(device);
        return lk_device_retain(trainer->devices[d]);
    }
    return device;
}

static lk_status set_storage(lk_trainer *trainer)
{
    const char *spec = trainer->config.storage;
    int count = 1;
    if (spec)
        LK_TRY(lk_devices_count(spec, &count));
    if (count != 1)
        LK_FAIL(LK_ERR_ARGUMENT, "--storage %s: names %d devices; must be one, as in cpu:0", spec, count);
    if (spec) {
        lk_device *device = open_storage(trainer);
        lk_status status = device ? lk_strategy_set_storage(trainer->strategy, device) : lk_error_status();
        lk_device_release(device);
        LK_TRY(status);
    }
    lk_device *storage = lk_strategy_storage(trainer->strategy);
    trainer->plan.storage = storage ? lk_device_name(storage) : NULL;
    return LK_OK;
}

static lk_status open_devices(lk_trainer *trainer)
{
    const lk_train_config *config = &trainer->config;
    lk_plan *plan = &trainer->plan;
    lk__spec_text devices;
    int cores;
    if (config->strategy)
        LK_TRY(lk_strategy_find(config->strategy, config->pjrt));
    LK_TRY(lk__join_processes(trainer, &cores));
    LK_TRY(lk__agree_on_options(trainer));
    if (config->devices) {
        if (snprintf(devices, sizeof devices, "%s", config->devices) >= (int)sizeof devices)
            LK_FAIL(LK_ERR_ARGUMENT, "--devices: longer than %zu characters", sizeof devices - 1);
    } else {
        int64_t shards = config->shards ? config->shards : lk_default_shards(plan->batch_size, 1);
        snprintf(devices, sizeof devices, "%lldxcpu", (long long)(cores < shards ? cores : shards));
    }
    LK_TRY(lk__count_devices(trainer, devices));
    plan->shards = config->shards ? config->shards : lk_default_shards(plan->batch_size, plan->devices);
    if (trainer->resumed && plan->devices > plan->shards)
        LK_FAIL(LK_ERR_ARGUMENT, "--resume: the checkpoint's batches have %lld shards, and %d devices need as many",
                (long long)plan->shards, plan->devices);
    LK_TRY(lk__check_shards(config->shards, plan->shards, plan->batch_size, plan->devices));

    LK_TRY(lk_devices_open(devices, trainer->devices, LK_MAX_DEVICES, &trainer->n_devices));
    LK_TRY(lk__use_algorithms(trainer));
    trainer->strategy = lk_strategy_new(config->strategy          ? config->strategy
                                        : trainer->n_devices == 1 ? "one-device"
                                                                  : "mirrored",
                                        trainer->devices, trainer->n_devices);
    if (!trainer->strategy)
        return lk_error_status();
    plan->strategy = lk_strategy_name(trainer->strategy);
    plan->transport = lk_strategy_transport(trainer->strategy);
    LK_TRY(set_storage(trainer));
    return plan_reduction(trainer);
}

/* --- model -------------------------------------------------------------------------------------------------------- */

/* A model of the caller's has to be made for these images. */
static lk_status check_model_input(const lk_model *model, lk_model_input data)
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

static lk_status make_model(lk_trainer *trainer)
{
    const lk_dataset *data = trainer->train_set;
    lk_plan *plan = &trainer->plan;
    lk_model_input input = {lk_dataset_channels(data), lk_dataset_height(data), lk_dataset_width(data),
                            lk_dataset_classes(data)};
    if (!trainer->model)
        trainer->model = lk_model_new(trainer->config.model, input);
    if (!trainer->model)
        return lk_error_status();
    LK_TRY(check_model_input(trainer->model, input));
    plan->model = lk_model_name(trainer->model);
    trainer->n_parameters = lk_model_parameter_count(trainer->model);
    trainer->n_variables = lk_model_variable_count(trainer->model);
    for (int i = 0; i < trainer->n_parameters; i++)
        plan->parameters += lk_shape_count(lk_model_variable_shape(trainer->model, i));
    return lk__plan_micro_batches(trainer);
}

static lk_status make_replicas(lk_trainer *trainer)
{
    const lk_plan *plan = &trainer->plan;
    int metrics = lk__metric_count(trainer), k = trainer->n_devices;
    trainer->n_updated = trainer->n_parameters + lk_model_statistics_count(trainer->model);
    trainer->n_values = trainer->n_updated + metrics;
    size_t values = (size_t)k * (size_t)trainer->n_values;
    trainer->sums = lk__calloc(values, sizeof *trainer->sums);
    trainer->accumulated = plan->accumulate > 1 ? lk__calloc(values, sizeof *trainer->accumulated) : NULL;
    if (!trainer->sums || (plan->accumulate > 1 && !trainer->accumulated))
        return LK_ERR_MEMORY;
    trainer->train_sum = lk_shard_sum_new(trainer->strategy, plan->shards, trainer->n_values);
    trainer->val_sum = lk_shard_sum_new(trainer->strategy, plan->shards, metrics);
    if (!trainer->train_sum || !trainer->val_sum)
        return lk_error_status();
    LK_TRY(lk__plan_votes(trainer));
    LK_TRY(lk__plan_sync(trainer));
    LK_TRY(lk__plan_precise_statistics(trainer));
    trainer->replicas = lk_replicas_new(trainer->strategy, trainer->model,
                                        trainer->role == LK_TRAIN_WORKER ? NULL : &plan->optimizer_opts, plan->seed);
    return trainer->replicas ? LK_OK : lk_error_status();
}

/* --- the trainer -------------------------------------------------------------------------------------------------- */

static lk_status build(lk_trainer *trainer)
{
    const lk_train_config *config = &trainer->config;
    /* What is cheap to check comes before data are read or fetched. */
    const char *name = trainer->model ? lk_model_name(trainer->model) : config->model;
    LK_TRY(lk__plan_numbers(config, name, &trainer->plan));
    if (!trainer->model)
        LK_TRY(lk_model_check(name));
    LK_TRY(lk__ps_find_role(trainer));
    LK_TRY(lk__resume_open(trainer));
    LK_TRY(lk__ps_open(trainer));
    LK_TRY(open_devices(trainer));
    LK_TRY(open_data(trainer));
    LK_TRY(make_model(trainer));
    LK_TRY(lk__place_data(trainer));
    LK_TRY(make_loaders(trainer));
    if (config->executor == LK_EXECUTOR_PROGRAM)
        LK_TRY(lk__shard_programs_new(&trainer->programs));
    LK_TRY(make_replicas(trainer));
    if (lk__step_programs_fit(trainer))
        LK_TRY(lk__step_programs_new(&trainer->step_programs));
    if (lk__step_is_one_program(trainer))
        LK_TRY(lk__optimizer_prepare_recording(lk_replicas_optimizer(trainer->replicas, 0)));
    LK_TRY(lk__plan_audit(trainer));
    LK_TRY(lk__list_implementations(trainer));
    if (config->weights && *config->weights && !trainer->resumed && trainer->role != LK_TRAIN_WORKER)
        LK_TRY(lk_replicas_load_weights(trainer->replicas, config->weights));
    LK_TRY(lk__resume_restore(trainer));
    LK_TRY(lk__agree_on_work(trainer));
    LK_TRY(lk__check_memory(trainer));
    return lk__ps_start(trainer);
}

/* model NULL: config->model. */
static lk_trainer *make_trainer(const lk_train_config *config, lk_model *model)
{
    lk__heartbeat_begin();
    lk_trainer *trainer = lk__calloc(1, sizeof *trainer);
    if (!trainer) {
        lk_model_release(model);
        return NULL;
    }
    trainer->config = *config;
    trainer->model = model;
    atomic_init(&trainer->interrupted, false);
    lk_status status = build(trainer);
    if (status == LK_OK)
        return trainer;
    lk__processes_give_up(status);
    lk_trainer_release(trainer);
    return NULL;
}

lk_trainer *lk_trainer_new(const lk_train_config *config)
{
    return make_trainer(config, NULL);
}

lk_trainer *lk_trainer_new_with(const lk_train_config *config, lk_model *model)
{
    if (model)
        return make_trainer(config, model);
    if (lk_error_status() == LK_OK)
        lk__fail(LK_ERR_ARGUMENT, "trainer: a NULL model");
    return NULL;
}

void lk__release_tensors(lk_tensor **tensors, int64_t n)
{
    for (int64_t i = 0; tensors && i < n; i++) {
        lk_tensor_release(tensors[i]);
        tensors[i] = NULL;
    }
}

static void free_tensors(lk_tensor **tensors, int64_t n)
{
    lk__release_tensors(tensors, n);
    lk__free(tensors);
}

void lk_trainer_release(lk_trainer *trainer)
{
    if (!trainer)
        return;
    lk__callbacks_release(&trainer->callbacks);
    lk__ps_release(trainer->chief);
    lk__free(trainer->scaling);
    lk__drop_pending(trainer);
    lk__shard_programs_release(trainer->programs);
    lk__step_programs_release(trainer->step_programs);
    lk__release_tensors(trainer->seeds, trainer->n_devices);
    free_tensors(trainer->sums, (int64_t)trainer->n_devices * trainer->n_values);
    free_tensors(trainer->accumulated, (int64_t)trainer->n_devices * trainer->n_values);
    free_tensors(trainer->watched, trainer->plan.shards * trainer->n_variables);
    lk_shard_sum_release(trainer->train_sum);
    lk_shard_sum_release(trainer->val_sum);
    lk_shard_sum_release(trainer->statistics_sum);
    lk_shard_sum_release(trainer->vote_sum);
    lk_shard_sum_release(trainer->sync_sum);
    lk_replicas_release(trainer->replicas);
    lk_ledger_release(trainer->train_ledger);
    lk_ledger_release(trainer->val_ledger);
    lk_loader_release(trainer->train_loader);
    lk_loader_release(trainer->val_loader);
    lk_loader_release(trainer->statistics_loader);
    lk__device_data_release(trainer->train_data);
    lk__device_data_release(trainer->val_data);
    lk_checkpoint_release(trainer->resumed);
    lk_model_release(trainer->model);
    lk_strategy_release(trainer->strategy);
    lk_tuning_release(trainer->implementations);
    lk_devices_release(trainer->devices, trainer->n_devices);
    lk_channel_moments_free(&trainer->moments);
    lk_dataset_release(trainer->train_set);
    lk_dataset_release(trainer->val_set);
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
    return split == LK_SPLIT_TRAIN ? trainer->train_set : trainer->val_set;
}

lk_tensor *const *lk_trainer_variables(const lk_trainer *trainer, int replica)
{
    return lk_replicas_variables(trainer->replicas, replica);
}

lk_tensor *const *lk_trainer_gradients(const lk_trainer *trainer)
{
    const lk_optimizer *optimizer = lk_replicas_optimizer(trainer->replicas, 0);
    return optimizer && !trainer->applies_elsewhere ? lk_optimizer_gradients(optimizer) : NULL;
}

lk_status lk_trainer_add(lk_trainer *trainer, lk_callback callback)
{
    return lk__callbacks_add(&trainer->callbacks, callback);
}

void lk_trainer_interrupt(lk_trainer *trainer)
{
    atomic_store(&trainer->interrupted, true);
}
