/* The sums over shards that a trainer's steps compute. A shard of a training step gives n_values tensors, in this
 * order:
 *
 *   gradients   one for each of the model's parameters
 *   statistics  lk__statistics_count of the batch-norm layers
 *   metrics     lk__metric_count: loss, hits and, with --top-k, top-k hits
 *
 * An update uses the first n_updated of the sums, gradients and statistics, and looks at the next one, the loss: a loss
 * that is not finite can forbid the update. */
#pragma once

#include "lockstep/program.h"
#include "lockstep/train.h"

typedef struct lk_trainer_sums {
    int n_values, n_updated;
    int n_buckets, *buckets; /* [n_values]: see lk__bucket_plan; statistics and metrics are in the last bucket */
    lk_shard_sum *train;     /* of a training step's values */
    lk_shard_sum *val;       /* of an evaluation step's metrics */
    lk_range *groups;        /* [n_groups]: shards with which batch-norm takes statistics; NULL: each alone */
    int n_groups;
    lk_shard_sum *sync;       /* of batch-norm's sums in the middle of a pass, one for each group; else NULL */
    lk_shard_sum *statistics; /* with --precise-bn: of statistics alone; else NULL */
    lk_shard_sum *votes;      /* with several processes: of each shard's vote to end training; else NULL */
    lk_tensor **places;       /* [n_values]: where `train` writes gradients; NULL: to new tensors */
    lk_tensor **results;      /* the sums of the step in progress: [replica * n_values + i] */
    lk_tensor **accumulated;  /* with --accumulate: those of the update's batches so far, added up; else NULL */
    lk_tensor *weights[LK_MAX_DEVICES]; /* f32 [training samples]: the factor of each one's loss; NULL: no weights */
    lk_tensor *seeds[LK_MAX_DEVICES];   /* 1 / seed_count on each device: the gradient that backward starts with */
    int64_t seed_count;                 /* the samples of the update */
} lk_trainer_sums;

/* Makes the sums that the plan needs. Strategy, model and loaders exist already. Errors: LK_ERR_MEMORY. */
lk_status lk__trainer_sums_new(lk_trainer *trainer);
void lk__trainer_sums_release(lk_trainer *trainer);

/* Lets one device that computes whole batches write its gradients where the optimizer wants them, so that they need not
 * be copied. Call it once the replicas exist. Errors: LK_ERR_MEMORY. */
lk_status lk__trainer_sums_place(lk_trainer *trainer);

/* Lets a program that gives a training step's values, of one or more nodes, be cut where a bucket is finished. */
void lk__trainer_sums_cut(const lk_trainer *trainer, lk_program_opts *opts);

/* The number of statistics among a shard's values. */
int lk__statistics_count(const lk_trainer *trainer);

/* Sets the seeds for an update of `samples` samples. */
lk_status lk__trainer_sums_set_seeds(lk_trainer *trainer, int64_t samples);

/* Releases tensors[0 … n) and sets them to NULL. tensors NULL: does nothing. */
void lk__release_tensors(lk_tensor **tensors, int64_t n);
