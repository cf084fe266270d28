/* A trainer's data: the data sets, the loaders that cut them into batches, and the ledgers that check that an epoch
 * uses every sample once. Also which shards and samples belong to a replica and to this process. */
#pragma once

#include "lockstep/train.h"

typedef struct lk_device_data lk_device_data;

typedef struct lk_trainer_data {
    lk_dataset *train_set, *val_set;                   /* val_set NULL: no evaluation */
    double *class_weights;                             /* [classes]; NULL: all classes weigh alike */
    lk_channel_moments moments;                        /* empty: images are not normalized */
    lk_device_data *train_on_devices, *val_on_devices; /* NULL: loaders prepare images */
    lk_loader *train_loader, *val_loader;
    lk_loader *statistics_loader; /* with --precise-bn: the training set once more; else NULL */
    lk_ledger *train_ledger, *val_ledger;
    uint64_t hashes[2]; /* XXH3-64 of each split; 0: not computed yet */
} lk_trainer_data;

/* Opens the data sets and sets what the plan says about them. Errors: those of lk_dataset_open; LK_ERR_ARGUMENT (an
 * unknown name, --top-k above the number of classes); LK_ERR_FORMAT (a class without images; images of another size in
 * the validation set). */
lk_status lk__trainer_data_open(lk_trainer *trainer);

/* Makes the loaders and ledgers of training and validation. The strategy and the device data exist already. */
lk_status lk__trainer_data_make_loaders(lk_trainer *trainer);

void lk__trainer_data_release(lk_trainer_data *data);

/* Fails with `error` unless the set's images have the shape of the training images, for which the model is built. */
lk_status lk__check_images(const lk_trainer *trainer, const lk_dataset *dataset, lk_status error);

/* The shards that a replica runs. */
lk_range lk__replica_shards(const lk_trainer *trainer, int replica);

/* The shards that this process's replicas run. */
lk_range lk__own_shards(const lk_trainer *trainer);

/* This process's samples in a batch of `count` samples. */
lk_range lk__trainer_own_samples(const lk_trainer *trainer, int64_t count);

typedef struct lk_loader_plan {
    lk_dataset *dataset;
    const lk_device_data *data; /* the copies of `dataset` from which devices prepare images; NULL: the loader does */
    int64_t batch_size;
    bool training;   /* shuffled and augmented; else in the set's order, and not augmented */
    bool all_shards; /* with the samples of other processes' shards too */
    int workers;     /* threads that prepare images; without effect if `data` is set */
} lk_loader_plan;

lk_status lk__new_loader(const lk_trainer *trainer, const lk_loader_plan *plan, lk_loader **loader);
