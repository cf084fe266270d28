/* Tells how much memory a training will take. */
#ifndef LOCKSTEP_MEMORY_H
#define LOCKSTEP_MEMORY_H

#include "lockstep/nn.h"
#include "lockstep/program.h"
#include "lockstep/train_config.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The memory of one device, in bytes: of the device that needs most. */
typedef struct lk_memory_estimate {
    int devices;
    int64_t shards;

    /* GPUs. needed: estimate for training, without temporaries of single operators. available: memory that is free
     * before the first step, plus what the training already holds. */
    bool on_gpu;
    int64_t needed, available;

    /* CPU devices. */
    int64_t samples;        /* of a shard */
    int64_t shards_at_once; /* those of a group of batch-norm; all of the device's if devices share a group, or if
                             * `run_step` found that they share calls, as those of dense networks do */
    int64_t micro_batch;    /* samples of a shard that run together; 0: all */
    lk_dtype dtype;         /* of the forward and backward pass */
    double variables;       /* parameters and buffers */
    double gradients;       /* a shard's, partial sums over shards, and two copies of the last update's sum */
    double optimizer;       /* the optimizer's state, or the device's share of it */
    double activations;     /* of the layers' outputs, with their gradients, at the moment when they need most */
    double least; /* lower bound of what all devices of the process need together: with less memory training fails */
    lk_program_memory step; /* inside a replay of a shard's recorded step; zeros unless `run_step` */
} lk_memory_estimate;

/* Estimates the memory that lk_trainer_new(config) and a step take. model: built for the images of the data; on GPUs
 * the configuration's own model and data are used. run_step: also run a shard's step once on a CPU device, on zeros,
 * because the kernels choose layouts, and so sizes, when they run. Checkpoints of `config` are left out. Blocks.
 * Errors: LK_ERR_ARGUMENT (a configuration that makes no sense), LK_ERR_UNSUPPORTED (devices of a PJRT plug-in),
 * LK_ERR_MEMORY; on GPUs those of lk_trainer_new. */
LK_API lk_status lk_estimate_memory(const lk_train_config *config, const lk_model *model, bool run_step,
                                    lk_memory_estimate *estimate);

#ifdef __cplusplus
}
#endif

#endif
