/* One replica on one device. Sums over shards are finished there by the same tree. */
#include "base/status.h"
#include "dist/strategy.h"
#include "lockstep/ops.h"

static lk_status check(lk_device *const *devices, int n_devices)
{
    (void)devices;
    if (n_devices != 1)
        LK_FAIL(LK_ERR_ARGUMENT, "strategy one-device: %d devices; use mirrored for several", n_devices);
    return LK_OK;
}

static lk_status place(lk_place at, lk_strategy *strategy, lk_tensor *const *initial, int n, lk_tensor **variables)
{
    for (int i = 0; i < n; i++) {
        lk_tensor *copy = lk_copy_at(at, initial[i], strategy->devices[0]);
        if (!copy)
            return lk_error_status();
        variables[i] = lk_tensor_retain(copy);
    }
    return LK_OK;
}

static lk_status begin(lk_place at, lk_strategy *strategy, const lk_bucket *bucket)
{
    return lk__bucket_sum_on(at, strategy->devices[0], bucket);
}

const lk_strategy_table lk__strategy_one_device = {
    .name = "one-device",
    .check = check,
    .place = place,
    .begin = begin,
};
