/* A transport moves bytes between devices. */
#ifndef LK_DIST_TRANSPORT_H
#define LK_DIST_TRANSPORT_H

#include "lockstep/tensor.h"

typedef struct lk_transport {
    const char *name;
    /* A tensor with the elements of `tensor` that kernels of `device` can read: the same one where memory is shared,
     * else a copy on its way. Belongs to the open scope, or is `tensor`. NULL for NULL. Asynchronous. */
    lk_tensor *(*reach)(lk_place at, lk_tensor *tensor, lk_device *device);
} lk_transport;

extern const lk_transport lk__transport_inproc;

#endif
