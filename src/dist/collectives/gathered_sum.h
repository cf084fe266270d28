/* Sums over the shards of several processes whose devices compile (lk_backend.modules). The values of every process's
 * nodes go to all others, and each device adds up the whole tree, as such devices of one process do. So the additions
 * are the same modules, however many processes there are. */
#pragma once

#include "dist/strategy.h"

/* lk_strategy_table.begin; nothing is left for `finish`. Errors: LK_ERR_MEMORY. */
lk_status lk__gathered_sum_begin(lk_call_site at, lk_strategy *strategy, const lk_bucket *bucket);
