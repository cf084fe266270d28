/* A replica of the variables on every device, equal to the last bit: each applies the same sums. */
#include "dist/within.h"

static lk_status check(lk_device *const *devices, int n_devices)
{
    (void)devices, (void)n_devices;
    return LK_OK;
}

const lk_strategy_table lk__strategy_mirrored = {
    .name = "mirrored",
    .check = check,
    .open = lk__within_open,
    .begin = lk__within_begin,
    .finish = lk__within_finish,
};
