/* A replica of the variables on every device of several processes, equal to the last bit: shards are numbered over all
 * of them, and sums over shards are finished by messages between processes. */
#include "base/mem.h"
#include "base/status.h"
#include "dist/host_links.h"
#include "dist/strategy.h"

#include <stdio.h>

static lk_status check(lk_device *const *devices, int n_devices)
{
    (void)n_devices;
    if (lk__links_of(devices[0]))
        LK_FAIL(LK_ERR_UNSUPPORTED, "strategy multi-worker: for CPU devices so far, not for %s",
                lk_device_name(devices[0]));
    return LK_OK;
}

/* Every process's number of devices, and where its ranks begin. */
static lk_status number_devices(lk_strategy *s)
{
    int processes = lk__group_ranks(s->group), here = lk__group_rank(s->group);
    s->starts = lk__calloc((size_t)processes + 1, sizeof *s->starts);
    if (!s->starts)
        return LK_ERR_MEMORY;
    LK_TRY(lk__group_gather(s->group, &s->n_devices, sizeof s->n_devices, s->starts + 1));
    for (int p = 0; p < processes; p++)
        s->starts[p + 1] += s->starts[p];
    s->first = s->starts[here];
    s->ranks = s->starts[processes];
    return LK_OK;
}

static lk_status open_group(lk_strategy *s)
{
    LK_TRY(lk__group_open(&s->group));
    LK_TRY(number_devices(s));
    s->flat_group = (lk_flat_group){s->group, s->starts};
    snprintf(s->transport, sizeof s->transport, "%s, %d processes", lk__group_library(s->group),
             lk__group_ranks(s->group));
    lk_flat_opts opts = {.table = &lk__host_links,
                         .devices = s->devices,
                         .n = s->n_devices,
                         .transport = &lk__transport_mpi,
                         .group = &s->flat_group,
                         .first = s->first,
                         .ranks = s->ranks};
    return lk__flat_new(&opts, &s->flat);
}

static bool is_there(const lk_bucket *bucket, int i)
{
    for (int64_t m = 0; m < bucket->n_nodes; m++)
        if (bucket->nodes[m].values && bucket->nodes[m].values[i])
            return true;
    return false;
}

static lk_status begin(lk_place at, lk_strategy *s, const lk_bucket *bucket)
{
    (void)at;
    LK_TRY(lk__bucket_begin_flat(bucket, s->flat, s->devices[0], s->reduce));
    for (int q = 0; q < bucket->n_quantities; q++)
        if (!bucket->sums[bucket->quantities[q]] && is_there(bucket, bucket->quantities[q]))
            LK_FAIL(LK_ERR_UNSUPPORTED,
                    "strategy multi-worker: sums of f32 and f64, over at most %d nodes of the tree, can be made",
                    LK_FLAT_PARTS);
    return LK_OK;
}

const lk_strategy_table lk__strategy_multi_worker = {
    .name = "multi-worker",
    .check = check,
    .open = open_group,
    .begin = begin,
};
