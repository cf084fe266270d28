#include "train/trainer_data.h"

#include "base/log.h"
#include "base/mem.h"
#include "base/minmax.h"
#include "base/status.h"
#include "data/dataset.h"
#include "train/plan/agreement.h"
#include "train/plan/class_weights.h"
#include "train/step/device_data.h"
#include "train/step/shard_run.h"
#include "train/trainer.h"

#include <stdlib.h>
#include <string.h>

/* Pictures are decoded before anything else runs, so the loader's threads may take all cores. */
static int trainer_data_decoding_threads(const lk_train_config *config)
{
    int cores = lk_device_available("cpu");
    return config->data.workers > 0 && config->data.workers < cores ? cores : (int)config->data.workers;
}

lk_dataset_opts lk_train_dataset_opts(const lk_train_config *config)
{
    return (lk_dataset_opts){.dir = config->data.dir,
                             .resize = config->data.resize,
                             .channels = config->data.channels,
                             .val_split = config->data.val_split,
                             .shape = config->data.image_shape,
                             .label_column = config->data.label_column,
                             .skip_bad = config->data.skip_bad,
                             .threads = trainer_data_decoding_threads(config),
                             .cache_dir = config->data.cache_dir,
                             .mirror = getenv("LOCKSTEP_MIRROR"),
                             .progress = config->data.progress,
                             .progress_user = config->data.progress_user};
}

static lk_status trainer_data_open_split(const char *name, lk_split split, const lk_train_config *config, int64_t limit,
                                         lk_dataset **dataset)
{
    lk_dataset_opts opts = lk_train_dataset_opts(config);
    opts.limit = limit > 0 ? limit : 0;
    return lk_dataset_open(name, split, &opts, dataset);
}

/* "auto" falls back to synthetic data only if no file is found: a damaged file is still an error. */
static lk_status trainer_data_open_train(lk_trainer *trainer)
{
    const lk_train_config *config = &trainer->config;
    lk_plan *plan = &trainer->plan;
    bool automatic = strcmp(config->data.name, "auto") == 0;
    plan->data = automatic ? "fashion-mnist" : config->data.name;
    lk_status status =
        trainer_data_open_split(plan->data, LK_SPLIT_TRAIN, config, config->data.limit_train, &trainer->data.train_set);
    if (!automatic || status != LK_ERR_NOT_FOUND)
        return status;
    lk__log(LK_LOG_WARNING, "%s", lk_error_message());
    lk_error_clear();
    plan->fell_back = true;
    plan->data = "synthetic";
    return trainer_data_open_split(plan->data, LK_SPLIT_TRAIN, config, config->data.limit_train,
                                   &trainer->data.train_set);
}

/* Settings that say how files are read do not apply to a data set that is made already. */
static lk_status trainer_data_take_own(lk_trainer *trainer)
{
    const lk_data_config *data = &trainer->config.data;
    const struct {
        const char *name;
        bool is_set;
    } options[] = {{"limit-train", data->limit_train > 0},
                   {"limit-val", data->limit_val > 0},
                   {"val-split", data->val_split > 0},
                   {"resize", data->resize != NULL},
                   {"channels", data->channels != 0},
                   {"image-shape", data->image_shape != NULL},
                   {"label-column", data->label_column != NULL},
                   {"skip-bad", data->skip_bad}};
    for (size_t i = 0; i < sizeof options / sizeof *options; i++)
        if (options[i].is_set)
            LK_FAIL(LK_ERR_ARGUMENT, "--%s: must not be set with a data set that the program gives; it is for files",
                    options[i].name);
    const lk_stop_config *stop = &trainer->config.stop;
    const char *needs = stop->early_stop > 0               ? "early-stop"
                        : stop->target_accuracy >= 0       ? "target-accuracy"
                        : stop->restore_best               ? "restore-best"
                        : trainer->plan.plateau_epochs > 0 ? "lr-plateau"
                                                           : NULL;
    if (!data->val_set && needs)
        LK_FAIL(LK_ERR_ARGUMENT, "--%s: needs an evaluation, and the program gives no validation set", needs);
    trainer->data.train_set = lk_dataset_retain(data->train_set);
    trainer->data.val_set = data->limit_val != 0 ? lk_dataset_retain(data->val_set) : NULL;
    trainer->plan.data = lk_dataset_name(data->train_set);
    return LK_OK;
}

static lk_status trainer_data_open_sets(lk_trainer *trainer)
{
    const lk_train_config *config = &trainer->config;
    if (config->data.train_set)
        return trainer_data_take_own(trainer);
    if (config->data.val_set)
        LK_FAIL(LK_ERR_ARGUMENT,
                "trainer: a val_set without a train_set; with --data the validation set is the data's own");
    if (strcmp(config->data.name, "auto") != 0 && !lk_dataset_is_known(config->data.name))
        LK_FAIL(LK_ERR_ARGUMENT, "--data %s: must be one of %s, auto, or the path of a folder or file",
                config->data.name, lk_dataset_names());
    LK_TRY(trainer_data_open_train(trainer));
    return config->data.limit_val == 0 ? LK_OK
                                       : trainer_data_open_split(trainer->plan.data, LK_SPLIT_TEST, config,
                                                                 config->data.limit_val, &trainer->data.val_set);
}

lk_status lk__check_images(const lk_trainer *trainer, const lk_dataset *dataset, lk_status error)
{
    const lk_dataset *train = trainer->data.train_set;
    long long c = lk_dataset_channels(train), h = lk_dataset_height(train), w = lk_dataset_width(train);
    if (lk_dataset_channels(dataset) == c && lk_dataset_height(dataset) == h && lk_dataset_width(dataset) == w)
        return LK_OK;
    LK_FAIL(error, "%s: images of %lldx%lldx%lld, expected %lldx%lldx%lld as in %s", lk_dataset_source(dataset),
            (long long)lk_dataset_channels(dataset), (long long)lk_dataset_height(dataset),
            (long long)lk_dataset_width(dataset), c, h, w, lk_dataset_source(train));
}

/* A class without images cannot be learned. That is an error unless limit_train is the reason, or labels start at 1. */
static lk_status trainer_data_check_classes(const lk_dataset *train, int64_t limit, lk_plan *plan)
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

lk_status lk__trainer_data_open(lk_trainer *trainer)
{
    const lk_train_config *config = &trainer->config;
    lk_plan *plan = &trainer->plan;
    LK_TRY(trainer_data_open_sets(trainer));
    LK_TRY(trainer_data_check_classes(trainer->data.train_set, config->data.limit_train, plan));
    LK_TRY(lk__class_weights_plan(trainer));
    if (plan->top_k > plan->classes)
        LK_FAIL(LK_ERR_ARGUMENT, "--top-k %lld: there are %lld classes", (long long)plan->top_k,
                (long long)plan->classes);
    const lk_dataset *val = trainer->data.val_set;
    if (val)
        LK_TRY(lk__check_images(trainer, val, LK_ERR_FORMAT));
    if (val && lk_dataset_classes(val) > plan->classes)
        LK_FAIL(LK_ERR_ARGUMENT, "validation set %s: %lld classes, expected at most the %lld of the training set",
                lk_dataset_name(val), (long long)lk_dataset_classes(val), (long long)plan->classes);
    LK_TRY(lk__hash_read_splits(trainer));
    plan->source = lk_dataset_source(trainer->data.train_set);
    plan->train_samples = lk_dataset_count(trainer->data.train_set);
    plan->val_samples = trainer->data.val_set ? lk_dataset_count(trainer->data.val_set) : 0;
    plan->steps_per_epoch = lk__divide_up(plan->train_samples, plan->batch_size);
    plan->updates_per_epoch = lk__divide_up(plan->steps_per_epoch, plan->accumulate);
    plan->schedule.updates_per_epoch = plan->updates_per_epoch;
    if (plan->augment.center || plan->augment.standardize)
        return lk_dataset_moments(trainer->data.train_set, &trainer->data.moments);
    return LK_OK;
}

lk_range lk__replica_shards(const lk_trainer *trainer, int replica)
{
    int rank = lk_strategy_first_rank(trainer->strategy) + replica;
    return lk_part(trainer->plan.shards, lk_strategy_ranks(trainer->strategy), rank);
}

lk_range lk__own_shards(const lk_trainer *trainer)
{
    return (lk_range){lk__replica_shards(trainer, 0).begin, lk__replica_shards(trainer, trainer->n_devices - 1).end};
}

lk_range lk__trainer_own_samples(const lk_trainer *trainer, int64_t count)
{
    return lk__samples_of_shards(count, trainer->plan.shards, lk__own_shards(trainer));
}

lk_status lk__new_loader(const lk_trainer *trainer, const lk_loader_plan *plan, lk_loader **loader)
{
    lk_range own = lk__own_shards(trainer);
    bool is_part = !plan->all_shards && trainer->plan.processes > 1;
    lk_loader_opts opts = {.batch_size = plan->batch_size,
                           .seed = trainer->plan.seed,
                           .shuffle = plan->training,
                           .workers = plan->data ? 0 : plan->workers,
                           .no_images = plan->data != NULL,
                           .augment = &trainer->plan.augment,
                           .moments = trainer->data.moments.channels ? &trainer->data.moments : NULL,
                           .evaluation = !plan->training,
                           .shards = is_part ? trainer->plan.shards : 0,
                           .first_shard = own.begin,
                           .end_shard = own.end};
    return lk_loader_new(plan->dataset, &opts, loader);
}

lk_status lk__trainer_data_make_loaders(lk_trainer *trainer)
{
    const lk_plan *plan = &trainer->plan;
    lk_loader_plan train = {.dataset = trainer->data.train_set,
                            .data = trainer->data.train_on_devices,
                            .batch_size = plan->batch_size,
                            .training = true,
                            .workers = trainer->server.role == LK_TRAIN_WORKER ? 0 : (int)trainer->config.data.workers};
    lk_loader_plan val = {.dataset = trainer->data.val_set,
                          .data = trainer->data.val_on_devices,
                          .batch_size = plan->val_batch_size,
                          .workers = (int)trainer->config.data.workers};
    LK_TRY(lk__new_loader(trainer, &train, &trainer->data.train_loader));
    LK_TRY(lk_ledger_new(plan->train_samples, &trainer->data.train_ledger));
    if (!trainer->data.val_set)
        return LK_OK;
    LK_TRY(lk__new_loader(trainer, &val, &trainer->data.val_loader));
    return lk_ledger_new(plan->val_samples, &trainer->data.val_ledger);
}

void lk__trainer_data_release(lk_trainer_data *data)
{
    lk_ledger_release(data->train_ledger);
    lk_ledger_release(data->val_ledger);
    lk_loader_release(data->train_loader);
    lk_loader_release(data->val_loader);
    lk_loader_release(data->statistics_loader);
    lk__device_data_release(data->train_on_devices);
    lk__device_data_release(data->val_on_devices);
    lk_channel_moments_free(&data->moments);
    lk__free(data->class_weights);
    lk_dataset_release(data->train_set);
    lk_dataset_release(data->val_set);
}
