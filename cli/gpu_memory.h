#ifndef LK_CLI_GPU_MEMORY_H
#define LK_CLI_GPU_MEMORY_H

#include "lockstep/train.h"

typedef struct cli_gpu_memory {
    int devices;
    int64_t shards;
    int64_t needed, there; /* bytes: lk_plan.memory_needed, memory_there */
} cli_gpu_memory;

/* What training takes of a GPU, as it is reckoned before it begins. Errors: those of lk_trainer_new, LK_ERR_MEMORY
 * among them, which says what it takes where that is not there. */
lk_status cli_gpu_memory_of(const lk_train_config *config, cli_gpu_memory *memory);

#endif
