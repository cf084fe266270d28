/* One device stores the variables and the optimizer's state. The others read the variables in place or as copies
 * (dist/sum/stored.h), and sums over shards are finished on the storing device, which makes the update. */
#include "base/status.h"
#include "core/backend.h"
#include "dist/strategy.h"
#include "dist/sum/bucket.h"
#include "lockstep/ops.h"

/* Devices that share the process's memory read the first one's variables in place; for offload devices the CPU stores.
 */
static lk_status central_storage_open(lk_strategy *s)
{
    s->storage = s->devices[0]->backend->offload ? lk_device_open("cpu:0") : lk_device_retain(s->devices[0]);
    return s->storage ? LK_OK : lk_error_status();
}

/* A quantity with a single value is not added to anything, so its "sum" may still be on any device. */
static lk_status central_storage_fetch(lk_call_site at, lk_device *storage, lk_tensor **sum)
{
    if (!*sum || lk_tensor_device(*sum) == storage)
        return LK_OK;
    lk_tensor *copy = lk_copy_at(at, *sum, storage);
    if (!copy)
        return lk_error_status();
    lk_tensor_retain(copy);
    lk_tensor_release(*sum);
    *sum = copy;
    return LK_OK;
}

/* If the storing device also computes, the devices that share its memory share the adding. */
static lk_status central_storage_begin(lk_call_site at, lk_strategy *s, const lk_bucket *bucket)
{
    if (lk__has_separate_storage(s))
        LK_TRY(lk__bucket_sum_on(at, s->storage, &s->storage, 1, bucket));
    else
        LK_TRY(lk__bucket_sum_on(at, s->storage, s->devices, s->n_devices, bucket));
    for (int q = 0; q < bucket->n_quantities; q++)
        LK_TRY(central_storage_fetch(at, s->storage, &bucket->sums[bucket->quantities[q]]));
    return LK_OK;
}

static lk_status central_storage_finish(lk_call_site at, lk_strategy *s, const lk_bucket *bucket)
{
    (void)at, (void)s;
    return lk__shared_sum_finish(*bucket->jobs);
}

const lk_strategy_table lk__strategy_central_storage = {
    .name = "central-storage",
    .facts = LK_STRATEGY_STORES,
    .open = central_storage_open,
    .begin = central_storage_begin,
    .finish = central_storage_finish,
};
