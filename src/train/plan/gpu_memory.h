/* Checks whether training fits into the memory of GPUs. */
#pragma once

#include "lockstep/train.h"

/* If the devices have their own memory, sets plan.memory_needed and plan.memory_there. Errors: LK_ERR_MEMORY (training
 * cannot fit; the message gives the largest batch that does). */
lk_status lk__check_gpu_memory(lk_trainer *trainer);
