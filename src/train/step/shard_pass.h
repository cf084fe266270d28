/* A pass of several shards at once, on one tape. */
#pragma once

#include "train/trainer_progress.h"

/* Shards of a training batch that go through the model together; they are whole groups of batch-norm. The open scope
 * owns the tensors. */
typedef struct lk_shard_pass lk_shard_pass;
struct lk_shard_pass {
    lk_trainer *trainer;
    const lk_update *update;
    lk_batch *batch; /* NULL: only lk__shard_pass_take adds shards */
    int64_t count;   /* samples of the batch */
    int n;
    lk_shard *shards;                 /* [n] */
    int64_t *group_samples;           /* [n]: samples of the shard's group */
    lk_tensor *const **sets;          /* [n]: each shard's variables */
    lk_tensor **images, **indices;    /* [n] */
    lk_tensor **logits;               /* [n]: of the forward pass */
    lk_tensor **losses, **seeds;      /* [n]: scalars, and the gradients of the losses, where backward starts */
    lk_tensor **views;                /* [n * variables]: each shard's views of the variables */
    lk_tensor **watched, **gradients; /* [n * parameters]: views of the parameters, and their gradients */
    lk_tensor **statistics;           /* [n * statistics] */
    lk_tensor **memory;               /* the block that holds the arrays of tensors above */
    /* Sets sums[i], for each shard i, to a new view of the sum of its group's parts. lk__shard_pass_init sets a
     * function for shards of one device. */
    lk_status (*add_groups)(lk_shard_pass *pass, lk_call_site at, lk_tensor *const *parts, lk_tensor **sums);
};

/* Allocates memory for up to `shards` shards. lk__shard_pass_free frees it, also after a failure. */
lk_status lk__shard_pass_init(lk_shard_pass *pass, lk_trainer *trainer, int64_t shards);
void lk__shard_pass_free(lk_shard_pass *pass);

/* Begins a new pass over shards of a batch of `count` samples; it has no shards yet. */
void lk__shard_pass_start(lk_shard_pass *pass, const lk_update *update, lk_batch *batch, int64_t count);

/* Adds shard `index` of the batch, if it has samples. */
lk_status lk__shard_pass_add(lk_shard_pass *pass, int64_t index, int replica, lk_tensor *seed);

/* Adds a shard that has its images already. */
lk_status lk__shard_pass_take(lk_shard_pass *pass, const lk_shard *shard, lk_tensor *seed);

/* Adds a shard of one blank image on replica 0, so that a process without samples takes part in the sums in the middle
 * of the passes. */
lk_status lk__shard_pass_add_blank(lk_shard_pass *pass, int64_t index, lk_tensor *seed);

/* The settings of the forward pass in a training step. */
lk_forward_opts lk__shard_pass_opts(lk_shard_pass *pass);

/* Pushes the forward pass; sets logits[]. */
lk_status lk__shard_pass_forward(lk_shard_pass *pass, const lk_forward_opts *opts);

/* Calls `forward`, which sets losses[], and pushes the backward pass from them; sets gradients[]. */
lk_status lk__shard_pass_gradients(lk_shard_pass *pass, lk_status (*forward)(void *user), void *user);

/* Pushes for every shard what lk__training_pass pushes for one; the values of shard i begin at values[i * n_values]. */
lk_status lk__shard_pass_train(lk_shard_pass *pass, lk_tensor **values);

/* Pushes the forward pass alone; sets statistics[]. */
lk_status lk__shard_pass_statistics(lk_shard_pass *pass);
