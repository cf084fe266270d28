/* Every device has a replica of the variables. All replicas stay equal to the last bit: each applies the same sums. */
#include "dist/strategies/in_process.h"

const lk_strategy_table lk__strategy_mirrored = {
    .name = "mirrored",
    .facts = LK_STRATEGY_SHARDS,
    .open = lk__in_process_open,
    .begin = lk__in_process_begin,
    .finish = lk__in_process_finish,
};
