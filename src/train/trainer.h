/* The trainer's parts: plan.c makes it, step.c runs one batch, fit.c the epochs, digest.c looks at the result. */
#ifndef LK_TRAIN_TRAINER_H
#define LK_TRAIN_TRAINER_H

#include "lockstep/train.h"

/* Steps that may be under way before the caller waits for the oldest one's metrics. */
enum { LK_RUN_AHEAD = 2 };

typedef struct lk_pending_step {
    lk_tensor *loss, *hits; /* scalars, one reference each */
    int64_t count;          /* samples */
} lk_pending_step;

struct lk_trainer {
    lk_plan plan;
    lk_device *devices[LK_MAX_DEVICES];
    int n_devices;
    lk_strategy *strategy;
    lk_model *model;
    lk_dataset *train_set, *val_set; /* val_set NULL: no evaluation */
    lk_loader *train_loader, *val_loader;
    lk_ledger *train_ledger, *val_ledger;
    int n_parameters;
    lk_tensor **parameters;           /* [replica * n_parameters + i] */
    lk_shard_sum *train_sum;          /* gradients, loss, hits */
    lk_shard_sum *val_sum;            /* loss, hits */
    lk_tensor **sums;                 /* what train_sum gives: [replica * (n_parameters + 2) + i] */
    lk_tensor **shard_values;         /* scratch of one shard: n_parameters + 2 */
    lk_tensor *seeds[LK_MAX_DEVICES]; /* 1 / seed_count on each device: what backward starts with */
    int64_t seed_count;
    lk_pending_step pending[LK_RUN_AHEAD];
    int n_pending;
    int64_t epoch; /* from 0, of the batch that comes next */
    bool epoch_open;
};

/* Whether a batch can be cut into `shards`, `explicit_shards` of them asked for (0: the default), for `devices`. */
lk_status lk__check_shards(int64_t explicit_shards, int64_t shards, int64_t batch_size, int devices);

/* Pushes one training step over `batch`; its loss and hits are appended to trainer->pending. */
lk_status lk__train_step(lk_trainer *trainer, lk_batch *batch);

/* Pushes the forward pass of `batch`, and appends likewise. */
lk_status lk__evaluate_step(lk_trainer *trainer, lk_batch *batch);

/* Waits for the oldest pending step and adds what it found. */
lk_status lk__take_pending(lk_trainer *trainer, lk_mean *loss, lk_mean *accuracy);

/* Lets go of pending steps without looking at them. */
void lk__drop_pending(lk_trainer *trainer);

/* Seconds on a clock that only goes forward. */
double lk__seconds(void);

#endif
