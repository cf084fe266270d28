/* --precise-bn: running statistics of batch-norm, measured after each epoch. */
#pragma once

#include "lockstep/train.h"

/* Makes the sum and the loader that lk__measure_statistics needs, if --precise-bn is given and the model has
 * batch-norm.
 */
lk_status lk__plan_precise_statistics(lk_trainer *trainer);

/* Sets the running statistics from the first batches of the epoch that has ended. Does nothing if they were not
 * planned.
 */
lk_status lk__measure_statistics(lk_trainer *trainer);
