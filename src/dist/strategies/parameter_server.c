/* Servers hold the variables. A worker pulls a copy onto each of its devices, and sums up what they compute before it
 * pushes the sums. train/parameter_server/ps_protocol.h describes the messages between processes. */
#include "dist/strategies/in_process.h"

#include <stdio.h>

static lk_status ps_strategy_open(lk_strategy *strategy)
{
    lk_status status = lk__in_process_open(strategy);
    snprintf(strategy->transport, sizeof strategy->transport, "ZeroMQ");
    return status;
}

const lk_strategy_table lk__strategy_parameter_server = {
    .name = "parameter-server",
    .facts = LK_STRATEGY_ROLES,
    .open = ps_strategy_open,
    .begin = lk__in_process_begin,
    .finish = lk__in_process_finish,
};
