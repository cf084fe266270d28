/* Several devices, one result.
 *
 * The global batch of a step is cut into V logical shards; devices own contiguous ranges of shards. What depends on the
 * batch is computed for each shard by itself, and sums over shards follow one fixed binary tree: node (lo, hi) adds its
 * children (lo, mid) and (mid, hi), mid = floor((lo + hi) / 2). Which device computes which node does not enter into
 * the result, so neither does the number of devices. */
#ifndef LOCKSTEP_DIST_H
#define LOCKSTEP_DIST_H

#include "lockstep/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

/* --- shards ------------------------------------------------------------------------------------------------------ */

/* [begin, end) */
typedef struct lk_range {
    int64_t begin, end;
} lk_range;

/* Part `part` of `count` things cut into `parts`: contiguous, sizes differing by at most one, in order, together all of
 * them. With count < parts some are empty. Samples of a shard: lk_part(samples, V, shard). Shards of a device:
 * lk_part(V, devices, device). */
LK_API lk_range lk_part(int64_t count, int64_t parts, int64_t part);

/* The default V: the largest power of two <= 8 with batch / V >= 32, at least 1; if that is below `devices`, the next
 * power of two >= devices. */
LK_API int64_t lk_default_shards(int64_t batch_size, int64_t devices);

/* parts[s] = samples of shard s of `batch` (axis 0), on the device that owns the shard: a view if that is the batch's
 * own device, else a copy. parts: [shards]. On failure every entry is NULL. Asynchronous.
 * Errors: LK_ERR_SHAPE (a scalar), LK_ERR_ARGUMENT (no shard, more devices than shards). */
LK_API lk_status lk_split_batch_at(lk_place at, lk_tensor *batch, int64_t shards, lk_device *const *devices,
                                   int n_devices, lk_tensor **parts);
#define lk_split_batch(...) lk_split_batch_at(LK_HERE, __VA_ARGS__)

/* copies[d] = a copy of `tensor` on devices[d]. On failure every entry is NULL. Asynchronous. */
LK_API lk_status lk_broadcast_at(lk_place at, lk_tensor *tensor, lk_device *const *devices, int n_devices,
                                 lk_tensor **copies);
#define lk_broadcast(...) lk_broadcast_at(LK_HERE, __VA_ARGS__)

/* Each of tensors[0 … n) becomes the sum of all: a tree over the arguments, so the sum of V shards' tensors has the
 * same bits whichever devices the shards are on. The tensors have one shape and dtype; they may be on one device or on
 * many, several on one included. NULL entries are absent: they add nothing and receive nothing. In place, asynchronous.
 * Errors: LK_ERR_SHAPE, LK_ERR_DTYPE, LK_ERR_DEVICE (devices of different kinds, or more than LK_MAX_DEVICES). */
LK_API lk_status lk_allreduce_at(lk_place at, lk_tensor *const *tensors, int64_t n);
#define lk_allreduce(...) lk_allreduce_at(LK_HERE, __VA_ARGS__)

/* sums[i] = the sum of parts[0 … n) by the same tree, a new tensor on parts[i]'s device; parts stay as they are. On a
 * tape it is recorded as one function, whose gradient is the same sum of the outputs' gradients: a reduction in the
 * middle of a forward pass over several shards, as global batch-norm has it. No entry may be NULL. On failure every
 * entry of sums is NULL. Asynchronous. Errors: as above. */
LK_API lk_status lk_allreduce_recorded_at(lk_place at, lk_tensor *const *parts, lk_tensor **sums, int n);
#define lk_allreduce_recorded(...) lk_allreduce_recorded_at(LK_HERE, __VA_ARGS__)

/* --- strategies -------------------------------------------------------------------------------------------------- */

/* What is where, and when it is summed. "one-device": one replica. "mirrored": a replica of the variables on every
 * device, gradients summed over all of them in every step. "central-storage": variables and the optimiser's state on
 * one device, which the others read; gradients summed there. "multi-worker": the same over the devices of several
 * processes, which MPI's mpirun or the like has started; each of them makes the strategy with its own devices. */
typedef struct lk_strategy lk_strategy;

/* Whether the strategy works with devices that lk_devices_open opens. LK_OK: it does. "tpu" has its own, behind the
 * PJRT plug-in of that file (NULL: see lk_pjrt_find), for which there are no kernels: LK_ERR_UNSUPPORTED, with the
 * devices found, or the errors of lk_pjrt_find. Errors also: LK_ERR_ARGUMENT (unknown name; a plug-in, where none is
 * needed). */
LK_API lk_status lk_strategy_find(const char *name, const char *plugin);

/* Keeps references to the devices. Errors: LK_ERR_ARGUMENT (unknown name, devices of mixed kinds or of a number that
 * it does not take), LK_ERR_MEMORY. */
LK_API lk_strategy *lk_strategy_new(const char *name, lk_device *const *devices, int n_devices);
LK_API void lk_strategy_release(lk_strategy *strategy);

/* How sums over shards are made between devices. LK_REDUCE_TREE: by the tree, whose bits do not depend on the devices.
 * LK_REDUCE_NCCL: NCCL's own all-reduce of what each device has added up, which depends on how many there are. */
typedef enum lk_reduce { LK_REDUCE_TREE, LK_REDUCE_NCCL } lk_reduce;

/* Of the sums that are begun later; LK_REDUCE_TREE before. Errors: LK_ERR_UNSUPPORTED (NCCL, and why it cannot be used
 * between these devices), which leaves it as it was. */
LK_API lk_status lk_strategy_set_reduce(lk_strategy *strategy, lk_reduce reduce);

/* Sums that are begun later go from device to device as bf16: half the bytes. What is large is rounded before it
 * leaves, and once more when it is added up, so bits depend on the number of devices; replicas stay equal. Errors:
 * LK_ERR_ARGUMENT (of strategies, "multi-worker" on CPU devices has it). */
LK_API lk_status lk_strategy_set_compression(lk_strategy *strategy, bool compressed);

/* How gradients get from device to device: "inproc" (they share their memory), "peer copies", "NCCL 2.28.9", "Open MPI
 * 4.1.4, 2 processes", or "" for one device. NCCL is used between GPUs where the plug-in has it and can; sums by the
 * tree have the same bits. Valid as long as the strategy. */
LK_API const char *lk_strategy_transport(const lk_strategy *strategy);

LK_API const char *lk_strategy_name(const lk_strategy *strategy);
LK_API int lk_strategy_num_replicas(const lk_strategy *strategy);

/* Devices are ranks [first_rank, first_rank + num_replicas) of `ranks`, counted over all processes, which says whose
 * shards are whose: lk_part(V, ranks, rank). With one process: 0, and num_replicas. */
LK_API int lk_strategy_ranks(const lk_strategy *strategy);
LK_API int lk_strategy_first_rank(const lk_strategy *strategy);

LK_API lk_device *lk_strategy_device(const lk_strategy *strategy, int replica);

/* Of central-storage, the device with the variables; of others NULL. It need not be one that computes, nor of their
 * kind. */
LK_API lk_device *lk_strategy_storage(const lk_strategy *strategy);

/* Before variables are placed; until then it is the first device where devices share the process's memory, else cpu:0.
 * Keeps a reference. Errors: LK_ERR_ARGUMENT (another strategy than central-storage). */
LK_API lk_status lk_strategy_set_storage(lk_strategy *strategy, lk_device *device);

/* How many devices have variables of their own: 1 of central-storage, else as many as replicas. */
LK_API int lk_strategy_owners(const lk_strategy *strategy);

/* Where processes train together (multi-worker): this one is through, and may end without the others taking it for
 * lost. Waits for all of them; nothing can be exchanged afterwards. With one process it does nothing. A process that
 * ends without it ends the others too. Errors: LK_ERR_BACKEND, and those of another process that has given up. */
LK_API lk_status lk_leave_processes(void);

/* For a process that ends by an error, the thread's, once that was reported and everything was released; does nothing
 * where it trains with no others, or has left them. What fails in one of several processes fails in all of them: in the
 * others with the same status, and "rank 1 on HOST gave up: " in front of the message. Training sees to that by itself;
 * this does where something else has failed. Then, as whoever started the processes may end all when the first one
 * ends, it waits until the others, too, have come here, five seconds at most. */
LK_API void lk_abandon_processes(void);

/* Names that lk_strategy_new takes; NULL past the end. */
LK_API const char *lk_strategy_name_at(int index);

/* variables[r * n + i] = a copy of initial[i] on replica r's device, r in [0, owners); with central-storage that is the
 * storing one. One reference each. Asynchronous. */
LK_API lk_status lk_strategy_place(lk_strategy *strategy, lk_tensor *const *initial, int n, lk_tensor **variables);

/* A sum over shards of n quantities at once (gradients, losses, counts). Siblings in the tree are added on the device
 * as soon as both are there, so a device holds at most two nodes a level of the tree. */
typedef struct lk_shard_sum lk_shard_sum;

/* The strategy has to live as long. Errors: LK_ERR_ARGUMENT (fewer shards than devices), LK_ERR_MEMORY. */
LK_API lk_shard_sum *lk_shard_sum_new(lk_strategy *strategy, int64_t shards, int n);
LK_API void lk_shard_sum_release(lk_shard_sum *sum);

/* Values of one shard, on its owner's device; retained. values[i] NULL, or `values` NULL for an empty shard, is absent.
 * The shards of one device are given in rising order. Errors: LK_ERR_ARGUMENT (a shard twice, or out of order; nothing
 * is changed); those of lk_add (the object is then empty again). */
LK_API lk_status lk_shard_sum_add(lk_shard_sum *sum, int64_t shard, lk_tensor *const *values);

/* The same for quantities[0 … n) alone, whose values are values[quantities[0 … n)]: gradients as backward finishes
 * them. The order of shards is that of each quantity. */
LK_API lk_status lk_shard_sum_add_some(lk_shard_sum *sum, int64_t shard, const int *quantities, int n,
                                       lk_tensor *const *values);

/* Begins to sum over devices what every shard had given when it was called last, while the devices go on with what was
 * pushed since: by then the slower one is through with it too, and none waits. May be left out; lk_shard_sum_finish
 * does the rest. Asynchronous. Errors: those of lk_add (the object is then empty again). */
LK_API lk_status lk_shard_sum_exchange_at(lk_place at, lk_shard_sum *sum);
#define lk_shard_sum_exchange(...) lk_shard_sum_exchange_at(LK_HERE, __VA_ARGS__)

/* sums[r * n + i] = the sum over all shards of quantity i, on replica r's device, one reference each (NULL where it was
 * absent from every shard); with central-storage sums[i] is on the storing device, and the rest NULL. The object is
 * then ready for the next step. Asynchronous. Errors: LK_ERR_STATE (a shard is missing). On failure every entry is NULL
 * and the object is empty again. */
LK_API lk_status lk_shard_sum_finish_at(lk_place at, lk_shard_sum *sum, lk_tensor **sums);
#define lk_shard_sum_finish(...) lk_shard_sum_finish_at(LK_HERE, __VA_ARGS__)

#ifdef __cplusplus
}
#endif

#endif
