/* Several devices, one result.
 *
 * The global batch of a step is cut into V logical shards; each device owns a contiguous range of shards. Everything
 * that depends on the batch is computed shard by shard, and sums over shards follow one fixed binary tree: node (lo,
 * hi) adds its children (lo, mid) and (mid, hi), mid = floor((lo + hi) / 2). Results do not depend on which device
 * computes which node, and so not on the number of devices.
 *
 * Most programs need only lk_strategy_new, for lk_replicas (lockstep/replicas.h); lk_trainer makes its own. */
#ifndef LOCKSTEP_DIST_H
#define LOCKSTEP_DIST_H

#include "lockstep/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

/* --- shards ------------------------------------------------------------------------------------------------------- */

/* The range [begin, end). */
typedef struct lk_range {
    int64_t begin, end;
} lk_range;

/* Part number `part` when `count` things are cut into `parts` contiguous ranges, in order, whose sizes differ by at
 * most one. If count < parts, some are empty. The samples of a shard are lk_part(samples, V, shard), and the shards of
 * a device are lk_part(V, devices, device). count: from 0. parts: from 1. part: 0 … parts - 1. */
LK_API lk_range lk_part(int64_t count, int64_t parts, int64_t part);

/* The default V, a power of two: 8; fewer, so that each shard has at least 32 samples, or 16 if there are two shards;
 * more, so that no shard has over 64. It depends on the batch alone, so that results do not depend on the devices. */
LK_API int64_t lk_default_shards(int64_t batch_size);

/* Sets parts[s] to the samples of shard s of `batch` (axis 0), on the device that owns the shard: a view on the batch's
 * own device, a copy on others. parts: [shards], new tensors. On failure every entry is NULL. Asynchronous. Errors:
 * LK_ERR_SHAPE (a scalar), LK_ERR_ARGUMENT (no shard, more devices than shards). */
LK_API lk_status lk_split_batch_at(lk_call_site at, lk_tensor *batch, int64_t shards, lk_device *const *devices,
                                   int n_devices, lk_tensor **parts);
#define lk_split_batch(...) lk_split_batch_at(LK_HERE, __VA_ARGS__)

/* Sets copies[d] to a new copy of `tensor` on devices[d]. On failure every entry is NULL. Asynchronous. */
LK_API lk_status lk_broadcast_at(lk_call_site at, lk_tensor *tensor, lk_device *const *devices, int n_devices,
                                 lk_tensor **copies);
#define lk_broadcast(...) lk_broadcast_at(LK_HERE, __VA_ARGS__)

/* Replaces each of tensors[0 … n) by the sum of all, by the tree over the arguments: the sum of V shards' tensors has
 * the same bits whichever devices they are on. The tensors have one shape and dtype, and may be on any devices, several
 * on one. NULL entries are absent: they add nothing and receive nothing. In place, asynchronous. Errors: LK_ERR_SHAPE,
 * LK_ERR_DTYPE, LK_ERR_DEVICE (devices of different kinds, or more than LK_MAX_DEVICES). */
LK_API lk_status lk_allreduce_at(lk_call_site at, lk_tensor *const *tensors, int64_t n);
#define lk_allreduce(...) lk_allreduce_at(LK_HERE, __VA_ARGS__)

/* Sets sums[i] to the sum of parts[0 … n) by the same tree, a new tensor on parts[i]'s device; parts stay as they are.
 * A tape records it as one function, whose gradient is the same sum of the outputs' gradients: for sums over shards in
 * the middle of a forward pass, as in global batch-norm. No part may be NULL. On failure every entry of sums is NULL.
 * Asynchronous. Errors: as for lk_allreduce. */
LK_API lk_status lk_allreduce_recorded_at(lk_call_site at, lk_tensor *const *parts, lk_tensor **sums, int n);
#define lk_allreduce_recorded(...) lk_allreduce_recorded_at(LK_HERE, __VA_ARGS__)

/* --- strategies --------------------------------------------------------------------------------------------------- */

/* A strategy says where variables are, and where gradients are summed.
 *   one-device       one replica
 *   mirrored         a replica of the variables on every device; gradients are summed over all devices in every step
 *   central-storage  variables and the optimizer's state on one device, which the others read; gradients are summed
 *                    there
 *   multi-worker     as mirrored, over the devices of several processes that mpirun, or TF_CONFIG in each, makes one
 *                    job (`lockstep launch` starts only the command itself); each process makes the strategy with its
 *                    own devices. Without a trainer, which may have keys, addresses in TF_CONFIG must be on loopback
 *   tpu              as mirrored, over devices of a PJRT plug-in (lockstep/pjrt.h)
 * "parameter-server" is for lk_train_config only: see lockstep/parameter_server.h. */
typedef struct lk_strategy lk_strategy;

/* Keeps references to the devices. NULL on failure. Errors: LK_ERR_ARGUMENT (unknown name; devices of different kinds;
 * a device given twice; a number of devices that the strategy does not take), LK_ERR_MEMORY; multi-worker:
 * LK_ERR_BACKEND (the processes do not come together; without a trainer they have 60 s), LK_ERR_UNSUPPORTED (there are
 * no messages for them), LK_ERR_FORMAT (TF_CONFIG). */
LK_API lk_strategy *lk_strategy_new(const char *name, lk_device *const *devices, int n_devices);
LK_API void lk_strategy_release(lk_strategy *strategy);

/* The ways to add up shards' quantities between devices. */
typedef enum lk_reduce {
    LK_REDUCE_TREE, /* by the tree: bits do not depend on the number of devices; the default */
    LK_REDUCE_NCCL  /* by NCCL's all-reduce of each device's own sum: bits depend on the number of devices */
} lk_reduce;

/* Sets it for sums that begin later. On failure it stays as it was. Errors: LK_ERR_UNSUPPORTED (NCCL cannot be used
 * between these devices; the message says why). */
LK_API lk_status lk_strategy_set_reduce(lk_strategy *strategy, lk_reduce reduce);

/* Lets sums that begin later travel between devices as bf16, in half the bytes. Large tensors are rounded before they
 * are sent, and once more as sums, so bits depend on the number of devices; replicas stay equal. Errors:
 * LK_ERR_ARGUMENT (anything but "multi-worker" on CPU devices; the exchange is LK_EXCHANGE_TREE). */
LK_API lk_status lk_strategy_set_compression(lk_strategy *strategy, bool compressed);

/* The ways that sums by the tree take between devices. The bits are the same. */
typedef enum lk_exchange {
    LK_EXCHANGE_AUTO, /* by the number of devices and the bytes of each sum, the one that should be faster; the default
                       */
    LK_EXCHANGE_FLAT, /* every device sends a slice to every other one: 2 steps */
    LK_EXCHANGE_TREE  /* by halving along the tree and doubling: about 2 log2 k steps for k devices */
} lk_exchange;

/* Sets it for sums that begin later; all processes must set the same. It has no effect on devices that read each
 * other's memory, and on sums by NCCL. Errors: LK_ERR_ARGUMENT (the tree with lk_strategy_set_compression: sums would
 * be rounded in every step). */
LK_API lk_status lk_strategy_set_exchange(lk_strategy *strategy, lk_exchange exchange);

/* Returns the way that a sum of `bytes` takes: LK_EXCHANGE_FLAT or LK_EXCHANGE_TREE. LK_EXCHANGE_AUTO: none, because
 * there is one device, or devices read each other's memory, or NCCL adds up, or devices of a PJRT plug-in do, which get
 * whole tensors. */
LK_API lk_exchange lk_strategy_exchange(const lk_strategy *strategy, int64_t bytes);

/* Returns the transport of gradients between devices: "inproc" (memory of the process), "peer copies", "NCCL 2.28.9",
 * "shared memory, 2 processes", "Open MPI 4.1.4, 2 processes", or "" for one device. Between GPUs NCCL is used if the
 * plug-in has it and it works; sums by the tree have the same bits with all transports. Valid as long as the strategy.
 */
LK_API const char *lk_strategy_transport(const lk_strategy *strategy);

LK_API const char *lk_strategy_name(const lk_strategy *strategy);
LK_API int lk_strategy_num_replicas(const lk_strategy *strategy);

/* The number of devices in all processes, and the number of this process's first device among them. A device with
 * number `rank` owns the shards lk_part(V, ranks, rank). In a single process these are num_replicas and 0. */
LK_API int lk_strategy_ranks(const lk_strategy *strategy);
LK_API int lk_strategy_first_rank(const lk_strategy *strategy);

LK_API lk_device *lk_strategy_device(const lk_strategy *strategy, int replica);

/* central-storage: the device with the variables, which may be one that does not compute, and of another kind. Other
 * strategies: NULL. */
LK_API lk_device *lk_strategy_storage(const lk_strategy *strategy);

/* Sets the device with the variables, before any are placed. The default is the first device if devices use the
 * process's memory, else cpu:0. Keeps a reference. Errors: LK_ERR_ARGUMENT (not central-storage; NULL). */
LK_API lk_status lk_strategy_set_storage(lk_strategy *strategy, lk_device *device);

/* Shares the optimizer's state of replicas that are made later: each device updates only its slice of the parameters,
 * has only its state (ZeRO stage 1: Rajbhandari et al. 2020), and gathers the other slices of the parameters. With
 * "multi-worker" the devices of all processes share, and make checkpoints together: see lk_replicas_save. The bits are
 * the same. Errors: LK_ERR_ARGUMENT (another strategy than "one-device", "mirrored", "multi-worker" and "tpu"). */
LK_API lk_status lk_strategy_set_sharded(lk_strategy *strategy, bool sharded);

/* The number of devices that have variables of their own: 1 for central-storage, else num_replicas. */
LK_API int lk_strategy_owners(const lk_strategy *strategy);

/* A process started with these two variables, a descriptor from lk_processes_share and its rank, exchanges messages
 * with its siblings through shared memory. Without them multi-worker uses MPI, or TCP if it was not started by MPI and
 * TF_CONFIG has its task. */
#define LK_SHARED_MEMORY_VARIABLE "LOCKSTEP_SHARED_MEMORY"
#define LK_RANK_VARIABLE "LOCKSTEP_RANK"

/* Makes memory for the messages between `ranks` processes of this machine, which a program is about to start. The
 * caller closes *descriptor, which exec does not pass on unless FD_CLOEXEC is cleared. The memory is freed when nobody
 * uses it any more; it has no name. Errors: LK_ERR_ARGUMENT, LK_ERR_IO. */
LK_API lk_status lk_processes_share(int ranks, int *descriptor);

/* Checks that this process may open that many files more, sockets included; a process that it starts may open as many.
 * what: the beginning of the message. Errors: LK_ERR_IO, with the number that is free. */
LK_API lk_status lk_check_open_files(const char *what, int files);

/* Ends the part of this process in a training of several (multi-worker). Waits for the others; nothing can be exchanged
 * afterwards. A process that exits without it counts as lost and ends the others too. Does nothing in a single process.
 * Errors: LK_ERR_BACKEND, and the error of another process that has failed. */
LK_API lk_status lk_leave_processes(void);

/* Call this before a process of several exits with the thread's error, after the error was reported and everything was
 * released. It passes the error on: the others fail with the same status, and a message that begins with "rank 1 on
 * HOST gave up: ". (An error in training passes itself on.) Then it waits until the others have come here too, five
 * seconds at most, because the program that started them may kill all when the first one exits. Does nothing in a
 * single process, or after lk_leave_processes. */
LK_API void lk_abandon_processes(void);

/* Names of strategies; NULL past the end. Static. */
LK_API const char *lk_strategy_name_at(int index);

/* The processes that a strategy trains in. */
typedef enum lk_strategy_kind {
    LK_STRATEGY_LOCAL,       /* one process */
    LK_STRATEGY_SYNCHRONOUS, /* several, each of which is a rank: multi-worker */
    LK_STRATEGY_ASYNCHRONOUS /* several, each of which has a role: parameter-server */
} lk_strategy_kind;

/* Returns the kind of the strategy called `name`; NULL or an unknown name: LK_STRATEGY_LOCAL. */
LK_API lk_strategy_kind lk_strategy_kind_of(const char *name);

/* Sets variables[r * n + i] to a new copy of initial[i] on replica r's device, for r in [0, owners); with
 * central-storage on the storing device. The caller gets one reference each. Asynchronous. */
LK_API lk_status lk_strategy_distribute(lk_strategy *strategy, lk_tensor *const *initial, int n, lk_tensor **variables);

/* --- advanced: sums over shards ----------------------------------------------------------------------------------- */

/* Sums n quantities (gradients, losses, counts) over shards. Siblings in the tree are added on a device as soon as both
 * are there, so a device holds at most two nodes per level of the tree. */
typedef struct lk_shard_sum lk_shard_sum;

/* The strategy must outlive the sum. NULL on failure. Errors: LK_ERR_ARGUMENT (fewer shards than devices),
 * LK_ERR_MEMORY. */
LK_API lk_shard_sum *lk_shard_sum_new(lk_strategy *strategy, int64_t shards, int n);
LK_API void lk_shard_sum_release(lk_shard_sum *sum);

/* Says that the shards given next belong to a batch of `samples` samples, cut by lk_part. In a training of several
 * processes each one knows by it which shards of the others are empty. It holds until the next call; before the first
 * one no shard is empty. All processes call it alike, before a shard is added. */
LK_API void lk_shard_sum_start(lk_shard_sum *sum, int64_t samples);

/* Adds the values of one shard, which are on its owner's device and may be views with gaps; they are retained. A NULL
 * values[i] is absent, and so are all if `values` is NULL (an empty shard). Among several processes, values may be
 * absent from the shards that lk_shard_sum_start announced as empty, and from no other: the processes would wait for
 * each other. The shards of a device must come in ascending order. Errors: LK_ERR_ARGUMENT (a shard twice or out of
 * order; nothing changes); those of lk_add (the sum is then empty again). */
LK_API lk_status lk_shard_sum_add(lk_shard_sum *sum, int64_t shard, lk_tensor *const *values);

/* Adds only quantities[0 … n), whose values are values[quantities[0 … n)]: for gradients, as backward finishes them.
 * For each quantity the shards of a device must come in ascending order. */
LK_API lk_status lk_shard_sum_add_some(lk_shard_sum *sum, int64_t shard, const int *quantities, int n,
                                       lk_tensor *const *values);

/* Begins to sum over devices the quantities that all shards had added at the previous call, while devices go on with
 * what was pushed since. One call later even the slower devices have finished them, so none waits. Optional:
 * lk_shard_sum_finish sums the rest. Asynchronous. Errors: those of lk_add (the sum is then empty again). */
LK_API lk_status lk_shard_sum_exchange_at(lk_call_site at, lk_shard_sum *sum);
#define lk_shard_sum_exchange(...) lk_shard_sum_exchange_at(LK_HERE, __VA_ARGS__)

/* Sets sums[r * n + i] to the sum of quantity i over all shards, on replica r's device; NULL: it was absent from every
 * shard. With central-storage, sums[i] is on the storing device and the other entries are NULL. The caller gets one
 * reference each, and the object is empty again, ready for the next step. Asynchronous. Errors: LK_ERR_STATE (a shard
 * is missing), those of lk_add; then every entry is NULL. */
LK_API lk_status lk_shard_sum_finish_at(lk_call_site at, lk_shard_sum *sum, lk_tensor **sums);
#define lk_shard_sum_finish(...) lk_shard_sum_finish_at(LK_HERE, __VA_ARGS__)

#ifdef __cplusplus
}
#endif

#endif
