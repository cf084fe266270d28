#pragma once

#include "nn/model.h"

/* Puts trainable parameters first, then frozen ones, then buffers; each stay in the order in which layers asked for
 * them. Tells layers where their variables are, and numbers the batch-norm layers that take statistics in training. */
lk_status lk__model_order_variables(lk_model *model);
