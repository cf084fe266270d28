/* Opens a trainer's devices and makes its strategy. */
#pragma once

#include "lockstep/train.h"

/* Joins the other processes, opens this process's devices and makes the strategy over them; sets what the plan says
 * about devices, processes, shards, storage and reduction. Errors: LK_ERR_ARGUMENT (options that do not fit the devices
 * or each other; processes that were started differently), those of lk_devices_open and lk_strategy_new. */
lk_status lk__trainer_devices_open(lk_trainer *trainer);

/* The bytes of gradients after which backward is cut, and a bucket is full; 0: after all of them. Between processes no
 * more than LK_REMOTE_BUCKET_BYTES. */
int64_t lk__trainer_segment_bytes(const lk_trainer *trainer);

/* The bytes of a full bucket of gradients, or of all of them if they fill none. */
int64_t lk__trainer_bucket_bytes(const lk_trainer *trainer);
