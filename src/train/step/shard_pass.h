/* A pass of several shards at once, on one tape. */
#pragma once

#include "train/trainer_progress.h"

/* Shards of a training batch that go through the model together. The open scope owns the tensors. */
typedef struct lk_shard_pass {
    lk_trainer *trainer;
    const lk_update *update;
    lk_batch *batch;
    int n;
    lk_shard *shards;                 /* [n] */
    lk_tensor *const **sets;          /* [n]: each shard's variables */
    lk_tensor **images, **indices;    /* [n] */
    lk_tensor **logits;               /* [n]: of the forward pass */
    lk_tensor **losses, **seeds;      /* [n]: scalars, and the gradients of the losses, with which backward starts */
    lk_tensor **watched, **gradients; /* [n * parameters]: each shard's views of the parameters, and their gradients */
    lk_tensor **memory;               /* the block that holds the arrays of tensors above */
} lk_shard_pass;

/* Allocates memory for up to `shards` shards. lk__shard_pass_free frees it, also after a failure. */
lk_status lk__shard_pass_init(lk_shard_pass *pass, lk_trainer *trainer, int64_t shards);
void lk__shard_pass_free(lk_shard_pass *pass);

/* Begins a new pass, which has no shards yet. */
void lk__shard_pass_start(lk_shard_pass *pass, const lk_update *update, lk_batch *batch);

/* Adds shard `index` of the batch, if it has samples. `variables`: from lk__view_variables, not shared with another
 * shard. */
lk_status lk__shard_pass_add(lk_shard_pass *pass, int64_t index, int replica, lk_tensor *const *variables,
                             lk_tensor *seed);

/* Adds a shard of one blank image on replica 0, for the sums in the middle of a pass that has no samples. */
lk_status lk__shard_pass_add_blank(lk_shard_pass *pass, int64_t index, lk_tensor *const *variables, lk_tensor *seed);

/* views[0 … variables): views of the replica's parameters, then its buffers themselves, which no tape watches. */
lk_status lk__view_variables(const lk_trainer *trainer, int replica, lk_tensor **views);

/* The settings of the forward pass in a training step, with --bn sync too. */
lk_forward_opts lk__shard_pass_opts(const lk_shard_pass *pass);

/* Pushes the forward pass; sets logits[]. */
lk_status lk__shard_pass_forward(lk_shard_pass *pass, const lk_forward_opts *opts);

/* Calls `forward`, which sets losses[], and pushes the backward pass from them; sets gradients[]. */
lk_status lk__shard_pass_gradients(lk_shard_pass *pass, lk_status (*forward)(void *user), void *user);
