/* The variables and the optimiser's state are on one device. The others compute with what they read there, in place or
 * as copies (dist/stored.h), and sums over shards are finished where the update is made. */
#include "base/status.h"
#include "core/backend.h"
#include "dist/strategy.h"
#include "lockstep/ops.h"

static lk_status check(lk_device *const *devices, int n_devices)
{
    (void)devices, (void)n_devices;
    return LK_OK;
}

/* Devices that share the process's memory read a first one's in place; for others a core of the processor stores. */
static lk_status open_storage(lk_strategy *s)
{
    s->storage = s->devices[0]->backend->offload ? lk_device_open("cpu:0") : lk_device_retain(s->devices[0]);
    return s->storage ? LK_OK : lk_error_status();
}

/* What is there alone is not added to anything, and may be anywhere. */
static lk_status bring(lk_place at, lk_device *storage, lk_tensor **sum)
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

static bool computes(const lk_strategy *s)
{
    for (int d = 0; d < s->n_devices; d++)
        if (s->devices[d] == s->storage)
            return true;
    return false;
}

/* Devices that share their memory share the work too, where the one that stores is one of them. */
static lk_status begin(lk_place at, lk_strategy *s, const lk_bucket *bucket)
{
    if (computes(s))
        LK_TRY(lk__bucket_sum_on(at, s->storage, s->devices, s->n_devices, bucket));
    else
        LK_TRY(lk__bucket_sum_on(at, s->storage, &s->storage, 1, bucket));
    for (int q = 0; q < bucket->n_quantities; q++)
        LK_TRY(bring(at, s->storage, &bucket->sums[bucket->quantities[q]]));
    return LK_OK;
}

static lk_status finish(lk_place at, lk_strategy *s, const lk_bucket *bucket)
{
    (void)at, (void)s;
    return lk__shared_sum_finish(*bucket->jobs);
}

const lk_strategy_table lk__strategy_central_storage = {
    .name = "central-storage",
    .check = check,
    .open = open_storage,
    .begin = begin,
    .finish = finish,
};
