/* A transport moves bytes between devices. */
#pragma once

#include "dist/transports/flat_exchange.h"
#include "lockstep/tensor.h"

typedef struct lk_transport {
    const char *name;
    bool is_late; /* after a failure it may read and write the memory of an exchange for the rest of the process */

    /* For devices without links; NULL in transports for links. Returns a tensor with the elements of `tensor` that
     * kernels of `device` can read: `tensor` itself if memory is shared, else a copy, which belongs to the open scope.
     * NULL for NULL. Asynchronous. */
    lk_tensor *(*reach)(lk_call_site at, lk_tensor *tensor, lk_device *device);

    /* For links; NULL in other transports. Called on the thread of the links' queue. `scatter` brings chunks of nodes
     * to every device's buffer; `gather` then brings the slices of the sum, if the row is sliced. */
    lk_status (*scatter)(const lk_flat_exchange *exchange);
    lk_status (*gather)(const lk_flat_exchange *exchange);
    /* Replaces the sum's rows of all ranks by their total, in an order that the library chooses. NULL: not available.
     */
    lk_status (*reduce)(const lk_flat_exchange *exchange);
} lk_transport;

extern const lk_transport lk__transport_inproc; /* devices that share their memory */
extern const lk_transport lk__transport_peer;   /* links, by copies between devices; all ranks are local */
extern const lk_transport lk__transport_nccl;   /* links, by NCCL's sends, receives and collectives */
extern const lk_transport lk__transport_mpi;    /* links between processes whose devices use the process's memory */
