/* Devices of one process whose memory every core can read: nothing has to move. Order is kept by the storage's events.
 */
#include "dist/transport.h"

static lk_tensor *reach(lk_place at, lk_tensor *tensor, lk_device *device)
{
    (void)at, (void)device;
    return tensor;
}

const lk_transport lk__transport_inproc = {
    .name = "inproc",
    .reach = reach,
};
