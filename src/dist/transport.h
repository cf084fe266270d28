/* A transport moves bytes between devices. */
#ifndef LK_DIST_TRANSPORT_H
#define LK_DIST_TRANSPORT_H

#include "dist/flat_exchange.h"
#include "lockstep/tensor.h"

typedef struct lk_transport {
    const char *name;
    bool is_late; /* after a failure it may still read and write what an exchange works on, as long as the process */

    /* A tensor with the elements of `tensor` that kernels of `device` can read: the same one where memory is shared,
     * else a copy on its way. Belongs to the open scope, or is `tensor`. NULL for NULL. Asynchronous. NULL where a
     * transport is for links. */
    lk_tensor *(*reach)(lk_place at, lk_tensor *tensor, lk_device *device);

    /* Over links, on the thread of their queue; NULL where there are none. Chunks of nodes come to every device's room,
     * and then slices of the sum, where there are any. */
    lk_status (*scatter)(const lk_flat_exchange *exchange);
    lk_status (*gather)(const lk_flat_exchange *exchange);
    /* The sum's rows of all ranks become their sum, in an order of the library's. NULL: it has none. */
    lk_status (*reduce)(const lk_flat_exchange *exchange);
} lk_transport;

extern const lk_transport lk__transport_inproc; /* devices that share their memory */
extern const lk_transport lk__transport_peer;   /* links, by copies from device to device: all ranks are here */
extern const lk_transport lk__transport_nccl;   /* links, by NCCL's sends, receives and collectives */
extern const lk_transport lk__transport_mpi;    /* links of devices whose memory is the process's, between processes */

#endif
