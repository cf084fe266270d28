/* Variables that live on one device, as the computing devices read them: in place if both devices use the process's
 * memory, else through copies that are refreshed after each update. */
#pragma once

#include "lockstep/tensor.h"

typedef struct lk_stored lk_stored;

/* Sets readers[d * n + i] to what devices[d] reads in place of stored[i], one reference each, owned by the caller; this
 * is stored[i] itself on the device that stores it. stored: f32 tensors of one device, which must live as long, in as
 * few storages as possible. Waits for them. On failure every entry of readers is NULL. */
lk_status lk__stored_new(lk_tensor *const *stored, int n, lk_device *const *devices, int n_devices, lk_tensor **readers,
                         lk_stored **s);
void lk__stored_release(lk_stored *s); /* NULL is fine */

/* Call these around an update of the stored variables: work pushed before `begin` reads the old values, work pushed
 * after `end` the new ones. Asynchronous. */
lk_status lk__stored_begin_update(lk_stored *s);
lk_status lk__stored_end_update(lk_stored *s);
