/* Every device of several processes has a replica of the variables, and all replicas stay equal to the last bit. Shards
 * are numbered over all processes, and messages between the processes finish the sums over shards. */
#include "base/mem.h"
#include "base/status.h"
#include "core/backend.h"
#include "dist/collectives/gathered_sum.h"
#include "dist/service/network_messages.h"
#include "dist/strategy.h"
#include "dist/sum/bucket.h"
#include "dist/transports/host_links.h"

#include <stdio.h>
#include <string.h>

static lk_status multi_worker_check(lk_device *const *devices, int n_devices)
{
    const lk_links_table *links = lk__links_of(devices[0]);
    return links ? links->check_library(devices, n_devices) : LK_OK;
}

/* Numbers the devices of all processes: sets each process's first rank, and how many ranks there are. */
static lk_status multi_worker_number_ranks(lk_strategy *s)
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

/* A queue next to those of the devices exchanges messages between the processes. For CPU devices it also adds up. */
static lk_status multi_worker_link_by_messages(lk_strategy *s)
{
    lk_links_allreduce_opts opts = {.table = &lk__host_links,
                                    .devices = s->devices,
                                    .n = s->n_devices,
                                    .transport = &lk__transport_mpi,
                                    .group = &s->exchange_group,
                                    .first = s->first,
                                    .ranks = s->ranks};
    snprintf(s->transport, sizeof s->transport, "%s", lk__group_library(s->group));
    return lk__links_allreduce_new(&opts, &s->allreduce);
}

/* A process's devices, as it describes them to the others. */
typedef struct process_devices {
    lk_device_identity devices[LK_MAX_DEVICES];
    char names[LK_MAX_DEVICES][24];
} process_devices;

/* Fails because device i of process p is also device j of process q. */
static lk_status multi_worker_refuse_same(const lk_strategy *s, const process_devices *all, int p, int i, int q, int j)
{
    LK_FAIL(
        LK_ERR_UNSUPPORTED,
        "strategy multi-worker: rank %d on %s has %s, which rank %d on %s has as %s, and %s takes a GPU once: start "
        "fewer processes, or leave it to them which GPUs they take (--devices cuda, or Nxcuda)",
        q, lk__group_host(s->group, q), all[q].names[j], p, lk__group_host(s->group, p), all[p].names[i], s->transport);
}

/* Compares the same data in every process, so all processes get the same status. */
static lk_status multi_worker_check_distinct(const lk_strategy *s, const process_devices *all)
{
    int processes = lk__group_ranks(s->group);
    for (int q = 1; q < processes; q++)
        for (int p = 0; p < q; p++)
            for (int j = 0; j < s->starts[q + 1] - s->starts[q]; j++)
                for (int i = 0; i < s->starts[p + 1] - s->starts[p]; i++)
                    if (memcmp(&all[p].devices[i], &all[q].devices[j], sizeof(lk_device_identity)) == 0)
                        return multi_worker_refuse_same(s, all, p, i, q, j);
    return LK_OK;
}

/* NCCL would fail as well, but with a less helpful message. */
static lk_status multi_worker_check_sharing(const lk_strategy *s, const lk_links_table *links)
{
    if (links->shares_devices())
        return LK_OK;
    process_devices *own = lk__calloc(1, sizeof *own), *all = NULL;
    lk_status status = own ? LK_OK : LK_ERR_MEMORY;
    for (int i = 0; i < s->n_devices && status == LK_OK; i++) {
        const lk_device *device = s->devices[i];
        status = device->backend->identify(device->index, &own->devices[i]);
        snprintf(own->names[i], sizeof own->names[i], "%s", device->name);
    }
    if (status == LK_OK) {
        all = lk__group_gather_new(s->group, own, sizeof *own);
        status = all ? multi_worker_check_distinct(s, all) : lk_error_status();
    }
    lk__free(own);
    lk__free(all);
    return status;
}

/* GPUs: NCCL exchanges the data; the processes' own messages only carry the communicator's id. */
static lk_status multi_worker_link_by_library(lk_strategy *s, const lk_links_table *links)
{
    lk_links_id id = {{0}};
    links->describe_library(s->transport, sizeof s->transport);
    LK_TRY(multi_worker_check_sharing(s, links));
    if (lk__group_rank(s->group) == 0)
        LK_TRY(links->new_id(&id));
    LK_TRY(lk__group_broadcast(s->group, 0, &id, sizeof id));
    lk_links_allreduce_opts opts = {.table = links,
                                    .devices = s->devices,
                                    .n = s->n_devices,
                                    .transport = &lk__transport_nccl,
                                    .id = &id,
                                    .group = &s->exchange_group,
                                    .first = s->first,
                                    .ranks = s->ranks};
    return lk__links_allreduce_new(&opts, &s->allreduce);
}

/* A trainer has joined the other processes by its own settings; a program without one joins those that TF_CONFIG
 * describes. */
static lk_status multi_worker_join(lk_group **group)
{
    lk_cluster *cluster = NULL;
    if (lk__group_is_unknown())
        LK_TRY(lk__cluster_open(NULL, &cluster));
    lk_status status = lk__network_use_cluster(cluster, &(lk_network_place){.listen = NULL});
    lk__cluster_release(cluster);
    LK_TRY(status);
    return lk__group_open(group);
}

static lk_status multi_worker_open(lk_strategy *s)
{
    const lk_links_table *links = lk__links_of(s->devices[0]);
    LK_TRY(multi_worker_join(&s->group));
    LK_TRY(multi_worker_number_ranks(s));
    s->exchange_group = (lk_exchange_group){s->group, s->starts};
    LK_TRY(links ? multi_worker_link_by_library(s, links) : multi_worker_link_by_messages(s));
    size_t used = strlen(s->transport);
    int processes = lk__group_ranks(s->group);
    snprintf(s->transport + used, sizeof s->transport - used, ", %d process%s", processes, processes == 1 ? "" : "es");
    return LK_OK;
}

static bool multi_worker_has_quantity(const lk_bucket *bucket, int i)
{
    for (int64_t m = 0; m < bucket->n_nodes; m++)
        if (bucket->nodes[m].values && bucket->nodes[m].values[i])
            return true;
    return false;
}

static lk_status multi_worker_begin_sums(lk_call_site at, lk_strategy *s, const lk_bucket *bucket)
{
    if (s->devices[0]->backend->modules)
        return lk__gathered_sum_begin(at, s, bucket);
    LK_TRY(lk__bucket_begin_linked(bucket, s));
    for (int q = 0; q < bucket->n_quantities; q++)
        if (!bucket->sums[bucket->quantities[q]] && multi_worker_has_quantity(bucket, bucket->quantities[q]))
            LK_FAIL(LK_ERR_UNSUPPORTED,
                    "strategy multi-worker: sums of f32 and f64 can be made; in bf16 over at most %d nodes of the tree",
                    LK_LINKS_ALLREDUCE_PARTS);
    return LK_OK;
}

/* The other processes begin the same sums, so a failure here must end them too. */
static lk_status multi_worker_begin(lk_call_site at, lk_strategy *s, const lk_bucket *bucket)
{
    lk_status status = multi_worker_begin_sums(at, s, bucket);
    if (status != LK_OK)
        lk__group_give_up(s->group, status, lk_error_message());
    return status;
}

const lk_strategy_table lk__strategy_multi_worker = {
    .name = "multi-worker",
    .facts = LK_STRATEGY_RANKS | LK_STRATEGY_SHARDS,
    .check = multi_worker_check,
    .open = multi_worker_open,
    .begin = multi_worker_begin,
};
