/* The variables and the optimizer's state on the devices: restores them from a checkpoint or from values. */
#pragma once

#include "train/checkpoint/checkpoint.h"

/* Like lk_replicas_restore, but with same_settings false the optimizer may differ from the checkpoint's: one of another
 * kind starts anew, and so does each slot that the checkpoint lacks. */
lk_status lk__replicas_restore(lk_replicas *replicas, const lk_checkpoint *checkpoint, bool same_settings);

/* Makes parts[parameters]: for each parameter a tensor over its part of the optimizer's slot. New references. */
lk_status lk__replicas_slot(lk_replicas *replicas, int owner, int slot, lk_tensor **parts);

/* Reads the state of parameter i in the optimizer's slot, or writes it on every replica that has it. Waits. */
lk_status lk__replicas_read_state(lk_replicas *replicas, int slot, int i, float *values);
lk_status lk__replicas_write_state(lk_replicas *replicas, int slot, int i, const float *values);

/* Writes values[i] to variable i on every replica, or where the variables are stored. */
lk_status lk__replicas_write(lk_replicas *replicas, const float *const *values);
