/* Variables that live on one device, as those read them that compute: in place where both have the process's memory,
 * else as copies in memory of their own, which are made anew after each update. */
#ifndef LK_DIST_STORED_H
#define LK_DIST_STORED_H

#include "lockstep/tensor.h"

typedef struct lk_stored lk_stored;

/* readers[d * n + i]: what devices[d] reads of stored[i], one reference each, the caller's; stored[i] itself where it
 * is on that device. stored: f32 of one device, which has to live as long; as few storages as can be. Waits for them.
 * On failure every entry of readers is NULL. */
lk_status lk__stored_new(lk_tensor *const *stored, int n, lk_device *const *devices, int n_devices, lk_tensor **readers,
                         lk_stored **s);
void lk__stored_release(lk_stored *s); /* NULL is fine */

/* Around what updates stored variables: what was pushed before reads the old ones, what is pushed after it the new
 * ones. Asynchronous. */
lk_status lk__stored_begin_update(lk_stored *s);
lk_status lk__stored_end_update(lk_stored *s);

#endif
