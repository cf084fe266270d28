#ifndef LK_CLI_PROGRAM_MEMORY_H
#define LK_CLI_PROGRAM_MEMORY_H

#include "lockstep/nn.h"
#include "lockstep/program.h"

/* Of a training step of the model on a shard of so many samples, which runs once. recompute: see lk_program_opts.
 * Errors: those of the model and of programs. */
lk_status cli_program_memory(const lk_model *model, int64_t samples, bool recompute, lk_program_memory *memory);

#endif
