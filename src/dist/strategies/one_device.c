/* One replica on one device, which adds up all shards by the same tree as several devices do. */
#include "base/status.h"
#include "dist/strategy.h"
#include "dist/sum/bucket.h"

static lk_status one_device_check(lk_device *const *devices, int n_devices)
{
    (void)devices;
    if (n_devices != 1)
        LK_FAIL(LK_ERR_ARGUMENT, "strategy one-device: %d devices; use mirrored for several", n_devices);
    return LK_OK;
}

static lk_status one_device_begin(lk_call_site at, lk_strategy *strategy, const lk_bucket *bucket)
{
    return lk__bucket_sum_on(at, strategy->devices[0], strategy->devices, 1, bucket);
}

const lk_strategy_table lk__strategy_one_device = {
    .name = "one-device",
    .facts = LK_STRATEGY_SHARDS, /* its slice is everything */
    .check = one_device_check,
    .begin = one_device_begin,
};
