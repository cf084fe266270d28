/* Running statistics of batch-norm layers. */
#pragma once

#include "nn/model.h"

/* Sets *mean and *variance to the positions of the layer's running statistics among the model's variables. Returns
 * their momentum. */
double lk__batch_norm_running(const lk_layer *layer, int *mean, int *variance);

/* Updates the layer's running statistics with lk_batch_norm_update. momentum 0: the layer's own. */
lk_status lk__batch_norm_update(const lk_layer *layer, lk_tensor *const *variables, lk_tensor *sums, int64_t samples,
                                double momentum, lk_tensor *skip);
