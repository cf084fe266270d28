/* Checks that training fits into the memory of the devices. */
#pragma once

#include "lockstep/train.h"

/* If the devices have their own memory, sets plan.memory_needed and plan.memory_there. Errors: LK_ERR_MEMORY (training
 * cannot fit; the message gives the largest batch that does). */
lk_status lk__check_memory(lk_trainer *trainer);
