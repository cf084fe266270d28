#ifndef LK_CLI_PROGRAM_MEMORY_H
#define LK_CLI_PROGRAM_MEMORY_H

#include "lockstep/nn.h"
#include "lockstep/program.h"

typedef struct cli_training_step {
    int64_t samples, micro_batch; /* of the shard, and of a piece; 0: all */
    lk_dtype dtype;               /* see lk_forward_opts */
    bool recompute;               /* this and the next: see lk_program_opts */
    size_t keep_bytes;
} cli_training_step;

/* Of such a step of the model, which runs once. Errors: those of the model and of programs. */
lk_status cli_program_memory(const lk_model *model, const cli_training_step *shard, lk_program_memory *memory);

#endif
