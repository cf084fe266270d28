/* Servers hold the variables; a worker has a copy on each of its devices, as it has pulled it, and sums up what these
 * compute before it is pushed. What goes on between processes is told where training is: train/ps_protocol.h. */
#include "dist/within.h"

#include <stdio.h>

static lk_status check(lk_device *const *devices, int n_devices)
{
    (void)devices, (void)n_devices;
    return LK_OK;
}

static lk_status open_worker(lk_strategy *strategy)
{
    lk_status status = lk__within_open(strategy);
    snprintf(strategy->transport, sizeof strategy->transport, "ZeroMQ");
    return status;
}

const lk_strategy_table lk__strategy_parameter_server = {
    .name = "parameter-server",
    .check = check,
    .open = open_worker,
    .begin = lk__within_begin,
    .finish = lk__within_finish,
};
