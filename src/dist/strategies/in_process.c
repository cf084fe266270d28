#include "dist/strategies/in_process.h"

#include "base/status.h"
#include "dist/collectives/tree_allreduce.h"
#include "dist/sum/bucket.h"

#include <stdio.h>

/* GPUs use NCCL if it supports them, else copies. Devices that share their memory need no exchange object. */
lk_status lk__in_process_open(lk_strategy *strategy)
{
    const lk_links_table *links = lk__links_of(strategy->devices[0]);
    lk_error_state kept;
    lk__error_save(&kept);
    bool by_library = links && links->check_library(strategy->devices, strategy->n_devices) == LK_OK;
    lk_links_allreduce_opts opts = {.table = links,
                                    .devices = strategy->devices,
                                    .n = strategy->n_devices,
                                    .transport = by_library ? &lk__transport_nccl : &lk__transport_peer};
    lk__error_restore(&kept); /* the user did not ask for NCCL, so it is no error if it cannot be used */
    if (strategy->n_devices == 1)
        return LK_OK;
    snprintf(strategy->transport, sizeof strategy->transport, "%s",
             links ? opts.transport->name : lk__transport_inproc.name);
    if (by_library)
        links->describe_library(strategy->transport, sizeof strategy->transport);
    return links ? lk__links_allreduce_new(&opts, &strategy->allreduce) : LK_OK;
}

/* `take` copies column i out of from[replica * n + i]; `put` copies it back. */
static void in_process_take_column(const lk_strategy *strategy, lk_tensor *const *from, int n, int i,
                                   lk_tensor **column)
{
    for (int r = 0; r < strategy->n_devices; r++)
        column[r] = from[r * n + i];
}

static void in_process_put_column(const lk_strategy *strategy, lk_tensor *const *column, lk_tensor **to, int n, int i)
{
    for (int r = 0; r < strategy->n_devices; r++)
        to[r * n + i] = column[r];
}

lk_status lk__in_process_begin(lk_call_site at, lk_strategy *strategy, const lk_bucket *b)
{
    lk_tensor *sums[LK_MAX_DEVICES], *begun[LK_MAX_DEVICES];
    LK_TRY(lk__bucket_begin_shared(b, strategy->devices, strategy->n_devices));
    if (strategy->allreduce)
        LK_TRY(lk__bucket_begin_linked(b, strategy));
    for (int q = 0; q < b->n_quantities; q++) {
        int i = b->quantities[q];
        if (b->sums[i])
            continue;
        LK_TRY(lk__tree_allreduce_begin(at, strategy->devices, strategy->n_devices, &lk__transport_inproc, b->root.end,
                                        b->nodes, b->n_nodes, i, sums, begun));
        in_process_put_column(strategy, sums, b->sums, b->n, i);
        in_process_put_column(strategy, begun, b->begun, b->n, i);
    }
    return LK_OK;
}

lk_status lk__in_process_finish(lk_call_site at, lk_strategy *strategy, const lk_bucket *b)
{
    lk_tensor *sums[LK_MAX_DEVICES], *begun[LK_MAX_DEVICES];
    LK_TRY(lk__shared_sum_finish(*b->jobs));
    for (int q = 0; q < b->n_quantities; q++) {
        int i = b->quantities[q];
        in_process_take_column(strategy, b->sums, b->n, i, sums);
        in_process_take_column(strategy, b->begun, b->n, i, begun);
        LK_TRY(
            lk__tree_allreduce_finish(at, strategy->devices, strategy->n_devices, &lk__transport_inproc, sums, begun));
    }
    return LK_OK;
}
