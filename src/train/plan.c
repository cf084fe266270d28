/* From a configuration to a trainer: defaults, checks, data, devices, model, replicas. */
#include "train/trainer.h"

#include "base/log.h"
#include "base/mem.h"
#include "base/status.h"

#include <stdio.h>
#include <string.h>

/* --- data --------------------------------------------------------------------------------------------------------- */

static lk_status open_split(const char *name, lk_split split, const lk_train_config *config, int64_t limit,
                            lk_dataset **dataset)
{
    lk_dataset_opts opts = {.dir = config->data_dir, .limit = limit > 0 ? limit : 0};
    return lk_dataset_open(name, split, &opts, dataset);
}

/* "auto" falls back only where the data are nowhere to be had: a damaged file is still an error. */
static lk_status open_train_set(lk_trainer *trainer, const lk_train_config *config)
{
    bool automatic = strcmp(config->data, "auto") == 0;
    trainer->plan.data = automatic ? "fashion-mnist" : config->data;
    lk_status status = open_split(trainer->plan.data, LK_SPLIT_TRAIN, config, config->limit_train, &trainer->train_set);
    if (!automatic || status != LK_ERR_NOT_FOUND)
        return status;
    lk__log(LK_LOG_WARNING, "%s", lk_error_message());
    lk_error_clear();
    trainer->plan.fell_back = true;
    trainer->plan.data = "synthetic";
    return open_split(trainer->plan.data, LK_SPLIT_TRAIN, config, config->limit_train, &trainer->train_set);
}

/* The model is made for the training images: others must not reach it. */
static lk_status check_val_images(const lk_dataset *train, const lk_dataset *val)
{
    long long c = lk_dataset_channels(train), h = lk_dataset_height(train), w = lk_dataset_width(train);
    if (lk_dataset_channels(val) == c && lk_dataset_height(val) == h && lk_dataset_width(val) == w)
        return LK_OK;
    LK_FAIL(LK_ERR_FORMAT, "%s: images of %lldx%lldx%lld, expected %lldx%lldx%lld as in %s", lk_dataset_source(val),
            (long long)lk_dataset_channels(val), (long long)lk_dataset_height(val), (long long)lk_dataset_width(val), c,
            h, w, lk_dataset_source(train));
}

static lk_status open_val_set(lk_trainer *trainer, const lk_train_config *config)
{
    if (config->limit_val == 0)
        return LK_OK;
    LK_TRY(open_split(trainer->plan.data, LK_SPLIT_TEST, config, config->limit_val, &trainer->val_set));
    return check_val_images(trainer->train_set, trainer->val_set);
}

static lk_status open_data(lk_trainer *trainer, const lk_train_config *config)
{
    LK_TRY(open_train_set(trainer, config));
    LK_TRY(open_val_set(trainer, config));
    trainer->plan.source = lk_dataset_source(trainer->train_set);
    trainer->plan.train_samples = lk_dataset_count(trainer->train_set);
    trainer->plan.val_samples = trainer->val_set ? lk_dataset_count(trainer->val_set) : 0;
    trainer->plan.steps_per_epoch =
        (trainer->plan.train_samples + trainer->plan.batch_size - 1) / trainer->plan.batch_size;
    return LK_OK;
}

static lk_status make_loader(const lk_trainer *trainer, const lk_train_config *config, lk_dataset *dataset,
                             bool shuffle, lk_loader **loader, lk_ledger **ledger)
{
    lk_loader_opts opts = {.batch_size = trainer->plan.batch_size,
                           .seed = trainer->plan.seed,
                           .shuffle = shuffle,
                           .workers = (int)config->workers};
    LK_TRY(lk_loader_new(dataset, &opts, loader));
    return lk_ledger_new(lk_dataset_count(dataset), ledger);
}

/* --- devices ------------------------------------------------------------------------------------------------------ */

/* `explicit_shards` is what the user asked for, or 0. */
lk_status lk__check_shards(int64_t explicit_shards, int64_t shards, int64_t batch_size, int devices)
{
    if (explicit_shards > batch_size)
        LK_FAIL(LK_ERR_ARGUMENT, "--shards %lld: must be at most the batch size, %lld", (long long)shards,
                (long long)batch_size);
    if (shards > batch_size)
        LK_FAIL(LK_ERR_ARGUMENT, "--devices: %d devices need %lld shards, more than the batch size, %lld", devices,
                (long long)shards, (long long)batch_size);
    if (devices > shards)
        LK_FAIL(LK_ERR_ARGUMENT, "--shards %lld: %d devices need at least as many shards", (long long)shards, devices);
    return LK_OK;
}

/* A configuration need not come from a command line: its numbers go through the table once more. A default may be out
 * of its option's range; it then means "unset". */
static lk_status check_config(const lk_train_config *config)
{
    char text[64];
    lk_train_config scratch = *config;
    if (!config->model || !config->data)
        LK_FAIL(LK_ERR_ARGUMENT, "--%s: a name is needed", config->model ? "data" : "model");
    for (int i = 0; i < LK_TRAIN_OPTION_COUNT; i++) {
        const lk_option *option = &lk_train_options[i];
        if (option->type == LK_OPTION_STRING)
            continue;
        LK_TRY(lk_options_text(option, config, text, sizeof text));
        if (!option->default_text || strcmp(text, option->default_text) != 0)
            LK_TRY(lk_options_set(lk_train_options, LK_TRAIN_OPTION_COUNT, &scratch, option->name, text));
    }
    return LK_OK;
}

static lk_status plan_numbers(lk_plan *plan, const lk_train_config *config)
{
    lk_recipe recipe;
    LK_TRY(lk_model_recipe(config->model, &recipe));
    plan->batch_size = config->batch_size ? config->batch_size : recipe.batch_size;
    plan->epochs = config->epochs ? config->epochs : recipe.epochs;
    plan->learning_rate = config->base_lr != 0 ? config->base_lr : recipe.learning_rate;
    plan->seed = (uint64_t)config->seed;
    return LK_OK;
}

static lk_status open_devices(lk_trainer *trainer, const lk_train_config *config)
{
    lk_plan *plan = &trainer->plan;
    char all_cores[32];
    const char *devices = config->devices;
    if (!devices) {
        int64_t shards = config->shards ? config->shards : lk_default_shards(plan->batch_size, 1);
        int64_t cores = lk_device_available("cpu");
        snprintf(all_cores, sizeof all_cores, "%lldxcpu", (long long)(cores < shards ? cores : shards));
        devices = all_cores;
    }
    LK_TRY(lk_devices_count(devices, &plan->devices));
    plan->shards = config->shards ? config->shards : lk_default_shards(plan->batch_size, plan->devices);
    LK_TRY(lk__check_shards(config->shards, plan->shards, plan->batch_size, plan->devices));

    LK_TRY(lk_devices_open(devices, trainer->devices, LK_MAX_DEVICES, &trainer->n_devices));
    trainer->strategy = lk_strategy_new(config->strategy          ? config->strategy
                                        : trainer->n_devices == 1 ? "one-device"
                                                                  : "mirrored",
                                        trainer->devices, trainer->n_devices);
    if (!trainer->strategy)
        return lk_error_status();
    plan->strategy = lk_strategy_name(trainer->strategy);
    return LK_OK;
}

/* --- model -------------------------------------------------------------------------------------------------------- */

static void count_parameters(lk_trainer *trainer)
{
    for (int i = 0; i < trainer->n_parameters; i++) {
        lk_shape shape = lk_model_parameter_shape(trainer->model, i);
        int64_t count = 1;
        for (int d = 0; d < shape.ndim; d++)
            count *= shape.dim[d];
        trainer->plan.parameters += count;
    }
}

static lk_status make_model(lk_trainer *trainer, const lk_train_config *config)
{
    const lk_dataset *data = trainer->train_set;
    lk_model_input input = {lk_dataset_channels(data), lk_dataset_height(data), lk_dataset_width(data),
                            lk_dataset_classes(data)};
    trainer->model = lk_model_new(config->model, input);
    if (!trainer->model)
        return lk_error_status();
    trainer->plan.model = lk_model_name(trainer->model);
    trainer->n_parameters = lk_model_parameter_count(trainer->model);
    count_parameters(trainer);
    return LK_OK;
}

static lk_status make_replicas(lk_trainer *trainer)
{
    int n = trainer->n_parameters, k = trainer->n_devices;
    trainer->parameters = lk__calloc((size_t)k * (size_t)n, sizeof *trainer->parameters);
    trainer->sums = lk__calloc((size_t)k * (size_t)(n + 2), sizeof *trainer->sums);
    trainer->shard_values = lk__calloc((size_t)n + 2, sizeof *trainer->shard_values);
    if (!trainer->parameters || !trainer->sums || !trainer->shard_values)
        return LK_ERR_MEMORY;
    trainer->train_sum = lk_shard_sum_new(trainer->strategy, trainer->plan.shards, n + 2);
    trainer->val_sum = lk_shard_sum_new(trainer->strategy, trainer->plan.shards, 2);
    if (!trainer->train_sum || !trainer->val_sum)
        return lk_error_status();

    lk_scope_begin();
    lk_status status = lk_model_init(trainer->model, trainer->devices[0], trainer->plan.seed, trainer->shard_values);
    if (status == LK_OK)
        status = lk_strategy_place(trainer->strategy, trainer->shard_values, n, trainer->parameters);
    lk_scope_end();
    return status;
}

/* --- the trainer -------------------------------------------------------------------------------------------------- */

static lk_status build(lk_trainer *trainer, const lk_train_config *config)
{
    /* What is cheap to check comes before data are read or fetched. */
    LK_TRY(check_config(config));
    LK_TRY(plan_numbers(&trainer->plan, config));
    LK_TRY(open_devices(trainer, config));
    LK_TRY(open_data(trainer, config));
    LK_TRY(make_model(trainer, config));
    LK_TRY(make_loader(trainer, config, trainer->train_set, true, &trainer->train_loader, &trainer->train_ledger));
    if (trainer->val_set)
        LK_TRY(make_loader(trainer, config, trainer->val_set, false, &trainer->val_loader, &trainer->val_ledger));
    return make_replicas(trainer);
}

lk_trainer *lk_trainer_new(const lk_train_config *config)
{
    lk_trainer *trainer = lk__calloc(1, sizeof *trainer);
    if (!trainer)
        return NULL;
    if (build(trainer, config) == LK_OK)
        return trainer;
    lk_trainer_release(trainer);
    return NULL;
}

static void release_tensors(lk_tensor **tensors, int64_t n)
{
    for (int64_t i = 0; tensors && i < n; i++)
        lk_tensor_release(tensors[i]);
    lk__free(tensors);
}

void lk_trainer_release(lk_trainer *trainer)
{
    if (!trainer)
        return;
    lk__drop_pending(trainer);
    for (int d = 0; d < trainer->n_devices; d++)
        lk_tensor_release(trainer->seeds[d]);
    lk__free(trainer->shard_values);
    release_tensors(trainer->sums, (int64_t)trainer->n_devices * (trainer->n_parameters + 2));
    release_tensors(trainer->parameters, (int64_t)trainer->n_devices * trainer->n_parameters);
    lk_shard_sum_release(trainer->train_sum);
    lk_shard_sum_release(trainer->val_sum);
    lk_ledger_release(trainer->train_ledger);
    lk_ledger_release(trainer->val_ledger);
    lk_loader_release(trainer->train_loader);
    lk_loader_release(trainer->val_loader);
    lk_model_release(trainer->model);
    lk_strategy_release(trainer->strategy);
    lk_devices_release(trainer->devices, trainer->n_devices);
    lk_dataset_release(trainer->train_set);
    lk_dataset_release(trainer->val_set);
    lk__free(trainer);
}

const lk_plan *lk_trainer_plan(const lk_trainer *trainer)
{
    return &trainer->plan;
}

lk_strategy *lk_trainer_strategy(const lk_trainer *trainer)
{
    return trainer->strategy;
}

int lk_trainer_parameter_count(const lk_trainer *trainer)
{
    return trainer->n_parameters;
}

const char *lk_trainer_parameter_name(const lk_trainer *trainer, int index)
{
    return lk_model_parameter_name(trainer->model, index);
}
