#include "gpu_memory.h"

lk_status cli_gpu_memory_of(const lk_train_config *config, cli_gpu_memory *memory)
{
    lk_trainer *trainer = lk_trainer_new(config);
    if (!trainer)
        return lk_error_status();
    const lk_plan *plan = lk_trainer_plan(trainer);
    *memory = (cli_gpu_memory){plan->devices, plan->shards, plan->memory_needed, plan->memory_there};
    lk_trainer_release(trainer);
    return LK_OK;
}
