/* The variables of a model on every device, for training loops of your own (examples/custom_training.c).
 *
 *     lk_replicas *replicas = lk_replicas_new(strategy, model, &(lk_optimizer_opts){.kind = LK_ADAM}, seed);
 *     lk_shard_sum *sum = lk_shard_sum_new(strategy, shards, n);   n: gradients, statistics, and what else is summed
 *     lk_run_shards(sum, n, dataset, batch, compute_gradients, user, sums);   sums: n tensors for each replica
 *     lk_replicas_apply(replicas, sums, n, batch->count, rate);
 *     … lk_tensor_release each of sums … */
#ifndef LOCKSTEP_REPLICAS_H
#define LOCKSTEP_REPLICAS_H

#include "lockstep/data.h"
#include "lockstep/dist.h"
#include "lockstep/nn.h"
#include "lockstep/optim.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The variables of a model and their optimizer, on every device or, as the strategy says, on one. A loop may have
 * several, one per model. */
typedef struct lk_replicas lk_replicas;

/* Initializes the variables from `seed`. The strategy and the model must outlive the replicas. opts NULL: no optimizer,
 * and lk_replicas_apply is an error. NULL on failure. Errors: those of lk_model_init and lk_optimizer_new. */
LK_API lk_replicas *lk_replicas_new(lk_strategy *strategy, const lk_model *model, const lk_optimizer_opts *opts,
                                    uint64_t seed);
LK_API void lk_replicas_release(lk_replicas *replicas);

/* The variables on the replica's device: the model's parameters, then its buffers. Borrowed. With central-storage they
 * are read-only copies, or views, of the storing device's, as of the last update. */
LK_API lk_tensor *const *lk_replicas_variables(const lk_replicas *replicas, int replica);

/* The optimizer of the replica's variables; with central-storage, of the storing device's. Borrowed. NULL: none. */
LK_API lk_optimizer *lk_replicas_optimizer(const lk_replicas *replicas, int replica);

/* Updates all variables. sums[replica * stride + i] are those of lk_run_shards over `samples` samples: from i = 0 on
 * the gradients of the model's parameters, then its batch-norm statistics (lk_forward_opts.statistics); other sums may
 * follow. rate: learning rate. Asynchronous. Errors: those of lk_optimizer_step and lk_model_update_statistics; wrong
 * arguments leave all replicas as they are. */
LK_API lk_status lk_replicas_apply(lk_replicas *replicas, lk_tensor *const *sums, int stride, int64_t samples,
                                   double rate);

/* Exchanges the parameters and their averages (lk_optimizer_opts.average) on every replica, to evaluate the averages; a
 * second call exchanges them back, and has to come before the next update. Checkpoints hold the averages as the model
 * while they are not exchanged. Asynchronous; if processes divide the optimizer's state among themselves, all have to
 * call it. Errors: LK_ERR_STATE (there are no averages). */
LK_API lk_status lk_replicas_swap_average(lk_replicas *replicas);

/* Keeps a copy of all variables in host memory, with averages in place of parameters if there are any, and instead of
 * the copy before; checkpoints keep it too. Waits. If processes divide the optimizer's state among themselves and there
 * are averages, all have to call it. Errors: LK_ERR_MEMORY. */
LK_API lk_status lk_replicas_keep(lk_replicas *replicas);

/* Sets the variables of every replica, and their averages, to the kept copy, which stays. The optimizer's other state
 * stays as it is. Errors: LK_ERR_STATE (nothing is kept). */
LK_API lk_status lk_replicas_take_back(lk_replicas *replicas);

/* As lk_trainer_digest. Waits. Errors: LK_ERR_ARGUMENT (no such replica). */
LK_API lk_status lk_replicas_digest(lk_replicas *replicas, int replica, char digest[33]);

/* One shard of a batch, for the function that computes it. All is borrowed; tensors lie over the batch's memory. */
typedef struct lk_shard {
    int replica;          /* that computes it */
    int64_t index;        /* number of the shard, from 0 */
    int64_t shards;       /* in the batch */
    int64_t global_batch; /* samples in the batch */
    lk_device *device;    /* of the replica */
    lk_tensor *images;    /* f32 [N, C, H, W]; NULL: the batch has no images */
    lk_tensor *labels;    /* i32 [N]; NULL likewise */
    lk_tensor *indices;   /* i64 [N]: numbers of the samples in the data set */
} lk_shard;

/* Sets values[0 … n), which are NULL before, to the tensors to sum over shards. They may belong to the open scope. */
typedef lk_status (*lk_shard_fn)(void *user, const lk_shard *shard, lk_tensor **values);

/* Calls `fn` in a scope for every shard of the batch that has samples and that this process computes, and sums the
 * values: sums[replica * n + i] as by lk_shard_sum_finish, one reference each. dataset: the one the batch is from.
 * Asynchronous. Errors: those of `fn` and of lk_shard_sum. */
LK_API lk_status lk_run_shards(lk_shard_sum *sum, int n, const lk_dataset *dataset, lk_batch *batch, lk_shard_fn fn,
                               void *user, lk_tensor **sums);

#ifdef __cplusplus
}
#endif

#endif
