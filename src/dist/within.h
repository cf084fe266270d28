/* Sums over the devices of one process, each of which has a replica of the variables: what strategies whose processes
 * do that have in common. They are slots of an lk_strategy_table. */
#ifndef LK_DIST_WITHIN_H
#define LK_DIST_WITHIN_H

#include "dist/strategy.h"

/* Prepares what carries sums from device to device, and names it in strategy->transport; one device needs none. */
lk_status lk__within_open(lk_strategy *strategy);
lk_status lk__within_begin(lk_place at, lk_strategy *strategy, const lk_bucket *bucket);
lk_status lk__within_finish(lk_place at, lk_strategy *strategy, const lk_bucket *bucket);

#endif
