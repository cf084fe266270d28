/* A replica of the variables on every device of several processes, equal to the last bit: shards are numbered over all
 * of them, and sums over shards are finished by messages between processes. */
#include "base/mem.h"
#include "base/status.h"
#include "core/backend.h"
#include "dist/host_links.h"
#include "dist/strategy.h"

#include <stdio.h>
#include <string.h>

static lk_status check(lk_device *const *devices, int n_devices)
{
    const lk_links_table *links = lk__links_of(devices[0]);
    return links ? links->check_library(devices, n_devices) : LK_OK;
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

/* CPU devices: what a queue beside theirs adds up goes by the processes' messages. */
static lk_status link_by_messages(lk_strategy *s)
{
    lk_flat_opts opts = {.table = &lk__host_links,
                         .devices = s->devices,
                         .n = s->n_devices,
                         .transport = &lk__transport_mpi,
                         .group = &s->flat_group,
                         .first = s->first,
                         .ranks = s->ranks};
    snprintf(s->transport, sizeof s->transport, "%s", lk__group_library(s->group));
    return lk__flat_new(&opts, &s->flat);
}

/* A process's devices, for the others. */
typedef struct place {
    lk_device_identity devices[LK_MAX_DEVICES];
    char names[LK_MAX_DEVICES][24];
} place;

static lk_status same_device(const lk_strategy *s, const place *all, int p, int i, int q, int j)
{
    LK_FAIL(
        LK_ERR_UNSUPPORTED,
        "strategy multi-worker: rank %d on %s has %s, which rank %d on %s has as %s, and %s takes a GPU once: start "
        "fewer processes, or leave it to them which GPUs they take (--devices cuda, or Nxcuda)",
        q, lk__group_host(s->group, q), all[q].names[j], p, lk__group_host(s->group, p), all[p].names[i], s->transport);
}

/* All processes come to the same. */
static lk_status check_devices(const lk_strategy *s, const place *all)
{
    int processes = lk__group_ranks(s->group);
    for (int q = 1; q < processes; q++)
        for (int p = 0; p < q; p++)
            for (int j = 0; j < s->starts[q + 1] - s->starts[q]; j++)
                for (int i = 0; i < s->starts[p + 1] - s->starts[p]; i++)
                    if (memcmp(&all[p].devices[i], &all[q].devices[j], sizeof(lk_device_identity)) == 0)
                        return same_device(s, all, p, i, q, j);
    return LK_OK;
}

static lk_status gather_places(const lk_strategy *s, place *own, place *all)
{
    for (int i = 0; i < s->n_devices; i++) {
        const lk_device *device = s->devices[i];
        LK_TRY(device->backend->identify(device->index, &own->devices[i]));
        snprintf(own->names[i], sizeof own->names[i], "%s", device->name);
    }
    return lk__group_gather(s->group, own, sizeof *own, all);
}

/* The library would find it out as well, and say it worse. */
static lk_status check_sharing(const lk_strategy *s, const lk_links_table *links)
{
    if (links->shares_devices())
        return LK_OK;
    place *own = lk__calloc(1, sizeof *own), *all = lk__calloc((size_t)lk__group_ranks(s->group), sizeof *all);
    lk_status status = own && all ? gather_places(s, own, all) : LK_ERR_MEMORY;
    if (status == LK_OK)
        status = check_devices(s, all);
    lk__free(own);
    lk__free(all);
    return status;
}

/* GPUs: by NCCL, of which the processes' messages only carry the name of what connects them. */
static lk_status link_by_library(lk_strategy *s, const lk_links_table *links)
{
    lk_links_id id = {{0}};
    links->describe_library(s->transport, sizeof s->transport);
    LK_TRY(check_sharing(s, links));
    if (lk__group_rank(s->group) == 0)
        LK_TRY(links->new_id(&id));
    LK_TRY(lk__group_broadcast(s->group, 0, &id, sizeof id));
    lk_flat_opts opts = {.table = links,
                         .devices = s->devices,
                         .n = s->n_devices,
                         .transport = &lk__transport_nccl,
                         .id = &id,
                         .group = &s->flat_group,
                         .first = s->first,
                         .ranks = s->ranks};
    return lk__flat_new(&opts, &s->flat);
}

static lk_status open_group(lk_strategy *s)
{
    const lk_links_table *links = lk__links_of(s->devices[0]);
    LK_TRY(lk__group_open(&s->group));
    LK_TRY(number_devices(s));
    s->flat_group = (lk_flat_group){s->group, s->starts};
    LK_TRY(links ? link_by_library(s, links) : link_by_messages(s));
    size_t used = strlen(s->transport);
    int processes = lk__group_ranks(s->group);
    snprintf(s->transport + used, sizeof s->transport - used, ", %d process%s", processes, processes == 1 ? "" : "es");
    return LK_OK;
}

static bool is_there(const lk_bucket *bucket, int i)
{
    for (int64_t m = 0; m < bucket->n_nodes; m++)
        if (bucket->nodes[m].values && bucket->nodes[m].values[i])
            return true;
    return false;
}

static lk_status begin_here(lk_strategy *s, const lk_bucket *bucket)
{
    LK_TRY(lk__bucket_begin_flat(bucket, s));
    for (int q = 0; q < bucket->n_quantities; q++)
        if (!bucket->sums[bucket->quantities[q]] && is_there(bucket, bucket->quantities[q]))
            LK_FAIL(LK_ERR_UNSUPPORTED,
                    "strategy multi-worker: sums of f32 and f64, over at most %d nodes of the tree, can be made",
                    LK_FLAT_PARTS);
    return LK_OK;
}

/* The others begin it all the same. */
static lk_status begin(lk_place at, lk_strategy *s, const lk_bucket *bucket)
{
    (void)at;
    lk_status status = begin_here(s, bucket);
    if (status != LK_OK)
        lk__group_give_up(s->group, status, lk_error_message());
    return status;
}

const lk_strategy_table lk__strategy_multi_worker = {
    .name = "multi-worker",
    .check = check,
    .open = open_group,
    .begin = begin,
};
