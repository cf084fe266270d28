/* Running layers: what a layer's forward pass calls. */
#pragma once

#include "nn/layer.h"

/* Computes y[s] from x[s] for each shard of the call. y belongs to the open scope. call->layer is the parent of
 * `layer`. */
lk_status lk__layer_run(const lk_layer_call *call, const lk_layer *layer, lk_tensor *const *x, lk_tensor **y);

/* Like lk_layer_call_variable, but in f32 whatever dtype the pass computes in. */
lk_tensor *lk__layer_master(const lk_layer_call *call, int shard, int variable);
