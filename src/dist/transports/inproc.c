/* The devices share the process's memory, so nothing has to move; the events of a storage keep the order. */
#include "dist/transports/transport.h"

static lk_tensor *inproc_reach(lk_call_site at, lk_tensor *tensor, lk_device *device)
{
    (void)at, (void)device;
    return tensor;
}

const lk_transport lk__transport_inproc = {
    .name = "inproc",
    .reach = inproc_reach,
};
