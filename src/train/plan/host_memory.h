/* Checks that training on CPU devices can fit into this machine's memory. */
#pragma once

#include "lockstep/train.h"

/* Call it before variables are made. Errors: LK_ERR_MEMORY: `least` of lk_estimate_memory is more than the memory that
 * this process can get. A training that is refused cannot fit; one that is not refused may still run out of memory. */
lk_status lk__check_host_memory(const lk_trainer *trainer);
