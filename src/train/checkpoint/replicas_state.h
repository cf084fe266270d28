/* The variables and the optimizer's state on the devices: restores them from a checkpoint or from values. */
#pragma once

#include "train/checkpoint/checkpoint.h"

/* If there are averages of the parameters, they are a checkpoint's model, and the parameters that training goes on with
 * are in optimizer.safetensors under this slot. */
#define LK_TRAINED "trained"

/* The slot, in optimizer.safetensors, of the copy of lk_replicas_keep. */
#define LK_KEPT "kept"

/* Like lk_replicas_restore, but with same_settings false the optimizer may differ from the checkpoint's: one of another
 * kind starts anew, and so does each slot that the checkpoint lacks. */
lk_status lk__replicas_restore(lk_replicas *replicas, const lk_checkpoint *checkpoint, bool same_settings);

/* Makes parts[parameters]: for each parameter a tensor over its part of the optimizer's slot. New references. */
lk_status lk__replicas_slot(lk_replicas *replicas, int owner, int slot, lk_tensor **parts);

/* Reads the state of parameter i in the optimizer's slot, or writes it on every replica that has it. Waits. If
 * processes divide the state among themselves, all have to read the same. */
lk_status lk__replicas_read_state(lk_replicas *replicas, int slot, int i, float *values);
lk_status lk__replicas_write_state(lk_replicas *replicas, int slot, int i, const float *values);

/* Returns whether processes divide the state among themselves and another one writes their checkpoints. */
bool lk__replicas_only_share(const lk_replicas *replicas);

/* Reads all state together with the processes that call lk__checkpoint_contents_copy. If processes do not divide the
 * state, does nothing. */
lk_status lk__replicas_share_state(lk_replicas *replicas);

/* Returns `status`. If it is an error, and others wait for this process's part of the state, tells them. */
lk_status lk__replicas_end_sharing(const lk_replicas *replicas, lk_status status);

/* Reads all variables, one after the other, with averages in place of parameters if there are any. Waits, and must be
 * called as lk__replicas_read_state. */
lk_status lk__replicas_read(lk_replicas *replicas, float *values);

/* The slot of the parameters' averages; -1: there are none. */
int lk__replicas_average_slot(lk_replicas *replicas);

/* Writes values[i] to variable i, and to its average, on every replica, or where the variables are stored. NULL: the
 * variable stays. */
lk_status lk__replicas_write(lk_replicas *replicas, const float *const *values);
