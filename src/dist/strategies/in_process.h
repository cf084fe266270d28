/* Sums over the devices of one process, each of which has a replica of the variables. These functions are members of
 * the lk_strategy_table of every strategy that needs such sums. */
#pragma once

#include "dist/strategy.h"

/* Prepares the transport of sums between devices, and names it in strategy->transport. One device needs none. */
lk_status lk__in_process_open(lk_strategy *strategy);
lk_status lk__in_process_begin(lk_call_site at, lk_strategy *strategy, const lk_bucket *bucket);
lk_status lk__in_process_finish(lk_call_site at, lk_strategy *strategy, const lk_bucket *bucket);
